"""Results of rollups for the API and the commands, and the runs that made them.

The runner of a job publishes rows under a run's id. All rows of a run appear at once, when the run is complete. Of a
job's complete runs the run with the latest ``as_of`` is **current**, whichever ended last.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from datetime import UTC, date, datetime
from typing import TYPE_CHECKING, Any, Final

from confplane.domain.access.operations import Operation, ResourceType
from confplane.domain.access.ranges import spell
from confplane.domain.entities import Entity
from confplane.domain.errors import InvalidRequestError
from confplane.domain.rollups import ROLLUPS, ColumnType

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from confplane.domain.access.ranges import NameRanges
    from confplane.domain.rollups import Column, Rollup
    from confplane.services.access import Access


@dataclass(frozen=True, slots=True)
class RollupSelection:
    """The selected rows of a rollup: the filters of a :class:`RowQuery`."""

    entity_id: str | None
    members: Mapping[str, Any]


def selection(rollup: Rollup, given: Mapping[str, str]) -> RollupSelection:
    """Read filters: columns, by either of their names, and the text of a value.

    A filter of a column of several texts selects rows that have the text among them.

    Raises:
        InvalidRequestError: No such column, or a value that is not of its type.
    """
    columns = {name: column for column in rollup.columns for name in (column.name, column.member)}
    entity_id: str | None = None
    members: dict[str, Any] = {}
    for name, text in given.items():
        column = columns.get(name)
        if column is None:
            known = ", ".join(column.name for column in rollup.columns)
            raise InvalidRequestError(
                f"The rollup {rollup.name} has no column {name[:100]!a}; it has: {known}", pointer=name[:100]
            )
        if column.name == rollup.entity:
            # The row of the whole cluster, in rollups that have one, has no id.
            entity_id = Entity.from_id(text, pointer=name).id if text else ""
        else:
            members[column.name] = _value(column, text, name)
    return RollupSelection(entity_id, members)


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
    return {column.name: stored.get(column.name) for column in rollup.columns}


def item_of(rollup: Rollup, stored: Mapping[str, Any]) -> dict[str, Any]:
    """Return a stored row as JSON shows it: in camelCase, and revisions as decimal strings."""
    row = row_of(rollup, stored)
    return {
        column.member: str(row[column.name])
        if column.is_revision and row[column.name] is not None
        else row[column.name]
        for column in rollup.columns
    }


def never_run(cluster: str, name: str) -> str:
    """Return the message for a rollup without a result, with the command that makes one."""
    return f"The rollup {name} was never run on {cluster}; run `{ROLLUPS[name].command} --cluster {cluster}`"


def _value(column: Column, text: str, name: str) -> Any:
    """Read a value of a column's type, as its rows hold it."""
    try:
        if column.is_revision and text.startswith("-"):
            raise ValueError(text)  # noqa: TRY301 - the except below makes the message
        return _READERS[column.type](text)
    except (ValueError, OverflowError):
        raise InvalidRequestError(f"{name} is not {_FORMS[column.type]}: {text[:100]!a}", pointer=name) from None


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
