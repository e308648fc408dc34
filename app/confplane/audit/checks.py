"""Database checks for operators: compatibility with this version, and with the guarantees of the trail."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Final

from sqlalchemy import bindparam, text
from sqlalchemy.dialects.postgresql import ARRAY, TEXT

from confplane.audit import revisions
from confplane.audit.database import from_row
from confplane.audit.faults import COMMAND
from confplane.audit.tables import CURRENT, POSITIONS, TRANSIENT, metadata
from confplane.domain.errors import UnavailableError
from confplane.services.operator_warnings import OperatorWarning
from confplane.services.ports.doctor_facts import EXPIRING_DAYS, OPEN_S, PostgresFacts, TrailFacts

if TYPE_CHECKING:
    from collections.abc import Sequence

    from sqlalchemy.ext.asyncio import AsyncConnection

    from confplane.audit.database import Database


_RETRY_AFTER_S: Final = 30

_TABLES: Final = sorted(metadata.tables)
_LASTING: Final = sorted(metadata.tables.keys() - {table.name for table in TRANSIENT})
_POSITIONS: Final = [table.name for table in (*POSITIONS, *CURRENT)]
_UPDATED: Final = sorted(table.name for table in (*TRANSIENT, *POSITIONS, *CURRENT))
_DELETED: Final = sorted(table.name for table in (*TRANSIENT, *POSITIONS))

_HAS_REVISION: Final = text("SELECT to_regclass('alembic_version') IS NOT NULL")
_REVISION: Final = text("SELECT version_num FROM alembic_version")
_STATE: Final = text("""
SELECT
  current_user AS role,
  current_setting('synchronous_commit') AS synchronous_commit,
  current_setting('synchronous_standby_names') AS synchronous_standby_names,
  (SELECT count(*) FROM pg_stat_replication) AS standbys,
  ARRAY(
    SELECT relname FROM pg_class WHERE oid = ANY(tables.oids) AND pg_has_role(current_user, relowner, 'MEMBER')
    ORDER BY relname
  ) AS owned,
  ARRAY(
    SELECT relname FROM pg_class
    WHERE oid = ANY(tables.lasting) AND (
      has_table_privilege(current_user, oid, 'TRUNCATE')
      OR has_table_privilege(current_user, oid, 'UPDATE, DELETE') AND NOT relname = ANY(:positions)
    )
    ORDER BY relname
  ) AS alterable,
  ARRAY(
    SELECT relname FROM pg_class
    WHERE oid = ANY(tables.oids) AND NOT (
      has_table_privilege(current_user, oid, 'SELECT') AND has_table_privilege(current_user, oid, 'INSERT')
      AND (has_table_privilege(current_user, oid, 'UPDATE') OR NOT relname = ANY(:updated))
      AND (has_table_privilege(current_user, oid, 'DELETE') OR NOT relname = ANY(:deleted))
    )
    ORDER BY relname
  ) AS lacking
FROM (
  SELECT
    ARRAY(SELECT to_regclass(name)::oid FROM unnest(:tables) AS name) AS oids,
    ARRAY(SELECT to_regclass(name)::oid FROM unnest(:lasting) AS name) AS lasting
) AS tables
""").bindparams(
    bindparam("tables", type_=ARRAY(TEXT)),
    bindparam("lasting", type_=ARRAY(TEXT)),
    bindparam("positions", type_=ARRAY(TEXT)),
    bindparam("updated", type_=ARRAY(TEXT)),
    bindparam("deleted", type_=ARRAY(TEXT)),
)


async def check(connection: AsyncConnection) -> list[OperatorWarning]:
    """Return warnings, each a sentence.

    Raises:
        UnavailableError: The schema is missing, or older than this version of the code.
    """
    revision = await connection.scalar(_REVISION) if await connection.scalar(_HAS_REVISION) else None
    head, known = revisions.head_revision(), revisions.known_revisions()
    if revision is None:
        raise UnavailableError(f"The database is empty; run `{COMMAND}`", retry_after_s=_RETRY_AFTER_S)
    warnings: list[OperatorWarning] = []
    if revision != head:
        if revision in known:
            raise UnavailableError(
                f"The database is at revision {revision} and this version needs {head}; run `{COMMAND}`",
                retry_after_s=_RETRY_AFTER_S,
            )
        # While a newer version is being rolled out, the older replicas keep running: migrations only ever add.
        warnings.append(
            OperatorWarning(
                f"The database is at revision {revision}, which is of a later version of this service than this."
            )
        )
    given = {
        "tables": _TABLES,
        "lasting": _LASTING,
        "positions": _POSITIONS,
        "updated": _UPDATED,
        "deleted": _DELETED,
    }
    state = (await connection.execute(_STATE, given)).one()
    if state.synchronous_commit in {"off", "local"}:
        warnings.append(
            OperatorWarning(
                f"synchronous_commit is {state.synchronous_commit}: a crash of Postgres may lose confirmed rows of the"
                " trail. Set it to on."
            )
        )
    if state.standbys and not state.synchronous_standby_names:
        warnings.append(
            OperatorWarning(
                "Postgres has standbys and synchronous_standby_names is empty: a failover may lose confirmed rows of"
                " the trail."
            )
        )
    if not state.standbys and state.synchronous_standby_names and state.synchronous_commit not in {"off", "local"}:
        warnings.append(
            OperatorWarning(
                "synchronous_standby_names names standbys and none is connected: no commit ends until one is."
            )
        )
    if state.lacking:
        lacks = f"lacks rights on {', '.join(state.lacking)}: run `{COMMAND}`."
        warnings.append(OperatorWarning(f"The service's role {lacks}", f"The service's role {state.role} {lacks}"))
    if state.owned:
        may = "or is a superuser: it could drop what keeps the trail append-only. Use a role of its own."
        warnings.append(
            OperatorWarning(
                f"The service's role owns tables of the trail, {may}",
                f"The service's role {state.role} owns {', '.join(state.owned)}, {may}",
            )
        )
    elif state.alterable:
        tables = f"may update, delete or truncate {', '.join(state.alterable)}: run `{COMMAND}`."
        warnings.append(OperatorWarning(f"The service's role {tables}", f"The service's role {state.role} {tables}"))
    return warnings


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
        warnings = await database.read(check)
        server = await database.row(_SERVER)
        assert server is not None  # noqa: S101 - a row of subqueries
        ahead = server.time - time.time()
        trails = {}
        for name in clusters:
            row = await database.row(_TRAIL, cluster=name)
            assert row is not None  # noqa: S101 - as above
            trails[name] = from_row(TrailFacts, row)
    except UnavailableError as error:
        return PostgresFacts(fault=error.detail)
    given = {name: value for name, value in server._mapping.items() if name != "time"}  # noqa: SLF001 - a public attribute
    return PostgresFacts(warnings=[str(each) for each in warnings], clock_ahead_s=ahead, trails=trails, **given)
