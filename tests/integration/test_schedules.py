"""Temporary changes on real stores: they end once, key by key, and any nesting of them leads back to the beginning."""

from __future__ import annotations

import asyncio
import random
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any, Final
from uuid import UUID

import psycopg
import pytest

from confplane.audit import PostgresAccessStore, PostgresSchedules, PostgresTrailHistory
from confplane.domain.entities import Entity
from confplane.domain.errors import (
    ConcurrentChangeError,
    InvalidRequestError,
    NotFoundError,
    UnavailableError,
    WriteOutcome,
)
from confplane.domain.facets import FacetName
from confplane.domain.ops import Op, OpType
from confplane.services.changes.callers import Caller
from confplane.services.changes.edits import Edit
from confplane.services.changes.freeze import FreezeService
from confplane.services.ports.access import AccessQuery
from confplane.services.ports.schedules import EntityKey, ScheduleState
from confplane.services.schedules.ends import ScheduleEnder
from confplane.services.schedules.scheduler import Scheduler
from confplane.services.schedules.service import ScheduleService
from tests.support.access_world import World as AccessWorld
from tests.support.alerts import PartAlerts
from tests.support.reverting import made, now, revert
from tests.support.stores import ALICE, content, kafka_writes, soon, until

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from confplane.services.changes.edits import EditResult
    from confplane.services.ports.schedules import Schedule
    from confplane.services.ports.trail import AuditRecord
    from tests.support.replicas import Replica
    from tests.support.world import World

RATE: Final = "producer_byte_rate"
BOB: Final = Entity.of(user="bob")
HOUR: Final = timedelta(hours=1)


class Ends:
    """The scheduler of a replica, on a clock of the test."""

    def __init__(self, replica: Replica) -> None:
        self.replica = replica
        self.ahead = timedelta()
        self.schedules = PostgresSchedules(replica.parts.database)
        self.cluster = replica.parts.clusters.get("default")
        trail = PostgresTrailHistory(replica.parts.database)
        # The age of writes is measured by the real clock, which is also ZooKeeper's.
        self.ender = ScheduleEnder(replica.audit, trail, replica.parts.alter, self.schedules)
        self.access = AccessWorld(PostgresAccessStore(replica.parts.database))
        confirmed = self.access.book.refresh_confirmed
        self.scheduler = Scheduler(self.cluster, self.schedules, self.ender, confirmed, self.now)

    def now(self) -> datetime:
        return datetime.now(UTC) + self.ahead

    async def pass_(self, by: timedelta) -> None:
        """Let time pass, and run a round."""
        self.ahead += by
        await self.scheduler.round()

    async def begin(self, entity: Entity = ALICE, hours: float = 1, **values: Any) -> EditResult:
        """Change quotas of an entity for some hours; None removes a key."""
        ops = tuple(
            Op(key, OpType.DELETE) if value is None else Op(key, OpType.SET, value) for key, value in values.items()
        )
        return (await self.begin_all([Edit(entity, ops)], hours))[0]

    async def begin_all(
        self, edits: Sequence[Edit], hours: float = 1, facet: FacetName = FacetName.CLIENT_QUOTAS
    ) -> list[EditResult]:
        """Make one change of several entities for some hours."""
        caller = Caller.operator("User:olga", "127.0.0.1", "r", soon(30), reason="a test")
        caller = replace(caller, revert_at=self.now() + hours * HOUR)
        return await self.replica.parts.alter.alter(self.cluster.facets[facet], edits, caller, atomic=True)

    async def schedule(self, result: EditResult) -> Schedule:
        found = await self.schedules.find("default", UUID(made(result)))
        assert found is not None
        return found

    async def state(self, result: EditResult) -> ScheduleState:
        return (await self.schedule(result)).state

    async def ends(self, result: EditResult) -> list[AuditRecord]:
        """The committed changes that ended a change."""
        return [
            record
            for record in await self.replica.trail()
            if str(record.intent.ends) == made(result) and record.outcome is not None and record.outcome.committed
        ]


async def test_a_change_ends_at_its_time_and_the_trail_says_so(world: World) -> None:
    one = Ends(await world.replica())
    await one.replica.alter(ALICE, producer_byte_rate=1)
    change = await one.begin(producer_byte_rate=2, request_percentage=5)
    await one.pass_(HOUR / 2)
    assert await now(one.replica, ALICE) == {RATE: "2", "request_percentage": "5.0"}
    assert await one.state(change) is ScheduleState.ACTIVE
    await one.pass_(HOUR)
    assert await now(one.replica, ALICE) == {RATE: "1"}
    [end] = await one.ends(change)
    schedule = await one.schedule(change)
    assert (schedule.state, schedule.end_id, schedule.kept) == (ScheduleState.ENDED, end.intent.change_id, ())
    assert (end.intent.principal, [str(each) for each in end.intent.reverts]) == ("User:olga", [made(change)])
    begin = (await one.replica.trail())[1]
    assert (begin.intent.revert_at, begin.intent.ends) == (schedule.revert_at, None)
    await one.pass_(HOUR)
    assert len(await one.ends(change)) == 1


async def test_an_entity_that_had_nothing_has_nothing_again_and_several_end_together(world: World) -> None:
    one = Ends(await world.replica())
    edits = [Edit(each, (Op(RATE, OpType.SET, 2),)) for each in (ALICE, BOB)]
    change, _ = await one.begin_all(edits)
    await one.pass_(2 * HOUR)
    assert [await now(one.replica, each) for each in (ALICE, BOB)] == [{}, {}]
    [end] = await one.ends(change)
    assert len(end.intent.entities) == 2


async def test_what_was_changed_in_the_meantime_is_kept_and_named(world: World) -> None:
    one = Ends(await world.replica())
    await one.replica.record()
    change = await one.begin(producer_byte_rate=2, consumer_byte_rate=3, request_percentage=5)
    await one.replica.alter(ALICE, producer_byte_rate=7)
    kafka_writes(
        world.zk, ALICE.path, content(producer_byte_rate="7", consumer_byte_rate="8", request_percentage="5.0")
    )
    await one.replica.record()
    await one.pass_(2 * HOUR)
    assert await now(one.replica, ALICE) == {RATE: "7", "consumer_byte_rate": "8"}
    schedule = await one.schedule(change)
    assert schedule.state is ScheduleState.ENDED_PARTLY
    assert set(schedule.kept) == {EntityKey(ALICE.id, RATE), EntityKey(ALICE.id, "consumer_byte_rate")}


async def test_an_external_write_that_the_trail_does_not_have_yet_delays_the_end(world: World) -> None:
    one = Ends(await world.replica())
    await one.replica.record()
    change = await one.begin(hours=0.001, producer_byte_rate=2)
    kafka_writes(world.zk, ALICE.path, content(producer_byte_rate="9"))
    await one.replica.store.catch_up(soon())
    await one.pass_(timedelta(seconds=10))
    assert await one.state(change) is ScheduleState.ENDING
    assert "does not explain" in ((await one.schedule(change)).error or "")
    await one.replica.record()
    await one.pass_(timedelta(seconds=10))
    assert await one.state(change) is ScheduleState.ENDED_PARTLY
    assert await now(one.replica, ALICE) == {RATE: "9"}


@pytest.mark.parametrize("seed", range(6))
async def test_any_nesting_of_temporary_changes_leads_back_to_the_state_before_the_first(
    world: World, seed: int
) -> None:
    chosen = random.Random(seed)  # noqa: S311 - no secret
    one, two = Ends(await world.replica()), Ends(await world.replica())
    before: dict[Entity, dict[str, Any]] = {ALICE: {RATE: 1}, BOB: {"consumer_byte_rate": 5}}
    for entity, quotas in before.items():
        await one.replica.alter(entity, **quotas)
    states = {each: await now(one.replica, each) for each in before}
    for _ in range(12):
        by = chosen.choice((one, two))
        if chosen.random() < 0.7:
            keys = chosen.sample([RATE, "consumer_byte_rate", "controller_mutation_rate"], chosen.randrange(1, 4))
            values: dict[str, Any] = {key: chosen.choice([1, 2, 3, None]) for key in keys}
            hours = chosen.choice((0.5, 1.0, 2.0, 4.0))
            result = await by.begin(chosen.choice((ALICE, BOB)), hours, **values)
            assert result.error is None
        else:
            for each in (one, two):
                each.ahead += chosen.choice((0.3, 0.6)) * HOUR
            await asyncio.gather(one.scheduler.round(), two.scheduler.round())
    for _ in range(30):
        one.ahead += HOUR
        two.ahead += HOUR
        await asyncio.gather(one.scheduler.round(), two.scheduler.round())
    assert {each: await now(one.replica, each) for each in before} == states
    assert await one.schedules.list("default", ended=False, before=None, most=100) == []
    ended = await one.schedules.list("default", ended=True, before=None, most=100)
    assert {each.state for each in ended} == {ScheduleState.ENDED}
    ends = [record.intent.ends for record in await one.replica.trail(outcome="committed") if record.intent.ends]
    assert len(ends) == len(set(ends))


async def test_a_key_with_a_line_break_holds_up_no_end(world: World) -> None:
    one = Ends(await world.replica())
    broker, key = Entity.of(broker="1"), "listener.name.a\nb.max.connections"
    changes = [
        *await one.begin_all([Edit(broker, (Op(key, OpType.SET, "5"),))], 1, FacetName.CONFIGS),
        *await one.begin_all([Edit(broker, (Op(key, OpType.SET, "7"),))], 3, FacetName.CONFIGS),
        await one.begin(producer_byte_rate=2),
    ]
    await one.pass_(2 * HOUR)
    # The change above has what the key is to get at its end.
    assert (await one.schedule(changes[1])).fallbacks == {EntityKey(broker.id, key): None}
    await one.pass_(2 * HOUR)
    assert [await one.state(change) for change in changes] == [ScheduleState.ENDED] * 3
    assert await now(one.replica, broker) == {}


async def test_two_leaders_at_once_end_each_change_once(world: World) -> None:
    pair = [Ends(await world.replica()) for _ in range(2)]
    users = [Entity.of(user=f"u{number}") for number in range(20)]
    changes = [await pair[0].begin(user, producer_byte_rate=2) for user in users]
    await pair[1].replica.store.catch_up(soon())
    for _ in range(3):
        for each in pair:
            each.ahead += 2 * HOUR
        await asyncio.gather(*(each.scheduler.round() for each in pair))
    assert [await pair[0].state(change) for change in changes] == [ScheduleState.ENDED] * len(changes)
    assert [len(await pair[0].ends(change)) for change in changes] == [1] * len(changes)


async def test_a_freeze_and_a_pause_delay_the_end_and_are_reported(world: World) -> None:
    one = Ends(await world.replica())
    freezes, caller = FreezeService(one.replica.parts.runner), Caller.operator("User:x", "", "r", soon(60))
    change = await one.begin(producer_byte_rate=2)
    await one.pass_(0 * HOUR)
    alerts = PartAlerts(one.scheduler)
    assert alerts.scrape() == set()
    await freezes.freeze(one.replica.store, "upgrade", caller)
    await one.pass_(2 * HOUR)
    assert await now(one.replica, ALICE) == {RATE: "2"}
    [warning] = one.scheduler.warnings()
    assert ("1 temporary change is overdue" in warning.public, made(change) in str(warning)) == (True, True)
    assert alerts.scrape() == {"ScheduleOverdue"}
    await freezes.thaw(one.replica.store, "done", caller)
    pauses = ScheduleService(one.schedules, one.ender, one.now)
    await pauses.pause("default", "an audit", caller)
    await pauses.pause("default", "once more", caller)
    await one.pass_(2 * HOUR)
    assert await now(one.replica, ALICE) == {RATE: "2"}
    assert "an audit" in str(one.scheduler.warnings()[0])
    await pauses.resume("default", caller)
    await pauses.resume("default", caller)
    access = PostgresAccessStore(one.replica.parts.database)
    history, _ = await access.search(AccessQuery(subject="schedules/default"))
    assert [(each.kind, each.reason) for each in reversed(history)] == [
        ("schedules-paused", "an audit"),
        ("schedules-resumed", None),
    ]
    await one.pass_(HOUR)
    assert await now(one.replica, ALICE) == {}
    assert one.scheduler.warnings() == []


async def test_a_restored_postgres_ends_nothing_until_its_tokens_are_confirmed(world: World) -> None:
    one = Ends(await world.replica())
    change, early = [await one.begin(each, producer_byte_rate=2) for each in (ALICE, BOB)]
    with psycopg.connect(world.database.owner_dsn) as connection:
        connection.execute("UPDATE access_version SET tokens_from = now(), version = version + 1")
    await one.pass_(2 * HOUR)
    assert [await now(one.replica, each) for each in (ALICE, BOB)] == [{RATE: "2"}] * 2
    held_back = await one.schedule(change)
    assert held_back.state is ScheduleState.ACTIVE, "its fallbacks are not final yet"
    assert "`confplane tokens confirm`" in str(held_back.error)
    [warning] = one.scheduler.warnings()
    assert ("Postgres" in warning.public, "`confplane tokens confirm`" in str(warning)) == (False, True)
    caller = Caller.operator("User:x", "", "r", soon(60))
    ended = await ScheduleService(one.schedules, one.ender, one.now).end(one.cluster, UUID(made(early)), caller)
    assert (ended.state, await now(one.replica, BOB)) == (ScheduleState.ENDED, {})
    assert await one.access.tokens.confirm(one.access.caller()) is True
    await one.pass_(HOUR)
    assert await now(one.replica, ALICE) == {}
    ended = await one.schedule(change)
    assert (ended.state, ended.error, one.scheduler.warnings()) == (ScheduleState.ENDED, None, [])


async def test_a_pause_also_stops_the_ends_that_are_due_in_the_same_round(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    one = Ends(await world.replica())
    changes = [await one.begin(Entity.of(user=f"p{number}"), producer_byte_rate=2) for number in range(3)]
    pauses, caller = ScheduleService(one.schedules, one.ender, one.now), Caller.operator("User:x", "", "r", soon(60))
    end = ScheduleEnder.end

    async def end_and_pause(*given: Any) -> Schedule:
        ended = await end(*given)
        await pauses.pause("default", "an audit", caller)
        return ended

    monkeypatch.setattr(ScheduleEnder, "end", end_and_pause)
    await one.pass_(2 * HOUR)
    await one.pass_(0 * HOUR)
    assert [await one.state(change) for change in changes] == [ScheduleState.ENDED, *[ScheduleState.ACTIVE] * 2]
    await pauses.resume("default", caller)
    for _ in range(2):
        await one.pass_(HOUR)
        await pauses.resume("default", caller)
    assert {await one.state(change) for change in changes} == {ScheduleState.ENDED}


async def test_a_secret_is_refused_and_other_keys_are_not(world: World, tmp_path: Path) -> None:
    (tmp_path / "secret").write_text("encoder")
    encoder = {"secret_file": str(tmp_path / "secret")}
    one = Ends(await world.replica(password_encoder=encoder))
    broker = Entity.of(broker="1")
    secret = Op("listener.name.internal.ssl.key.password", OpType.SET, "hunter2")
    [result] = await one.begin_all([Edit(broker, (secret,))], facet=FacetName.CONFIGS)
    assert isinstance(result.error, InvalidRequestError)
    assert "can't be changed temporarily" in result.error.detail
    [result] = await one.begin_all(
        [Edit(broker, (Op("log.cleaner.threads", OpType.SET, "2"),))], facet=FacetName.CONFIGS
    )
    assert result.error is None


@pytest.mark.parametrize("step", ["intend", "commit", "conclude", "finish"])
async def test_an_end_that_was_interrupted_at_a_step_is_completed_once_by_another_leader(
    world: World, monkeypatch: pytest.MonkeyPatch, step: str
) -> None:
    one = Ends(await world.replica(session_timeout_ms=4_000))
    await one.replica.alter(ALICE, producer_byte_rate=1)
    change = await one.begin(producer_byte_rate=2)
    one.ahead = 2 * HOUR

    class Interrupted(Exception):  # noqa: N818 - a process that is killed
        pass

    target: Any = {
        "intend": one.replica.audit,
        "commit": one.replica.store,
        "conclude": one.replica.audit,
        "finish": one.schedules,
    }[step]
    call = getattr(target, step)
    reached: list[str] = []

    async def killed(*given: Any, **named: Any) -> Any:
        if step != "conclude":
            await call(*given, **named)
        reached.append(step)
        raise Interrupted

    with monkeypatch.context() as patch:
        patch.setattr(target, step, killed)
        await one.scheduler.round()
    assert reached == [step]
    other = Ends(await world.replica())
    other.ahead = one.ahead
    await world.stop_replicas(one.replica)

    async def ended() -> bool:
        other.ahead += timedelta(minutes=2)
        await other.replica.reconcile()
        await other.scheduler.round()
        return await other.state(change) is ScheduleState.ENDED

    await until(ended)
    assert await now(other.replica, ALICE) == {RATE: "1"}
    assert len(await other.ends(change)) == 1
    schedule = await other.schedule(change)
    assert schedule.end_id == (await other.ends(change))[0].intent.change_id


async def never(*_given: Any, **_named: Any) -> bool:
    """Write no outcome, as while Postgres is unavailable."""
    return False


def early() -> Caller:
    return Caller.operator("User:olga", "127.0.0.1", "early", soon(30), reason="a test")


async def test_a_change_without_an_outcome_can_be_ended_early_once_it_has_one(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    one = Ends(await world.replica())
    service = ScheduleService(one.schedules, one.ender)
    with monkeypatch.context() as patch:
        patch.setattr(one.replica.audit, "conclude", never)
        change = UUID(made(await one.begin(producer_byte_rate=2)))
    with pytest.raises(UnavailableError, match="recorded within seconds") as refused:
        await service.end(one.cluster, change, early())
    assert (refused.value.outcome, refused.value.retry_after_s) == (WriteOutcome.NOT_APPLIED, 1)
    with pytest.raises(NotFoundError):
        await service.end(one.cluster, UUID(int=change.int + 1), early())


async def test_an_end_that_was_written_is_not_answered_as_not_applied(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    one = Ends(await world.replica())
    change = UUID(made(await one.begin(producer_byte_rate=2)))
    await one.schedules.register("default")
    with monkeypatch.context() as patch:
        patch.setattr(one.replica.audit, "conclude", never)
        with pytest.raises(UnavailableError, match="The values are restored") as refused:
            await one.ender.end(one.cluster, change, early())
    assert refused.value.outcome is WriteOutcome.UNKNOWN
    assert await now(one.replica, ALICE) == {}


@pytest.mark.parametrize(
    ("step", "outcome"),
    [
        ("begin", WriteOutcome.NOT_APPLIED),
        ("attempts", WriteOutcome.NOT_APPLIED),
        ("finish", WriteOutcome.UNKNOWN),
        ("find", WriteOutcome.UNKNOWN),
    ],
)
async def test_the_refusal_of_an_end_says_whether_it_was_written(
    world: World, monkeypatch: pytest.MonkeyPatch, step: str, outcome: WriteOutcome
) -> None:
    one = Ends(await world.replica())
    change = UUID(made(await one.begin(producer_byte_rate=2)))
    await one.schedules.register("default")
    schedule = await one.schedules.begin("default", change)

    async def away(*_given: Any, **_named: Any) -> None:
        raise UnavailableError("Postgres is away")

    async def begun(*_given: Any) -> Schedule | None:
        return schedule

    monkeypatch.setattr(one.schedules, "delay", away)
    monkeypatch.setattr(one.schedules, "begin", begun)
    monkeypatch.setattr(one.schedules, step, away)
    with pytest.raises(UnavailableError, match="Postgres is away") as refused:
        await one.ender.end(one.cluster, change, early())
    assert refused.value.outcome is outcome
    assert await now(one.replica, ALICE) == ({RATE: "2"} if outcome is WriteOutcome.NOT_APPLIED else {})


async def test_a_revert_to_the_value_of_a_temporary_change_that_has_ended_is_led_back_by_the_end(world: World) -> None:
    one = Ends(await world.replica())
    await one.replica.alter(ALICE, producer_byte_rate=1)
    await one.begin(hours=1, producer_byte_rate=2)
    above = await one.begin(hours=5, producer_byte_rate=3)
    await one.pass_(2 * HOUR)
    await revert(one.replica, made(above))
    assert await now(one.replica, ALICE) == {RATE: "2"}
    await one.pass_(5 * HOUR)
    assert await now(one.replica, ALICE) == {RATE: "1"}


async def test_a_change_above_that_ends_before_an_end_is_recorded_leads_back_to_the_beginning(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    one, two = Ends(await world.replica()), Ends(await world.replica())
    await one.replica.alter(ALICE, producer_byte_rate=1)
    below = await one.begin(producer_byte_rate=2, request_percentage=5)
    above = await one.begin(hours=5, producer_byte_rate=3)
    await one.schedules.register("default")
    finish = one.schedules.finish

    async def overtaken(*given: Any) -> bool:
        ended = await two.ender.end(two.cluster, UUID(made(above)), early())
        assert ended.state is ScheduleState.ENDED
        return await finish(*given)

    with monkeypatch.context() as patch:
        patch.setattr(one.schedules, "finish", overtaken)
        ended = await one.ender.end(one.cluster, UUID(made(below)), early())
    assert (ended.state, await now(one.replica, ALICE)) == (ScheduleState.ENDED, {RATE: "1"})
    assert (len(await one.ends(below)), len(await one.ends(above))) == (1, 1)


async def test_an_end_writes_nothing_while_a_change_above_ends(world: World) -> None:
    one, two = Ends(await world.replica()), Ends(await world.replica())
    await one.replica.alter(ALICE, producer_byte_rate=1)
    below = await one.begin(producer_byte_rate=2, request_percentage=5)
    above = await one.begin(hours=5, producer_byte_rate=3)
    await one.schedules.register("default")
    assert await two.schedules.begin("default", UUID(made(above))) is not None
    with pytest.raises(ConcurrentChangeError, match="Another temporary change of the same keys ends now"):
        await one.ender.end(one.cluster, UUID(made(below)), early())
    assert await now(one.replica, ALICE) == {RATE: "3", "request_percentage": "5.0"}
    for change in (above, below):
        assert (await two.ender.end(two.cluster, UUID(made(change)), early())).state is ScheduleState.ENDED
    assert await now(one.replica, ALICE) == {RATE: "1"}


async def test_an_end_of_several_entities_is_repeated_if_one_of_them_was_changed(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    one = Ends(await world.replica())
    result, _ = await one.begin_all([Edit(each, (Op(RATE, OpType.SET, 2),)) for each in (ALICE, BOB)])
    await one.schedules.register("default")
    alter_entries = one.replica.parts.alter.alter_entries
    ends: list[Any] = []

    async def overtaken(*given: Any, **named: Any) -> Any:
        ends.append(given)
        if len(ends) == 1:
            await one.replica.alter(BOB, request_percentage=5)
        return await alter_entries(*given, **named)

    monkeypatch.setattr(one.replica.parts.alter, "alter_entries", overtaken)
    ended = await one.ender.end(one.cluster, UUID(made(result)), early())
    assert (ended.state, len(ends)) == (ScheduleState.ENDED, 2)
    assert [await now(one.replica, each) for each in (ALICE, BOB)] == [{}, {"request_percentage": "5.0"}]
