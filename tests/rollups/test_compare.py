"""Two clusters, and one cluster at two times, are compared key by key as a reference in plain Python does."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any, Final

import pytest
from pydantic import SecretStr

from confplane.domain.extra_keys import Catalogs
from confplane.domain.releases import ON_ZOOKEEPER
from confplane.rollups import history, schemas, stores
from confplane.rollups.jobs import compare
from confplane.rollups.origin import Origin
from confplane.rollups.reading import NotInReadingError
from confplane.services.ports.cluster_states import Target
from confplane.settings import ClusterSettings
from confplane.store.znodes import encode_target
from tests.audit.rows import committed, entity, run
from tests.bench.sample.trail import Plan, Trail
from tests.rollups import samples
from tests.rollups.references import compare as reference
from tests.rollups.trail import CLUSTER, own, write
from tests.support.stores import rate

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from kazoo.client import KazooClient
    from pyspark.sql import DataFrame, SparkSession

    from tests.support import servers

Row = dict[str, Any]
OTHER: Final = "staging"
ABOUT: Final = {
    "other": OTHER, "as_of": samples.NOW, "catalogs": Catalogs(), "release": ON_ZOOKEEPER, "on_zookeeper": True,
    "other_catalogs": Catalogs(), "other_release": ON_ZOOKEEPER, "other_on_zookeeper": True,
}  # fmt: skip
SEPARATE: Final = "/confplane/client-configs"
COLUMNS: Final = schemas.OTHER_ZNODES.names
SECRET: Final = "ssl.key.password"


def znode(
    entity_id: str | None, config: dict[str, str | None], prints: dict[str, str | None] | None = None, **more: Any
) -> Row:
    flags = {"undecodable": False, "forbidden": False, "tree": "/config"}
    return {**flags, "entity_id": entity_id, "config": config, "fingerprints": prints or {}, **more}


HERE: Final = [
    # A default entity, and entities that are named like it.
    znode("user", {"producer_byte_rate": "1"}),
    znode("user=~3Cdefault~3E", {"producer_byte_rate": "2"}),
    znode("client-id", {"producer_byte_rate": "3"}),
    znode("user=O~27Brien ~22~F0~9F~90~98", {"consumer_byte_rate": "4", "odd key, é": "x"}),
    znode("user,client-id", {"request_percentage": "1.0"}),
    znode("user=same", {"producer_byte_rate": "1", "SCRAM-SHA-256": None}),
    znode("user=empty", {}),
    # One layout here, the other there; and a key that both trees have.
    znode("user=layout", {"acks": "all", "producer_byte_rate": "1"}),
    znode("user=both", {"acks": "0"}),
    znode("user=both", {"acks": "1"}, tree=SEPARATE),
    znode("ip", {"connection_creation_rate": "1"}),
    # Literals and defaults: 168 hours are Kafka's own default of the retention.
    znode("broker", {"log.cleaner.threads": "2", SECRET: None, "log.retention.ms": "5"}, {SECRET: "aa"}),
    znode("broker=0", {"log.cleaner.threads": "1", SECRET: None}, {SECRET: "aa"}),
    znode("broker=1", {"x.password": None, "log.retention.ms": "5"}, {"x.password": None}),
    znode("broker=2", {"num.io.threads": "8"}, undecodable=True),
    znode("topic=a", {"retention.ms": "5", "cleanup.policy": "delete", "own": "1"}),
    znode("topic=only", {}),
    znode("topic=hidden", {"retention.ms": "1"}, forbidden=True),
    znode(None, {"producer_byte_rate": "9"}),
]
THERE: Final = [
    znode("user", {"producer_byte_rate": "2"}),
    znode("client-id=~3Cdefault~3E", {"producer_byte_rate": "3"}),
    znode("user=O~27Brien ~22~F0~9F~90~98", {"consumer_byte_rate": "4", "odd key, é": " x"}),
    znode("user,client-id", {"request_percentage": "1"}),
    znode("user=same", {"producer_byte_rate": "1", "SCRAM-SHA-256": None}),
    znode("user=layout", {"producer_byte_rate": "1"}),
    znode("user=layout", {"acks": "all"}, tree=SEPARATE),
    znode("user=both", {"acks": "1"}),
    znode("ip", {}),
    znode("ip=10.0.0.1", {"connection_creation_rate": "1"}),
    znode("broker", {"log.cleaner.threads": "1", SECRET: None}, {SECRET: "aa"}),
    znode("broker=0", {SECRET: None}, {SECRET: "bb"}),
    znode("broker=1", {"x.password": None}, {"x.password": None}),
    znode("broker=2", {"num.io.threads": "8"}),
    znode("topic=a", {"retention.ms": "604800000", "unclean.leader.election.enable": "false", "own": "2"}),
    znode("topic=b", {"retention.ms": "1"}),
    znode("topic=hidden", {"retention.ms": "1"}),
]


def frame(spark: SparkSession, rows: list[Row], schema: Any = schemas.OTHER_ZNODES) -> DataFrame:
    return spark.createDataFrame([tuple(row[name] for name in schema.names) for row in rows], schema)


def found(rows: DataFrame) -> set[tuple[Any, ...]]:
    told = [tuple(row) for row in rows.collect()]
    assert len(told) == len(set(told)) == len({row[:2] for row in told})
    return set(told)


def test_the_sides_are_compared_as_by_the_definition(spark: SparkSession) -> None:
    no_topics = {name: spark.createDataFrame([], schemas.TOPICS) for name in ("topics", "other_topics")}
    sides = {"znodes": frame(spark, HERE), "other_znodes": frame(spark, THERE), **no_topics}
    rows = found(compare.JOB(**sides, **ABOUT))
    assert rows == reference.compare(HERE, THERE, OTHER)
    kinds = {(row[0], row[1]): (row[2], row[7]) for row in rows}
    assert kinds["user=~3Cdefault~3E", "producer_byte_rate"] == ("only_here", None)
    assert kinds["client-id", "producer_byte_rate"] == ("only_here", None)
    assert kinds["client-id=~3Cdefault~3E", "producer_byte_rate"] == ("only_there", None)
    # One side sets what the other has from a default: 1 is Kafka's own default, 5 that of all brokers here.
    assert kinds["broker=0", "log.cleaner.threads"] == ("only_here", True)
    assert kinds["broker", "log.cleaner.threads"] == ("differs", False)
    assert kinds["topic=a", "unclean.leader.election.enable"] == ("only_there", True)
    assert kinds["topic=a", "cleanup.policy"] == ("only_here", True)
    assert kinds["broker=0", SECRET] == kinds["broker=1", "x.password"] == ("secret", None)
    assert {entity for (entity, _), (kind, _) in kinds.items() if kind == "unknown"} == {"broker=2", "topic=hidden"}
    assert not {"user=same", "user=empty", "user=layout", "user=both", "topic=c"} & {entity for entity, _ in kinds}
    assert found(compare.JOB(**{**sides, "other_znodes": sides["znodes"]}, **ABOUT)) == reference.compare(
        HERE, HERE, OTHER
    )


OUTDATED: Final = samples.NOW - timedelta(hours=1, microseconds=1)


@pytest.mark.parametrize(
    ("on_zookeeper", "listed_at", "only_here", "only_there"),
    [
        ((True, True), (None, None), {"own", "emptied"}, {"plain"}),
        ((False, False), (samples.NOW, samples.NOW), {"own", "listed here"}, {"listed there"}),
        ((False, True), (samples.NOW, None), {"own", "listed here", "listed by both"}, {"plain"}),
        ((False, False), (samples.NOW, OUTDATED), set(), set()),
        ((False, False), (None, samples.NOW), set(), set()),
        ((False, True), (None, None), set(), set()),
        ((True, False), (None, None), set(), set()),
    ],
    ids=["ZooKeeper", "tables", "one of each", "outdated", "one table", "no table here", "no table there"],
)
@pytest.mark.parametrize("release", [ON_ZOOKEEPER, "4.4"])
def test_topics_of_one_side_are_listed_if_all_topics_of_both_are_known(
    spark: SparkSession,
    release: str,
    on_zookeeper: tuple[bool, bool],
    listed_at: tuple[datetime | None, datetime | None],
    only_here: set[str],
    only_there: set[str],
) -> None:
    """A cluster without ZooKeeper has no znode of a topic without configs, and that of a topic that is gone stays."""
    lists = (("own", "listed here", "listed by both"), ("listed there", "listed by both"))
    topics, other_topics = (
        spark.createDataFrame([] if at is None else [(f"topic={name}", at) for name in names], schemas.TOPICS)
        for at, names in zip(listed_at, lists, strict=True)
    )
    rows = compare.JOB(
        znodes=frame(spark, [znode("topic=emptied", {}), znode("topic=own", {"retention.ms": "5"})]),
        other_znodes=frame(spark, [znode("topic=plain", {})]),
        topics=topics,
        other_topics=other_topics,
        **{**ABOUT, "release": release, "on_zookeeper": on_zookeeper[0], "other_on_zookeeper": on_zookeeper[1]},
    )
    assert {tuple(row) for row in rows.select("entity_id", "config_key", "kind").collect()} == {
        ("topic=own", "retention.ms", "only_here"),
        *((f"topic={name}", "", "only_here") for name in only_here),
        *((f"topic={name}", "", "only_there") for name in only_there),
    }


@pytest.fixture(scope="module")
def made() -> tuple[list[Row], list[Row]]:
    """The changes and the znodes of a made-up cluster."""
    trail = Trail(Plan(entities=400, events=4_000))
    return named(schemas.CHANGES, trail.rows()), named(schemas.ZNODES, trail.znodes())


def named(schema: Any, rows: Any) -> list[Row]:
    """Rows by name, their times as such."""
    return [
        {
            field.name: _time(value) if field.dataType.typeName() == "timestamp" and value is not None else value
            for field, value in zip(schema, row, strict=True)
        }
        for row in rows
    ]


def _time(microseconds: int) -> datetime:
    return datetime(1970, 1, 1, tzinfo=UTC) + timedelta(microseconds=microseconds)


@pytest.mark.parametrize("quantile", [0.0, 0.4, 1.0])
def test_of_an_earlier_time_the_znodes_follow_from_the_trail(
    spark: SparkSession, made: tuple[list[Row], list[Row]], quantile: float
) -> None:
    changes, znodes = made
    times = sorted(row["time"] for row in changes if row["time"] is not None)
    at = times[int(quantile * (len(times) - 1))]
    schema = _schema(spark, schemas.CHANGES, history.CHANGE_COLUMNS)
    now = _schema(spark, schemas.ZNODES, history.ZNODE_COLUMNS)
    then = history.znodes_at(frame(spark, changes, schema), frame(spark, znodes, now), at)
    by_place = sorted(changes, key=lambda row: (row["path"], row["entity_id"]))
    wanted = list(reference.znodes_at(by_place, znodes, at))
    told = {repr([_plain(row[name]) for name in COLUMNS]) for row in then.collect()}
    assert told == {repr([_plain(row[name]) for name in COLUMNS]) for row in wanted}
    assert len(wanted) > 100


def test_what_an_external_write_left_unreadable_is_unknown_and_not_empty(spark: SparkSession) -> None:
    written = datetime(2026, 1, 1, tzinfo=UTC)
    row = {
        **dict.fromkeys(history.CHANGE_COLUMNS), "path": "/config/users/a", "entity_id": "user=a", "facet": "node",
        "kind": "external", "outcome": "committed", "revision": 5, "time": written, "version_read": 0, "version": 1,
        "keys": ["acks"], "before": {"acks": "1"}, "after": {}, "reason": "The znode is not JSON",
    }  # fmt: skip
    mended = {
        **row, "revision": 9, "time": written + timedelta(hours=2), "version_read": 1, "version": 2, "reason": None,
        "before": {}, "after": {"acks": "1"},
    }  # fmt: skip
    emptied = {**row, "path": "/config/users/b", "entity_id": "user=b", "reason": None}
    changes = frame(spark, [row, mended, emptied], _schema(spark, schemas.CHANGES, history.CHANGE_COLUMNS))
    znodes = frame(spark, [], _schema(spark, schemas.ZNODES, history.ZNODE_COLUMNS))
    then = {
        hours: {
            each.entity_id: (each.config, each.undecodable)
            for each in history.znodes_at(changes, znodes, written + timedelta(hours=hours)).collect()
        }
        for hours in (-1, 1, 3)
    }
    assert then == {
        -1: {"user=a": ({"acks": "1"}, False), "user=b": ({"acks": "1"}, False)},
        1: {"user=a": ({}, True), "user=b": ({}, False)},
        3: {"user=a": ({"acks": "1"}, False), "user=b": ({}, False)},
    }


def _schema(spark: SparkSession, schema: Any, columns: Sequence[str]) -> Any:
    return spark.createDataFrame([], schema).select(*columns).schema


def _plain(value: Any) -> Any:
    return sorted(value.items()) if isinstance(value, dict) else value


@pytest.fixture
def sides(raw_zk: KazooClient, chroot: str, migrated: servers.Database, tmp_path: Path) -> tuple[Origin, Origin]:
    """Two clusters in one ZooKeeper whose brokers have the same encoder secret."""
    secret = tmp_path / "encoder"
    secret.write_text("of both")
    encoder = {"secret_file": str(secret)}
    other = f"{chroot}/other"
    raw_zk.ensure_path("/other/config")
    password = b'{"version":1,"config":{"x.password":"in clear"}}'
    for root in ("", "/other"):
        raw_zk.create(f"{root}/config/brokers/0", password, makepath=True)
        raw_zk.create(f"{root}/config/users/a", rate(1), makepath=True)
    raw_zk.create("/other/config/topics/t", b'{"version":1,"config":{}}', makepath=True)
    dsn = SecretStr(migrated.service_dsn)
    return tuple(  # type: ignore[return-value]  # two of them
        Origin(name, ClusterSettings(zookeeper=connect, password_encoder=encoder), dsn)
        for name, connect in ((CLUSTER, chroot), (OTHER, other))
    )


def compared(spark: SparkSession, origin: Origin, other: Origin | datetime) -> set[tuple[Any, ...]]:
    with stores.read(spark, origin, jobs=[compare.JOB], other=other) as (reading, _):
        frames, _ = reading.frames(compare.JOB)
        return found(compare.JOB(**frames, **{name: reading.options[name] for name in compare.JOB.options}))


def test_two_clusters_are_read_and_equal_secrets_are_equal(
    spark: SparkSession, sides: tuple[Origin, Origin], raw_zk: KazooClient
) -> None:
    topic = ("topic=t", "", "only_there", None, None, None, None, None, OTHER)
    assert compared(spark, *sides) == {topic}
    raw_zk.set("/other/config/brokers/0", b'{"version":1,"config":{"x.password":"another"}}')
    raw_zk.set("/other/config/users/a", rate(2))
    rows = compared(spark, *sides)
    assert {row[:3] for row in rows - {topic}} == {
        ("broker=0", "x.password", "secret"),
        ("user=a", "producer_byte_rate", "differs"),
    }
    [secret] = [row for row in rows if row[2] == "secret"]
    assert (secret[3], secret[5]) == (None, None)
    assert secret[4] is not None
    assert secret[4] != secret[6]


def test_topics_of_clusters_without_zookeeper_are_those_of_the_tables(
    spark: SparkSession, sides: tuple[Origin, Origin], raw_zk: KazooClient, migrated: servers.Database
) -> None:
    for name, root, topics in ((CLUSTER, "", ("a", "b")), (OTHER, "/other", ("b", "c"))):
        raw_zk.create(f"{root}/confplane/target", encode_target(Target(name)), makepath=True)
        statement = f"INSERT INTO topic_polls (cluster, version, topics, polled_at) VALUES ('{name}', 1, 2, now())"  # noqa: S608 - literals
        run(migrated.service_dsn, statement)
        for topic in topics:
            statement = f"INSERT INTO observed_topics (cluster, name, topic_id) VALUES ('{name}', '{topic}', '')"  # noqa: S608 - literals
            run(migrated.service_dsn, statement)
    origin, other = sides
    rows = {row[:3] for row in compared(spark, origin, other)}
    assert rows == {("topic=a", "", "only_here"), ("topic=c", "", "only_there")}


def test_a_time_is_compared_by_the_trail_as_far_as_this_knows_it(
    spark: SparkSession, sides: tuple[Origin, Origin], raw_zk: KazooClient, migrated: servers.Database
) -> None:
    origin, _ = sides
    stat = raw_zk.set("/config/users/a", rate(5))
    at = datetime.fromtimestamp(stat.mtime / 1000, UTC)
    changed = entity(
        "user=a", path="/config/users/a", version_read=0, czxid_read=stat.czxid,
        before={"producer_byte_rate": "1"}, after={"producer_byte_rate": "5"}, keys=("producer_byte_rate",),
    )  # fmt: skip
    done = committed(own(1), revision=stat.mzxid, time_ms=stat.mtime, versions={"/config/users/a": 1})
    write(migrated.service_dsn, [own(1, changed)], [done])
    earlier = at - timedelta(milliseconds=1)
    with pytest.raises(ValueError, match="has no external changes yet"):
        compared(spark, origin, earlier)
    run(
        migrated.service_dsn,
        "INSERT INTO watermarks (cluster, revision, complete, since, since_at)"  # noqa: S608 - literals
        f" VALUES ('{CLUSTER}', 1, true, 1, '{(at - timedelta(hours=1)).isoformat()}')",
    )
    with pytest.raises(ValueError, match="knows all writes since"):
        compared(spark, origin, at - timedelta(hours=2))
    with pytest.raises(ValueError, match="is to come"):
        compared(spark, origin, datetime.now(UTC) + timedelta(days=1))
    rows = compared(spark, origin, earlier)
    name = earlier.isoformat()
    assert ("user=a", "producer_byte_rate", "differs", "5", None, "1", None, None, name) in rows
    # The broker was there then and was not written since, as far as its znode tells.
    assert {row[0] for row in rows} <= {"user=a", "broker=0"}
    assert {row[0] for row in compared(spark, origin, datetime.now(UTC))} <= {"broker=0"}


def test_without_another_side_it_is_refused(spark: SparkSession, sides: tuple[Origin, Origin]) -> None:
    with (
        stores.read(spark, sides[0], jobs=[compare.JOB]) as (reading, _),
        pytest.raises(NotInReadingError, match="--with"),
    ):
        reading.frames(compare.JOB)
