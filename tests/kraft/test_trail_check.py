"""The check of trails, on made-up logs and trails: it finds nothing in honest ones, and each planted fault."""

from __future__ import annotations

import random
from dataclasses import replace
from typing import TYPE_CHECKING

import pytest

from tests.kraft.outside.trail_check import Happening, Kind, Row, check_trail

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    Trail = list[Row]

ENTITY, TOPIC, KEY = "user=alice", "topic=t", "k"


def put(offset: int, value: str, *, entity: str = ENTITY, shown: bool = True) -> Happening:
    return Happening(offset, 1000 + offset, entity, Kind.SET, KEY, value, shown)


def topic(offset: int, kind: Kind) -> Happening:
    return Happening(offset, 1000 + offset, TOPIC, kind)


def exact(
    before: str | None,
    after: str | None,
    offset: int,
    *,
    writes: int = 1,
    first: int | None = None,
    entity: str = ENTITY,
) -> Row:
    lower = (offset if first is None else first) - 1
    return Row(
        f"row-{offset}",
        entity,
        _config(before),
        _config(after),
        lower,
        offset,
        1000 + offset,
        exact=True,
        writes=writes,
    )


def polled(before: str | None, after: str | None, lower: int | None, until: int, *, entity: str = ENTITY) -> Row:
    return Row(
        f"look-{until}", entity, _config(before), _config(after), lower, until, 5000 + until, exact=False, writes=1
    )


def _config(value: str | None) -> Mapping[str, str]:
    return {} if value is None else {KEY: value}


LOG = [put(10, "1"), put(20, "2"), put(30, "3"), put(40, "2"), put(50, "3")]
EACH = [exact(None, "1", 10), exact("1", "2", 20), exact("2", "3", 30), exact("3", "2", 40), exact("2", "3", 50)]
LOOKS = [polled(None, "1", None, 15), polled("1", "3", 15, 55)]
RECREATED = [topic(5, Kind.MADE), put(10, "1", entity=TOPIC), topic(20, Kind.GONE), topic(30, Kind.MADE),
          put(31, "2", entity=TOPIC)]  # fmt: skip


def test_each_record_in_a_row_of_its_own_is_no_fault() -> None:
    found = check_trail(LOG, EACH, {ENTITY: {KEY: "3"}}, every_write_after=0)
    assert (found.faults, found.exact, found.seen, found.undone) == ([], 5, 0, 0)


def test_a_run_counts_its_records() -> None:
    rows = [EACH[0], exact("1", "3", 50, writes=4, first=20)]
    found = check_trail(LOG, rows, {ENTITY: {KEY: "3"}}, every_write_after=0)
    assert (found.faults, found.exact) == ([], 5)


def test_polls_merge_writes_and_miss_those_that_were_undone() -> None:
    rows = [polled(None, "1", None, 15), polled("1", "3", 15, 35)]
    found = check_trail(LOG, rows, {ENTITY: {KEY: "3"}})
    assert (found.faults, found.seen, found.undone) == ([], 3, 2)


def test_spellings_of_a_value_are_the_same() -> None:
    log = [put(10, "0100"), put(20, "a , b")]
    assert check_trail(log, [exact(None, "100", 10), exact("100", "a,b", 20)], {ENTITY: {KEY: "a,b"}}).faults == []


def test_a_password_is_a_row_without_its_value_where_each_write_is_promised() -> None:
    log = [put(10, "hush", shown=False)]
    assert check_trail(log, [exact(None, None, 10)], {}, every_write_after=0).faults == []
    assert check_trail(log, [], {}).faults == []
    assert check_trail(log, [], {}, every_write_after=0).faults


def test_a_recreated_topic_is_a_removal_and_a_creation() -> None:
    ends = [exact(None, "1", 10, entity=TOPIC), exact("1", None, 20, entity=TOPIC), exact(None, "2", 31, entity=TOPIC)]
    tree = {TOPIC: {KEY: "2"}}
    assert check_trail(RECREATED, ends, tree, every_write_after=0).faults == []
    assert check_trail(RECREATED, [ends[0], exact("1", "2", 31, entity=TOPIC)], tree).faults, "one row for two topics"
    assert check_trail(RECREATED, [ends[0], polled("1", "2", 15, 40, entity=TOPIC)], tree).faults, (
        "one look's row for two topics"
    )
    two = [ends[0], polled("1", None, 15, 40, entity=TOPIC), polled(None, "2", 15, 40, entity=TOPIC)]
    assert check_trail(RECREATED, two, tree).faults == []


def test_the_row_of_a_poll_that_saw_a_topic_removed_may_end_several_topics() -> None:
    ends = [exact(None, "1", 10, entity=TOPIC), polled("1", None, 10, 50, entity=TOPIC)]
    log = [*RECREATED, topic(40, Kind.GONE)]
    assert check_trail(log, ends, {}, every_write_after=0).faults == []
    assert check_trail(log, [ends[0], replace(ends[1], until=39)], {}, every_write_after=0).faults, (
        "the last end is in no row"
    )
    phantom = [*ends, ends[0], exact("1", None, 20, entity=TOPIC)]
    assert check_trail(log, phantom, {}, every_write_after=0).faults, "rows of records that the look's row has"


FAULTS: list[tuple[str, Callable[[Trail], Trail]]] = [
    ("a lost record", lambda rows: [*rows[:2], replace(rows[2], before=rows[1].after), *rows[4:]]),
    ("a lost last record", lambda rows: rows[:-1]),
    ("a phantom row", lambda rows: [*rows, exact("3", "3", 60)]),
    ("a row twice", lambda rows: [*rows[:3], exact("3", "3", 30), *rows[3:]]),
    ("the wrong order", lambda rows: [rows[0], rows[2], rows[1], *rows[3:]]),
    ("another value", lambda rows: [*rows[:1], replace(rows[1], after={KEY: "9"}), *rows[2:]]),
    ("an offset too low", lambda rows: [*rows[:1], replace(rows[1], lower=18, until=19), *rows[2:]]),
    ("an offset too high", lambda rows: [*rows[:1], replace(rows[1], until=21), *rows[2:]]),
    ("a bound too low", lambda rows: [*rows[:1], replace(rows[1], lower=9), *rows[2:]]),
    ("another time", lambda rows: [*rows[:1], replace(rows[1], at_ms=1), *rows[2:]]),
    ("too many writes", lambda rows: [*rows[:1], replace(rows[1], writes=2), *rows[2:]]),
    ("a gap in the chain", lambda rows: [*rows[:2], replace(rows[2], before={KEY: "2", "x": "1"}), *rows[3:]]),
    ("another entity", lambda rows: [*rows[:-1], replace(rows[-1], entity="user=bob")]),
]


@pytest.mark.parametrize("plant", [each for _, each in FAULTS], ids=[name for name, _ in FAULTS])
def test_a_fault_among_rows_of_the_log_is_found(plant: Callable[[Trail], Trail]) -> None:
    assert check_trail(LOG, plant(EACH), {ENTITY: {KEY: "3"}}, every_write_after=0).faults


@pytest.mark.parametrize(
    "rows",
    [
        [LOOKS[0], replace(LOOKS[1], lower=30)],  # two of the writes were in front of its bounds
        [LOOKS[0], replace(LOOKS[1], until=25)],  # the log had no such state by then
        [LOOKS[0], replace(LOOKS[1], after={KEY: "4"})],
        [LOOKS[0]],  # a change that is still there
        [*LOOKS, polled("3", "3", 55, 60)],
        [],
    ],
    ids=["behind its writes", "in front of its writes", "no state of the log", "lost", "phantom", "no rows at all"],
)
def test_a_fault_among_rows_of_polls_is_found(rows: Trail) -> None:
    assert check_trail(LOG, rows, {ENTITY: {KEY: "3"}}).faults


def test_a_tree_that_is_not_the_end_of_the_log_is_found() -> None:
    assert check_trail(LOG, EACH, {ENTITY: {KEY: "2"}}).faults
    assert check_trail(LOG, EACH, {}).faults
    assert check_trail(LOG, EACH, {ENTITY: {KEY: "3"}, "user=bob": {KEY: "1"}}).faults


@pytest.mark.parametrize("seed", range(20))
def test_honest_trails_of_made_up_logs_have_no_fault_and_lose_no_row_unnoticed(seed: int) -> None:
    dice = random.Random(seed)  # noqa: S311 - a seed gives the same choices again
    log: list[Happening] = []
    rows: Trail = []
    offset = 0
    stored: str | None = None
    for _ in range(dice.randint(3, 20)):
        begin, before, run = offset, stored, dice.randint(1, 4)
        for _ in range(run):
            offset += dice.randint(1, 3)
            # No value comes back, so no record can be undone by another.
            stored = str(offset)
            log.append(put(offset, stored))
        if dice.random() < 0.5:
            rows.append(exact(before, stored, offset, writes=run, first=log[-run].offset))
        else:
            rows.append(polled(before, stored, begin, offset))
    tree = {ENTITY: _config(stored)}
    assert check_trail(log, rows, tree, every_write_after=0).faults == []
    lost = dice.randrange(len(rows))
    assert check_trail(log, rows[:lost] + rows[lost + 1 :], tree, every_write_after=0).faults
