"""Scenarios: a few services, faults that a test injects at chosen moments, and a run collected for the checker."""

from __future__ import annotations

import asyncio
import re
import time
from contextlib import asynccontextmanager
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Any

import httpx
from kazoo.exceptions import ConnectionLoss
from psycopg.conninfo import conninfo_to_dict

from tests.faults import planted_bugs
from tests.faults.collect import connect, read_trail, walk, watermark
from tests.faults.feed_reader import FeedReader
from tests.faults.history import Call, Kind, Mode, Part, Run
from tests.faults.operations import Operations
from tests.faults.txnlog import read_events
from tests.support import servers
from tests.support.stepping import REASON
from tests.support.stores import kafka_writes
from tests.support.waiting import until, until_thread
from tests.support.world import World

if TYPE_CHECKING:
    from collections.abc import AsyncIterator
    from pathlib import Path

    from tests.faults.ensemble import Ensemble, LoggedZooKeeper
    from tests.support.proxy import Proxy
    from tests.support.servers import Database
    from tests.support.service import Service

NODE = "/config/users/alice"
CHANGES = "/config/changes"
COMMITS = "/confplane/commits"
QUOTAS = "/v1/clusters/default/client-quotas"
PATIENT_MS = 300_000
"""A deadline that no request reaches."""
LONG_SESSION_MS = 60_000
"""The longest timeout that the server grants: no pause of a scenario exceeds it."""
_FRESH = {"confplane.services.changes.settle._FRESH_S": 0.5}
"""Below the age at which markers are dropped, as in the service."""
_QUICK = {
    "confplane.services.upkeep.reconcile.INTERVAL_S": 0.2,
    "confplane.services.upkeep.reconcile.SWEEP_AGE_S": 1.0,
    "confplane.services.upkeep.reconcile._SLACK_S": 1.0,
    # Longer than any two steps of a scenario that lie between a write without a notification and its discovery.
    "confplane.services.recorder.record.UNNOTIFIED_INTERVAL_S": 10.0,
    **_FRESH,
}
_NEVER = {"confplane.services.upkeep.reconcile.INTERVAL_S": 3600.0, **_FRESH}


class Scenario:
    """Services on a chroot and a database of their own, and the history of the calls to them."""

    def __init__(
        self, directory: Path, zookeeper: LoggedZooKeeper | Ensemble, database: Database, connect: str, zk: Any
    ) -> None:
        self.directory = directory
        self._world = World(directory, connect, database, zk)
        self.server = zookeeper
        self.zk = zk
        """A plain client, rooted where the services are."""
        self._chroot = "/" + connect.partition("/")[2]
        self._database = database
        self._operations = Operations()
        self._calls: list[Call] = []
        self._clients: dict[str, httpx.AsyncClient] = {}
        self._reader: FeedReader | None = None

    @asynccontextmanager
    async def service(
        self,
        bug: str | None = None,
        *,
        through: Proxy | None = None,
        postgres: Proxy | None = None,
        session_timeout_ms: int = LONG_SESSION_MS,
        deadline_ms: int = PATIENT_MS,
        leads: bool = True,
        records: bool = True,
        settings: dict[str, str] | None = None,
    ) -> AsyncIterator[Service]:
        """Run a service, with a planted bug if one is named. Wait until it is ready before it is used."""
        async with self._world.service(
            constants=_QUICK if leads else _NEVER,
            deadline_ms=deadline_ms,
            cluster={"session_timeout_ms": session_timeout_ms, "record_external_changes": records},
            settings={
                **({} if bug is None else {planted_bugs.VARIABLE: bug}),
                **({} if postgres is None else {"CONFPLANE_POSTGRES__DSN": self._dsn(postgres)}),
                **(settings or {}),
            },
            through=through,
            module="tests.faults.planted_bugs",
            ready=False,
        ) as service:
            yield service

    def _dsn(self, connection: Proxy) -> str:
        return re.sub(r"@[^/]+/", f"@127.0.0.1:{connection.port}/", self._database.service_dsn)

    @property
    def postgres(self) -> str:
        """``host:port`` of Postgres."""
        found = conninfo_to_dict(self._database.service_dsn)
        return f"{found['host']}:{found['port']}"

    # -- calls

    async def put(
        self,
        service: Service,
        value: int,
        *,
        user: str = "alice",
        step: bool = False,
        key: str | None = None,
        resend_of: Call | None = None,
        if_match: str | None = None,
        through: Proxy | None = None,
    ) -> Call:
        """Set a user's rate; ``step`` is the write at which the services stop at the step that they are given."""
        path = f"{QUOTAS}/user={user}" + (f"?reason={REASON}" if step else "")
        part = replace(_part(user, Mode.REPLACE, value), if_match=if_match)
        asked = {"key": key, "principal": "User:admin", "reason": REASON if step else None}
        call = self._begin(0, Kind.WRITE, "PUT", path, part, resend_of=resend_of and resend_of.id, **asked)
        headers = {} if key is None else {"Idempotency-Key": key}
        headers |= {} if if_match is None else {"If-Match": if_match}
        return await self._send(service, call, headers, {"quotas": part.set}, through)

    async def alter(self, service: Service, rates: dict[str, int]) -> Call:
        """Set the rates of several users in one request, each as a change of its own."""
        path = f"{QUOTAS}:alter"
        parts = [_part(user, Mode.ALTER, value) for user, value in rates.items()]
        call = self._begin(0, Kind.WRITE, "POST", path, *parts, principal="User:admin")
        entries = [
            {
                "entity": [{"entityType": "user", "entityName": user}],
                "ops": [{"key": "producer_byte_rate", "value": value}],
            }
            for user, value in rates.items()
        ]
        return await self._send(service, call, {}, {"entries": entries})

    async def put_together(self, service: Service, line: Proxy, values: dict[str, int]) -> list[asyncio.Task[Call]]:
        """Begin to set users' rates by a request each, whose changes wait for one transaction.

        ZooKeeper's replies are held back from the service: those to two other changes, which are under way.
        """
        await self.alter(service, {"first": 1, "second": 1})
        line.replies.clear()
        begun = []
        for user in ("first", "second"):
            begun.append(asyncio.create_task(self.put(service, 2, user=user)))
            await until_thread(partial(lambda path: self.zk.exists(path).version == 1, path_of(user)))
        for number, (user, value) in enumerate(values.items()):
            begun.append(asyncio.create_task(self.put(service, value, user=user)))
            await until(partial(self._waits, service, number + 1))
        return begun

    async def _waits(self, service: Service, number: int) -> bool:
        http = self._clients[service.url]
        answer = await http.get("/metrics", headers={"Authorization": f"Bearer {service.token}"})
        return f"confplane_changes_waiting {number}" in answer.text.replace(".0\n", "\n")

    async def get(
        self, service: Service, *, user: str = "alice", min_revision: int | None = None, strong: bool = False
    ) -> Call:
        """Read a user's rate."""
        path = f"{QUOTAS}/user={user}" + ("?consistency=strong" if strong else "")
        part = _part(user, Mode.ALTER)
        call = self._begin(0, Kind.READ, "GET", path, part, min_revision=min_revision, strong=strong)
        headers = {} if min_revision is None else {"Confplane-Min-Revision": str(min_revision)}
        return await self._send(service, call, headers, None)

    def _begin(self, process: int | None, kind: Kind, method: str, path: str, *parts: Part, **more: Any) -> Call:
        made = Call(len(self._calls), 0, process, kind, method, path, time.monotonic(), parts, **more)
        self._calls.append(made)
        return made

    async def _send(
        self, service: Service, call: Call, headers: dict[str, str], body: Any, through: Proxy | None = None
    ) -> Call:
        known = {"Authorization": f"Bearer {service.token}", "X-Request-Id": call.request_id}
        url = service.url if through is None else f"http://127.0.0.1:{through.port}"
        http = self._clients.get(url)
        if http is None:
            http = self._clients[url] = httpx.AsyncClient(base_url=url, timeout=600, trust_env=False)
        try:
            answer = await http.request(call.method, call.path, json=body, headers=known | headers)
            self._operations.answered(call, answer.status_code, dict(answer.headers), answer.content)
        except httpx.TransportError as error:
            call.failure = type(error).__name__
        call.end = time.monotonic()
        return call

    async def close(self) -> None:
        """Close all connections."""
        for http in self._clients.values():
            await http.aclose()

    def write_externally(self, value: int, *, notified: bool) -> None:
        """Set alice's node as another tool does. Without a notification no mirror has it for minutes."""
        part = replace(_part("alice", Mode.NODE, value), facet="node")
        call = self._begin(None, Kind.EXTERNAL, "", "", part)
        data = b'{"version":1,"config":{"producer_byte_rate":"%d"}}' % value
        if notified:
            kafka_writes(self.zk, "users/alice", data)
            call.revision = self.zk.exists(NODE).mzxid
        else:
            call.revision = self.zk.set(NODE, data).mzxid
        call.end, call.status = time.monotonic(), 200

    async def follow(self, service: Service) -> FeedReader:
        """Read the feed of a service from now on."""
        self._reader = FeedReader([(service.url, service.token)], seed=0)
        await self._reader.start()
        return self._reader

    # -- waiting, and the end

    async def settled(self, number: int) -> None:
        """Wait until the trail has at least so many changes, each with its outcome.

        It can have more: the recorder adds one for a write that a planted bug has left unexplained.
        """
        await until_thread(lambda: self._ended(number))

    async def recorded(self) -> None:
        """Wait until the recorder has explained all that was written; before the first write, until it records."""
        # The client of the test may be at a server that a scenario has just cut off.
        await until_thread(self._is_recorded, refused=ConnectionLoss)

    def _is_recorded(self) -> bool:
        with connect(self._database.service_dsn) as connection:
            reached = watermark(connection)
        node = self.zk.exists(NODE)
        return reached is not None and (node is None or reached >= node.mzxid)

    def _ended(self, number: int) -> bool:
        found = read_trail(self._database.service_dsn)
        return number <= len({intent.change_id for intent in found["intents"]}) == len(found["outcomes"])

    def collected(self) -> Run:
        """All that is known, for the checker."""
        return Run(
            seed=0,
            quiet_s=0.0,
            calls=self._calls,
            **read_trail(self._database.service_dsn),
            events=read_events(self.server.log_dirs, chroot=self._chroot),
            znodes=walk(self.zk),
            mirrors=[],
            baseline_zxid=0,
            feed=None if self._reader is None else tuple(self._reader.events),
            feed_refusals=() if self._reader is None else tuple(self._reader.refusals),
        )


def path_of(user: str) -> str:
    """Return the path of a user's node."""
    return f"/config/users/{user}"


def _part(user: str, mode: Mode, value: int | None = None) -> Part:
    given: dict[str, str | float] = {} if value is None else {"producer_byte_rate": value}
    return Part("client-quotas", f"user={user}", path_of(user), mode, given)


@asynccontextmanager
async def open_scenario(
    directory: Path, zookeeper: LoggedZooKeeper | Ensemble, database: Database
) -> AsyncIterator[Scenario]:
    """Open a scenario on running servers."""
    # In threads: the servers of an ensemble reach each other through proxies that run in this loop.
    connect = await asyncio.to_thread(servers.make_chroot, zookeeper.hosts)
    clients = servers.raw_client(connect)
    found = Scenario(directory, zookeeper, database, connect, await asyncio.to_thread(next, clients))
    try:
        yield found
    finally:
        await found.close()
        await asyncio.to_thread(clients.close)


async def ready(*services: Service) -> None:
    """Wait until services are ready, and have checked their ZooKeeper, which the first write would wait for."""
    # In threads, since the loop may have a proxy to run.
    await asyncio.gather(*(asyncio.to_thread(_wait_writable, service) for service in services))


def _wait_writable(service: Service) -> None:
    service.wait_ready()
    answer = httpx.put(
        f"{service.url}{QUOTAS}/user=ready",
        params={"validateOnly": "true"},
        json={"quotas": {"producer_byte_rate": 1}},
        headers={"Authorization": f"Bearer {service.token}"},
        trust_env=False,
    )
    assert answer.status_code == 200, answer.text
