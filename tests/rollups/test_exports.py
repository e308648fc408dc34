"""The history in a lake: what others read of it is the tables, each row once, whichever step ended a process."""

from __future__ import annotations

import json
import random
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any

import jsonschema_rs
import psycopg
import pytest
from pydantic import SecretStr

from confplane.domain.errors import ConcurrentChangeError
from confplane.domain.extra_keys import Catalogs
from confplane.rollups import stores
from confplane.rollups.exports.columns import REMOVABLE, ExportAlterations, pseudonym
from confplane.rollups.exports.exporter import NAMES, Exporter, exclusive_export
from confplane.rollups.exports.manifest import UnreadableLakeError
from confplane.rollups.exports.reading import count_rows, read_lake
from confplane.rollups.jobs import JOBS, activity, compare, integrity, usage
from confplane.rollups.origin import Origin
from confplane.rollups.reading import NotInReadingError
from confplane.rollups.sources import trail as trail_source
from confplane.rollups.sources.tables import TABLES
from confplane.settings import ClusterSettings
from tests.audit.rows import age, change_id, committed, entity, fetch, intent, rejected, run
from tests.rollups import driver
from tests.rollups.driver import rows_of
from tests.rollups.lake import exported, query
from tests.rollups.made import plain as plain_value
from tests.rollups.trail import CLUSTER, EPOCH, START_MS, collected, expected, fill, own, same, write
from tests.support import servers
from tests.support.commands import Commands
from tests.support.forgetful import Forgetful
from tests.support.stores import rate
from tests.support.waiting import wait_for

if TYPE_CHECKING:
    from collections.abc import Collection
    from pathlib import Path

    from kazoo.client import KazooClient
    from pyspark.sql import SparkSession

    from confplane.rollups.exports.manifest import Manifest
    from confplane.rollups.job import Job
    from confplane.rollups.reading import Reading

COMPARED = {name: job for name, job in JOBS.items() if job not in (compare.JOB, usage.JOB)}
"""The jobs that read the history alone: a lake has no other side, and no measurements."""
DAY_MS = 86_400_000
FRAMES = {"trail": "changes", "registrations": "registration_events", "states": "states"}
KEY = b"a key of sixteen bytes, or more"


def origin_of(database: servers.Database, zookeeper: str = "127.0.0.1:1") -> Origin:
    # Nothing listens there: without znodes nobody asks.
    return Origin(CLUSTER, ClusterSettings(zookeeper=zookeeper), SecretStr(database.service_dsn))


def at_rest(database: servers.Database) -> None:
    """Wait until all transactions that were begun before have ended: an export repeats what is behind the oldest."""
    [(next_one,)] = fetch(database.owner_dsn, "SELECT pg_snapshot_xmax(pg_current_snapshot())::text::bigint")
    oldest = "SELECT pg_snapshot_xmin(pg_current_snapshot())::text::bigint"
    wait_for(lambda: fetch(database.owner_dsn, oldest)[0][0] >= next_one, 60)


def export(
    spark: SparkSession,
    origin: Origin,
    lake: Path,
    *names: str,
    altered: ExportAlterations = ExportAlterations(),  # noqa: B008 - it is frozen
    full: bool = False,
    most_parts: int | None = None,
) -> Manifest:
    """Export as the command does."""
    wanted = names or ("trail", "registrations")
    jobs: list[Job] | None = None if "znodes" in wanted else []
    with (
        exclusive_export(origin.dsn, origin.name),
        stores.read(spark, origin, jobs=jobs, most_parts=most_parts) as (reading, frames),
    ):
        return Exporter(spark, str(lake), reading, frames, altered).export(wanted, full=full)


def assert_is_the_tables(lake: Path, database: servers.Database, *names: str) -> None:
    for name, frame in FRAMES.items() if not names else [(name, FRAMES[name]) for name in names]:
        columns = TABLES[frame].schema.names
        rows = [{column: row[column] for column in columns} for row in exported(lake, name, CLUSTER)]
        assert same(rows, expected(database.owner_dsn, frame))


def assert_described(lake: Path, *names: str, without: Collection[str] = ()) -> None:
    """Assert that the rows have the columns that the schemas in the lake name, and are valid by them."""
    for name in names:
        described = json.loads((lake / "_schemas" / f"export={name}" / "1.json").read_text())
        rows = exported(lake, name, CLUSTER)
        assert [column for column in described["properties"] if column not in without] == [
            column for column in rows[0] if column not in {"export", "cluster", "day", "export_id"}
        ]
        assert {*described["properties"]} - {*described["required"]} == ({*REMOVABLE} if name == "trail" else set())
        check = jsonschema_rs.validator_for(described).validate
        for row in rows:
            check({column: _json(row[column]) for column in described["properties"] if column in row})


def _json(value: Any) -> Any:
    return value if isinstance(value, dict) else plain_value(value)


class History:
    """Writes what a cluster writes, at random: late rows, outcomes of long ago, retries, registrations, states."""

    def __init__(self, dsn: str, seed: int) -> None:
        self._dsn = dsn
        self._random = random.Random(seed)  # noqa: S311 - the same each time
        self._number = 100
        self._open: list[Any] = []

    def step(self) -> None:
        for _ in range(self._random.randrange(1, 4)):
            self._random.choice(
                (self._change, self._change, self._conclude, self._retry, self._register, self._state)
            )()

    def new(self) -> Any:
        """A change of any of ten days."""
        self._number += 1
        at = START_MS + self._random.randrange(10) * DAY_MS + self._number
        each = entity(f"user=u{self._number % 7}", before={}, after={"k": str(self._number)})
        return intent(change_id(at, self._number), each, cluster=CLUSTER)

    def _change(self) -> None:
        made = self.new()
        if self._random.random() < 0.5:
            self._open.append(made)
            write(self._dsn, [made])
        else:
            write(self._dsn, [made], [committed(made, revision=self._number)])

    def _conclude(self) -> None:
        if self._open:
            made = self._open.pop(self._random.randrange(len(self._open)))
            write(self._dsn, [], [rejected(made) if self._random.random() < 0.5 else committed(made)])

    def _retry(self) -> None:
        if self._open:
            at = self._random.randrange(len(self._open))
            again = self._open[at]
            again = intent(again.change_id, *again.entities, cluster=CLUSTER, attempt=again.attempt + 1)
            self._open[at] = again
            write(self._dsn, [again])

    def _register(self) -> None:
        run(
            self._dsn,
            f"""
            INSERT INTO registrations (event, cluster, entity_id, software_name, software_version, supported_configs,
              seen_at, seen_on, recorded_at)
            SELECT 'seen', '{CLUSTER}', 'user=n' || n, 'lib', '{self._number}', ARRAY['acks'], now(), current_date,
              now() - n * interval '1 day' FROM generate_series(1, {self._random.randrange(1, 4)}) AS n
            """,  # noqa: S608 - constants
        )

    def _state(self) -> None:
        which = self._random.randrange(1, 4)
        run(self._dsn, f"UPDATE entity_states SET version = version + 1 WHERE mzxid % {which} = 0")  # noqa: S608


@pytest.mark.usefixtures("few_rows")
@pytest.mark.parametrize("steps", [2, pytest.param(50, marks=[pytest.mark.long, pytest.mark.timeout(3600)])])
def test_exports_step_by_step_come_to_the_tables_whatever_the_order_of_commits(
    spark: SparkSession, migrated: servers.Database, tmp_path: Path, steps: int
) -> None:
    fill(migrated.service_dsn)
    origin, history = origin_of(migrated), History(migrated.service_dsn, 6)
    late: psycopg.Connection[Any] | None = None
    for _ in range(steps):
        if late is None:
            # Begins before the export, as the rows of a slow writer, and commits after the rows of others.
            late = psycopg.connect(migrated.service_dsn)
            add_open(late, history.new())
        else:
            late.commit()
            late.close()
            late = None
        history.step()
        export(spark, origin, tmp_path)
        assert_is_the_tables(tmp_path, migrated)
    if late is not None:
        late.close()
    stepwise = {name: exported(tmp_path, name, CLUSTER) for name in FRAMES}
    export(spark, origin, tmp_path, full=True)
    assert {name: plain(exported(tmp_path, name, CLUSTER)) for name in FRAMES} == {
        name: plain(rows) for name, rows in stepwise.items()
    }


def add_open(connection: psycopg.Connection[Any], made: Any) -> None:
    """Write the rows of an open change in a transaction that stays open."""
    [each] = made.entities
    connection.execute(
        "INSERT INTO intents (change_id, attempt, cluster, principal, writer, source, request_id)"
        " VALUES (%s, 1, %s, 'User:late', '', '', '')",
        [made.change_id, CLUSTER],
    )
    connection.execute(
        "INSERT INTO intent_entities (change_id, attempt, position, cluster, entity_id, facet, path, keys, ops, before,"
        " after) VALUES (%s, 1, 0, %s, %s, 'configs', %s, '{k}', '[]', '{}', '{}')",
        [made.change_id, CLUSTER, each.entity_id, each.path],
    )


def plain(rows: list[dict[str, Any]]) -> list[str]:
    return sorted(repr({**row, "export_id": None}) for row in rows)


def test_only_days_that_changed_are_written_and_none_where_nothing_did(
    spark: SparkSession, migrated: servers.Database, tmp_path: Path
) -> None:
    origin = origin_of(migrated)
    old = intent(change_id(START_MS - 300 * DAY_MS, 300), cluster=CLUSTER)
    write(migrated.service_dsn, [old, own(1), own(2)], [committed(own(1))])
    at_rest(migrated)
    first = export(spark, origin, tmp_path, "trail").datasets["trail"]
    assert [(each.rows, each.open) for each in first.days] == [(1, 1), (2, 1)]
    assert export(spark, origin, tmp_path, "trail").datasets["trail"].days == first.days
    # The outcome of a change of ten months ago.
    write(migrated.service_dsn, [], [committed(old)])
    at_rest(migrated)
    second = export(spark, origin, tmp_path, "trail").datasets["trail"]
    assert [each.export_id for each in second.days] == [second.export_id, first.export_id]
    assert [(each.rows, each.open) for each in second.days] == [(1, 0), (2, 1)]
    # Tables that were restored to an earlier state have other days than the lake knows.
    gone = f"DELETE FROM intents WHERE change_id IN ('{own(2).change_id}', '{old.change_id}')"  # noqa: S608 - constants
    run(migrated.owner_dsn, f"ALTER TABLE intents DISABLE TRIGGER USER; {gone}")
    third = export(spark, origin, tmp_path, "trail").datasets["trail"]
    assert [(each.export_id, each.rows) for each in third.days] == [(third.export_id, 1)]
    assert_is_the_tables(tmp_path, migrated, "trail")


def test_rows_of_a_lake_are_counted_without_spark_on_this_machine_alone(tmp_path: Path) -> None:
    assert count_rows("s3a://lake/exports", CLUSTER, [activity.JOB]) is None
    with pytest.raises(UnreadableLakeError):
        count_rows(str(tmp_path), CLUSTER, [activity.JOB])


def test_a_lake_never_goes_back_in_time(spark: SparkSession, migrated: servers.Database, tmp_path: Path) -> None:
    fill(migrated.service_dsn)
    origin = origin_of(migrated)
    # Few connections, so that tasks read several parts in turn.
    export(spark, origin, tmp_path, most_parts=1)
    path = tmp_path / "_exports" / f"{CLUSTER}.json"
    found = json.loads(path.read_text())
    # As of a moment that a standby that is behind does not have yet.
    found["datasets"]["registrations"]["as_of"] = (datetime.now(UTC) + timedelta(hours=1)).isoformat()
    path.write_text(json.dumps(found))
    with pytest.raises(UnreadableLakeError, match="already, and this reading of "):
        export(spark, origin, tmp_path)
    export(spark, origin, tmp_path, "trail")
    export(spark, origin, tmp_path, full=True)
    assert_is_the_tables(tmp_path, migrated)


def test_another_history_of_postgres_is_exported_from_the_start(spark: SparkSession, tmp_path: Path) -> None:
    with Forgetful(tmp_path / "server") as server:
        server._settings["wal_writer_delay"] = "10ms"
        database = servers.make_migrated(server)
        write(database.service_dsn, [own(1), own(2)], [committed(own(1)), committed(own(2))])
        at_rest(database)
        with server.with_standby(tmp_path / "standby") as replica:
            lake = tmp_path / "lake"
            before = export(spark, origin_of(database), lake)
            assert export(spark, origin_of(database), lake).datasets["trail"].days == before.datasets["trail"].days
            replica.cut_off()
            replica.promote()
            there = servers.Database(
                database.name, *(dsn.replace(f":{server.port}/", f":{replica.port}/")
                for dsn in (database.owner_dsn, database.service_dsn)),
            )  # fmt: skip
            # A commit that was lost, not the newest.
            gone = f"DELETE FROM intents WHERE change_id = '{own(1).change_id}'"  # noqa: S608 - a constant
            run(there.owner_dsn, f"ALTER TABLE intents DISABLE TRIGGER USER; {gone}")
            after = export(spark, origin_of(there), lake)
            assert {each.export_id for each in after.datasets["trail"].days}.isdisjoint(
                each.export_id for each in before.datasets["trail"].days
            )
            assert_is_the_tables(lake, there, "trail")


def test_rows_that_a_restored_backup_replaced_are_exported_again(
    spark: SparkSession, migrated: servers.Database, tmp_path: Path
) -> None:
    history = History(migrated.service_dsn, 7)
    position = "INSERT INTO store_positions (cluster, incarnation, id, cversion, pzxid) VALUES ('{}', 1, 'a', 0, 0)"
    run(migrated.service_dsn, position.format(CLUSTER))
    for _ in range(2):
        history._register()
    before = export(spark, origin_of(migrated), tmp_path, "registrations").datasets["registrations"]
    # As `confplane restore` does: the last ids are used again.
    last = "SELECT setval(pg_get_serial_sequence('registrations', 'id'), 1)"
    gone = "ALTER TABLE registrations DISABLE TRIGGER USER; DELETE FROM registrations WHERE id > 1"
    run(migrated.owner_dsn, f"{gone}; {last}")
    run(migrated.service_dsn, f"UPDATE store_positions SET incarnation = 2, id = 'b' WHERE cluster = '{CLUSTER}'")  # noqa: S608 - a constant
    while fetch(migrated.owner_dsn, "SELECT max(id) FROM registrations")[0][0] <= int(
        before.position["registration_id"]
    ):
        history.new()  # another version of the software
        history._register()
    export(spark, origin_of(migrated), tmp_path, "registrations")
    assert_is_the_tables(tmp_path, migrated, "registrations")


@pytest.mark.long
def test_a_large_day_is_read_and_written_by_several_tasks(
    spark: SparkSession, migrated: servers.Database, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(trail_source, "FEWEST_ROWS", 1)
    fill(migrated.service_dsn)
    origin = origin_of(migrated)
    export(spark, origin, tmp_path)
    more = [own(number) for number in range(60, 260)]
    write(migrated.service_dsn, more, [committed(each) for each in more])
    export(spark, origin, tmp_path)
    assert_is_the_tables(tmp_path, migrated)
    assert max(files_of_days(tmp_path, "trail")) == 2
    assert max(files_of_days(tmp_path, "states")) == 2
    # Each file is sorted, and of one directory.
    for path in tmp_path.glob("export=trail/*/*/*/*.parquet"):
        ids = [row["change_id"] for row in query(f"SELECT change_id FROM '{path}'")]  # noqa: S608 - a path of a test
        assert ids == sorted(ids)
    export(spark, origin, tmp_path, full=True, most_parts=1)
    assert {*files_of_days(tmp_path, "trail", newest=True)} == {1}


def files_of_days(lake: Path, name: str, *, newest: bool = False) -> list[int]:
    """The numbers of files in the directories of the days; of the newest export alone where asked for."""
    found = sorted(lake.glob(f"export={name}/cluster={CLUSTER}/*/*"), key=lambda path: path.name)
    return [len([*path.glob("*.parquet")]) for path in found if not newest or path.name == found[-1].name]


def test_a_lake_whose_path_spark_would_take_for_a_pattern_is_refused(
    spark: SparkSession, migrated: servers.Database, tmp_path: Path
) -> None:
    lake = tmp_path / "[a]"
    with pytest.raises(UnreadableLakeError, match=r"must not have '\['"):
        export(spark, origin_of(migrated), lake)
    assert not lake.exists()
    with pytest.raises(UnreadableLakeError, match=r"must not have '\['"):
        read_lake(spark, str(lake), CLUSTER, [activity.JOB], Catalogs())


def test_two_exports_of_a_cluster_are_not_made_at_once(migrated: servers.Database) -> None:
    dsn = SecretStr(migrated.service_dsn)
    with exclusive_export(dsn, CLUSTER):
        with exclusive_export(dsn, "elsewhere"):
            pass
        with pytest.raises(ConcurrentChangeError, match="under way already"), exclusive_export(dsn, CLUSTER):
            pass


def test_columns_are_left_out_and_principals_replaced(
    spark: SparkSession, migrated: servers.Database, tmp_path: Path
) -> None:
    write(migrated.service_dsn, [own(1, reason="a person's words"), own(2, ticket="T-1", principal="User:zoë")])
    run(
        migrated.service_dsn,
        f"""
        INSERT INTO intents (change_id, attempt, cluster, principal, writer, source, request_id, kind, writes)
        VALUES ('{change_id(START_MS, 8)}', 1, '{CLUSTER}', 'External:unknown', '', 'zookeeper', '', 'external', 3);
        INSERT INTO intent_entities (change_id, attempt, position, cluster, entity_id, facet, path, keys, ops, before, after)
        VALUES ('{change_id(START_MS, 8)}', 1, 0, '{CLUSTER}', 'topic=t', 'node', '/t', '{{}}', '[]', '{{}}', '{{}}')
        """,  # noqa: S608 - constants
    )
    origin, altered = origin_of(migrated), ExportAlterations(("reason", "ticket"), KEY)
    export(spark, origin, tmp_path, altered=altered)
    rows = exported(tmp_path, "trail", CLUSTER)
    names = {row["principal"] for row in expected(migrated.owner_dsn, "changes")}
    assert {row["principal"] for row in rows} == {pseudonym(KEY, name) for name in names}
    assert "External:unknown" in {row["principal"] for row in rows}
    assert not {"reason", "ticket"} & {*rows[0]}
    assert_described(tmp_path, "trail", without=("reason", "ticket"))
    assert {*rows[0]} >= {"source", "request_id"}
    written = b"".join(path.read_bytes() for path in tmp_path.rglob("*") if path.is_file())
    for secret in (b"person's words", b"T-1", "zoë".encode(), KEY):
        assert secret not in written
    for other in (
        ExportAlterations(),
        ExportAlterations(("reason", "ticket")),
        ExportAlterations(("reason", "ticket"), KEY + b"2"),
    ):
        with pytest.raises(UnreadableLakeError, match="give the same, or export it again with --full"):
            export(spark, origin, tmp_path, altered=other)
    with pytest.raises(NotInReadingError, match="are pseudonyms"):
        read_lake(spark, str(tmp_path), CLUSTER, [activity.JOB], Catalogs()).frames(activity.JOB)
    export(spark, origin, tmp_path, full=True)
    assert_is_the_tables(tmp_path, migrated, "trail")


def history_reads(reading: Reading) -> list[Any]:
    """Read a reading's history at the ends of what there is and in between, and return the answers."""
    history, moments = reading._frames.history, [EPOCH, datetime(2026, 2, 2, 2, 40, 4, tzinfo=UTC), reading.as_of]
    # Those of the changes, and between them.
    revisions = [0, 1, 2**41, 2**41 + 7, 2**42, 2**62 - 1, 2**62]
    return [
        *(read(moment) for read in (history.oldest, history.lowest_revision, history.last_until) for moment in moments),
        *(history.first_above(revision) for revision in revisions),
    ]


@pytest.mark.parametrize(
    "names",
    [pytest.param([*driver.JOBS], id="all frames"), pytest.param([*COMPARED], id="all jobs", marks=pytest.mark.long)],
)
def test_jobs_find_the_same_in_the_lake_as_in_the_stores(
    spark: SparkSession,
    chroot: str,
    raw_zk: KazooClient,
    migrated: servers.Database,
    tmp_path: Path,
    names: list[str],
) -> None:
    jobs = {name: COMPARED[name] for name in names}
    # A lake has no list of topics.
    inputs = {frame for job in jobs.values() for frame in job.inputs} - {"topics"}
    assert inputs == {frame for job in COMPARED.values() for frame in job.inputs} - {"topics"}
    fill(migrated.service_dsn)
    # A lake has neither.
    run(migrated.service_dsn, "DELETE FROM applied_reports")
    age(migrated.owner_dsn, "refused_attempts", 91 * 86_400)
    run(migrated.service_dsn, "SELECT expire_refused_attempts()")
    for number in range(4):
        raw_zk.create(f"/config/users/u{number}", rate(number), makepath=True)
    raw_zk.create("/config/topics/t", b'{"version":1,"config":{"retention.ms":"7"}}', makepath=True)
    raw_zk.create("/config/brokers/0", b'{"version":1,"config":{"x.password":"in-clear"}}', makepath=True)
    origin = origin_of(migrated, chroot)
    with exclusive_export(origin.dsn, CLUSTER), stores.read(spark, origin) as (reading, frames):
        Exporter(spark, str(tmp_path), reading, frames, ExportAlterations()).export(NAMES)
        wanted = {name: rows_of(reading, job) for name, job in jobs.items()}
        position, options, past = dict(reading.position), dict(reading.options), history_reads(reading)
    spark.catalog.clearCache()
    raw_zk.delete("/config/users/u3")
    lake = read_lake(spark, str(tmp_path), CLUSTER, [*JOBS.values()], options["catalogs"])
    with pytest.raises(NotInReadingError, match="no other_znodes in a lake"):
        lake.frames(compare.JOB)
    assert (dict(lake.position), dict(lake.options)) == (position, options)
    assert history_reads(lake) == past
    assert len(set(past)) > 4
    assert {name: rows_of(lake, job) for name, job in jobs.items()} == wanted
    assert all(wanted.values())
    assert_described(tmp_path, *FRAMES, "znodes")
    assert b"in-clear" not in b"".join(path.read_bytes() for path in tmp_path.rglob("*") if path.is_file())
    # The days before a job's position are not read.
    low = datetime.fromtimestamp(START_MS / 1000, UTC) + timedelta(seconds=3)
    found = collected(lake.frame("changes", ("change_id",), low))
    assert same(found, [
        {"change_id": str(row["change_id"])} for row in expected(migrated.owner_dsn, "changes") if row["created_at"] >= low
    ])  # fmt: skip
    export(spark, origin, tmp_path, "trail")
    newer = read_lake(spark, str(tmp_path), CLUSTER, [integrity.JOB], Catalogs())
    with pytest.raises(NotInReadingError, match="znodes are of another moment than the rest"):
        newer.frames(integrity.JOB)
    assert (
        rows_of(read_lake(spark, str(tmp_path), CLUSTER, [activity.JOB], Catalogs()), activity.JOB)
        == wanted["activity"]
    )
    with pytest.raises(UnreadableLakeError, match="has no exports of elsewhere"):
        read_lake(spark, str(tmp_path), "elsewhere", [activity.JOB], Catalogs())


def test_the_commands_export_and_run_on_the_lake(
    spark: SparkSession, migrated: servers.Database, tmp_path: Path
) -> None:
    del spark  # the commands take the session that there is
    change = intent(change_id(START_MS, 1), entity(), cluster="default", reason="a person's words")
    write(migrated.service_dsn, [change], [committed(change)])
    # Nothing listens there: neither command asks ZooKeeper.
    commands = Commands(tmp_path, connect="127.0.0.1:1", dsn=migrated.service_dsn)
    key, lake = tmp_path / "key", tmp_path / "lake"
    key.write_bytes(KEY)

    def export(*arguments: str) -> tuple[int, str]:
        said = commands.run_here("rollups", "export", "trail", "--output", str(lake), *arguments)
        return said.code, (said.out + said.err).strip()

    def run_on_the_lake(job: str) -> tuple[int, str]:
        said = commands.run_here("rollups", "run", job, "--source", str(lake))
        return said.code, said.err.splitlines()[-1]

    no_exports = (2, f"Not run: {lake} has no exports of default: run `confplane rollups export all` first")
    assert run_on_the_lake("activity") == no_exports
    assert not lake.exists()
    assert export("--without", "reason, ticket", "--max-connections", "6") == (
        0, "trail: 1 rows, 1 of them written now, in 1 of 1 days"
    )  # fmt: skip
    code, said = export()
    assert (code, said.startswith("Not exported: This trail was exported with another --without")) == (2, True)
    code, said = run_on_the_lake("activity")
    assert code == 0, said
    assert fetch(migrated.owner_dsn, "SELECT job, state, row_count FROM rollup_runs") == [("activity", "complete", 1)]
    assert run_on_the_lake("compatibility") == no_exports
    assert export("--full", "--pseudonyms", str(key))[0] == 0
    code, said = run_on_the_lake("activity")
    assert (code, "are pseudonyms" in said) == (2, True)
