"""A standby of Postgres that a run reads instead of the primary: its connection string and its replay position.

A run briefly waits for the standby to replay all commits of the primary at the time when the znodes were read. After
that, the standby returns the same data as the primary. A standby that is still lagging is read in its current state,
which limits the moment of the run.
"""

from __future__ import annotations

import time
from datetime import UTC, datetime
from typing import Final

from pydantic import SecretStr

from confplane.audit.dsn import merged
from confplane.domain.errors import UnavailableError
from confplane.rollups.sources.postgres import literal, open_transaction

WAIT_S: Final = 10.0
"""Seconds for which a run waits for its standby."""
_PAUSE_S: Final = 0.1


def standby_dsn(given: str, primary: SecretStr) -> SecretStr:
    """Return the connection string of a standby. Missing parts, except the server, are those of the primary.

    Args:
        given: The text of a command line option, so a password in it is refused.
        primary: The primary's.

    Raises:
        ValueError: The text is not a connection string, names no host, or has a password.
    """
    return SecretStr(merged(given, primary.get_secret_value()))


def wait_for_replay(standby: SecretStr, primary: SecretStr) -> datetime | None:
    """Wait until a standby has replayed everything that its primary has now, for :data:`WAIT_S` at most.

    Returns:
        None if it has; otherwise the time of the last commit that it replayed, aware.

    Raises:
        UnavailableError: One of the two is unavailable, or the standby has replayed no commit since its start.
        ValueError: The server is not a standby.
    """
    with open_transaction(primary) as there:
        [(committed,)] = there.rows("SELECT pg_current_wal_flush_lsn()::text")
    with open_transaction(standby) as here:
        [(is_standby,)] = here.rows("SELECT pg_is_in_recovery()")
        if not is_standby:
            raise ValueError("--read-dsn names a server that is not a standby")
        query = f"SELECT pg_last_wal_replay_lsn() >= {literal(committed)}::pg_lsn, pg_last_xact_replay_timestamp()"
        deadline = time.monotonic() + WAIT_S
        while True:
            [(has_all, last)] = here.rows(query)
            if has_all:
                return None
            if time.monotonic() > deadline:
                break
            time.sleep(_PAUSE_S)
    if last is None:
        raise UnavailableError("The standby is behind its primary, and has replayed no commit since its start")
    found: datetime = last
    return found.astimezone(UTC)
