"""The reconciler on real ZooKeeper and Postgres: what it settles and what it leaves, what it sweeps and what it keeps."""

from __future__ import annotations

import asyncio
import time
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any, Final, cast

import pytest
from uuid_utils.compat import uuid7

from confplane.domain.entities import Entity
from confplane.domain.errors import UnavailableError
from confplane.services.ports.cluster_states import Freeze
from confplane.services.ports.trail import Outcome
from confplane.services.ports.transactions import Committed, Guarded, StateWrite
from confplane.services.upkeep import reconcile
from confplane.services.upkeep.reconcile import Reconciler
from tests.audit import rows
from tests.audit.rows import entity, fetch, intent
from tests.support.metrics import value_of
from tests.support.replicas import HOUR_MS, answered
from tests.support.stores import commit, committed, soon, until, write

if TYPE_CHECKING:
    from uuid import UUID

    from confplane.services.ports.trail import Intent
    from tests.support.replicas import Replica
    from tests.support.world import World

COMMITS = "/confplane/commits"
DEAD = "f" * 32
"""A writer node that is not there."""


async def left_open(by: Replica, number: int, *, applied: bool, writer: str = DEAD) -> Intent:
    """An intent without outcome, its transaction applied or never sent, as a dead process leaves it."""
    target = Entity.of(user=f"u{number}")
    made = intent(
        uuid7(), entity(target.id, path=f"/config/{target.path}"), cluster="default", writer=writer, attempt=1
    )
    await by.audit.intend([made])
    if applied:
        await committed(by.store, write(target, {"acks": "1"}), change_id=made.change_id)
    return made


def outcomes(world: World) -> dict[UUID, tuple[bool, int | None, dict[str, int]]]:
    rows = fetch(world.database.owner_dsn, "SELECT change_id, committed, revision, versions FROM outcomes")
    return {row[0]: (row[1], row[2], row[3]) for row in rows}


def markers(world: World) -> set[str]:
    return set(world.zk.get_children(COMMITS))


@pytest.mark.parametrize("frozen", [False, True])
async def test_what_a_dead_process_left_is_settled_in_the_first_round(world: World, *, frozen: bool) -> None:
    one = await world.replica(leads=False)
    applied = await left_open(one, 1, applied=True)
    never = await left_open(one, 2, applied=False)
    if frozen:
        version = (await one.store.read_state(Freeze, soon())).version
        freeze = StateWrite("/confplane/freeze", version, Freeze("upgrade", "User:olga", 1))
        assert isinstance(await commit(one.store, freeze, guarded=Guarded.NONE), Committed)
    assert await one.reconcile()
    stat = world.zk.exists("/config/users/u1")
    assert outcomes(world) == {
        applied.change_id: (True, stat.mzxid, {"/config/users/u1": 0}),
        never.change_id: (False, None, {}),
    }
    record = await one.audit.get("default", applied.change_id)
    assert record is not None
    assert record.outcome is not None
    assert (record.outcome.attempt, record.outcome.time_ms) == (1, stat.mtime)
    # The next round finds nothing to do.
    await one.reconcile()
    assert one.reconciler._open == {}
    # The trail does not know the freeze of this test, whose marker is reported.
    assert len(one.reconciler.warnings()) == frozen


OLD_S: Final = 2 * HOUR_MS // 1000 + 100
"""The age of a change that belongs to no request any more."""


def advance(one: Replica, seconds: float) -> None:
    """Set the reconciler's clock so many seconds ahead."""
    one.reconciler.clock = lambda: time.monotonic() + seconds


async def test_only_the_leader_settles(world: World) -> None:
    leader, other = await world.replica(leads=False), await world.replica(leads=False)
    assert await leader.reconcile()
    await left_open(leader, 1, applied=True)
    assert not await other.reconcile()
    assert outcomes(world) == {}
    await world.stop_replicas(leader)
    await until(other.reconcile)
    assert len(outcomes(world)) == 1


async def test_two_leaders_at_once_make_one_outcome_of_each_change(world: World) -> None:
    pair = [await world.replica() for _ in range(2)]
    made = [await left_open(pair[number % 2], number, applied=number % 3 > 0) for number in range(90)]

    async def settled() -> bool:
        """A round leaves out the changes for which it gets no connection to Postgres in time."""
        await asyncio.gather(*(process.reconcile() for process in (*pair, *pair)))
        return len(outcomes(world)) == len(made)

    await until(settled)
    found = outcomes(world)
    for number, change in enumerate(made):
        was_committed, revision, _ = found[change.change_id]
        stat = world.zk.exists(f"/config/users/u{number}")
        assert was_committed is (stat is not None)
        assert revision == (stat.mzxid if stat else None)
    for process in pair:
        await process.audit.close()
        assert process.audit.differing == 0


async def test_a_change_of_a_living_writer_is_left_to_it(world: World) -> None:
    one, two = await world.replica(leads=False), await world.replica(leads=False)
    change = await left_open(two, 1, applied=False, writer=two.store.writer())
    await one.reconcile()
    assert outcomes(world) == {}
    assert markers(world) == set()
    # Until it is older than any request can be.
    world.age("intents", OLD_S)
    await one.reconcile()
    assert outcomes(world) == {change.change_id: (False, None, {})}


async def test_an_old_change_is_found_by_the_walk_back(world: World) -> None:
    one = await world.replica(leads=False)
    change = await left_open(one, 1, applied=True)
    world.age("intents", 86_400)
    found, _ = await one.parts.changes.new("default", None, ())
    assert found == []
    await one.reconcile()
    assert set(outcomes(world)) == {change.change_id}


async def test_an_outcome_kept_in_memory_and_the_settled_one_are_the_same(world: World) -> None:
    one, two = await world.replica(leads=False), await world.replica(leads=False)
    change = await left_open(one, 1, applied=True)
    stat = world.zk.exists("/config/users/u1")
    kept = Outcome(
        change.change_id,
        1,
        "default",
        committed=True,
        revision=stat.mzxid,
        time_ms=stat.mtime,
        versions={"/config/users/u1": 0},
    )
    await two.reconcile()
    await one.audit.conclude([kept])
    await one.audit.close()
    assert one.audit.differing == 0
    record = await two.audit.get("default", change.change_id)
    assert record is not None
    assert record.outcome == kept


async def test_a_marker_that_can_not_be_read_is_reported_and_holds_up_nothing_else(world: World) -> None:
    one = await world.replica(leads=False)
    odd = await left_open(one, 1, applied=False)
    sound = await left_open(one, 2, applied=True)
    world.zk.create(f"{COMMITS}/{odd.change_id}", b"?")
    world.age("intents", 2 * OLD_S)
    await one.reconcile()
    await one.reconcile()
    assert set(outcomes(world)) == {sound.change_id}
    [warning] = one.reconciler.warnings()
    assert str(odd.change_id) in str(warning)


async def test_markers_are_swept_once_their_outcome_is_a_minute_old(world: World) -> None:
    one = await world.replica(leads=False)
    applied = await left_open(one, 1, applied=True)
    never = await left_open(one, 2, applied=False)
    await one.reconcile()
    assert markers(world) == {str(applied.change_id), str(never.change_id)}
    assert reconcile.SWEEP_AGE_S == 60
    advance(one, 60)
    await one.reconcile()
    assert markers(world) == {str(applied.change_id), str(never.change_id)}
    # It comes back to them by itself.
    world.age("outcomes", 60)
    advance(one, 120)
    await one.reconcile()
    assert markers(world) == set()


async def test_an_abort_marker_stays_while_its_writer_is_there(world: World) -> None:
    one, two = await world.replica(leads=False), await world.replica(leads=False)
    aborted = await left_open(two, 1, applied=False, writer=two.store.writer())
    applied = await left_open(two, 2, applied=True, writer=two.store.writer())
    world.age("intents", OLD_S)
    await one.reconcile()
    world.age("outcomes", 100)
    advance(one, reconcile.SWEEP_INTERVAL_S)
    await one.reconcile()
    # That of a commit has done its work, whoever made it.
    assert markers(world) == {str(aborted.change_id)}
    assert applied.change_id in outcomes(world)
    writer = two.store.writer()
    await world.stop_replicas(two)
    await until(lambda: world.zk.exists(f"/confplane/writers/{writer}") is None)
    await one.reconcile()
    # A writer that has gone calls for a sweep, in a while.
    assert markers(world) == {str(aborted.change_id)}
    advance(one, reconcile.SWEEP_INTERVAL_S + 90)
    await one.reconcile()
    assert markers(world) == set()


async def test_markers_of_changes_that_the_trail_does_not_know_are_left_and_reported(world: World) -> None:
    one = await world.replica(leads=False)
    lost = uuid7()
    await committed(one.store, write(Entity.of(user="lost"), {"acks": "1"}), change_id=lost)
    world.zk.create(f"{COMMITS}/by-hand")
    await one.reconcile()
    assert markers(world) == {str(lost), "by-hand"}
    [warning] = one.reconciler.warnings()
    assert str(lost) in str(warning)
    assert "by-hand" in str(warning)
    assert value_of(one.reconciler, "stray_markers") == 2


async def test_a_marker_is_reported_no_longer_once_its_change_is_known_or_it_is_gone(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(reconcile, "STRAYS_INTERVAL_S", 0.0)
    one = await world.replica(leads=False)
    recovered, removed = uuid7(), uuid7()
    for number, change_id in enumerate((recovered, removed)):
        await committed(one.store, write(Entity.of(user=f"lost{number}"), {"acks": "1"}), change_id=change_id)
    await one.reconcile()
    [warning] = one.reconciler.warnings()
    assert {str(recovered), str(removed)} <= set(str(warning).replace(",", " ").replace(".", " ").split())
    # The recorder writes such a change again, and an operator removes the marker of the other.
    intent_of_it = intent(recovered, cluster="default")
    await one.audit.intend([intent_of_it])
    await one.audit.conclude([rows.committed(intent_of_it)])
    await one.reconcile()
    [warning] = one.reconciler.warnings()
    assert str(recovered) not in str(warning)
    assert str(removed) in str(warning)
    world.zk.delete(f"{COMMITS}/{removed}")
    await one.reconcile()
    assert one.reconciler.warnings() == []


async def test_many_markers_are_swept_in_pieces(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(reconcile, "PIECE", 20)
    one = await world.replica(leads=False)
    made = [await left_open(one, number, applied=number % 2 > 0) for number in range(70)]
    await one.reconcile()
    assert len(outcomes(world)) == len(made)
    world.age("outcomes", 100)
    advance(one, reconcile.SWEEP_AGE_S)
    await one.reconcile()
    assert markers(world) == set()


async def test_a_leader_that_loses_leadership_during_work_stops(world: World) -> None:
    one = await world.replica()
    await left_open(one, 1, applied=True)
    cast("Any", one.store).leadership.held = False
    await one.reconcile()
    assert outcomes(world) == {}


async def test_it_runs_by_itself_and_gets_over_a_database_that_is_away(
    world: World, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(reconcile, "INTERVAL_S", 0.05)
    one = await world.replica(leads=False)
    changes, answers = one.parts.changes, iter([UnavailableError("away"), ValueError("odd")])

    class Ailing:
        async def new(self, *given: Any) -> Any:
            for error in answers:
                raise error
            return await changes.new(*given)

        old = changes.old
        marked = changes.marked

    reconciler = Reconciler(one.store, one.audit, Ailing(), deadline_ms=HOUR_MS)
    change = await left_open(one, 1, applied=True)
    reconciler.start()
    await until(lambda: change.change_id in outcomes(world))
    await reconciler.stop()
    assert "reconciling has to wait: away" in caplog.text
    assert "reconciling failed" in caplog.text


async def test_a_leader_renews_its_term_while_the_database_is_away(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    one = await world.replica()
    sought = []

    async def seek(deadline: float) -> bool:
        sought.append(deadline)
        return True

    async def away(*_: Any) -> Any:
        raise UnavailableError("away")

    known = one.parts.changes
    changes: Any = SimpleNamespace(new=known.new, old=known.old, marked=known.marked)
    reconciler = Reconciler(one.store, one.audit, changes, deadline_ms=HOUR_MS)
    assert await answered(reconciler.round)
    monkeypatch.setattr(one.store.leadership, "seek", seek)
    changes.new = away
    for rounds in (1, 2):
        with pytest.raises(UnavailableError, match="away"):
            await reconciler.round()
        assert len(sought) == rounds
