"""Limits of a server that are made for requests end no reading of a rollup, and no lock."""

from __future__ import annotations

from typing import TYPE_CHECKING

import psycopg
import pytest
from pydantic import SecretStr

from confplane.audit.dsn import LIFT
from confplane.rollups.sources.postgres import open_transaction
from tests.audit.rows import run

if TYPE_CHECKING:
    from tests.support.servers import Database


@pytest.mark.parametrize("name", ["statement_timeout", "idle_in_transaction_session_timeout", "transaction_timeout"])
def test_a_reading_has_no_limit_of_time(migrated: Database, name: str) -> None:
    run(migrated.owner_dsn, f"ALTER DATABASE {migrated.name} SET {name} = '1min'")
    with psycopg.connect(migrated.service_dsn) as connection:
        assert connection.execute(f"SHOW {name}").fetchall() == [("1min",)]
    with open_transaction(SecretStr(migrated.service_dsn)) as reading:
        assert reading.rows(f"SELECT current_setting('{name}')") == [("0",)]


def test_a_server_that_lacks_a_limit_is_asked_for_nothing(migrated: Database) -> None:
    """As Postgres 16 has no transaction_timeout."""
    with open_transaction(SecretStr(migrated.service_dsn)) as reading:
        assert reading.rows(LIFT.replace("transaction_timeout", "no_such_timeout")) == []
        assert reading.rows("SELECT 1") == [(1,)]
