"""The rows of runs in a lake, as others read it: whole, of the newest moment, and no more than Postgres keeps."""

from __future__ import annotations

import dataclasses
import json
from datetime import datetime, timedelta
from typing import TYPE_CHECKING, Any
from uuid import UUID

import jsonschema_rs
import pytest
from pydantic import SecretStr
from uuid_utils.compat import uuid7

from confplane.audit.rollup_runs import RollupRuns
from confplane.domain.rollups import ROLLUPS
from confplane.rollups import stores
from confplane.rollups.errors import SparkFailedError
from confplane.rollups.jobs import JOBS
from confplane.rollups.origin import Origin
from confplane.rollups.runner import RunOptions, runner
from confplane.rollups.schemas import USAGE
from confplane.rollups.sinks import parquet
from confplane.rollups.sinks.files import Files
from confplane.rollups.sinks.parquet import OF_THE_RUN, row_schema
from confplane.rollups.sources.tables import first_id_at
from confplane.settings import ClusterSettings
from tests.audit.rows import fetch
from tests.audit.rows import run as execute
from tests.rollups.lake import current, pointer, query, runs
from tests.rollups.made import CLUSTER, START, Made, counted, plain, reading, run
from tests.rollups.samples import TEAMS
from tests.rollups.trail import fill
from tests.support.stores import rate

if TYPE_CHECKING:
    from pathlib import Path

    from kazoo.client import KazooClient
    from pyspark.sql import SparkSession

    from tests.support import servers


@pytest.fixture
def dsn(migrated: servers.Database) -> SecretStr:
    return SecretStr(migrated.service_dsn)


def files(directory: Path) -> list[Path]:
    return sorted(path for path in directory.rglob("*") if path.is_file() and not path.name.endswith(".crc"))


COLUMNS = {
    ("compatibility", 2): (
        "entity_id:string software_name:string software_version:string supported_configs:array<string> "
        "common_configs:array<string> first_seen:timestamp last_seen:timestamp instances:bigint "
        "applied_revision:bigint? refused_configs:array<string>"
    ),
    ("drift", 2): (
        "entity_type:string config_key:string rank:int state:string value:string? fingerprint:string? "
        "entities:bigint own:bigint total:bigint examples:array<string> topics_as_of:timestamp?"
    ),
    ("impact", 1): (
        "facet:string default_id:string config_key:string value:string? affected:bigint "
        "overridden:bigint unsupported:bigint examples:array<string>"
    ),
    ("quotas", 1): (
        "config_key:string entity_id:string value:double? level:int? source:string? budget:string? "
        "clients:bigint unlimited:bigint unreadable:bigint budgets:bigint capacity:double? share:double?"
    ),
    ("activity", 3): (
        "day:date principal:string kind:string entity_type:string config_key:string error_code:int team:string? "
        "committed_keys:bigint rejected_keys:bigint open_keys:bigint reverted_keys:bigint"
    ),
    ("integrity", 1): (
        "tree:string entity_id:string kind:string config_key:string trail_revision:bigint "
        "change_id:string? expected:string? found:string? trail_version:int? version:int? "
        "znode_revision:bigint? pending:boolean"
    ),
    ("compare", 1): (
        "entity_id:string config_key:string kind:string value:string? fingerprint:string? "
        "other_value:string? other_fingerprint:string? same_effective:boolean? other:string"
    ),
    ("usage", 2): (
        "config_key:string budget:string state:string quota:double? level:int? source:string? "
        "clients:bigint samples:bigint mean:double p95:double peak:double throttled_share:double? "
        "capacity:double? share:double? proposed:double? proposal:string? default_proposal:string?"
    ),
}
"""(rollup, version) -> its columns. A lake keeps files of many releases: other columns need another version."""


def test_each_version_of_a_rollup_names_its_columns() -> None:
    for name, rollup in ROLLUPS.items():
        told = " ".join(f"{each.name}:{each.type}{'?' * each.nullable}" for each in rollup.columns)
        assert told == COLUMNS[name, rollup.version]
        properties = row_schema(rollup)["properties"]
        assert len(properties) == len(OF_THE_RUN) + len(rollup.columns)


@pytest.mark.usefixtures("two_parts")
@pytest.mark.parametrize(
    "names", [("activity", "usage"), pytest.param((*JOBS,), marks=pytest.mark.long)], ids=["some", "every"]
)
def test_rows_of_rollups_are_in_the_lake_as_they_are_published_and_as_they_are_described(
    spark: SparkSession,
    migrated: servers.Database,
    chroot: str,
    raw_zk: KazooClient,
    tmp_path: Path,
    names: tuple[str, ...],
) -> None:
    fill(migrated.service_dsn)
    for number in range(4):
        raw_zk.create(f"/config/users/u{number}", rate(number), makepath=True)
    raw_zk.create("/config/users/<default>", rate(9))
    raw_zk.create("/config/topics/t", b'{"version":1,"config":{"retention.ms":"7"}}', makepath=True)
    raw_zk.create("/elsewhere/config/topics/t", b'{"version":1,"config":{"retention.ms":"8"}}', makepath=True)
    measured = spark.createDataFrame([(START, "u1", "", "producer_byte_rate", 0.5)], USAGE)
    origin = Origin(CLUSTER, ClusterSettings(zookeeper=chroot), SecretStr(migrated.service_dsn))
    other = Origin("other", ClusterSettings(zookeeper=f"{chroot}/elsewhere"), origin.dsn)
    capacity = {"producer_byte_rate": 1e6}
    options = RunOptions("User:olga@cli", capacity=capacity, teams=TEAMS, output=f"{tmp_path}/")
    with (
        stores.read(spark, origin, other=other, usage=measured) as (at, _),
        runner(spark, at, origin.dsn) as made,
    ):
        done = {name: made.run(JOBS[name], options) for name in names}
    for name in names:
        job, day, run_id = JOBS[name], at.as_of.date(), str(done[name].run.id)
        assert done[name].path == f"{tmp_path}/job={name}/as_of_date={day}/run_id={run_id}"
        of_the_run = {"job": name, "as_of_date": day, "run_id": run_id, "cluster": CLUSTER, "as_of": at.as_of}
        shown = current(tmp_path, name)
        assert [{column: row[column] for column in of_the_run} for row in shown] == [of_the_run] * len(shown)
        # Each file is in the order of the key, and so are the names of the files.
        rows = query(f"FROM '{done[name].path}/*.parquet'")
        published = fetch(
            migrated.owner_dsn,
            "SELECT item FROM rollup_rows WHERE run_id = %s ORDER BY part, ordinal", done[name].run.id,
        )  # fmt: skip
        assert [{column: plain(row[column]) for column in job.output.names} for row in rows] == [
            item for (item,) in published
        ]
        assert rows
        assert same_rows(rows, shown)
        described = json.loads((tmp_path / pointer(tmp_path, name, CLUSTER)["schema"]).read_text())
        check = jsonschema_rs.validator_for(described).validate
        for row in rows:
            check({column: plain(row[column]) for column in described["properties"]})


def same_rows(one: list[dict[str, Any]], other: list[dict[str, Any]]) -> bool:
    """Say whether two lists have the same rows in any order, without the columns that paths add."""
    names = one[0].keys() & other[0].keys()
    first, second = (sorted(repr([row[name] for name in sorted(names)]) for row in rows) for rows in (one, other))
    return first == second


def test_a_failed_run_leaves_the_files_of_the_run_before_and_none_of_its_own(
    spark: SparkSession, dsn: SecretStr, migrated: servers.Database, tmp_path: Path
) -> None:
    at, job, options = reading(Made(spark), START), counted(50), RunOptions("User:olga@cli", output=str(tmp_path))
    first = run(spark, at, dsn, job, options)
    before = {path: path.read_bytes() for path in files(tmp_path)}
    # The files are all written by the time that Postgres refuses.
    execute(migrated.owner_dsn, "ALTER TABLE rollup_parts ADD CONSTRAINT refused CHECK (row_count < 0) NOT VALID")
    with pytest.raises(SparkFailedError):
        run(spark, at, dsn, job, options)
    assert {path: path.read_bytes() for path in files(tmp_path)} == before
    assert pointer(tmp_path, "activity", CLUSTER)["run_id"] == str(first.run.id)
    assert len(current(tmp_path, "activity")) == 50


ENDS = {
    "before the rename": (Files, "rename"),
    "before the marker": (Files, "touch"),
    "before the pointer": (parquet.Output, "_point"),
    "before the end": (parquet.Output, "drop"),
}


@pytest.mark.parametrize(
    "ends",
    [
        ("before the pointer", "amid the copying"),
        pytest.param((*ENDS, "amid the copying"), marks=pytest.mark.long),
    ],
    ids=["two", "all"],
)
def test_files_of_a_complete_run_whose_process_ended_are_put_in_place_by_the_next(
    spark: SparkSession, dsn: SecretStr, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, ends: tuple[str, ...]
) -> None:
    at, job, options = reading(Made(spark), START), counted(50), RunOptions("User:olga@cli", output=str(tmp_path))
    last = run(spark, at, dsn, job, options)
    made = {str(last.run.id)}
    for end in ends:
        run_id = uuid7()
        with monkeypatch.context() as patch:
            patch.setattr(*ENDS.get(end, ENDS["before the rename"]), lambda *_: pytest.fail("the end of the process"))
            with pytest.raises(pytest.fail.Exception, match="the end of the process"):
                run(spark, at, dsn, job, options, run_id=run_id)
        place = tmp_path / "job=activity" / "as_of_date=2026-01-01" / f"run_id={run_id}"
        if end == "amid the copying":
            rows = tmp_path / "_incomplete" / CLUSTER / "activity" / str(run_id) / "rows"
            place.mkdir(parents=True)
            (place / files(rows)[0].name).write_bytes(b"PAR1, of which the rest is")
        # Readers see the run before, whole, or this one where nothing of it is missing.
        is_done = end == "before the end"
        assert pointer(tmp_path, "activity", CLUSTER)["run_id"] == str(run_id if is_done else last.run.id), end
        assert (str(run_id) in runs(tmp_path, "activity")) == (end in {"before the pointer", "before the end"}), end
        if end != "amid the copying":
            assert len(current(tmp_path, "activity")) == 50
        last = run(spark, at, dsn, job, options)
        made |= {str(run_id), str(last.run.id)}
        assert runs(tmp_path, "activity") == made, end
        for path in (place, last.path):
            assert query(f"SELECT count(*) AS rows FROM '{path}/*.parquet'") == [{"rows": 50}]  # noqa: S608
        assert pointer(tmp_path, "activity", CLUSTER)["run_id"] == str(last.run.id), end
        assert files(tmp_path / "_incomplete") == []


def test_a_lake_keeps_as_many_runs_as_postgres_and_its_pointer_names_the_newest_moment(
    spark: SparkSession, dsn: SecretStr, migrated: servers.Database, tmp_path: Path
) -> None:
    options = RunOptions("User:olga@cli", output=str(tmp_path))

    def made(day: int, cluster: str = CLUSTER) -> str:
        at = dataclasses.replace(reading(Made(spark), START + timedelta(days=day)), cluster=cluster)
        return str(run(spark, at, dsn, counted(day), options).run.id)

    of_another = made(1, "elsewhere")
    made_runs = [made(day) for day in (1, 2, 9, 4)]
    assert pointer(tmp_path, "activity", CLUSTER)["run_id"] == made_runs[2]
    assert {row["committed_keys"] for row in current(tmp_path, "activity") if row["cluster"] == CLUSTER} == {*range(9)}
    assert runs(tmp_path, "activity") == {of_another, *made_runs}
    # An hour later only the three newest moments are kept, by both.
    execute(migrated.owner_dsn, "UPDATE rollup_runs SET finished_at = finished_at - interval '2 hours'")
    for about in tmp_path.glob("job=activity/*/*/_run.json"):
        said = json.loads(about.read_text())
        ended = datetime.fromisoformat(said["finished_at"]) - timedelta(hours=2)
        about.write_text(json.dumps({**said, "finished_at": ended.isoformat()}))
    last = made(3)
    kept = {str(found) for (found,) in fetch(migrated.owner_dsn, "SELECT id FROM rollup_runs")}
    # The run of the third day is the fourth, and ended just now.
    assert runs(tmp_path, "activity") == kept == {of_another, made_runs[2], made_runs[3], last}
    assert not (tmp_path / "job=activity" / "as_of_date=2026-01-03").exists()
    assert pointer(tmp_path, "activity", CLUSTER)["run_id"] == made_runs[2]


@pytest.mark.parametrize("scheme", ["file", "hdfs", "s3a"])
def test_a_small_file_is_replaced_in_the_way_of_each_file_system(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, scheme: str
) -> None:
    found = Files(spark, str(tmp_path))
    monkeypatch.setattr(found, "_scheme", scheme)
    path = f"{tmp_path}/directory/pointer.json"
    assert found.read(path) is None
    for text in ("the first é", "the second 🐘, which is longer"):
        found.replace(path, text)
        assert found.read(path) == text
        assert found.names(f"{tmp_path}/directory") == ["pointer.json"]


def test_only_files_of_failed_runs_are_removed(spark: SparkSession, dsn: SecretStr, tmp_path: Path) -> None:
    at, options = reading(Made(spark), START), RunOptions("User:olga@cli", output=str(tmp_path))
    runs, under_way = RollupRuns(dsn.get_secret_value(), CLUSTER), uuid7()
    # Of a run of another database, of none at all, and of one that began long ago.
    others, forgotten = {str(uuid7()), "notes"}, UUID(first_id_at(START - timedelta(days=1)))
    aside = tmp_path / "_incomplete" / CLUSTER / "activity"
    for name in (*others, str(under_way), str(forgotten)):
        (aside / name / "rows").mkdir(parents=True)
        (aside / name / "rows" / "part.parquet").touch()
    with runs.held(under_way):
        runs.begin(under_way, "activity", as_of=START, position={}, previous=None, principal="User:x")
        run(spark, at, dsn, counted(5), options)
        assert {path.name for path in aside.iterdir()} == {*others, str(under_way)}
    run(spark, at, dsn, counted(5), options)
    assert {path.name for path in aside.iterdir()} == others
