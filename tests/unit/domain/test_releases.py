"""Releases: the catalog of a cluster, the release of a metadata version, and the differences between releases."""

from __future__ import annotations

import pytest

from confplane.domain.config_rules import DistinctElements, OffsetReset
from confplane.domain.definitions import (
    ConfigDef,
    ConfigKind,
    ConfigValueError,
    Scope,
    canonical,
    catalog_of,
    parse,
    releases_with,
)
from confplane.domain.releases import metadata_version, nearest, newest, release_of, releases
from tests.support.catalogs import NEWEST, ZOOKEEPER


def test_the_releases() -> None:
    assert releases() == ("3.9", "4.0", "4.1", "4.2", "4.3", "4.4")
    assert newest() == "4.4"
    assert [catalog_of(release).release for release in releases()] == list(releases())


@pytest.mark.parametrize(
    ("release", "expected"),
    [
        ("4.4", "4.4"), ("4.4.0", "4.4"), ("4.4-IV2", "4.4"), ("4.0.2", "4.0"), ("4.3.1-SNAPSHOT", "4.3"),
        ("4.5", "4.4"), ("4.10", "4.4"), ("5.0", "4.4"), ("3.9", "3.9"), ("3.10", "3.9"), ("3.5", "3.9"), ("2.8", "3.9"),
    ],
)  # fmt: skip
def test_the_nearest_catalog(release: str, expected: str) -> None:
    assert nearest(release) == expected
    assert catalog_of(release) is catalog_of(expected)


@pytest.mark.parametrize("release", ["", "4", "latest", "4.x", "v4.4", "-4.4", "12345.1", "4.12345"])
def test_no_release(release: str) -> None:
    with pytest.raises(ValueError, match="is not a release of Kafka"):
        nearest(release)


@pytest.mark.parametrize(
    ("level", "release", "name"),
    [
        (1, "3.0", "3.0-IV1"), (7, "3.3", "3.3-IV3"), (21, "3.9", "3.9-IV0"), (25, "4.0", "4.0-IV3"),
        (27, "4.1", "4.1-IV1"), (29, "4.2", "4.2-IV1"), (30, "4.3", "4.3-IV0"), (33, "4.4", "4.4-IV2"),
        (34, "4.4", None), (1000, "4.4", None),
    ],
)  # fmt: skip
def test_the_release_of_a_metadata_version(level: int, release: str, name: str | None) -> None:
    """The levels are the highest that brokers of 3.9.1, 4.0.2, 4.1.2, 4.2.2, 4.3.1 and 4.4.0 support."""
    assert release_of(level) == release
    assert metadata_version(level) == name


@pytest.mark.parametrize("level", [0, -1])
def test_no_level(level: int) -> None:
    with pytest.raises(ValueError, match="not a feature level"):
        release_of(level)
    assert metadata_version(level) is None


def dynamic(release: str) -> set[str]:
    return {name for name, found in catalog_of(release).broker.items() if found.dynamic and not found.internal}


def test_dynamic_configs_of_brokers_from_3_9_to_4_4() -> None:
    assert (len(dynamic("3.9")), len(dynamic("4.4"))) == (92, 107)
    assert dynamic("4.4") - dynamic("3.9") == {
        "config.providers", "cordoned.log.dirs", "errors.deadletterqueue.auto.create.topics.enable",
        "errors.deadletterqueue.topic.name.prefix", "follower.fetch.last.tiered.offset.enable",
        "group.consumer.assignment.interval.ms", "group.share.assignment.interval.ms",
        "group.streams.assignment.interval.ms", "group.coordinator.cached.buffer.max.bytes",
        "share.coordinator.cached.buffer.max.bytes", "log.remote.copy.lag.bytes", "log.remote.copy.lag.ms",
        "max.decompressed.message.bytes", "remote.list.offsets.request.timeout.ms",
        "remote.log.manager.copier.thread.pool.size", "remote.log.manager.expiration.thread.pool.size",
        "remote.log.manager.follower.thread.pool.size", "remote.log.reader.threads",
    }  # fmt: skip
    assert dynamic("3.9") - dynamic("4.4") == {
        "advertised.listeners", "log.message.downconversion.enable", "log.message.timestamp.difference.max.ms",
    }  # fmt: skip
    assert catalog_of("4.4").broker["cordoned.log.dirs"].scope is Scope.PER_BROKER
    assert not catalog_of("4.4").broker["advertised.listeners"].dynamic


def test_configs_of_topics_from_3_9_to_4_4() -> None:
    public = {name for name, found in NEWEST.topic.items() if not found.internal}
    assert public - ZOOKEEPER.topic.keys() == {
        "errors.deadletterqueue.group.enable", "max.decompressed.message.bytes", "remote.copy.lag.bytes",
        "remote.copy.lag.ms",
    }  # fmt: skip
    assert ZOOKEEPER.topic.keys() - public == {
        "message.format.version", "message.downconversion.enable", "message.timestamp.difference.max.ms",
    }  # fmt: skip
    assert NEWEST.topic["message.timestamp.after.max.ms"].default == "3600000"
    assert ZOOKEEPER.topic["message.timestamp.after.max.ms"].default == str(2**63 - 1)


def test_configs_of_groups_and_subscriptions() -> None:
    assert not ZOOKEEPER.group
    assert not ZOOKEEPER.client_metrics
    public = {name for name, found in NEWEST.group.items() if not found.internal}
    assert public == {
        "consumer.session.timeout.ms", "consumer.heartbeat.interval.ms", "consumer.assignment.interval.ms",
        "share.session.timeout.ms", "share.heartbeat.interval.ms", "share.assignment.interval.ms",
        "share.record.lock.duration.ms", "share.delivery.count.limit", "share.partition.max.record.locks",
        "share.auto.offset.reset", "share.isolation.level", "share.renew.acknowledge.enable",
        "streams.session.timeout.ms", "streams.heartbeat.interval.ms", "streams.assignment.interval.ms",
        "streams.initial.rebalance.delay.ms", "streams.num.standby.replicas", "streams.rack.aware.assignment.tags",
        "streams.assignor.name", "errors.deadletterqueue.topic.name", "errors.deadletterqueue.copy.record.enable",
    }  # fmt: skip
    assert set(NEWEST.client_metrics) == {"metrics", "interval.ms", "match"}
    assert {found.scope for found in NEWEST.group.values()} == {Scope.PER_GROUP}
    assert {found.scope for found in NEWEST.client_metrics.values()} == {Scope.PER_SUBSCRIPTION}
    assert [synonym.name for synonym in NEWEST.group["consumer.session.timeout.ms"].synonyms] == [
        "group.consumer.session.timeout.ms"
    ]


def test_the_releases_of_a_config() -> None:
    assert releases_with(ConfigKind.TOPIC, "retention.ms") == releases()
    assert releases_with(ConfigKind.TOPIC, "message.format.version") == ("3.9",)
    assert releases_with(ConfigKind.GROUP, "share.isolation.level") == ("4.1", "4.2", "4.3", "4.4")
    # The config came into 4.2 with a later patch release, and into 4.3 not yet.
    assert releases_with(ConfigKind.TOPIC, "max.decompressed.message.bytes") == ("4.2", "4.4")
    assert releases_with(ConfigKind.TOPIC, "no.such.config") == ()


def test_a_definition_is_that_of_its_release() -> None:
    def of(release: str) -> ConfigDef:
        return catalog_of(release).topic["segment.bytes"]

    assert str(of("4.0").valid) == "[14,...]"
    assert str(of("4.1").valid) == "[1048576,...]"
    assert catalog_of("4.2").producer["linger.ms"].default == "5"
    assert catalog_of("3.9").producer["linger.ms"].default == "0"


@pytest.mark.parametrize("kind", list(ConfigKind))
def test_every_default_is_valid(kind: ConfigKind) -> None:
    for release in releases():
        for definition in catalog_of(release).of(kind).values():
            if definition.default:
                parse(definition, definition.default)


def test_lists_without_repetition() -> None:
    policy = NEWEST.topic["cleanup.policy"]
    assert policy.valid == DistinctElements(("compact", "delete"))
    assert str(policy.valid) == "[compact, delete]"
    assert parse(policy, " compact , delete ") == ["compact", "delete"]
    assert parse(policy, "") == []
    assert parse(policy, "delete,delete") == ["delete"]
    assert canonical(policy, "delete,compact,delete") == "delete,compact"
    for text, rule in [
        ("delete,", "must not have an empty element"),
        ("keep", "must be a list of compact, delete"),
    ]:
        with pytest.raises(ConfigValueError, match=rule):
            parse(policy, text)
    assert parse(ZOOKEEPER.topic["cleanup.policy"], "delete,delete") == ["delete", "delete"]
    assignors = NEWEST.broker["group.consumer.assignors"]
    assert str(assignors.valid) == "distinct elements"
    with pytest.raises(ConfigValueError, match="must not be empty"):
        parse(assignors, "")


@pytest.mark.parametrize(
    "text",
    [
        "latest", "earliest", "by_duration:PT1H", "by_duration:P1D", "by_duration:pt1.5s", "by_duration:PT0S",
        "by_duration:P1DT2H3M4.123456789S", "by_duration:+PT1S", "by_duration:-PT-1S", "by_duration:PT1H-30M",
        "by_duration:PT1,5S", "by_duration:PT9223372036854775807S", "by_duration:PT1.S",
    ],
)  # fmt: skip
def test_places_to_begin(text: str) -> None:
    """Durations as java.time.Duration reads them."""
    reset = NEWEST.group["share.auto.offset.reset"]
    assert reset.valid == OffsetReset(("earliest", "latest"))
    assert parse(reset, text) == text


@pytest.mark.parametrize(
    "text",
    [
        "none", "LATEST", "by_duration", "by_duration:", "by_duration:P", "by_duration:PT", "by_duration:P1DT",
        "by_duration:-PT1S", "by_duration:PT-1S", "by_duration:1h", "by_duration:PT1.1234567890S", "by_duration:P1Y",
        "by_duration:PT1H2D", "by_duration:PT9223372036854775808S", "by_duration:P9223372036854775807D",
        "by_duration:PT-0.5S", "by_duration:PT\u0661S",
    ],
)  # fmt: skip
def test_no_places_to_begin(text: str) -> None:
    with pytest.raises(ConfigValueError, match="must be one of earliest, latest, or by_duration: and a duration"):
        parse(NEWEST.group["share.auto.offset.reset"], text)
    assert parse(NEWEST.consumer["auto.offset.reset"], "none") == "none"
