"""The embedded servers serve, with the roles and limits that the rest relies on."""

from __future__ import annotations

from typing import TYPE_CHECKING

import psycopg
import pytest
from kazoo.client import KazooClient

from confplane.devstack.errors import DevStackError
from confplane.devstack.postgres import SERVICE, Postgres
from confplane.devstack.zookeeper import ZooKeeper

if TYPE_CHECKING:
    from pathlib import Path

    from tests.support.servers import Database


def test_zookeeper_grants_short_sessions_and_the_chroot_exists(chroot: str, raw_zk: KazooClient) -> None:
    assert raw_zk.exists("/") is not None
    short = KazooClient(hosts=chroot, timeout=1.0)
    short.start()
    try:
        assert short.client_state
        assert short._session_timeout == 1000
    finally:
        short.stop()
        short.close()


def test_the_owner_makes_tables_and_the_service_owns_nothing(database: Database) -> None:
    with psycopg.connect(database.owner_dsn) as owner:
        owner.execute("CREATE TABLE trail (id int)")
        owner.execute(f"GRANT INSERT ON trail TO {SERVICE}")
    with psycopg.connect(database.service_dsn) as service:
        service.execute("INSERT INTO trail VALUES (1)")
        with pytest.raises(psycopg.errors.InsufficientPrivilege):
            service.execute("SELECT * FROM trail")
    with psycopg.connect(database.service_dsn) as service, pytest.raises(psycopg.errors.InsufficientPrivilege):
        service.execute("CREATE TABLE mine (id int)")


def test_postgres_acknowledges_only_what_is_written_and_sorts_by_code_point(database: Database) -> None:
    with psycopg.connect(database.service_dsn) as service:
        row = service.execute("SHOW synchronous_commit").fetchone()
        assert row == ("on",)
        names = service.execute("SELECT n FROM (VALUES ('b'), ('B'), ('a'), ('_')) v(n) ORDER BY n").fetchall()
        assert [name for (name,) in names] == ["B", "_", "a", "b"]


def test_a_wrong_password_is_refused(postgres: Postgres) -> None:
    wrong = postgres.dsn().replace(":", ":x", 2).replace("postgresql:x", "postgresql:")
    with pytest.raises(psycopg.OperationalError, match="password authentication failed"):
        psycopg.connect(wrong)


def test_a_database_name_is_never_taken_as_sql(postgres: Postgres) -> None:
    with pytest.raises(ValueError, match="identifier"):
        postgres.create_database('x"; DROP DATABASE confplane; --')


def test_a_server_that_dies_while_starting_says_why_at_once(tmp_path: Path) -> None:
    with pytest.raises(DevStackError, match=r"(?s)ended while starting.*Invalid maximum heap size"):
        ZooKeeper(tmp_path, max_heap="nonsense").start()


def test_a_taken_port_is_named(zookeeper: ZooKeeper, tmp_path: Path) -> None:
    with pytest.raises(DevStackError, match=f"port {zookeeper.port}.*taken"):
        Postgres(tmp_path, port=zookeeper.port).start()
