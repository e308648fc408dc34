"""The frames of Postgres as SQL: their columns, and the query of one range of keys.

Names of tables and columns are those of audit/tables.py.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from math import ceil
from typing import TYPE_CHECKING, Any, Final
from uuid import UUID

from confplane.rollups import schemas
from confplane.rollups.sources.postgres import literal

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from pyspark.sql.types import StructType

_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)
_TIME_BITS, _OTHER_BITS = 48, 80


@dataclass(frozen=True, slots=True)
class TableScope:
    """The rows of the tables that a run reads."""

    cluster: str
    as_of: datetime | None
    """The moment after which rows are omitted; None if only the snapshot decides."""
    last_registration: int
    """The id of the last event that is read."""
    reported_since: datetime
    """The time of the oldest report that is read, aware."""


@dataclass(frozen=True, slots=True)
class KeyRange:
    """Keys from ``low`` up to but not including ``high``, as texts; None for no bound."""

    low: str | None = None
    high: str | None = None

    def of(self, key: str, as_sql: Callable[[str], str]) -> str:
        """Return the condition that a column is in the range, to append to a conjunction."""
        low = "" if self.low is None else f" AND {key} >= {as_sql(self.low)}"
        high = "" if self.high is None else f" AND {key} < {as_sql(self.high)}"
        return low + high


@dataclass(frozen=True, slots=True)
class Table:
    """A frame.

    Attributes:
        schema: The schema of the frame.
        columns: Column -> SQL.
        rows: (cut, range) -> the text after SELECT and the columns, ending with a condition.
        sampled: The table whose keys are sampled to divide the frame evenly, and the key as SQL, in its own order.
        key: A key as a text -> SQL.
        order: Keys as texts -> their sort keys.
    """

    schema: StructType
    columns: Mapping[str, str]
    rows: Callable[[TableScope, KeyRange], str]
    sampled: tuple[str, str]
    key: Callable[[str], str]
    order: Callable[[str], Any]

    def query(self, names: Sequence[str], scope: TableScope, keys: KeyRange) -> str:
        """Return the query of some columns of one range."""
        columns = ", ".join(f"{self.columns[name]} AS {name}" for name in names)
        return f"SELECT {columns} {self.rows(scope, keys)}"

    def pages(self, scope: TableScope, numbers: Sequence[int]) -> str:
        """Return the query of the keys on pages of the table, as an array for each page that has any."""
        table, key = self.sampled
        given = ",".join(map(str, numbers))
        # A range of TIDs reads only its page.
        return f"""
SELECT page.keys FROM unnest('{{{given}}}'::bigint[]) AS number CROSS JOIN LATERAL (
  SELECT array_agg({key}) AS keys FROM {table}
  WHERE cluster = {literal(scope.cluster)}
    AND ctid >= format('(%s,0)', number)::tid AND ctid < format('(%s,0)', number + 1)::tid
) AS page WHERE page.keys IS NOT NULL"""  # noqa: S608

    def every(self, count: int, keys: KeyRange) -> str:
        """Return the query of every n-th key of a range, in order, for all clusters together."""
        table, key = self.sampled
        column = key.partition("::")[0]
        return f"""
SELECT {key} FROM (
  SELECT {column}, row_number() OVER (ORDER BY {column}) AS number FROM {table}
  WHERE true{keys.of(column, self.key)}
) AS numbered WHERE number % {count} = 0 ORDER BY number"""  # noqa: S608

    def size(self) -> str:
        """Return the query of the table's number of pages."""
        table = literal(self.sampled[0])
        return f"SELECT pg_relation_size({table}::regclass) / current_setting('block_size')::bigint"


def first_id_at(moment: datetime) -> str:
    """Return the lowest change id at or after a moment."""
    milliseconds = ceil((moment - _EPOCH) / timedelta(milliseconds=1))
    return str(UUID(int=min(max(milliseconds, 0), (1 << _TIME_BITS) - 1) << _OTHER_BITS))


def time_of(change_id: str) -> datetime:
    """Return the time in a change id."""
    return _EPOCH + (UUID(change_id).int >> _OTHER_BITS) * timedelta(milliseconds=1)


def _prefixed(alias: str, *names: str) -> dict[str, str]:
    return {name: f"{alias}.{name}" for name in names}


def _until(column: str, scope: TableScope) -> str:
    return "" if scope.as_of is None else f" AND {column} <= {literal(scope.as_of)}"


def _uuid(text: str) -> str:
    return literal(UUID(text))


def _changes(scope: TableScope, keys: KeyRange) -> str:
    cluster = literal(scope.cluster)
    # Each table has the range itself: the planner does not apply it across a join.
    intent, entity, outcome = (keys.of(f"{each}.change_id", _uuid) for each in ("intent", "entity", "outcome"))
    return f"""
FROM intents AS intent
JOIN intent_entities AS entity ON entity.change_id = intent.change_id AND entity.attempt = intent.attempt{entity}
LEFT JOIN outcomes AS outcome
  ON outcome.change_id = intent.change_id AND outcome.cluster = {cluster}{_until("outcome.recorded_at", scope)}{outcome}
WHERE intent.cluster = {cluster}{intent}{_until("intent.recorded_at", scope)}
  AND intent.attempt = coalesce(outcome.attempt, (
    SELECT max(attempt) FROM intents AS any_attempt
    WHERE any_attempt.change_id = intent.change_id{_until("any_attempt.recorded_at", scope)}))"""  # noqa: S608


def _events(scope: TableScope, keys: KeyRange) -> str:
    return f"FROM registrations WHERE cluster = {literal(scope.cluster)} AND id <= {scope.last_registration}" + keys.of(
        "id", lambda key: literal(int(key))
    )


def _states(scope: TableScope, keys: KeyRange) -> str:
    return f"FROM entity_states WHERE cluster = {literal(scope.cluster)}" + keys.of("entity_id", literal)


def _refused_attempts(scope: TableScope, keys: KeyRange) -> str:
    cluster = f"cluster = {literal(scope.cluster)}"
    return f"FROM refused_attempts WHERE {cluster}{_until('recorded_at', scope)}" + keys.of("id", _uuid)


def _reports(scope: TableScope, keys: KeyRange) -> str:
    since = f" AND reported_at >= {literal(scope.reported_since)}"
    return f"FROM applied_reports WHERE cluster = {literal(scope.cluster)}{since}" + keys.of("entity_id", literal)


def _topics(scope: TableScope, keys: KeyRange) -> str:
    polled = "FROM observed_topics JOIN topic_polls USING (cluster)"
    return f"{polled} WHERE cluster = {literal(scope.cluster)} AND polled_at IS NOT NULL" + keys.of("name", literal)


_COMMITTED: Final = "CASE WHEN outcome.committed THEN {} END"

TABLES: Final[Mapping[str, Table]] = {
    "changes": Table(
        schema=schemas.CHANGES,
        columns={
            "change_id": "intent.change_id::text",
            "created_at": "uuid_send(intent.change_id)",  # parsed on the worker
            **_prefixed(
                "intent", "attempt", "kind", "recorded_at", "principal", "source", "request_id", "reason", "ticket",
                "writes",
            ),
            **_prefixed("entity", "position", "entity_id", "facet", "path", "version_read", "keys"),
            "czxid_read": "coalesce((outcome.remade -> entity.path)::bigint, entity.czxid_read)",
            **{name: f"entity.{name}::text" for name in ("ops", "before", "after")},
            "outcome": f"CASE WHEN outcome.committed THEN {literal(schemas.COMMITTED)}"
            f" WHEN outcome.committed IS NULL THEN {literal(schemas.OPEN)} ELSE {literal(schemas.REJECTED)} END",
            "revision": _COMMITTED.format("outcome.revision"),
            "time": _COMMITTED.format("outcome.time"),
            "version": _COMMITTED.format("(outcome.versions ->> entity.path)::integer"),
            **_prefixed("outcome", "error_code", "error"),
            "concluded_at": "outcome.recorded_at",
        },
        rows=_changes,
        sampled=("intent_entities", "change_id::text"),
        key=_uuid,
        order=str,
    ),
    "refused_attempts": Table(
        schema=schemas.REFUSED_ATTEMPTS,
        columns={name: name for name in schemas.REFUSED_ATTEMPTS.names}
        | {"id": "id::text", "created_at": "uuid_send(id)"},
        rows=_refused_attempts,
        sampled=("refused_attempts", "id::text"),
        key=_uuid,
        order=str,
    ),
    "registration_events": Table(
        schema=schemas.REGISTRATION_EVENTS,
        columns={name: name for name in schemas.REGISTRATION_EVENTS.names},
        rows=_events,
        sampled=("registrations", "id"),
        key=lambda key: literal(int(key)),
        order=int,
    ),
    "reports": Table(
        schema=schemas.REPORTS,
        columns={name: name for name in schemas.REPORTS.names}
        | {"refused_configs": "ARRAY(SELECT refusal ->> 0 FROM jsonb_array_elements(refused) AS refusal)"},
        rows=_reports,
        sampled=("applied_reports", "entity_id"),
        key=literal,
        order=str,
    ),
    "states": Table(
        schema=schemas.STATES,
        columns={name: name for name in schemas.STATES.names} | {"content": "content::text"},
        rows=_states,
        sampled=("entity_states", "entity_id"),
        key=literal,
        order=str,
    ),
    "topics": Table(
        schema=schemas.TOPICS,
        columns={"entity_id": "'topic=' || name", "polled_at": "polled_at"},
        rows=_topics,
        sampled=("observed_topics", "name"),
        key=literal,
        order=str,
    ),
}  # fmt: skip

SAMPLED: Final = tuple(table.sampled[0] for table in TABLES.values())
"""The tables that show the size of a trail."""
