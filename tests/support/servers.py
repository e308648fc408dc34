"""The servers that tests run against, and their parts for one test.

``python -m tests.support.servers DIRECTORY`` keeps a pair running and prints the two variables that make later pytest
runs use it instead of starting their own.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import signal
import sys
import tempfile
import uuid
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import psutil
import psycopg
from kazoo.client import KazooClient

from confplane.audit.migrate import upgrade
from confplane.devstack.postgres import OWNER, SERVICE, Postgres
from confplane.devstack.zookeeper import ZooKeeper
from tests.support.waiting import PATIENCE_S

if TYPE_CHECKING:
    from collections.abc import Generator, Iterator

ZOOKEEPER_VARIABLE = "CONFPLANE_TEST_ZOOKEEPER"
"""``host:port`` of a running ZooKeeper."""
POSTGRES_VARIABLE = "CONFPLANE_TEST_POSTGRES"
"""The data directory of a running :class:`Postgres`."""
MEMORY: Final = Path("/dev/shm")  # noqa: S108 - directories in it are made for their owner alone
"""The file system in memory that Linux has."""
ENOUGH_BYTES: Final = 6 * 2**30
"""The memory that must be available for each process of the tests, whose servers need several hundred megabytes."""
_PREFIX: Final = "confplane-tests-"
_SESSION_S = 30.0
"""The time-out of the sessions of the tests themselves; ZooKeeper grants up to 40 seconds."""

_templates: dict[Path, str] = {}
"""The migrated database by the data directory of a server. It is never connected to, so that it can be copied."""
_makers: dict[Path, psycopg.Connection[Any]] = {}
"""The superuser's connection by the data directory of a server that tests share."""


@dataclass(frozen=True, slots=True)
class Database:
    """A separate database for a test."""

    name: str
    owner_dsn: str
    service_dsn: str


@contextlib.contextmanager
def in_memory(directory: Path) -> Iterator[Path]:
    """Yield a directory in memory for a server's files; ``directory`` itself where there is little memory.

    Each database of a test has 400 files: on a disk they cost four times the processor time. Logs are put into
    ``directory`` at the end. Files that a killed process left in memory are removed by the next process.
    """
    _sweep_memory()
    if not MEMORY.is_dir() or min(shutil.disk_usage(MEMORY).free, psutil.virtual_memory().available) < ENOUGH_BYTES:
        yield directory
        return
    with tempfile.TemporaryDirectory(prefix=f"{_PREFIX}{os.getpid()}-", dir=MEMORY) as made:
        try:
            yield Path(made)
        finally:
            for log in Path(made).glob("*.log"):
                shutil.copy(log, directory)


def _sweep_memory() -> None:
    for left in MEMORY.glob(f"{_PREFIX}*"):
        if not psutil.pid_exists(int(left.name.removeprefix(_PREFIX).partition("-")[0])):
            shutil.rmtree(left, ignore_errors=True)


def run_zookeeper(directory: Path) -> Iterator[ZooKeeper]:
    """Yield a running ZooKeeper: the one named in the environment, else one of its own."""
    named = os.environ.get(ZOOKEEPER_VARIABLE)
    server = ZooKeeper(directory, port=int(named.rpartition(":")[2]) if named else None, durable=False)
    if named:
        yield server
        return
    with server:
        yield server


def run_postgres(directory: Path) -> Iterator[Postgres]:
    """Yield a running Postgres: the one named in the environment, else one of its own."""
    named = os.environ.get(POSTGRES_VARIABLE)
    if named:
        # The fourth line of postmaster.pid is the port.
        port = int((Path(named) / "data" / "postmaster.pid").read_text().splitlines()[3])
        server = Postgres(Path(named), port=port, durable=False)
        server._load_passwords()
        yield server
        return
    with Postgres(directory, durable=False) as server, _making(server):
        yield server


@contextlib.contextmanager
def _making(server: Postgres) -> Iterator[None]:
    """Keep a connection for creating databases, because starting psql for each takes as long as a copy."""
    with psycopg.connect(server.dsn("postgres", "postgres"), autocommit=True) as connection:
        if sys.platform == "linux":
            connection.execute("SET file_copy_method = clone")  # the kernel copies, without Postgres's reads and writes
        _makers[server.data_dir] = connection
        try:
            yield
        finally:
            del _makers[server.data_dir]


def make_chroot(hosts: str) -> str:
    """Create a chroot node of its own and return the connect string that ends with it."""
    name = f"chroot-{uuid.uuid4().hex}"
    client = KazooClient(hosts=hosts, timeout=_SESSION_S)
    client.start(PATIENCE_S)
    try:
        client.create(f"/{name}")
    finally:
        client.stop()
        client.close()
    return f"{hosts}/{name}"


def raw_client(connect_string: str) -> Generator[KazooClient]:
    """Yield a kazoo client rooted at the connect string's chroot."""
    client = KazooClient(hosts=connect_string, timeout=_SESSION_S)
    client.start(PATIENCE_S)
    try:
        yield client
    finally:
        client.stop()
        client.close()


def make_database(server: Postgres) -> Database:
    """Create an empty database with a name of its own."""
    return _created(server, f"test_{uuid.uuid4().hex}")


def lent(server: Postgres, database: Database) -> Iterator[Database]:
    """Yield a database, and remove it afterwards even if clients are still connected."""
    yield database
    _execute(server, f"DROP DATABASE {database.name} WITH (FORCE)")


def make_migrated(server: Postgres) -> Database:
    """Create a database with a name of its own and the schema of this version: a copy of one that was migrated."""
    template = _templates.get(server.data_dir)
    if template is None:
        made = _created(server, f"template_{uuid.uuid4().hex}")
        upgrade(made.owner_dsn, SERVICE)
        template = _templates[server.data_dir] = made.name
    return _created(server, f"test_{uuid.uuid4().hex}", template=template)


def _created(server: Postgres, name: str, template: str = "template1") -> Database:
    for statement in server.creating(name, template=template):
        _execute(server, statement)
    return Database(name, server.dsn(OWNER, name), server.dsn(SERVICE, name))


def _execute(server: Postgres, statement: str) -> None:
    maker = _makers.get(server.data_dir)
    if maker is None:
        server.query(statement)
    else:
        maker.execute(statement.encode())


def main(directory: Path) -> None:
    """Keep a pair of servers running until told to stop."""
    with (
        ZooKeeper(directory / "zookeeper", durable=False) as zookeeper,
        Postgres(directory / "postgres", durable=False),
    ):
        sys.stdout.write(f"export {ZOOKEEPER_VARIABLE}={zookeeper.hosts}\n")
        sys.stdout.write(f"export {POSTGRES_VARIABLE}='{directory.absolute() / 'postgres'}'\n")
        sys.stdout.flush()
        signal.sigwait({signal.SIGINT, signal.SIGTERM})


if __name__ == "__main__":
    signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT, signal.SIGTERM})
    main(Path(sys.argv[1]))
