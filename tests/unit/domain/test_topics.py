from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from confplane.domain.broker_levels import ConfigLevels, ConfigSource
from confplane.domain.errors import InvalidConfigError, InvalidTopicError, KafkaCode
from confplane.domain.topics import check_topic, check_topic_name, describe_topic, effective_topic
from tests.support.catalogs import NEWEST, ZOOKEEPER

KNOWN = ConfigLevels(ZOOKEEPER, static={})
UNKNOWN = ConfigLevels(ZOOKEEPER)
LONG_MAX = str(2**63 - 1)
NEWEST_TIERED = ConfigLevels(NEWEST, static={"remote.log.storage.system.enable": "true"})
REMOTE, NO_COPY = (
    {"remote.storage.enable": "true"},
    {"remote.storage.enable": "true", "remote.log.copy.disable": "true"},
)
TIERED = ConfigLevels(ZOOKEEPER, static={"remote.log.storage.system.enable": "true"})

# ---------------------------------------------------------------- names


@pytest.mark.parametrize("name", ["a", "A.b_c-9", "__consumer_offsets", "...", "x" * 249])
def test_names(name: str) -> None:
    check_topic_name(name)


@pytest.mark.parametrize("name", ["", ".", "..", "x" * 250, "a b", "a/b", "\u00fc", "a\n", "a*", "\u0661"])
def test_no_names(name: str) -> None:
    with pytest.raises(InvalidTopicError) as caught:
        check_topic_name(name, pointer="/p")
    assert (caught.value.code, caught.value.pointer) == (KafkaCode.INVALID_TOPIC_EXCEPTION, "/p")
    assert len(caught.value.detail) < 150


# ---------------------------------------------------------------- values

# key | taken | refused | error; every topic config
TABLE = """
cleanup.policy | compact,delete | compact,keep | must be a list of compact, delete
compression.gzip.level | -1 | 0 | must be at least 1, or -1
compression.lz4.level | 1 | 0 | must be at least 1
compression.type | uncompressed | none | must be one of
compression.zstd.level | -131072 | 23 | must be at most 22
delete.retention.ms | 0 | -1 | must be at least 0
file.delete.delay.ms | 0 | -1 | must be at least 0
flush.messages | 1 | 0 | must be at least 1
flush.ms | 0 | -1 | must be at least 0
follower.replication.throttled.replicas | * | *,1:1 | must be * alone
index.interval.bytes | 0 | -1 | must be at least 0
leader.replication.throttled.replicas | 100:0, | 1 : 0 | must be * alone
local.retention.bytes | -2 | -3 | must be at least -2
local.retention.ms | -1 | -3 | must be at least -2
max.compaction.lag.ms | 1 | 0 | must be at least 1
max.message.bytes | 0 | -1 | must be at least 0
message.downconversion.enable | TRUE | yes | must be one of true, false
message.format.version | 2.8 | 9.9 | must be a version of Kafka
message.timestamp.after.max.ms | 0 | -1 | must be at least 0
message.timestamp.before.max.ms | 0 | -1 | must be at least 0
message.timestamp.difference.max.ms | 0 | -1 | must be at least 0
message.timestamp.type | LogAppendTime | Log | must be one of CreateTime, LogAppendTime
min.cleanable.dirty.ratio | 0.0 | NaN | must be at least 0
min.compaction.lag.ms | 0 | -1 | must be at least 0
min.insync.replicas | 1 | 0 | must be at least 1
preallocate | false |  | must be one of true, false
remote.log.copy.disable | false | true | not supported in a cluster that runs on ZooKeeper
remote.log.delete.on.disable | false | true | not supported in a cluster that runs on ZooKeeper
remote.storage.enable | false | true | needs brokers with remote.log.storage.system.enable=true
retention.bytes | -1 | 1e9 | must be a whole number (LONG)
retention.ms | -1 | -2 | must be at least -1
segment.bytes | 14 | 13 | must be at least 14
segment.index.bytes | 4 | 3 | must be at least 4
segment.jitter.ms | 0 | -1 | must be at least 0
segment.ms | 1 | 0 | must be at least 1
unclean.leader.election.enable | true | 1 | must be one of true, false
"""
ROWS = [row.split(" | ") for row in TABLE.strip().splitlines()]


def test_the_table_is_whole() -> None:
    assert [row[0] for row in ROWS] == sorted(ZOOKEEPER.topic)


@pytest.mark.parametrize(("key", "taken", "refused", "error"), ROWS, ids=[row[0] for row in ROWS])
def test_every_topic_config(key: str, taken: str, refused: str, error: str) -> None:
    for value in (taken, f"\t{taken} "):
        assert check_topic({key: value}, levels=KNOWN) == []
    with pytest.raises(InvalidConfigError) as caught:
        check_topic({key: refused}, levels=KNOWN, pointers={key: "/here"})
    assert error in caught.value.detail
    assert key in caught.value.detail
    assert (caught.value.code, caught.value.pointer) == (KafkaCode.INVALID_CONFIG, "/here")


@pytest.mark.parametrize("key", ["log.retention.ms", "Retention.ms", "", "x" * 500, "retention.ms "])
def test_unknown_keys(key: str) -> None:
    with pytest.raises(InvalidConfigError, match=r"^Unknown topic config name: ") as caught:
        check_topic({key: "1"}, levels=UNKNOWN)
    assert len(caught.value.detail) < 150


def test_existing_external_values_stay() -> None:
    stored = {"foreign": "secret", "segment.ms": "0"}
    warnings = check_topic({**stored, "retention.ms": "1"}, levels=UNKNOWN, stored=stored)
    assert warnings == [
        "Brokers don't use the stored foreign: Unknown topic config name: foreign",
        "Brokers don't use the stored segment.ms: segment.ms must be at least 1",
    ]
    with pytest.raises(InvalidConfigError, match="Unknown topic config name: foreign"):
        check_topic({**stored, "foreign": "other"}, levels=UNKNOWN, stored=stored)


# ---------------------------------------------------------------- contradictions


@pytest.mark.parametrize(
    ("config", "levels", "error"),
    [
        ({"min.compaction.lag.ms": "2", "max.compaction.lag.ms": "1"}, KNOWN, "must be at most max.compaction.lag.ms"),
        (
            {"min.compaction.lag.ms": "2"},
            ConfigLevels(ZOOKEEPER, default={"log.cleaner.max.compaction.lag.ms": "1"}),
            "(2) must be at",
        ),
        (
            {"max.compaction.lag.ms": "1"},
            ConfigLevels(ZOOKEEPER, static={"log.cleaner.min.compaction.lag.ms": "2"}),
            "lag.ms (1)",
        ),
        ({"remote.storage.enable": "true"}, KNOWN, "needs brokers with"),
        ({"remote.storage.enable": "true", "cleanup.policy": "delete,compact"}, TIERED, "that is compacted"),
        ({"remote.storage.enable": "true", "local.retention.ms": "-1"}, TIERED, "must not be -1 while retention.ms"),
        ({"remote.storage.enable": "true", "local.retention.ms": "604800001"}, TIERED, "(604800000)"),
        ({"remote.storage.enable": "true", "local.retention.ms": "2", "retention.ms": "1"}, TIERED, "retention.ms (1)"),
        ({"remote.storage.enable": "true", "local.retention.bytes": "2", "retention.bytes": "1"}, TIERED, "bytes (1)"),
        ({"remote.storage.enable": "true", "local.retention.bytes": "-1", "retention.bytes": "1"}, TIERED, "not be -1"),
        ({"remote.storage.enable": "true", "retention.bytes": "0", "local.retention.bytes": "1"}, TIERED, "bytes (0)"),
    ],
)
def test_contradictions(config: dict[str, str], levels: ConfigLevels, error: str) -> None:
    with pytest.raises(InvalidConfigError) as caught:
        check_topic(config, levels=levels, pointers=dict.fromkeys(config, "/here"))
    assert error in caught.value.detail
    assert caught.value.pointer == "/here"


@pytest.mark.parametrize(
    "config",
    [
        {"remote.storage.enable": "true"},
        {"remote.storage.enable": "true", "local.retention.ms": "604800000"},
        {"remote.storage.enable": "true", "local.retention.ms": "-1", "retention.ms": "-1"},
        {"remote.storage.enable": "true", "local.retention.bytes": "-1"},
        {"remote.storage.enable": "true", "local.retention.bytes": "-2", "retention.bytes": "1"},
        {"min.compaction.lag.ms": "5", "max.compaction.lag.ms": "5"},
    ],
)
def test_what_fits(config: dict[str, str]) -> None:
    assert check_topic(config, levels=TIERED) == []


@pytest.mark.parametrize(
    ("stored", "after", "error"),
    [
        (REMOTE, {}, "can be turned off only with remote.log.delete.on.disable=true"),
        (REMOTE, {"remote.storage.enable": "false"}, "can be turned off only with"),
        (REMOTE, {"remote.log.delete.on.disable": "false"}, "can be turned off only with"),
        (REMOTE, {"remote.log.delete.on.disable": "true"}, None),
        (REMOTE, {"remote.storage.enable": "false", "remote.log.delete.on.disable": "true"}, None),
        ({"remote.storage.enable": "TRUE"}, {}, "can be turned off only with"),
        ({"remote.storage.enable": "false"}, {}, None),
        ({}, {"remote.storage.enable": "false"}, None),
        (REMOTE, {**NO_COPY, "local.retention.ms": "5"}, "must be retention.ms (604800000), or -2, while remote.log.copy"),
        (REMOTE, {**NO_COPY, "local.retention.ms": "5", "retention.ms": "5"}, None),
        (REMOTE, {**NO_COPY, "local.retention.bytes": "5"}, "(5) must be retention.bytes (-1), or -2"),
        (REMOTE, {**NO_COPY, "local.retention.bytes": "-1"}, None),
        (REMOTE, NO_COPY, None),
        (REMOTE, {"remote.log.copy.disable": "true", "local.retention.ms": "5", **REMOTE}, "while remote.log.copy.disable"),
        ({}, {"remote.log.copy.disable": "true", "local.retention.ms": "5"}, None),
        ({}, {**REMOTE, "remote.copy.lag.ms": "604800001"}, "(604800001) must be at most retention.ms (604800000)"),
        ({}, {**REMOTE, "remote.copy.lag.ms": "6", "local.retention.ms": "5"}, "(6) must be at most local.retention.ms (5)"),
        ({}, {**REMOTE, "remote.copy.lag.ms": "5", "local.retention.ms": "5"}, None),
        ({}, {**REMOTE, "remote.copy.lag.bytes": "1", "retention.bytes": "0"}, "must be at most retention.bytes (0)"),
        ({}, {**REMOTE, "remote.copy.lag.bytes": "-1", "retention.bytes": "0"}, None),
        ({}, {"remote.copy.lag.ms": "6", "local.retention.ms": "5"}, None),
    ],
)  # fmt: skip
def test_tiered_storage_of_kafka_4(stored: dict[str, str], after: dict[str, str], error: str | None) -> None:
    if error is None:
        assert check_topic(after, levels=NEWEST_TIERED, stored=stored) == []
        return
    with pytest.raises(InvalidConfigError) as caught:
        check_topic(after, levels=NEWEST_TIERED, stored=stored)
    assert error in caught.value.detail


def test_tiered_storage_that_the_cluster_may_not_have_taken_can_be_turned_off() -> None:
    pending = ["remote.storage.enable"]
    assert check_topic({}, levels=NEWEST_TIERED, stored=REMOTE, pending=pending) == []


def test_tiered_storage_can_be_turned_off_in_zookeeper_mode() -> None:
    assert check_topic({}, levels=TIERED, stored=REMOTE) == []


def test_without_tiered_storage_local_retention_is_not_checked() -> None:
    assert check_topic({"local.retention.ms": "5", "retention.ms": "1"}, levels=KNOWN) == []


def test_brokers_that_nobody_knows() -> None:
    (warning,) = check_topic({"remote.storage.enable": "true"}, levels=UNKNOWN)
    assert "not known here" in warning
    enabled, local = check_topic({"remote.storage.enable": "true", "local.retention.ms": "604800001"}, levels=UNKNOWN)
    assert enabled == warning
    assert local.startswith("local.retention.ms (604800001) must be at most retention.ms (604800000), if the brokers'")
    with pytest.raises(InvalidConfigError, match="is compacted"):
        check_topic({"remote.storage.enable": "true", "cleanup.policy": "compact"}, levels=UNKNOWN)


@given(st.dictionaries(st.sampled_from([*ZOOKEEPER.topic, "x"]), st.text() | st.integers().map(str)))
def test_one_error_ever(config: dict[str, str]) -> None:
    for levels in (UNKNOWN, KNOWN, TIERED):
        try:
            check_topic(config, levels=levels)
        except InvalidConfigError as error:
            assert any(key in error.detail for key in config)


# ---------------------------------------------------------------- effective configs


def retention(
    config: dict[str, str], levels: ConfigLevels
) -> tuple[str | None, int, list[tuple[str, str | None, int]]]:
    found = effective_topic("retention.ms", config, levels)
    return found.value, found.source.number, [(name, value, source.number) for name, value, source in found.synonyms]


def test_retention_with_values_at_all_levels() -> None:
    levels = ConfigLevels(
        ZOOKEEPER,
        static={"log.retention.ms": "4", "log.retention.minutes": "3", "log.retention.hours": "2"},
        default={"log.retention.ms": "5"},
        broker={"log.retention.ms": "6"},
    )
    below = [
        ("log.retention.ms", "6", 2),
        ("log.retention.ms", "5", 3),
        ("log.retention.ms", "4", 4),
        ("log.retention.minutes", "3", 4),
        ("log.retention.hours", "2", 4),
        ("log.retention.hours", "168", 5),
    ]
    assert retention({"retention.ms": "7"}, levels) == ("7", 1, [("retention.ms", "7", 1), *below])
    assert retention({"retention.ms": " 07 "}, levels) == ("7", 1, [("retention.ms", "7", 1), *below])
    assert retention({}, levels) == ("6", 2, below)
    assert retention({}, ConfigLevels(ZOOKEEPER, levels.static, levels.default)) == ("5", 3, below[1:])
    assert retention({}, ConfigLevels(ZOOKEEPER, levels.static)) == ("4", 4, below[2:])


@pytest.mark.parametrize(
    ("levels", "expected"),
    [
        (ConfigLevels(ZOOKEEPER, static={"log.retention.hours": "2"}), ("7200000", 5, [])),
        (ConfigLevels(ZOOKEEPER, static={"log.retention.minutes": "3", "log.retention.hours": "2"}), ("180000", 5, [])),
        (ConfigLevels(ZOOKEEPER, static={}), ("604800000", 5, [])),
        (ConfigLevels(ZOOKEEPER, static={"log.retention.hours": "-7"}), ("-1", 5, [])),
        (
            ConfigLevels(ZOOKEEPER, static={"log.retention.hours": "2"}, default={"log.retention.ms": "1"}),
            (
                "1",
                3,
                [("log.retention.ms", "1", 3), ("log.retention.hours", "2", 4), ("log.retention.hours", "168", 5)],
            ),
        ),
    ],
)
def test_units(levels: ConfigLevels, expected: tuple[str, int, list[tuple[str, str, int]]]) -> None:
    assert retention({}, levels) == expected


@pytest.mark.parametrize(
    ("name", "static", "value"),
    [
        ("segment.ms", {"log.roll.hours": "2"}, "7200000"),
        ("segment.ms", {"log.roll.hours": "2", "log.roll.ms": "5"}, "5"),
        ("segment.jitter.ms", {"log.roll.jitter.hours": "1"}, "3600000"),
        ("segment.jitter.ms", {}, "0"),
        ("flush.ms", {"log.flush.scheduler.interval.ms": "9"}, "9"),
        ("flush.ms", {}, LONG_MAX),
        ("message.timestamp.before.max.ms", {"log.message.timestamp.difference.max.ms": "9"}, "9"),
        ("message.timestamp.after.max.ms", {"log.message.timestamp.difference.max.ms": "9"}, "9"),
        (
            "message.timestamp.after.max.ms",
            {"log.message.timestamp.difference.max.ms": "9", "log.message.timestamp.after.max.ms": "8"},
            "8",
        ),
        ("message.format.version", {"log.message.format.version": "2.0"}, "3.0-IV1"),
        (
            "message.format.version",
            {"log.message.format.version": "2.0", "inter.broker.protocol.version": "2.8"},
            "2.0",
        ),
        ("max.message.bytes", {"message.max.bytes": "77"}, "77"),
        ("preallocate", {"log.preallocate": "TRUE"}, "true"),
        ("segment.bytes", {"log.segment.bytes": "not a number"}, "1073741824"),
        ("remote.storage.enable", {}, "false"),
    ],
)
def test_what_brokers_give(name: str, static: dict[str, str], value: str) -> None:
    assert effective_topic(name, {}, ConfigLevels(ZOOKEEPER, static=static)).value == value


def test_describe() -> None:
    found = {item.name: item for item in describe_topic({"segment.bytes": " 77 ", "foreign": "planted"}, KNOWN)}
    assert list(found) == sorted([*ZOOKEEPER.topic, "foreign"])
    assert (found["segment.bytes"].value, found["segment.bytes"].source) == ("77", ConfigSource.DYNAMIC_TOPIC_CONFIG)
    foreign = found["foreign"]
    assert (foreign.sensitive, foreign.value, foreign.type, foreign.source) == (
        True, None, None, ConfigSource.DYNAMIC_TOPIC_CONFIG,
    )  # fmt: skip
    assert "planted" not in repr(found)
    assert not any(item.read_only for item in found.values())
    for name, definition in ZOOKEEPER.topic.items():
        if name != "segment.bytes":
            assert found[name].value == definition.default, name


def test_what_unknown_files_could_say() -> None:
    assert effective_topic("retention.ms", {}, ConfigLevels(ZOOKEEPER)).assumed
    assert not effective_topic("retention.ms", {"retention.ms": "1"}, ConfigLevels(ZOOKEEPER)).assumed
    assert not effective_topic("retention.ms", {}, ConfigLevels(ZOOKEEPER, default={"log.retention.ms": "1"})).assumed
    assert not effective_topic("retention.ms", {}, KNOWN).assumed
    assert not effective_topic("remote.storage.enable", {}, ConfigLevels(ZOOKEEPER)).assumed
