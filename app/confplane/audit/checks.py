"""Database checks for operators: compatibility with this version, and with the guarantees of the trail."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from sqlalchemy import bindparam, text
from sqlalchemy.dialects.postgresql import ARRAY, TEXT

from confplane.audit import revisions
from confplane.audit.faults import COMMAND
from confplane.audit.tables import CURRENT, POSITIONS, TRANSIENT, metadata
from confplane.domain.errors import UnavailableError
from confplane.services.operator_warnings import OperatorWarning

if TYPE_CHECKING:
    from sqlalchemy.ext.asyncio import AsyncConnection

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
