"""One connection to one node: versions, logins and deadlines on top of frames."""

from __future__ import annotations

import asyncio
import contextlib
import hashlib
import random
import struct
import time
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final, Self, TypeVar

from confplane.kraft.wire import errors
from confplane.kraft.wire.codec import PlainWriter, Reader
from confplane.kraft.wire.errors import KraftLoginError, ProtocolError, UnreachableError, UnsupportedError, WireError
from confplane.kraft.wire.frames import FrameStream
from confplane.kraft.wire.message import Message, run, run_in_slices
from confplane.kraft.wire.messages import (
    ApiVersionsRequest,
    ApiVersionsResponse,
    SaslAuthenticateRequest,
    SaslAuthenticateResponse,
    SaslHandshakeRequest,
    SaslHandshakeResponse,
)
from confplane.kraft.wire.options import DISCONNECTED, MALFORMED, TIMEOUT

_M = TypeVar("_M", bound=Message)
_T = TypeVar("_T")

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable, Generator

    from confplane.kraft.wire.options import Address, Options
    from confplane.kraft.wire.sasl import SaslLogin

    Steps = Callable[[bytes, int, int], Generator[None, None, _T]]
    """Reads bytes of a version, starting at an offset. It pauses after each element."""

_AT_ONCE: Final = 64 * 1024
"""Responses up to this size are decoded at once, in about the time of a slice."""
_DIGESTED: Final = 1024 * 1024
"""Bytes whose digest takes about the time of a slice."""
_LEAST_SESSION_S: Final = 1.05
"""Least seconds between logins: brokers refuse a login that follows another within a second on the same connection."""
_SESSION_SHARES: Final = (0.85, 0.95)
"""The part of a session's lifetime after which to log in again, as Java's clients do (KIP-368)."""
_ERROR_AT: Final = 4
"""The offset of the error code in a response to ApiVersions, whose header is never flexible (KIP-511)."""
SOFTWARE: Final = "confplane"


@dataclass(frozen=True, slots=True)
class RawResponse:
    """A response as bytes."""

    api: str
    """The API, as spelled by Kafka."""
    data: bytes = field(repr=False)
    at: int
    """The offset after the header."""
    version: int

    async def read(self, steps: Steps[_T]) -> _T:
        """Return the message as read by ``steps``, usually those of its class. A long response is read in slices."""
        reading = steps(self.data, self.version, self.at)
        return run(reading) if len(self.data) <= _AT_ONCE else await run_in_slices(reading)

    async def digest(self, skip: int = 0) -> bytes:
        """Return a digest of the message without its first ``skip`` bytes; other tasks run between the pieces."""
        made, rest = hashlib.blake2b(digest_size=16), memoryview(self.data)[self.at + skip :]
        for start in range(0, len(rest), _DIGESTED):
            made.update(rest[start : start + _DIGESTED])
            await asyncio.sleep(0)
        return made.digest()


class KraftConnection:
    """An open connection; :meth:`open` creates one. Any number of tasks may use it concurrently, on one event loop."""

    def __init__(self, address: Address, options: Options) -> None:
        self.address = address
        self._options = options
        self._frames = FrameStream(address, options)
        self._slots = asyncio.Semaphore(options.in_flight)
        self._relogin = asyncio.Lock()
        self._relogin_at: float | None = None
        self._versions: dict[int, tuple[int, int]] = {}

    def __repr__(self) -> str:
        return f"<Connection to {self.address}>"

    @property
    def usable(self) -> bool:
        """False once the connection is closed or lost."""
        return self._frames.error is None

    @classmethod
    async def open(cls, address: Address, options: Options, deadline: float) -> Self:
        """Connect, agree on versions, log in.

        Args:
            address: The node's address.
            options: TLS, login, limits.
            deadline: On ``time.monotonic()``'s clock.

        Raises:
            UnreachableError: There is no connection in time; UntrustedError if the certificate is the reason.
            KraftLoginError: The login is refused.
            UnsupportedError: The node is too old.
            ProtocolError: The node does not speak Kafka's protocol.
        """
        made = cls(address, options)
        try:
            async with made._until(deadline, "connecting"):
                await made._frames.connect()
            await made.api_versions(deadline)
            if options.login is not None:
                await made._log_in(options.login, deadline)
            made._frames.trust()
        except BaseException:
            await made.close()
            raise
        return made

    async def close(self) -> None:
        """Close. Waiting callers get an error."""
        await self._frames.close()

    # -- calls

    async def call(self, request: Message, answer: type[_M], deadline: float) -> _M:
        """Send a request and return its response. Its error codes are not checked.

        Raises:
            UnreachableError: The connection is lost, or there is no response in time; the connection is then closed.
            UnsupportedError: The node has no version of the request that this client supports.
            ProtocolError: The response is malformed; the connection is closed.
        """
        received = await self.ask(request, answer, deadline)
        return await self.read(received, answer.steps)

    async def ask(self, request: Message, answer: type[Message], deadline: float) -> RawResponse:
        """Send a request and return its response as bytes. Errors are those of :meth:`call`."""
        version = self.version(request)
        async with self._until(deadline, request.NAME, _api(request)), self._slots:
            await self._renewed(deadline)
            data = await self._exchange(request, version)
        return RawResponse(_api(request), data, self._behind_header(data, answer, version), version)

    async def read(self, received: RawResponse, steps: Steps[_T]) -> _T:
        """Return the message of a response. A malformed response closes the connection.

        Raises:
            WireError: It is malformed.
        """
        try:
            found = await received.read(steps)
        except WireError as error:
            self._malformed(received.api, error)
            raise
        self._options.requests.answered(received.api, found)
        return found

    def leave(self, received: RawResponse) -> None:
        """Leave a response unread: its bytes are those of an earlier response without an error."""
        self._options.requests.repeated(received.api)

    def _malformed(self, api: str, error: WireError) -> None:
        self._options.requests.failed(api, MALFORMED)
        self._frames.fail(ProtocolError(f"{self.address} sent a malformed answer: {error}"))

    def version(self, request: Message) -> int:
        """Return the newest version of a request that both sides support.

        Raises:
            UnsupportedError: There is no such version.
        """
        low, high = request.VERSIONS[0], request.VERSIONS[-1]
        key = request.API_KEY if request.API_KEY is not None else -1
        found = self._versions.get(key)
        if found is None:
            raise UnsupportedError(f"{self.address} has no API {request.NAME.removesuffix('Request')}.")
        version = min(high, found[1])
        if version < max(low, found[0]):
            raise UnsupportedError(
                f"{self.address} has {request.NAME.removesuffix('Request')} in versions {found[0]} to {found[1]};"
                f" this service speaks {low} to {high}. Kafka 3.9 in KRaft mode and later have them."
            )
        return version

    def has(self, kind: type[Message]) -> range:
        """Return the versions of a request that both sides support, or an empty range."""
        low, high = self._versions.get(-1 if kind.API_KEY is None else kind.API_KEY, (0, -1))
        return range(max(low, kind.VERSIONS[0]), min(high, kind.VERSIONS[-1]) + 1)

    def offers(self, kind: type[Message]) -> bool:
        """Return whether the node has the API of a request, in any version."""
        return kind.API_KEY in self._versions

    async def api_versions(self, deadline: float) -> ApiVersionsResponse:
        """Ask for the node's APIs, its features and its metadata offset (``finalized_features_epoch``)."""
        request = ApiVersionsRequest(SOFTWARE, self._options.software_version)
        async with self._until(deadline, request.NAME, _api(request)), self._slots:
            # During a login a node answers only requests of the login, and it closes the connection at the end of a
            # session.
            await self._renewed(deadline)
            version = min(self._versions.get(18, (0, 4))[1], 4)
            data = await self._exchange(request, version)
            if data[_ERROR_AT : _ERROR_AT + 2] == struct.pack(">h", errors.UNSUPPORTED_VERSION):
                # KIP-511: the response to an unknown version is of version 0, and contains the known versions.
                known = {each.api_key: each for each in self._parsed(data, 0).api_keys}
                version = min(known[18].max_version, 4) if 18 in known else 0  # noqa: PLR2004 - ApiVersions itself
                data = await self._exchange(request, version)
        answer = self._parsed(data, version)
        errors.check("ApiVersions", answer.error_code)
        self._versions = {each.api_key: (each.min_version, each.max_version) for each in answer.api_keys}
        return answer

    def _parsed(self, data: bytes, version: int) -> ApiVersionsResponse:
        try:
            found = ApiVersionsResponse.decode(data, version, 4)
        except WireError as error:
            self._malformed(_api(ApiVersionsRequest), error)
            raise
        self._options.requests.answered(_api(ApiVersionsRequest), found)
        return found

    # -- logins

    async def _renewed(self, deadline: float) -> None:
        """Log in again if the session ends soon. Requests wait in the meantime."""
        login = self._options.login
        while login is not None and (self._relogin.locked() or self._expires()):
            async with self._relogin:
                if self._expires():
                    await self._frames.idle.wait()
                    try:
                        await self._log_in(login, deadline)
                    except errors.KraftError as error:
                        self._frames.fail(error)
                        raise

    def _expires(self) -> bool:
        return self._relogin_at is not None and time.monotonic() >= self._relogin_at

    async def _log_in(self, make: Callable[[], SaslLogin], deadline: float) -> None:
        try:
            login = make()
        except (OSError, ValueError) as error:
            raise KraftLoginError(f"The credentials can't be read: {error}") from None
        lifetime_ms = 0

        async def send(data: bytes) -> bytes:
            nonlocal lifetime_ms
            request = SaslAuthenticateRequest(data)
            received = await self._decoded(request, SaslAuthenticateResponse)
            if received.error_code:
                raise KraftLoginError(
                    f"{self.address} refuses the login by {login.mechanism}:"
                    f" {received.error_message or errors.name_of(received.error_code)}"
                )
            lifetime_ms = received.session_lifetime_ms
            return received.auth_bytes

        began = time.monotonic()
        async with self._until(deadline, "the login", _api(SaslAuthenticateRequest)):
            offered = await self._decoded(SaslHandshakeRequest(login.mechanism), SaslHandshakeResponse)
            if offered.error_code == errors.UNSUPPORTED_SASL_MECHANISM:
                raise KraftLoginError(
                    f"{self.address} has no login by {login.mechanism}, but by"
                    f" {', '.join(sorted(offered.mechanisms)) or 'none of SASL'}. Name one of these."
                )
            if offered.error_code:
                raise KraftLoginError(
                    f"{self.address} expects no login ({errors.name_of(offered.error_code)}): its listener is without"
                    " SASL, or the login was repeated. Use the address of a listener with SASL, or no login."
                )
            await login.run(send)
        if lifetime_ms > 0:
            share = random.uniform(*_SESSION_SHARES)  # noqa: S311 - spread, no secret
            self._relogin_at = began + max(_LEAST_SESSION_S, lifetime_ms / 1000 * share)
        else:
            self._relogin_at = None

    async def _decoded(self, request: Message, answer: type[_M]) -> _M:
        version = self.version(request)
        data = await self._exchange(request, version)
        received = RawResponse(_api(request), data, self._behind_header(data, answer, version), version)
        return await self.read(received, answer.steps)

    # -- requests

    @contextlib.asynccontextmanager
    async def _until(self, deadline: float, what: str, api: str | None = None) -> AsyncIterator[None]:
        try:
            async with asyncio.timeout(deadline - time.monotonic()):
                yield
        except TimeoutError:
            # Responses come in the order of their requests: those that follow would wait for the missing response.
            error = UnreachableError(f"{self.address} did not answer in time ({what}).")
            if api is not None:
                self._options.requests.failed(api, TIMEOUT)
            self._frames.fail(error)
            raise error from None

    async def _exchange(self, request: Message, version: int) -> bytes:
        number = self._frames.next_number()
        key = request.API_KEY
        header = PlainWriter()
        header.out += struct.pack(">hhi", -1 if key is None else key, version, number)
        header.string(self._options.client_id)
        tags = b"\0" if request.flexible(version) else b""
        body = request.encode(version)
        size = struct.pack(">i", len(header.out) + len(tags) + len(body))
        try:
            return await self._frames.exchange(number, b"".join((size, header.out, tags, body)))
        except errors.KraftError:
            self._options.requests.failed(_api(request), DISCONNECTED)
            raise

    def _behind_header(self, data: bytes, answer: type[Message], version: int) -> int:
        reader = Reader(data, 4)
        if answer.flexible(version):
            try:
                reader.skip_tags()
            except (IndexError, ValueError):
                error = ProtocolError(f"{self.address} sent a malformed header.")
                self._options.requests.failed(answer.NAME.removesuffix("Response"), MALFORMED)
                self._frames.fail(error)
                raise error from None
        return reader.at


def _api(request: Message | type[Message]) -> str:
    return request.NAME.removesuffix("Request")
