"""The check of trails of client and external writes: nothing in honest ones, and each planted fault is found."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import pytest

from tests.kraft.outside.shared_trail_check import check_shared_trail
from tests.kraft.outside.trail_check import Happening, Kind, Row

if TYPE_CHECKING:
    from collections.abc import Callable, Collection

    from tests.kraft.outside.shared_trail_check import Shares

    Trail = list[Row]

ENTITY, KEY = "user=alice", "k"


def put(offset: int, value: str | None) -> Happening:
    kind = Kind.REMOVED if value is None else Kind.SET
    return Happening(offset, offset, ENTITY, kind, KEY, value or "")


def _config(value: str | None) -> dict[str, str]:
    return {} if value is None else {KEY: value}


def change(revision: int, before: str | None, after: str | None) -> Row:
    return Row(
        f"change-{revision}", ENTITY, _config(before), _config(after), None, -1, 0,
        exact=False, writes=0, kind="change", revision=revision,
    )  # fmt: skip


def polled(revision: int | None, before: str | None, after: str | None, lower: int, until: int) -> Row:
    kind = "put-back" if revision is None else "observed"
    return Row(
        f"{kind}-{until}", ENTITY, _config(before), _config(after), lower, until, 0,
        exact=False, writes=1, kind=kind, revision=revision,
    )  # fmt: skip


def checked(
    log: list[Happening],
    rows: Trail,
    end: str | None,
    *,
    enforced: bool = False,
    repeats: int = 0,
    shown: Collection[int] = (),
) -> Shares:
    """Values below 100 are those of callers, and nobody removes but others."""
    return check_shared_trail(
        log,
        rows,
        {ENTITY: _config(end)},
        keys={ENTITY: [KEY]},
        is_ours=lambda _entity, _key, value: value is not None and float(value) < 100,
        enforced=enforced,
        repeats=repeats,
        shown=shown,
    )


LOG = [put(10, "1"), put(20, "101"), put(30, "102"), put(40, "2"), put(50, "103"), put(60, "3")]
ADOPTED = [
    change(1, None, "1"),
    polled(2, "1", "102", 15, 35),
    change(3, "102", "2"),
    change(4, "2", "3"),
]
BACK = [put(10, "1"), put(20, "101"), put(30, "102"), put(40, "1"), put(50, "103"), put(60, "2")]
ENFORCED = [change(1, None, "1"), polled(None, "1", "102", 15, 35), change(3, "1", "2")]


def test_honest_trails_have_no_fault() -> None:
    found = checked(LOG, ADOPTED, "3")
    assert (found.faults, found.named, found.merged, found.overwritten, found.ours) == ([], 1, 1, 1, 3)
    found = checked(BACK, ENFORCED, "2", enforced=True)
    assert (found.faults, found.named, found.merged, found.overwritten, found.ours) == ([], 1, 1, 1, 3)


def test_a_key_that_was_never_set_here_is_left_where_external_changes_are_reverted() -> None:
    log = [put(20, "101"), put(30, None), put(40, "102")]
    found = checked(log, [], None, enforced=True)
    assert (found.faults, found.left) == ([], 3)
    assert checked(log, [], None).faults


def test_an_imported_value_is_put_back_with_a_row() -> None:
    imported = replace(polled(1, None, "101", -1, 25), kind="import")
    log = [put(20, "101"), put(30, "102"), put(40, "101")]
    assert checked(log, [imported, polled(None, "101", "102", 25, 35)], "101", enforced=True).faults == []
    assert checked(log, [imported], "101", enforced=True).faults


def test_a_value_whose_end_is_not_known_may_be_sent_again_as_often_as_somebody_died() -> None:
    log = [put(10, "1"), put(20, "101"), put(30, "1")]
    assert checked(log, [change(1, None, "1")], "1", repeats=1).faults == []
    assert checked(log, [change(1, None, "1")], "1").faults


def test_a_value_that_a_poll_showed_while_a_change_waited_is_in_a_row() -> None:
    row = polled(None, "2", "103", 45, 55)
    # No poll is known, or only one after a value that has a row.
    assert checked(LOG, ADOPTED, "3").faults == []
    assert checked(LOG, ADOPTED, "3", shown=[15, 35, 45]).faults == []
    assert checked(LOG, ADOPTED, "3", shown=[55]).faults
    found = checked(LOG, [*ADOPTED, row], "3", shown=[35, 55])
    assert (found.faults, found.named, found.overwritten, found.shown) == ([], 2, 0, 2)
    assert checked(BACK, ENFORCED, "2", enforced=True, shown=[55]).faults
    assert checked(BACK, [*ENFORCED, replace(row, before={KEY: "1"})], "2", enforced=True, shown=[55]).faults == []
    # A key that was never set here has no row.
    assert checked([put(20, "101")], [], None, enforced=True, shown=[25]).faults == []


ADOPT_FAULTS: list[tuple[str, Callable[[Trail], Trail]]] = [
    ("a row of others has a caller's value", lambda rows: [*rows[:3], replace(rows[3], kind="observed", until=60)]),
    ("a phantom row", lambda rows: [*rows, polled(9, "3", "109", 60, 70)]),
    ("a record in two rows", lambda rows: [*rows[:2], polled(2, "102", "102", 15, 35), *rows[2:], *rows[1:2]]),
    ("bounds behind the record", lambda rows: [rows[0], replace(rows[1], lower=30), *rows[2:]]),
    ("bounds in front of the record", lambda rows: [rows[0], replace(rows[1], until=29), *rows[2:]]),
    ("a gap in the chain", lambda rows: [rows[0], *rows[2:]]),
    ("a change that was sent without one", lambda rows: [*rows[:2], change(3, "102", "3")]),
    ("an older change over what others wrote", lambda rows: [rows[0], rows[1], replace(rows[2], revision=0), rows[3]]),
    ("a change that was never sent", lambda rows: [rows[0], change(2, "1", "9"), *_from("9", rows[1:])]),
]


def _from(before: str, rows: Trail) -> Trail:
    return [replace(rows[0], before=_config(before)), *rows[1:]]


@pytest.mark.parametrize("plant", [each for _, each in ADOPT_FAULTS], ids=[name for name, _ in ADOPT_FAULTS])
def test_a_fault_is_found_where_external_changes_are_followed(plant: Callable[[Trail], Trail]) -> None:
    assert checked(LOG, plant(ADOPTED), "3").faults


ENFORCE_FAULTS: list[tuple[str, Callable[[Trail], Trail]]] = [
    ("put back without a row", lambda rows: [rows[0], rows[2]]),
    ("two rows of one record", lambda rows: [*rows, polled(None, "1", "102", 15, 36)]),
    ("a row with a caller's value", lambda rows: [*rows, polled(None, "1", "2", 15, 60)]),
    ("a row without a record", lambda rows: [*rows, polled(None, "1", "109", 15, 60)]),
    ("a row that is a version", lambda rows: [rows[0], replace(rows[1], kind="observed", revision=2), rows[2]]),
]


@pytest.mark.parametrize("plant", [each for _, each in ENFORCE_FAULTS], ids=[name for name, _ in ENFORCE_FAULTS])
def test_a_fault_is_found_where_external_changes_are_reverted(plant: Callable[[Trail], Trail]) -> None:
    assert checked(BACK, plant(ENFORCED), "2", enforced=True).faults


@pytest.mark.parametrize("enforced", [False, True])
def test_a_last_record_without_a_row_is_found(enforced: bool) -> None:  # noqa: FBT001 - pytest's
    log = [put(10, "1"), put(20, "101")]
    assert checked(log, [change(1, None, "1")], "1", enforced=enforced).faults
    assert checked(log[:1], [change(1, None, "1")], "2", enforced=enforced).faults, "the tree is another"
