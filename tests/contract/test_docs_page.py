"""The page at /docs: it needs no token and nothing from anywhere else."""

from __future__ import annotations

import base64
import hashlib
import re
from typing import TYPE_CHECKING

import httpx
import pytest

if TYPE_CHECKING:
    from tests.support.service import Service


@pytest.fixture(scope="module")
def page(service: Service) -> httpx.Response:
    return httpx.get(f"{service.url}/docs", trust_env=False, timeout=120)


def test_all_that_it_loads_comes_from_the_service(page: httpx.Response) -> None:
    assert page.status_code == 200
    assert "//" not in page.text
    loaded = re.findall(r'(?:href|src)="([^"]+)"', page.text)
    sizes = {}
    for target in loaded:
        if target != "data:,":
            plain = {"Accept-Encoding": "identity"}
            answer = httpx.get(page.url.join(target), trust_env=False, timeout=120, headers=plain)
            assert answer.status_code == 200, target
            assert int(answer.headers["content-length"]) < len(answer.content) / 3, target
            assert answer.headers["content-type"].startswith(("text/javascript", "text/css")), target
            sizes[target] = len(answer.content)
    assert len(sizes) == 2
    assert min(sizes.values()) > 100_000
    specification = re.search(r'url: "([^"]+)"', page.text)
    assert specification is not None
    answer = httpx.get(page.url.join(specification[1]), trust_env=False, timeout=120)
    assert answer.json()["info"]["title"] == "Confplane"


def test_its_policy_admits_its_own_script_and_nothing_from_elsewhere(page: httpx.Response) -> None:
    policy = dict(part.strip().split(" ", 1) for part in page.headers["content-security-policy"].split(";"))
    inline = re.findall(r"<script>(.*?)</script>", page.text, re.DOTALL)
    hashes = [base64.b64encode(hashlib.sha256(text.encode()).digest()).decode() for text in inline]
    assert policy["script-src"].split() == ["'self'", *(f"'sha256-{value}'" for value in hashes)]
    assert policy["default-src"] == "'none'"
    assert {word for value in policy.values() for word in value.split()} <= {
        "'none'",
        "'self'",
        "data:",
        *policy["script-src"].split(),
    }


@pytest.mark.parametrize("path", ["/docs/", "/docs/redoc.standalone.js", "/docs/../docs/x", "/docs/oauth2-redirect"])
def test_nothing_else_is_open_below_it(service: Service, path: str) -> None:
    assert httpx.get(f"{service.url}{path}", trust_env=False, timeout=120).status_code == 401
