"""Subjects of client certificates: of a connection's own, and of those that proxies pass in a header."""

from __future__ import annotations

import binascii
import ssl
from base64 import b64decode
from functools import lru_cache
from typing import TYPE_CHECKING, Final
from urllib.parse import unquote_to_bytes

from confplane.crypto import subject_of
from confplane.listener.forwarded import Proxies
from confplane.security.authenticator import CERTIFICATE

if TYPE_CHECKING:
    import asyncio
    from collections.abc import Iterable
    from ipaddress import IPv4Network, IPv6Network

    from starlette.types import ASGIApp, Receive, Scope, Send

UNREADABLE: Final = ""
"""The subject of a certificate that can't be read. It does not belong to any principal."""
_MAX_BYTES: Final = 32 * 1024
_CACHE_SIZE: Final = 1024
_PEM: Final = b"-----BEGIN"


def subject_of_peer(transport: asyncio.BaseTransport) -> str | None:
    """Return the subject of the certificate that a client sent in its handshake, or None if it sent no certificate."""
    connection = transport.get_extra_info("ssl_object")
    certificate = None if connection is None else connection.getpeercert(binary_form=True)
    return None if certificate is None else _subject(certificate)


class CertificateHeaderMiddleware:
    """Sets the subject of a request to that of the certificate in a header, only in requests of certain proxies.

    In a request of such a proxy the header decides, even if it is absent, because the proxy's own certificate is not
    its client's. The header of all other peers is ignored.

    Args:
        app: The application.
        name: The name of the header.
        proxies: Networks of the proxies. They verify certificates, and remove the header from what clients send.
    """

    def __init__(self, app: ASGIApp, name: str, proxies: Iterable[IPv4Network | IPv6Network]) -> None:
        self._app = app
        self._name = name.lower().encode()
        self._proxies = Proxies(proxies)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Handle one ASGI connection."""
        peer = scope.get("client")
        if peer is not None and peer[0] in self._proxies:
            scope.pop(CERTIFICATE, None)
            given = [value for name, value in scope["headers"] if name == self._name and value]
            if given:
                scope[CERTIFICATE] = _subject_of_header(given[0]) if len(given) == 1 else UNREADABLE
        await self._app(scope, receive, send)


@lru_cache(maxsize=_CACHE_SIZE)
def _subject_of_header(value: bytes) -> str:
    """Return the subject of a certificate as RFC 9440 writes it, as bare base64, or in PEM with percent-encoding."""
    if len(value) > _MAX_BYTES:
        return UNREADABLE
    try:
        if value.startswith(_PEM):
            return _subject(ssl.PEM_cert_to_DER_cert(unquote_to_bytes(value).decode("ascii").strip()))
        if value.startswith(b":") and value.endswith(b":"):
            value = value[1:-1]
        return _subject(b64decode(value, validate=True))
    except (ValueError, binascii.Error):
        return UNREADABLE


def _subject(certificate: bytes) -> str:
    try:
        return subject_of(certificate)
    except ValueError:
        return UNREADABLE
