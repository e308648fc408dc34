"""Change ids by ZooKeeper's clock, and what is said of an own clock that is off."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

import pytest

from confplane.store.session.session_manager import ZooKeeperClock
from tests.support.alerts import PartAlerts
from tests.support.metrics import value_of
from tests.support.stores import ALICE, committed, write

if TYPE_CHECKING:
    from confplane.store import ZooKeeperStore


def milliseconds(clock: ZooKeeperClock) -> int:
    return clock.new_id().int >> 80


def now_ms() -> int:
    return int(time.time() * 1000)


def test_ids_are_of_zookeepers_time_whatever_the_own_clock_says(monkeypatch: pytest.MonkeyPatch) -> None:
    clock = ZooKeeperClock("default")
    assert milliseconds(clock) == pytest.approx(now_ms(), abs=60_000)
    zookeepers = now_ms() + 172_800_000
    clock.record(zookeepers)
    assert milliseconds(clock) == pytest.approx(zookeepers, abs=60_000)
    own = time.time
    monkeypatch.setattr(time, "time", lambda: own() - 1_000_000)
    assert milliseconds(clock) == pytest.approx(zookeepers, abs=60_000)


def test_a_reply_that_came_late_moves_nothing_and_a_clock_that_was_set_back_is_followed() -> None:
    clock = ZooKeeperClock("default")
    clock.record(now_ms())
    clock.record(now_ms() - 30_000)
    alerts = PartAlerts(clock)
    assert alerts.scrape() == set()
    assert clock.skew_s == pytest.approx(0, abs=10)
    for _ in range(16):
        clock.record(now_ms() - 3_600_000)
    assert value_of(clock, "clock_ahead_seconds") == pytest.approx(3_600, abs=10)
    assert alerts.scrape() == {"ClockAhead"}
    clock.begin()
    assert clock.skew_s == 0


def test_ids_rise_within_a_process_also_when_the_clock_falls() -> None:
    clock = ZooKeeperClock("default")
    clock.record(now_ms() + 3_600_000)
    ids = [clock.new_id() for _ in range(5_000)]
    clock.begin()
    clock.record(now_ms())
    ids += [clock.new_id() for _ in range(5_000)]
    assert ids == sorted(set(ids))
    assert {(one.version, one.variant) for one in ids} == {(7, "specified in RFC 4122")}


@pytest.mark.parametrize(("off_s", "side"), [(-172_800, "behind"), (172_800, "ahead of")])
def test_a_clock_that_is_far_off_is_reported_once_in_the_log_and_as_long_as_it_is(
    caplog: pytest.LogCaptureFixture, off_s: int, side: str
) -> None:
    clock = ZooKeeperClock("default")
    clock.record(now_ms())
    assert list(clock.warnings()) == []
    clock.begin()
    for _ in range(3):
        clock.record(now_ms() - off_s * 1000)
    [notice] = clock.warnings()
    assert f"s {side} ZooKeeper's" in notice.public
    assert caplog.text.count(side) == 1
    [sample] = clock.metrics()
    assert sample.value == pytest.approx(off_s, abs=10)
    clock.begin()
    clock.record(now_ms())
    assert list(clock.warnings()) == []


async def test_a_session_knows_zookeepers_clock_from_its_start_and_learns_from_each_write(
    store: ZooKeeperStore,
) -> None:
    clock = store._session_manager.clock
    known = list(clock._ahead)
    assert known
    clock.begin()
    clock.record(0)
    [warning] = store.status().warnings
    assert "ahead of ZooKeeper's" in warning.public
    result = await committed(store, write(ALICE, {}))
    assert store.new_change_id().int >> 80 == pytest.approx(result.time_ms, abs=60_000)
    assert store.status().warnings == ()
