"""Moves the states of an earlier release, which are JSON in the table ``target_states``, into the present tables.

Until the move they are read where they are, by processes that serve next to those of that release.

Each transaction moves some entities completely, so a process may be killed at any time. An entity that has a state
already gets the earlier one only if that has a later revision, and otherwise only its values that may still arrive. So
nothing is lost if a process of the earlier release that was paused writes a row after the move, because it sends
nothing.

Remove this module with the table, once no release that writes it can be upgraded from.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from sqlalchemy import Text, bindparam, text
from sqlalchemy.dialects.postgresql import ARRAY

from confplane.audit.tables import UNIQUE_KEY

if TYPE_CHECKING:
    from confplane.audit.database import Database, Pipeline

_AT_ONCE: Final = 500
"""Entities in one transaction."""
_OLD: Final = "target_states AS old WHERE cluster = :cluster AND entity_id = ANY(:ids)"

_LOCK: Final = text(f"""
SELECT entity_id FROM target_states WHERE cluster = :cluster ORDER BY entity_id LIMIT {_AT_ONCE} FOR UPDATE
""")  # noqa: S608 - a constant
_ENTITIES: Final = f"""
SELECT
  cluster, entity_id, sent_mzxid, coalesce(applied_mzxid, 0) AS applied_mzxid, applied_offset, topic_id,
  claim AS delivery_id, refused_code, refused_text
FROM {_OLD} ORDER BY entity_id
"""  # noqa: S608 - constants
# A value counts as taken at an offset unless a later one may have arrived since.
_KEYS: Final = f"""
SELECT cluster, entity_id, key,
  CASE
    WHEN jsonb_exists(reapply, key) THEN 'resend'
    WHEN jsonb_typeof(drift -> key -> 'refused') = 'object' THEN 'refused'
    ELSE coalesce(drift -> key ->> 'cause', CASE WHEN jsonb_exists(applied, key) THEN 'applied' ELSE 'observed' END)
  END AS state,
  jsonb_exists(applied, key) AS taken, applied ->> key AS value,
  CASE WHEN last.item -> 'value' = applied -> key THEN CAST(last.item ->> 'taken' AS bigint) END AS "offset",
  to_timestamp(CAST(last.item ->> 'at' AS double precision)) AS delivered_at,
  drift -> key ->> 'theirs' AS theirs,
  to_timestamp(CAST(drift -> key ->> 'since_ms' AS bigint) / 1000.0) AS since,
  drift -> key -> 'refused' ->> 'value' AS refused_value,
  CAST(drift -> key -> 'refused' ->> 'code' AS integer) AS refused_code,
  drift -> key -> 'refused' ->> 'text' AS refused_text,
  CAST(drift -> key -> 'refused' ->> 'absent' AS boolean) AS refused_absent,
  ARRAY(
    SELECT to_timestamp(CAST(at AS double precision))
    FROM jsonb_array_elements_text(coalesce(put_back_at -> key, '[]')) AS at
  ) AS put_back_at,
  base -> key ->> 'value' AS base_value, CAST(base -> key ->> 'offset' AS bigint) AS base_offset
FROM (SELECT * FROM {_OLD}) AS old
CROSS JOIN LATERAL (
  SELECT DISTINCT key FROM (
    SELECT jsonb_object_keys(applied || drift || put_back_at || base) AS key
    UNION SELECT jsonb_array_elements_text(reapply)
  ) AS named
) AS keys
LEFT JOIN LATERAL (
  SELECT item FROM jsonb_array_elements(sent) WITH ORDINALITY AS item(item, number)
  WHERE item ->> 'key' = key AND (
    item -> 'taken' IS NOT NULL OR coalesce(CAST(item ->> 'open' AS integer), 1) > 0)
  ORDER BY number DESC LIMIT 1
) AS last ON true
"""  # noqa: S608 - constants
# A value has the number of its deliveries without an outcome; one of a still earlier release counts as one.
_DELIVERIES: Final = f"""
SELECT cluster, entity_id, sent_mzxid AS mzxid, gen_random_uuid() AS id, item ->> 'key' AS key,
  item ->> 'value' AS value, to_timestamp(CAST(item ->> 'at' AS double precision)) AS sent_at,
  CASE
    WHEN open > 0 THEN NULL WHEN item -> 'taken' IS NOT NULL THEN 'applied'
    WHEN refused_code IS NOT NULL THEN 'refused' ELSE 'not-sent'
  END AS outcome
FROM (SELECT * FROM {_OLD}) AS old
CROSS JOIN LATERAL jsonb_array_elements(sent) AS item
CROSS JOIN LATERAL (SELECT coalesce(CAST(item ->> 'open' AS integer), 1) AS open) AS counted
CROSS JOIN LATERAL generate_series(1, greatest(open, 1))
"""  # noqa: S608 - constants
# Added and locked before the revisions are compared. Those of earlier states begin with 0.
_ADD: Final = f"""
INSERT INTO applied_entities (cluster, entity_id, sent_mzxid)
SELECT cluster, entity_id, -1 FROM {_OLD} ORDER BY entity_id COLLATE "C"
ON CONFLICT DO NOTHING
"""  # noqa: S608 - constants
_LOCK_ADDED: Final = """
SELECT FROM applied_entities WHERE cluster = :cluster AND entity_id = ANY(:ids) ORDER BY entity_id FOR UPDATE
"""
_PRESENT: Final = """(
  SELECT FROM applied_entities AS present
  WHERE present.cluster = :cluster AND present.entity_id = old.entity_id AND present.sent_mzxid >= old.sent_mzxid)"""
_INSERT_KEYS: Final = f"""
INSERT INTO applied_keys AS known (
  cluster, entity_id, key, state, taken, value, "offset", delivered_at, theirs, since, refused_value, refused_code,
  refused_text, refused_absent, put_back_at, base_value, base_offset)
{_KEYS} WHERE NOT EXISTS {_PRESENT}
ON CONFLICT {UNIQUE_KEY} DO UPDATE SET
  state = excluded.state, taken = excluded.taken, value = excluded.value, "offset" = excluded."offset",
  delivered_at = excluded.delivered_at, theirs = excluded.theirs, since = excluded.since,
  refused_value = excluded.refused_value, refused_code = excluded.refused_code, refused_text = excluded.refused_text,
  refused_absent = excluded.refused_absent, put_back_at = excluded.put_back_at, base_value = excluded.base_value,
  base_offset = excluded.base_offset
"""
_UPDATE_ENTITIES: Final = f"""
UPDATE applied_entities AS known SET
  sent_mzxid = old.sent_mzxid, applied_mzxid = greatest(known.applied_mzxid, old.applied_mzxid),
  applied_offset = greatest(known.applied_offset, old.applied_offset),
  topic_id = coalesce(old.topic_id, known.topic_id), delivery_id = old.delivery_id, refused_code = old.refused_code,
  refused_text = old.refused_text
FROM ({_ENTITIES}) AS old
WHERE known.cluster = :cluster AND known.entity_id = old.entity_id AND known.sent_mzxid < old.sent_mzxid
"""  # noqa: S608 - constants
_INSERT_DELIVERIES: Final = f"""
INSERT INTO deliveries (cluster, entity_id, mzxid, id, key, value, sent_at, outcome) {_DELIVERIES}
"""
_DELETE: Final = "DELETE FROM target_states WHERE cluster = :cluster AND entity_id = ANY(:ids)"
MOVE: Final = [
    text(each).bindparams(bindparam("ids", type_=ARRAY(Text)))
    for each in (_ADD, _LOCK_ADDED, _INSERT_KEYS, _UPDATE_ENTITIES, _INSERT_DELIVERIES, _DELETE)
]
UNMOVED: Final = f"SELECT * FROM {_OLD} AND NOT EXISTS {_PRESENT}"  # noqa: S608 - constants
"""SQL for the states that were not moved yet, below ``unmoved``. A present row may be one of an earlier period."""
UNMOVED_ENTITIES, UNMOVED_KEYS, UNMOVED_DELIVERIES = (
    each.replace(_OLD, "unmoved AS old") for each in (_ENTITIES, _KEYS, _DELIVERIES)
)
"""SQL for their rows, like those of the present tables."""

_OF_TYPES: Final = "cluster = :cluster AND substring(entity_id FROM '^[a-z-]+') = ANY(:types)"
# Values that may still arrive are kept for any ensemble.
FORGET: Final = text(f"""
UPDATE target_states SET sent_mzxid = 0, applied_mzxid = 0, applied_offset = -1, applied = '{{}}', refused_code = NULL,
  refused_text = NULL, reapply = '[]', drift = '{{}}', put_back_at = '{{}}', claim = NULL, base = '{{}}'
WHERE {_OF_TYPES}
""").bindparams(bindparam("types", type_=ARRAY(Text)))  # noqa: S608 - constants


async def move(database: Database, cluster: str) -> int:
    """Move the states of a cluster; return the number of entities."""
    moved = 0
    while True:

        async def work(pipeline: Pipeline) -> int:
            locked = await pipeline.send(_LOCK, cluster=cluster)
            ids = [entity_id for (entity_id,) in await locked.fetchall()]
            for statement in MOVE if ids else ():
                await pipeline.send(statement, cluster=cluster, ids=ids)
            return len(ids)

        count = await database.atomically(work)
        moved += count
        if count < _AT_ONCE:
            return moved
