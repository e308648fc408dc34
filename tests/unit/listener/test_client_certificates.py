"""Certificates that proxies pass in a header: which proxies, in which forms, and all else is no certificate."""

from __future__ import annotations

from base64 import b64encode
from ipaddress import ip_network
from typing import TYPE_CHECKING, Any, Final, cast
from urllib.parse import quote

import pytest
from cryptography.hazmat.primitives.serialization import Encoding

from confplane.listener import make_connections, make_server
from confplane.listener.client_certificates import UNREADABLE, CertificateHeaderMiddleware
from confplane.security.authenticator import CERTIFICATE
from confplane.settings import HttpSettings
from tests.support.certificates import CN, Authority, name

if TYPE_CHECKING:
    from collections.abc import Callable

    from starlette.types import ASGIApp, Receive, Scope, Send

PROXY, STRANGER = "10.0.0.7", "10.0.1.7"
ISSUED: Final = Authority().issue(name((CN, "alice")))[0]
BARE: Final = b64encode(ISSUED.public_bytes(Encoding.DER))
PEM: Final = quote(ISSUED.public_bytes(Encoding.PEM), safe="").encode()
OWN: Final = "CN=own"
"""The subject of the certificate that the peer itself sent in its handshake."""


def header_middleware(app: ASGIApp) -> ASGIApp:
    return CertificateHeaderMiddleware(app, "Client-Cert", [ip_network("10.0.0.0/24")])


def listener_app(app: ASGIApp) -> ASGIApp:
    """Return what a listener runs behind a proxy that passes certificates and addresses of clients."""
    settings = HttpSettings(
        trusted_proxies=(ip_network(PROXY),),
        client_certificate_header="Client-Cert",
        certificate_proxies=(ip_network(PROXY),),
    )
    unused: Any = None
    server = make_server(
        app, settings, connections=make_connections(settings), render_error=unused, readiness=unused, tls=None
    )
    return cast("ASGIApp", server.config.app)


async def seen_scope(wrapped: Callable[[ASGIApp], ASGIApp], peer: str | None, *values: bytes) -> Scope:
    """Send a request through; return what the application sees of it."""
    seen: list[Scope] = []

    async def app(scope: Scope, receive: Receive, send: Send) -> None:
        del receive, send
        seen.append(scope)

    async def never() -> None:
        raise AssertionError

    headers = [(b"x-other", BARE), (b"x-forwarded-for", STRANGER.encode())]
    headers += [(b"client-cert", value) for value in values]
    scope = {"type": "http", "client": peer and (peer, 4711), "headers": headers, CERTIFICATE: OWN}
    await wrapped(app)(scope, never, never)  # type: ignore[arg-type]
    return seen[0]


async def subject(peer: str | None, *values: bytes) -> object:
    """Return the subject that the application sees, or None if there is none."""
    return (await seen_scope(header_middleware, peer, *values)).get(CERTIFICATE)


async def test_a_listener_reads_the_header_of_a_proxy_whose_address_it_replaces() -> None:
    seen = await seen_scope(listener_app, PROXY, PEM)
    assert (seen[CERTIFICATE], seen["client"][0]) == ("CN=alice", STRANGER)


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
