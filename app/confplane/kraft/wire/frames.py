"""Frames on a socket: requests are sent with a number, and each response is matched to the request by its number."""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import ssl
import struct
from typing import TYPE_CHECKING, Final

from confplane.kraft.wire.errors import KraftError, ProtocolError, UnreachableError, UntrustedError

if TYPE_CHECKING:
    from confplane.kraft.wire.options import Address, Options

_READ_AHEAD: Final = 1024 * 1024
_FIRST_FRAME: Final = 1024 * 1024
"""The largest frame before the login, in bytes: only responses about versions are expected until then."""
_NUMBER_BYTES: Final = 4
_CLOSE_S: Final = 1.0
"""The time limit for a peer to end TLS."""


class FrameStream:
    """A socket to one node, and the requests that wait for their responses. One event loop only."""

    def __init__(self, address: Address, options: Options) -> None:
        self.address = address
        self.error: KraftError | None = None
        """The reason why the connection ended. Every call raises this error."""
        self.idle = asyncio.Event()
        """Set while no request waits for its response."""
        self.idle.set()
        self._options = options
        self._numbers = itertools.count(1)
        self._waiting: dict[int, asyncio.Future[bytes]] = {}
        self._given_up: set[int] = set()
        self._most_bytes = _FIRST_FRAME
        self._trusted = False
        self._writer: asyncio.StreamWriter | None = None
        self._task: asyncio.Task[None] | None = None

    async def connect(self) -> None:
        """Connect, with TLS if the options have it.

        Raises:
            UnreachableError: There is no connection; UntrustedError if the certificate is the reason.
        """
        try:
            context = None if self._options.tls is None else self._options.tls()
        except (OSError, ValueError) as error:
            raise UntrustedError(f"The files of TLS can't be read: {error}") from None
        try:
            reader, self._writer = await asyncio.open_connection(
                self.address.host, self.address.port, ssl=context, limit=_READ_AHEAD
            )
        except ssl.SSLCertVerificationError as error:
            raise UntrustedError(
                f"The certificate of {self.address} is not trusted: {error.verify_message}."
                " Name the file of the authority that signed it."
            ) from None
        except ssl.SSLError as error:
            raise UnreachableError(f"TLS with {self.address} failed: {error.reason or error}.") from None
        except (OSError, ValueError, OverflowError) as error:  # OverflowError: the port is below 0 or above 65535
            raise UnreachableError(f"There is no connection to {self.address}: {error}.") from None
        self._task = asyncio.create_task(self._read(reader), name=f"kafka {self.address}")

    def trust(self) -> None:
        """Accept responses of full size from now on, because the login is complete."""
        self._most_bytes = self._options.most_bytes
        self._trusted = True

    def next_number(self) -> int:
        """Return the number of a new request."""
        return next(self._numbers) & 0x7FFFFFFF

    async def exchange(self, number: int, frame: bytes) -> bytes:
        """Send a request preceded by its length, and return the response, which begins with the number.

        Raises:
            KraftError: The connection has ended; the error is :attr:`error`.
        """
        if self.error is not None or self._writer is None:
            raise self.error or UnreachableError(f"There is no connection to {self.address}.")
        future = self._waiting[number] = asyncio.get_running_loop().create_future()
        self.idle.clear()
        try:
            self._writer.write(frame)
            await self._writer.drain()
            answer: bytes = await future
        except OSError:
            self.fail(self._lost())
            raise self._lost() from None
        else:
            return answer
        finally:
            if self._waiting.pop(number, None) is not None:
                self._given_up.add(number)  # the caller was cancelled; the response may still arrive
                self._rest()

    def fail(self, error: KraftError) -> None:
        """End the connection. Every waiting or later caller gets this error."""
        if self.error is not None:
            return
        self.error = error
        waiting, self._waiting = self._waiting, {}
        self._rest()
        for future in waiting.values():
            if not future.done():
                future.set_exception(error)
                future.exception()  # a caller may have been cancelled
        if self._writer is not None:
            self._writer.close()

    async def close(self) -> None:
        """End the connection and wait until it is closed."""
        self.fail(UnreachableError(f"The connection to {self.address} was closed."))
        if self._task is not None:
            self._task.cancel()
            await asyncio.gather(self._task, return_exceptions=True)
        if self._writer is not None:
            # A peer that is gone or silent does not delay the close.
            with contextlib.suppress(OSError, TimeoutError):
                async with asyncio.timeout(_CLOSE_S):
                    await self._writer.wait_closed()

    def _lost(self) -> UnreachableError:
        hint = "" if self._trusted else " A listener with SASL or TLS does so to a client without."
        return UnreachableError(f"{self.address} closed the connection.{hint}")

    def _rest(self) -> None:
        if not self._waiting:
            self.idle.set()

    async def _read(self, reader: asyncio.StreamReader) -> None:
        """Pass each frame to its caller, until the connection ends."""
        try:
            while self.error is None:
                (size,) = struct.unpack(">i", await reader.readexactly(4))
                if not _NUMBER_BYTES <= size <= self._most_bytes:
                    self.fail(self._oversized(size))
                    return
                self._hand_over(await reader.readexactly(size))
        except (asyncio.IncompleteReadError, OSError):
            self.fail(self._lost())

    def _oversized(self, size: int) -> ProtocolError:
        return ProtocolError(
            f"{self.address} announces a response of {size} bytes; the maximum is {self._most_bytes}."
            + ("" if self._trusted else " A listener with TLS answers so to a client without.")
        )

    def _hand_over(self, data: bytes) -> None:
        (number,) = struct.unpack_from(">i", data)
        future = self._waiting.pop(number, None)
        self._rest()
        if future is not None:
            if not future.done():
                future.set_result(data)
        elif number in self._given_up:
            self._given_up.discard(number)
        else:
            self.fail(ProtocolError(f"{self.address} answers a request {number} that was not sent."))
