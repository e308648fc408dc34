"""Client reports on the configs that they have applied: served from memory, and shared through Postgres.

A report with new content is written within about a second. A report that repeats the last one is written after two
minutes, so that other replicas, and this one after a restart, know that the client is still running. So the number of
rows written is bounded by the number of clients, regardless of how often they poll.

Rows are written under one advisory lock, held to the end of the statement: the order of versions is therefore the order
of commits, and "versions above the last one read" misses no row of other replicas.
"""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Any, Final

from sqlalchemy import text
from typing_extensions import override

from confplane.audit.applied_view import AppliedView, Instance, Room
from confplane.audit.write_behind_buffer import WriteBehindBuffer, WriteBehindOptions
from confplane.domain.errors import LimitExceededError, UnavailableError
from confplane.services.ports.applied import KEPT_S, AppliedReport, AppliedReports, Refusal

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from sqlalchemy import Row
    from sqlalchemy.ext.asyncio import AsyncConnection

    from confplane.audit.database import Database
    from confplane.audit.group_commit import WritePartition
    from confplane.services.metrics import Sample

_MAX_INSTANCES: Final = 250_000
_MAX_CHARACTERS: Final = 64_000_000
_ROWS_PER_READ: Final = 1_000
_KEPT_MS: Final = KEPT_S * 1000
_SHARED_EVERY_MS: Final = 120_000
"""Milliseconds after which a report that repeats the last one is written. A replica that receives no reports from a
client itself may forget the client this much earlier."""
_PURGED_EVERY_MS: Final = 60_000
_FULL_RETRY_S: Final = 60

SERIAL_LOCK: Final = 7305084165
"""The advisory lock under which rows are written and deleted."""
_SERIAL: Final = f"serial AS MATERIALIZED (SELECT pg_advisory_xact_lock({SERIAL_LOCK}))"

_WRITE: Final = text(f"""
WITH {_SERIAL}
INSERT INTO applied_reports AS known (
  cluster, entity_id, instance_id, software_name, software_version, applied_revision, refused, reported_at)
SELECT
  given.cluster, given.entity_id, given.instance_id, given.software_name, given.software_version,
  given.applied_revision, given.refused, to_timestamp(given.reported_ms / 1000.0)
FROM serial CROSS JOIN jsonb_to_recordset(CAST(:rows AS jsonb)) AS given(
  cluster text, entity_id text, instance_id text, software_name text, software_version text,
  applied_revision bigint, refused jsonb, reported_ms bigint)
ON CONFLICT (cluster, entity_id, instance_id) DO UPDATE SET
  software_name = excluded.software_name, software_version = excluded.software_version,
  applied_revision = excluded.applied_revision, refused = excluded.refused, reported_at = excluded.reported_at,
  version = excluded.version
WHERE known.reported_at <= excluded.reported_at
""")  # noqa: S608 - put together from constants

_READ: Final = text("""
SELECT
  version, cluster, entity_id, instance_id, software_name, software_version, applied_revision, refused,
  CAST(round(extract(epoch FROM reported_at) * 1000) AS bigint) AS reported_ms
FROM applied_reports WHERE version > :after ORDER BY version LIMIT :count
""")

# Deletions and writes lock the same rows in different orders; the lock keeps them from running concurrently.
_PURGE: Final = text(f"""
WITH {_SERIAL}
DELETE FROM applied_reports USING serial WHERE reported_at < to_timestamp(:before_ms / 1000.0)
""")  # noqa: S608 - put together from constants


_Key = tuple[str, str, str]
"""Cluster, entity id, instance id."""


class PostgresAppliedReports(AppliedReports):
    """The reports of clients, in Postgres.

    Args:
        database: The database.
        partition: The write partition of its writes; None: one of its own.
        options: Pauses between writes and between reads.
        max_instances: Maximum number held in memory, about 700 bytes each, of which a user gets an eighth; reports of
            further instances are refused.
        max_characters: Maximum number of characters of all refusals together, of which a user gets an eighth; reports
            with more are refused.
        clock: Seconds since the epoch.
    """

    def __init__(
        self,
        database: Database,
        *,
        partition: WritePartition | None = None,
        options: WriteBehindOptions = WriteBehindOptions(max_pending=_MAX_INSTANCES),  # noqa: B008 - nothing alters it
        max_instances: int = _MAX_INSTANCES,
        max_characters: int = _MAX_CHARACTERS,
        clock: Callable[[], float] = time.time,
    ) -> None:
        self._database = database
        self._buffer: WriteBehindBuffer[_Key] = WriteBehindBuffer(
            database, _WRITE, kind="applied_reports", options=options, partition=partition
        )
        self._view = AppliedView(max_instances, max_characters)
        self._clock = clock
        self._read_up_to = 0
        self._purged_ms = 0

    async def start(self) -> None:
        """Start the background tasks; Postgres may be down."""
        self._buffer.start(self._refresh)

    async def close(self) -> None:
        """Stop, and write the pending reports, as :meth:`WriteBehindBuffer.close` does."""
        await self._buffer.close()

    def metrics(self) -> Iterator[Sample]:
        """Return the metrics."""
        yield from self._buffer.metrics(len(self._view))

    @override
    def report(self, cluster: str, entity_id: str, instance_id: str, report: AppliedReport) -> bool:
        key = cluster, entity_id, instance_id
        known, now_ms = self._view.find(*key), self._now_ms()
        if known is not None:
            now_ms = max(now_ms, known.reported_ms)  # a clock may be set back
            if known.report == report and now_ms - known.shared_ms < _SHARED_EVERY_MS:
                self._view.put(*key, known._replace(reported_ms=now_ms))
                return False
        room = self._view.room(*key, report)
        if room is Room.USER_FULL:
            self._buffer.drop(len(self._view))
            raise LimitExceededError(
                "There is no room for the reports of further clients of this user, or for further refusals of configs;"
                f" clients that are silent are forgotten after {KEPT_S // 60} minutes",
                throttle_ms=_FULL_RETRY_S * 1000,
            )
        if room is Room.FULL or not self._buffer.has_room(key):
            self._buffer.drop(len(self._view))
            raise UnavailableError(
                "There is no room for the reports of further clients; those that are silent are forgotten after"
                f" {KEPT_S // 60} minutes",
                retry_after_s=_FULL_RETRY_S,
            )
        self._view.put(*key, Instance(report, now_ms, now_ms))
        self._buffer.add(
            key,
            {
                "cluster": cluster,
                "entity_id": entity_id,
                "instance_id": instance_id,
                "software_name": report.software_name,
                "software_version": report.software_version,
                "applied_revision": report.applied_revision,
                "refused": [tuple(refusal) for refusal in report.refused],
                "reported_ms": now_ms,
            },
        )
        return True

    @override
    def reported(self, cluster: str, entity_id: str) -> Sequence[str]:
        return self._view.entities(cluster, entity_id)

    @override
    def of_entity(self, cluster: str, entity_id: str) -> Sequence[AppliedReport]:
        return self._view.of_entity(cluster, entity_id, self._now_ms() - _KEPT_MS)

    # -- Postgres to memory

    async def _refresh(self) -> None:
        await self._read_new()
        now_ms = self._now_ms()
        self._view.forget(now_ms - _KEPT_MS)
        if now_ms - self._purged_ms >= _PURGED_EVERY_MS:
            await self._purge(now_ms - _KEPT_MS)
            self._purged_ms = now_ms

    async def _read_new(self) -> None:
        """Apply the rows after the last one read; at the start, all rows."""
        since_ms = self._now_ms() - _KEPT_MS
        while True:
            rows = await self._database.rows(_READ, after=self._read_up_to, count=_ROWS_PER_READ)
            for row in rows:
                self._read_up_to = row.version
                if row.reported_ms >= since_ms:
                    self._take(row)
            if len(rows) < _ROWS_PER_READ:
                return

    def _take(self, row: Row[Any]) -> None:
        key = row.cluster, row.entity_id, row.instance_id
        known = self._view.find(*key)
        if known is not None and known.reported_ms >= row.reported_ms:
            return  # the row is older, or this process wrote it
        refused = tuple(Refusal(*each) for each in row.refused)
        report = AppliedReport(row.software_name, row.software_version, row.applied_revision, refused)
        if not self._view.put(*key, Instance(report, row.reported_ms, row.reported_ms)):
            self._buffer.drop(len(self._view))

    async def _purge(self, before_ms: int) -> None:
        async def delete(connection: AsyncConnection) -> None:
            # May run twice if a reply is lost: the second run finds no rows.
            await connection.execute(_PURGE, {"before_ms": before_ms})

        await self._database.read(delete)

    def _now_ms(self) -> int:
        return int(self._clock() * 1000)
