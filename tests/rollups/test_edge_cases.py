"""The jobs on frames made by hand: nothing at all, defaults, odd names, znodes that went and came, late events."""

from __future__ import annotations

from datetime import timedelta
from typing import TYPE_CHECKING, Any, Final

import pytest

from confplane.domain.entities import Entity
from confplane.domain.facets import Tree
from confplane.domain.releases import ON_ZOOKEEPER
from confplane.services.ports.cluster_states import ENTITY as FREEZE
from confplane.settings import ClusterSettings
from tests.rollups import samples

if TYPE_CHECKING:
    from pathlib import Path

    from pyspark.sql import SparkSession

DAY: Final = 86_400_000_000
START: Final = 20_500 * DAY
CAPACITY: Final = {"producer_byte_rate": 1000.0, "consumer_byte_rate": 0.0}
ODD: Final = Entity.of(user="CN=a b,client-id=x 🐘").id
ODD_PAIR: Final = Entity.of(user="CN=a b,client-id=x 🐘", client_id="user=~").id
KEYSTORE: Final = "listener.name.a.ssl.keystore.location"
PAIR: Final = ("user=u", "user=u,client-id=c")
REFERENCED: Final = ("compatibility", "drift", "activity", "quotas", "impact")

Config = dict[str, str | None]


def change(  # noqa: PLR0913 - the parts of a row
    number: int, entity: str, before: Config, after: Config, *, revision: int | None = None, day: float = 0.0,
    keys: list[str] | None = None, outcome: str = "committed", kind: str = "change", position: int = 0,
    facet: str = "client-quotas", principal: str = "User:a", code: int | None = None, tree: str = "/config",
    ops: str = "[]",
) -> tuple[Any, ...]:  # fmt: skip
    at = START + int(day * DAY)
    path = f"{tree}/{Entity.from_id(entity).path}" if facet != FREEZE else "/confplane/freeze"
    if keys is None:
        keys = sorted(
            key for key in {*before, *after} if (key in before, before.get(key)) != (key in after, after.get(key))
        )
    committed = outcome == "committed"
    return (
        f"00000000-0000-7000-8000-{number:012}", 1, position, kind, at, at, principal, "api", "r", None, None, None, entity,
        facet, path, None, None, keys, ops, before, after, outcome, (revision or number) if committed else None,
        at if committed else None, 0, code, None, None if outcome == "open" else at,
    )  # fmt: skip


def moved(number: int, source: str, target: str, day: float) -> list[tuple[Any, ...]]:
    """A move of one client config to the other tree: two rows of one change."""
    there: Config = {"acks": "1"}
    op = f'[{{"op": "MOVE", "to": "{target}"}}]'
    more: dict[str, Any] = {"day": day, "facet": "client-configs", "ops": op}
    return [
        change(number, "user=m", there, {}, tree=source, **more),
        change(number, "user=m", {}, there, tree=target, position=1, **more),
    ]


def seen(number: int, entity: str, name: str, version: str, configs: list[str], day: float = 0.0) -> tuple[Any, ...]:
    at = START + int(day * DAY)
    return number, "seen", entity, name, version, configs, at, at


def cleared(number: int, entity: str | None) -> tuple[Any, ...]:
    return number, "cleared", entity, None, None, None, None, START


def report(entity: str, name: str, version: str, revision: int, refused: list[str]) -> tuple[Any, ...]:
    return entity, f"i{revision}", name, version, revision, refused


def refused(number: int, entity: str | None, keys: list[str], *, count: int = 1, day: float = 0.0) -> tuple[Any, ...]:
    return f"{number:032}", START + int(day * DAY), "User:a", entity, keys, 44, count


def znode(entity: str | None, config: Config, **other: Any) -> tuple[Any, ...]:
    tree = other.get("tree", "/config")
    path = f"{tree}/users/a+b" if entity is None else f"{tree}/{Entity.from_id(entity).path}"
    undecodable, forbidden = other.get("undecodable", False), other.get("forbidden", False)
    prints = {key: f"{entity}/{key}" for key, value in config.items() if value is None and key != "custom"}
    return tree, path, entity, config, prints, 0, 1, 1, START, None, undecodable, forbidden


CHANGES: Final = [
    # Set, set again, set back; and back once more after the window.
    change(1, "user=a", {}, {"producer_byte_rate": "1"}),
    change(2, "user=a", {"producer_byte_rate": "1"}, {"producer_byte_rate": "2"}, day=1),
    change(3, "user=a", {"producer_byte_rate": "2"}, {"producer_byte_rate": "1"}, day=8.0),
    change(4, "user=a", {"producer_byte_rate": "1"}, {"producer_byte_rate": "2"}, day=15.1),
    # Absence is a state: removed is set back, and so is set again what was removed.
    change(5, "user", {}, {"request_percentage": "5"}, day=2),
    change(6, "user", {"request_percentage": "5"}, {}, day=2.1),
    change(7, "user", {}, {"request_percentage": "5"}, day=2.2),
    # The znode went and came; a change of two keys; one that altered none.
    change(8, ODD_PAIR, {"acks": "1", "producer_byte_rate": "7"}, {}, day=3, kind="external", facet="node"),
    change(9, ODD_PAIR, {}, {"acks": "1", "producer_byte_rate": "8"}, day=3.1, kind="external", facet="node"),
    change(10, ODD_PAIR, {}, {}, day=3.2, keys=[]),
    # A secret is never set back, nor is what is not told equal to the text that looks like it.
    change(11, "broker=0", {"ssl.key.password": None}, {"ssl.key.password": None}, keys=["ssl.key.password"]),
    change(12, "broker=0", {"x": "absent"}, {}, keys=["x"]),
    change(13, "broker=0", {}, {"x": "absent"}, keys=["x"]),
    # Recorded late: by its id it comes before what it followed.
    change(14, "user,client-id", {"consumer_byte_rate": "1"}, {"consumer_byte_rate": "2"}, revision=900, day=5),
    change(15, "user,client-id", {"consumer_byte_rate": "2"}, {"consumer_byte_rate": "1"}, revision=901, day=4),
    # No outcome, or a bad one: nothing was set back.
    change(16, "user=a", {"producer_byte_rate": "2"}, {"producer_byte_rate": "1"}, outcome="open", day=16),
    change(17, "user=a", {"producer_byte_rate": "2"}, {"producer_byte_rate": "1"}, outcome="rejected", day=16),
    # One change of two entities, and one of no entity.
    change(18, "topic=user", {}, {"retention.ms": "1"}, day=1, facet="configs"),
    change(18, "ip=10.0.0.1", {}, {"connection_creation_rate": "1"}, day=1, position=1),
    change(19, FREEZE, {"frozen": None}, {"frozen": "why"}, day=1, facet=FREEZE, keys=["frozen"]),
    # Moved to the other tree and back, and what was left behind discarded: no key got another value.
    *moved(34, "/config", "/confplane/client-configs", 4),
    *moved(35, "/confplane/client-configs", "/config", 4.1),
    change(36, "user=m", {"acks": "1"}, {}, day=4.2, facet="client-configs", ops='[{"op":"DISCARD"}]'),
    # A file that is loaded again keeps its path: only the other path is set back.
    *(
        change(
            number, "broker=5", {KEYSTORE: before} if before else {}, {KEYSTORE: after}, keys=[KEYSTORE], day=6,
            kind="reload" if before == after else "change", facet="configs",
        )
        for number, (before, after) in enumerate([(None, "/a"), ("/a", "/a"), ("/a", "/a"), ("/a", "/b"), ("/b", "/a"), ("/a", "/a")], 40)
    ),
    # Refused for several reasons, one of them not known; by principals whose names are signs of patterns.
    *(
        change(20 + number, "user=r", {}, {"request_percentage": "1"}, outcome="rejected", code=code, principal=principal)
        for number, (principal, code) in enumerate(
            [
                ("User:a", 44), ("User:a", 44), ("User:a", 42), ("User:a", None), ("x_%\\", 44), ("x_%\\\ny", 44),
                ("xy%\\", 44), ("x_z\\", 44), ("", 44), ("User:*a*", 44), ("User:car", 44), ("User:bob\n", 44), ("User:bob", 0),
            ]
        )
    ),
]  # fmt: skip

EVENTS: Final = [
    cleared(0, "user=gone"),  # and after this, with all
    seen(1, "user=gone", "lib", "1", ["acks"]),
    cleared(2, None),
    seen(3, "user=a", "lib", "1", ["acks"]),
    seen(4, "user=a", "lib", "1", []),
    seen(5, "user=a,client-id=c", "lib", "1", ["acks"]),
    cleared(6, "user=a,client-id=c"),
    cleared(6 + 1, "user=b"),
    # Late: seen before what has a lower id.
    seen(8, "user=a,client-id=c", "lib", "1", ["heartbeat.interval.ms", "session.timeout.ms"], day=-1),
    seen(9, ODD, "Zoë <b>", "", ["acks", "session.timeout.ms"]),
    seen(10, ODD, "Zoë <b>", "", ["acks"], day=2),
    seen(11, ODD_PAIR, "Zoë <b>", "1", []),
    seen(12, "user=b", "lib", "2", ["acks"]),
    seen(13, "user=b,client-id=c", "lib", "2", ["acks"]),
    seen(14, "user=b,client-id=d", "lib", "2", []),
    *(seen(100 + number, f"user=many,client-id=c{number}", "lib", "3", ["acks"]) for number in range(25)),
]

REFUSED: Final = [
    refused(1, "user=a", ["producer_byte_rate"]),
    refused(2, "user=a", ["producer_byte_rate", "no such key"]),
    refused(3, ODD_PAIR, ["producer_byte_rate"]),
    refused(4, "user=long…", []),
    refused(5, None, []),
    refused(6, None, [], count=9_940),
    refused(7, None, ["acks"], day=400),
]
REPORTS: Final = [
    report("user=a", "lib", "1", 7, []),
    report("user=a", "lib", "1", 5, ["session.timeout.ms", "heartbeat.interval.ms"]),
    report("user=a", "lib", "1", 2**60, ["acks", "session.timeout.ms"]),
    # Other software than the registered one, and clients that are not registered any more.
    report("user=a", "lib", "2", 1, ["acks"]),
    report("user=gone", "lib", "1", 1, ["acks"]),
    report(ODD, "Zoë <b>", "", 0, []),
    report(ODD_PAIR, "Zoë <b>", "1", 3, ["acks", "acks"]),
]

ZNODES: Final = [
    znode("user", {"producer_byte_rate": "100", "SCRAM-SHA-256": None}),
    znode("client-id", {"producer_byte_rate": "200", "request_percentage": "12.5", "custom": None}),
    znode("user,client-id", {"consumer_byte_rate": "300"}),
    znode("client-id=c", {"controller_mutation_rate": "0.5"}),
    znode("user,client-id=c", {"consumer_byte_rate": "9", "request_percentage": " 5e1 "}),
    znode("user=a", {"producer_byte_rate": "1.0", "acks": "all", "session.timeout.ms": "10000"}),
    znode("user=a,client-id=c", {"producer_byte_rate": "+7", "acks": "1"}),
    znode("user=b", {"request_percentage": "NaN", "consumer_byte_rate": "-1"}),
    znode("user=b,client-id", {"producer_byte_rate": "55", "acks": "0"}),
    znode(ODD, {"acks": "all", "supported.configs": "acks", "producer_byte_rate": "99999999999999999999"}),
    znode(ODD_PAIR, {}),
    znode("user=many", {"acks": "-1", "custom": None, "consumer_byte_rate": "9999999999999999999"}),
    znode("user=many,client-id=c3", {"consumer_byte_rate": "9223372036854775807", "acks": "1"}),
    znode("user=a", {"acks": "0"}, tree="/confplane/client-configs"),
    znode("ip", {"connection_creation_rate": "5"}),
    znode("ip=10.0.0.1", {"connection_creation_rate": "7"}),
    znode(
        "broker", {"log.cleaner.threads": "2", "ssl.key.password": None, "num.io.threads": "8", "log.retention.ms": "5"}
    ),
    znode("broker=0", {"log.cleaner.threads": " 2", "ssl.key.password": None, "custom": None}),
    znode("broker=1", {}),
    # Brokers leave out what is not dynamic, or no number.
    znode("broker=3", {"log.cleaner.threads": "many", "broker.rack": "r1", "background.threads": "010"}),
    znode("broker=4", {"listener.name.a.ssl.keystore.location": "/a", "log.retention.ms": "-1"}),
    znode("broker=2", {}, undecodable=True),
    znode("topic=user", {"retention.ms": "1", "cleanup.policy": "delete"}),
    znode("topic=empty", {}),
    znode("topic=other", {"retention.ms": " 5", "cleanup.policy": "delete ", "unknown": None}),
    znode("topic=broken", {"retention.ms": "soon", "cleanup.policy": "compact, delete"}),
    znode("user=d", {"producer_byte_rate": "5"}, forbidden=True),
    znode(None, {"producer_byte_rate": "5", "acks": "all"}),
]


@pytest.mark.parametrize("name", REFERENCED)
def test_of_an_empty_cluster_there_is_nothing_to_report(spark: SparkSession, tmp_path: Path, name: str) -> None:
    directory = samples.save(tmp_path)
    rows = samples.run(name, samples.frames(spark, directory), capacity=CAPACITY)
    # Impact tells of the defaults that everybody falls under, whether or not there is anybody.
    assert samples.compare(name, rows, directory, tmp_path / "scratch", CAPACITY) == (12 if name == "impact" else 0)


@pytest.mark.parametrize("name", REFERENCED)
def test_odd_rows_are_counted_by_the_definition(spark: SparkSession, tmp_path: Path, name: str) -> None:
    directory = samples.save(
        tmp_path,
        changes=CHANGES,
        refused_attempts=REFUSED,
        registration_events=EVENTS,
        reports=REPORTS,
        znodes=ZNODES,
    )
    rows = samples.run(name, samples.frames(spark, directory), capacity=CAPACITY)
    assert samples.compare(name, rows, directory, tmp_path / "scratch", CAPACITY) > 5


def test_values_are_those_of_the_release_of_the_cluster(spark: SparkSession, tmp_path: Path) -> None:
    directory = samples.save(tmp_path, znodes=[znode("topic=t", {"remote.copy.lag.ms": "07"})])
    told = {
        release: samples.run("drift", samples.frames(spark, directory), release=release)
        .select("state", "value")
        .collect()
        for release in (ON_ZOOKEEPER, "4.4")
    }
    assert told == {ON_ZOOKEEPER: [("secret", None)], "4.4": [("value", "7")]}


def test_values_of_declared_keys_are_shown_unless_they_are_secrets(spark: SparkSession, tmp_path: Path) -> None:
    config: dict[str, str | None] = {"acme.copies": "07", "acme.token": None, "other.key": None}
    nodes = [znode("topic=t", config), znode("broker", config), znode("broker=1", {"acme.copies": "8"})]
    declared = [
        {"key": "acme.*", "entity_types": ["topic", "broker"], "type": "int"},
        {"key": "acme.token", "entity_types": ["topic", "broker"], "type": "password"},
    ]
    cluster = ClusterSettings.model_validate({"zookeeper": "zk:2181", "extra_keys": declared})
    frames = samples.frames(spark, samples.save(tmp_path, znodes=nodes))
    found = {
        (row.entity_type, row.config_key): (row.state, row.value)
        for row in samples.run("drift", frames, catalogs=cluster.catalogs()).collect()
    }
    assert found == {
        ("topic", "acme.copies"): ("value", "7"), ("topic", "acme.token"): ("secret", None),
        ("topic", "other.key"): ("secret", None), ("broker", "acme.copies"): ("value", "8"),
        ("broker", "acme.token"): ("secret", None), ("broker", "other.key"): ("secret", None),
    }  # fmt: skip


def test_topics_without_a_znode_count_by_the_table(spark: SparkSession, tmp_path: Path) -> None:
    znodes = [znode("topic=a", {"retention.ms": "5"}), znode("broker=1", {"background.threads": "4"})]
    polls = {"current": samples.NOW - timedelta(hours=1), "outdated": samples.NOW - timedelta(hours=1, microseconds=1)}
    for name, polled_at in polls.items():
        topics = [(f"topic={topic}", polled_at) for topic in "abc"]
        (tmp_path / name).mkdir()
        directory = samples.save(tmp_path / name, znodes=znodes, topics=topics)
        rows = samples.run("drift", samples.frames(spark, directory))
        assert samples.compare("drift", rows, directory, tmp_path / f"{name}-scratch", {}) == 3
        found = rows.orderBy("entity_type", "rank").select("entity_type", "entities", "total", "examples").collect()
        assert [tuple(row) for row in found] == [
            ("broker", 1, 1, []), ("topic", 2, 3, []), ("topic", 1, 3, ["topic=a"]),
        ]  # fmt: skip
        times = {row.entity_type: row.topics_as_of is not None for row in rows.collect()}
        assert times == {"broker": False, "topic": name == "outdated"}


@pytest.mark.parametrize("release", [ON_ZOOKEEPER, "4.4"])
@pytest.mark.parametrize("has_table", [True, False])
def test_the_emptied_znode_of_a_topic_that_is_gone_is_no_topic(
    spark: SparkSession, tmp_path: Path, release: str, *, has_table: bool
) -> None:
    """A cluster without ZooKeeper leaves it, and an exported lake has no table of topics."""
    znodes = [znode("topic=a", {"retention.ms": "5"}), znode("topic=emptied", {}), znode("topic=gone", {})]
    topics = [(f"topic={topic}", samples.NOW) for topic in ("a", "emptied", "plain")] if has_table else []
    frames = samples.frames(spark, samples.save(tmp_path, znodes=znodes, topics=topics))
    rows = samples.run("drift", frames, release=release, on_zookeeper=False).orderBy("rank").collect()
    found = [(row.value, row.entities, row.total, row.examples) for row in rows]
    week = "604800000"
    assert found == ([(week, 2, 3, []), ("5", 1, 3, ["topic=a"])] if has_table else [("5", 1, 1, [])])


@pytest.mark.parametrize(
    ("trees", "expected"),
    [
        ((Tree.CONFIG,), [("user=u", "acks", "0", 1, 1, ["user=u"]), ("user=u", "linger.ms", "5", 2, 0, [*PAIR])]),
        ((Tree.CLIENT_CONFIGS,), [("user=u", "acks", "1", 2, 0, [*PAIR])]),
        ((Tree.CLIENT_CONFIGS, Tree.CONFIG), [("user=u", "acks", "1", 1, 1, ["user=u"])]),
        (
            (Tree.CONFIG, Tree.CLIENT_CONFIGS),
            [("user=u", "acks", "0", 1, 1, ["user=u"]), ("user=u", "linger.ms", "5", 2, 0, [*PAIR])],
        ),
    ],
    ids=["shared", "separate", "to separate", "to shared"],
)
def test_client_configs_are_those_of_the_layout(
    spark: SparkSession, tmp_path: Path, trees: tuple[Tree, ...], expected: list[tuple[Any, ...]]
) -> None:
    """During a move, the user is in both trees, and the client-id is still in the shared one."""
    directory = samples.save(
        tmp_path,
        registration_events=[seen(number, entity, "lib", "1", ["acks"]) for number, entity in enumerate(PAIR, 1)],
        znodes=[
            znode("user=u", {"acks": "0", "linger.ms": "5", "producer_byte_rate": "7"}),
            znode("user=u", {"acks": "1"}, tree=Tree.CLIENT_CONFIGS.value),
            znode("user=u,client-id=c", {"acks": "0"}),
            znode("user=u,client-id=c", {}, tree=Tree.CLIENT_CONFIGS.value),
        ],
    )
    rows = samples.run("impact", samples.frames(spark, directory), client_config_trees=trees)
    found = rows.where("facet = 'client-configs'").drop("facet", "unsupported").sort("config_key").collect()
    assert [tuple(row) for row in found] == expected


def test_an_entry_that_a_broker_ignores_does_not_keep_it_from_a_default(spark: SparkSession, tmp_path: Path) -> None:
    nodes = [
        # Not every config can be a default of all brokers.
        znode("broker", {"log.cleaner.threads": "2", KEYSTORE: "/a"}),
        znode("broker=1", {"log.cleaner.threads": "many"}),
        znode("broker=2", {"log.cleaner.threads": "3"}),
    ]
    rows = samples.run("impact", samples.frames(spark, samples.save(tmp_path, znodes=nodes))).where("facet = 'configs'")
    found = rows.select("config_key", "affected", "overridden", "examples").collect()
    assert [tuple(row) for row in found] == [("log.cleaner.threads", 1, 1, ["broker=1"])]


def test_setting_back_counts_for_a_week(spark: SparkSession, tmp_path: Path) -> None:
    directory = samples.save(tmp_path, changes=CHANGES)
    rows = samples.run("activity", samples.frames(spark, directory)).where("reverted_keys > 0").collect()
    found = {(row.config_key, (row.day.toordinal() - 719_163 - 20_500), row.reverted_keys) for row in rows}
    assert found == {
        ("producer_byte_rate", 8, 1),
        ("request_percentage", 2, 2),
        ("acks", 3, 1),
        ("x", 0, 1),
        ("consumer_byte_rate", 4, 1),
        (KEYSTORE, 6, 1),
    }  # fmt: skip
