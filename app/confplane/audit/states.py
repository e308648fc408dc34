"""The recorder's rows in Postgres: the last state of each entity that the trail explains, and the watermark.

A state moves in the same statement that writes the rows that explain it, and only from the state on which the decision
was based. So if two recorders see the same versions, one moves the state and writes the rows, and the other does
neither.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

import orjson
from sqlalchemy import Text, Uuid, bindparam, text
from sqlalchemy.dialects.postgresql import ARRAY
from sqlalchemy.exc import DBAPIError
from typing_extensions import override

from confplane.audit.batcher import Batcher
from confplane.audit.database import SERVER
from confplane.audit.ownerships import ownership_of
from confplane.audit.store_positions import CURRENT_INCARNATION
from confplane.audit.trail_queries import TIME_SHIFT
from confplane.domain.ownership import OwnershipClaim
from confplane.domain.texts import LONGEST_INDEXED
from confplane.domain.znode_versions import OwnWrite, Point
from confplane.services.cooperative_yielding import in_slices
from confplane.services.ports.recording import (
    FACET,
    RECOVERED,
    SOURCE,
    EntityStates,
    OpenWrite,
    RefusedError,
    Watermark,
)

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from datetime import datetime
    from uuid import UUID

    from sqlalchemy import Row

    from confplane.audit.database import Database
    from confplane.services.ports.recording import Key, Move

_TEXTS: Final = ARRAY(Text)
_OWN_PAGE: Final = 1_000
_OPEN_PAGE: Final = 50_000
_PRUNED: Final = 1_000

_COLUMNS: Final = f"""
  cluster, revision, complete, CAST(extract(epoch FROM now() - recorded_at) AS float8) AS age, since, since_at,
  {SERVER} AS server
"""

_WATERMARKS: Final = text(f"SELECT {_COLUMNS} FROM watermarks WHERE cluster = ANY(:clusters)").bindparams(  # noqa: S608 - a constant
    bindparam("clusters", type_=_TEXTS)
)

# In the order of their names, because another process may advance the same clusters.
_ADVANCE: Final = text(f"""
INSERT INTO watermarks AS known (cluster, revision, complete)
SELECT cluster, revision, complete FROM jsonb_to_recordset(CAST(:given AS jsonb)) AS given(
  cluster text, revision bigint, complete boolean, server text)
WHERE coalesce({SERVER} = server, true) ORDER BY cluster
ON CONFLICT (cluster) DO UPDATE SET
  revision = greatest(known.revision, excluded.revision), complete = known.complete OR excluded.complete,
  recorded_at = now(),
  since = CASE
    WHEN excluded.complete AND NOT known.complete THEN greatest(known.revision, excluded.revision) ELSE known.since
  END,
  since_at = CASE WHEN excluded.complete AND NOT known.complete THEN now() ELSE known.since_at END
RETURNING {_COLUMNS}
""")  # noqa: S608 - a constant

# OFFSET 0 keeps each subquery an index lookup; as a join it may read the whole table.
_KNOWN: Final = text("""
SELECT given.tree, given.entity_id, present, czxid, version, mzxid, owners, labels,
  CASE WHEN :whole THEN content END AS content
FROM unnest(:trees, :ids) AS given(tree, entity_id) CROSS JOIN LATERAL (
  SELECT present, czxid, version, mzxid, owners, labels, content FROM entity_states AS state
  WHERE state.cluster = :cluster AND state.tree = given.tree AND state.entity_id = given.entity_id OFFSET 0
) AS state
""").bindparams(bindparam("trees", type_=_TEXTS), bindparam("ids", type_=_TEXTS))

_PRESENT: Final = text("""
SELECT entity_id FROM entity_states
WHERE cluster = :cluster AND tree = :tree AND entity_id > :after AND present ORDER BY entity_id LIMIT :size
""")

# Committed changes of this service, by the paths that they wrote.
_OWN_OF: Final = f"""
WITH given AS MATERIALIZED (
  SELECT change_id, attempt, revision, time, versions, remade FROM outcomes
  WHERE cluster = :cluster AND committed AND incarnation = {CURRENT_INCARNATION} AND {{which}}
)
SELECT
  (SELECT count(*) FROM given) AS found,
  given.change_id, given.revision, CAST(extract(epoch FROM given.time) * 1000 AS bigint) AS time_ms,
  CAST(given.versions -> entity.path AS integer) AS version, entity.entity_id, entity.path, entity.version_read,
  entity.czxid_read, entity.claim, CAST(given.remade -> entity.path AS bigint) AS remade
FROM given LEFT JOIN LATERAL (
  SELECT entity_id, path, version_read, czxid_read, claim FROM intent_entities
  WHERE change_id = given.change_id AND attempt = given.attempt AND facet <> :facet OFFSET 0
) AS entity ON true
ORDER BY given.revision
"""  # noqa: S608 - a constant
_OWN: Final = text(_OWN_OF.format(which="revision > :above ORDER BY revision FETCH FIRST (:size) ROWS WITH TIES"))
_OWN_AT: Final = text(_OWN_OF.format(which="revision = ANY(:revisions)"))

_CONTENTS: Final = text(f"""
SELECT outcomes.revision, entity.path, entity.entity_id, entity.before, entity.after
FROM outcomes JOIN intent_entities AS entity USING (change_id, attempt)
WHERE outcomes.cluster = :cluster AND committed AND revision = ANY(:revisions) AND facet <> :facet
  AND incarnation = {CURRENT_INCARNATION}
""")  # noqa: S608 - a constant

# Changes of this service that may explain a version later: the recent changes that are still open, which are few. Read
# in pages, because a watermark may be old.
_OPEN: Final = text("""
WITH given AS MATERIALIZED (
  SELECT change_id, attempt, recorded_at FROM intents
  WHERE cluster = :cluster
    AND recorded_at >= coalesce(
      CAST(:since AS timestamptz),
      (SELECT recorded_at - make_interval(secs => :margin) FROM watermarks WHERE cluster = :cluster)
    )
  ORDER BY recorded_at FETCH FIRST (:size) ROWS WITH TIES
), found AS (
  SELECT DISTINCT entity.entity_id, entity.path, entity.version_read IS NULL AS creates
  FROM given CROSS JOIN LATERAL (
    SELECT entity_id, path, version_read FROM intent_entities
    WHERE change_id = given.change_id AND attempt = given.attempt OFFSET 0
  ) AS entity
  WHERE NOT EXISTS (SELECT FROM outcomes WHERE outcomes.change_id = given.change_id OFFSET 0)
    AND (CAST(:ids AS text[]) IS NULL OR entity.entity_id = ANY(:ids)
      OR entity.version_read IS NULL AND split_part(entity.entity_id, ',', 1) = ANY(:ids))
)
SELECT
  (SELECT count(*) FROM given), (SELECT max(recorded_at) FROM given),
  (SELECT coalesce(jsonb_agg(jsonb_build_array(entity_id, path, creates)), '[]') FROM found)
""").bindparams(bindparam("ids", type_=_TEXTS))

_KNOWN_IDS: Final = text("""
SELECT given.change_id FROM unnest(:ids) AS given(change_id)
WHERE EXISTS (SELECT FROM intents WHERE intents.change_id = given.change_id AND kind <> :recovered OFFSET 0)
""").bindparams(bindparam("ids", type_=ARRAY(Uuid)))

# In batches, so that each statement is short.
_PRUNE: Final = text("""
WITH given AS MATERIALIZED (
  SELECT tree, entity_id FROM entity_states
  WHERE cluster = :cluster AND NOT present AND accounted_at < now() - make_interval(secs => :age)
  LIMIT :size
)
DELETE FROM entity_states AS state USING given
WHERE state.cluster = :cluster AND state.tree = given.tree AND state.entity_id = given.entity_id
  AND NOT present AND accounted_at < now() - make_interval(secs => :age)
""")

_MOVE: Final = text(f"""
WITH given AS MATERIALIZED (
  SELECT * FROM jsonb_to_recordset(CAST(:rows AS jsonb)) AS row(
    tree text, entity_id text, was_present boolean, was_czxid bigint, was_version integer,
    present boolean, czxid bigint, version integer, mzxid bigint, content jsonb, owners jsonb, labels jsonb,
    changes jsonb)
  WHERE {SERVER} = :server
), updated AS (
  UPDATE entity_states AS state SET
    present = given.present, czxid = given.czxid, version = given.version, mzxid = given.mzxid,
    content = given.content, owners = given.owners, labels = given.labels, accounted_at = now()
  FROM given
  WHERE state.cluster = :cluster AND state.tree = given.tree AND state.entity_id = given.entity_id
    AND state.present = given.was_present AND state.czxid = given.was_czxid AND state.version = given.was_version
  RETURNING state.tree, state.entity_id
), inserted AS (
  INSERT INTO entity_states (
    cluster, tree, entity_id, present, czxid, version, mzxid, content, owners, labels, first_version, first_czxid)
  SELECT :cluster, tree, entity_id, present, czxid, version, mzxid, content, owners, labels, version, czxid
  FROM given WHERE was_present IS NULL
  ON CONFLICT DO NOTHING
  RETURNING tree, entity_id
), moved AS (
  SELECT * FROM updated UNION ALL SELECT * FROM inserted
), changes AS MATERIALIZED (
  SELECT given.tree, given.entity_id, change.*
  FROM given JOIN moved USING (tree, entity_id)
  CROSS JOIN LATERAL jsonb_to_recordset(given.changes) AS change(
    change_id uuid, path text, revision bigint, time_ms bigint, writes integer, version_read integer,
    czxid_read bigint, versions jsonb, keys text[], before jsonb, after jsonb, reason text,
    kind text, attempt integer, principal text, writer text, request_id text, "position" integer)
), new_intents AS (
  INSERT INTO intents (
    change_id, attempt, cluster, principal, writer, source, request_id, reason, kind, writes)
  SELECT change_id, attempt, :cluster, principal, writer, :source, request_id, reason, kind, writes FROM changes
  ON CONFLICT DO NOTHING
), new_entities AS (
  INSERT INTO intent_entities (
    change_id, attempt, position, cluster, entity_id, facet, path, version_read, czxid_read, keys, ops, before, after)
  SELECT
    change_id, attempt, "position", :cluster, entity_id, :facet, path, version_read, czxid_read, keys, '[]', before,
    after
  FROM changes
  ON CONFLICT DO NOTHING
), new_keys AS (
  INSERT INTO change_keys (cluster, key, change_id)
  SELECT :cluster, named.key, changes.change_id FROM changes CROSS JOIN LATERAL unnest(changes.keys) AS named(key)
  WHERE octet_length(named.key) <= {LONGEST_INDEXED}
  ON CONFLICT DO NOTHING
), new_outcomes AS (
  INSERT INTO outcomes (change_id, attempt, cluster, committed, revision, time, versions, incarnation)
  SELECT change_id, attempt, :cluster, true, revision, to_timestamp(time_ms / 1000.0), versions, :incarnation
  FROM changes
  ON CONFLICT DO NOTHING
)
SELECT tree, entity_id FROM moved
""")  # noqa: S608 - a constant


class PostgresEntityStates(EntityStates):
    """The states of entities that the trail explains, in Postgres."""

    def __init__(self, database: Database) -> None:
        self._database = database
        self._watermarks = Batcher(self._read_watermarks)
        self._advances = Batcher(self._advance)

    @override
    async def watermark(self, cluster: str) -> Watermark | None:
        return await self._watermarks.request(cluster)

    async def _read_watermarks(self, clusters: Sequence[str]) -> list[Watermark | None]:
        return _watermarks(clusters, await self._database.rows(_WATERMARKS, clusters=list(clusters)))

    @override
    async def advance(self, cluster: str, revision: int, *, complete: bool, server: str | None) -> Watermark | None:
        return await self._advances.request(
            {"cluster": cluster, "revision": revision, "complete": complete, "server": server}
        )

    async def _advance(self, given: Sequence[Mapping[str, Any]]) -> list[Watermark | None]:
        rows = await self._database.rows(_ADVANCE, given=orjson.dumps(given).decode())
        return _watermarks([each["cluster"] for each in given], rows)

    @override
    async def known(self, cluster: str, keys: Sequence[Key], *, whole: bool) -> dict[Key, Point]:
        trees, ids = [tree for tree, _ in keys], [entity_id for _, entity_id in keys]
        rows = await self._database.rows(_KNOWN, cluster=cluster, whole=whole, trees=trees, ids=ids)
        return dict(await in_slices(_known, rows))

    @override
    async def present(self, cluster: str, tree: str, after: str, size: int) -> list[str]:
        return await self._database.scalars(_PRESENT, cluster=cluster, tree=tree, after=after, size=size)

    @override
    async def own(self, cluster: str, above: int) -> tuple[list[tuple[str, str, OwnWrite]], int | None]:
        rows = await self._database.rows(_OWN, cluster=cluster, above=above, size=_OWN_PAGE, facet=FACET)
        return await _own_writes(rows), rows[-1].revision if rows and rows[0].found >= _OWN_PAGE else None

    @override
    async def own_at(self, cluster: str, revisions: Sequence[int]) -> list[tuple[str, str, OwnWrite]]:
        rows = await self._database.rows(_OWN_AT, cluster=cluster, revisions=list(revisions), facet=FACET)
        return await _own_writes(rows)

    @override
    async def contents(self, cluster: str, revisions: Sequence[int]) -> dict[tuple[int, str], tuple[Any, Any]]:
        rows = await self._database.rows(_CONTENTS, cluster=cluster, revisions=list(revisions), facet=FACET)
        return {(row.revision, row.path): (row.before, row.after) for row in rows}

    @override
    async def open(self, cluster: str, ids: Sequence[str] | None, margin_s: float) -> set[OpenWrite]:
        given = {"cluster": cluster, "ids": ids, "margin": margin_s, "size": _OPEN_PAGE}
        found: set[OpenWrite] = set()
        since: datetime | None = None
        while True:
            [row] = await self._database.rows(_OPEN, **given, since=since)
            size, last, writes = tuple(row)
            found.update(OpenWrite(*write) for write in writes)
            # A page has all rows of its last recorded time, and the next page begins with that time.
            if size < _OPEN_PAGE or last == since:
                return found
            since = last

    @override
    async def lost(self, change_ids: Sequence[UUID]) -> list[UUID]:
        known = set(await self._database.scalars(_KNOWN_IDS, ids=list(change_ids), recovered=RECOVERED))
        return [change_id for change_id in change_ids if change_id not in known]

    @override
    async def prune(self, cluster: str, age_s: float) -> int:
        return await self._database.execute(_PRUNE, cluster=cluster, age=age_s, size=_PRUNED)

    @override
    async def move(self, cluster: str, moves: Sequence[Move], *, server: str, incarnation: int) -> set[Key]:
        try:
            rows = orjson.dumps([_row(move) for move in moves]).decode()
        except orjson.JSONEncodeError:
            raise RefusedError("it is not Unicode text") from None
        given = {"cluster": cluster, "rows": rows, "source": SOURCE, "facet": FACET, "server": server}
        try:
            moved = await self._database.rows(_MOVE, **given, incarnation=incarnation)
        except DBAPIError as error:
            # The error's text may hold content of the row.
            raise RefusedError(type(error.orig).__name__) from None
        return {(row.tree, row.entity_id) for row in moved}


def _known(row: Row[Any]) -> tuple[Key, Point]:
    content, ownership = row.content or {}, ownership_of(row.owners, row.labels)
    return (row.tree, row.entity_id), Point(row.present, row.czxid, row.version, row.mzxid, content, ownership)


async def _own_writes(rows: Sequence[Row[Any]]) -> list[tuple[str, str, OwnWrite]]:
    return await in_slices(_own_write, [row for row in rows if row.path is not None])


def _own_write(row: Row[Any]) -> tuple[str, str, OwnWrite]:
    return (
        row.entity_id,
        row.path,
        OwnWrite(
            row.revision,
            row.time_ms,
            row.change_id.int >> TIME_SHIFT,
            row.version_read,
            row.czxid_read if row.remade is None else row.remade,
            row.version,
            unseen=row.remade is not None,
            claim=None if row.claim is None else OwnershipClaim.from_json(row.claim),
        ),
    )


def _watermarks(clusters: Sequence[str], rows: Sequence[Row[Any]]) -> list[Watermark | None]:
    """Return the watermarks of clusters in their order; None for a cluster without a row."""
    found = {
        row.cluster: Watermark(row.revision, row.complete, row.age, row.server, row.since, row.since_at) for row in rows
    }
    return [found.get(cluster) for cluster in clusters]


def _row(move: Move) -> dict[str, Any]:
    was, now = move.before, move.after
    return {
        "tree": move.key[0],
        "entity_id": move.key[1],
        "was_present": None if was is None else was.present,
        "was_czxid": None if was is None else was.czxid,
        "was_version": None if was is None else was.version,
        "present": now.present,
        "czxid": now.czxid,
        "version": now.version,
        "mzxid": now.mzxid,
        "content": now.content,
        # NULL, so that the partial index has only entities with an owner.
        "owners": now.ownership.owners or None,
        "labels": now.ownership.labels or None,
        "changes": move.changes,
    }
