"""The warnings about a Kafka cluster: an entity type whose last poll is too old is named, with the reason."""

from __future__ import annotations

import time

import pytest

from confplane.services.kraft.warnings import list_warnings
from confplane.services.ports.cluster_states import Target
from confplane.services.ports.kafka import EntityTypePermission, KraftEntityType
from confplane.services.ports.observation_report import EntityTypeReport, ObservationReport

_NOW_S = 1_000_000.0
_MAX_AGES = dict.fromkeys(KraftEntityType, 30.0) | {KraftEntityType.TOPICS: 1_800.0}


def _warnings(
    age_s: float | None,
    *,
    entity_type: KraftEntityType = KraftEntityType.QUOTAS,
    permission: EntityTypePermission = EntityTypePermission.READ_ONLY,
    poll_problem: str = "",
    problem: str = "",
) -> list[str]:
    observed_at = None if age_s is None else int((_NOW_S - age_s) * 1000)
    area = EntityTypeReport(permission, observed_at=observed_at, problem=poll_problem)
    report = ObservationReport(int(_NOW_S * 1000), "writer", problem=problem, areas={entity_type: area})
    return [str(each) for each in list_warnings("c", Target("id", imported=True), report, _MAX_AGES)]


@pytest.fixture(autouse=True)
def _clock(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(time, "time", lambda: _NOW_S)


def test_an_old_poll_is_a_warning_with_its_reason() -> None:
    text = "c: the client-quotas of its Kafka cluster are not polled in time, and may be out of date"
    assert _warnings(30) == []
    assert _warnings(31) == [f"{text}: the last complete poll began 31 s ago, and 30 s are allowed (`kafka.max_age_s`)"]
    [found] = _warnings(148, poll_problem="the broker is behind")
    assert found.endswith("began 148 s ago, and 30 s are allowed (`kafka.max_age_s`); the broker is behind")


def test_each_entity_type_has_its_own_limit() -> None:
    assert _warnings(1_500, entity_type=KraftEntityType.TOPICS) == []
    assert len(_warnings(1_801, entity_type=KraftEntityType.TOPICS)) == 1


def test_polls_that_were_never_complete_are_a_warning_once_one_failed() -> None:
    assert _warnings(None) == []
    [found] = _warnings(None, poll_problem="no answer")
    assert "no poll was complete yet" in found


def test_the_reason_for_the_whole_cluster_is_enough() -> None:
    assert len(_warnings(500, problem="the cluster is away")) == 1
    [found] = _warnings(500, permission=EntityTypePermission.NONE)
    assert "does not permit reads" in found
