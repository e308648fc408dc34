"""Conversion of a cluster's answers: the declared values among all, spellings of quotas, names without a place."""

from __future__ import annotations

import math

import pytest

from confplane.domain.entities import Entity
from confplane.kraft.entity_converter import EntityConverter, resource_of, spelled
from confplane.kraft.views import ConfigResourceType, KafkaConfigSource, Resource
from confplane.kraft.wire.messages.configs import DescribeConfigsResourceResult, DescribeConfigsSynonym
from confplane.kraft_wiring import rules_of
from confplane.services.ports.kafka import KraftEntityType, Unmanaged
from tests.support.catalogs import NEWEST

SIGHTS = EntityConverter(rules_of(lambda: NEWEST))


def entry(
    name: str, value: str | None, source: int, *synonyms: DescribeConfigsSynonym
) -> DescribeConfigsResourceResult:
    return DescribeConfigsResourceResult(
        name, value, config_source=source, is_sensitive=value is None, synonyms=synonyms
    )


@pytest.mark.parametrize(
    ("key", "value", "expected"),
    [
        ("producer_byte_rate", 1048576.0, "1048576"),
        ("producer_byte_rate", 1e18, "1000000000000000000"),
        ("producer_byte_rate", float(2**63), "9223372036854775807"),
        ("request_percentage", 12.5, "12.5"),
        ("request_percentage", 1e7, "1.0E7"),
        ("producer_byte_rate", 0.5, "0.5"),
        ("producer_byte_rate", math.nan, "NaN"),
        ("producer_byte_rate", math.inf, "Infinity"),
        ("producer_byte_rate", -math.inf, "-Infinity"),
        ("of_a_later_release", 3.0, "3.0"),
    ],
)
def test_quotas_are_spelled_as_they_are_stored_here(key: str, value: float, expected: str) -> None:
    assert spelled(Entity.of(user="a"), key, value) == expected


def test_declared_configs_of_a_topic_are_its_own() -> None:
    described = [
        entry("retention.ms", "1", KafkaConfigSource.TOPIC),
        entry("cleanup.policy", "delete", KafkaConfigSource.DEFAULT),
        entry("segment.bytes", "2", KafkaConfigSource.DEFAULT_BROKER),
        entry("flush.ms", "3", KafkaConfigSource.STATIC_BROKER),
    ]
    found = SIGHTS.configs(Entity.of(topic="t"), described, "an id")
    assert (found.config, found.hidden, found.topic_id) == ({"retention.ms": "1"}, frozenset(), "an id")


def test_the_own_value_of_a_broker_is_found_below_another_and_a_listener_value_is_not_the_general_one() -> None:
    described = [
        entry(
            "background.threads",
            "12",
            KafkaConfigSource.BROKER,
            DescribeConfigsSynonym("background.threads", "12", KafkaConfigSource.BROKER),
        ),
        entry(
            "log.retention.ms",
            "5",
            KafkaConfigSource.DEFAULT_BROKER,
            DescribeConfigsSynonym("log.retention.ms", "5", KafkaConfigSource.DEFAULT_BROKER),
        ),
        entry(
            "listener.name.x.ssl.keystore.type",
            "PEM",
            KafkaConfigSource.BROKER,
            DescribeConfigsSynonym("listener.name.x.ssl.keystore.type", "JKS", KafkaConfigSource.STATIC_BROKER),
            DescribeConfigsSynonym("ssl.keystore.type", "PEM", KafkaConfigSource.BROKER),
        ),
        entry(
            "ssl.key.password",
            None,
            KafkaConfigSource.BROKER,
            DescribeConfigsSynonym("ssl.key.password", None, KafkaConfigSource.BROKER),
        ),
    ]
    found = SIGHTS.configs(Entity.of(broker="1"), described)
    assert (found.config, found.hidden) == ({"background.threads": "12"}, frozenset({"ssl.key.password"}))


def test_the_default_of_all_brokers_has_what_is_declared_for_all() -> None:
    described = [
        entry("log.retention.ms", "5", KafkaConfigSource.DEFAULT_BROKER),
        entry("num.io.threads", "8", KafkaConfigSource.DEFAULT),
    ]
    assert SIGHTS.configs(Entity.of(broker=None), described).config == {"log.retention.ms": "5"}


def test_resources_and_entities_name_each_other() -> None:
    for resource in (
        Resource(ConfigResourceType.TOPIC, "orders"),
        Resource(ConfigResourceType.BROKER, ""),
        Resource(ConfigResourceType.BROKER, "7"),
    ):
        entity = SIGHTS.entity(resource)
        assert isinstance(entity, Entity)
        assert resource_of(entity) == resource


def test_names_without_a_place_are_named_with_the_reason() -> None:
    found = SIGHTS.quotas([("user", ".."), ("client-id", None)], [("producer_byte_rate", 1.0)])
    assert isinstance(found, Unmanaged)
    assert (found.entity_type, found.name) == (KraftEntityType.QUOTAS, "user=..,client-id")
    assert "can't be stored in ZooKeeper" in found.reason
    address = SIGHTS.quotas([("ip", "::1")], [("connection_creation_rate", 1.0)])
    assert isinstance(address, Unmanaged)
    assert "is not an IPv4 address" in address.reason
