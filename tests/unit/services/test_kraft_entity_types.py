"""The times of looks at topics: as often as a fiftieth of a core allows, and rarely beside the log."""

from __future__ import annotations

import time

import pytest

from confplane.services.kraft.areas import AreaState, Topics
from confplane.services.kraft.looks import Looked
from confplane.services.kraft.report import AreaReport
from confplane.services.ports.kafka import Area, Permission

_NOW = 1_000.0


@pytest.mark.parametrize(
    ("topics", "cost_s", "beside_log", "pause_s"),
    [
        (10, 0.01, False, 2.0),
        (10, 0.2, False, 10.0),
        (1_000, 0.001, False, 0.2),
        (1_000, 0.05, False, 2.5),
        (10, 0.01, True, 60.0),
        (1_000, 0.01, True, 6.0),
        (1_000, 0.2, True, 10.0),
    ],
)
def test_the_next_piece_waits_for_its_share(
    monkeypatch: pytest.MonkeyPatch, *, topics: int, cost_s: float, beside_log: bool, pause_s: float
) -> None:
    monkeypatch.setattr(time, "monotonic", lambda: _NOW)
    state = AreaState(Area.TOPICS, AreaReport(Permission.READ_ONLY))
    state.topics = Topics([f"t{at}" for at in range(topics)])
    state.count(Looked(1, 1, 1), {}, cost_s, beside_log=beside_log, left=False)
    assert state.due - _NOW == pytest.approx(pause_s)
    assert state.topics.at == (100 if topics > 100 else 0)


@pytest.mark.parametrize(("beside_log", "pause_s"), [(False, 2.0), (True, 60.0)])
def test_a_cluster_without_topics_is_asked_as_often(
    monkeypatch: pytest.MonkeyPatch, *, beside_log: bool, pause_s: float
) -> None:
    monkeypatch.setattr(time, "monotonic", lambda: _NOW)
    state = AreaState(Area.TOPICS, AreaReport(Permission.READ_ONLY))
    state.nothing_there(beside_log=beside_log)
    assert state.due - _NOW == pause_s
