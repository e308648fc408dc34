"""The statements on the states of entities and keys in Kafka clusters (``audit/target_states.py``).

Most take ``:rows``, a JSON array, and change only the rows whose conditions hold.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from sqlalchemy import Text, bindparam, text
from sqlalchemy.dialects.postgresql import ARRAY

from confplane.audit import earlier_states
from confplane.audit.tables import DIFFERING, OPEN, REFUSED, UNIQUE_KEY, UNKNOWN

if TYPE_CHECKING:
    from sqlalchemy import TextClause

KEPT_DAYS: Final = 30
"""Days for which deliveries are kept."""
EXPIRED_AT_ONCE: Final = 10_000
MOST_UNKNOWN: Final = 20
"""Maximum number of deliveries without an outcome that are stored for one value of a key."""

PUT_BACK_ERROR: Final = "Put back: the Kafka cluster gets the value of this service again"
LOST_UPDATE_ERROR: Final = (
    "Overwritten: a change of the same key was waiting here, and the Kafka cluster gets its value"
)
_MAY_ARRIVE: Final = f"{UNKNOWN.text} AND sent_at > now() - interval '1 day'"
_ONE: Final = "cluster = :cluster AND entity_id = given.entity_id"
_LEFT_ALONE: Final = "('refused', 'contested', 'extra')"
_NEWEST: Final = """JOIN LATERAL (
  SELECT FROM applied_entities WHERE cluster = :cluster AND entity_id = given.entity_id AND delivery_id = given.id
) AS newest ON true"""
"""SQL that leaves out the deliveries that another one followed, or that have an outcome."""
_NOT_LEFT: Final = "theirs = NULL, since = NULL, refused_value = NULL, refused_code = NULL, refused_text = NULL"
"""SQL for a key that is to be sent again. That the cluster never had it is known until it has taken a value."""
_AT_REST: Final = f"state = CASE WHEN taken THEN 'applied' ELSE 'observed' END, {_NOT_LEFT}, refused_absent = NULL"
"""SQL for a key that is neither to be sent again nor left alone."""


def _ids(sql: str, name: str = "ids") -> TextClause:
    return text(sql).bindparams(bindparam(name, type_=ARRAY(Text)))


_AMONG_IDS: Final = "ANY(ARRAY(SELECT unnest(:ids)))"
"""SQL for the ids, of which the planner expects few, whatever they are: a prepared statement is planned once."""
_OF_IDS: Final = f"WHERE cluster = :cluster AND entity_id = {_AMONG_IDS}"
_DELIVERIES: Final = "SELECT * FROM deliveries WHERE cluster = :cluster"


_KEY_NAMES: Final = """
  state, theirs, since, refused_value, refused_code, refused_text, refused_absent, put_back_at, base_value,
  base_offset"""


def _load(
    unmoved: str = "", entities: str = "", keys: str = "", deliveries: str = _DELIVERIES, given: str = "true"
) -> TextClause:
    """Return a statement that reads all tables as of one time; one row at least, which may have no entity.

    Rows of keys and deliveries are JSON as text, which is parsed faster; NULL if there are none.

    Deliveries are kept for weeks, and one revision may have any number of them. So only those that may still arrive are
    read, and of an open revision the keys. Each entity's rows are looked up: the planner expects few entities, and
    would compare each with all rows of all others.
    """
    return _ids(f"""
WITH {unmoved} states AS MATERIALIZED (
  SELECT * FROM applied_entities {_OF_IDS} {entities}
)
SELECT found.*, has_earlier FROM (SELECT {given} AS has_earlier) AS asked LEFT JOIN (
  SELECT entity_id, sent_mzxid, applied_mzxid, applied_offset, topic_id, delivery_id, refused_code, refused_text,
    key_rows, sent_keys, arriving_rows
  FROM states CROSS JOIN LATERAL (
    SELECT CAST(json_agg(json_strip_nulls(row_to_json(rows))) AS text) AS key_rows FROM (
      SELECT key, taken, value, "offset", delivered_at, {_KEY_NAMES}
      FROM (SELECT * FROM applied_keys WHERE cluster = :cluster {keys}) AS known WHERE entity_id = states.entity_id
    ) AS rows
  ) AS keys CROSS JOIN LATERAL (
    SELECT CAST(jsonb_agg(DISTINCT key) AS text) AS sent_keys FROM ({deliveries}) AS sent
    WHERE entity_id = states.entity_id AND mzxid = sent_mzxid AND {OPEN.text}
  ) AS sent CROSS JOIN LATERAL (
    SELECT CAST(jsonb_agg(jsonb_build_object(
      'key', key, 'value', value, 'sent_at', sent_at, 'refused_later', EXISTS (
        SELECT FROM deliveries AS later
        WHERE later.cluster = :cluster AND later.entity_id = rows.entity_id AND later.key = rows.key
          AND later.value IS NOT DISTINCT FROM rows.value AND later.sent_at > rows.sent_at
          AND later.outcome = 'refused')
    ) ORDER BY sent_at) AS text) AS arriving_rows
    FROM ({deliveries}) AS rows WHERE entity_id = states.entity_id AND {_MAY_ARRIVE}
  ) AS arriving
) AS found ON true
""")  # noqa: S608 - constants


# The states of an earlier release are rare, and planning to read them takes longer than reading the others.
LOAD: Final = _load(given=f"EXISTS (SELECT FROM target_states {_OF_IDS})")
LOAD_WITH_EARLIER: Final = _load(
    f"unmoved AS MATERIALIZED ({earlier_states.UNMOVED}),",
    f"AND entity_id NOT IN (SELECT entity_id FROM unmoved) UNION ALL ({earlier_states.UNMOVED_ENTITIES})",  # noqa: S608 - constants
    f"UNION ALL {earlier_states.UNMOVED_KEYS}",
    f"""
    SELECT cluster, entity_id, mzxid, id, key, value, sent_at, outcome FROM deliveries WHERE cluster = :cluster
    UNION ALL {earlier_states.UNMOVED_DELIVERIES}""",  # noqa: S608 - constants
)

LOCK: Final = _ids(f"""
SELECT entity_id, sent_mzxid FROM applied_entities {_OF_IDS} ORDER BY entity_id FOR UPDATE
""")  # noqa: S608 - a constant
ADD: Final = _ids("""
INSERT INTO applied_entities (cluster, entity_id)
SELECT :cluster, entity_id FROM unnest(:ids) AS given(entity_id) ORDER BY entity_id COLLATE "C"
ON CONFLICT DO NOTHING
""")

# A key that was changed here is no longer left alone. While a cluster answers nothing, its entities are sent every few
# seconds.
BEGIN: Final = _ids(f"""
WITH given AS MATERIALIZED (
  SELECT * FROM jsonb_to_recordset(CAST(:rows AS jsonb)) AS given(
    entity_id text, mzxid bigint, topic_id text, id uuid, "values" jsonb)
), begun AS (
  INSERT INTO applied_entities AS known (cluster, entity_id, sent_mzxid, topic_id, delivery_id)
  SELECT :cluster, entity_id, mzxid, topic_id, id FROM given ORDER BY entity_id COLLATE "C"
  ON CONFLICT (cluster, entity_id) DO UPDATE SET
    sent_mzxid = excluded.sent_mzxid, topic_id = excluded.topic_id, delivery_id = excluded.delivery_id,
    refused_code = NULL, refused_text = NULL
  WHERE coalesce(known.topic_id = excluded.topic_id, true) AND (
    known.sent_mzxid < excluded.sent_mzxid OR (
      known.sent_mzxid = excluded.sent_mzxid AND known.refused_code IS NULL AND (
        known.applied_mzxid <> known.sent_mzxid OR known.entity_id IN (
          SELECT entity_id FROM applied_keys {_OF_IDS} AND state = 'resend'))))
  RETURNING entity_id
), sent AS MATERIALIZED (
  SELECT given.*, key, value FROM begun JOIN given USING (entity_id) CROSS JOIN jsonb_each_text("values")
), changed AS (
  UPDATE applied_keys AS known SET
    state = CASE WHEN state = 'resend' THEN state WHEN taken THEN 'applied' ELSE 'observed' END, {_NOT_LEFT},
    put_back_at = '{{}}'
  FROM sent JOIN applied_entities AS before USING (entity_id)
  WHERE known.cluster = :cluster AND known.entity_id = {_AMONG_IDS} AND known.entity_id = sent.entity_id
    AND known.key = sent.key AND (state IN {_LEFT_ALONE} OR put_back_at <> '{{}}')
    AND before.cluster = :cluster AND before.entity_id = {_AMONG_IDS} AND sent_mzxid < mzxid
), superseded AS (
  DELETE FROM deliveries WHERE ctid = ANY(ARRAY(
    SELECT ctid FROM (
      SELECT deliveries.ctid, row_number() OVER (PARTITION BY entity_id, key, value ORDER BY sent_at DESC) AS number
      FROM begun JOIN deliveries USING (entity_id)
      WHERE cluster = :cluster AND deliveries.entity_id = {_AMONG_IDS} AND {UNKNOWN.text}
    ) AS counted WHERE number >= {MOST_UNKNOWN}))
), inserted AS (
  INSERT INTO deliveries (cluster, entity_id, mzxid, id, key, value)
  SELECT :cluster, entity_id, mzxid, id, key, value FROM sent
  ON CONFLICT DO NOTHING
)
SELECT entity_id FROM begun
""")  # noqa: S608 - constants

# A refusal keeps the revision that the cluster accepted before. A retry replaces a delivery of which nothing was sent.
# If a crash of Postgres loses an outcome, it is unknown, and the values are sent again. Later durable transactions
# include it, because Postgres has one log. The outcome is compared in a form that the index of unknown outcomes does
# not have: by that index each delivery without an outcome would be compared with each row given.
END: Final = _ids(f"""
WITH given AS MATERIALIZED (
  SELECT * FROM jsonb_to_recordset(CAST(:rows AS jsonb)) AS given(
    entity_id text, mzxid bigint, id uuid, outcome text, "offset" bigint, code integer, said text, refused text[])
), locked AS MATERIALIZED (
  SELECT known.entity_id FROM given JOIN applied_entities AS known USING (entity_id)
  WHERE cluster = :cluster AND known.entity_id = {_AMONG_IDS} AND delivery_id = given.id
  ORDER BY known.entity_id FOR UPDATE OF known
), ended AS (
  UPDATE applied_entities AS known SET
    delivery_id = NULL, applied_mzxid = CASE outcome WHEN 'applied' THEN mzxid ELSE applied_mzxid END,
    applied_offset = greatest(applied_offset, given."offset"), refused_code = code, refused_text = said
  FROM given JOIN locked USING (entity_id)
  WHERE cluster = :cluster AND known.entity_id = given.entity_id AND delivery_id = id
  RETURNING given.*
), sent AS (
  UPDATE deliveries AS known SET
    outcome = CASE WHEN key = ANY(refused) THEN 'refused' ELSE ended.outcome END, "offset" = ended."offset",
    ended_at = clock_timestamp()
  FROM ended
  WHERE cluster = :cluster AND known.entity_id = ended.entity_id AND known.mzxid = ended.mzxid
    AND known.id = ended.id AND coalesce(known.outcome, '') = ''
  RETURNING known.*
), replaced AS (
  DELETE FROM deliveries AS known USING ended
  WHERE ended.outcome = 'not-sent' AND cluster = :cluster AND known.entity_id = ended.entity_id
    AND known.mzxid = ended.mzxid AND known.id <> ended.id AND known.outcome = 'not-sent'
), taken AS (
  INSERT INTO applied_keys AS known (cluster, entity_id, key, state, taken, value, "offset", delivered_at)
  SELECT cluster, entity_id, key, 'applied', true, value, "offset", sent_at FROM sent WHERE outcome = 'applied'
  ON CONFLICT {UNIQUE_KEY} DO UPDATE SET
    state = 'applied', {_NOT_LEFT}, taken = true, value = excluded.value,
    "offset" = excluded."offset", delivered_at = excluded.delivered_at, refused_absent = NULL,
    base_value = NULL, base_offset = NULL
)
SELECT set_config('synchronous_commit', 'off', true)
""")  # noqa: S608 - constants

_KEY: Final = """
  entity_id text, key text, state text, theirs text, since timestamptz, refused_value text, refused_code integer,
  refused_text text, refused_absent boolean, put_back_at timestamptz[], base_value text, base_offset bigint"""
# A key without a state in the row keeps its own, or that of a key at rest.
_PUT_KEYS: Final = f"""
INSERT INTO applied_keys AS known (cluster, entity_id, key, {_KEY_NAMES})
SELECT :cluster, entity_id, key, coalesce(state, 'observed'), theirs, since, refused_value, refused_code, refused_text,
  refused_absent, coalesce(put_back_at, '{{}}'), base_value, base_offset
FROM jsonb_to_recordset(CAST(:rows AS jsonb)) AS given(id uuid, {_KEY})
%s
ON CONFLICT {UNIQUE_KEY} DO UPDATE SET ({_KEY_NAMES}) = ROW(
  CASE WHEN excluded.state = 'observed' THEN known.state ELSE excluded.state END, excluded.theirs, excluded.since,
  excluded.refused_value, excluded.refused_code, excluded.refused_text,
  excluded.refused_absent OR known.refused_absent, excluded.put_back_at, excluded.base_value, excluded.base_offset)
"""  # noqa: S608 - constants
PUT_KEYS: Final = text(_PUT_KEYS % "")
REFUSE_KEYS: Final = text(_PUT_KEYS % _NEWEST)
CLEAR_KEYS: Final = _ids(f"""
UPDATE applied_keys SET {_AT_REST}, put_back_at = '{{}}', base_value = NULL, base_offset = NULL
WHERE cluster = :cluster AND entity_id = ANY(:ids)
""")  # noqa: S608 - constants

# The row is unchanged since the poll: no delivery began since, and none is due.
CORRECT: Final = text(f"""
UPDATE applied_entities AS known SET
  sent_mzxid = mzxid, applied_mzxid = mzxid, topic_id = given.topic_id, delivery_id = NULL
FROM jsonb_to_recordset(CAST(:rows AS jsonb)) AS given(entity_id text, mzxid bigint, "offset" bigint, topic_id text)
WHERE cluster = :cluster AND known.entity_id = given.entity_id AND coalesce(known.topic_id = given.topic_id, true)
  AND sent_mzxid <= mzxid AND applied_mzxid = sent_mzxid AND refused_code IS NULL AND applied_offset <= given."offset"
  AND NOT EXISTS (SELECT FROM applied_keys WHERE {_ONE} AND state = 'resend')
RETURNING known.entity_id
""")  # noqa: S608 - constants
ARRIVE: Final = text(f"""
UPDATE deliveries AS known SET outcome = 'late', ended_at = clock_timestamp()
FROM jsonb_to_recordset(CAST(:rows AS jsonb)) AS given(entity_id text, key text, value text)
CROSS JOIN LATERAL (
  SELECT mzxid, id FROM deliveries
  WHERE {_ONE} AND key = given.key AND value IS NOT DISTINCT FROM given.value AND {_MAY_ARRIVE}
  ORDER BY sent_at LIMIT 1
) AS oldest
WHERE cluster = :cluster AND known.entity_id = given.entity_id AND known.key = given.key AND known.mzxid = oldest.mzxid
  AND known.id = oldest.id
""")  # noqa: S608 - constants

# The base is unchanged since the poll. An entity without a delivery gets a row that has nothing to send.
LOSE: Final = text(f"""
UPDATE applied_entities AS known SET topic_id = CASE WHEN sent_mzxid = 0 THEN given.topic_id ELSE known.topic_id END
FROM jsonb_to_recordset(CAST(:rows AS jsonb)) AS given(entity_id text, "offset" bigint, topic_id text, was jsonb)
WHERE cluster = :cluster AND known.entity_id = given.entity_id AND coalesce(known.topic_id = given.topic_id, true)
  AND applied_offset <= given."offset" AND was = (
    SELECT coalesce(jsonb_object_agg(key, jsonb_build_object('value', base_value, 'offset', base_offset)), '{{}}')
    FROM applied_keys WHERE {_ONE} AND base_offset IS NOT NULL
  )
RETURNING known.entity_id
""")  # noqa: S608 - constants
CLEAR_BASES: Final = _ids("""
UPDATE applied_keys SET base_value = NULL, base_offset = NULL WHERE cluster = :cluster AND entity_id = ANY(:ids)
""")
PUT_BASES: Final = text(f"""
INSERT INTO applied_keys (cluster, entity_id, key, state, base_value, base_offset)
SELECT :cluster, entity_id, key, 'observed', base_value, base_offset
FROM jsonb_to_recordset(CAST(:rows AS jsonb)) AS given({_KEY})
ON CONFLICT {UNIQUE_KEY} DO UPDATE SET
  base_value = excluded.base_value, base_offset = excluded.base_offset
""")  # noqa: S608 - constants

REJECT: Final = text("""
INSERT INTO outcomes (change_id, attempt, cluster, committed, time, versions, error)
SELECT
  change_id, attempt, cluster, false, to_timestamp(CAST(observed ->> 'at_ms' AS bigint) / 1000.0), '{}', :error
FROM jsonb_to_recordset(CAST(:rows AS jsonb)) AS given(
  change_id uuid, attempt integer, cluster text, observed jsonb)
ON CONFLICT DO NOTHING
""")

# No poll shows the value of a secret, so its refusal stays. A refusal ends only if the poll found the refused revision
# equal, and not a later one.
EQUAL: Final = text(f"""
UPDATE applied_entities AS known SET
  applied_mzxid = CASE WHEN refused_code IS NULL THEN applied_mzxid ELSE sent_mzxid END,
  refused_code = NULL, refused_text = NULL
FROM jsonb_to_recordset(CAST(:rows AS jsonb)) AS given(entity_id text, mzxid bigint)
WHERE cluster = :cluster AND known.entity_id = given.entity_id AND applied_offset <= :offset AND (
  refused_code IS NULL OR (coalesce(mzxid, sent_mzxid) = sent_mzxid AND NOT EXISTS (
    SELECT FROM deliveries WHERE {_ONE} AND deliveries.mzxid = sent_mzxid AND starts_with(value, :fingerprint))))
RETURNING known.entity_id
""")  # noqa: S608 - constants
EQUAL_KEYS: Final = _ids(f"""
UPDATE applied_keys SET {_AT_REST}
WHERE cluster = :cluster AND entity_id = ANY(:ids) AND state IN {_LEFT_ALONE}
  AND NOT coalesce(starts_with(refused_value, :fingerprint), false)
""")  # noqa: S608 - constants

DROP: Final = text("""
DELETE FROM applied_entities USING jsonb_each_text(CAST(:topic_ids AS jsonb)) AS gone(id, topic)
WHERE cluster = :cluster AND entity_id = id AND topic_id = topic
RETURNING entity_id
""")
DROP_KEYS: Final = _ids("DELETE FROM applied_keys WHERE cluster = :cluster AND entity_id = ANY(:ids)")
DROP_DELIVERIES: Final = _ids(f"""
UPDATE deliveries SET outcome = 'outdated', ended_at = now()
WHERE cluster = :cluster AND entity_id = ANY(:ids) AND {UNKNOWN.text}
""")  # noqa: S608 - constants

REAPPLY: Final = _ids("""
UPDATE applied_entities SET refused_code = NULL, refused_text = NULL WHERE cluster = :cluster AND entity_id = ANY(:ids)
""")
REAPPLY_KEYS: Final = text(f"""
INSERT INTO applied_keys AS known (cluster, entity_id, key, state)
SELECT :cluster, entity_id, key, 'resend'
FROM jsonb_to_recordset(CAST(:rows AS jsonb)) AS given(entity_id text, key text)
WHERE EXISTS (SELECT FROM applied_entities WHERE {_ONE})
ON CONFLICT {UNIQUE_KEY} DO UPDATE SET state = 'resend', {_NOT_LEFT}, put_back_at = '{{}}'
""")  # noqa: S608 - constants

_RESENT: Final = f"""
SELECT entity_id FROM applied_keys JOIN applied_entities USING (cluster, entity_id)
WHERE cluster = :cluster AND applied_keys.{DIFFERING.text}
"""  # noqa: S608 - a constant
UNDELIVERED: Final = text(f"""
SELECT entity_id FROM applied_entities WHERE cluster = :cluster AND {OPEN.text}
UNION {_RESENT} AND state = 'resend' AND applied_entities.refused_code IS NULL
""")  # noqa: S608 - constants
DRIFTING: Final = text(f"""
SELECT entity_id FROM applied_entities WHERE cluster = :cluster AND {OPEN.text}
UNION SELECT entity_id FROM applied_entities WHERE cluster = :cluster AND {REFUSED.text}
UNION {_RESENT}
UNION SELECT entity_id FROM target_states WHERE cluster = :cluster AND (refused_code IS NOT NULL OR drift <> '{{}}')
""")  # noqa: S608 - constants

_OF_TYPES: Final = "cluster = :cluster AND substring(entity_id FROM '^[a-z-]+') = ANY(:types)"
# Values that may still arrive are kept for any ensemble. The outcome of an earlier delivery finds no delivery id.
FORGET: Final = [
    _ids(each, "types")
    for each in (
        f"SELECT FROM applied_entities WHERE {_OF_TYPES} ORDER BY entity_id FOR UPDATE",
        f"""
UPDATE applied_entities AS known SET sent_mzxid = 0, applied_mzxid = 0, applied_offset = -1, delivery_id = NULL,
  refused_code = NULL, refused_text = NULL
WHERE {_OF_TYPES} AND (
  applied_mzxid <> sent_mzxid OR refused_code IS NOT NULL
  OR (entity_id, sent_mzxid) NOT IN (
    SELECT entity_id, mzxid FROM jsonb_to_recordset(CAST(:kept AS jsonb)) AS kept(entity_id text, mzxid bigint))
  OR EXISTS (
    SELECT FROM applied_keys
    WHERE cluster = :cluster AND applied_keys.entity_id = known.entity_id AND state IN ('resend', 'refused')))
""",  # noqa: S608 - constants
        f"""
DELETE FROM applied_keys AS known WHERE {_OF_TYPES} AND NOT (taken AND EXISTS (
  SELECT FROM applied_entities
  WHERE cluster = :cluster AND applied_entities.entity_id = known.entity_id AND sent_mzxid > 0))
""",  # noqa: S608 - constants
        f"""
UPDATE applied_keys SET {_AT_REST}, put_back_at = '{{}}', base_value = NULL, base_offset = NULL
WHERE {_OF_TYPES} AND (state <> 'applied' OR put_back_at <> '{{}}' OR base_offset IS NOT NULL)
""",  # noqa: S608 - constants
        f"""
DELETE FROM applied_entities AS known WHERE {_OF_TYPES} AND sent_mzxid = 0 AND NOT EXISTS (
  SELECT FROM deliveries WHERE cluster = :cluster AND deliveries.entity_id = known.entity_id AND {_MAY_ARRIVE})
""",  # noqa: S608 - constants
    )
]
# A secret's refusal is known by the delivery.
EXPIRE: Final = text(f"""
DELETE FROM deliveries WHERE ctid = ANY(ARRAY(
  SELECT ctid FROM deliveries AS given
  WHERE sent_at < now() - interval '{KEPT_DAYS} days' AND cluster = :cluster AND NOT EXISTS (
    SELECT FROM applied_entities WHERE {_ONE} AND {REFUSED.text} AND sent_mzxid = given.mzxid)
  LIMIT {EXPIRED_AT_ONCE}))
""")  # noqa: S608 - constants
