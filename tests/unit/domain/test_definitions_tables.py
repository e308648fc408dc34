"""The catalog: scopes, groups, prefixes, descriptions, and values of single kinds. It is generated from Kafka's classes."""

from __future__ import annotations

import pytest

from confplane.domain.definitions import (
    ConfigKind,
    ConfigType,
    ConfigValueError,
    Prefix,
    Scope,
    canonical,
    catalog_of,
    description,
    documentation_link,
    parse,
    quota_description,
)
from confplane.domain.quotas import QUOTA_KEYS
from confplane.domain.releases import releases
from tests.support.catalogs import ZOOKEEPER

DYNAMIC_ONLY = {
    "leader.replication.throttled.rate",
    "follower.replication.throttled.rate",
    "replica.alter.log.dirs.io.max.bytes.per.second",
}


@pytest.mark.parametrize("name", sorted(DYNAMIC_ONLY))
def test_rates_without_a_static_form(name: str) -> None:
    found = ZOOKEEPER.broker[name]
    assert (found.scope, found.type, found.default) == (Scope.CLUSTER_WIDE, ConfigType.LONG, str(2**63 - 1))
    assert str(found.valid) == "[0,...]"
    assert found.dynamic_only


def test_internal_ones_are_marked() -> None:
    internal = {name for name, found in ZOOKEEPER.broker.items() if found.internal}
    assert "log.initial.task.delay.ms" in internal
    assert "num.partitions" not in internal
    assert not any(ZOOKEEPER.broker[name].dynamic for name in internal)


def test_groups() -> None:
    grouped = {name: found.group for name, found in ZOOKEEPER.broker.items() if found.group}
    retention = ("log.retention.ms", "log.retention.minutes", "log.retention.hours")
    roll, jitter = ("log.roll.ms", "log.roll.hours"), ("log.roll.jitter.ms", "log.roll.jitter.hours")
    assert grouped == {
        **dict.fromkeys(retention, retention),
        **dict.fromkeys(roll, roll),
        **dict.fromkeys(jitter, jitter),
        "log.flush.interval.ms": ("log.flush.interval.ms", "log.flush.scheduler.interval.ms"),
    }


def test_prefixes() -> None:
    by_mechanism = {name for name, found in ZOOKEEPER.broker.items() if found.prefix is Prefix.MECHANISM}
    assert by_mechanism == {
        "connections.max.reauth.ms", "sasl.jaas.config", "sasl.login.callback.handler.class", "sasl.login.class",
        "sasl.server.callback.handler.class",
    }  # fmt: skip
    at_default = {name for name, found in ZOOKEEPER.broker.items() if found.cluster_level_prefix}
    assert at_default == {"max.connections", "max.connection.creation.rate", "num.network.threads"}
    assert ZOOKEEPER.broker["ssl.keystore.location"].prefix is Prefix.LISTENER
    assert ZOOKEEPER.broker["listeners"].prefix is None
    assert ZOOKEEPER.broker["num.io.threads"].prefix is None


@pytest.mark.parametrize("kind", [ConfigKind.TOPIC, ConfigKind.BROKER, ConfigKind.GROUP, ConfigKind.CLIENT_METRICS])
def test_every_config_that_a_describe_names_is_described(kind: ConfigKind) -> None:
    names = {name for release in releases() for name in catalog_of(release).of(kind)}
    assert names
    for name in names:
        sentence = description(kind, name)
        assert sentence is not None, name
        assert sentence.endswith("."), name
        assert len(sentence) < 200, name


def test_descriptions_of_clients_and_quotas() -> None:
    assert {name for name in ("acks", "session.timeout.ms") if description(ConfigKind.PRODUCER, name)} == {"acks"}
    for name in ("session.timeout.ms", "heartbeat.interval.ms"):
        assert description(ConfigKind.CONSUMER, name)
    for name in QUOTA_KEYS:
        assert quota_description(name).endswith(".")


def test_link() -> None:
    assert (
        documentation_link(ConfigKind.BROKER, "num.partitions", "3.9")
        == "https://kafka.apache.org/39/documentation.html#brokerconfigs_num.partitions"
    )
    assert (
        documentation_link(ConfigKind.GROUP, "share.isolation.level", "4.4")
        == "https://kafka.apache.org/44/documentation.html#groupconfigs_share.isolation.level"
    )
    assert "KIP-714" in documentation_link(ConfigKind.CLIENT_METRICS, "match", "4.4")


@pytest.mark.parametrize(
    "text", ["3.9", "3.9.1", "2.8", "0.8.0.1", "3.9-IV0", "3.9-IV0.1", "1.0.7", "0.9.0", "3.9.x", "0.10.0-IV0"]
)
def test_versions(text: str) -> None:
    assert parse(ZOOKEEPER.topic["message.format.version"], text) == text


@pytest.mark.parametrize("text", ["0.8", "4", "4.0", "0.9", "3.9.", "", "."])
def test_no_versions(text: str) -> None:
    with pytest.raises(ConfigValueError, match="must be a version of Kafka"):
        parse(ZOOKEEPER.topic["message.format.version"], text)


@pytest.mark.parametrize("text", ["*", "", "0:1", "0:1,1:2", "100:0,", " 0:1,1:2 ", ",", " * ", "0:2147483647,,"])
def test_throttled_replicas(text: str) -> None:
    assert isinstance(parse(ZOOKEEPER.topic["leader.replication.throttled.replicas"], text), list)


@pytest.mark.parametrize(
    "text",
    [
        "0", "0:1:2", "a:b", "0:-1", "*,0:1", "0 :1", "0:1;1:2", "\u0661:1", "**",
        # What Kafka takes, and its brokers then don't start with.
        "0:1, 1:2", "0:1 ,1:2", "0:1,,1:2", ",0:1", "*,", "0:2147483648", "2147483648:0", "0:1, ,", "0:" + "9" * 5000,
    ],
)  # fmt: skip
def test_no_throttled_replicas(text: str) -> None:
    with pytest.raises(ConfigValueError, match=r"must be \* alone, or a list of partition:broker"):
        parse(ZOOKEEPER.topic["leader.replication.throttled.replicas"], text)


def test_lists_of_known_values() -> None:
    policy = ZOOKEEPER.topic["cleanup.policy"]
    assert parse(policy, "compact , delete") == ["compact", "delete"]
    assert parse(policy, "") == []
    with pytest.raises(ConfigValueError, match=r"^cleanup.policy must be a list of compact, delete$"):
        parse(policy, "compact,remove")


@pytest.mark.parametrize(
    ("name", "text", "printed"),
    [
        ("log.preallocate", " TRUE", "true"),
        ("num.io.threads", "+07", "7"),
        ("log.cleaner.io.max.bytes.per.second", "1e7", "1.0E7"),
        ("log.cleaner.io.max.bytes.per.second", "Infinity", "Infinity"),
        ("log.cleaner.io.max.bytes.per.second", "1e400", "Infinity"),
        ("log.cleaner.io.max.bytes.per.second", " -1e400 ", "-Infinity"),
        ("log.cleaner.io.max.bytes.per.second", "+Infinity", "Infinity"),
        ("log.cleaner.io.max.bytes.per.second", "-NaN", "NaN"),
        ("log.cleanup.policy", " compact , delete ", "compact,delete"),
        ("ssl.client.auth", " none ", "none"),
    ],
)
def test_canonical(name: str, text: str, printed: str) -> None:
    assert canonical(ZOOKEEPER.broker[name], text) == printed


@pytest.mark.parametrize("kind", ConfigKind)
def test_every_default_is_valid_and_canonical(kind: ConfigKind) -> None:
    for found in ZOOKEEPER.of(kind).values():
        if found.default is not None:
            assert canonical(found, found.default) == found.default, found.name
