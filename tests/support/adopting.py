"""Callers' changes to a cluster in the mode ``adopt``, applied round by round."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Awaitable, Callable, Sequence
from contextlib import asynccontextmanager
from functools import partial
from typing import TYPE_CHECKING, Any, Final, cast

import pytest

from confplane.domain.entities import Entity
from confplane.domain.facets import FacetName, Tree
from confplane.domain.ops import Op, OpType
from confplane.services.access import of_operator
from confplane.services.ports.kafka import KraftEntityType, kraft_type_of
from tests.support.observing import Observing, caller
from tests.support.stores import soon, until

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from confplane.services.changes.callers import Caller
    from confplane.services.kraft.reconcile.drift import DriftSelection, EntityDrift
    from confplane.services.ports.trail import AuditRecord
    from tests.support.kafka_double import KafkaDouble
    from tests.support.world import World

ALICE, BOB = Entity.of(user="alice"), Entity.of(user="bob")
PAIR = Entity.of(user="alice", client_id="x")
RATE, OTHER = "producer_byte_rate", "consumer_byte_rate"

Opener = Callable[..., Awaitable[Observing]]
"""Opens a process of a cluster; the first imports it, and sets the mode."""


@asynccontextmanager
async def opener(world: World, kafka: KafkaDouble, usual_mode: str = "adopt", **cluster: Any) -> AsyncIterator[Opener]:
    """Open processes of one cluster, with the given settings of the cluster, and stop them at the end."""
    found: list[Observing] = []

    async def open_one(mode: str = usual_mode, **more: Any) -> Observing:
        one = Observing(await world.replica(client_configs_layout="separate", **cluster), kafka, **more)
        found.append(one)
        if len(found) == 1:
            await one.import_all()
            # With the release of the cluster.
            await one.poll()
            await one.reporter.publish()
            if mode != "observe":
                await one.set_mode(mode)
        await one.aware()
        await until(lambda: one.store.kafka_release() == kafka.release)
        return one

    yield open_one
    for each in found:
        await each.observer.stop()


async def alter(one: Observing, entity: Entity, /, values: dict[str, Any] | None = None, **more: Any) -> None:
    """One change by a caller; None removes a key. Quotas may be given as they are stored."""
    given, facet = {**(values or {}), **more}, FacetName.CONFIGS
    if kraft_type_of(entity) is KraftEntityType.QUOTAS:
        given = {key: value if isinstance(value, float) else value and int(value) for key, value in given.items()}
        facet = FacetName.CLIENT_QUOTAS
    ops = tuple(Op(key, OpType.DELETE if value is None else OpType.SET, value) for key, value in given.items())
    (result,) = await one.replica.edit(entity, facet, ops)
    assert result.error is None, result.error


async def apply(one: Observing) -> bool:
    """One round of the applier, after all commits."""
    await one.store.catch_up(soon())
    one.queues.states_read_at = float("-inf")
    return await one.apply_all()


async def overtake(one: Observing, kafka: KafkaDouble) -> None:
    """Two changes by callers, of which the cluster has only the second: the request of the first one is late."""
    await alter(one, ALICE, {RATE: 1})
    kafka.cut = "late"
    await apply(one)
    await alter(one, ALICE, {RATE: 2})
    await apply(one)


class Killed(BaseException):
    """The end of a process."""


DELIVERY_STEPS: Final = ("begin", "send", "answer", "end")
"""The steps of a delivery: before its id is stored, before its request, before the answer, before the durable
outcome."""


async def kill(one: Observing, step: str) -> None:
    """One round of the applier that ends at a step of :data:`DELIVERY_STEPS` in each queue, as if its process ended."""
    await one.store.catch_up(soon())

    async def end(*_: Any) -> Any:
        raise Killed

    with pytest.MonkeyPatch.context() as patch:
        match step:
            case "send":
                patch.setattr(one.kafka, "alter_quotas", end)
                patch.setattr(one.kafka, "alter_configs", end)
            case "answer":
                patch.setattr(one.kafka, "after_request", end)
            case _:
                patch.setattr(one.states, step, end)
        with pytest.raises(Killed):
            await apply(one)
        ends = await asyncio.gather(*one.queues._in_flight.values(), return_exceptions=True)
    assert all(isinstance(each, Killed) for each in ends)


def equal(one: Observing, kafka: KafkaDouble) -> None:
    """Expect the same quotas and configs here and in the cluster."""
    stored = {
        node.id: node.config
        for facet in (FacetName.CLIENT_QUOTAS, FacetName.CONFIGS)
        for node in one.store.with_keys(Tree.CONFIG, facet.value)
    }
    assert stored == {entity.id: config for entity, config in kafka.now.configs.items()}


async def rows(one: Observing, entity: Entity) -> list[AuditRecord]:
    """The changes of an entity after the import."""
    return [each for each in await one.replica.trail(entity_id=entity.id) if each.kind != "import"]


async def kinds(one: Observing, entity: Entity) -> list[str]:
    """The kinds of an entity's changes after the import."""
    return [each.kind for each in await rows(one, entity)]


async def restore(one: Observing) -> None:
    """Poll, apply what the poll found, and poll the result."""
    await one.poll()
    await apply(one)
    await one.poll()


ADMIN: Any = of_operator("User:olga", "127.0.0.1", "r")


async def drift(one: Observing) -> list[EntityDrift]:
    """All differences, as visible to an administrator."""
    await one.store.catch_up(soon())
    found, cursor = await one.drift.page(ADMIN, page_size=1000, after=None, deadline=soon())
    assert cursor is None
    return found


def shown_drift(found: list[EntityDrift]) -> dict[str, dict[str, tuple[str, str | None, str | None, str | None]]]:
    """Entities with their keys: cause, value here, value in the cluster, author."""
    return {
        each.entity.id: {key.key: (key.state.value, key.ours, key.theirs, key.principal) for key in each.keys}
        for each in found
    }


async def adopt_drift(one: Observing, *chosen: DriftSelection, by: Caller | None = None) -> list[Any]:
    """Take over the cluster's values; return the results."""
    await one.store.catch_up(soon())
    collections = one.replica.parts.clusters.get("default").facets
    edits = await one.drift.edits(chosen, soon())
    parts = [{collections[facet]: edit} for facet, edit in edits]
    return [each.results[0] for each in await one.replica.parts.alter.alter_entries(parts, by or caller())]


TOPIC, GROUP, DEFAULT = Entity.of(topic="t"), Entity.of(group="g"), Entity.of(broker=None)
QUOTAS = (ALICE, BOB, PAIR)
KEYS = {
    **dict.fromkeys(QUOTAS, (RATE, OTHER)),
    TOPIC: ("retention.ms", "segment.ms"),
    GROUP: ("consumer.session.timeout.ms",),
    DEFAULT: ("log.retention.ms", "message.max.bytes"),
}


class Gate:
    """Stops a delivery of one process at a step of :data:`DELIVERY_STEPS`, like a pause of the process.

    Attributes:
        step: The step at which the next delivery stops; None to let all pass.
        reached: Set once a delivery has stopped.
        opened: Set to let it continue.
    """

    def __init__(self, one: Observing) -> None:
        self.step: str | None = None
        self.reached, self.opened = asyncio.Event(), asyncio.Event()
        parts = one.queues._parts
        parts.states, parts.cluster = cast("Any", _Gated(parts.states, self)), cast("Any", _Gated(parts.cluster, self))

    async def pass_by(self, step: str) -> None:
        """Wait at a step."""
        if step == self.step:
            self.step = None
            self.reached.set()
            await self.opened.wait()


class _Gated:
    """A part of a process, whose calls pass through a gate."""

    def __init__(self, part: Any, gate: Gate) -> None:
        self._part, self._gate = part, gate

    def __getattr__(self, name: str) -> Any:
        found = getattr(self._part, name)
        if name in {"begin", "end"}:
            return partial(self._call, found, name, None)
        return partial(self._call, found, "send", "answer") if name.startswith("alter_") else found

    async def _call(self, found: Any, before: str, behind: str | None, /, *given: Any, **named: Any) -> Any:
        await self._gate.pass_by(before)
        result = await found(*given, **named)
        if behind is not None:
            await self._gate.pass_by(behind)
        return result


class Turmoil:
    """Clients, external writers, lost and late requests, and two leaders that pause at each step, in any order."""

    def __init__(
        self,
        sides: list[Observing],
        kafka: KafkaDouble,
        seed: int,
        *,
        entities: Sequence[Entity] = tuple(KEYS),
        others: int = 1_000,
    ) -> None:
        self.sides, self.kafka, self.entities = sides, kafka, entities
        self.others = others
        """The number of external writes that may still happen."""
        self.chooser = random.Random(seed)  # noqa: S311 - seeded
        self._gates = {id(one): Gate(one) for one in sides}
        self._paused: dict[int, asyncio.Task[bool]] = {}

    async def step(self, number: int) -> None:
        """Do one of the possible steps. Clients write numbers below 5000, external writers those above."""
        one, entity = self.chooser.choice(self.sides), self.chooser.choice(self.entities)
        key = self.chooser.choice(KEYS[entity])
        number += 45_000 if entity == GROUP else 0
        match self.chooser.randrange(9):
            case 0 | 1:
                value = self.chooser.choice([None, 1000 + number])
                await alter(one, entity, {key: value if value is None or entity in QUOTAS else str(value)})
            case 2 if self.others:
                self.others -= 1
                self.kafka.alter(entity, {key: str(5000 + number)})
            case 3:
                self.kafka.cut = self.chooser.choice(["before", "after", "late"])
                await self._apply(one)
            case 4:
                await self._apply(one)
            case 5 if self.kafka.waiting:
                self.kafka.arrive()
            case 6:
                await self._pause(one, self.chooser.choice(DELIVERY_STEPS))
            case 7 if self._paused:
                await self._go_on(self.chooser.choice(sorted(self._paused)))
            case _:
                await one.store.catch_up(soon())
                await one.poll_once()

    async def _apply(self, one: Observing) -> None:
        if id(one) not in self._paused:
            await apply(one)

    async def _pause(self, one: Observing, step: str) -> None:
        """One round of the applier that stops at a step, if it gets there."""
        if id(one) in self._paused:
            return
        gate = self._gates[id(one)]
        gate.step = step
        gate.reached.clear()
        gate.opened.clear()
        task, reached = asyncio.create_task(apply(one)), asyncio.create_task(gate.reached.wait())
        await asyncio.wait([task, reached], return_when=asyncio.FIRST_COMPLETED)
        gate.step = None
        reached.cancel()
        if task.done():
            await task
        else:
            self._paused[id(one)] = task

    async def _go_on(self, paused: int) -> None:
        self._gates[paused].opened.set()
        await self._paused.pop(paused)

    async def end(self) -> None:
        """Let all late requests arrive, and wait until nothing changes any more."""
        self.kafka.cut = None
        for each in sorted(self._paused):
            await self._go_on(each)
        while self.kafka.waiting:
            self.kafka.arrive()
        for _ in range(4):
            for one in self.sides:
                await apply(one)
                await one.poll()

    async def theirs(self) -> list[tuple[str, str, str]]:
        """External values in the rows: kind, key and value. None of them was written by a client."""
        found = []
        for entity in self.entities:
            for row in await rows(self.sides[0], entity):
                if row.kind != "change":
                    [made] = row.intent.entities
                    for key in made.keys:
                        value = made.after.get(key)
                        assert value is not None, row
                        assert int(value) % 45_000 >= 5000, row
                        found.append((row.kind, f"{entity.id} {key}", value))
        assert len(set(found)) == len(found), found
        return found
