"""The history of an entity that is changed all the time is folded up in ranges, and comes to the same."""

from __future__ import annotations

from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any, Final

import pytest
from pyspark.sql.types import StructType

from confplane.rollups import folding, schemas
from confplane.rollups.job import CarriedFold
from confplane.rollups.jobs.integrity import JOB
from confplane.rollups.schemas import COMMITTED, OPEN

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

BITS: Final = 7
"""Of a range in these tests: 128 versions."""
HOT: Final = 6_000
"""Changes of the entity that is changed all the time."""
SETTLED: Final = 3_001
"""The revision of the fold that is handed on."""
CHANGES: Final = StructType([schemas.CHANGES[name] for name in JOB.inputs["changes"]])


@dataclass
class Znode:
    """A znode, and the rows of its changes."""

    entity_id: str
    rows: list[dict[str, Any]] = field(default_factory=list)
    version: int | None = None
    czxid: int | None = None
    config: dict[str, str] = field(default_factory=dict)

    def write(self, revision: int, config: dict[str, str] | None, *, writes: int | None = None) -> None:
        """Store a config at a revision, by one write or, by others, by several; None deletes the znode."""
        if config is None:
            version = None
        elif self.version is None:
            version = 0
        else:
            version = self.version + (writes or 1)
        self.rows.append(
            {
                "change_id": f"{revision:020}", "entity_id": self.entity_id, "facet": "configs",
                "path": f"/config/topics/{self.entity_id}", "version_read": self.version, "czxid_read": self.czxid,
                "writes": writes, "before": dict(self.config), "after": config or {}, "outcome": COMMITTED,
                "revision": revision, "version": version,
            }
        )  # fmt: skip
        self.czxid = None if version is None else revision if self.version is None else self.czxid
        self.version, self.config = version, config or {}


@dataclass
class History:
    """One topic with very many changes among some with few."""

    znodes: list[Znode]
    gaps: set[str]
    """The ids of the changes before which a row is missing."""
    end: int

    def changes(self) -> list[dict[str, Any]]:
        return [row for znode in self.znodes for row in znode.rows]


def history() -> History:
    hot, others = Znode("topic=hot"), [Znode(f"topic={number}") for number in range(40)]
    revision = 1
    for number in range(HOT):
        revision += 1
        if number in {700, 701, 705, 4_000, HOT - 400}:
            hot.write(revision, None)  # deleted, and made again by the next one
            continue
        if number % 1_000 == 999:
            hot.write(revision, {"retention.ms": str(number)}, writes=300)  # of others, beyond a range at once
            continue
        hot.write(revision, {"retention.ms": str(number), "segment.ms": str(number % 3)})
        if number % 50 == 0:
            revision += 1
            others[number // 50 % 40].write(revision, {"retention.ms": str(number)})
    # A range has the versions from 0 on; these changes are the first, the last, and some in the middle of theirs.
    rows = {row["version_read"]: row for row in hot.rows if row["version_read"] is not None}
    withheld = [rows[version] for version in (2 * 128 - 1, 5 * 128, 9 * 128 + 50, 9 * 128 + 51)]
    gaps = {rows[version]["change_id"] for version in (2 * 128, 5 * 128 + 1, 9 * 128 + 52)}
    hot.rows = [row for row in hot.rows if row not in withheld]
    hot.rows.append({**hot.rows[-1], "change_id": "open", "outcome": OPEN, "revision": None, "version": None})
    return History([hot, *others], gaps, revision)


@pytest.fixture
def small_ranges(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(folding, "_RANGE_BITS", BITS)


def frame(spark: SparkSession, rows: list[dict[str, Any]]) -> DataFrame:
    return spark.createDataFrame([tuple(row[name] for name in CHANGES.names) for row in rows], CHANGES)


def by_entity(folded: DataFrame) -> dict[str, dict[str, Any]]:
    """The folded rows; what is in no order, sorted."""
    found = {}
    for row in folded.collect():
        each = row.asDict(recursive=True)
        for name in ("tail", "gaps"):
            each[name].sort(key=lambda entry: entry["revision"])
        found[each["entity_id"]] = each
    return found


@pytest.mark.usefixtures("small_ranges")
def test_in_ranges_the_fold_is_that_of_the_history_at_once(spark: SparkSession) -> None:
    made = history()
    changes, floor = frame(spark, made.changes()).persist(), made.end - 10

    def fold(**given: Any) -> DataFrame:
        return folding.fold_changes(changes, floor, made.end, 1, settled=SETTLED, **given)

    in_ranges = fold(newest_version=2**BITS)
    found = by_entity(in_ranges)
    assert found == by_entity(fold(newest_version=2**BITS - 1))
    hot = found["topic=hot"]
    assert {gap["change_id"] for gap in hot["gaps"]} == made.gaps
    revisions = [row["revision"] for row in made.znodes[0].rows if row["revision"] is not None]
    assert {each["revision"] for each in hot["tail"]} == {
        *(each for each in revisions if each > floor), max(each for each in revisions if each <= floor)
    }  # fmt: skip
    assert hot["open"] == ["open"]
    assert hot["last"]["revision"] == max(each for each in revisions if each <= SETTLED)
    assert all(each["gaps"] == [] for entity_id, each in found.items() if entity_id != "topic=hot")
    # What is handed on continues in the range of the changes behind it.
    carried = CarriedFold(folding.next_fold(in_ranges, SETTLED), SETTLED, datetime(2026, 1, 1, tzinfo=UTC))
    assert by_entity(fold(newest_version=None, carried=carried)) == found
