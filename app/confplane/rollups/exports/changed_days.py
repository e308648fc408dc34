"""The days whose changes in the lake differ from those in Postgres, found by the horizon of commits.

Rows do not commit in the order of their ids and times. An export records the oldest transaction that was still open at
its snapshot. Each row that the snapshot did not see belongs to that transaction or a later one. So the next export
checks the transaction of each row, which Postgres stores with the row (``xmin``), and does not rely on times.
"""

from __future__ import annotations

from datetime import UTC, date, datetime, timedelta
from typing import TYPE_CHECKING, Any, Final
from uuid import UUID

from confplane.rollups.reading import LATE
from confplane.rollups.sources.postgres import literal
from confplane.rollups.sources.tables import first_id_at

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from confplane.rollups.sources.postgres import ReadOnlyTransaction

_DAY: Final = timedelta(days=1)
_EPOCH: Final = date(1970, 1, 1)
_DAY_OF_ID: Final = "('x' || left(change_id::text, 8) || substr(change_id::text, 10, 4))::bit(48)::bigint / 86400000"
# A row has the low half of its transaction's number; the full number is at most that of the snapshot.
_NEXT: Final = "pg_snapshot_xmax(pg_current_snapshot())::text::bigint"
_BEHIND: Final = f"mod(mod({_NEXT} - xmin::text::bigint, 4294967296) + 4294967296, 4294967296)"
_TRANSACTION: Final = f"{_NEXT} - {_BEHIND}"


def history(postgres: ReadOnlyTransaction, cluster: str) -> dict[str, str | None]:
    """Return the members of a position that name a history of Postgres: both remain until a failover or a restore."""
    # `confplane restore` replaces the rows of the same server, and may use ids again.
    stores = postgres.rows(f"SELECT id FROM store_positions WHERE cluster = {literal(cluster)}")  # noqa: S608 - a literal, quoted
    return {"lineage": _lineage(postgres), "incarnation": stores[0][0] if stores else None}


def _lineage(postgres: ReadOnlyTransaction) -> str:
    """Return the name of a server's history: a failover, or a restore from the log or a dump, starts a new one."""
    # A timeline switch reaches the control file later, but a standby has no other source.
    [(found,)] = postgres.rows(
        "SELECT system_identifier::text || '/' || CASE WHEN pg_is_in_recovery() THEN timeline_id"
        " ELSE ('x' || left(pg_walfile_name(pg_current_wal_lsn()), 8))::bit(32)::integer END"
        " FROM pg_control_system(), pg_control_checkpoint()"
    )
    return str(found)


def position(postgres: ReadOnlyTransaction, cluster: str) -> dict[str, Any]:
    """Return the position of an export at a snapshot: its horizon and the newest change."""
    [(horizon,)] = postgres.rows("SELECT pg_snapshot_xmin(pg_current_snapshot())::text")
    newest = postgres.rows(
        f"SELECT change_id::text FROM intents WHERE cluster = {literal(cluster)} ORDER BY recorded_at DESC LIMIT 1"  # noqa: S608 - a literal, quoted
    )
    return {"horizon": horizon, "newest": newest[0][0] if newest else None, **history(postgres, cluster)}


def changed_days(
    postgres: ReadOnlyTransaction, cluster: str, since: Mapping[str, Any], as_of: datetime, open_days: Iterable[date]
) -> set[date] | None:
    """Return the days with changes that are new, or that received their outcome.

    Args:
        postgres: A transaction at the snapshot of this export.
        cluster: The cluster.
        since: The :func:`position` of the last export.
        as_of: The moment of the last export.
        open_days: Days with changes that had no outcome then. Only these can receive one.

    Returns:
        The days, UTC; None if Postgres was restored to an earlier state, and all days have to be exported.
    """
    name, horizon = literal(cluster), literal(int(since["horizon"]))
    [(next_transaction,)] = postgres.rows(f"SELECT {_NEXT}")
    if int(since["horizon"]) > next_transaction or not _is_there(postgres, cluster, since["newest"]):
        return None
    recorded = f"recorded_at >= {literal(as_of - LATE)} AND {_TRANSACTION} >= {horizon}"
    found = postgres.rows(
        f"SELECT DISTINCT {_DAY_OF_ID} FROM intents WHERE cluster = {name} AND {recorded}"  # noqa: S608 - literals, quoted
    )
    days = {_EPOCH + int(number) * _DAY for (number,) in found}
    for day in {*open_days} - days:
        begin = datetime(day.year, day.month, day.day, tzinfo=UTC)
        ids = f"change_id >= {literal(_first_id(begin))} AND change_id < {literal(_first_id(begin + _DAY))}"
        query = f"SELECT 1 FROM outcomes WHERE cluster = {name} AND {ids} AND {_TRANSACTION} >= {horizon} LIMIT 1"  # noqa: S608 - literals, quoted
        if postgres.rows(query):
            days.add(day)
    return days


def _first_id(moment: datetime) -> UUID:
    return UUID(first_id_at(moment))


def _is_there(postgres: ReadOnlyTransaction, cluster: str, change_id: str | None) -> bool:
    if change_id is None:
        return True
    query = (
        f"SELECT 1 FROM intents WHERE cluster = {literal(cluster)} AND change_id = {literal(UUID(change_id))} LIMIT 1"  # noqa: S608 - literals, quoted
    )
    return bool(postgres.rows(query))
