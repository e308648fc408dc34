"""The history of a cluster's changes in Postgres: short index queries, run by the driver."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from confplane.rollups.sources.postgres import literal
from confplane.rollups.sources.tables import time_of

if TYPE_CHECKING:
    from datetime import datetime

    from confplane.rollups.sources.postgres import ReadOnlyTransaction
    from confplane.rollups.sources.tables import TableScope


@dataclass(frozen=True, slots=True)
class PostgresHistory:
    """The changes of a moment; see :class:`confplane.rollups.reading.History`."""

    _postgres: ReadOnlyTransaction
    _scope: TableScope

    def oldest(self, recorded_since: datetime) -> datetime | None:
        """Return the time of the oldest change or refused attempt with a row that was recorded since then."""
        recorded = f"recorded_at >= {literal(recorded_since)}"
        return _begin(
            self._first_id("intents", recorded),
            self._first_id("outcomes", recorded),
            self._first_id("refused_attempts", recorded, key="id"),
        )

    def lowest_revision(self, recorded_since: datetime) -> int | None:
        """Return the lowest revision of the changes that received their outcome since then."""
        query = f"SELECT min(revision) {self._rows('outcomes')} AND committed"
        [(found,)] = self._postgres.rows(f"{query} AND recorded_at >= {literal(recorded_since)}")
        return None if found is None else int(found)

    def first_above(self, revision: int) -> datetime | None:
        """Return the start time of the oldest change with a higher revision."""
        return _begin(self._first_id("outcomes", f"committed AND revision > {literal(revision)}"))

    def last_until(self, time: datetime) -> int | None:
        """Return the highest revision up to a time."""
        # Found from above, by the index of revisions.
        query = f"SELECT revision {self._rows('outcomes')} AND committed AND time <= {literal(time)}"
        found = self._postgres.rows(f"{query} ORDER BY revision DESC LIMIT 1")
        return int(found[0][0]) if found else None

    def _first_id(self, table: str, condition: str, *, key: str = "change_id") -> str | None:
        [(first,)] = self._postgres.rows(f"SELECT min({key}::text) {self._rows(table)} AND {condition}")
        return None if first is None else str(first)

    def _rows(self, table: str) -> str:
        until = "" if self._scope.as_of is None else f" AND recorded_at <= {literal(self._scope.as_of)}"
        return f"FROM {table} WHERE cluster = {literal(self._scope.cluster)}{until}"


def _begin(*ids: str | None) -> datetime | None:
    return min((time_of(each) for each in ids if each is not None), default=None)
