"""Client reports on the configs that they have applied: served from memory, and shared through Postgres.

A report with new content is written within about a second. A report that repeats the last one is written after two
minutes, so that other replicas, and this one after a restart, know that the client is still running. So the number of
rows written is bounded by the number of clients, regardless of how often they poll.

Rows are written under one advisory lock, held to the end of the statement: the order of versions is therefore the order
of commits, and "versions above the last one read" misses no row of other replicas.
"""

from __future__ import annotations

import time
from collections import OrderedDict
from enum import Enum
from functools import lru_cache
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from sortedcontainers import SortedDict
from sqlalchemy import text
from typing_extensions import override

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


MAX_PER_ENTITY: Final = 10_000
"""Maximum number of instances of one entity."""
_SHARE: Final = 8
"""A user with all of its client-ids gets at most this part of the instances, and of the characters."""
_SHARED: Final = 4_096
"""Maximum number of distinct lists of refusals that are stored once for all clients with the same list."""


class Instance(NamedTuple):
    """The last report of one running client."""

    report: AppliedReport
    reported_ms: int
    """The time of the report, in milliseconds since the epoch."""
    shared_ms: int
    """The time of the report that was last shared with the other replicas, in milliseconds since the epoch."""


class Room(Enum):
    """The answer to whether a report fits."""

    FREE = "free"
    USER_FULL = "user full"
    FULL = "full"


class _Usage(NamedTuple):
    """The instances of a user, and the characters of their refusals."""

    instances: int = 0
    characters: int = 0


class AppliedView:
    """The last reports by cluster, entity and instance.

    Args:
        max_instances: Maximum number of instances, of which a user gets an eighth.
        max_characters: Maximum number of characters of all refusals together, of which a user gets an eighth.
    """

    def __init__(self, max_instances: int, max_characters: int) -> None:
        self._max_instances = max_instances
        self._max_characters = max_characters
        self._clusters: dict[str, SortedDict[str, dict[str, Instance]]] = {}
        self._order: OrderedDict[tuple[str, str, str], int] = OrderedDict()
        """The number of characters of each instance's refusals. The instance with the oldest report is first."""
        self._characters = 0
        self._users: dict[tuple[str, str], _Usage] = {}

    def __len__(self) -> int:
        return len(self._order)

    def find(self, cluster: str, entity_id: str, instance_id: str) -> Instance | None:
        """Return the last report of an instance."""
        return self._instances(cluster, entity_id).get(instance_id)

    def room(self, cluster: str, entity_id: str, instance_id: str, report: AppliedReport) -> Room:
        """Return whether a report fits in place of the instance's last one."""
        key = cluster, entity_id, instance_id
        is_new = key not in self._order
        grown = _characters(report) - self._order.get(key, 0)
        usage = self._users.get((cluster, _user(entity_id)), _Usage())
        if is_new and (
            usage.instances >= max(1, self._max_instances // _SHARE)
            or len(self._instances(cluster, entity_id)) >= MAX_PER_ENTITY
        ):
            return Room.USER_FULL
        if grown > 0 and usage.characters + grown > self._max_characters // _SHARE:
            return Room.USER_FULL
        if self._characters + grown > self._max_characters or (is_new and len(self._order) >= self._max_instances):
            return Room.FULL
        return Room.FREE

    def put(self, cluster: str, entity_id: str, instance_id: str, given: Instance) -> bool:
        """Store a report in place of the instance's last one. Return False if there is no room."""
        key = cluster, entity_id, instance_id
        report = given.report
        if self.room(*key, report) is not Room.FREE:
            return False
        instances = self._clusters.setdefault(cluster, SortedDict()).setdefault(entity_id, {})
        instances[instance_id] = given._replace(report=report._replace(refused=_shared(report.refused)))
        size = _characters(report)
        self._count(cluster, entity_id, int(key not in self._order), size - self._order.get(key, 0))
        self._order[key] = size
        self._order.move_to_end(key)
        return True

    def _count(self, cluster: str, entity_id: str, instances: int, characters: int) -> None:
        self._characters += characters
        user = cluster, _user(entity_id)
        usage = self._users.get(user, _Usage())
        usage = _Usage(usage.instances + instances, usage.characters + characters)
        if usage.instances:
            self._users[user] = usage
        else:
            del self._users[user]

    def forget(self, before_ms: int) -> None:
        """Drop the reports from before a time, in milliseconds since the epoch."""
        while self._order:
            cluster, entity_id, instance_id = key = next(iter(self._order))
            entities = self._clusters[cluster]
            instances = entities[entity_id]
            if instances[instance_id].reported_ms >= before_ms:
                return
            self._count(cluster, entity_id, -1, -self._order.pop(key))
            del instances[instance_id]
            if not instances:
                del entities[entity_id]

    def entities(self, cluster: str, entity_id: str) -> list[str]:
        """Return the ids with reports: that of an entity and, if it is a user, those of the user's client-ids."""
        entities = self._clusters.get(cluster)
        if entities is None:
            return []
        # "-" is the character after ",".
        pairs = entities.irange(f"{entity_id},", f"{entity_id}-", inclusive=(True, False))
        return [*([entity_id] if entity_id in entities else []), *pairs]

    def of_entity(self, cluster: str, entity_id: str, since_ms: int) -> list[AppliedReport]:
        """Return the reports on an entity since a time, in milliseconds since the epoch."""
        return [each.report for each in self._instances(cluster, entity_id).values() if each.reported_ms >= since_ms]

    def _instances(self, cluster: str, entity_id: str) -> dict[str, Instance]:
        entities = self._clusters.get(cluster)
        return {} if entities is None else entities.get(entity_id, {})


def _user(entity_id: str) -> str:
    return entity_id.partition(",")[0]


def _characters(report: AppliedReport) -> int:
    return sum(len(refusal.key) + len(refusal.reason) for refusal in report.refused)


@lru_cache(_SHARED)
def _shared(refused: tuple[Refusal, ...]) -> tuple[Refusal, ...]:
    """Return one shared object for equal lists: thousands of clients of one release report the same refusals."""
    return refused


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
