"""The times of polls of topics: as often as a fiftieth of a core allows, and rarely if the log is followed."""

from __future__ import annotations

import time

import pytest

from confplane.services.kraft.observe.entity_types import EntityTypeState, TopicPollRound
from confplane.services.kraft.observe.poller import PollResult
from confplane.services.kraft.report import EntityTypeReport
from confplane.services.ports.kafka import EntityTypePermission, KraftEntityType

_NOW = 1_000.0


@pytest.mark.parametrize(
    ("topics", "cost_s", "with_log", "pause_s"),
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
    monkeypatch: pytest.MonkeyPatch, *, topics: int, cost_s: float, with_log: bool, pause_s: float
) -> None:
    monkeypatch.setattr(time, "monotonic", lambda: _NOW)
    state = EntityTypeState(KraftEntityType.TOPICS, EntityTypeReport(EntityTypePermission.READ_ONLY))
    state.topics = TopicPollRound([f"t{at}" for at in range(topics)])
    state.record_poll(PollResult(1, 1, 1), {}, cost_s, with_log=with_log, left=False)
    assert state.due - _NOW == pytest.approx(pause_s)
    assert state.topics.at == (100 if topics > 100 else 0)


@pytest.mark.parametrize(("with_log", "pause_s"), [(False, 2.0), (True, 60.0)])
def test_a_cluster_without_topics_is_asked_as_often(
    monkeypatch: pytest.MonkeyPatch, *, with_log: bool, pause_s: float
) -> None:
    monkeypatch.setattr(time, "monotonic", lambda: _NOW)
    state = EntityTypeState(KraftEntityType.TOPICS, EntityTypeReport(EntityTypePermission.READ_ONLY))
    state.record_no_topics(with_log=with_log)
    assert state.due - _NOW == pause_s
