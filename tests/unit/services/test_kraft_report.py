"""The leader's report: short enough for its znode, whatever brokers say."""

from __future__ import annotations

import json
from dataclasses import replace

from confplane.services.ports.kafka import EntityTypePermission, KraftEntityType
from confplane.services.ports.observation_report import (
    ApplyReport,
    EntityTypeReport,
    ListedNames,
    ObservationReport,
    parse,
)

_LONG = "\x01\U0001f600" * 100_000


def test_a_report_of_any_content_is_short_enough() -> None:
    many = ListedNames.of({f"{at} {_LONG}": _LONG for at in range(1_000)})
    areas = {
        area: EntityTypeReport(
            EntityTypePermission.NONE, _LONG, problem=_LONG, unmanaged=many, hidden=many, denied=many
        )
        for area in KraftEntityType
    }
    applying = ApplyReport(1, 1, many, many, many, many, many, problem=_LONG)
    data = ObservationReport(
        1, "writer", brokers=tuple(range(1_000)), problem=_LONG, log_problem=_LONG, areas=areas, applying=applying
    ).encode()
    assert len(data) <= 90_000
    found = parse(data)
    assert found is not None
    assert found.applying is not None
    assert (found.applying.refused.count, len(found.areas)) == (1_000, len(KraftEntityType))
    assert _LONG.startswith(found.problem.removesuffix("..."))


def test_a_report_of_common_size_is_whole() -> None:
    names = ListedNames.of({"topic=t": "a reason"})
    report = ObservationReport(
        1,
        "writer",
        problem="away",
        areas={
            KraftEntityType.TOPICS: EntityTypeReport(EntityTypePermission.READ_ONLY, problem="behind", hidden=names)
        },
        applying=ApplyReport(2, 3, held=names, problem="paused"),
    )
    data = report.encode()
    assert parse(data) == report
    assert json.loads(data)["problem"] == "away"


def test_denied_resources_are_a_member_only_where_there_are_some() -> None:
    """As for the log."""
    permitted = EntityTypeReport(EntityTypePermission.READ_ONLY)
    areas = {KraftEntityType.TOPICS: permitted}
    assert "denied" not in json.loads(ObservationReport(1, "writer", areas=areas).encode())["areas"]["topics"]
    denied = ListedNames.of({f"topic=t{at}": "a right is missing" for at in range(200)})
    report = ObservationReport(1, "writer", areas={KraftEntityType.TOPICS: replace(permitted, denied=denied)})
    assert parse(report.encode()) == report
    assert parse(report.encode()).areas[KraftEntityType.TOPICS].denied.count == 200  # type: ignore[union-attr]


def test_a_problem_with_the_log_is_a_member_only_where_there_is_one() -> None:
    """Earlier releases know no such member, and read no report with it."""
    assert "log_problem" not in json.loads(ObservationReport(1, "writer").encode())
    report = ObservationReport(1, "writer", log_problem="a right is missing")
    assert parse(report.encode()) == report


def test_earlier_releases_ignore_the_feature_of_eligible_replicas() -> None:
    """Unknown members make a report unreadable for them, except in a list of names."""
    areas = {each: EntityTypeReport(EntityTypePermission.READ_ONLY) for each in KraftEntityType}
    report = ObservationReport(1, "writer", areas=areas)
    unknown = json.loads(report.encode())
    for keeps in (True, False):
        known = replace(report, eligible_replicas=keeps)
        assert parse(known.encode()) == known
        encoded = json.loads(known.encode())
        names = encoded["areas"]["brokers"]["unmanaged"]
        assert {*names} - {*unknown["areas"]["brokers"]["unmanaged"]} == {"eligible_replicas"}
        del names["eligible_replicas"]
        assert encoded == unknown
