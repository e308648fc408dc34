"""Statements of Postgres that wait until a test lets them continue, so that a test can stop a process there."""

from __future__ import annotations

from contextlib import contextmanager
from typing import TYPE_CHECKING, Final

import psycopg

from tests.support.waiting import wait_for

if TYPE_CHECKING:
    from collections.abc import Iterator
    from contextlib import AbstractContextManager

    from tests.support.processes import Program

_LOCK: Final = 52_339_071
_WAITING: Final = """
SELECT count(*) FROM pg_locks JOIN pg_stat_activity USING (pid)
WHERE datname = current_database() AND NOT granted AND locktype = %s AND (locktype <> 'advisory' OR objid = %s)
"""


class Stall:
    """A statement that waits or will wait."""

    def __init__(self, connection: psycopg.Connection) -> None:
        self._connection = connection

    @property
    def reached(self) -> bool:
        """True while the statement waits."""
        return self._waiting("advisory")

    @property
    def in_the_way(self) -> bool:
        """True while another statement waits for the end of a transaction, such as the stalled one."""
        return self._waiting("transactionid")

    def _waiting(self, kind: str) -> bool:
        row = self._connection.execute(_WAITING, [kind, _LOCK]).fetchone()
        return row is not None and row[0] > 0

    def wait_for(self, sender: Program, seconds: float) -> None:
        """Wait until a program has sent the statement."""

        def reached() -> bool:
            assert sender.process.poll() is None, sender.output
            return self.reached

        wait_for(reached, seconds, why="the statement never came")


@contextmanager
def stalled(owner_dsn: str, when: str, condition: str) -> Iterator[Stall]:
    """Make a statement wait until the block ends, for the rows that it writes.

    Args:
        owner_dsn: Of the tables' owner.
        when: The statement: ``INSERT ON outcomes``.
        condition: Condition on the rows, in SQL: ``NEW.committed``.
    """
    table = when.rpartition(" ")[2]
    with psycopg.connect(owner_dsn, autocommit=True) as connection:
        connection.execute(
            "CREATE OR REPLACE FUNCTION stall() RETURNS trigger LANGUAGE plpgsql AS "
            f"$$ BEGIN PERFORM pg_advisory_xact_lock({_LOCK}); RETURN NEW; END $$"
        )
        connection.execute(
            f"CREATE TRIGGER stall BEFORE {when} FOR EACH ROW WHEN ({condition}) EXECUTE FUNCTION stall()"
        )
        connection.execute(f"SELECT pg_advisory_lock({_LOCK})")
        yield Stall(connection)
        connection.execute(f"SELECT pg_advisory_unlock({_LOCK})")
        connection.execute(f"DROP TRIGGER stall ON {table}")


def stalled_at(owner_dsn: str, step: str, entity_id: str, path: str) -> AbstractContextManager[Stall]:
    """Make a change of one entity wait at its ``intent`` or at its ``outcome`` until the block ends.

    Args:
        owner_dsn: Of the tables' owner.
        step: ``intent`` or ``outcome``.
        entity_id: The entity.
        path: The full path of its znode after the change.
    """
    if step == "intent":
        return stalled(owner_dsn, "INSERT ON intent_entities", f"NEW.entity_id = '{entity_id}'")
    return stalled(owner_dsn, "INSERT ON outcomes", f"NEW.versions ? '{path}'")
