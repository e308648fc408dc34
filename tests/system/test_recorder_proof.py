"""The trail against ZooKeeper's own log: every version that there ever was is in it once, in order.

Two processes are written through and past, with deletes and recreates, notified and not. Meanwhile each of them is
killed, the leader amid its recording, and started again. ZooKeeper's transaction log, read afterwards, knows all versions,
those too that were gone before anybody could look.
"""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import json
import random
import time
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import httpx
import pytest
from kazoo.exceptions import NodeExistsError, NoNodeError, NotEmptyError

from confplane.devstack.zookeeper import ZooKeeper
from tests.audit.rows import fetch
from tests.faults.checks import external, trail
from tests.faults.checks.facts import Facts
from tests.faults.collect import read_trail, unrecorded, walk
from tests.faults.history import Run
from tests.faults.txnlog import read_events
from tests.support import servers
from tests.support.stepping import STEP_FILE_VARIABLE
from tests.support.stores import notify
from tests.support.waiting import until, until_thread, wait_for
from tests.support.world import RECORDING, World

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Iterator
    from pathlib import Path

    from kazoo.client import KazooClient

    from tests.faults.checks.timeline import State
    from tests.support.servers import Database
    from tests.support.service import Service

pytestmark = pytest.mark.proof
ENTITIES = ("users/a", "users/b", "users/b/clients/x", "users/b/clients/y", "clients/c", "users/<default>", "users/d")
PATIENCE_S = 120.0


@pytest.fixture
def zookeeper(tmp_path: Path) -> Iterator[ZooKeeper]:
    """One whose log no other test writes to."""
    with ZooKeeper(tmp_path / "zookeeper", durable=False) as server:
        yield server


class LogFacts(Facts):
    """A run whose external writes are those that ZooKeeper's log has of other sessions."""

    def is_external(self, _path: str, state: State) -> bool:
        return state.session not in self.log.ours


def unexplained(run: Run) -> list[str]:
    """Return what the checks of the fault suite find in the trail."""
    facts = LogFacts(run)
    trail.check(facts)
    external.check(facts)
    return [*map(str, facts.violations)]


@dataclass(frozen=True)
class Process:
    """A Confplane process, and the file that names the step at which it is to die."""

    service: Service
    step: Path

    def dies_at(self, step: str) -> None:
        """Wait until it was killed at a step of its recording; it comes there only while it leads."""
        self.step.write_text(f"{step}:SIGKILL")
        wait_for(lambda: not self.service.running, why=f"dying at {step!r}")


@contextlib.asynccontextmanager
async def process(world: World, number: int) -> AsyncIterator[Process]:
    """Run a process, which need not be ready yet."""
    step = world.directory / f"step-{number}"
    async with world.service(
        cluster={"session_timeout_ms": 3000}, settings={STEP_FILE_VARIABLE: str(step)}, ready=False
    ) as service:
        yield Process(service, step)


class Writers:
    """Writers through the service, and writers past it. No value is written twice, but on purpose."""

    def __init__(self, seed: int, processes: list[Process], zk: KazooClient) -> None:
        self._dice = random.Random(seed)  # noqa: S311 - a seed gives the same choices again
        self._processes = processes
        self._zk = zk
        self._values = itertools.count(1)
        self.stopped = False
        self.applied = 0
        self.deleted = 0

    async def through(self) -> None:
        """Alter through whichever process answers."""
        async with httpx.AsyncClient(timeout=20, trust_env=False) as http:
            while not self.stopped:
                service = self._dice.choice(self._processes).service
                verb, body = self._alter()
                with contextlib.suppress(httpx.TransportError):
                    answer = await http.post(
                        f"{service.url}/v1/clusters/default/{verb}",
                        json={"entries": body, "atomic": True},
                        headers={"Authorization": f"Bearer {service.token}"},
                    )
                    self.applied += answer.status_code == 200
                await asyncio.sleep(0.05)

    def _alter(self) -> tuple[str, list[dict[str, Any]]]:
        entries = []
        value: str | int
        if self._dice.random() < 0.3:
            key, value = "acks", self._dice.choice(["0", "1", "all"])
            verb, users = "client-configs:alter", self._dice.sample(["a", "b", "d"], 1)
        else:
            verb, users = "client-quotas:alter", self._dice.sample(["a", "b", "d", "e"], self._dice.choice([1, 1, 2]))
            key, value = "producer_byte_rate", next(self._values)
        for user in users:
            entity = [{"entityType": "user", "entityName": user}]
            if user == "b" and verb.startswith("client-quotas") and self._dice.random() < 0.5:
                entity.append({"entityType": "client-id", "entityName": "x"})
            op = {"key": key, "remove": True} if self._dice.random() < 0.2 else {"key": key, "value": value}
            entries.append({"entity": entity, "ops": [op]})
        return verb, entries

    def past(self) -> None:
        """Write as Kafka's tools do, and worse."""
        while not self.stopped:
            path = self._dice.choice(ENTITIES)
            # Kafka's tools and others race with the service all the same.
            with contextlib.suppress(NoNodeError, NodeExistsError, NotEmptyError):
                self._one(path)
            time.sleep(self._dice.uniform(0.0, 0.08))

    def _one(self, path: str) -> None:
        node, choice = f"/config/{path}", self._dice.random()
        if choice < 0.15:
            self._zk.delete(node, recursive=True)
            self.deleted += 1
        elif choice < 0.25:
            self._zk.set(node, self._zk.get(node)[0])
        else:
            config = {"producer_byte_rate": str(next(self._values))}
            if self._dice.random() < 0.3:
                config["consumer_byte_rate"] = "7"
            data = json.dumps({"version": 1, "config": config}).encode()
            if self._zk.exists(node):
                self._zk.set(node, data)
            else:
                self._zk.create(node, data, makepath=True)
        if self._dice.random() < 0.9:
            notify(self._zk, path)


@pytest.mark.parametrize(("seed", "turns"), [(4, 1), pytest.param(5, 8, marks=pytest.mark.long)])
async def test_every_version_is_explained_once_and_in_order(
    tmp_path: Path, zookeeper: ZooKeeper, migrated: Database, seed: int, turns: int
) -> None:
    async with contextlib.AsyncExitStack() as stack:
        zk = stack.enter_context(contextlib.contextmanager(servers.raw_client)(zookeeper.hosts))
        zk.ensure_path("/config/changes")
        world = World(tmp_path, zookeeper.hosts, migrated, zk, RECORDING)
        processes = [await stack.enter_async_context(process(world, number)) for number in range(2)]
        writers = Writers(seed, processes, zk)
        for each in processes:
            await asyncio.to_thread(each.service.wait_ready)
        await until_thread(lambda: since(migrated), why="first contact")
        tasks = [asyncio.create_task(writers.through()) for _ in range(4)]
        tasks.append(asyncio.create_task(asyncio.to_thread(writers.past)))
        try:
            for turn in range(turns):
                await asyncio.to_thread(trouble, processes, zk, ("record", "recorded")[turn % 2])
            # A slow machine takes longer for so many.
            await until_thread(
                lambda: writers.applied > 20 and writers.deleted > 8 and recorded_of_others(migrated) > 20,
                why="enough was written",
            )
        finally:
            writers.stopped = True
            await asyncio.gather(*tasks)
        await until_thread(lambda: not unrecorded(migrated.service_dsn, zk)[0], why="all is recorded")
        await check_over_http(processes, since(migrated))
        znodes = walk(zk)
    events = read_events([zookeeper.data_dir / "data" / "version-2"])
    run = Run(
        seed, 0.0, [], events=events, znodes=znodes, mirrors=[], baseline_zxid=since(migrated),
        **read_trail(migrated.service_dsn),
    )  # fmt: skip
    problems = unexplained(run)
    assert not problems, "\n".join(problems)
    intents, outcomes = run.intents, run.outcomes
    # It was no idle hour: and what is looked for would be found.
    others = [intent for intent in intents if intent.kind == "external"]
    assert len(others) > 20
    assert writers.applied > 20
    assert {intent.kind for intent in intents} == {"change", "external"}
    assert len([event for event in events if event.version is None and event.path.startswith("/config/users/")]) > 2
    assert len(Facts(run).log.ours) >= 2 + 2 * turns
    for lost in (others[0], others[-1]):
        [outcome] = [outcome for outcome in outcomes if outcome.change_id == lost.change_id]
        left = [intent for intent in intents if intent is not lost]
        assert unexplained(replace(run, intents=left, outcomes=[each for each in outcomes if each is not outcome]))
        # And the same once more under another id.
        again = [*intents, replace(lost, change_id="twin")], [*outcomes, replace(outcome, change_id="twin")]
        assert unexplained(replace(run, intents=again[0], outcomes=again[1]))


async def check_over_http(processes: list[Process], began: int) -> None:
    """Check what each process reports of the trail and of an external change."""
    for process in processes:
        async with process.service.client() as client:

            async def recorded() -> bool:
                """Look at the watermark: a process that was just started, or that follows, has not heard of all yet."""
                found = (await client.request("GET", "/v1/clusters/default")).body["recorded"]
                assert found is None or int(found["since"]) == began
                return found is not None and began < int(found["until"])

            await until(recorded, pause_s=0.1)
            [newest, *_] = (await client.request("GET", "audit?principal=External:unknown&pageSize=5")).body["items"]
            assert (newest["kind"], newest["outcome"], newest["source"]) == ("external", "committed", "zookeeper")
            assert newest["writes"] >= 1
            [entity] = newest["entities"]
            assert (entity["facet"], entity["ops"]) == ("node", [])
            assert entity["keys"]


def recorded_of_others(database: Database) -> int:
    """The number of others' changes in the trail."""
    [[count]] = fetch(database.owner_dsn, "SELECT count(*) FROM intents WHERE kind = 'external'")
    return int(count)


def since(database: Database) -> int:
    """The revision from which on others' writes are recorded, 0 while first contact is under way."""
    rows = fetch(database.owner_dsn, "SELECT since FROM watermarks")
    return rows[0][0] or 0 if rows else 0


def trouble(processes: list[Process], zk: KazooClient, step: str) -> None:
    """Kill the leader at a step of its recording, and stop whoever leads then."""
    leader = leading(processes, zk)
    leader.dies_at(step)
    leader.service.start()
    leader = leading(processes, zk)
    leader.service.stop()
    leader.service.start()


def leading(processes: list[Process], zk: KazooClient) -> Process:
    """Wait until one of them leads, and return it."""
    found: list[Process] = []

    def look() -> bool:
        with contextlib.suppress(NoNodeError):
            pid = int(json.loads(zk.get("/confplane/leader")[0])["process"].rpartition(":")[2])
            found.extend(each for each in processes if each.service.running and each.service.pid == pid)
        return bool(found)

    wait_for(look, why="a leader")
    return found[0]
