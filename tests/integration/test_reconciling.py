"""The reconciler on real ZooKeeper and Postgres: what it settles and what it leaves, what it sweeps and what it keeps."""

from __future__ import annotations

import asyncio
import time
from typing import TYPE_CHECKING, Any, cast

import pytest_asyncio
from uuid_utils.compat import uuid7

from app import wiring
from app.audit import Database, PostgresAuditLog, PostgresOpenChanges
from app.domain.entities import Entity
from app.domain.errors import UnavailableError
from app.domain.facets import FacetName
from app.domain.ops import Op, OpType
from app.services.changes.callers import Caller
from app.services.changes.edits import Edit
from app.services.ports.cluster_states import Freeze
from app.services.ports.trail import Outcome
from app.services.ports.transactions import Committed, Conflict, StateWrite
from app.services.upkeep import reconcile
from app.services.upkeep.reconcile import Reconciler
from app.settings import Settings
from tests.audit.rows import entity, fetch, intent, run
from tests.support import servers
from tests.support.stores import commit, committed, opened, soon, until, write

if TYPE_CHECKING:
    from collections.abc import AsyncIterator
    from pathlib import Path
    from uuid import UUID

    import pytest
    from kazoo.client import KazooClient

    from app.devstack.postgres import Postgres
    from app.services.ports.trail import Intent
    from app.services.ports.transactions import Transaction
    from app.services.upkeep.reconcile import ReconciledStore
    from app.store import ZooKeeperStore

COMMITS = "/confplane/commits"
DEAD = "f" * 32
"""A writer node that is not there."""
HOUR_MS = 3_600_000


class Leads:
    """A process that believes that it leads, whatever others believe."""

    held = True

    async def seek(self, _deadline: float) -> bool:
        return True


class Process:
    """What one process has: a store, a trail, a reconciler."""

    def __init__(self, store: ZooKeeperStore, dsn: str) -> None:
        self.store = store
        self.database = Database(dsn, 4)
        self.log = PostgresAuditLog(self.database)
        self.reconciler = Reconciler(
            cast("ReconciledStore", store), self.log, PostgresOpenChanges(self.database), deadline_ms=HOUR_MS
        )

    def in_charge(self) -> Process:
        cast("Any", self.store).leadership = Leads()
        return self

    async def round(self) -> bool:
        """A round, as soon as the stores answer."""
        deadline = soon(60)
        while True:
            try:
                return await self.reconciler.round()
            except UnavailableError:
                assert time.monotonic() < deadline
                await asyncio.sleep(0.05)

    async def close(self) -> None:
        await self.reconciler.stop()
        await self.store.stop()
        await self.log.close()
        await self.database.close()


class Stage:
    """Processes on one chroot and one database, and the marks that a dead process would have left."""

    def __init__(self, chroot: str, database: servers.Database, zk: KazooClient) -> None:
        self.chroot = chroot
        self.database = database
        self.zk = zk
        self.processes: list[Process] = []

    async def process(self) -> Process:
        self.processes.append(Process(await opened(self.chroot, session_timeout_ms=20_000), self.database.service_dsn))
        return self.processes[-1]

    async def left_open(self, by: Process, number: int, *, applied: bool, writer: str = DEAD) -> Intent:
        """An intent without outcome, its transaction applied or never sent."""
        target = Entity.of(user=f"u{number}")
        made = intent(
            uuid7(), entity(target.id, path=f"/config/{target.path}"), cluster="default", writer=writer, attempt=1
        )
        await by.log.intend([made])
        if applied:
            await committed(by.store, write(target, {"acks": "1"}), change_id=made.change_id)
        return made

    def outcomes(self) -> dict[UUID, tuple[bool, int | None, dict[str, int]]]:
        rows = fetch(self.database.owner_dsn, "SELECT change_id, committed, revision, versions FROM outcomes")
        return {row[0]: (row[1], row[2], row[3]) for row in rows}

    def markers(self) -> set[str]:
        return set(self.zk.get_children(COMMITS))

    def age(self, table: str, seconds: int) -> None:
        """Make what was recorded look older, past the trigger that forbids it."""
        run(
            self.database.owner_dsn,
            f"ALTER TABLE {table} DISABLE TRIGGER append_only;"  # noqa: S608 - literals at every call
            f"UPDATE {table} SET recorded_at = recorded_at - interval '{seconds} s';"
            f"ALTER TABLE {table} ENABLE ALWAYS TRIGGER append_only",
        )


@pytest_asyncio.fixture
async def stage(chroot: str, postgres: Postgres, raw_zk: KazooClient) -> AsyncIterator[Stage]:
    database = servers.make_migrated(postgres)
    stage = Stage(chroot, database, raw_zk)
    yield stage
    for process in stage.processes:
        await process.close()


async def test_what_a_dead_process_left_is_settled_in_the_first_round(stage: Stage) -> None:
    one = await stage.process()
    applied = await stage.left_open(one, 1, applied=True)
    never = await stage.left_open(one, 2, applied=False)
    assert await one.round()
    stat = stage.zk.exists("/config/users/u1")
    assert stage.outcomes() == {
        applied.change_id: (True, stat.mzxid, {"/config/users/u1": 0}),
        never.change_id: (False, None, {}),
    }
    record = await one.log.get("default", applied.change_id)
    assert record is not None
    assert record.outcome is not None
    assert (record.outcome.attempt, record.outcome.time_ms) == (1, stat.mtime)
    # The next round finds nothing to do.
    await one.round()
    assert one.reconciler._open == {}
    assert one.reconciler.warnings() == []


async def test_only_the_leader_settles(stage: Stage) -> None:
    leader, other = await stage.process(), await stage.process()
    assert await leader.round()
    await stage.left_open(leader, 1, applied=True)
    assert not await other.round()
    assert stage.outcomes() == {}
    await leader.close()
    stage.processes.remove(leader)
    await until(other.round)
    assert len(stage.outcomes()) == 1


async def test_two_leaders_at_once_make_one_outcome_of_each_change(stage: Stage) -> None:
    pair = [(await stage.process()).in_charge() for _ in range(2)]
    made = [await stage.left_open(pair[number % 2], number, applied=number % 3 > 0) for number in range(90)]
    await asyncio.gather(*(process.round() for process in (*pair, *pair)))
    outcomes = stage.outcomes()
    assert len(outcomes) == len(made)
    for number, change in enumerate(made):
        was_committed, revision, _ = outcomes[change.change_id]
        stat = stage.zk.exists(f"/config/users/u{number}")
        assert was_committed is (stat is not None)
        assert revision == (stat.mzxid if stat else None)
    for process in pair:
        await process.log.close()
        assert process.log.differing == 0


async def test_a_change_of_a_living_writer_is_left_to_it(stage: Stage, monkeypatch: pytest.MonkeyPatch) -> None:
    one, two = await stage.process(), await stage.process()
    change = await stage.left_open(two, 1, applied=False, writer=two.store.writer())
    await one.round()
    assert stage.outcomes() == {}
    assert stage.markers() == set()
    # Until it is older than any request can be.
    monkeypatch.setattr(one.reconciler, "_old_s", 0)
    await one.round()
    assert stage.outcomes() == {change.change_id: (False, None, {})}


async def test_an_old_change_is_found_by_the_walk_back(stage: Stage) -> None:
    one = await stage.process()
    change = await stage.left_open(one, 1, applied=True)
    stage.age("intents", 86_400)
    found, _ = await PostgresOpenChanges(one.database).new("default", None, ())
    assert found == []
    await one.round()
    assert set(stage.outcomes()) == {change.change_id}


async def test_an_outcome_kept_in_memory_and_the_settled_one_are_the_same(stage: Stage) -> None:
    one, two = await stage.process(), await stage.process()
    change = await stage.left_open(one, 1, applied=True)
    stat = stage.zk.exists("/config/users/u1")
    kept = Outcome(
        change.change_id,
        1,
        "default",
        committed=True,
        revision=stat.mzxid,
        time_ms=stat.mtime,
        versions={"/config/users/u1": 0},
    )
    await two.round()
    await one.log.conclude([kept])
    await one.log.close()
    assert one.log.differing == 0
    record = await two.log.get("default", change.change_id)
    assert record is not None
    assert record.outcome == kept


async def test_a_frozen_cluster_is_settled(stage: Stage) -> None:
    one = await stage.process()
    applied = await stage.left_open(one, 1, applied=True)
    never = await stage.left_open(one, 2, applied=False)
    version = (await one.store.read_freeze(soon())).version
    freeze = StateWrite("/confplane/freeze", version, Freeze("upgrade", "User:olga", 1))
    assert isinstance(await commit(one.store, freeze, guarded=False), Committed)
    await one.round()
    assert {key: value[0] for key, value in stage.outcomes().items()} == {
        applied.change_id: True,
        never.change_id: False,
    }


async def test_a_marker_that_can_not_be_read_is_told_and_holds_up_nothing_else(stage: Stage) -> None:
    one = await stage.process()
    odd = await stage.left_open(one, 1, applied=False)
    sound = await stage.left_open(one, 2, applied=True)
    stage.zk.create(f"{COMMITS}/{odd.change_id}", b"?")
    one.reconciler._old_s = -reconcile._CALL_S
    await one.round()
    await one.round()
    assert set(stage.outcomes()) == {sound.change_id}
    [warning] = one.reconciler.warnings()
    assert str(odd.change_id) in str(warning)


async def test_markers_are_swept_once_their_outcome_is_a_minute_old(stage: Stage) -> None:
    one = await stage.process()
    applied = await stage.left_open(one, 1, applied=True)
    never = await stage.left_open(one, 2, applied=False)
    await one.round()
    assert stage.markers() == {str(applied.change_id), str(never.change_id)}
    assert reconcile.SWEEP_AGE_S == 60
    stage.age("outcomes", 45)
    one.reconciler._sweep_at = 0
    await one.round()
    assert stage.markers() == {str(applied.change_id), str(never.change_id)}
    # It comes back to them by itself.
    assert one.reconciler._sweep_at < time.monotonic() + 61
    stage.age("outcomes", 30)
    one.reconciler._sweep_at = 0
    await one.round()
    assert stage.markers() == set()


async def test_an_abort_marker_stays_while_its_writer_is_there(stage: Stage) -> None:
    one, two = await stage.process(), await stage.process()
    aborted = await stage.left_open(two, 1, applied=False, writer=two.store.writer())
    applied = await stage.left_open(two, 2, applied=True, writer=two.store.writer())
    one.reconciler._old_s = 0
    await one.round()
    stage.age("outcomes", 100)
    one.reconciler._sweep_at = 0
    await one.round()
    # That of a commit has done its work, whoever made it.
    assert stage.markers() == {str(aborted.change_id)}
    assert applied.change_id in stage.outcomes()
    writer = two.store.writer()
    await two.close()
    stage.processes.remove(two)
    await until(lambda: stage.zk.exists(f"/confplane/writers/{writer}") is None)
    await one.round()
    # A writer that has gone calls for a sweep, in a while.
    assert time.monotonic() + 30 < one.reconciler._sweep_at < time.monotonic() + 90
    one.reconciler._sweep_at = 0
    await one.round()
    assert stage.markers() == set()


async def test_markers_of_changes_that_the_trail_does_not_know_are_left_and_told(stage: Stage) -> None:
    one = await stage.process()
    lost = uuid7()
    await committed(one.store, write(Entity.of(user="lost"), {"acks": "1"}), change_id=lost)
    stage.zk.create(f"{COMMITS}/by-hand")
    await one.round()
    assert stage.markers() == {str(lost), "by-hand"}
    [warning] = one.reconciler.warnings()
    assert str(lost) in str(warning)
    assert "by-hand" in str(warning)


async def test_many_markers_are_swept_in_pieces(stage: Stage, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(reconcile, "_PIECE", 20)
    one = await stage.process()
    made = [await stage.left_open(one, number, applied=number % 2 > 0) for number in range(70)]
    await one.round()
    assert len(stage.outcomes()) == len(made)
    stage.age("outcomes", 100)
    one.reconciler._sweep_at = 0
    await one.round()
    assert stage.markers() == set()
    assert one.reconciler._sweep_at > time.monotonic() + 500


async def test_who_stops_leading_amid_the_work_stops_working(stage: Stage) -> None:
    one = (await stage.process()).in_charge()
    await stage.left_open(one, 1, applied=True)
    cast("Any", one.store).leadership.held = False
    await one.round()
    assert stage.outcomes() == {}


async def test_it_runs_by_itself_and_gets_over_a_database_that_is_away(
    stage: Stage, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(reconcile, "INTERVAL_S", 0.05)
    one = await stage.process()
    changes, answers = one.reconciler._changes, iter([UnavailableError("away"), ValueError("odd")])

    class Ailing:
        async def new(self, *given: Any) -> Any:
            for error in answers:
                raise error
            return await changes.new(*given)

        old = changes.old
        marked = changes.marked

    cast("Any", one.reconciler)._changes = Ailing()
    change = await stage.left_open(one, 1, applied=True)
    one.reconciler.start()
    await until(lambda: change.change_id in stage.outcomes())
    assert "reconciling has to wait: away" in caplog.text
    assert "reconciling failed" in caplog.text


async def test_all_attempts_of_a_write_are_made_under_one_session(
    stage: Stage, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    settings = Settings.model_validate(
        {
            "clusters": {"default": {"zookeeper": stage.chroot, "session_timeout_ms": 4_000}},
            "postgres": {"dsn": stage.database.service_dsn},
            "admin_token_file": tmp_path / "token",
        }
    )
    parts = wiring.build(settings)
    async with parts.running():
        store = parts.stores["default"]
        await store.wait_for(0, soon(60))
        await until(lambda: store._guard.known)

        async def conflict(transaction: Transaction, _deadline: float) -> Conflict:
            """Refused, and before another attempt is made the session is replaced."""
            store._keeper.replace(store._keeper.current)
            await until(lambda: store.status().connected and store.writer() != transaction.writer)
            return Conflict()

        monkeypatch.setattr(store, "commit", conflict)
        collection = parts.clusters.get("default").collections[FacetName.CLIENT_QUOTAS]
        caller = Caller("User:olga", "here", "r", soon(120))
        edit = Edit(Entity.of(user="alice"), (Op("producer_byte_rate", OpType.SET, 1),))
        [result] = await parts.alter.alter(collection, [edit], caller)
    assert isinstance(result.error, UnavailableError)
    assert result.error.outcome == "not_applied"
    assert "session was replaced" in result.error.detail
    assert [outcome[0] for outcome in stage.outcomes().values()] == [False]
    assert stage.zk.exists("/config/users/alice") is None
