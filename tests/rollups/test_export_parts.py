"""The days of an export that lie before a gap are in parts of even size, as the newest days are."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING

from confplane.rollups import stores
from confplane.rollups.sources import trail as trail_source
from tests.audit.rows import change_id, committed, intent
from tests.rollups.test_exports import DAY_MS, origin_of
from tests.rollups.trail import CLUSTER, START_MS, write

if TYPE_CHECKING:
    import pytest
    from pyspark.sql import SparkSession

    from tests.support import servers


def test_a_large_day_before_a_gap_is_no_single_part(
    spark: SparkSession, migrated: servers.Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Three days: a large one, a small one with a gap on both sides, and the newest."""
    monkeypatch.setattr(trail_source, "ROWS", 20)
    first = datetime.fromtimestamp(START_MS / 1000, UTC).date()
    rows = {0: 90, 10: 3, 20: 2}
    made = [
        intent(change_id(START_MS + day * DAY_MS + number, day * 100 + number), cluster=CLUSTER)
        for day, count in rows.items()
        for number in range(count)
    ]
    # Another cluster's rows are in the same range of keys.
    others = [intent(change_id(START_MS + number, 5_000 + number), cluster="other") for number in range(10)]
    write(migrated.service_dsn, [*made, *others], [committed(each) for each in made])
    with stores.read(spark, origin_of(migrated), jobs=[]) as (_, frames):
        changes = frames.changes_of([first + timedelta(days=day) for day in rows])
        found = changes.rdd.map(lambda row: str(row.change_id)).glom().collect()
    assert sorted(key for part in found for key in part) == sorted(str(each.change_id) for each in made)
    sizes = [len(part) for part in found]
    assert (len(sizes), sizes[-2:]) == (8, [3, 2])
    assert sum(sizes[:-2]) == 90
    assert max(sizes) <= 20
