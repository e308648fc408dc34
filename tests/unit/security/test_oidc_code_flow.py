"""The exchange of codes at an issuer on loopback."""

from __future__ import annotations

import asyncio
import json
import time
from typing import TYPE_CHECKING

import pytest
import pytest_asyncio

from confplane.domain.errors import UnauthenticatedError, UnavailableError
from confplane.security.oidc.code_flow import CodeFlow
from confplane.security.oidc.provider import Provider
from tests.support.issuer import DISCOVERY, JWKS, Issuer, Signer
from tests.support.waiting import until

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable, Iterator

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


GOOD = {"aud": "console", "nonce": "nonce"}


async def exchanged(flow: CodeFlow, issuer: Issuer, id_token: bytes) -> str:
    """Finish a sign-in whose code the issuer exchanges for an id token."""
    issuer.documents[TOKEN] = (200, json.dumps({"access_token": "access", "id_token": id_token.decode()}).encode())
    return await flow.finish("code", "nonce", "verifier", "192.0.2.1")


async def test_a_code_is_exchanged_for_an_access_token(flow: CodeFlow, issuer: Issuer) -> None:
    assert await exchanged(flow, issuer, issuer.token(**GOOD)) == "access"
    both = {"aud": ["other", "console"], "azp": "console"}
    assert await exchanged(flow, issuer, issuer.token(**GOOD | both)) == "access"


@pytest.mark.parametrize(
    ("id_token", "reason"),
    [
        (lambda _: b"text", "it is not a signed token"),
        (lambda issuer: issuer.token(**GOOD | {"iss": "https://evil.example.com"}), "it is from another issuer"),
        (
            lambda issuer: Signer("one", "EdDSA").sign(issuer.claims(**GOOD)).encode(),
            "its algorithm is not allowed for the issuer",
        ),
        (
            lambda issuer: Signer("one").sign(issuer.claims(**GOOD)).encode(),
            "its signature does not fit a key of the issuer",
        ),
        (lambda issuer: issuer.token(**GOOD | {"aud": "confplane"}), "it is for another client"),
        (lambda issuer: issuer.token(**GOOD | {"azp": "other"}), "it was issued to another client"),
        (lambda issuer: issuer.token(**GOOD | {"exp": None}), r"it has no expiry \(exp\)"),
        (lambda issuer: issuer.token(**GOOD | {"exp": int(time.time()) - 3600}), "it has expired"),
        (lambda issuer: issuer.token(**GOOD | {"nonce": "another"}), "it is for another sign-in"),
        (lambda issuer: issuer.token(**GOOD | {"nonce": None}), "it is for another sign-in"),
    ],
    ids=[
        *("no token", "issuer", "algorithm", "key", "audience", "authorized party"),
        *("no expiry", "expired", "nonce", "no nonce"),
    ],
)
async def test_an_id_token_that_is_not_valid_signs_nobody_in(
    flow: CodeFlow, issuer: Issuer, id_token: Callable[[Issuer], bytes], reason: str
) -> None:
    with pytest.raises(UnauthenticatedError, match=reason):
        await exchanged(flow, issuer, id_token(issuer))
