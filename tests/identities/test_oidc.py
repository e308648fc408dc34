"""Access tokens of a real OpenID provider, at a whole service."""

from __future__ import annotations

import asyncio
import json
from typing import TYPE_CHECKING, Any

import httpx
import pytest

from tests.identities.provider import OpenIdProvider
from tests.support import tools
from tests.support.issuer import Signer
from tests.support.waiting import until

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tests.support.service import Service

pytestmark = pytest.mark.interop

OLD, NEW = Signer("old"), Signer("new")


@pytest.fixture(scope="module")
def provider(tmp_path_factory: pytest.TempPathFactory) -> Iterator[OpenIdProvider]:
    modules = tools.obtain(tools.oidc_provider).read_text()
    with OpenIdProvider(tmp_path_factory.mktemp("issuer"), modules) as made:
        made.start(OLD)
        yield made


@pytest.fixture(scope="module")
def service_options(provider: OpenIdProvider) -> dict[str, Any]:
    """Confplane that trusts the provider as a CI issuer."""
    issuer = {
        "issuer": provider.url,
        "insecure_http": True,
        "audiences": ["confplane"],
        "prefix": "ci:",
        "shared": True,
        "required_claims": {"repository_owner": "acme"},
        "groups_claim": "groups",
    }
    return {"settings": {"CONFPLANE_OIDC": json.dumps([issuer])}}


def get(service: Service, token: str) -> httpx.Response:
    headers = {"Authorization": f"Bearer {token}"}
    return httpx.get(f"{service.url}/v1/whoami", headers=headers, trust_env=False, timeout=30)


async def test_the_providers_tokens_are_accepted(service: Service, provider: OpenIdProvider) -> None:
    token = provider.token("acme")
    answer = await until(lambda: _accepted(get(service, token)))
    assert answer.json()["principal"] == "User:ci:acme"


def _accepted(answer: httpx.Response) -> httpx.Response | None:
    """Return an answer; None while the keys are being fetched."""
    assert answer.status_code in {200, 503}, answer.text
    return answer if answer.status_code == 200 else None


@pytest.mark.parametrize(
    ("client", "audience", "reason"),
    [
        ("mallory", "confplane", "repository_owner"),
        ("nobody", "confplane", "repository_owner"),
        ("acme", "other", "audience"),
    ],
)
def test_tokens_of_others_of_a_shared_issuer_are_refused(
    service: Service, provider: OpenIdProvider, client: str, audience: str, reason: str
) -> None:
    answer = get(service, provider.token(client, audience))
    assert answer.status_code == 401
    assert reason in answer.json()["detail"]


async def test_keys_rotated_under_load_fail_no_request(service: Service, provider: OpenIdProvider) -> None:
    old = provider.token("acme")
    ended = False
    answers: dict[str, list[int]] = {"old": [], "new": []}

    async def poll(client: httpx.AsyncClient, name: str, token: str) -> None:
        while not ended:
            answer = await client.get("/v1/whoami", headers={"Authorization": f"Bearer {token}"})
            answers[name].append(answer.status_code)
            if answer.status_code == 503:
                assert answer.headers["Retry-After"] == "1"

    async with (
        httpx.AsyncClient(base_url=service.url, trust_env=False, timeout=60) as client,
        asyncio.TaskGroup() as load,
    ):
        for _ in range(4):
            load.create_task(poll(client, "old", old))
        await until(lambda: len(answers["old"]) > 100)
        # Away for a moment, and back with another key beside the one that signed so far.
        await asyncio.to_thread(provider.stop)
        away = len(answers["old"])
        await until(lambda: len(answers["old"]) > away + 100)
        await asyncio.to_thread(provider.start, NEW, OLD)
        new = await asyncio.to_thread(provider.token, "acme")
        for _ in range(4):
            load.create_task(poll(client, "new", new))
        await until(lambda: answers["new"].count(200) > 100)
        ended = True
    assert set(answers["old"]) == {200}
    assert answers["new"] == sorted(answers["new"], reverse=True), "accepted, and then not"
    assert set(answers["new"]) <= {200, 503}
