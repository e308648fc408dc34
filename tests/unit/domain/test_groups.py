"""Configs of groups, with the cases of Kafka 4.4's own GroupConfigTest."""

from __future__ import annotations

from typing import Final

import pytest
from hypothesis import given
from hypothesis import strategies as st

from confplane.domain.broker_levels import ConfigLevels, ConfigSource
from confplane.domain.definitions import ConfigType
from confplane.domain.errors import InvalidConfigError, KafkaCode
from confplane.domain.groups import check_group, describe_group, effective_group
from tests.support.catalogs import NEWEST, ZOOKEEPER

KNOWN: Final = ConfigLevels(NEWEST, static={})
UNKNOWN: Final = ConfigLevels(NEWEST)


def of(**file: str) -> ConfigLevels:
    return ConfigLevels(NEWEST, static={name.replace("__", "."): value for name, value in file.items()})


GOOD = """
consumer.session.timeout.ms 45000 60000
consumer.heartbeat.interval.ms 5000 15000
consumer.assignment.interval.ms 0 15000
share.session.timeout.ms 45000 60000
share.heartbeat.interval.ms 5000 15000
share.assignment.interval.ms 0 15000
share.record.lock.duration.ms 15000 60000
share.delivery.count.limit 2 10
share.partition.max.record.locks 100 4000
streams.session.timeout.ms 45000 60000
streams.heartbeat.interval.ms 5000 15000
streams.assignment.interval.ms 0 15000
streams.num.standby.replicas 0 2
"""
"""Each config with the least and the greatest value that brokers allow by default."""
ROWS = [row.split() for row in GOOD.strip().splitlines()]


@pytest.mark.parametrize(("key", "least", "most"), ROWS, ids=[row[0] for row in ROWS])
def test_bounds_of_the_brokers(key: str, least: str, most: str) -> None:
    for value in (least, most, f" {least} "):
        assert check_group({key: value}, levels=KNOWN) == []
    for value in (str(int(least) - 1), str(int(most) + 1), "x", "", "1.5", "2147483648"):
        with pytest.raises(InvalidConfigError) as caught:
            check_group({key: value}, levels=KNOWN, pointers={key: "/here"})
        assert key in caught.value.detail
        assert (caught.value.code, caught.value.pointer) == (KafkaCode.INVALID_CONFIG, "/here")


def test_bounds_of_these_brokers() -> None:
    wide = of(group__consumer__max__session__timeout__ms="90000")
    assert check_group({"consumer.session.timeout.ms": "90000"}, levels=wide) == []
    with pytest.raises(InvalidConfigError, match=r"at most 90000, the brokers' group\.consumer\.max\.session"):
        check_group({"consumer.session.timeout.ms": "90001"}, levels=wide)


def test_brokers_that_nobody_knows() -> None:
    [warning] = check_group({"consumer.session.timeout.ms": "60001"}, levels=UNKNOWN)
    assert warning.startswith("consumer.session.timeout.ms must be at most 60000, the brokers'")
    assert "not known here" in warning
    # The config's own definition is known all the same.
    with pytest.raises(InvalidConfigError, match="at least 1"):
        check_group({"consumer.session.timeout.ms": "0"}, levels=UNKNOWN)


@pytest.mark.parametrize("protocol", ["consumer", "share", "streams"])
def test_a_session_outlasts_a_heartbeat(protocol: str) -> None:
    session, heartbeat = f"{protocol}.session.timeout.ms", f"{protocol}.heartbeat.interval.ms"
    low = ConfigLevels(
        NEWEST,
        static={f"group.{protocol}.min.session.timeout.ms": "1000", f"group.{protocol}.min.heartbeat.interval.ms": "1"},
    )
    assert check_group({session: "10001", heartbeat: "10000"}, levels=low) == []
    with pytest.raises(InvalidConfigError, match=r"\(10000\) must be above .* \(10000\)"):
        check_group({session: "10000", heartbeat: "10000"}, levels=low)
    # One of the two is the brokers'.
    with pytest.raises(InvalidConfigError, match=r"\(5000\) must be above .* \(5000\)") as caught:
        check_group({session: "5000"}, levels=low, pointers={session: "/here"})
    assert caught.value.pointer == "/here"
    assert check_group({session: "5001"}, levels=low) == []


@pytest.mark.parametrize(
    ("key", "value", "error"),
    [
        ("share.isolation.level", "read_everything", "must be one of read_committed, read_uncommitted"),
        ("share.isolation.level", "READ_COMMITTED", "must be one of"),
        ("share.auto.offset.reset", "by_duration:-PT1H", "must be one of earliest, latest, or by_duration:"),
        ("share.auto.offset.reset", "none", "must be one of"),
        ("share.renew.acknowledge.enable", "yes", "must be one of true, false"),
        ("streams.assignor.name", "other", "must be one of sticky, the brokers' group.streams.assignors"),
        ("streams.rack.aware.assignment.tags", "zone,zone", "must not have an element twice"),
        ("streams.rack.aware.assignment.tags", "zone,", "must not have an empty element"),
        ("streams.initial.rebalance.delay.ms", "-1", "must be at least 0"),
        ("errors.deadletterqueue.topic.name", "__dead", "must not begin with __"),
        ("group.consumer.session.timeout.ms", "45000", "^Unknown group config name: group.consumer"),
        ("session.timeout.ms", "45000", "^Unknown group config name"),
        ("", "1", "^Unknown group config name"),
    ],
)
def test_refused(key: str, value: str, error: str) -> None:
    with pytest.raises(InvalidConfigError, match=error) as caught:
        check_group({key: value}, levels=KNOWN, pointers={key: "/here"})
    assert caught.value.pointer == "/here"


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("share.isolation.level", "read_committed"),
        ("share.auto.offset.reset", "by_duration:PT1H"),
        ("streams.assignor.name", "sticky"),
        ("streams.rack.aware.assignment.tags", "zone, cluster"),
        ("streams.rack.aware.assignment.tags", ""),
        ("errors.deadletterqueue.topic.name", "dead"),
        ("errors.deadletterqueue.topic.name", ""),
        ("errors.deadletterqueue.copy.record.enable", "TRUE"),
    ],
)
def test_taken(key: str, value: str) -> None:
    assert check_group({key: value}, levels=KNOWN) == []


def test_an_assignor_that_is_a_class() -> None:
    [warning] = check_group({"streams.assignor.name": "mine"}, levels=of(group__streams__assignors="sticky,com.x.Mine"))
    assert "are not known" in warning


def test_existing_external_values_stay() -> None:
    stored = {"foreign": "1", "share.session.timeout.ms": "x"}
    warnings = check_group({**stored, "share.isolation.level": "read_committed"}, levels=KNOWN, stored=stored)
    assert [warning.partition(":")[0] for warning in warnings] == [
        "Brokers don't use the stored foreign", "Brokers don't use the stored share.session.timeout.ms",
    ]  # fmt: skip


@given(st.dictionaries(st.sampled_from([*NEWEST.group, "x"]), st.text() | st.integers().map(str)))
def test_one_error_ever(config: dict[str, str]) -> None:
    for levels in (UNKNOWN, KNOWN):
        try:
            check_group(config, levels=levels)
        except InvalidConfigError as error:
            assert any(key in error.detail for key in config)


def test_effective() -> None:
    levels = ConfigLevels(NEWEST, static={"group.consumer.session.timeout.ms": "50000"})
    inherited = effective_group("consumer.session.timeout.ms", {}, levels)
    assert (inherited.value, inherited.source, inherited.assumed) == ("50000", ConfigSource.STATIC_BROKER_CONFIG, False)
    own = effective_group("consumer.session.timeout.ms", {"consumer.session.timeout.ms": " 055000"}, levels)
    assert (own.value, own.source, own.type, own.read_only) == (
        "55000", ConfigSource.DYNAMIC_GROUP_CONFIG, ConfigType.INT, False,
    )  # fmt: skip
    assert [(synonym.name, synonym.value) for synonym in own.synonyms] == [
        ("consumer.session.timeout.ms", "55000"), ("group.consumer.session.timeout.ms", "50000"),
        ("group.consumer.session.timeout.ms", "45000"),
    ]  # fmt: skip
    default = effective_group("share.isolation.level", {}, levels)
    assert (default.value, default.source) == ("read_uncommitted", ConfigSource.DEFAULT_CONFIG)
    assert effective_group("share.session.timeout.ms", {}, UNKNOWN).assumed
    dynamic = ConfigLevels(NEWEST, default={"group.share.assignment.interval.ms": "2000"})
    found = effective_group("share.assignment.interval.ms", {}, dynamic)
    assert (found.value, found.source, found.assumed) == ("2000", ConfigSource.DYNAMIC_DEFAULT_BROKER_CONFIG, False)


def test_describe() -> None:
    found = describe_group({"foreign": "secret"}, KNOWN)
    names = [item.name for item in found]
    assert names == sorted(names)
    assert len(names) == 22
    assert "streams.num.warmup.replicas" not in names, "internal to Kafka"
    foreign = next(item for item in found if item.name == "foreign")
    assert (foreign.value, foreign.sensitive, foreign.type) == (None, True, None)
    assert describe_group({}, ConfigLevels(ZOOKEEPER)) == []
