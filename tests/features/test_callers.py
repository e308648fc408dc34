"""Principal and address of callers: nothing that a client may write itself is taken for either."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING
from uuid import uuid4

import httpx
import pytest

from tests.support.alerts import firing
from tests.support.metrics import scrape
from tests.support.promql import ScrapeSeries
from tests.support.service import Service, ServiceInThread

if TYPE_CHECKING:
    from pathlib import Path

    from tests.support.servers import Database

FORGED = {"X-Forwarded-For": "203.0.113.9", "X-Forwarded-Proto": "https", "Forwarded": "for=203.0.113.9"}


def source_of_a_change(service: Service, user: str, headers: dict[str, str]) -> object:
    """Change a quota and return the source that the trail has of the change."""
    base = f"{service.url}/v1/clusters/default"
    token = {"Authorization": f"Bearer {service.token}"}
    with httpx.Client(headers=token, trust_env=False, timeout=60) as client:
        put = client.put(
            f"{base}/client-quotas/user={user}", headers=headers, json={"quotas": {"producer_byte_rate": 1}}
        )
        assert put.status_code == 200, put.text
        change = client.get(f"{base}/audit/{put.headers['confplane-change-id']}")
        assert change.status_code == 200, change.text
        return change.json()["source"]


@pytest.mark.parametrize(
    ("settings", "source"),
    [
        ({"FORWARDED_ALLOW_IPS": "*"}, "127.0.0.1"),
        ({"CONFPLANE_HTTP__TRUSTED_PROXIES": json.dumps(["10.0.0.0/8"])}, "127.0.0.1"),
        ({"CONFPLANE_HTTP__TRUSTED_PROXIES": json.dumps(["127.0.0.1"])}, "203.0.113.9"),
    ],
    ids=["by-default", "another-proxy", "behind-the-proxy"],
)
def test_the_source_of_a_change_is_no_text_of_its_client(
    workdir: Path, module_chroot: str, module_database: Database, settings: dict[str, str], source: str
) -> None:
    with ServiceInThread(workdir, connect=module_chroot, dsn=module_database.service_dsn, settings=settings) as service:
        assert source_of_a_change(service, uuid4().hex, FORGED) == source


def test_a_second_authorization_is_refused(service: Service) -> None:
    right, wrong = ("Authorization", f"Bearer {service.token}"), ("Authorization", "Bearer other")
    path = f"{service.url}/v1/clusters/default/client-quotas"
    for headers in ([right, right], [right, wrong], [wrong, right]):
        answer = httpx.get(path, headers=headers, trust_env=False)
        assert answer.status_code == 400, answer.text
        assert answer.json()["errors"][0]["pointer"] == "Authorization"
        assert service.token not in answer.text
    # Headers that may be repeated still may.
    etags = [right, ("If-None-Match", '"a"'), ("If-None-Match", '"b"')]
    assert httpx.get(path, headers=etags, trust_env=False).status_code == 200


def test_failed_authentications_are_counted(service: Service) -> None:
    def failed(reason: str) -> float:
        return scrape(service)("authentications_failed_total", reason=reason)

    tried = {"missing": [], "invalid": [("Authorization", "Bearer x")], "repeated": [("Authorization", "Bearer x")] * 2}
    for reason, headers in tried.items():
        before = failed(reason)
        assert httpx.get(f"{service.url}/v1/whoami", headers=headers, trust_env=False).status_code in {400, 401}
        assert failed(reason) == before + 1


def test_many_invalid_tokens_raise_an_alert(service: Service) -> None:
    series = ScrapeSeries().add(scrape(service).text, 0)
    assert "InvalidCredentials" not in firing(series)
    with httpx.Client(trust_env=False, headers={"Authorization": "Bearer x"}) as client:
        for _ in range(400):
            assert client.get(f"{service.url}/v1/whoami").status_code == 401
    # As if they came within five minutes.
    assert "InvalidCredentials" in firing(series.add(scrape(service).text, 299))
