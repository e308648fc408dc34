"""Certificates that proxies pass in a header: which proxies, in which forms, and all else is no certificate."""

from __future__ import annotations

from base64 import b64encode
from ipaddress import ip_network
from typing import TYPE_CHECKING, Any, Final
from urllib.parse import quote

import pytest
from cryptography.hazmat.primitives.serialization import Encoding

from confplane.listener.client_certificates import UNREADABLE, CertificateHeaderMiddleware
from confplane.security.authenticator import CERTIFICATE
from tests.support.certificates import CN, Authority, name

if TYPE_CHECKING:
    from starlette.types import Receive, Scope, Send

PROXY, STRANGER = "10.0.0.7", "10.0.1.7"
ISSUED: Final = Authority().issue(name((CN, "alice")))[0]
BARE: Final = b64encode(ISSUED.public_bytes(Encoding.DER))
PEM: Final = quote(ISSUED.public_bytes(Encoding.PEM), safe="").encode()
OWN: Final = "CN=own"
"""The subject of the certificate that the peer itself sent in its handshake."""


async def subject(peer: str | None, *values: bytes) -> object:
    """Send a request through; return the subject that the application sees, or None if there is none."""
    seen: list[Any] = []

    async def app(scope: Scope, receive: Receive, send: Send) -> None:
        del receive, send
        seen.append(scope.get(CERTIFICATE))

    async def never() -> None:
        raise AssertionError

    headers = [(b"x-other", BARE), *((b"client-cert", value) for value in values)]
    scope = {"type": "http", "client": peer and (peer, 4711), "headers": headers, CERTIFICATE: OWN}
    middleware = CertificateHeaderMiddleware(app, "Client-Cert", [ip_network("10.0.0.0/24")])
    await middleware(scope, never, never)  # type: ignore[arg-type]
    return seen[0]


@pytest.mark.parametrize("value", [b":" + BARE + b":", BARE, PEM], ids=["RFC 9440", "base64", "PEM"])
async def test_the_header_of_a_proxy_names_its_client_in_each_form(value: bytes) -> None:
    assert await subject(PROXY, value) == "CN=alice"


@pytest.mark.parametrize("values", [(), (b"",)])
async def test_a_proxys_own_certificate_is_never_its_clients(values: tuple[bytes, ...]) -> None:
    assert await subject(PROXY, *values) is None


@pytest.mark.parametrize("peer", [STRANGER, None])
async def test_the_header_of_any_other_peer_is_ignored(peer: str | None) -> None:
    assert await subject(peer, PEM) == OWN


@pytest.mark.parametrize(
    "values",
    [(PEM, PEM), (b"x",), (b":x:",), (b"-----BEGIN",), (PEM[:-100],), (b"%00" * 100,), (b":" + b"A" * 40_000 + b":",)],
)
async def test_what_is_no_certificate_belongs_to_nobody(values: tuple[bytes, ...]) -> None:
    assert await subject(PROXY, *values) == UNREADABLE
