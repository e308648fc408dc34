"""The times of polls: as often as a fiftieth of a core allows, rarely if the log is followed, and never too late."""

from __future__ import annotations

import time

import pytest

from confplane.services.kraft.observe.entity_types import EntityTypeState
from confplane.services.kraft.observe.poller import PollResult, PollRound, TopicList
from confplane.services.ports.kafka import EntityTypePermission, KraftEntityType
from confplane.services.ports.observation_report import EntityTypeReport

_NOW = 1_000.0


def _state(entity_type: KraftEntityType, max_age_s: float, topics: int = 0) -> EntityTypeState:
    state = EntityTypeState(entity_type, EntityTypeReport(EntityTypePermission.READ_ONLY), max_age_s)
    if entity_type is KraftEntityType.TOPICS:
        state.polls = PollRound(entity_type, TopicList({}, [f"t{at}" for at in range(topics)], 1, 1))
    return state


@pytest.mark.parametrize(
    ("topics", "cpu_s", "with_log", "pause_s"),
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
    monkeypatch: pytest.MonkeyPatch, *, topics: int, cpu_s: float, with_log: bool, pause_s: float
) -> None:
    monkeypatch.setattr(time, "monotonic", lambda: _NOW)
    state = _state(KraftEntityType.TOPICS, 1_800, topics)
    state.record_poll(PollResult(1, 1, 1, wall_s=cpu_s, cpu_s=cpu_s), {}, with_log=with_log, left=False)
    assert state.due - _NOW == pytest.approx(pause_s)
    assert state.polls.at == (100 if topics > 100 else 0)


@pytest.mark.parametrize(
    ("entity_type", "max_age_s", "wall_s", "cpu_s", "with_log", "pause_s"),
    [
        # A slow response of a broker costs this process nothing.
        (KraftEntityType.QUOTAS, 30, 0.1, 0.001, False, 2.0),
        (KraftEntityType.QUOTAS, 30, 1.0, 0.001, False, 9.0),
        (KraftEntityType.QUOTAS, 30, 3.0, 0.05, False, 17.0),
        (KraftEntityType.QUOTAS, 30, 25.0, 25.0, False, 2.0),
        (KraftEntityType.QUOTAS, 60, 3.0, 0.05, False, 27.0),
        # CPU time has its share below the greatest age.
        (KraftEntityType.QUOTAS, 30, 0.2, 0.2, False, 10.0),
        (KraftEntityType.QUOTAS, 30, 0.2, 4.0, False, 10.0),
        (KraftEntityType.QUOTAS, 30, 1.0, 1.0, False, 19.0),
        (KraftEntityType.QUOTAS, 30, 0.0, 0.0, True, 20.0),
        (KraftEntityType.BROKERS, 150, 0.0, 0.0, False, 10.0),
        (KraftEntityType.BROKERS, 12, 1.0, 0.0, False, 7.0),
        (KraftEntityType.GROUPS, 450, 5.0, 1.0, False, 50.0),
        (KraftEntityType.CLIENT_METRICS, 60, 0.0, 0.0, True, 40.0),
    ],
)
def test_no_cost_delays_a_poll_beyond_the_greatest_age(
    monkeypatch: pytest.MonkeyPatch,
    *,
    entity_type: KraftEntityType,
    max_age_s: float,
    wall_s: float,
    cpu_s: float,
    with_log: bool,
    pause_s: float,
) -> None:
    monkeypatch.setattr(time, "monotonic", lambda: _NOW)
    state = _state(entity_type, max_age_s)
    state.record_poll(PollResult(1, 1, 1, wall_s=wall_s, cpu_s=cpu_s), {}, with_log=with_log, left=False)
    assert state.due - _NOW == pytest.approx(pause_s)


def test_a_round_over_many_topics_ends_within_the_greatest_age(monkeypatch: pytest.MonkeyPatch) -> None:
    now = [_NOW]
    monkeypatch.setattr(time, "monotonic", lambda: now[0])
    state = _state(KraftEntityType.TOPICS, 900, 100_000)
    for _ in range(1_000):
        now[0] += 0.2
        state.record_poll(PollResult(1, 1, 1, wall_s=0.2, cpu_s=0.2), {}, with_log=False, left=False)
        now[0] = state.due
    assert state.polls.total is None
    assert state.report.observed_at == 1
    assert now[0] - _NOW == pytest.approx(600)


def test_polls_without_an_answer_are_repeated_ever_later_within_the_greatest_age(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(time, "monotonic", lambda: _NOW)
    state = _state(KraftEntityType.QUOTAS, 30)
    pauses = []
    for _ in range(7):
        state.record_failed("no answer")
        pauses.append(state.due - _NOW)
    assert pauses == [1, 2, 4, 8, 16, 20, 20]
    assert state.report.problem == "no answer"
    state.record_poll(PollResult(1, 1, 1), {}, with_log=False, left=False)
    state.record_failed("no answer")
    assert state.due - _NOW == 1


@pytest.mark.parametrize(("with_log", "pause_s"), [(False, 2.0), (True, 60.0)])
def test_a_cluster_without_topics_is_asked_as_often(
    monkeypatch: pytest.MonkeyPatch, *, with_log: bool, pause_s: float
) -> None:
    monkeypatch.setattr(time, "monotonic", lambda: _NOW)
    state = _state(KraftEntityType.TOPICS, 1_800)
    state.record_poll(PollResult(1, 1, 1), {}, with_log=with_log, left=False)
    assert (state.due - _NOW, state.report.observed_at, state.polls.total) == (pause_s, 1, None)


def test_each_topic_is_covered_by_one_piece_of_a_round_whether_it_is_listed_or_not() -> None:
    names = sorted(f"t{at}" for at in range(250))
    state = _state(KraftEntityType.TOPICS, 900)
    state.polls = polls = PollRound(KraftEntityType.TOPICS, TopicList({}, names, 1, 1))
    topics = [*names, "a", "t1x", "z"]
    ids, found = [f"topic={each}" for each in topics], list[str]()
    while not polls.ended:
        denied = {f"topic={polls.piece[0]}": "No right"}
        found += state.covered(PollResult(1, 1, 1, denied=denied), [*ids, "user=t1", "broker=1"])
        found += denied
        state.record_poll(PollResult(1, 1, 1), {}, with_log=False, left=False)
    assert sorted(found) == sorted(ids)


def test_a_poll_that_left_external_changes_alone_keeps_the_offsets_of_the_poll_before() -> None:
    state = _state(KraftEntityType.BROKERS, 30)
    offsets = []
    for after, left, unchanged in ((1, False, False), (2, True, False), (3, False, True), (4, False, False)):
        result = PollResult(after, after, after, unchanged=unchanged, brokers={"broker=1": after})
        state.record_poll(result, {}, with_log=False, left=left)
        offsets.append((state.report.offset, state.brokers["broker=1"]))
    assert offsets == [(1, 1), (1, 1), (1, 1), (4, 4)]
