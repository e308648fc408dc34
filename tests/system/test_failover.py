"""Another run of Postgres answers, which has an intent and lacks the outcome that the run before it showed."""

from __future__ import annotations

import asyncio
import contextlib
from typing import TYPE_CHECKING, Any, NamedTuple, cast
from uuid import UUID

import pytest
import pytest_asyncio

from confplane.audit import database as audit_database
from confplane.devstack.postgres import OWNER, SERVICE
from confplane.domain.errors import UnavailableError
from confplane.services.upkeep import reconcile
from confplane.services.upkeep.dropping import Dropper
from tests.audit.rows import fetch, past_the_trigger
from tests.support import servers
from tests.support.replicas import answered, shown
from tests.support.sampling import sampled
from tests.support.stores import ALICE, kafka_writes, notify, soon
from tests.support.world import World

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable
    from pathlib import Path

    from kazoo.client import KazooClient

    from confplane.devstack.postgres import Postgres
    from confplane.services.changes.edits import EditResult
    from confplane.services.ports.trail import AuditRecord
    from tests.support.forgetful import Forgetful
    from tests.support.replicas import Replica

COMMITS = "/confplane/commits"


class Losing(World):
    """A world with a Postgres that loses committed data."""

    def __init__(
        self, directory: Path, chroot: str, zk: KazooClient, postgres: Postgres, standby: Postgres | None = None
    ) -> None:
        owner, service = (_dsn(role, postgres, standby) for role in (OWNER, SERVICE))
        super().__init__(directory, chroot, servers.Database("trail", owner, service), zk)
        self._postgres = postgres

    async def fail_over(self) -> None:
        """Have another run of Postgres answer, without the outcomes."""
        past_the_trigger(self.database.owner_dsn, "outcomes", "DELETE FROM outcomes")
        await asyncio.to_thread(self._postgres.stop)
        await asyncio.to_thread(self._postgres.start)


def _dsn(role: str, postgres: Postgres, standby: Postgres | None) -> str:
    """Whichever of the two is written to."""
    if standby is None:
        return postgres.dsn(role, "trail")
    first, _, database = postgres.dsn(role, "trail").rpartition("/")
    return f"{first},127.0.0.1:{standby.port}/{database}?target_session_attrs=read-write"


class Loss(NamedTuple):
    """A way to lose what was committed without waiting."""

    world: Losing
    begin: Callable[[], None]
    """From now on what does not wait is not kept."""
    strike: Callable[[], None]
    """Lose it. Postgres is back when this returns."""
    stuck: bool
    """No commit that waits comes to an end meanwhile."""

    async def alter(self, writer: Replica) -> EditResult:
        """A change that is answered, and whose outcome is not durable."""
        audit = cast("Any", writer.audit)
        conclude = audit.conclude

        async def begin_and_conclude(outcomes: Any) -> bool:
            await asyncio.to_thread(self.begin)
            audit.conclude = conclude
            done: bool = await conclude(outcomes)
            return done

        audit.conclude = begin_and_conclude
        return await writer.alter(ALICE, producer_byte_rate=1)


LOSSES = ("server", "one backend", "promotion")
"""Postgres is killed; one of its processes is; its synchronous standby, which was cut off, is promoted."""


@pytest_asyncio.fixture
async def loss(
    chroot: str, raw_zk: KazooClient, migrated_server: Forgetful, tmp_path: Path, request: pytest.FixtureRequest
) -> AsyncIterator[Loss]:
    async with contextlib.AsyncExitStack() as stack:
        server = stack.enter_context(migrated_server.copy(tmp_path / "postgres"))
        if request.param == "promotion":
            standby = stack.enter_context(server.with_standby(tmp_path / "standby"))

            def fail_over() -> None:
                server.crash()
                standby.promote()

            world = Losing(tmp_path, chroot, raw_zk, server, standby)
            loss = Loss(world, standby.cut_off, fail_over, stuck=True)
        else:
            crash = server.crash_and_start if request.param == "server" else server.crash_backend
            world = Losing(tmp_path, chroot, raw_zk, server)
            loss = Loss(world, server.hold_back, crash, stuck=False)
        await stack.enter_async_context(world)
        yield loss


@pytest_asyncio.fixture
async def world(chroot: str, raw_zk: KazooClient, own_postgres: Postgres, tmp_path: Path) -> AsyncIterator[Losing]:
    async with Losing(tmp_path, chroot, raw_zk, own_postgres) as world:
        yield world


async def settled(leader: Replica, change_id: str) -> AuditRecord:
    """The change, after some of the leader's rounds."""
    for _ in range(3):
        await leader.reconcile()
    record = await leader.audit.get("default", UUID(change_id))
    assert record is not None
    return record


@pytest.mark.parametrize("by", ["the leader", "the next leader"])
@pytest.mark.parametrize("dropped", [False, True], ids=["", "markers dropped meanwhile"])
async def test_an_applied_change_whose_outcome_was_lost_ends_as_committed(
    world: Losing, raw_zk: KazooClient, by: str, *, dropped: bool
) -> None:
    leader, writer = await world.replica(), await world.replica(leads=False)
    result = await writer.alter(ALICE, producer_byte_rate=1)
    assert result.change_id is not None
    await leader.reconciler.round()
    # So old that it is none of the new changes that each round asks for.
    world.age("intents", 120)
    world.age("outcomes", 120)
    await world.fail_over()
    dropper = Dropper(writer.store, writer.parts.changes)
    if dropped:
        await answered(lambda: dropper.drop(soon(70)))
    record = await settled(leader if by == "the leader" else await world.replica(), result.change_id)
    stat = raw_zk.exists("/config/users/alice")
    assert record.outcome is not None
    assert (record.outcome.committed, record.outcome.revision) == (True, result.revision)
    assert record.outcome.versions == {"/config/users/alice": stat.version}
    assert record.outcome.time_ms == stat.mtime
    # The marker stays until the new outcome is a minute old too.
    await dropper.drop(soon(200))
    assert raw_zk.get_children(COMMITS) == [result.change_id]
    world.age("outcomes", 120)
    assert await dropper.drop(soon(400)) == 1
    assert raw_zk.get_children(COMMITS) == []


async def test_the_recorder_waits_for_what_is_settled_again(world: Losing) -> None:
    leader, writer = await world.replica(), await world.replica(leads=False)
    await leader.record()
    await leader.reconciler.round()
    await writer.alter(ALICE, producer_byte_rate=1)
    await world.fail_over()
    await leader.round()
    await leader.round()
    assert await answered(leader.external) == []
    await settled(leader, str(fetch(world.database.owner_dsn, "SELECT change_id FROM intents")[0][0]))
    await leader.record()
    [record] = await leader.trail()
    assert (record.kind, record.outcome is not None and record.outcome.committed) == ("change", True)


async def test_a_change_that_its_writer_is_about_to_conclude_is_left_to_it_for_a_round(world: Losing) -> None:
    """The markers of changes under way have no outcome yet either."""
    leader, writer = await world.replica(), await world.replica(leads=False)
    await leader.reconciler.round()
    result = await writer.alter(ALICE, producer_byte_rate=1)
    await world.fail_over()
    await leader.reconcile()
    assert fetch(world.database.owner_dsn, "SELECT FROM outcomes") == []
    record = await settled(leader, str(result.change_id))
    assert record.outcome is not None
    assert record.outcome.revision == result.revision


# -- what Postgres really loses


@pytest.mark.parametrize(
    ("by", "loss"), sampled(["the leader", "the next leader"], LOSSES, one_in=2), indirect=["loss"]
)
async def test_an_outcome_that_was_answered_and_lost_is_settled_as_it_was(loss: Loss, by: str) -> None:
    world = loss.world
    leader, writer = await world.replica(), await world.replica(leads=False)
    await leader.reconciler.round()
    result = await loss.alter(writer)
    before = await leader.audit.get("default", UUID(str(result.change_id)))
    assert before is not None
    assert before.outcome is not None
    await asyncio.to_thread(loss.strike)
    assert fetch(world.database.owner_dsn, "SELECT FROM outcomes") == []
    record = await settled(leader if by == "the leader" else await world.replica(), str(result.change_id))
    assert record.outcome == before.outcome


@pytest.mark.parametrize(
    ("by", "loss"),
    sampled(["its process", "the leader's sweep"], LOSSES, one_in=2),
    indirect=["loss"],
)
async def test_no_marker_goes_before_its_outcome_is_durable(
    loss: Loss, raw_zk: KazooClient, monkeypatch: pytest.MonkeyPatch, by: str
) -> None:
    """Without its marker a change whose outcome was lost is settled as aborted, though it was applied."""
    monkeypatch.setattr(reconcile, "SWEEP_AGE_S", 0.0)
    monkeypatch.setattr(audit_database, "READ_TIMEOUT_S", 2.0)
    writer, leader = await loss.world.replica(leads=False), await loss.world.replica()
    result = await loss.alter(writer)
    dropper = Dropper(writer.store, writer.parts.changes)
    dropping = leader.reconciler.round() if by == "the leader's sweep" else dropper.drop(soon(70))
    if loss.stuck:
        with pytest.raises(UnavailableError):
            await dropping
        assert raw_zk.get_children(COMMITS) == [result.change_id]
    else:
        await dropping
        assert raw_zk.get_children(COMMITS) == []
    await asyncio.to_thread(loss.strike)
    record = await settled(await loss.world.replica(), str(result.change_id))
    if record.outcome is None:  # it is open until its writer is gone or it is old
        leader.reconciler._old_s = 0
        record = await settled(leader, str(result.change_id))
    assert record.outcome is not None
    assert record.outcome.committed


async def test_a_failed_sweep_is_repeated_in_the_next_round(world: Losing, raw_zk: KazooClient) -> None:
    leader, writer = await world.replica(), await world.replica(leads=False)
    await leader.reconciler.round()
    result = await writer.alter(ALICE, producer_byte_rate=1)
    await world.fail_over()
    changes = cast("Any", leader.reconciler)._changes
    marked = changes.marked

    async def away(_change_ids: Any) -> Any:
        changes.marked = marked
        raise UnavailableError("Postgres is away")

    changes.marked = away
    await leader.reconcile()
    record = await settled(leader, str(result.change_id))
    assert record.outcome is not None
    assert raw_zk.get_children(COMMITS) == [result.change_id]


def lose_after(leader: Replica, name: str, loss: Loss) -> None:
    """Have Postgres lose what it may once the recorder has asked it for something."""
    states = cast("Any", leader.states)
    ask = getattr(states, name)

    async def ask_and_lose(*args: Any, **named: Any) -> Any:
        found = await ask(*args, **named)
        if named.get("whole", True):  # states are asked for twice, the second time with their contents
            setattr(states, name, ask)
            await asyncio.to_thread(loss.strike)
        return found

    setattr(states, name, ask_and_lose)


async def recorded_once_lost_is_settled(loss: Loss, leader: Replica, name: str, change_id: object) -> list[AuditRecord]:
    """Have the recorder lose its run of Postgres amid a round, and return the trail once the change is settled."""
    await leader.store.catch_up(soon(60))
    await leader.round()
    lose_after(leader, name, loss)
    await leader.round()
    assert fetch(loss.world.database.owner_dsn, "SELECT FROM outcomes") == []
    await settled(leader, str(change_id))
    await leader.record()
    return await leader.trail()


@pytest.mark.parametrize("loss", ["one backend"], indirect=True)
async def test_what_a_recorder_read_of_one_run_it_does_not_write_to_another(loss: Loss, raw_zk: KazooClient) -> None:
    """From the first run the recorder knows of an own change; the second run lacks the values that it left."""
    leader = await loss.world.replica()
    await leader.reconciler.round()
    await leader.record()
    result = await loss.alter(leader)
    kafka_writes(raw_zk, "users/alice", b'{"version":1,"config":{"producer_byte_rate":"2"}}')
    ours, theirs = await recorded_once_lost_is_settled(loss, leader, "known", result.change_id)
    assert (ours.kind, theirs.kind) == ("change", "external")
    assert shown(theirs) == (0, 1, 1, {"producer_byte_rate": "1"}, {"producer_byte_rate": "2"})


@pytest.mark.parametrize("loss", ["one backend"], indirect=True)
async def test_the_watermark_is_not_raised_past_what_a_run_lacks(loss: Loss, raw_zk: KazooClient) -> None:
    """The first run shows no open change of ours; the second shows none that created the absent entity."""
    leader = await loss.world.replica()
    await leader.reconciler.round()
    await leader.record()
    result = await loss.alter(leader)
    raw_zk.delete("/config/users/alice")
    notify(raw_zk, "users/alice")
    ours, theirs = await recorded_once_lost_is_settled(loss, leader, "open", result.change_id)
    assert (ours.kind, theirs.kind) == ("change", "external")
    assert shown(theirs) == (0, None, 1, {"producer_byte_rate": "1"}, {})
