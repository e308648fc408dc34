"""Requests to URLs that callers supplied: one connection to a verified address, and no more than needed.

The name is resolved once, every address of it is checked, and the connection goes to one of them; TLS verifies the
certificate for the name. There are no redirects and no proxies. Of the response only the status is used. httpx would
log the URL, whose path is a secret, and would read the head of a response without a bound of ours.
"""

from __future__ import annotations

import asyncio
import base64
import contextlib
import re
import socket
import ssl
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, Final
from urllib.parse import unquote_to_bytes

from typing_extensions import override

import confplane
from confplane.services.ports.webhooks import OutboundError, WebhookSender
from confplane.settings import UnusableSettingsError

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Mapping, Sequence
    from pathlib import Path

    from confplane.domain.outbound_urls import OutboundUrl, UrlGuard

    Resolve = Callable[[str, int], Awaitable[Sequence[str]]]
    Connection = tuple[asyncio.StreamReader, asyncio.StreamWriter]

TIMEOUT_S: Final = 10.0
"""Seconds for one request, from the resolution of the name to the status."""
MOST_BYTES: Final = 4_096
"""Bytes of a response that are read."""
_CONNECT_S: Final = 3.0
"""Seconds for a connection to one address, if there are further ones."""
_ADDRESSES: Final = 3
"""Addresses of a name that are tried."""
_LOOKUPS: Final = 8
_STATUS: Final = re.compile(rb"HTTP/1\.[01] ([1-5][0-9]{2})[ \r\n]")
_FINAL: Final = 200
"""The lowest status that is not an interim response."""


def authorities(ca_file: Path | None) -> ssl.SSLContext:
    """Return the TLS of requests, which trusts the authorities of a file, or all public ones.

    Raises:
        UnusableSettingsError: The file can't be used.
    """
    try:
        return ssl.create_default_context(cafile=ca_file)
    except OSError as error:  # ssl.SSLError is one
        raise UnusableSettingsError(f"webhooks.ca_file: {ca_file} can't be used: {error.strerror or error}") from None


class GuardedSender(WebhookSender):
    """Sends webhooks to URLs outside.

    Args:
        guard: The rules for URLs.
        tls: The TLS of requests.
        resolve: Returns the addresses of a name; the system's resolver by default.
        connect: Opens a connection, as ``asyncio.open_connection`` does.
        timeout_s: Seconds for one request.
    """

    def __init__(
        self,
        guard: UrlGuard,
        tls: ssl.SSLContext,
        *,
        resolve: Resolve | None = None,
        connect: Callable[..., Awaitable[Connection]] = asyncio.open_connection,
        timeout_s: float = TIMEOUT_S,
    ) -> None:
        self._guard = guard
        self._tls = tls
        self._resolve = resolve or _Resolver().addresses
        self._connect = connect
        self._timeout_s = timeout_s

    @override
    async def post(self, url: OutboundUrl, headers: Mapping[str, str], body: bytes) -> int:
        """Send a body, and return the status of the response.

        Raises:
            OutboundError: There is no response; the text has no secrets.
        """
        try:
            async with asyncio.timeout(self._timeout_s):
                return await self._post(url, headers, body)
        except TimeoutError:
            raise OutboundError(f"no response within {self._timeout_s:g} seconds") from None
        except ssl.SSLCertVerificationError:
            raise OutboundError("the certificate is not valid for the host") from None
        except ssl.SSLError:
            raise OutboundError("the TLS handshake failed") from None
        except OSError:
            raise OutboundError("no connection to the host") from None

    async def _post(self, url: OutboundUrl, headers: Mapping[str, str], body: bytes) -> int:
        reader, writer = await self._connected(url, await self._addresses(url))
        try:
            writer.write(_head(url, headers, len(body)) + body)
            with contextlib.suppress(ConnectionError):  # a server may respond before it has read all of a request
                await writer.drain()
            return await _status(reader)
        finally:
            writer.transport.abort()

    async def _addresses(self, url: OutboundUrl) -> Sequence[str]:
        try:
            found = await self._resolve(url.host, url.port)
        except (OSError, UnicodeError):
            found = ()
        if not found:
            raise OutboundError("the name of the host is not known")
        # All of them: a name with both kinds would reach a private one at some time.
        if not all(self._guard.permits(url, address) for address in found):
            raise OutboundError(
                "the host has an address that is not allowed: a private one, or one outside webhooks.allowed_hosts"
            )
        return found[:_ADDRESSES]

    async def _connected(self, url: OutboundUrl, addresses: Sequence[str]) -> Connection:
        tls = {"ssl": self._tls, "server_hostname": url.host} if url.secure else {}
        *others, last = addresses
        for address in others:
            try:
                async with asyncio.timeout(_CONNECT_S):
                    return await self._connect(address, url.port, limit=MOST_BYTES, **tls)
            except OSError:  # TimeoutError and ssl.SSLError are
                continue
        return await self._connect(last, url.port, limit=MOST_BYTES, **tls)


class _Resolver:
    """The system's resolver, in threads of its own: a name server that hangs delays nothing else."""

    def __init__(self) -> None:
        self._threads = ThreadPoolExecutor(_LOOKUPS, thread_name_prefix="names-of-webhooks")

    async def addresses(self, host: str, port: int) -> Sequence[str]:
        loop = asyncio.get_running_loop()
        found = await loop.run_in_executor(self._threads, _lookup, host, port)
        return list(dict.fromkeys(found))


def _lookup(host: str, port: int) -> list[str]:
    return [str(place[0]) for *_, place in socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)]


def _head(url: OutboundUrl, headers: Mapping[str, str], length: int) -> bytes:
    given = {
        "Host": url.authority,
        "User-Agent": f"Confplane/{confplane.__version__}",
        **headers,
        "Content-Length": str(length),
        "Connection": "close",
    }
    if url.user_info is not None:
        user, _, password = url.user_info.partition(":")
        credentials = unquote_to_bytes(user) + b":" + unquote_to_bytes(password)
        given["Authorization"] = f"Basic {base64.b64encode(credentials).decode()}"
    lines = [f"POST {url.target} HTTP/1.1", *(f"{name}: {value}" for name, value in given.items())]
    return "\r\n".join([*lines, "", ""]).encode("latin-1")


async def _status(reader: asyncio.StreamReader) -> int:
    received = b""
    while len(received) < MOST_BYTES and (piece := await reader.read(MOST_BYTES - len(received))):
        received += piece
        rest = received
        while (found := _STATUS.match(rest)) is not None:
            if int(found[1]) >= _FINAL:
                return int(found[1])
            rest = rest.partition(b"\r\n\r\n")[2]
    raise OutboundError("the response is not HTTP")
