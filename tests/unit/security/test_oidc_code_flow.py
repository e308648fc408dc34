"""The exchange of codes at an issuer on loopback."""

from __future__ import annotations

import asyncio
import json
from typing import TYPE_CHECKING

import pytest
import pytest_asyncio

from confplane.domain.errors import UnauthenticatedError, UnavailableError
from confplane.security.oidc.code_flow import CodeFlow
from confplane.security.oidc.provider import Provider
from tests.support.issuer import DISCOVERY, JWKS, Issuer
from tests.support.waiting import until

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Iterator

TOKEN = "/token"


@pytest.fixture
def issuer() -> Iterator[Issuer]:
    with Issuer() as running:
        document = {
            "issuer": running.url,
            "jwks_uri": running.url + JWKS,
            "token_endpoint": running.url + TOKEN,
            "authorization_response_iss_parameter_supported": True,
        }
        running.documents[DISCOVERY] = (200, json.dumps(document).encode())
        yield running


@pytest_asyncio.fixture
async def flow(issuer: Issuer) -> AsyncIterator[CodeFlow]:
    provider = Provider(issuer.settings(console_client_id="console"))
    provider.start()
    await until(lambda: provider.keys is not None)
    yield CodeFlow(provider, "http://127.0.0.1/console/sign-in/callback")
    await provider.stop()


async def finished(flow: CodeFlow, address: str = "192.0.2.1") -> type[Exception]:
    """Send a made-up code; return the error."""
    with pytest.raises((UnauthenticatedError, UnavailableError)) as raised:
        await flow.finish("made-up", "nonce", "verifier", address)
    return raised.type


@pytest.mark.parametrize(
    ("status", "error"),
    [(400, UnauthenticatedError), (401, UnauthenticatedError), (429, UnavailableError), (503, UnavailableError)],
)
async def test_an_issuer_that_is_overloaded_has_not_refused_the_code(
    flow: CodeFlow, issuer: Issuer, status: int, error: type[Exception]
) -> None:
    issuer.documents[TOKEN] = (status, b"{}")
    assert await finished(flow) is error


async def test_made_up_codes_of_one_address_keep_nobody_else_from_signing_in(flow: CodeFlow, issuer: Issuer) -> None:
    issuer.documents[TOKEN] = (400, b"{}")
    issuer.gate.clear()
    attacks = [asyncio.create_task(finished(flow, "192.0.2.1")) for _ in range(9)]
    await until(lambda: issuer.requests.count(TOKEN) == 2)
    person = asyncio.create_task(finished(flow, "192.0.2.2"))
    await until(lambda: issuer.requests.count(TOKEN) == 3)
    issuer.gate.set()
    assert await person is UnauthenticatedError
    assert set(await asyncio.gather(*attacks)) == {UnauthenticatedError}  # they wait for their turn
    assert issuer.requests.count(TOKEN) == 10


async def test_an_issuer_that_names_itself_is_known(flow: CodeFlow) -> None:
    assert flow.names_itself
