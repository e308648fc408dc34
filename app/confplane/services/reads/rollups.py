"""Results of rollups for the API and the commands, and the runs that made them.

The runner of a job publishes rows under a run's id. All rows of a run appear at once, when the run is complete. Of a
job's complete runs the run with the latest ``as_of`` is **current**, whichever ended last.
"""

from __future__ import annotations

import csv
import io
import re
from dataclasses import dataclass
from datetime import UTC, date, datetime
from typing import TYPE_CHECKING, Any, Final

from confplane.domain.access.operations import Operation, ResourceType
from confplane.domain.access.ranges import spell
from confplane.domain.entities import Entity
from confplane.domain.errors import InvalidRequestError
from confplane.domain.numbers import plain_number
from confplane.domain.rollups import ROLLUPS, ColumnType
from confplane.domain.texts import rfc3339
from confplane.services.ports.rollups import RowCondition, RowOrder, RowQuery

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence
    from uuid import UUID

    from confplane.domain.access.ranges import NameRanges
    from confplane.domain.rollups import Column, Rollup
    from confplane.services.access import Access
    from confplane.services.ports.rollups import Place, RollupRun


@dataclass(frozen=True, slots=True)
class RollupSelection:
    """The selected rows of a rollup: the filters of a :class:`RowQuery`."""

    entity_id: str | None
    members: Mapping[str, Any]
    conditions: Sequence[RowCondition] = ()
    order: Sequence[RowOrder] = ()

    def query(self, run_id: UUID, page_size: int, after: Place | None, within: NameRanges | None = None) -> RowQuery:
        """Return the query for a page of the rows."""
        return RowQuery(run_id, page_size, self.entity_id, self.members, after, within, self.conditions, self.order)


def selection(
    rollup: Rollup, given: Mapping[str, str], conditions: Sequence[str] = (), order: str | None = None
) -> RollupSelection:
    """Read filters and an order.

    A filter of a column of several texts selects rows that have the text among them.

    Args:
        rollup: The rollup.
        given: Columns, by either of their names, and the text of a value.
        conditions: Texts such as ``affected >= 10`` and ``value is null``.
        order: Columns, separated by commas, each with ``desc`` for a descending order.

    Raises:
        InvalidRequestError: No such column, or a value that is not of its type.
    """
    entity_id: str | None = None
    members: dict[str, Any] = {}
    for name, text in given.items():
        column = _column(rollup, name, name)
        if column.name == rollup.entity:
            # The row of the whole cluster, in rollups that have one, has no id.
            entity_id = Entity.from_id(text, pointer=name).id if text else ""
        else:
            members[column.name] = _value(column, text, name)
    ordered = [] if order is None else [_order(rollup, part) for part in order.split(",")]
    return RollupSelection(entity_id, members, [_condition(rollup, text) for text in conditions], ordered)


def _column(rollup: Rollup, name: str, pointer: str) -> Column:
    """Return a column by either of its names."""
    for column in rollup.columns:
        if name in column.names:
            return column
    known = ", ".join(column.name for column in rollup.columns)
    raise InvalidRequestError(
        f"The rollup {rollup.name} has no column {name[:100]!a}; it has: {known}", pointer=pointer[:100]
    )


def _condition(rollup: Rollup, text: str) -> RowCondition:
    """Read a condition other than equality."""
    if found := _NULLS.fullmatch(text):
        column = _column(rollup, found[1], "filter")
        return RowCondition(column.name, "IS NOT NULL" if found[2] else "IS NULL")
    found = _COMPARISON.fullmatch(text)
    if found is None:
        raise InvalidRequestError(
            f"filter: {text[:100]!a} is not a condition. Use COLUMN >= VALUE with <, <=, > or >=, COLUMN is null, or"
            " COLUMN is not null; separate several by commas.",
            pointer="filter",
        )
    name, operator, value = found.groups()
    column = _column(rollup, name, "filter")
    if column.type not in _RANGED:
        raise InvalidRequestError(
            f"filter: {name} can't be compared with {operator}, only numbers, dates and times can", pointer="filter"
        )
    return RowCondition(column.name, operator, _value(column, value, name, "filter"))


def _order(rollup: Rollup, text: str) -> RowOrder:
    """Read a column of an order."""
    name, _, direction = text.strip().partition(" ")
    if direction.strip() not in {"", "asc", "desc"}:
        raise InvalidRequestError(
            f"orderBy: {text[:100]!a} is not a column, or a column followed by asc or desc", pointer="orderBy"
        )
    column = _column(rollup, name, "orderBy")
    if column.type is ColumnType.TEXTS:
        raise InvalidRequestError(f"orderBy: {name} has several values in a row", pointer="orderBy")
    return RowOrder(column.name, column.is_number, direction.strip() == "desc")


def check_sortable(run: RollupRun, selected: RollupSelection) -> None:
    """Check that the rows of a run can be put in an order.

    Raises:
        InvalidRequestError: There are too many.
    """
    if selected.order and selected.entity_id is None and (run.rows or 0) > MOST_SORTED:
        raise InvalidRequestError(
            f"orderBy: the run has {run.rows:,} rows, and at most {MOST_SORTED:,} can be put in an order here. Name an"
            " entity, or use `confplane rollups show --order-by`, or the lake.",
            pointer="orderBy",
        )


def visible(access: Access, cluster: str, rollup: Rollup, entity_id: str | None) -> NameRanges | None:
    """Return the entities whose rows a caller may see; None: all rows.

    A caller with the grant DESCRIBE on ``rollups`` sees all rows. Without it, rows about single entities are seen by
    who may describe the entity.

    Args:
        access: The access of the caller.
        cluster: The cluster.
        rollup: The rollup.
        entity_id: The entity that the request names; ``""`` names the row of the whole cluster.

    Raises:
        ForbiddenError: The caller lacks the grant, and the rollup has sums or examples, or the request names a row that
            the caller may not see.
    """
    own = spell(ResourceType.ROLLUPS)
    if access.unlimited or access.allows(cluster, Operation.DESCRIBE, own):
        return None
    if not rollup.is_per_entity or entity_id == "":
        access.require(cluster, Operation.DESCRIBE, own)
    if entity_id is not None:
        access.require(cluster, Operation.DESCRIBE_CONFIGS, entity_id, pointer=rollup.entity)
    return access.allowed(cluster, Operation.DESCRIBE_CONFIGS)


def row_of(rollup: Rollup, stored: Mapping[str, Any]) -> dict[str, Any]:
    """Return a stored row with the columns of the job, in the job's order.

    Postgres keeps the members of JSONB in an order of its own. A run of an earlier version may lack a column, which is
    None here, and may have a column that the job no longer has, which is left out.
    """
    return {column.name: stored.get(column.name, stored.get(column.former)) for column in rollup.columns}


def item_of(rollup: Rollup, stored: Mapping[str, Any]) -> dict[str, Any]:
    """Return a stored row as JSON shows it: in camelCase, revisions as decimal strings, and former names last."""
    row = row_of(rollup, stored)
    item = {
        column.member: str(row[column.name])
        if column.is_revision and row[column.name] is not None
        else row[column.name]
        for column in rollup.columns
    }
    return item | {column.former: item[column.member] for column in rollup.columns if column.former}


def rollup_run(run: RollupRun) -> dict[str, Any]:
    """Return a complete run of a rollup."""
    revisions = {name: run.position.get(name) for name in ("floor", "horizon", "watermark", "folded")}
    return {
        "id": str(run.id),
        "asOf": rfc3339(run.as_of),
        "startedAt": rfc3339(run.started_at),
        "finishedAt": None if run.finished_at is None else rfc3339(run.finished_at),
        "principal": run.principal,
        "rows": run.rows,
        "revisions": {name: None if found is None else str(found) for name, found in revisions.items()},
        "previous": None if run.previous is None else str(run.previous),
    }


def rollup_attempt(run: RollupRun) -> dict[str, Any]:
    """Return a run of a rollup with any outcome."""
    return {
        "id": str(run.id),
        "state": run.state.value,
        "asOf": rfc3339(run.as_of),
        "startedAt": rfc3339(run.started_at),
        "finishedAt": None if run.finished_at is None else rfc3339(run.finished_at),
        "principal": run.principal,
        "error": run.error,
    }


def never_run(cluster: str, name: str) -> str:
    """Return the message for a rollup without a result, with the command that makes one."""
    return f"The rollup {name} was never run on {cluster}; run `{ROLLUPS[name].command} --cluster {cluster}`"


def csv_of(rollup: Rollup, rows: Iterable[Mapping[str, Any]], *, header: bool = True) -> str:
    """Return stored rows as CSV (RFC 4180): names of columns as in the job, and nothing where there is no value."""
    text = io.StringIO()
    writer = csv.writer(text)
    if header:
        writer.writerow(column.name for column in rollup.columns)
    for row in rows:
        writer.writerow(_plain(value) for value in row_of(rollup, row).values())
    return text.getvalue()


def _plain(value: Any) -> Any:
    if isinstance(value, list):
        return " ".join(value)
    if isinstance(value, bool):
        return str(value).lower()
    return plain_number(value) if isinstance(value, float) else value


def _value(column: Column, text: str, name: str, pointer: str | None = None) -> Any:
    """Read a value of a column's type, as its rows hold it."""
    try:
        if column.is_revision and text.startswith("-"):
            raise ValueError(text)  # noqa: TRY301 - the except below makes the message
        return _READERS[column.type](text)
    except (ValueError, OverflowError):
        raise InvalidRequestError(
            f"{name} is not {_FORMS[column.type]}: {text[:100]!a}", pointer=pointer or name
        ) from None


def _integer(text: str) -> int:
    if not _INTEGER.fullmatch(text):
        raise ValueError(text)
    return int(text)


def _number(text: str) -> float:
    if not _NUMBER.fullmatch(text) or (found := float(text)) in _INFINITE:
        raise ValueError(text)
    return found


def _boolean(text: str) -> bool:
    if text not in {"true", "false"}:
        raise ValueError(text)
    return text == "true"


def _date(text: str) -> str:
    if not _DATE.fullmatch(text):
        raise ValueError(text)
    return date.fromisoformat(text).isoformat()


def _time(text: str) -> str:
    found = datetime.fromisoformat(text.upper())
    if found.tzinfo is None:
        raise ValueError(text)
    return found.astimezone(UTC).isoformat(timespec="microseconds").replace("+00:00", "Z")


MOST_SORTED: Final = 200_000
"""Maximum number of rows that a request may have sorted, which takes about half a second."""
_NULLS: Final = re.compile(r"\s*(\w+)\s+is\s+(not\s+)?null\s*", re.ASCII | re.IGNORECASE)
_COMPARISON: Final = re.compile(r"\s*(\w+)\s*(<=|>=|<|>)\s*(.+?)\s*", re.ASCII)
_RANGED: Final = frozenset({ColumnType.INT, ColumnType.LONG, ColumnType.DOUBLE, ColumnType.DATE, ColumnType.TIMESTAMP})
_INTEGER: Final = re.compile(r"-?[0-9]{1,19}", re.ASCII)
_NUMBER: Final = re.compile(r"-?[0-9]{1,400}(\.[0-9]{1,400})?([eE][+-]?[0-9]{1,3})?", re.ASCII)
_DATE: Final = re.compile(r"[0-9]{4}-[0-9]{2}-[0-9]{2}", re.ASCII)
_INFINITE: Final = (float("inf"), float("-inf"))
_READERS: Final[Mapping[ColumnType, Callable[[str], Any]]] = {
    ColumnType.STRING: str,
    ColumnType.TEXTS: lambda text: [text],
    ColumnType.INT: _integer,
    ColumnType.LONG: _integer,
    ColumnType.DOUBLE: _number,
    ColumnType.BOOLEAN: _boolean,
    ColumnType.DATE: _date,
    ColumnType.TIMESTAMP: _time,
}
_FORMS: Final = {
    ColumnType.INT: "a whole number",
    ColumnType.LONG: "a whole number",
    ColumnType.DOUBLE: "a number",
    ColumnType.BOOLEAN: "true or false",
    ColumnType.DATE: "a date such as 2026-01-31",
    ColumnType.TIMESTAMP: "a time with its offset (RFC 3339), such as 2026-01-31T12:00:00Z",
}
