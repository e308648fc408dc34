"""A short run of the fault suite, and what it rests on: the reading of ZooKeeper's logs, and a session's password."""

from __future__ import annotations

import contextlib
from typing import TYPE_CHECKING

import pytest
from kazoo.client import KazooClient
from kazoo.exceptions import BadVersionError

from tests.faults.checker import check
from tests.faults.collect import walk
from tests.faults.ensemble import Ensemble
from tests.faults.faults import session_password
from tests.faults.report import Report, load_report, merged
from tests.faults.suite import Plan, run
from tests.faults.txnlog import read_events

if TYPE_CHECKING:
    from pathlib import Path

    from tests.faults.history import NodeEvent

SEED = 20
ROUNDS = 20


@pytest.mark.timeout(1_500)
async def test_twenty_rounds(tmp_path: Path) -> None:
    plan = Plan(SEED, ROUNDS, tmp_path / "run", pause_s=0.8, gap_s=0.8, longest_s=7.5)
    report = await run(plan, check)
    assert not report.violations, f"{report}\nkept in {plan.directory}"
    assert report.rounds == sum(report.faults.values()) == ROUNDS
    assert report.acknowledged > 0
    assert report.changes > 0
    assert report.external > 0
    assert load_report(plan.directory / "report.json") == report


def test_what_the_logs_tell_is_what_is_stored(tmp_path: Path) -> None:
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
    one = Report([1], rounds=2, missed=1, faults={"a": 1, "b": 1}, writes=10, quiet_s=[1.5])
    two = Report([2], rounds=1, faults={"a": 1}, writes=5, quiet_s=[2.5], violations=["x"])
    whole = merged([one, two])
    assert whole == Report(
        [1, 2], rounds=3, missed=1, faults={"a": 2, "b": 1}, writes=15, quiet_s=[1.5, 2.5], violations=["x"]
    )
    with pytest.raises(ValueError, match="seed 1 is in two reports"):
        merged([whole, one])
