"""The world of the measurements: real servers with fsync, services, helper processes, entities in ZooKeeper."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
from contextlib import ExitStack, contextmanager
from dataclasses import asdict, dataclass, field
from typing import TYPE_CHECKING, Any

import httpx
import psutil
from kazoo.client import KazooClient
from kazoo.exceptions import KazooException, NodeExistsError
from kazoo.retry import KazooRetry

from confplane.devstack.postgres import Postgres
from confplane.devstack.zookeeper import ZooKeeper
from confplane.store import znodes
from tests.bench.load import Load, Loaded
from tests.bench.rounds import progress
from tests.support.ports import reserved_port
from tests.support.processes import ROOT
from tests.support.servers import make_chroot, make_migrated
from tests.support.service import Service

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

_BATCH = 1000
_CLIENTS_PER_USER = 100
_READY_S = 1800.0
_FILL_SESSION_S = 40.0
"""The session of a client that fills a chroot: other processes may delay an answer by more than the usual ten seconds."""


@dataclass(slots=True)
class World:
    """Two servers, and what was made on them."""

    directory: Path
    zookeeper: ZooKeeper
    postgres: Postgres
    _filled: dict[tuple[int, str], str] = field(default_factory=dict)

    def chroot(self) -> str:
        """Make a chroot and return its connect string."""
        return make_chroot(self.zookeeper.hosts)

    @contextmanager
    def service(
        self,
        connect: str | None = None,
        dsn: str | None = None,
        cluster: dict[str, Any] | None = None,
        settings: dict[str, str] | None = None,
        module: str = "confplane",
    ) -> Iterator[Service]:
        """Run ``confplane serve``, or another module that runs it, on a chroot and a database of its own unless they are given."""
        dsn, connect = dsn or self.database(), connect or self.chroot()
        service = Service(
            self.directory / "service", connect=connect, dsn=dsn, cluster=cluster, settings=settings, module=module
        )
        service.start(wait_ready=False)
        try:
            # A million entities take minutes.
            service.wait_ready(_READY_S)
            yield service
        finally:
            service.stop()

    def database(self) -> str:
        """Make a migrated database and return the service's DSN."""
        database = make_migrated(self.postgres)
        return database.service_dsn

    def filled(self, entities: int, whose: str = "Confplane's") -> str:
        """Return the connect string of a chroot that holds so many ``<user, client-id>`` entities with two quotas."""
        made = self._filled.get((entities, whose))
        if made is None:
            made = self._filled[entities, whose] = self.chroot()
            with progress.status(f"  creating {entities:,} entities in ZooKeeper"):
                _fill(made, entities)
        return made


def paths_of(entities: int) -> Iterator[str]:
    """Yield the paths of the entities of a filled chroot."""
    for number in range(entities):
        user, client = divmod(number, _CLIENTS_PER_USER)
        yield f"/config/users/user-{user:06d}/clients/client-{client:04d}"


def data_of(number: int) -> bytes:
    """Return the data of one entity of a filled chroot."""
    return znodes.encode_entity({"producer_byte_rate": str(1_048_576 + number), "consumer_byte_rate": "2097152"})


def _fill(connect: str, entities: int) -> None:
    client = KazooClient(connect, timeout=_FILL_SESSION_S)
    client.start()
    try:
        client.ensure_path("/config/users")
        nodes: list[tuple[str, bytes]] = []
        for number, path in enumerate(paths_of(entities)):
            if not number % _CLIENTS_PER_USER:
                clients = path.rpartition("/")[0]
                nodes += [(clients.rpartition("/")[0], b""), (clients, b"")]
            nodes.append((path, data_of(number)))
            if len(nodes) >= _BATCH:
                _create(client, nodes)
                nodes = []
        if nodes:
            _create(client, nodes)
    finally:
        client.stop()
        client.close()


def _create(client: KazooClient, nodes: list[tuple[str, bytes]]) -> None:
    """Create nodes in one transaction, again if its reply is lost.

    One transaction is sent at a time: kazoo drops a connection whose heartbeat waits behind many of them.
    """
    lost = False

    def send() -> list[Any]:
        nonlocal lost
        transaction = client.transaction()
        for path, data in nodes:
            transaction.create(path, data)
        try:
            results: list[Any] = transaction.commit()
        except KazooException:
            lost = True
            raise
        return results

    results = KazooRetry(max_tries=-1, max_delay=10, deadline=_READY_S, ignore_expire=True)(send)
    if lost and isinstance(results[0], NodeExistsError):
        return  # an earlier one was applied
    for result in results:
        if isinstance(result, Exception):
            raise result


@contextmanager
def running_world(directory: Path, heap: str) -> Iterator[World]:
    """Start the servers, as ``confplane dev`` does: durable."""
    with ExitStack() as stack:
        with progress.status("starting ZooKeeper and Postgres"):
            zookeeper = stack.enter_context(ZooKeeper(directory / "zookeeper", max_heap=heap))
            postgres = stack.enter_context(Postgres(directory / "postgres"))
        yield World(directory, zookeeper, postgres)


def probe(module: str, **fields: Any) -> Any:
    """Run one of the bench's modules as a process of its own and return what it prints."""
    command = [sys.executable, "-m", f"tests.bench.{module}", json.dumps(fields)]
    return json.loads(subprocess.run(command, cwd=ROOT, stdout=subprocess.PIPE, check=True).stdout)


def sent(load: Load) -> Loaded:
    """Run the load generator."""
    return Loaded(**probe("load", **asdict(load)))


def loaded(load: Load, expected: str, server: int) -> tuple[float, float, float]:
    """Run the load generator; return replies a second, the server's CPU time for one in µs, the median latency in ms.

    Every reply must have the expected status.
    """
    process = psutil.Process(server)
    before = sum(process.cpu_times()[:2])
    result = sent(load)
    spent = sum(process.cpu_times()[:2]) - before
    if set(result.statuses) != {expected}:
        raise AssertionError(f"{load.method} {load.path} was answered {result.statuses}, not {expected}")
    return result.rate, spent / result.all_replies * 1e6, result.p50_ms


@contextmanager
def bare(reply: httpx.Response) -> Iterator[tuple[int, int]]:
    """Serve a reply's bytes from the bare route; yields the port and the process id."""
    port = reserved_port()
    own = {"date", "content-length"}
    headers = {name: value for name, value in reply.headers.items() if name not in own}
    spec = json.dumps({"port": port, "body": reply.text, "headers": headers})
    process = subprocess.Popen([sys.executable, "-m", "tests.bench.bare", spec], cwd=ROOT)
    try:
        transport = httpx.HTTPTransport(retries=10)  # with pauses that grow to some seconds
        with httpx.Client(transport=transport, trust_env=False) as client:
            again = client.get(f"http://127.0.0.1:{port}{reply.request.url.path}")
            if reply.request.method == "GET" and (
                again.content != reply.content or again.headers.keys() != reply.headers.keys()
            ):
                raise AssertionError(f"The reference answers {again.headers}, the service {reply.headers}")
        yield port, process.pid
    finally:
        process.send_signal(signal.SIGTERM)
        process.wait()
