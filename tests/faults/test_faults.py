"""A short run of the fault suite, its schedule and reports, the reading of ZooKeeper's logs, and a session's password."""

from __future__ import annotations

import contextlib
import random
import re
from collections import Counter
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import pytest
from kazoo.client import KazooClient
from kazoo.exceptions import BadVersionError

from tests.faults import kinds, schedule
from tests.faults.checker import check
from tests.faults.collect import walk
from tests.faults.corrupted import CORRUPTED, staleness_is_not_reported
from tests.faults.ensemble import Ensemble
from tests.faults.faults import session_password
from tests.faults.history import load_run
from tests.faults.report import Report, load_report, merged
from tests.faults.suite import Plan, run
from tests.faults.txnlog import read_events
from tests.faults.world import World, rules

if TYPE_CHECKING:
    from pathlib import Path

    from tests.faults.faults import Fault
    from tests.faults.history import NodeEvent

pytestmark = pytest.mark.proof
SEED = 20
ROUNDS = 20
CLIENTS = 16
"""Fewer than in a long run, so that the rounds are what takes the time."""


@pytest.mark.timeout(1_500)
async def test_twenty_rounds(tmp_path: Path) -> None:
    plan = Plan(SEED, ROUNDS, tmp_path / "run", clients=CLIENTS, pause_s=0.8, gap_s=0.8, longest_s=7.5)
    report = await run(plan, check)
    assert not report.violations, f"{report}\nkept in {plan.directory}"
    assert report.rounds == sum(report.faults.values()) == ROUNDS
    assert report.acknowledged > 0
    assert report.changes > 0
    assert report.external > 0
    assert report.faults[kinds.POSTGRES_KILLED] > 0
    assert load_report(plan.directory / "report.json") == report
    # What a checker must see in any history. Of staleness a run this short may have too little.
    kept = load_run(plan.directory / "run.json")
    for corrupt, rule in CORRUPTED:
        if corrupt is not staleness_is_not_reported:
            assert rule in rules(check(corrupt(kept))), corrupt.__name__


def made_up_topology(*, replicas: int = 3, disk_full: bool = False, server: int = 1) -> Any:
    """Return a topology without processes; replica 1 leads, and replicas are connected to one ZooKeeper server."""

    async def leader() -> int:
        return min(1, replicas - 1)

    return SimpleNamespace(
        ensemble=SimpleNamespace(leader=lambda: 0, members=[None] * 3),
        replicas=[SimpleNamespace(number=number, zookeeper=[], postgres=None, http=None) for number in range(replicas)],
        connected=lambda index: index == server,
        postgres=None,
        zk=None,
        disk_full=disk_full,
        leader=leader,
    )


def seeded(seed: int) -> random.Random:
    return random.Random(seed)  # noqa: S311 - no secret


async def test_every_long_run_has_the_required_faults_whatever_its_seed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(kinds, "SWEPT_S", 0.0)
    required = (kinds.POSTGRES_KILLED, "take-over", "next killed at step sweep", kinds.connection_cut("ZooKeeper"))
    long = kinds.connection_cut("ZooKeeper"), schedule._NOTICED_S
    for seed in range(20):
        chosen = schedule.Schedule(made_up_topology(), seeded(seed), rounds=schedule.LONG_ROUNDS)
        injected: list[Fault] = []
        missed: Counter[str] = Counter()
        while len(injected) < schedule.LONG_ROUNDS:
            fault = await chosen.choose(frozenset(), schedule.LONG_ROUNDS - len(injected))
            assert fault is not None
            # A chain misses twice.
            hit = "then" not in fault.kind or missed[fault.kind] == 2
            missed[fault.kind] += not hit
            chosen.record(fault, injected=hit)
            injected += [fault] * hit
        found = {fault.kind.replace("paused at step sweep", "killed at step sweep") for fault in injected}
        assert all(any(what in kind for kind in found) for what in required), (seed, found)
        assert any(fault.kind == long[0] and fault.seconds >= long[1] for fault in injected)
        assert chosen.unmet == []
        assert {fault.kind for fault in injected} <= set(chosen.possible())


async def test_required_faults_that_could_not_be_injected_are_reported() -> None:
    chosen = schedule.Schedule(made_up_topology(), seeded(1), rounds=10)
    tries = 0
    while chosen._required:
        fault = await chosen.choose(frozenset(), 1)
        assert fault is not None
        chosen.record(fault, injected=False)
        tries += 1
    assert tries == 2 * schedule._TRIES
    assert sorted(chosen.unmet) == ["Postgres killed", "a connection cut"]


async def test_kinds_that_find_nothing_are_given_up_and_end_the_run() -> None:
    chosen = schedule.Schedule(made_up_topology(), seeded(1), rounds=1, only=("disconnected", "step take-over"))
    for _ in range(4 * schedule._TRIES):
        if not chosen.exhausted:
            fault = await chosen.choose(frozenset(), 1)
            assert fault is not None
            chosen.record(fault, injected=False)
    assert chosen.exhausted
    assert set(chosen.missed.values()) == {schedule._TRIES}


def reachable(seconds: float = 10.0, **given: Any) -> Report:
    """Return the report of a run in which nothing happened."""
    only = given.pop("only", ())
    chosen = schedule.Schedule(made_up_topology(**given), seeded(1), rounds=1, only=only)
    chosen._began -= seconds
    report = Report([1], seconds=seconds)
    report.count_faults(chosen.possible(), {}, {}, {})
    return report


def test_a_run_reports_only_what_it_can_reach() -> None:
    whole = reachable()
    assert kinds.DISK_FULL not in whole.not_tried
    assert not [name for name in (*whole.never, *whole.not_tried) if re.search("sweep|swept|sending", name)]
    assert any("then its successor killed" in kind for kind in whole.not_tried)
    assert not [kind for kind in reachable(replicas=1).not_tried if "then" in kind]
    assert kinds.DISK_FULL in reachable(disk_full=True).not_tried
    assert reachable(only=("session expired",)).not_tried == [kinds.SESSION_EXPIRED]
    assert {"the step sweep", "the step swept"} <= set(reachable(kinds.SWEPT_S).never)
    assert kinds.at_step("sweep", pause=False) in reachable(kinds.SWEPT_S).not_tried


def test_a_run_lists_what_it_could_reach_and_did_not() -> None:
    report = Report([1])
    report.count_faults(["a", "b", "c"], {"a": 2}, {"b": 3, "a": 1}, {"begin": 3})
    assert (report.rounds, report.not_tried) == (2, ["c"])
    assert "b" in report.never
    assert "a" not in report.never
    assert {"the step intent", "the step lead"} <= set(report.never)
    assert "the step begin" not in report.never


@pytest.mark.parametrize(("kind", "stale"), [(kinds.CONFPLANE_PAUSED, True), (kinds.POSTGRES_KILLED, False)])
def test_stale_reads_are_missed_only_where_a_fault_can_cause_them(kind: str, *, stale: bool) -> None:
    report = Report([1], faults={kind: 1})
    report.count_run(World().run())
    assert ("reads reported as stale" in report.never) == stale


@pytest.mark.long
def test_the_logs_match_what_is_stored(tmp_path: Path) -> None:
    """Through a killed leader, a refused transaction, and a session that ends."""
    with Ensemble(tmp_path) as ensemble:
        zk = KazooClient(ensemble.hosts, timeout=10)
        zk.start(timeout=60)
        try:
            zk.ensure_path("/config/changes")
            zk.create("/config/users", "é".encode())
            zk.create("/confplane")
            zk.create("/confplane/mine", ephemeral=True)
            refused = zk.transaction()
            refused.set_data("/config/users", b"never")
            refused.check("/config/users", 7)
            refused.create("/config/changes/config_change_", b"", sequence=True)
            assert all(isinstance(result, Exception) for result in refused.commit())
            leader = ensemble.leader()
            assert leader is not None
            ensemble.members[leader].kill()
            with contextlib.suppress(BadVersionError):  # what a first try did whose reply was lost
                zk.retry(zk.set, "/config/users", b"later", version=0)
            ensemble.start()
            applied = zk.transaction()
            applied.set_data("/config/users", b"last", 1)
            applied.create("/config/changes/config_change_", b"n", sequence=True)
            [stat, name] = applied.commit()
            session = zk.client_id[0]
        finally:
            zk.stop()
            zk.close()
        other = KazooClient(ensemble.hosts, timeout=10)
        other.start(timeout=60)
        try:
            znodes = walk(other)
        finally:
            other.stop()
            other.close()
        events = read_events(ensemble.log_dirs)
    written = [(event.path, event.version, event.data) for event in events if event.path.startswith("/config/users")]
    assert written == [("/config/users", 0, "é"), ("/config/users", 1, "later"), ("/config/users", 2, "last")]
    together = [event for event in events if event.zxid == stat.mzxid]
    assert [(event.path, event.version) for event in together] == [("/config/users", 2), (name, 0)]
    mine = [(event.version, event.session) for event in events if event.path == "/confplane/mine"]
    assert mine == [(0, session), (None, 0)]
    assert {path: (node.mzxid, node.data) for path, node in znodes.items()} == _folded(events)


def _folded(events: list[NodeEvent]) -> dict[str, tuple[int, str]]:
    found: dict[str, tuple[int, str]] = {}
    for event in events:
        if event.data is None:
            del found[event.path]
        else:
            found[event.path] = (event.zxid, event.data)
    return found


def test_a_sessions_password_is_known(raw_zk: KazooClient) -> None:
    session, password = raw_zk.client_id
    assert session_password(session) == password


def test_reports_of_consecutive_seeds_are_one() -> None:
    one = Report(
        [1], rounds=2, missed={"c": 1}, faults={"a": 1, "b": 1, "c": 0}, writes=10, quiet_s=[1.5], steps={"s": 0}
    )
    two = Report([2], rounds=1, faults={"a": 1, "b": 0}, writes=5, quiet_s=[2.5], violations=["x"], steps={"s": 2})
    assert one.never == ["c", "the step s"]
    whole = merged([one, two])
    assert whole == Report(
        [1, 2],
        rounds=3,
        missed={"c": 1},
        faults={"a": 2, "b": 1, "c": 0},
        steps={"s": 2},
        writes=15,
        quiet_s=[1.5, 2.5],
        violations=["x"],
    )
    assert whole.never == ["c"]
    assert "never reached: c\n" in str(whole)
    with pytest.raises(ValueError, match="seed 1 is in two reports"):
        merged([whole, one])
