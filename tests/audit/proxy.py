"""A TCP proxy in front of Postgres that loses replies, or passes for a pooler."""

from __future__ import annotations

import asyncio
import contextlib
import re
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING

from psycopg.conninfo import conninfo_to_dict, make_conninfo

if TYPE_CHECKING:
    from collections.abc import AsyncIterator


_KEY = re.compile(rb"(K\0\0\0\x0c)....", re.DOTALL)
"""The message that has the process and its secret."""


class Proxy:
    """Forwards, until told to lose the reply to the next statement that holds some bytes.

    Attributes:
        pooler: True names another process than Postgres's to new clients, as poolers do.
    """

    def __init__(self, dsn: str) -> None:
        target = conninfo_to_dict(dsn)
        self._host, self._port = str(target["host"]), int(str(target["port"]))
        self._dsn = dsn
        self._losing: bytes | None = None
        self._tasks: set[asyncio.Task[None]] = set()
        self.lost = 0
        self.pooler = False
        self.dsn = ""

    def lose_reply_to(self, part: bytes) -> None:
        """Close the connection in place of the reply to the next statement that holds these bytes."""
        self._losing = part

    async def accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        if (task := asyncio.current_task()) is not None:
            self._tasks.add(task)
        with contextlib.closing(writer):
            upstream, server = await asyncio.open_connection(self._host, self._port)
            with contextlib.closing(server):
                await self._forward(reader, writer, upstream, server)

    async def _forward(
        self,
        reader: asyncio.StreamReader,
        writer: asyncio.StreamWriter,
        upstream: asyncio.StreamReader,
        server: asyncio.StreamWriter,
    ) -> None:
        armed = asyncio.Event()

        async def forward() -> None:
            while data := await reader.read(1 << 16):
                if self._losing is not None and self._losing in data:
                    self._losing = None
                    armed.set()
                server.write(data)

        async def answer() -> None:
            while data := await upstream.read(1 << 16):
                if armed.is_set():
                    # The server did its work: this is its reply.
                    self.lost += 1
                    return
                if self.pooler:
                    data = _KEY.sub(lambda found: found[1] + bytes(4), data)
                writer.write(data)

        pumps = {asyncio.create_task(forward()), asyncio.create_task(answer())}
        try:
            await asyncio.wait(pumps, return_when=asyncio.FIRST_COMPLETED)
        finally:
            for pump in pumps:
                pump.cancel()
            await asyncio.gather(*pumps, return_exceptions=True)

    @asynccontextmanager
    async def running(self) -> AsyncIterator[Proxy]:
        listener = await asyncio.start_server(self.accept, "127.0.0.1")
        self.dsn = make_conninfo(self._dsn, port=listener.sockets[0].getsockname()[1])
        try:
            yield self
        finally:
            listener.close()
            for task in self._tasks:
                task.cancel()
            await asyncio.gather(*self._tasks, return_exceptions=True)
