"""The committed changes of a cluster in the order of the feed, in Postgres."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any, Final
from uuid import UUID

import orjson
from sqlalchemy import Text, Uuid, bindparam, text
from sqlalchemy.dialects.postgresql import ARRAY, TIMESTAMP
from typing_extensions import override

from confplane.audit.batcher import Batcher
from confplane.audit.change_requests import state_after
from confplane.audit.trail_queries import first_id_at
from confplane.domain.access.identities import SERVICE
from confplane.domain.change_requests import PUBLISHED, RequestAction, event_type
from confplane.services.ports.feed import (
    REQUEST,
    FeedChange,
    FeedEntity,
    FeedRequest,
    FeedTrail,
    UnsettledWrite,
    is_complete,
)
from confplane.services.ports.trail import END_OF_HISTORY, EXTERNAL, PUT_BACK, HistoryPlace

if TYPE_CHECKING:
    from collections.abc import Collection, Sequence
    from datetime import datetime

    from sqlalchemy import Row

    from confplane.audit.database import Database

# OFFSET 0 keeps each subquery an index lookup.
_WHOLE: Final = """
SELECT given.*, CAST(extract(epoch FROM given.time) * 1000 AS bigint) AS time_ms, intent.kind, intent.principal,
  intent.behalf_of, intent.reason, intent.ticket, intent.ends, intent.writes,
  CAST(floor(extract(epoch FROM intent.revert_at) * 1000) AS bigint) AS revert_at_ms,
  coalesce(entity.found, '[]') AS entities
FROM given
JOIN LATERAL (
  SELECT kind, principal, behalf_of, reason, ticket, ends, revert_at, writes FROM intents
  WHERE intents.change_id = given.change_id ORDER BY attempt DESC LIMIT 1
) AS intent ON true
CROSS JOIN LATERAL (
  SELECT jsonb_agg(jsonb_build_object(
    'entity_id', entity_id, 'path', path, 'version_read', version_read, 'czxid_read', czxid_read,
    'keys', to_jsonb(keys), 'before', before, 'after', after, 'op', ops -> 0 ->> 'op') ORDER BY position) AS found
  FROM intent_entities WHERE change_id = given.change_id AND attempt = given.attempt OFFSET 0
) AS entity
ORDER BY given.revision, given.change_id
"""
_COLUMNS: Final = "change_id, attempt, revision, time, versions, remade, incarnation"

_CHANGES: Final = text(f"""
WITH given AS MATERIALIZED (
  SELECT {_COLUMNS} FROM outcomes
  WHERE cluster = :cluster AND committed AND incarnation = :incarnation AND revision BETWEEN :revision AND :until
    AND (revision > :revision OR change_id > :change_id)
  ORDER BY revision, change_id LIMIT :size
)
{_WHOLE}
""")  # noqa: S608 - constants of this module

# The kind is a constant, so that a prepared statement uses the partial index (audit/tables.py, FROM_OUTSIDE).
# A position has its time from its client, who may have changed it: the place bounds how far back it may be.
# Of an entity only the last one comes, as a complete state. A process that gave a position after a change of ours to
# the entity had delivered the external changes before it as well. The id of a later change is from its begin, at most
# an hour before this one.
_LATE: Final = text(f"""
WITH late AS MATERIALIZED (
  SELECT {_COLUMNS} FROM outcomes
  WHERE cluster = :cluster AND committed AND incarnation = :incarnation AND (revision <= :revision OR revision > :above)
    AND change_id = ANY(ARRAY(
      SELECT change_id FROM intents
      WHERE cluster = :cluster AND kind = '{EXTERNAL}' AND recorded_at >= greatest(:since, (
        SELECT time FROM outcomes
        WHERE cluster = :cluster AND committed AND incarnation = :incarnation AND revision <= :revision
        ORDER BY revision DESC LIMIT 1) - interval '1 day')))
), given AS MATERIALIZED (
  SELECT page.*, EXISTS (
    SELECT FROM intent_entities AS entity
    CROSS JOIN LATERAL (
      SELECT change_id, attempt, path FROM intent_entities AS changed
      WHERE changed.cluster = :cluster AND changed.entity_id = entity.entity_id
        AND changed.change_id >= CAST(lpad(to_hex(CAST(
          extract(epoch FROM page.time - interval '1 hour') * 1000 AS bigint)), 12, '0') || repeat('0', 20) AS uuid)
      OFFSET 0
    ) AS changed
    CROSS JOIN LATERAL (
      SELECT revision FROM outcomes
      WHERE change_id = changed.change_id AND attempt = changed.attempt AND committed AND incarnation = :incarnation
      OFFSET 0
    ) AS outcome
    WHERE entity.change_id = page.change_id AND changed.path = entity.path AND outcome.revision > page.revision
      AND (outcome.revision <= :revision OR outcome.revision > :above AND EXISTS (
        SELECT FROM intents WHERE intents.change_id = changed.change_id AND kind = '{EXTERNAL}'))
  ) AS replaced
  FROM (
    SELECT * FROM late WHERE revision > :after_revision OR (revision = :after_revision AND change_id > :after_id)
    ORDER BY revision, change_id LIMIT :size
  ) AS page
)
{_WHOLE}
""").bindparams(bindparam("since", type_=TIMESTAMP(timezone=True)), bindparam("after_id", type_=Uuid))  # noqa: S608 - as above

# A put-back is no version of an entity, and so has no revision. Its time is the one at which it was recorded.
_PUT_BACKS: Final = text(f"""
WITH given AS MATERIALIZED (
  SELECT change_id, attempt, CAST(0 AS bigint) AS revision, recorded_at AS time, CAST('{{}}' AS jsonb) AS versions,
    CAST(NULL AS jsonb) AS remade, 0 AS incarnation
  FROM intents
  WHERE cluster = :cluster AND kind = '{PUT_BACK}' AND recorded_at >= :since AND change_id > :after
  ORDER BY change_id LIMIT :size
)
{_WHOLE}
""").bindparams(bindparam("since", type_=TIMESTAMP(timezone=True)), bindparam("after", type_=Uuid))  # noqa: S608 - as above

_OPEN: Final = text("""
SELECT DISTINCT entity.change_id, entity.path FROM unnest(:ids) AS given(entity_id) CROSS JOIN LATERAL (
  SELECT change_id, path FROM intent_entities
  WHERE cluster = :cluster AND intent_entities.entity_id = given.entity_id AND change_id >= :floor OFFSET 0
) AS entity
WHERE NOT EXISTS (SELECT FROM outcomes WHERE outcomes.change_id = entity.change_id OFFSET 0)
""").bindparams(bindparam("ids", type_=ARRAY(Text)))


# The content of a request is that of the present: nobody else than its readers gets its events. Texts about an earlier
# content are left out, which these may not see.
_REQUESTS: Final = text(f"""
SELECT wanted.position, found.* FROM jsonb_to_recordset(CAST(:wanted AS jsonb)) AS wanted(
  position integer, cluster text, after bigint, until bigint, size integer
) CROSS JOIN LATERAL (
  SELECT events.number, events.id, events.request_id, events.action, events.revision, events.state,
    CAST(extract(epoch FROM events.at) * 1000 AS bigint) AS time_ms, events.principal, events.behalf_of,
    CASE WHEN events.revision = requests.revision THEN events.text END AS comment,
    requests.entity_ids, requests.content ->> 'kind' AS kind,
    requests.content -> 'authors' -> 0 -> 'identity' ->> 'principal' AS author, requests.content ->> 'reason' AS reason,
    requests.content ->> 'ticket' AS ticket, requests.content ->> 'change_id' AS change_id,
    outcomes.incarnation, outcomes.revision AS applied
  FROM change_request_events AS events JOIN change_requests AS requests ON requests.id = events.request_id
  LEFT JOIN outcomes ON events.action = 'finish' AND outcomes.committed
    AND outcomes.change_id = CAST(requests.content ->> 'change_id' AS uuid)
  WHERE events.cluster = wanted.cluster AND events.number > wanted.after AND events.number <= wanted.until
    AND events.action IN {PUBLISHED}
  ORDER BY events.number LIMIT wanted.size
) AS found
ORDER BY wanted.position, found.number
""")  # noqa: S608 - as above
_NEWEST_REQUEST: Final = text("SELECT number FROM change_request_numbers WHERE cluster = :cluster")


class PostgresFeedTrail(FeedTrail):
    """The trail as the changes of the feed, in Postgres."""

    def __init__(self, database: Database) -> None:
        self._database = database
        self._requests = Batcher(self._requests_of)

    @override
    async def changes(self, cluster: str, after: HistoryPlace, until: int, size: int) -> list[FeedChange]:
        return [
            _change(row)
            for row in await self._database.rows(_CHANGES, cluster=cluster, until=until, size=size, **after._asdict())
        ]

    @override
    async def late(
        self, cluster: str, place: HistoryPlace, since: datetime, after: HistoryPlace, size: int, *, above: int
    ) -> tuple[list[FeedChange], HistoryPlace | None]:
        given: dict[str, Any] = {"incarnation": place.incarnation, "revision": place.revision, "since": since}
        given |= {"above": above, "after_revision": after.revision, "after_id": after.change_id, "size": size}
        rows = await self._database.rows(_LATE, cluster=cluster, **given)
        changes = [_change(row) for row in rows if not row.replaced]
        next_ = HistoryPlace(after.incarnation, rows[-1].revision, rows[-1].change_id) if len(rows) == size else None
        return [
            replace(each, entities=[replace(one, complete=True) for one in each.entities]) for each in changes
        ], next_

    @override
    async def put_backs(self, cluster: str, since: datetime, after: UUID, size: int) -> list[FeedChange]:
        given: dict[str, Any] = {"since": since, "after": after, "size": size}
        return [_change(row) for row in await self._database.rows(_PUT_BACKS, cluster=cluster, **given)]

    @override
    async def requests(self, cluster: str, after: int, until: int, size: int) -> list[FeedChange]:
        return await self._requests.request({"cluster": cluster, "after": after, "until": until, "size": size})

    async def _requests_of(self, wanted: Sequence[dict[str, Any]]) -> Sequence[list[FeedChange]]:
        given = orjson.dumps([{"position": position, **each} for position, each in enumerate(wanted)]).decode()
        found: list[list[FeedChange]] = [[] for _ in wanted]
        for row in await self._database.rows(_REQUESTS, wanted=given):
            found[row.position].append(_request_event(row))
        return found

    @override
    async def newest_request(self, cluster: str) -> int:
        row = await self._database.row(_NEWEST_REQUEST, cluster=cluster)
        return 0 if row is None else int(row.number)

    @override
    async def unsettled_writes(self, cluster: str, ids: Collection[str], since: datetime) -> list[UnsettledWrite]:
        rows = await self._database.rows(_OPEN, cluster=cluster, ids=list(ids), floor=first_id_at(since))
        return [UnsettledWrite(row.change_id, row.path) for row in rows]


def _change(row: Row[Any]) -> FeedChange:
    return FeedChange(
        HistoryPlace(row.incarnation, row.revision, row.change_id),
        row.time_ms,
        row.kind,
        row.principal,
        row.behalf_of,
        row.reason,
        row.ticket,
        _entities(row),
        row.revert_at_ms,
        row.ends,
    )


def _request_event(row: Row[Any]) -> FeedChange:
    applied, state = None, state_after(row.action, row.state)
    if row.applied is not None:
        applied = HistoryPlace(row.incarnation, row.applied, UUID(row.change_id))
    elif row.action == RequestAction.FINISH and row.change_id is not None:
        applied = END_OF_HISTORY
    request = FeedRequest(
        row.request_id,
        row.number,
        event_type(row.kind, row.action, state),
        state,
        row.kind,
        row.author,
        row.revision,
        row.entity_ids,
        row.comment,
        applied,
    )
    return FeedChange(
        HistoryPlace(0, 0, row.id),
        row.time_ms,
        REQUEST,
        row.principal or SERVICE,
        row.behalf_of,
        row.reason,
        row.ticket,
        (),
        request=request,
    )


def _entities(row: Row[Any]) -> Sequence[FeedEntity]:
    return [_entity(row, each, row.versions.get(each["path"])) for each in row.entities]


def _entity(row: Row[Any], entity: dict[str, Any], version: int | None) -> FeedEntity:
    remade = (row.remade or {}).get(entity["path"])
    complete = remade is not None or (row.kind == EXTERNAL and is_complete(row.writes, version))
    return FeedEntity(**entity, version=version, remade=remade, complete=complete)
