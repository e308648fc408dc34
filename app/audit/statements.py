"""The two statements of the hot path. Each takes ``:rows``, a JSON array of ``Intent`` or ``Outcome`` dataclasses."""

from __future__ import annotations

from typing import Final

from sqlalchemy import text

INSERT_INTENTS: Final = text("""
WITH given AS MATERIALIZED (
  SELECT * FROM jsonb_to_recordset(CAST(:rows AS jsonb)) AS row(
    change_id uuid, attempt integer, cluster text, writer text, principal text, source text, request_id text,
    reason text, ticket text, entities jsonb)
), entities AS MATERIALIZED (
  SELECT given.change_id, given.attempt, given.cluster, entity.*
  FROM given CROSS JOIN LATERAL ROWS FROM (jsonb_to_recordset(given.entities) AS (
    entity_id text, facet text, path text, version_read integer, czxid_read bigint, keys text[], ops jsonb,
    before jsonb, after jsonb)
  ) WITH ORDINALITY AS entity(
    entity_id, facet, path, version_read, czxid_read, keys, ops, before, after, ordinal)
), new_intents AS (
  INSERT INTO intents (change_id, attempt, cluster, writer, principal, source, request_id, reason, ticket)
  SELECT change_id, attempt, cluster, writer, principal, source, request_id, reason, ticket FROM given
  ON CONFLICT DO NOTHING
), new_entities AS (
  INSERT INTO intent_entities (
    change_id, attempt, position, cluster, entity_id, facet, path, version_read, czxid_read, keys, ops, before, after)
  SELECT
    change_id, attempt, ordinal - 1, cluster, entity_id, facet, path, version_read, czxid_read, keys, ops, before, after
  FROM entities
  ON CONFLICT DO NOTHING
)
INSERT INTO change_keys (cluster, key, change_id)
SELECT cluster, unnest(keys), change_id FROM entities
ON CONFLICT DO NOTHING
""")

INSERT_OUTCOMES: Final = text("""
INSERT INTO outcomes (change_id, attempt, cluster, committed, revision, time, versions, error_code, error)
SELECT
  change_id, attempt, cluster, committed, revision, to_timestamp(time_ms / 1000.0), versions, error_code, error
FROM jsonb_to_recordset(CAST(:rows AS jsonb)) AS row(
  change_id uuid, attempt integer, cluster text, committed boolean, revision bigint, time_ms bigint, versions jsonb,
  error_code integer, error text)
ON CONFLICT DO NOTHING
""")
