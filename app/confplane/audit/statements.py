"""The statements of the hot path. Each takes ``:rows``, a JSON array of ``Intent`` or ``Outcome`` dataclasses."""

from __future__ import annotations

from typing import Final

from sqlalchemy import text

from confplane.domain.texts import LONGEST_INDEXED

WRITES: Final = """
(SELECT pg_logical_emit_message(true, 'confplane', '') WHERE NOT pg_is_in_recovery()) IS NOT NULL
"""
"""SQL that is true and makes its transaction write. Only then does Postgres wait for the commit, and so for the commits
of all rows that the statement sees. The message is the smallest possible write, and is not stored in a table. On a
standby, which can't write, the condition is false."""

INTENT: Final = """
    change_id uuid, attempt integer, cluster text, writer text, principal text, source text, request_id text,
    reason text, ticket text, entities jsonb, behalf_of text, kind text, observed jsonb,
    reverts uuid[], revert_at timestamptz, ends uuid, applies uuid"""
"""The columns of an ``Intent`` as JSON."""

INTO_THE_TRAIL: Final = """, entities AS MATERIALIZED (
  SELECT given.change_id, given.attempt, given.cluster, entity.*
  FROM given CROSS JOIN LATERAL ROWS FROM (jsonb_to_recordset(given.entities) AS (
    entity_id text, facet text, path text, version_read integer, czxid_read bigint, keys text[], ops jsonb,
    before jsonb, after jsonb, claim jsonb)
  ) WITH ORDINALITY AS entity(
    entity_id, facet, path, version_read, czxid_read, keys, ops, before, after, claim, ordinal)
), new_intents AS (
  INSERT INTO intents (
    change_id, attempt, cluster, writer, principal, source, request_id, reason, ticket, behalf_of, kind, observed,
    reverts, revert_at, ends, applies)
  SELECT
    change_id, attempt, cluster, writer, principal, source, request_id, reason, ticket, behalf_of, kind, observed,
    nullif(reverts, '{}'), revert_at, ends, applies
  FROM given
  ON CONFLICT DO NOTHING
), new_entities AS (
  INSERT INTO intent_entities (
    change_id, attempt, position, cluster, entity_id, facet, path, version_read, czxid_read, keys, ops, before, after,
    claim)
  SELECT
    change_id, attempt, ordinal - 1, cluster, entity_id, facet, path, version_read, czxid_read, keys, ops, before,
    after, claim
  FROM entities
  ON CONFLICT DO NOTHING
)
"""
"""The rows of the trail for the intents in ``given``, the last part left open."""

KEYS: Final = f"""
INSERT INTO change_keys (cluster, key, change_id)
SELECT entities.cluster, named.key, entities.change_id FROM entities CROSS JOIN LATERAL unnest(keys) AS named(key)
WHERE octet_length(named.key) <= {LONGEST_INDEXED}
ON CONFLICT DO NOTHING
"""  # noqa: S608 - a constant
"""The last part: the keys that the intents name. A search by a key that no index takes finds nothing."""

# The statements of intents write even if all rows exist: a crash of Postgres may have interrupted a first try, whose
# rows are visible afterwards although the standbys may not have them.
INSERT_INTENTS: Final = text(f"""
WITH given AS MATERIALIZED (
  SELECT * FROM jsonb_to_recordset(CAST(:rows AS jsonb)) AS row({INTENT}) WHERE {WRITES}
){INTO_THE_TRAIL}{KEYS}""")  # noqa: S608 - constants of this module

# For requests with an Idempotency-Key: each row is an intent together with the members of its ``Claim``. The key's row
# is locked, so that no other request takes over the key while an intent is written under it. Returns the numbers, from
# 0, of the rows that were refused because another request holds the key.
INSERT_CLAIMED_INTENTS: Final = text(f"""
WITH sent AS MATERIALIZED (
  SELECT * FROM ROWS FROM (jsonb_to_recordset(CAST(:rows AS jsonb)) AS ({INTENT},
    key text, key_id uuid, holder uuid, fresh boolean, body text, seconds float8, results jsonb)
  ) WITH ORDINALITY AS row(
    change_id, attempt, cluster, writer, principal, source, request_id, reason, ticket, entities, behalf_of, kind,
    observed, reverts, revert_at, ends, applies, key, key_id, holder, fresh, body, seconds, results, number)
  WHERE {WRITES}
), claimed AS (
  INSERT INTO request_keys (key, id, holder, cluster, body, writer, until)
  SELECT DISTINCT ON (key, key_id) key, key_id, holder, cluster, body, writer, now() + make_interval(secs => seconds)
  FROM sent WHERE fresh ORDER BY key, key_id
  ON CONFLICT DO NOTHING
  RETURNING id
), held AS MATERIALIZED (
  SELECT id, holder FROM request_keys WHERE id = ANY(ARRAY(SELECT key_id FROM sent)) FOR SHARE
), given AS MATERIALIZED (
  SELECT * FROM sent
  WHERE key_id IN (SELECT id FROM claimed) OR (key_id, holder) IN (SELECT id, holder FROM held)
), new_changes AS (
  INSERT INTO request_changes (key_id, change_id, attempt, results)
  SELECT key_id, change_id, attempt, results FROM given
  ON CONFLICT DO NOTHING
){INTO_THE_TRAIL.rstrip()}, new_keys AS ({KEYS})
SELECT number - 1 FROM sent WHERE number NOT IN (SELECT number FROM given)
""")  # noqa: S608 - constants of this module

# Committed without waiting for Postgres's disk and standbys if a loss of the rows would lose nothing: the marker of a
# commit has the whole outcome except ``remade``. The marker remains until the outcome is durable
# (audit/open_changes.py).
INSERT_OUTCOMES: Final = text("""
WITH given AS MATERIALIZED (
  SELECT * FROM jsonb_to_recordset(CAST(:rows AS jsonb)) AS row(
    change_id uuid, attempt integer, cluster text, committed boolean, revision bigint, time_ms bigint, versions jsonb,
    error_code integer, error text, remade jsonb, incarnation integer)
)
INSERT INTO outcomes (
  change_id, attempt, cluster, committed, revision, time, versions, error_code, error, remade, incarnation)
SELECT
  change_id, attempt, cluster, committed, revision, to_timestamp(time_ms / 1000.0), versions, error_code, error,
  nullif(remade, '{}'), incarnation
FROM given WHERE (
  SELECT CASE WHEN bool_and(committed AND remade = '{}') THEN set_config('synchronous_commit', 'off', true) ELSE '' END
  FROM given
) IS NOT NULL
ON CONFLICT DO NOTHING
""")
