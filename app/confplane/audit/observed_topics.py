"""The tables ``observed_topics`` and ``topic_polls``: the topics of Kafka clusters without ZooKeeper."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from sqlalchemy import text
from typing_extensions import override

from confplane.services.ports.observed_topics import ObservedTopics, TopicPoll, TopicRows

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from confplane.audit.database import Database

PAGE: Final = 20_000
"""Rows in one read, at most."""

_POLL: Final = text("""
SELECT polled_at, topics FROM topic_polls WHERE cluster = :cluster AND polled_at IS NOT NULL
""")
_BEGIN: Final = text(
    "INSERT INTO topic_polls (cluster, version, topics) VALUES (:cluster, 0, 0) ON CONFLICT DO NOTHING"
)
_VERSION: Final = text("SELECT version FROM topic_polls WHERE cluster = :cluster")
_ROWS: Final = text("""
SELECT name, topic_id FROM observed_topics WHERE cluster = :cluster AND name > :after ORDER BY name LIMIT :most
""")
# One statement, so that it is atomic. The row of the version is locked first, and concurrent writers wait for it.
_WRITE: Final = text("""
WITH written AS (
  UPDATE topic_polls SET version = version + 1, polled_at = coalesce(CAST(:polled_at AS timestamptz), polled_at),
    topics = coalesce(CAST(:topics AS bigint), topics)
  WHERE cluster = :cluster AND version = :version RETURNING cluster
), put AS (
  INSERT INTO observed_topics (cluster, name, topic_id)
  SELECT cluster, given.name, given.topic_id
  FROM written, unnest(CAST(:names AS text[]), CAST(:ids AS text[])) AS given (name, topic_id)
  ON CONFLICT (cluster, name) DO UPDATE SET topic_id = excluded.topic_id
), gone AS (
  DELETE FROM observed_topics USING written
  WHERE observed_topics.cluster = written.cluster AND observed_topics.name = ANY(CAST(:gone AS text[]))
)
SELECT cluster FROM written
""")


class PostgresObservedTopics(ObservedTopics):
    """The topics of observed clusters, in Postgres."""

    def __init__(self, database: Database) -> None:
        self._database = database

    @override
    async def poll(self, cluster: str) -> TopicPoll | None:
        row = await self._database.row(_POLL, cluster=cluster)
        return None if row is None else TopicPoll(row.polled_at, row.topics)

    @override
    async def load(self, cluster: str) -> TopicRows:
        await self._database.execute(_BEGIN, cluster=cluster)
        # Before the rows: if another process writes in the meantime, the next write notices the version.
        [version] = await self._database.scalars(_VERSION, cluster=cluster)
        ids: dict[str, str] = {}
        after: str | None = ""
        while after is not None:
            rows = await self._database.rows(_ROWS, cluster=cluster, after=after, most=PAGE)
            ids.update((row.name, row.topic_id) for row in rows)
            after = rows[-1].name if len(rows) == PAGE else None
        return TopicRows(version, ids)

    @override
    async def write(
        self, cluster: str, version: int, put: Mapping[str, str], gone: Sequence[str], poll: TopicPoll | None
    ) -> bool:
        found = await self._database.scalars(
            _WRITE,
            cluster=cluster,
            version=version,
            names=list(put),
            ids=list(put.values()),
            gone=list(gone),
            polled_at=None if poll is None else poll.polled_at,
            topics=None if poll is None else poll.topics,
        )
        return bool(found)
