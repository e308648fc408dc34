"""Migration of a database to the schema of this version.

Alembic is configured in code, so there is no alembic.ini. The migrations are in ``migrations/`` of a checkout, or in
``_migrations`` of an installed wheel.
"""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Final

import psycopg
from alembic import command
from alembic.config import Config
from alembic.runtime.migration import MigrationContext
from psycopg.conninfo import make_conninfo
from sqlalchemy import NullPool, create_engine, text

from confplane.audit.dsn import parse_dsn
from confplane.audit.revisions import OLDEST_RELEASE, head_revision, known_revisions, location
from confplane.audit.tables import CURRENT, FUNCTIONS, POSITIONS, TRANSIENT, metadata
from confplane.domain.errors import UnavailableError

if TYPE_CHECKING:
    from collections.abc import Callable

    from sqlalchemy import Connection

# Any fixed number, the same in all versions: concurrent migrations of one database run one after another.
_ADVISORY_LOCK: Final = 7_305_084_163
_ADVISORY_WAIT_S: Final = 120.0
_CONNECT_TIMEOUT_S: Final = 10
# A migration that waits for a table's lock blocks all later statements on it; failing and running again is better.
_LOCK_TIMEOUT: Final = "5s"


_STATEMENT: Final = "The schema of a release of Confplane. Older releases can run on it from revision "
"""The beginning of the comment of the table of the revision. The oldest release's head revision follows."""


_REMEDY: Final = "Run the later release: there is no way back from a migration"


def upgrade(dsn: str, service_role: str, *, progress: Callable[[str], None] | None = None) -> None:
    """Create or upgrade the schema and grant the service its rights. May run at any time, repeatedly and concurrently.

    Args:
        dsn: ``postgresql://...`` of the role that will own the tables.
        service_role: The service's role. It gets only SELECT and INSERT; in addition UPDATE and DELETE on the tables
            that hold no history, and UPDATE on the tables of tokens and grants.
        progress: Called with each step, a sentence at a time.

    Raises:
        ValueError: ``dsn`` is not a connection string.
        UnavailableError: Another migration held the lock for two minutes; or the schema is of a later release, and this
            release can't run on it.
        sqlalchemy.exc.DBAPIError: Postgres is unavailable, or refused a statement.
    """
    tell = progress or _ignore
    config = _config()
    conninfo = make_conninfo(**{**parse_dsn(dsn), "connect_timeout": _CONNECT_TIMEOUT_S})
    engine = create_engine(
        "postgresql+psycopg://",
        creator=lambda: psycopg.connect(conninfo),
        poolclass=NullPool,
        hide_parameters=True,
    )
    try:
        with engine.connect() as connection:
            _lock(connection, tell)
            before = current_revision(connection)
            connection.commit()
            if before is not None and before not in known_revisions():
                tell(_of_later_release(connection, before))
                return
            config.attributes["connection"] = connection
            command.upgrade(config, "head")
            connection.execute(text(f"COMMENT ON TABLE alembic_version IS '{_STATEMENT}{OLDEST_RELEASE}'"))
            connection.commit()
            after = current_revision(connection)
            grants = _grant(connection, service_role)
            connection.commit()
            if before == after:
                tell(f"The schema is at revision {after} already.")
            else:
                tell(f"The schema went from {before or 'nothing'} to revision {after}.")
            tell(grants)
    finally:
        engine.dispose()


def current_revision(connection: Connection) -> str | None:
    """Return the schema revision of the database, or None if it was never migrated."""
    return MigrationContext.configure(connection).get_current_revision()


def _of_later_release(connection: Connection, revision: str) -> str:
    """Return the statement of a schema that this release can run on.

    Raises:
        UnavailableError: It does not state so.
    """
    comment = connection.scalar(text("SELECT obj_description(CAST('alembic_version' AS regclass))")) or ""
    oldest = comment.removeprefix(_STATEMENT) if comment.startswith(_STATEMENT) else None
    head = head_revision()
    found = f"The schema is at revision {revision}, of a later release; this release knows revision {head}"
    if oldest is None:
        raise UnavailableError(f"{found}, and the schema does not state that this release can run on it. {_REMEDY}")
    if head < oldest:
        raise UnavailableError(f"{found}, and only releases from revision {oldest} can run on it. {_REMEDY}")
    return f"{found}. The later release states that this one can run on it. Nothing is changed."


def _config() -> Config:
    config = Config()
    config.set_main_option("script_location", str(location()).replace("%", "%%"))
    # The separator of a path list: a path that contains a space must not be split.
    config.set_main_option("path_separator", "newline")
    return config


def _lock(connection: Connection, tell: Callable[[str], None]) -> None:
    # Polled instead of waited for, so that a waiting migration can report the reason.
    give_up_at = time.monotonic() + _ADVISORY_WAIT_S
    said = False
    while not connection.scalar(text("SELECT pg_try_advisory_lock(:key)"), {"key": _ADVISORY_LOCK}):
        connection.commit()
        if time.monotonic() > give_up_at:
            raise UnavailableError(
                "Another migration of this database has been running for two minutes", retry_after_s=60
            )
        if not said:
            tell("Another migration is running; waiting for it.")
            said = True
        time.sleep(0.25)
    connection.execute(text(f"SET lock_timeout = '{_LOCK_TIMEOUT}'"))
    connection.commit()


def _grant(connection: Connection, role: str) -> str:
    if role == connection.scalar(text("SELECT current_user")):
        # Revoking an owner's rights would only hinder the next migration: an owner can always restore them.
        return f"The service's role {role} owns the tables; use a role of its own, and this one for migrations only."
    quote = connection.dialect.identifier_preparer.quote_identifier
    schema = connection.scalar(text("SELECT current_schema()"))
    tables = ", ".join(quote(table.name) for table in metadata.sorted_tables)
    transient = ", ".join(quote(table.name) for table in TRANSIENT)
    positions = ", ".join(quote(table.name) for table in POSITIONS)
    current = ", ".join(quote(table.name) for table in CURRENT)
    functions, grantee = ", ".join(FUNCTIONS), quote(role)
    # Rights on the partitioned table are enough; the partitions themselves need none.
    partitions = connection.scalars(
        text("SELECT CAST(inhrelid AS regclass) FROM pg_inherits WHERE inhparent = CAST('rollup_rows' AS regclass)")
    )
    revoked = ", ".join([tables, "alembic_version", *partitions])
    for statement in (
        f"GRANT USAGE ON SCHEMA {quote(str(schema))} TO {grantee}",
        # Rights from other grants are revoked. All of this is one transaction, so a running service notices nothing.
        f"REVOKE ALL ON TABLE {revoked} FROM {grantee}, PUBLIC",
        f"GRANT SELECT, INSERT ON TABLE {tables} TO {grantee}",
        f"GRANT UPDATE, DELETE ON TABLE {transient} TO {grantee}",
        f"GRANT UPDATE, DELETE ON TABLE {positions} TO {grantee}",
        f"GRANT UPDATE ON TABLE {current} TO {grantee}",
        f"GRANT SELECT ON TABLE alembic_version TO {grantee}",
        f"REVOKE ALL ON FUNCTION {functions} FROM PUBLIC",
        f"GRANT EXECUTE ON FUNCTION {functions} TO {grantee}",
    ):
        connection.execute(text(statement.replace(":", r"\:")))
    return (
        f"The role {role} may select and insert; besides it may drop the keys of requests and the results of "
        "rollups, move the recorder's position, and change tokens and grants."
    )


def _ignore(_message: str) -> None:
    pass
