"""The meaning of the database driver's errors for callers: one table.

Faults of the server or of the network are :class:`UnavailableError`. Every other error is a fault of the data or of
this code, and is raised unchanged.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

import psycopg
from sqlalchemy import exc

from confplane.domain.errors import UnavailableError

COMMAND: Final = "confplane migrate"
"""The command that brings the schema and the rights of the service's role to this version."""


@dataclass(frozen=True, slots=True)
class Fault:
    """A fault of the server or of the network."""

    detail: str
    again: bool
    """True if the same statement on a fresh connection may well succeed at once."""
    retry_after_s: int = 2


_LOST: Final = Fault("The connection to Postgres was lost", again=True)
_AWAY: Final = Fault("Postgres can't be reached", again=True)
_LATE: Final = Fault("Postgres did not answer in time", again=False)
BUSY: Final = Fault("All connections to Postgres are taken", again=False)
_REFUSED: Final = Fault("Postgres refused the service's login", again=False, retry_after_s=30)
_MISMATCH: Final = Fault(
    f"The database is not at the schema of this version; run `{COMMAND}`", again=False, retry_after_s=30
)

# SQLSTATEs, or their first two characters: https://www.postgresql.org/docs/current/errcodes-appendix.html
_BY_STATE: Final = {
    "08": _LOST,
    "57P01": _LOST,  # admin_shutdown
    "57P02": _LOST,  # crash_shutdown
    "57P03": _AWAY,  # cannot_connect_now: starting up, shutting down
    "57P04": _AWAY,  # database_dropped
    "57P05": _LOST,  # idle_session_timeout
    "57014": _LATE,  # query_canceled: statement_timeout
    "55P03": Fault("A table of the trail is locked", again=False),  # lock_not_available: lock_timeout
    "25006": Fault("Postgres is read-only: a standby, or the other side of a failover", again=True),
    "25P03": _LOST,  # idle_in_transaction_session_timeout
    "40": Fault("Postgres asked for another try", again=True),  # serialization failure, deadlock
    "53": Fault("Postgres is out of disk space, memory or connections", again=False, retry_after_s=10),
    "58": Fault("Postgres met an error of its own system", again=False, retry_after_s=10),
    "28": _REFUSED,
    "3D000": Fault("The database does not exist", again=False, retry_after_s=30),
    "42P01": _MISMATCH,  # undefined_table
    "42703": _MISMATCH,  # undefined_column
    "42501": Fault(f"The service's role lacks its rights; run `{COMMAND}`", again=False, retry_after_s=30),
    "3F000": _MISMATCH,  # invalid_schema_name
}


def classify(error: BaseException) -> Fault | None:
    """Return the fault that caused an error, or None for an error of the data or of this code."""
    if isinstance(error, exc.TimeoutError):
        return BUSY
    if isinstance(error, TimeoutError):
        return _LATE
    cause = error.orig if isinstance(error, exc.DBAPIError) else error
    if isinstance(cause, psycopg.Error) and cause.sqlstate:
        return _BY_STATE.get(cause.sqlstate) or _BY_STATE.get(cause.sqlstate[:2])
    if isinstance(error, exc.DBAPIError) and error.connection_invalidated:
        return _LOST
    # An error without a SQLSTATE comes from the client: refused, reset, timed out, a name that does not resolve.
    if isinstance(cause, psycopg.OperationalError | psycopg.InterfaceError | OSError):
        return _AWAY
    return None


def unavailable(fault: Fault) -> UnavailableError:
    """Return the error for callers."""
    return UnavailableError(fault.detail, retry_after_s=fault.retry_after_s)
