"""Runs that read a standby of Postgres, which may be behind, and runs with few connections."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, Any

import psycopg
import pytest
from pydantic import SecretStr

from confplane.audit.dsn import parse_dsn
from confplane.cli.rollups import kinds_read, most_parts
from confplane.rollups import standby, stores
from confplane.rollups.exports.columns import ExportAlterations
from confplane.rollups.exports.exporter import Exporter, exclusive_export
from confplane.rollups.exports.manifest import UnreadableLakeError
from confplane.rollups.jobs import JOBS, integrity
from confplane.rollups.origin import Origin
from confplane.rollups.sinks.postgres import sort_rows
from confplane.rollups.sources import trail as trail_source
from confplane.rollups.sources.trail import group_parts
from confplane.settings import ClusterSettings
from tests.audit.rows import committed, entity, run
from tests.rollups.made import counted
from tests.rollups.test_exports import assert_is_the_tables
from tests.rollups.trail import CLUSTER, collected, expected, fill, own, same, write
from tests.support import servers
from tests.support.commands import Commands
from tests.support.forgetful import Forgetful
from tests.support.stores import rate
from tests.support.waiting import wait_for

if TYPE_CHECKING:
    from pathlib import Path

    from kazoo.client import KazooClient
    from pyspark.sql import SparkSession

    from tests.support.forgetful import Standby

PRIMARY = SecretStr("postgresql://confplane:secret@primary:5433/trail?sslmode=require&target_session_attrs=read-write")


def test_what_a_standbys_connection_string_lacks_is_the_primarys() -> None:
    found = standby.standby_dsn("host=standby port=5434", PRIMARY).get_secret_value()
    assert parse_dsn(found) == {
        "host": "standby", "port": "5434", "user": "confplane", "password": "secret", "dbname": "trail",
        "sslmode": "require",
    }  # fmt: skip
    found = standby.standby_dsn("postgresql://reader@standby", PRIMARY).get_secret_value()
    assert {name: parse_dsn(found).get(name) for name in ("host", "port", "user")} == {
        "host": "standby", "port": None, "user": "reader",
    }  # fmt: skip


@pytest.mark.parametrize(
    ("given", "why"),
    [
        ("postgresql://reader:open@standby", "must not have a password"),
        ("port=5434", "names no host"),
        ("standby", "Not a connection string"),
    ],
)
def test_a_connection_string_that_does_not_do(given: str, why: str) -> None:
    with pytest.raises(ValueError, match=why) as refused:
        standby.standby_dsn(given, PRIMARY)
    assert "open" not in str(refused.value)


def changed(dsn: str, number: int, entity_id: str, stat: Any, **given: Any) -> None:
    """Write a change and its outcome: the znode as the stat says; None where it was deleted, at a revision."""
    path = f"/config/users/{entity_id.removeprefix('user=')}"
    change = own(number, entity(entity_id, path=path, **given))
    revision, versions = (stat, {}) if isinstance(stat, int) else (stat.mzxid, {path: stat.version})
    write(dsn, [change], [committed(change, revision=revision, versions=versions)])


def test_what_a_standby_lacks_is_pending_until_it_has_it(
    spark: SparkSession, chroot: str, raw_zk: KazooClient, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    first, second = {"producer_byte_rate": "1"}, {"producer_byte_rate": "2"}
    absent: dict[str, Any] = {"version_read": None, "czxid_read": None, "before": {}}

    def made(name: str) -> Any:
        return raw_zk.create(f"/config/users/{name}", rate(1), makepath=True, include_data=True)[1]

    def found(origin: Origin) -> tuple[list[tuple[str, str, bool]], bool]:
        """The mismatches, and whether the run ends before the znodes were read."""
        with stores.read(spark, origin, jobs=[integrity.JOB]) as (reading, _):
            options = {name: reading.options[name] for name in integrity.JOB.options}
            rows = integrity.JOB(**reading.frames(integrity.JOB)[0], **options).collect()
            is_short = reading.options["horizon"] < reading.options["floor"]
        return sorted((row.entity_id, row.kind, row.pending) for row in rows), is_short

    with Forgetful(tmp_path / "server") as server:
        server._settings["wal_writer_delay"] = "10ms"
        database = servers.make_migrated(server)
        with server.with_standby(tmp_path / "standby") as replica:
            primary = SecretStr(database.service_dsn)
            dsn = standby.standby_dsn(f"host=127.0.0.1 port={replica.port}", primary)
            origin = Origin(CLUSTER, ClusterSettings(zookeeper=chroot), dsn, primary)
            for number, name in enumerate(("altered", "gone"), 1):
                changed(database.service_dsn, number, f"user={name}", stat := made(name), after=first, **absent)
                given = {"version_read": 0, "czxid_read": stat.czxid, "before": first}
            outcomes = "SELECT count(*) FROM outcomes"
            wait_for(lambda: replica.query(outcomes, database.name) == "2")
            monkeypatch.setattr(standby, "WAIT_S", 120)
            assert found(origin) == ([], False)

            replica.query("SELECT pg_wal_replay_pause()")
            wait_for(lambda: replica.query("SELECT pg_get_wal_replay_pause_state()") == "paused")
            created = raw_zk.exists("/config/users/altered").czxid
            altered = raw_zk.set("/config/users/altered", rate(2))
            raw_zk.delete("/config/users/gone")
            removed = raw_zk.create("/later", b"", include_data=True)[1].czxid - 1
            changed(
                database.service_dsn, 3, "user=altered", altered,
                version_read=0, czxid_read=created, before=first, after=second,
            )  # fmt: skip
            changed(database.service_dsn, 4, "user=gone", removed, after={}, **given)
            changed(database.service_dsn, 5, "user=new", made("new"), after=first, **absent)
            monkeypatch.setattr(standby, "WAIT_S", 0)
            pending = [
                ("user=altered", "content", True),
                ("user=gone", "no_znode", True),
                ("user=new", "no_trail", True),
            ]
            assert found(origin) == (pending, True)

            replica.query("SELECT pg_wal_replay_resume()")
            wait_for(lambda: replica.query(outcomes, database.name) == "5")
            monkeypatch.setattr(standby, "WAIT_S", 120)
            assert found(origin) == ([], False)
            assert_exported(spark, origin, database, replica, tmp_path / "lake")
            with (
                pytest.raises(ValueError, match="not a standby"),
                stores.read(spark, Origin(CLUSTER, origin.cluster, primary, primary), jobs=[]),
            ):
                pass


def assert_exported(
    spark: SparkSession, origin: Origin, database: servers.Database, replica: Standby, lake: Path
) -> None:
    """Assert that exports of the standby have each row once, and none takes a row away that the primary's had."""

    def export() -> None:
        with (
            exclusive_export(origin.primary or origin.dsn, CLUSTER),
            stores.read(spark, origin, jobs=[]) as (reading, frames),
        ):
            Exporter(spark, str(lake), reading, frames, ExportAlterations()).export(["trail"])

    export()
    changed(database.service_dsn, 6, "user=late", 2**40, after={"producer_byte_rate": "6"})
    export()
    assert_is_the_tables(lake, database, "trail")
    replica.query("SELECT pg_wal_replay_pause()")
    wait_for(lambda: replica.query("SELECT pg_get_wal_replay_pause_state()") == "paused")
    changed(database.service_dsn, 7, "user=later", 2**40 + 1, after={"producer_byte_rate": "7"})
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(standby, "WAIT_S", 0)
        with pytest.raises(UnreadableLakeError, match="or a standby that does not lag"):
            export()
    replica.query("SELECT pg_wal_replay_resume()")
    export()
    assert_is_the_tables(lake, database, "trail")


def test_parts_are_put_together_in_order() -> None:
    assert group_parts([1, 2, 3], None) == [[1], [2], [3]]
    assert group_parts([1, 2, 3, 4, 5], 2) == [[1, 2], [3, 4, 5]]
    assert group_parts([1, 2], 5) == [[1], [2]]
    assert group_parts([], 5) == []


@pytest.mark.usefixtures("two_parts")
def test_few_connections_read_and_write_the_same_rows(
    spark: SparkSession, migrated: servers.Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(trail_source, "FEWEST_ROWS", 1)
    fill(migrated.service_dsn)
    origin = Origin(CLUSTER, ClusterSettings(zookeeper="127.0.0.1:1"), SecretStr(migrated.service_dsn))
    for most, parts in ((None, 2), (1, 1)):
        with stores.read(spark, origin, jobs=[], most_parts=most) as (reading, _):
            frame = reading.frame("registration_events", ("id", "event"))
            assert frame.rdd.getNumPartitions() == parts
            wanted = [
                {name: row[name] for name in ("id", "event")}
                for row in expected(migrated.owner_dsn, "registration_events")
            ]
            assert same(collected(frame), wanted)
    job = counted(50)
    rows = sort_rows(job(), job, 3)
    assert rows.rdd.getNumPartitions() <= 3
    keys = [tuple(row[name] for name in job.key) for row in rows.collect()]
    assert (len(keys), keys) == (50, sorted(keys))


@pytest.mark.parametrize("most", range(6, 40))
def test_each_kind_of_rows_that_a_job_reads_at_a_time_has_its_share_of_the_connections(most: int) -> None:
    read = {
        "activity": 2, "compatibility": 3, "compare": 1, "drift": 1, "impact": 1, "integrity": 3, "quotas": 1, "usage": 1,
    }  # fmt: skip
    assert read.keys() == JOBS.keys()
    for name, kinds in read.items():
        parts = most_parts(most, kinds_read([JOBS[name]]))
        assert parts is not None
        assert 1 <= parts <= (most - 3) / kinds
    assert most_parts(most, kinds_read([*JOBS.values()])) == (most - 3) // 3


REGISTRATIONS = """
INSERT INTO registrations
  (event, cluster, entity_id, software_name, software_version, supported_configs, seen_at, seen_on)
SELECT 'seen', 'default', 'user=' || n % 1000, 'lib', '1', ARRAY['acks'], now(), current_date
FROM generate_series(1, 170000) AS n
"""


@pytest.mark.long
def test_two_drivers_at_once_on_a_primary_of_twenty_connections(chroot: str, tmp_path: Path) -> None:
    server = Forgetful(tmp_path / "server")
    server._settings["max_connections"] = "20"
    with server:
        database = servers.make_migrated(server)
        run(database.owner_dsn, REGISTRATIONS)
        commands = Commands(tmp_path, connect=chroot, dsn=database.service_dsn)
        arguments = ("rollups", "run", "compatibility", "--master", "local[16]", "--full")
        with ThreadPoolExecutor(2) as pool:
            both = [pool.submit(commands.run, *arguments, "--max-connections", "8") for _ in range(2)]
            assert [each.result().code for each in both] == [0, 0]
        with psycopg.connect(database.owner_dsn) as connection:
            counts = connection.execute("SELECT row_count FROM rollup_runs").fetchall()
        assert counts == [(1000,), (1000,)]
