"""The tables that a backup keeps, and those that are rebuilt after a restore. Together they are all tables."""

from __future__ import annotations

from typing import Final

from confplane.domain.facets import Tree

_ALL: Final = "true"
_OF_CHANGE: Final = "change_id NOT IN (SELECT change_id FROM later)"

KEPT: Final = {
    "access_changes": _ALL,
    "access_version": _ALL,
    "applied_entities": _ALL,
    "applied_keys": _ALL,
    "change_keys": _OF_CHANGE,
    # A request whose change is left out is not applied any more. That of a manifest has several changes.
    "change_request_events": """
      NOT (action IN ('finish', 'finish-partly', 'revert', 'drop-revert', 'finish-revert', 'finish-revert-partly')
        AND request_id IN (
          SELECT id FROM change_requests JOIN later ON change_id = CAST(content ->> 'change_id' AS uuid)))
      AND NOT (action = 'finish' AND request_id IN (
        SELECT applies FROM intents JOIN later USING (change_id) JOIN outcomes USING (change_id)
        WHERE committed AND applies IS NOT NULL))
      AND NOT (action IN ('finish-revert', 'finish-revert-partly') AND request_id IN (
        SELECT reverted.id FROM change_requests AS reverted
        JOIN change_requests AS reverts ON reverts.id = CAST(reverted.content ->> 'reverted_by' AS uuid)
        JOIN later ON change_id = CAST(reverts.content ->> 'change_id' AS uuid)))""",
    "change_request_numbers": _ALL,
    "change_request_revisions": _ALL,
    "change_requests": _ALL,
    "deliveries": _ALL,
    "entity_states": _ALL,
    "grants": _ALL,
    "intent_entities": _OF_CHANGE,
    "intents": _OF_CHANGE,
    "manifest_runs": _ALL,
    "outcomes": _OF_CHANGE,
    "refused_attempts": _ALL,
    "registrations": _ALL,
    # Without the changes of a request its stored response is wrong: the request is done again if it is repeated.
    "request_changes": "key_id NOT IN (SELECT key_id FROM request_changes JOIN later USING (change_id))",
    "request_keys": "id NOT IN (SELECT key_id FROM request_changes JOIN later USING (change_id))",
    "schedule_pauses": _ALL,
    "schedules": _OF_CHANGE,
    "store_positions": _ALL,
    "target_states": _ALL,
    "tokens": _ALL,
    "watermarks": _ALL,
    "webhook_deliveries": _ALL,
    "webhooks": _ALL,
}
"""The tables of a backup by name, each with the condition of the rows that it keeps. ``later`` has the changes of later
revisions, ``cuts`` the last revision of each cluster."""

REBUILT: Final = {
    "applied_reports": "running clients report again",
    "console_sessions": "users log in again",
    "observed_topics": "the leader polls the Kafka cluster again",
    "rollup_partitions": "`confplane rollups run`",
    "rollup_parts": "`confplane rollups run`",
    "rollup_rows": "`confplane rollups run`",
    "rollup_runs": "`confplane rollups run`",
    "topic_polls": "the leader polls the Kafka cluster again",
}
"""All other tables, each with the source of its rows after a restore."""

_ENDED_LATER: Final = """
(SELECT
  change_id, cluster, revert_at, fallbacks, CASE WHEN ended_later THEN 'active' ELSE state END AS state,
  CASE WHEN NOT ended_later THEN end_id END AS end_id, CASE WHEN ended_later THEN '[]' ELSE given.kept END AS kept,
  CASE WHEN NOT ended_later THEN error END AS error, CASE WHEN NOT ended_later THEN ended_at END AS ended_at
FROM (SELECT *, coalesce(end_id IN (SELECT change_id FROM later), false) AS ended_later FROM schedules) AS given)
"""
_APPLIED_LATER: Final = """
(SELECT
  id, cluster, version, revision, entity_ids, created_at, expires_at, apply_at,
  CASE WHEN NOT given_back THEN state WHEN apply_at IS NULL THEN 'approved' ELSE 'scheduled' END AS state,
  CASE
    WHEN given_back THEN
      (content || '{"change_id": null, "application": null, "error": null}')
      - CAST('{reverted_by,revert_state,shown_state}' AS text[])
    ELSE content
      || CASE WHEN partly THEN jsonb_build_object('error', 'Only a part was applied when the backup was made')
        ELSE '{}' END
      || CASE WHEN reverted_later THEN jsonb '{"revert_state": "reverting"}'
        WHEN partly AND content ->> 'revert_state' IS NULL THEN '{"shown_state": "partly-applied"}' ELSE '{}' END
  END AS content
FROM (
  SELECT *, coalesce(CAST(content ->> 'reverted_by' AS uuid) IN (
    SELECT id FROM change_requests JOIN later ON change_id = CAST(content ->> 'change_id' AS uuid)
  ), false) AS reverted_later,
  state = 'applied' AND id IN (
    SELECT applies FROM intents JOIN later USING (change_id) JOIN outcomes USING (change_id)
    WHERE committed AND applies IS NOT NULL
  ) AS partly, CASE state
    WHEN 'applied' THEN coalesce(CAST(content ->> 'change_id' AS uuid) IN (SELECT change_id FROM later), false)
    WHEN 'applying' THEN NOT EXISTS (
      SELECT FROM intents WHERE applies = requests.id AND change_id NOT IN (SELECT change_id FROM later)
        AND NOT EXISTS (SELECT FROM outcomes WHERE outcomes.change_id = intents.change_id AND NOT committed))
    ELSE false
  END AS given_back FROM change_requests AS requests
) AS given)
"""
# A row of external writes may span the cut: the state before it is the last one that the remaining rows explain.
_MOVED_LATER: Final = f"""
(WITH first AS (
  SELECT DISTINCT ON (cluster, tree, entity_id) cluster, tree, entity_id, version_read, czxid_read, before
  FROM (
    SELECT
      outcomes.cluster, outcomes.revision, entity_id, "position", version_read, czxid_read, before,
      CASE WHEN starts_with(path, '{Tree.CLIENT_CONFIGS}/') THEN '{Tree.CLIENT_CONFIGS}' ELSE '{Tree.CONFIG}' END
        AS tree
    FROM later JOIN outcomes USING (change_id) JOIN intent_entities USING (change_id, attempt)
    WHERE committed
  ) AS entity
  ORDER BY cluster, tree, entity_id, revision, "position"
), moved AS (
  SELECT cluster, tree, entity_id, version_read, czxid_read, before, cuts.revision
  FROM entity_states JOIN cuts USING (cluster) JOIN first USING (cluster, tree, entity_id)
  WHERE mzxid > cuts.revision
)
SELECT * FROM entity_states AS state WHERE NOT EXISTS (
  SELECT FROM moved WHERE (moved.cluster, moved.tree, moved.entity_id) = (state.cluster, state.tree, state.entity_id))
UNION ALL SELECT
  cluster, tree, entity_id, true, coalesce(czxid_read, 0), version_read, moved.revision, before,
  accounted_at, first_version, first_czxid, NULL, NULL
FROM entity_states JOIN moved USING (cluster, tree, entity_id)
WHERE version_read IS NOT NULL)
"""  # noqa: S608 - constants
SOURCES: Final = {"change_requests": _APPLIED_LATER, "entity_states": _MOVED_LATER, "schedules": _ENDED_LATER}
"""Queries instead of tables, for rows that a later change altered: a temporary change that it ended is active, a
request that it applied awaits its application, one that it reverted is being reverted, and an entity that it wrote has
the state before it, without owners. A request whose change is kept, but not yet known to it, is finished by the
leader."""
