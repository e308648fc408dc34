"""The feed against ZooKeeper's own log, for a consumer that reconnects after each event, to any of three processes.

Many callers share transactions, bulks are among them, and others write past the service. Meanwhile each process is
restarted, and the leader is killed. Then the store is put back to a copy of its files and adopted.
"""

from __future__ import annotations

import asyncio
import json
import os
import random
import shutil
import signal
from contextlib import ExitStack
from functools import partial
from itertools import groupby
from typing import TYPE_CHECKING, Any, Final

import httpx
import pytest
from kazoo.client import KazooClient

from confplane.devstack.zookeeper import ZooKeeper
from tests.faults.feed_reader import FeedReader
from tests.faults.txnlog import read_events
from tests.support.commands import Commands
from tests.support.feeding import page
from tests.support.service import Service
from tests.support.stepping import CONSTANTS_VARIABLE
from tests.support.stores import kafka_writes, rate
from tests.support.waiting import until

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence
    from pathlib import Path

    from tests.faults.history import FeedEvent, FeedState, NodeEvent
    from tests.support.servers import Database

pytestmark = pytest.mark.proof
RATE: Final = "producer_byte_rate"
CALLERS: Final = 32
BULKS: Final = 4
BULK: Final = 10
CONSTANTS: Final = {
    "confplane.services.upkeep.incarnation.INTERVAL_S": 0.2,
    "confplane.services.upkeep.incarnation.PUBLISH_INTERVAL_S": 0.2,
    "confplane.services.upkeep.reconcile.INTERVAL_S": 0.2,
    "confplane.services.recorder.record.INTERVAL_S": 0.2,
}
PATIENCE_S: Final = 2_400.0
"""A consumer that is behind the rings reads the trail again for each event: the full size takes long."""
LOST: Final = 500
"""Transactions of the store that its copy lacks: far more than a start makes."""


class Writers:
    """Writers through the services and past them, until so many changes of each kind were answered."""

    def __init__(self, services: Sequence[Service], hosts: str, own: int, external: int) -> None:
        self.services = list(services)
        """The services that are not being restarted."""
        self._hosts = hosts
        self._chooser = random.Random(46)  # noqa: S311 - no secret
        self._own = own
        self._external = external
        self.answered = 0

    async def run(self) -> None:
        """Write."""
        async with httpx.AsyncClient(trust_env=False, timeout=60) as client:
            bulks = [self._bulks(client, number) for number in range(BULKS)]
            callers = [self._singles(client, number) for number in range(CALLERS)]
            await asyncio.gather(*bulks, *callers, asyncio.to_thread(self._past))

    async def _singles(self, client: httpx.AsyncClient, number: int) -> None:
        value = 0
        while self.answered < self._own:
            value += 1
            path = f"client-quotas/user=w{number}"
            done = await self._sent(client, "PUT", path, {"quotas": {RATE: value}})
            self.answered += done

    async def _bulks(self, client: httpx.AsyncClient, number: int) -> None:
        value = 0
        while self.answered < self._own:
            value += 1
            entries = [
                {
                    "entity": [{"entityType": "user", "entityName": f"b{number}-{each}"}],
                    "ops": [{"key": RATE, "value": value}],
                }
                for each in range(BULK)
            ]
            done = await self._sent(client, "POST", "client-quotas:alter", {"entries": entries})
            self.answered += BULK * done

    async def _sent(self, client: httpx.AsyncClient, method: str, path: str, body: Any) -> bool:
        service = self._chooser.choice(self.services)
        headers = {"Authorization": f"Bearer {service.token}"}
        try:
            answer = await client.request(
                method, f"{service.url}/v1/clusters/default/{path}", json=body, headers=headers
            )
        except httpx.TransportError:
            return False  # it was stopped; the log says whether the change was made
        return answer.is_success

    def _past(self) -> None:
        """Write as brokers do, also to the users that callers write to."""
        zk = KazooClient(self._hosts)
        zk.start()
        try:
            for value in range(1, self._external + 1):
                name = f"w{value % CALLERS}" if value % 10 == 0 else f"x{value % 20}"
                kafka_writes(zk, f"users/{name}", rate(1_000_000 + value))
        finally:
            zk.stop()
            zk.close()


async def disturb(services: Sequence[Service], hosts: str, writers: Writers, own: int) -> None:
    """Restart each process in turn, and then kill the leader, each after a share of the changes."""
    for number, service in enumerate(services):
        await until(partial(_answered, writers, own * (number + 1) // 6))
        writers.services.remove(service)
        await asyncio.to_thread(service.stop)
        await asyncio.to_thread(service.start)
        writers.services.append(service)
    await until(partial(_answered, writers, own * 4 // 6))
    leader = await until(partial(asyncio.to_thread, _leader, services, hosts))
    os.kill(leader.pid, signal.SIGKILL)
    writers.services.remove(leader)
    await until(lambda: not leader.running)
    await asyncio.to_thread(leader.start)
    writers.services.append(leader)


def _answered(writers: Writers, count: int) -> bool:
    return writers.answered >= count


def _leader(services: Sequence[Service], hosts: str) -> Service | None:
    zk = KazooClient(hosts)
    zk.start()
    try:
        if not zk.exists("/confplane/leader"):
            return None
        pid = int(json.loads(zk.get("/confplane/leader")[0])["process"].rpartition(":")[2])
    finally:
        zk.stop()
        zk.close()
    return next((each for each in services if each.pid == pid), None)


# ---------------------------------------------------------------- ZooKeeper's log

OwnChange = tuple[int, str, tuple[tuple[str, str | None, str | None], ...]]
"""A revision, a change id, and each user with its rates before and after."""


def logged(directory: Path, after: int = 0) -> tuple[list[OwnChange], dict[str, str | None]]:
    """Return the changes of Confplane above a revision in their order, and the rates of all users at the end."""
    own: list[OwnChange] = []
    rates: dict[str, str | None] = {}
    for zxid, group in groupby(read_events([directory / "data" / "version-2"]), key=lambda event: event.zxid):
        events = list(group)
        before = dict(rates)
        rates |= {event.path: _rate(event) for event in events if event.path.startswith("/config/users/")}
        for event in events:
            content = json.loads(event.data) if event.path.startswith("/confplane/commits/") and event.data else {}
            written = [write["path"] for write in content.get("writes", ())]
            changed = tuple((_id(path), before.get(path), rates[path]) for path in written if path in rates)
            if zxid > after and changed:
                own.append((zxid, event.path.rpartition("/")[2], changed))
    return sorted(own), {_id(path): value for path, value in rates.items()}


def _rate(event: NodeEvent) -> str | None:
    found: str | None = None if event.data is None else json.loads(event.data)["config"].get(RATE)
    return found


def _id(path: str) -> str:
    return f"user={path.rpartition('/')[2]}"


# ---------------------------------------------------------------- what the consumer has


def received(events: Iterable[FeedEvent], after: int = 0) -> list[OwnChange]:
    """Return the events of changes of Confplane above a revision."""
    return [
        (event.revision, event.change_id, tuple((each.id, *_values(each)) for each in event.entities))
        for event in events
        if event.source == "confplane" and event.type == "change" and event.revision > after
    ]


def _values(state: FeedState) -> tuple[str | None, str | None]:
    [(_, before, after)] = state.keys
    return None if before is None else str(before), None if after is None else str(after)


def folded(states: Iterable[FeedState]) -> dict[str, str | None]:
    """Return the rates of all users, by the rule of docs/feed.md."""
    found: dict[str, tuple[int, str | None]] = {}
    for state in states:
        if state.revision > found.get(state.id, (0, None))[0]:
            found[state.id] = state.revision, _values(state)[1]
    return {key: value for key, (_, value) in found.items()}


async def agrees(reader: FeedReader, directory: Path, *, after: int = 0) -> None:
    """Wait until the consumer has all changes of the log, and compare."""
    own, rates = await asyncio.to_thread(logged, directory, after)
    assert own

    def complete() -> bool:
        states = [*reader.states, *(each for event in reader.events for each in event.entities)]
        return len(received(reader.events, after)) >= len(own) and folded(states) == rates

    def missing() -> str:
        have = received(reader.events, after)
        states = [*reader.states, *(each for event in reader.events for each in event.entities)]
        ids = {change[1] for change in have}
        return f"{len(have)} of {len(own)}; missing {[each for each in own if each[1] not in ids][:3]}; " + str(
            {key: (value, rates.get(key)) for key, value in folded(states).items() if rates.get(key) != value}
        )

    await until(complete, PATIENCE_S, why=missing)
    await reader.stop()
    assert received(reader.events, after) == own
    assert [event for event in reader.events if event.type != "change"] == []
    assert reader.refusals == []


@pytest.mark.timeout(6_000)
@pytest.mark.parametrize(("own", "external"), [(300, 60), pytest.param(10_000, 2_000, marks=pytest.mark.long)])
async def test_a_consumer_that_is_cut_off_after_each_event_has_what_zookeeper_logged(
    migrated: Database, tmp_path: Path, own: int, external: int
) -> None:
    with ZooKeeper(tmp_path / "zookeeper", durable=False) as zookeeper, ExitStack() as stack:
        services = [
            stack.enter_context(
                Service(
                    tmp_path / f"service-{number}",
                    connect=zookeeper.hosts,
                    dsn=migrated.service_dsn,
                    settings={CONSTANTS_VARIABLE: json.dumps(CONSTANTS)},
                    module="tests.support.stepping",
                )
            )
            for number in range(3)
        ]
        targets = [(service.url, service.token) for service in services]
        await asyncio.to_thread(services[0].wait_recorded)
        reader = FeedReader(targets, seed=46, cut_after=(1,), polls=0)
        await reader.start()
        writers = Writers(services, zookeeper.hosts, own, external)
        await asyncio.gather(writers.run(), disturb(services, zookeeper.hosts, writers, own))
        await agrees(reader, zookeeper.data_dir)

        copy = tmp_path / "copy"
        shutil.copytree(zookeeper.data_dir / "data", copy)
        position = (await page(services[0])).json()["position"]
        await Writers(services, zookeeper.hosts, CALLERS, LOST).run()
        await asyncio.to_thread(zookeeper.stop)
        shutil.rmtree(zookeeper.data_dir / "data")
        shutil.copytree(copy, zookeeper.data_dir / "data")
        await asyncio.to_thread(zookeeper.start)
        for service in services:
            await until(partial(_answers, service, 409, position))
        commands = Commands(tmp_path, connect=zookeeper.hosts, dsn=migrated.service_dsn)
        said = await asyncio.to_thread(commands.run, "adopt-store", "--reason", "restored")
        assert said.code == 0, said
        for service in services:
            await until(partial(_answers, service, 410, position))

        reader = FeedReader(targets, seed=47, cut_after=(1,), polls=0, snapshot=True)
        await reader.start()
        adopted = max(state.revision for state in reader.states)
        await Writers(services, zookeeper.hosts, own // 10, external // 10).run()
        await agrees(reader, zookeeper.data_dir, after=adopted)


async def _answers(service: Service, status: int, position: str) -> bool:
    return (await page(service, after=position)).status_code == status
