"""``confplane migrate``: migration of the database to the schema of this version."""

from __future__ import annotations

from typing import TYPE_CHECKING
from urllib.parse import unquote, urlsplit

from confplane.audit.migrate import upgrade
from confplane.cli.output import echo
from confplane.domain.errors import ConfplaneError

if TYPE_CHECKING:
    from confplane.settings import Settings

_FAILED = 1


def run(settings: Settings) -> int:
    """Migrate and return the exit code."""
    dsn = settings.postgres.dsn.get_secret_value()
    role = urlsplit(dsn).username or ""
    owner = settings.postgres.migration_dsn
    return upgrade_database(
        owner.get_secret_value() if owner else dsn, unquote(role), traceback=settings.log_level == "debug"
    )


def upgrade_database(dsn: str, service_role: str, *, traceback: bool = False) -> int:
    """Migrate, print the reason for a failure on standard error, and return the exit code.

    Args:
        dsn: The role that owns the tables.
        service_role: The role that is granted the service's rights.
        traceback: True to raise errors of the database.
    """
    try:
        upgrade(dsn, service_role, progress=echo)
    except ConfplaneError as error:
        echo(f"Not migrated: {error}", err=True)
        return _FAILED
    except Exception as error:
        if traceback:
            raise
        # The database driver's message: the server is unavailable, the password is wrong, or a right is missing.
        echo(f"Not migrated: {' '.join(str(error).split())} (CONFPLANE_LOG_LEVEL=debug shows more)", err=True)
        return _FAILED
    return 0
