"""A TCP proxy between a client and its server whose connections a test can cut, hold and refuse."""

from __future__ import annotations

import asyncio
import contextlib
import re
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import AsyncIterator


class Proxy:
    """Forwards ``127.0.0.1:port`` to a server.

    Attributes:
        port: Where clients connect.
        replies: While it is cleared, data from the server is held back; once it is set, the data is sent.
        swallowing: While True, data from clients is lost and collected in ``swallowed``. Cut the connections before
            resetting it.
        swallowed: The lost data.
        accepting: False closes new connections immediately.
        refused: The number of connections that were closed immediately.
        holding_after: Once a client has sent data with these bytes, ``replies`` is cleared.
        delay_s: Delay of each piece of data, in both directions.
        bytes_per_s: The bandwidth of what the server sends; None for no limit.
    """

    def __init__(self, host: str, port: int) -> None:
        self.port = 0
        self.replies = asyncio.Event()
        self.replies.set()
        self.swallowing = False
        self.swallowed = b""
        self.accepting = True
        self.refused = 0
        self.holding_after: bytes | None = None
        self.delay_s = 0.0
        self.bytes_per_s: float | None = None
        self._target = (host, port)
        self._writers: set[asyncio.StreamWriter] = set()
        self._tasks: set[asyncio.Task[None]] = set()

    @property
    def swallowed_a_write(self) -> bool:
        """True once a transaction was lost: its notification has no number yet, unlike one that is read."""
        return re.search(rb"config_change_(?!\d)", self.swallowed) is not None

    @property
    def connected(self) -> bool:
        """True while a client is connected."""
        return bool(self._writers)

    def connect(self, chroot: str) -> str:
        """The connect string of a chroot through this proxy."""
        _, slash, path = chroot.partition("/")
        return f"127.0.0.1:{self.port}{slash}{path}"

    def cut(self) -> None:
        """Break all connections; data that is held back is lost."""
        for writer in list(self._writers):
            writer.transport.abort()

    def lose(self, *, requests: bool = False, replies: bool = False) -> None:
        """Lose what clients send, what the server sends, or both, until :meth:`restore`."""
        self.swallowing = requests
        if replies:
            self.replies.clear()

    def restore(self) -> None:
        """Break all connections after a loss, and forward what is sent over new ones."""
        self.cut()
        self.replies.set()
        self.swallowing, self.swallowed = False, b""

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        if not self.accepting:
            self.refused += 1
            writer.transport.abort()
            return
        self._writers.add(writer)
        try:
            upstream_reader, upstream_writer = await asyncio.open_connection(*self._target)
        except OSError:
            writer.transport.abort()
            self._writers.discard(writer)
            return
        self._writers.add(upstream_writer)
        if writer.transport.is_closing():  # cut in the meantime
            upstream_writer.transport.abort()
        pumps = [
            asyncio.create_task(self._pump(reader, upstream_writer, None)),
            asyncio.create_task(self._pump(upstream_reader, writer, self.replies)),
        ]
        self._tasks.update(pumps)
        await asyncio.wait(pumps, return_when=asyncio.FIRST_COMPLETED)
        for pump in pumps:
            pump.cancel()
        for each in (writer, upstream_writer):
            each.transport.abort()
        self._writers -= {writer, upstream_writer}
        self._tasks.difference_update(pumps)

    async def _pump(
        self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, gate: asyncio.Event | None
    ) -> None:
        with contextlib.suppress(OSError):
            while data := await reader.read(65_536):
                if self.delay_s:
                    await asyncio.sleep(self.delay_s)
                if gate is not None:
                    await gate.wait()
                    if self.bytes_per_s is not None:
                        await asyncio.sleep(len(data) / self.bytes_per_s)
                elif self.swallowing:
                    self.swallowed += data
                    continue
                elif self.holding_after is not None and self.holding_after in data:
                    self.replies.clear()
                writer.write(data)
                await writer.drain()


@contextlib.asynccontextmanager
async def proxy(target: str) -> AsyncIterator[Proxy]:
    """Run a proxy to ``host:port``."""
    host, _, port = target.partition(":")
    running = Proxy(host, int(port))
    server = await asyncio.start_server(running._serve, "127.0.0.1", 0)
    running.port = server.sockets[0].getsockname()[1]
    try:
        yield running
    finally:
        server.close()
        running.cut()
        await asyncio.sleep(0)
        for task in list(running._tasks):
            task.cancel()
        await server.wait_closed()
