"""Connection strings of Postgres. Free of SQLAlchemy, so that a task of a rollup that writes rows starts quickly."""

from __future__ import annotations

from typing import Any, Final

import psycopg
from psycopg.conninfo import conninfo_to_dict, make_conninfo

_CONNECT_TIMEOUT_S: Final = 10
# A lost network is noticed within a minute or so, on either side; nothing else ends a connection that only holds a
# lock.
_OPTIONS: Final = (
    "-c TimeZone=UTC -c application_name=confplane-rollups -c statement_timeout=0 -c lock_timeout=60s"
    " -c idle_in_transaction_session_timeout=0 -c tcp_keepalives_idle=20 -c tcp_keepalives_interval=10"
    " -c tcp_keepalives_count=4"
)
_KEEPALIVES: Final = {"keepalives_idle": 20, "keepalives_interval": 10, "keepalives_count": 4}


def parse_dsn(dsn: str) -> dict[str, Any]:
    """Return the parts of a connection string.

    Raises:
        ValueError: The text is not a connection string. The message does not repeat it: it may hold a password.
    """
    try:
        return dict(conninfo_to_dict(dsn))
    except psycopg.ProgrammingError:
        raise ValueError("Not a connection string of the form postgresql://user:password@host/database") from None


def conninfo(dsn: str) -> str:
    """Return the connection parameters of a process that makes a run: no limit on statements, and keepalives.

    Raises:
        ValueError: ``dsn`` is not a connection string.
    """
    given = parse_dsn(dsn)
    options = f"{_OPTIONS} {given.get('options') or ''}".strip()
    return make_conninfo(dsn, connect_timeout=_CONNECT_TIMEOUT_S, options=options, **_KEEPALIVES)
