"""Spark's reading of Postgres: the rows of the tables at one moment, each once, however they are partitioned."""

from __future__ import annotations

import json
from contextlib import ExitStack
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any

import psycopg
import pytest
from pydantic import SecretStr
from pyspark.sql.types import StructType

from confplane.audit.dsn import LIFT
from confplane.domain.errors import UnavailableError
from confplane.rollups import stores
from confplane.rollups.jobs import activity, compatibility, quotas
from confplane.rollups.origin import Origin
from confplane.rollups.reading import NotInReadingError
from confplane.rollups.source_binding import bind_values
from confplane.rollups.sources import trail as source
from confplane.rollups.sources.postgres import literal, open_transaction
from confplane.rollups.sources.tables import TABLES, KeyRange, TableScope
from confplane.settings import ClusterSettings
from tests.audit.rows import change_id, committed, fetch, intent, run
from tests.rollups.trail import CLUSTER, REPORTED_SINCE, START_MS, collected, expected, fill, own, same, write
from tests.support import servers

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from pyspark.sql import SparkSession
    from pyspark.sql.datasource import DataSourceReader

    from confplane.devstack.postgres import Postgres
    from tests.support.servers import Database


FRAMES = ("changes", "refused_attempts", "registration_events", "reports", "states")
CLEARED = f"INSERT INTO registrations (event, cluster, principal, request_id) VALUES ('cleared', '{CLUSTER}', 'p', 'r')"  # noqa: S608
TRAIL_JOBS = (activity.JOB, compatibility.JOB)
"""Jobs that need no znodes."""


@pytest.fixture(scope="module")
def filled(postgres: Postgres) -> servers.Database:
    """A database with a trail. Only read in tests."""
    database = servers.make_migrated(postgres)
    fill(database.service_dsn)
    run(database.service_dsn, f"INSERT INTO watermarks (cluster, revision, complete) VALUES ('{CLUSTER}', 77, true)")  # noqa: S608
    return database


@pytest.fixture
def written(migrated: servers.Database) -> servers.Database:
    """A database that a test may write to."""
    fill(migrated.service_dsn)
    return migrated


def origin_of(database: servers.Database, name: str = CLUSTER) -> Origin:
    # Nothing listens there: where no job needs znodes, nobody asks for them.
    return Origin(name, ClusterSettings(zookeeper="127.0.0.1:1"), SecretStr(database.service_dsn))


@pytest.fixture
def reader_of(filled: servers.Database) -> Iterator[Callable[..., DataSourceReader]]:
    """Makes readers as Spark does, without Spark."""
    carried = bind_values(source.TrailSource, origin=origin_of(filled))
    with ExitStack() as stack:
        postgres = stack.enter_context(open_transaction(SecretStr(filled.service_dsn)))
        [(snapshot,)] = postgres.rows("SELECT pg_export_snapshot()")
        moment = source.PostgresSnapshot(snapshot, TableScope(CLUSTER, None, 10**9, REPORTED_SINCE))

        def make(name: str, parts: int = 1, low: str | None = None) -> DataSourceReader:
            table = TABLES[name]
            with pytest.MonkeyPatch.context() as patch:
                patch.setattr(source, "FEWEST_ROWS", 1)
                begins = source.bounds(source.TablePages(postgres, table, moment.scope), parts)
            return carried(source.trail_options(name, moment, begins, KeyRange(low))).reader(table.schema)

        yield make


def read_all(reader: Any) -> list[dict[str, Any]]:
    """All rows of all parts."""
    return [row for part in reader.partitions() for row in rows_of(reader, part)]


def rows_of(reader: Any, part: Any) -> list[dict[str, Any]]:
    maps = ("before", "after", "content")
    return [
        {name: dict(value) if name in maps else value for name, value in row.items()}
        for batch in reader.read(part)
        for row in batch.to_pylist()
    ]


def test_frames_are_what_the_tables_hold(spark: SparkSession, filled: servers.Database) -> None:
    with stores.read(spark, origin_of(filled), jobs=TRAIL_JOBS) as (reading, _):
        for name in FRAMES:
            schema = TABLES[name].schema
            frame = reading.frame(name, schema.names)
            assert frame.schema == schema
            assert same(collected(frame), expected(filled.owner_dsn, name))
        assert {key: reading.options[key] for key in ("begin", "watermark")} == {"begin": 1, "watermark": 77}
        frames, since = reading.frames(activity.JOB)
        assert since is None
        assert frames["changes"].columns == list(activity.JOB.inputs["changes"])
        with pytest.raises(NotInReadingError, match="Znodes"):
            reading.frames(quotas.JOB)
    outcomes = [row["outcome"] for row in expected(filled.owner_dsn, "changes")]
    assert {outcome: outcomes.count(outcome) for outcome in outcomes} == {"committed": 5, "rejected": 1, "open": 2}


def test_topics_are_those_of_the_last_complete_list(spark: SparkSession, migrated: servers.Database) -> None:
    run(
        migrated.owner_dsn,
        "INSERT INTO topic_polls (cluster, version, topics) VALUES ('payments', 1, 0), ('other', 1, 0);"
        "INSERT INTO observed_topics SELECT cluster, cluster || '.' || number, 'id'"
        " FROM topic_polls, generate_series(1, 30) AS number",
    )
    for polled_at in (None, datetime(2026, 2, 1, 12, tzinfo=UTC)):
        if polled_at is not None:
            run(migrated.owner_dsn, "UPDATE topic_polls SET polled_at = '2026-02-01 12:00+00'")
        with stores.read(spark, origin_of(migrated, "payments"), jobs=TRAIL_JOBS) as (reading, _):
            found = collected(reading.frame("topics", ("entity_id", "polled_at")))
        names = [] if polled_at is None else [f"topic=payments.{number}" for number in range(1, 31)]
        assert sorted(row["entity_id"] for row in found) == sorted(names)
        assert {row["polled_at"] for row in found} == ({polled_at} if names else set())


def test_nothing_is_there_of_a_cluster_without_rows(spark: SparkSession, filled: servers.Database) -> None:
    with stores.read(spark, origin_of(filled, "new"), jobs=TRAIL_JOBS) as (reading, _):
        for name in FRAMES:
            assert reading.frame(name, TABLES[name].schema.names).count() == 0
        assert {**reading.position, "as_of": None} == {
            "as_of": None, "begin": None, "registration_id": "0", "floor": None, "horizon": None, "watermark": None
        }  # fmt: skip
        assert activity.JOB(**reading.frames(activity.JOB)[0]).collect() == []


@pytest.mark.parametrize("name", FRAMES)
@pytest.mark.parametrize("parts", [1, 2, 7, *(pytest.param(each, marks=pytest.mark.long) for each in (3, 1_000))])
def test_however_it_is_parted_each_row_is_read_once(
    reader_of: Callable[..., Any], filled: servers.Database, name: str, parts: int
) -> None:
    reader = reader_of(name, parts)
    found = [rows_of(reader, part) for part in reader.partitions()]
    assert 1 <= len(found) <= parts
    assert same([row for rows in found for row in rows], expected(filled.owner_dsn, name))
    if parts == 2:
        sizes = [len(rows) for rows in found]
        assert max(sizes) - min(sizes) <= 4  # a batch, and both trees' states of an entity, stay together


def test_what_comes_after_the_moment_is_not_seen(spark: SparkSession, written: servers.Database) -> None:
    before = {name: expected(written.owner_dsn, name) for name in FRAMES}
    with stores.read(spark, origin_of(written), jobs=TRAIL_JOBS) as (reading, _):
        write(written.service_dsn, [own(50)], [committed(own(50)), committed(own(4))])
        run(written.service_dsn, CLEARED)
        run(written.service_dsn, "UPDATE entity_states SET version = 99")
        run(written.service_dsn, "UPDATE applied_reports SET applied_revision = 99")
        for name in FRAMES:
            # Tasks begin now.
            assert same(collected(reading.frame(name, TABLES[name].schema.names)), before[name])
    assert not any(row == each for row in expected(written.owner_dsn, "states") for each in before["states"])
    with stores.read(spark, origin_of(written), jobs=TRAIL_JOBS) as (reading, _):
        for name in FRAMES:
            frame = reading.frame(name, TABLES[name].schema.names)
            assert same(collected(frame), expected(written.owner_dsn, name))


def test_a_moment_of_the_past(spark: SparkSession, migrated: servers.Database) -> None:
    write(migrated.service_dsn, [own(1), own(2)], [committed(own(1))])
    run(migrated.service_dsn, CLEARED)
    [(moment,)] = fetch(migrated.owner_dsn, "SELECT clock_timestamp()")
    write(migrated.service_dsn, [own(2, attempt=2), own(3)], [committed(own(2, attempt=2)), committed(own(3))])
    run(migrated.service_dsn, CLEARED)
    with stores.read(spark, origin_of(migrated), as_of=moment) as (reading, _):
        assert reading.as_of == reading.options["as_of"] == moment
        for name in ("changes", "registration_events"):
            rows = collected(reading.frame(name, TABLES[name].schema.names))
            assert same(rows, expected(migrated.owner_dsn, name, as_of=moment))
            assert len(rows) == {"changes": 2, "registration_events": 1}[name]
        for name in ("states", "znodes"):
            with pytest.raises(NotInReadingError, match="and not of any time before"):
                reading.frame(name, ("entity_id",))
    with (
        pytest.raises(ValueError, match="is to come"),
        stores.read(spark, origin_of(migrated), as_of=datetime.now(UTC) + timedelta(days=1)),
    ):
        pass


def test_an_incremental_run_gets_what_is_new(spark: SparkSession, written: servers.Database) -> None:
    origin = origin_of(written)
    with stores.read(spark, origin, jobs=TRAIL_JOBS) as (reading, _):
        # The rows were written now, and tell of a day that is long ago.
        before = json.loads(json.dumps(reading.position))
    began = datetime.fromtimestamp(START_MS / 1000, UTC)
    midnight = began.replace(hour=0, minute=0, second=0, microsecond=0)
    old = intent(change_id(START_MS - 200_000_000, 100), cluster=CLUSTER)
    late = intent(change_id(START_MS - 100_000_000, 101), cluster=CLUSTER)
    write(written.service_dsn, [old, late], [committed(late)])
    registrations = expected(written.owner_dsn, "registration_events")
    run(written.service_dsn, CLEARED)
    with stores.read(spark, origin, jobs=TRAIL_JOBS) as (reading, _):
        frames, since = reading.frames(activity.JOB, before)
        assert since == (began - timedelta(seconds=200_000)).replace(hour=0, minute=0, second=0, microsecond=0)
        assert since < midnight
        [new] = collected(reading.frames(compatibility.JOB, before)[0]["registration_events"])
        assert new["id"] == max(row["id"] for row in registrations) + 1
        # As if both were of long ago: of nothing recorded since, the day of the run before is where it goes on.
        after = {**before, "as_of": (reading.as_of - timedelta(seconds=1)).isoformat()}
        assert reading.frames(activity.JOB, after)[1] == since
        assert reading.frames(activity.JOB, reading.position)[1] == since
        # Tables that were put back to an earlier state have no place to go on from.
        assert reading.frames(activity.JOB, {**before, "registration_id": str(2**40)})[1] is None
        assert reading.frames(activity.JOB, {**before, "as_of": "2999-01-01T00:00:00+00:00"})[1] is None
        low = reading.frame("changes", ("created_at",), midnight)
        everything = [row["created_at"] for row in expected(written.owner_dsn, "changes")]
        assert sorted(row["created_at"] for row in collected(low)) == sorted(at for at in everything if at >= midnight)
        assert frames["changes"].count() == len(everything)


def test_what_an_incremental_run_begins_with_is_lookback_days_earlier(
    reader_of: Callable[..., Any], filled: servers.Database
) -> None:
    ids = sorted(row["change_id"] for row in expected(filled.owner_dsn, "changes"))
    for parts in (1, 4):
        for low in (ids[0], ids[3], ids[-1], "ffffffff-0000-7000-8000-000000000000"):
            found = [row["change_id"] for row in read_all(reader_of("changes", parts, low))]
            assert sorted(found) == [change for change in ids if change >= low]


def test_a_frame_may_be_used_twice_in_a_query(spark: SparkSession, filled: servers.Database) -> None:
    with stores.read(spark, origin_of(filled), jobs=TRAIL_JOBS) as (reading, _):
        frame = reading.frame("registration_events", TABLES["registration_events"].schema.names)
        both = frame.where("event = 'seen' AND id > 9").unionByName(frame.where("event = 'cleared' OR id <= 9"))
        assert same(collected(both), expected(filled.owner_dsn, "registration_events"))


def test_what_is_asked_for_can_not_break_out_of_the_query() -> None:
    assert literal("a'b") == "'a''b'"
    assert literal("\\'; DROP TABLE intents --") == "E'\\\\''; DROP TABLE intents --'"
    assert KeyRange("'x", None).of("key", literal) == " AND key >= '''x'"
    with pytest.raises(ValueError, match="nothing that can be asked for"):
        literal(1.5)


def test_the_password_is_nowhere_to_be_seen(spark: SparkSession, filled: servers.Database) -> None:
    dsn = filled.service_dsn
    password = dsn.split(":")[2].split("@")[0]
    origin = origin_of(filled)
    with stores.read(spark, origin, jobs=TRAIL_JOBS) as (reading, _):
        frame = reading.frame("changes", ("change_id", "principal")).where("principal <> 'x'")
        execution = frame._jdf.queryExecution()
        shown = [repr(origin), repr(reading), execution.toString(), execution.logical().toJSON(), str(frame.schema)]
        shown += [str(spark.sparkContext.getConf().getAll()), json.dumps(dict(reading.position))]
        assert password
        assert password not in "".join(shown)
        assert ", ".join(map(str, password.encode())) not in "".join(shown)
        assert frame.count()
    away = Origin(
        CLUSTER, ClusterSettings(zookeeper="127.0.0.1:1"), SecretStr(f"postgresql://u:{password}@127.0.0.1:1/x")
    )
    with (
        pytest.raises(UnavailableError, match="Postgres can't be read") as refused,
        stores.read(spark, away, jobs=TRAIL_JOBS),
    ):
        pass
    assert password not in str(refused.value)


def test_a_job_gets_columns_in_its_own_order(reader_of: Callable[..., Any]) -> None:
    reader = reader_of("changes")
    schema = TABLES["changes"].schema
    reader.schema = StructType([schema["after"], schema["change_id"], schema["keys"]])
    [part] = reader.partitions()
    [batch] = list(reader.read(part))
    assert batch.schema.names == ["after", "change_id", "keys"]


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
