"""The SQL of the registrations.

Rows are inserted under one advisory lock, held to the end of the statement: the order of ids is therefore the order of
commits, and "ids above the last one read" misses no row of other replicas.
"""

from __future__ import annotations

from typing import Final

from sqlalchemy import Text, bindparam, text
from sqlalchemy.dialects.postgresql import ARRAY

SERIAL_LOCK: Final = 7305084164
"""The advisory lock under which rows are inserted."""
_SERIAL: Final = f"serial AS MATERIALIZED (SELECT pg_advisory_xact_lock({SERIAL_LOCK}))"

_NOT_CLEARED: Final = """
  NOT EXISTS (
    SELECT FROM registrations AS cleared
    WHERE cleared.event = 'cleared' AND cleared.cluster = seen.cluster AND cleared.entity_id = seen.entity_id
      AND cleared.id > seen.id)
  AND NOT EXISTS (
    SELECT FROM registrations AS cleared
    WHERE cleared.event = 'cleared' AND cleared.cluster = seen.cluster AND cleared.entity_id IS NULL
      AND cleared.id > seen.id)
"""

# Other replicas see the same clients: a registration with a row for the day gets no second one.
INSERT_SEEN: Final = text(f"""
WITH {_SERIAL}, given AS MATERIALIZED (
  SELECT DISTINCT ON (cluster, entity_id, software_name, software_version, supported_configs, seen_on) *
  FROM (
    SELECT *, to_timestamp(seen_at_s) AS seen_at, (to_timestamp(seen_at_s) AT TIME ZONE 'UTC')::date AS seen_on
    FROM jsonb_to_recordset(CAST(:rows AS jsonb)) AS row(
      cluster text, entity_id text, software_name text, software_version text, supported_configs text[],
      seen_at_s double precision)
  ) AS row
)
INSERT INTO registrations (
  event, cluster, entity_id, software_name, software_version, supported_configs, seen_at, seen_on)
SELECT
  'seen', given.cluster, given.entity_id, given.software_name, given.software_version, given.supported_configs,
  given.seen_at, given.seen_on
FROM serial CROSS JOIN given
WHERE NOT EXISTS (
  SELECT FROM registrations AS seen
  WHERE seen.event = 'seen' AND seen.cluster = given.cluster AND seen.entity_id = given.entity_id
    AND seen.seen_on = given.seen_on
    AND seen.software_name = given.software_name AND seen.software_version = given.software_version
    AND seen.supported_configs = given.supported_configs
    AND {_NOT_CLEARED})
""")  # noqa: S608 - put together from constants

INSERT_CLEARED: Final = text(f"""
WITH {_SERIAL}
INSERT INTO registrations (event, cluster, entity_id, principal, request_id)
SELECT 'cleared', :cluster, :entity_id, :principal, :request_id FROM serial
RETURNING id
""")  # noqa: S608 - put together from constants

NEWEST_ID: Final = text("SELECT coalesce(max(id), 0) FROM registrations")

EXPIRE: Final = text("SELECT expire_registrations(:after, :count)")
"""Delete rows that are not needed any more, among the next ones by id. Returns the id to continue from, or null if the
next ones are too recent (``migrations/versions/0023``)."""

EVENTS_AFTER: Final = text("""
SELECT id, event, cluster, entity_id, software_name, software_version, supported_configs, seen_on
FROM registrations WHERE id > :after ORDER BY id LIMIT :count
""")

# A skip scan: each entity is found and read by the index. With a plain GROUP BY and LIMIT the planner may aggregate the
# whole table for one page.
_OF_ALL: Final = """
  (
    SELECT cluster, entity_id, 1 FROM registrations
    WHERE event = 'seen' AND (cluster, entity_id) >= (:cluster, :entity_id)
    ORDER BY cluster, entity_id LIMIT 1
  )
  UNION ALL
  SELECT next.cluster, next.entity_id, entities.number + 1
  FROM entities CROSS JOIN LATERAL (
    SELECT registrations.cluster, registrations.entity_id FROM registrations
    WHERE registrations.event = 'seen'
      AND (registrations.cluster, registrations.entity_id) > (entities.cluster, entities.entity_id)
    ORDER BY registrations.cluster, registrations.entity_id LIMIT 1
  ) AS next
  WHERE entities.number < :entities
"""
# A step finds the next entity of a range, or moves to the next range; then it has no entity, and the number stays.
_WITHIN: Final = """
  SELECT CAST(:cluster AS text), CAST(NULL AS text) COLLATE "C", 0, 1
  UNION ALL
  SELECT
    entities.cluster, next.entity_id, entities.number + CASE WHEN next.entity_id IS NULL THEN 0 ELSE 1 END,
    entities.place + CASE WHEN next.entity_id IS NULL THEN 1 ELSE 0 END
  FROM entities LEFT JOIN LATERAL (
    SELECT registrations.entity_id FROM registrations
    WHERE registrations.event = 'seen' AND registrations.cluster = :cluster
      AND registrations.entity_id >= (CAST(:starts AS text[]))[entities.place]
      AND registrations.entity_id > coalesce(entities.entity_id, '')
      AND registrations.entity_id < (CAST(:ends AS text[]))[entities.place]
    ORDER BY registrations.cluster, registrations.entity_id LIMIT 1
  ) AS next ON true
  WHERE entities.number < :entities AND entities.place <= cardinality(CAST(:starts AS text[]))
"""
_WINDOW: Final = """
WITH RECURSIVE entities({columns}) AS ({walk})
SELECT
  entities.cluster, entities.entity_id, entities.number, software_name, software_version, supported_configs,
  first_seen, last_seen, last_seen_on
FROM entities LEFT JOIN LATERAL (
  SELECT
    software_name, software_version, supported_configs,
    min(seen_at) AS first_seen, max(seen_at) AS last_seen, max(seen_on) AS last_seen_on
  FROM registrations AS seen
  WHERE seen.event = 'seen' AND seen.cluster = entities.cluster AND seen.entity_id = entities.entity_id
    AND {not_cleared}
  GROUP BY software_name, software_version, supported_configs
) AS current ON true
WHERE entities.entity_id IS NOT NULL
ORDER BY number, software_name, software_version, supported_configs
"""

# Both return at least one row for each of the next :entities entities: from :entity_id on, or in the ranges of ids;
# software_name is null for an entity whose registrations were all cleared.
CURRENT_OF_ALL: Final = text(
    _WINDOW.format(columns="cluster, entity_id, number", walk=_OF_ALL, not_cleared=_NOT_CLEARED)
)
CURRENT_WITHIN: Final = text(
    _WINDOW.format(columns="cluster, entity_id, number, place", walk=_WITHIN, not_cleared=_NOT_CLEARED)
).bindparams(bindparam("starts", type_=ARRAY(Text)), bindparam("ends", type_=ARRAY(Text)))
