"""Connection strings of Postgres. Does not import SQLAlchemy, so that a rollup task that writes rows starts quickly."""

from __future__ import annotations

from typing import Any, Final

import psycopg
from psycopg.conninfo import conninfo_to_dict, make_conninfo

_CONNECT_TIMEOUT_S: Final = 10
# Both sides notice a lost network within about a minute; nothing else ends a connection that only holds a lock.
_OPTIONS: Final = (
    "-c TimeZone=UTC -c application_name=confplane-rollups -c statement_timeout=0 -c lock_timeout=60s"
    " -c idle_in_transaction_session_timeout=0 -c tcp_keepalives_idle=20 -c tcp_keepalives_interval=10"
    " -c tcp_keepalives_count=4"
)
LIFT: Final = "SELECT set_config(name, '0', true) FROM pg_settings WHERE name = 'transaction_timeout'"
"""Removes a limit of Postgres 17 for one transaction. Older servers refuse its name in connection strings."""
_OF_SERVER: Final = ("host", "hostaddr", "port", "target_session_attrs", "load_balance_hosts")
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


def merged(given: str, other: str) -> str:
    """Return a connection string for another server. Missing parameters, except the server's, come from ``other``.

    Args:
        given: A text of a command line, which other users of the machine can see.
        other: A connection string.

    Raises:
        ValueError: A text is not a connection string, or ``given`` has no host, or has a password.
    """
    parts = parse_dsn(given)
    if "password" in parts:
        raise ValueError("A command line must not have a password; it is taken from the setting postgres.dsn")
    if not {"host", "hostaddr"} & parts.keys():
        raise ValueError("The connection string names no host")
    rest = {name: value for name, value in parse_dsn(other).items() if name not in _OF_SERVER}
    return make_conninfo(**{**rest, **parts})
