"""Client addresses behind trusted proxies, from ``X-Forwarded-For``."""

from __future__ import annotations

from functools import lru_cache
from ipaddress import IPv4Address, IPv4Network, IPv6Address, IPv6Network, ip_address
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from starlette.types import ASGIApp, Receive, Scope, Send

_NAME: Final = b"x-forwarded-for"
_PEERS: Final = 1024
"""Peers in the cache of trusted and untrusted ones; a deployment has few proxies."""


class Proxies:
    """Networks whose peers are trusted.

    Args:
        networks: The networks.
    """

    def __init__(self, networks: Iterable[IPv4Network | IPv6Network]) -> None:
        self._networks = tuple(networks)
        self._has = lru_cache(maxsize=_PEERS)(self._contains)

    def __contains__(self, peer: str) -> bool:
        """Return True for an address in one of the networks."""
        return self._has(peer)

    def _contains(self, peer: str) -> bool:
        address = _address(peer)
        return address is not None and any(address in network for network in self._networks)


class ForwardedForMiddleware:
    """Replaces the peer of a request by the client for whom trusted proxies sent it.

    Each proxy adds the address of its own client at the end of ``X-Forwarded-For``. The header is read from its end:
    the first address outside the trusted networks is the client's. Reading stops at the first entry that is not an
    address, so that no other text can become a client. The header of any other peer is ignored.

    Args:
        app: The application.
        trusted: Networks of the proxies.
    """

    def __init__(self, app: ASGIApp, trusted: Sequence[IPv4Network | IPv6Network]) -> None:
        self._app = app
        self._trusted = Proxies(trusted)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Handle one ASGI connection."""
        peer = scope.get("client")
        if peer is not None and peer[0] in self._trusted:
            values = [value for name, value in scope["headers"] if name == _NAME]
            if values:
                scope["client"] = (self._client(peer[0], values), 0)
        await self._app(scope, receive, send)

    def _client(self, peer: str, values: Iterable[bytes]) -> str:
        client = peer
        for entry in reversed(b",".join(values).split(b",")):
            address = _address(_host(entry.decode("latin-1").strip()))
            if address is None:
                break
            client = str(address)
            if client not in self._trusted:
                break
        return client


def _address(text: str) -> IPv4Address | IPv6Address | None:
    """Return an address without its zone; an IPv4 address in IPv6's form (as on a listener on ``::``) becomes IPv4."""
    try:
        address = ip_address(text.partition("%")[0])
    except ValueError:
        return None
    return (address.ipv4_mapped if isinstance(address, IPv6Address) else None) or address


def _host(entry: str) -> str:
    """Return an entry without its port: ``10.0.0.1:80`` and ``[::1]:80`` have a port, ``::1`` does not."""
    if entry.startswith("["):
        return entry[1:].partition("]")[0]
    host, colon, port = entry.partition(":")
    return host if colon and ":" not in port else entry
