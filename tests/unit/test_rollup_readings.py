"""The time from which a rollup builds on an earlier run; None for a run from the beginning."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import UTC, datetime
from types import SimpleNamespace
from typing import Any, Final, cast

import pytest

from confplane.domain.facets import Tree
from confplane.rollups.reading import LATE, reading_of

NOON: Final = datetime(2026, 11, 29, 12, tzinfo=UTC)
THEN, DAY = NOON.replace(hour=6), NOON.replace(hour=0)
EARLIER: Final = datetime(2026, 11, 27, 5, tzinfo=UTC)
REVISION: Final = 70
POSITION: Final = {
    "as_of": THEN.isoformat(),
    "registration_id": "5",
    "begin": "10",
    "fold": {"revision": str(REVISION)},
}
INCREMENTAL: Final = SimpleNamespace(incremental=True, fold=None, lookback_days=0, inputs={})
FOLDED: Final = SimpleNamespace(incremental=False, fold=True, lookback_days=0, inputs={})


@dataclass(frozen=True)
class Trail:
    """The changes that were recorded since the earlier run, or shortly before it."""

    first: datetime | None = None
    """The time of the first one."""
    lowest: int | None = None
    """Their lowest revision."""
    above: datetime | None = None
    """The time of the first one with a revision that the fold lacks."""

    def oldest(self, recorded_since: datetime) -> datetime | None:
        assert recorded_since in {THEN - LATE, NOON - LATE}
        return self.first

    def lowest_revision(self, recorded_since: datetime) -> int | None:
        assert recorded_since == THEN - LATE
        return self.lowest

    def first_above(self, revision: int) -> datetime | None:
        assert revision == REVISION
        return self.above


def start(job: Any, previous: dict[str, Any], trail: Trail, floor: int | None = 90) -> datetime | None:
    options = {"as_of": NOON, "begin": 10, "floor": floor}
    reading = reading_of("default", options, 5, cast("Any", SimpleNamespace(history=trail)))
    return reading.frames(job, previous)[1]


@pytest.mark.parametrize(
    ("options", "on_zookeeper"),
    [
        ({"release": "3.9"}, True),
        ({"release": "4.4"}, False),
        ({"release": "3.9", "on_zookeeper": False}, False),
        ({}, None),
    ],
)
def test_an_export_of_an_earlier_release_is_of_zookeeper_by_its_release(
    options: dict[str, Any], *, on_zookeeper: bool | None
) -> None:
    reading = reading_of("default", {"as_of": NOON, **options}, 5, cast("Any", None))
    assert reading.options.get("on_zookeeper") is on_zookeeper


@pytest.mark.parametrize(
    ("options", "trees"),
    [({}, [Tree.CLIENT_CONFIGS, Tree.CONFIG]), ({"client_config_trees": [Tree.CONFIG]}, [Tree.CONFIG])],
    ids=["of an earlier release", "of this release"],
)
def test_an_export_that_does_not_say_its_layout_has_client_configs_of_both_trees(
    options: dict[str, Any], trees: list[Tree]
) -> None:
    reading = reading_of("default", {"as_of": NOON, **options}, 5, cast("Any", None))
    assert reading.options["client_config_trees"] == trees


@pytest.mark.parametrize(
    ("changed", "trail", "since"),
    [
        ({}, Trail(), DAY),
        ({}, Trail(first=EARLIER), EARLIER.replace(hour=0)),
        ({}, Trail(first=NOON), DAY),
        ({"as_of": NOON.isoformat()}, Trail(), DAY),
        # The position is later, or the tables were restored.
        ({"as_of": NOON.replace(minute=1).isoformat()}, Trail(), None),
        ({"registration_id": "4"}, Trail(), DAY),
        ({"registration_id": "6"}, Trail(), None),
    ],
)
def test_an_incremental_run_starts_with_the_day_of_the_first_change_since(
    changed: dict[str, Any], trail: Trail, since: datetime | None
) -> None:
    assert start(INCREMENTAL, POSITION | changed, trail) == since


@pytest.mark.parametrize(
    ("changed", "trail", "floor", "since"),
    [
        ({}, Trail(), 90, THEN),
        ({}, Trail(first=EARLIER, lowest=71), 90, EARLIER),
        ({}, Trail(first=THEN, lowest=71, above=EARLIER), 90, EARLIER),
        ({}, Trail(), REVISION, THEN),
        # ZooKeeper went back, or it is not known how far.
        ({}, Trail(), REVISION - 1, None),
        ({}, Trail(), None, None),
        # A change that the fold should have was recorded since.
        ({}, Trail(first=EARLIER, lowest=REVISION), 90, None),
        # The trail begins at another revision.
        ({"begin": "11"}, Trail(), 90, None),
        ({"fold": None}, Trail(), 90, None),
        ({"as_of": NOON.replace(minute=1).isoformat()}, Trail(), 90, None),
    ],
)
def test_a_run_builds_on_a_fold_only_if_it_has_all_changes_up_to_its_revision(
    changed: dict[str, Any], trail: Trail, floor: int | None, since: datetime | None
) -> None:
    assert start(FOLDED, POSITION | changed, trail, floor) == since
