"""TLS to Postgres by the options of the connection string: libpq's. The embedded server has no TLS of its own."""

from __future__ import annotations

import asyncio
import ssl
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING

import pytest
from psycopg.conninfo import conninfo_to_dict

from confplane.audit import Database, PostgresAuditLog
from confplane.domain.errors import UnavailableError
from tests.support.certificates import CN, Authority, name

if TYPE_CHECKING:
    from collections.abc import AsyncIterator
    from pathlib import Path

    from tests.support import servers

REQUEST = bytes.fromhex("0000000804d2162f")
"""A client's first message where it wants TLS."""


class Terminator:
    """Speaks TLS with clients and forwards to Postgres, which it stands for."""

    def __init__(self, dsn: str, context: ssl.SSLContext) -> None:
        target = conninfo_to_dict(dsn)
        self._target = str(target["host"]), int(str(target["port"]))
        self._context = context
        self.encrypted = 0

    async def accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        first = await reader.readexactly(8)
        if first == REQUEST:
            writer.write(b"S")
            await writer.start_tls(self._context)
            self.encrypted += 1
            first = b""
        upstream, server = await asyncio.open_connection(*self._target)
        server.write(first)
        await asyncio.gather(self._copy(reader, server), self._copy(upstream, writer))

    async def _copy(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            while data := await reader.read(1 << 16):
                writer.write(data)
        finally:
            writer.close()


@asynccontextmanager
async def terminated(dsn: str, directory: Path, authority: Authority) -> AsyncIterator[tuple[str, Terminator]]:
    """Yield a connection string through TLS, and its other end."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(*authority.write(directory, "postgres", name((CN, "postgres"))))
    terminator = Terminator(dsn, context)
    tasks: set[asyncio.Task[None]] = set()

    def accept(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        async def quiet() -> None:
            await asyncio.gather(terminator.accept(reader, writer), return_exceptions=True)

        task = asyncio.get_running_loop().create_task(quiet())
        tasks.add(task)
        task.add_done_callback(tasks.discard)

    listener = await asyncio.start_server(accept, "127.0.0.1", 0)
    port, target = listener.sockets[0].getsockname()[1], conninfo_to_dict(dsn)
    try:
        yield dsn.replace(f":{target['port']}/", f":{port}/"), terminator
    finally:
        listener.close()
        for task in list(tasks):
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


async def check(dsn: str) -> None:
    pool = Database(dsn, 2)
    try:
        await PostgresAuditLog(pool).check()
    finally:
        await pool.close()


async def test_the_options_of_the_connection_string_are_respected(migrated: servers.Database, tmp_path: Path) -> None:
    authority = Authority("postgres")
    ours = authority.write_own(tmp_path / "ca.pem")
    others = Authority("others").write_own(tmp_path / "others.pem")
    async with terminated(migrated.service_dsn, tmp_path, authority) as (dsn, terminator):
        await check(f"{dsn}?sslmode=verify-full&sslrootcert={ours}")
        assert terminator.encrypted > 0
        with pytest.raises(UnavailableError):
            await check(f"{dsn}?sslmode=verify-full&sslrootcert={others}")
    # A server without TLS is not spoken to.
    with pytest.raises(UnavailableError):
        await check(f"{migrated.service_dsn}?sslmode=verify-full&sslrootcert={ours}")
