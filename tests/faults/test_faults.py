"""A short run of the fault suite, and what it rests on: the reading of ZooKeeper's logs, and a session's password."""

from __future__ import annotations

import contextlib
import random
from collections import Counter
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any, cast

import pytest
from kazoo.client import KazooClient
from kazoo.exceptions import BadVersionError

from tests.faults import faults, kinds
from tests.faults.checker import check
from tests.faults.collect import walk
from tests.faults.ensemble import Ensemble
from tests.faults.faults import session_password
from tests.faults.history import load_run
from tests.faults.report import Report, load_report, merged
from tests.faults.spoiled import SPOILED, staleness_is_not_reported
from tests.faults.suite import Plan, run
from tests.faults.txnlog import read_events
from tests.faults.world import rules

if TYPE_CHECKING:
    from pathlib import Path

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
    for spoil, rule in SPOILED:
        if spoil is not staleness_is_not_reported:
            assert rule in rules(check(spoil(kept))), spoil.__name__


async def test_every_long_run_has_what_it_must_have_whatever_its_seed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(faults, "_SWEPT_S", 0.0)

    async def leader() -> int:
        return 1

    topology: Any = SimpleNamespace(
        ensemble=SimpleNamespace(leader=lambda: 0, members=[None] * 3),
        replicas=[SimpleNamespace(number=number, zookeeper=[], postgres=None) for number in range(3)],
        postgres=None,
        disk_full=False,
        leader=leader,
    )
    demanded = (kinds.POSTGRES_KILLED, "take-over", "sweep", kinds.line_cut("ZooKeeper"))
    for seed in range(20):
        chooser = faults.Chooser(topology, random.Random(seed), rounds=faults.LONG_ROUNDS)  # noqa: S311 - no secret
        struck: list[str] = []
        missed: Counter[str] = Counter()
        while len(struck) < faults.LONG_ROUNDS:
            fault = await chooser.choose(frozenset(), faults.LONG_ROUNDS - len(struck))
            assert fault is not None
            # What needs two to be met misses twice.
            hit = "then" not in fault.kind or missed[fault.kind] == 2
            missed[fault.kind] += not hit
            chooser.struck(fault, hit=hit)
            struck += [fault.kind] * hit
        assert all(any(what in kind for kind in struck) for what in demanded), (seed, struck)
        assert chooser.unmet == []
        assert set(struck) <= set(kinds.ALL)


async def test_required_conditions_that_a_run_never_met_are_reported() -> None:
    chooser = faults.Chooser(cast("Any", None), random.Random(1), rounds=10)  # noqa: S311 - no secret
    tries = 0
    while owed := chooser._owed:
        fault: Any = object()
        chooser._tried[id(fault)] = owed.pop()
        chooser.struck(fault, hit=False)
        tries += 1
    assert tries == 2 * faults._TRIES
    assert chooser.unmet == ["a line cut", "Postgres killed"]


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
        events = read_events([member.log_dir for member in ensemble.members])
    told = [(event.path, event.version, event.data) for event in events if event.path.startswith("/config/users")]
    assert told == [("/config/users", 0, "é"), ("/config/users", 1, "later"), ("/config/users", 2, "last")]
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
    one = Report([1], rounds=2, missed=1, faults={"a": 1, "b": 1, "c": 0}, writes=10, quiet_s=[1.5], steps={"s": 0})
    two = Report([2], rounds=1, faults={"a": 1, "b": 0}, writes=5, quiet_s=[2.5], violations=["x"], steps={"s": 2})
    assert one.never == ["c", "the step s"]
    whole = merged([one, two])
    assert whole == Report(
        [1, 2],
        rounds=3,
        missed=1,
        faults={"a": 2, "b": 1, "c": 0},
        steps={"s": 2},
        writes=15,
        quiet_s=[1.5, 2.5],
        violations=["x"],
    )
    assert whole.never == ["c"]
    assert "never met: c\n" in str(whole)
    with pytest.raises(ValueError, match="seed 1 is in two reports"):
        merged([whole, one])
