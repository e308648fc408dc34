"""Parts of the trail are of even size, however many rows there are and however they lie."""

from __future__ import annotations

import itertools
import random
import statistics
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Final
from uuid import UUID

import pyarrow as pa
import pytest
from pydantic import SecretStr

from confplane.rollups import stores
from confplane.rollups.sources import trail as source
from confplane.rollups.sources import trail as trail_source
from confplane.rollups.sources.postgres import open_transaction
from confplane.rollups.sources.tables import TABLES, TableScope
from tests.audit.rows import change_id, committed, fetch, intent, run
from tests.rollups.made import START
from tests.rollups.test_exports import DAY_MS, origin_of
from tests.rollups.trail import CLUSTER, START_MS, write
from tests.support.sampling import sampled

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from pyspark.sql import SparkSession

    from tests.support import servers


BILLION: Final = 1_000_000_000
_RANK_BITS: Final = 40
_ROWS_OF_A_PAGE: Final = 8
_COPRIME: Final = 2_654_435_761


def key_of(rank: int) -> str:
    """The change id with so many below it, of changes that come in waves: busy hours, and quiet ones."""
    milliseconds = f"{1_700_000_000_000 + rank // 10 + (rank // 3_000_000) * 3_600_000:012x}"
    # Millions of keys are made: a UUID would take four times as long.
    return f"{milliseconds[:8]}-{milliseconds[8:]}-7000-8000-{rank:012x}"


def rank_of(key: str) -> int:
    return UUID(key).int & ((1 << _RANK_BITS) - 1)


class Made:
    """A made-up table: a function from a page to the ranks of the rows there."""

    def __init__(self, rows: int, count: int, ranks: Callable[[int], Sequence[int]]) -> None:
        self.rows = rows
        self.count = count
        self._ranks = ranks
        self.asked = 0

    def keys(self, numbers: Sequence[int]) -> pa.ListArray:
        self.asked += len(numbers)
        found = [[key_of(rank) for rank in self._ranks(number)] for number in numbers]
        return pa.array([keys for keys in found if keys], pa.list_(pa.string()))

    def sizes(self, parallelism: int = 8, first: int = 0) -> list[int]:
        ranks = [rank_of(key) for key in source.bounds(self, parallelism, key_of(first) if first else None)]
        return [high - low for low, high in itertools.pairwise([first, *ranks, self.rows])]


def in_order(rows: int) -> Made:
    size = _ROWS_OF_A_PAGE
    return Made(rows, rows // size, lambda page: range(page * size, (page + 1) * size))


def wide_at_first(rows: int) -> Made:
    """In order, where the rows of the first half of the pages are twelve times as wide as the others."""
    wide, narrow = 2, 24
    half = rows // (wide + narrow)

    def ranks(page: int) -> range:
        first, size = (page * wide, wide) if page < half else (half * wide + (page - half) * narrow, narrow)
        return range(first, first + size)

    return Made(half * (wide + narrow), 2 * half, ranks)


def pages_in_any_order(rows: int) -> Made:
    """The rows of a page are neighbours, and the pages lie in no order."""
    size = _ROWS_OF_A_PAGE
    count = rows // size
    return Made(rows, count, lambda page: range(page * _COPRIME % count * size, (page * _COPRIME % count + 1) * size))


def rows_in_any_order(rows: int) -> Made:
    size = _ROWS_OF_A_PAGE
    return Made(
        rows, rows // size, lambda page: [row * _COPRIME % rows for row in range(page * size, (page + 1) * size)]
    )


def among_others(rows: int) -> Made:
    """Of a hundred clusters that write at once: a page in twelve has a row of this one."""
    return Made(rows, rows * 12, lambda page: [page // 12] if page % 12 == 5 else [])


def behind_another(rows: int) -> Made:
    """Behind the rows of a cluster of before that wrote fifty times as much."""
    size = _ROWS_OF_A_PAGE
    before = 50 * rows // size

    def ranks(page: int) -> range:
        return range((page - before) * size, (page - before + 1) * size) if page >= before else range(0)

    return Made(rows, before + rows // size, ranks)


LAYOUTS: Final = [in_order, wide_at_first, pages_in_any_order, rows_in_any_order, among_others, behind_another]


@pytest.mark.parametrize(("layout", "rows"), sampled(LAYOUTS, [BILLION, 1_000_000], one_in=2))
def test_parts_are_even_at_any_size(layout: Callable[[int], Made], rows: int) -> None:
    made = layout(rows)
    sizes = made.sizes()
    assert max(sizes) <= 2 * statistics.median(sizes)
    assert min(sizes) >= statistics.median(sizes) / 4
    # Enough of them for every task, and not so few that a lost one costs much.
    assert len(sizes) >= 8
    assert max(sizes) <= made.rows / 8 * 2
    if layout is in_order:
        assert len(sizes) == min(rows // source.ROWS, source.MOST_PARTS)
    # A sample, and no look at everything.
    assert made.asked <= max(source.PAGES * 8, made.count // 10, 1)


@pytest.mark.parametrize("layout", [in_order, wide_at_first, among_others, behind_another])
def test_parts_of_a_step_are_even_after_sampling_few_pages(layout: Callable[[int], Made]) -> None:
    made, step = layout(BILLION), 100_000
    sizes = made.sizes(first=made.rows - step)
    assert sum(sizes) == step
    assert len(sizes) == 8
    assert max(sizes) <= 2 * statistics.median(sizes)
    # Among others' rows only a page in twelve says something.
    assert made.asked <= 15 * source.STRETCH_SAMPLE + source.PAGES * 8 * (50 if layout is among_others else 2)


@pytest.mark.parametrize(
    ("layout", "step"),
    [(in_order, 10_000_000), (among_others, 10_000_000), (rows_in_any_order, 1_000_000)],
    ids=["in order", "among others", "in any order"],
)
def test_parts_of_a_large_step_are_even_too(layout: Callable[[int], Made], step: int) -> None:
    made = layout(BILLION)
    sizes = made.sizes(first=made.rows - step)
    assert sum(sizes) == step
    # Of rows that lie anywhere few pages show any.
    assert len(sizes) >= (step // source.ROWS) * (0.05 if layout is rows_in_any_order else 0.3)
    assert max(sizes) <= 2.5 * statistics.median(sizes)
    assert made.asked <= source.PAGES * source.MOST_PARTS + 15 * source.STRETCH_SAMPLE


def test_there_are_as_many_parts_as_tasks_that_run_at_a_time() -> None:
    sizes = in_order(BILLION).sizes(2_000)
    assert len(sizes) == 2_000
    assert max(sizes) <= 2 * statistics.median(sizes)
    assert len(in_order(15 * source.FEWEST_ROWS).sizes(2_000)) == 15
    assert in_order(0).sizes(2_000) == [0]


@pytest.fixture
def shuffled(migrated: servers.Database) -> servers.Database:
    """Changes that were written by days, the days in no order; many on their first pages, and few on the others."""
    days = list(range(60))
    random.Random(1).shuffle(days)  # noqa: S311 - of no use to an attacker
    for day in days:
        run(
            migrated.owner_dsn,
            f"""
            INSERT INTO intent_entities
              (change_id, attempt, position, cluster, entity_id, facet, path, keys, ops, before, after)
            SELECT (lpad(to_hex(1770000000000 + {day} * 86400000::bigint + n * 1000), 12, '0') || '70008000'
                || lpad(to_hex(n), 12, '0'))::uuid,
              1, 0, CASE WHEN mod(n, 3) = 0 THEN 'elsewhere' ELSE '{CLUSTER}' END, 'user=u', 'client-quotas', '/', '{{}}',
              '[]', '{{}}', jsonb_build_object('k', repeat(md5(n::text), CASE WHEN {day} < 30 THEN 1 ELSE 20 END))
            FROM generate_series(1, 1000) AS n
            """,  # noqa: S608 - constants
        )
    return migrated


def test_parts_of_a_real_table_are_even(shuffled: servers.Database, monkeypatch: pytest.MonkeyPatch) -> None:
    # The table is as small to these as one of a hundred million rows is to what they are.
    monkeypatch.setattr(source, "ROWS", 2_000)
    monkeypatch.setattr(source, "PAGES", 32)
    monkeypatch.setattr(source, "_ROWS_OF_A_PAGE", 20)
    asked: list[Sequence[int]] = []

    class Asked(source.TablePages):
        def keys(self, numbers: Sequence[int]) -> pa.ListArray:
            asked.append(numbers)
            return super().keys(numbers)

    with open_transaction(SecretStr(shuffled.service_dsn)) as postgres:
        pages = Asked(postgres, TABLES["changes"], TableScope(CLUSTER, None, 0, START))
        begins = source.bounds(pages, 2)
        found = pages.keys(range(pages.count))
    assert len(asked[0]) < pages.count / 2
    query = f"SELECT change_id::text FROM intent_entities WHERE cluster = '{CLUSTER}'"  # noqa: S608 - a constant
    ids = [row[0] for row in fetch(shuffled.owner_dsn, query)]
    assert sorted(found.flatten().to_pylist()) == sorted(ids)
    sizes = [sum(low <= each < high for each in ids) for low, high in itertools.pairwise(["", *begins, "z"])]
    assert len(sizes) >= 10
    assert max(sizes) <= 2 * statistics.median(sizes)


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
