"""The facts about Postgres that ``confplane doctor`` shows, besides the warnings of :mod:`confplane.audit.checks`."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Final

from sqlalchemy import text

from confplane.audit import checks
from confplane.domain.errors import UnavailableError
from confplane.services.ports.doctor_facts import EXPIRING_DAYS, OPEN_S, PostgresFacts, TrailFacts

if TYPE_CHECKING:
    from collections.abc import Sequence

    from confplane.audit.database import Database

_SERVER: Final = text(f"""
SELECT
  CAST(current_setting('server_version_num') AS integer) AS version,
  current_setting('wal_level') AS wal_level,
  current_setting('fsync') = 'on' AS fsync,
  current_setting('full_page_writes') = 'on' AS full_page_writes,
  pg_is_in_recovery() AS standby,
  ARRAY(SELECT slot_name FROM pg_replication_slots WHERE NOT active ORDER BY slot_name) AS inactive_slots,
  CAST(extract(epoch FROM clock_timestamp()) AS float8) AS time,
  ARRAY(
    SELECT CAST(id AS text) FROM tokens
    WHERE revoked_at IS NULL AND last_used_at > now() - interval '30 days'
      AND expires_at BETWEEN now() AND now() + interval '{EXPIRING_DAYS} days'
      AND NOT EXISTS (SELECT FROM tokens AS newer WHERE newer.replaces = tokens.id)
    ORDER BY expires_at
  ) AS expiring_tokens,
  EXISTS (SELECT FROM access_version WHERE tokens_from IS NOT NULL) AS tokens_rejected
""")  # noqa: S608 - a constant

# Open changes are searched among those of the last days: the reconciler has settled all earlier ones.
_TRAIL: Final = text(f"""
SELECT
  (SELECT count(DISTINCT change_id) FROM intents AS given
   WHERE cluster = :cluster AND recorded_at BETWEEN now() - interval '3 days' AND now() - interval '{OPEN_S} s'
     AND NOT EXISTS (SELECT FROM outcomes WHERE outcomes.change_id = given.change_id OFFSET 0)) AS open_changes,
  (SELECT CAST(extract(epoch FROM now() - recorded_at) AS float8) FROM watermarks WHERE cluster = :cluster AND complete)
    AS recorded_age_s,
  (SELECT count(*) FROM schedules
   WHERE cluster = :cluster AND ended_at IS NULL AND revert_at < now() - interval '1 minute') AS overdue,
  (SELECT CAST(extract(epoch FROM now() - since) AS float8) FROM schedule_pauses WHERE cluster = :cluster) AS paused_s,
  ARRAY(SELECT name FROM webhooks WHERE cluster = :cluster AND parked_at IS NOT NULL ORDER BY name) AS parked_webhooks,
  (SELECT count(*) FROM webhooks WHERE cluster = :cluster) AS webhooks,
  ARRAY(
    SELECT job FROM (
      SELECT DISTINCT ON (job) job, state FROM rollup_runs WHERE cluster = :cluster ORDER BY job, as_of DESC, id DESC
    ) AS latest WHERE state = 'failed'
  ) AS failed_rollups,
  (SELECT CAST(extract(epoch FROM now() - max(as_of)) AS float8) FROM rollup_runs
   WHERE cluster = :cluster AND job = 'integrity' AND state = 'complete') AS integrity_age_s,
  (SELECT count(*) FROM (
    SELECT entity_id FROM applied_entities WHERE cluster = :cluster AND refused_code IS NOT NULL
    UNION SELECT entity_id FROM target_states WHERE cluster = :cluster AND refused_code IS NOT NULL
  ) AS states) AS refused
""")  # noqa: S608 - a constant


async def postgres_facts(database: Database, clusters: Sequence[str]) -> PostgresFacts:
    """Return the facts; a fault instead if Postgres is unavailable."""
    try:
        warnings = await database.read(checks.check)
        server = await database.row(_SERVER)
        assert server is not None  # noqa: S101 - a row of subqueries
        ahead = server.time - time.time()
        trails = {}
        for name in clusters:
            row = await database.row(_TRAIL, cluster=name)
            assert row is not None  # noqa: S101 - as above
            trails[name] = TrailFacts(**row._mapping)  # noqa: SLF001 - a public attribute
    except UnavailableError as error:
        return PostgresFacts(fault=error.detail)
    given = {name: value for name, value in server._mapping.items() if name != "time"}  # noqa: SLF001 - as above
    return PostgresFacts(warnings=[str(each) for each in warnings], clock_ahead_s=ahead, trails=trails, **given)
