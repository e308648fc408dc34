"""The risks of changes: each rule with the changes that it finds, and those next to them that it does not."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from hypothesis import given
from hypothesis import strategies as st

from confplane.domain.broker_levels import ConfigLevels
from confplane.domain.definitions import catalog_of
from confplane.domain.entities import Entity
from confplane.domain.releases import ON_ZOOKEEPER
from confplane.domain.risks import RiskFacts, RiskOptions, find_risks, kinds_of

if TYPE_CHECKING:
    from collections.abc import Mapping

CATALOG = catalog_of(ON_ZOOKEEPER)
OPTIONS = RiskOptions(frozenset({"User:kafka", "User:registry"}), 10)
WEEK, DAY, HOUR = "604800000", "86400000", "3600000"


def config(text: str) -> dict[str, str]:
    """Read keys and values such as ``a=1 b=2``."""
    return dict(item.split("=", 1) for item in text.split())


def risks(
    entity_id: str,
    before: Mapping[str, str],
    after: Mapping[str, str],
    *,
    others: Mapping[str, Mapping[str, str]] | None = None,
    static: Mapping[str, str] | None = None,
    replicas: int | None = None,
    options: RiskOptions = OPTIONS,
) -> list[tuple[str, str, str]]:
    entity, others = Entity.from_id(entity_id), others or {}

    def levels(own: Mapping[str, str]) -> ConfigLevels:
        maps = {**others, entity_id: own}
        return ConfigLevels(CATALOG, static, default=maps.get("broker", {}), broker=maps.get("broker=1", {}))

    keys = frozenset(key for key in before.keys() | after.keys() if before.get(key) != after.get(key))
    facts = RiskFacts(
        entity, keys, before, after, lambda name: others.get(name, {}), (levels(before), levels(after)), replicas
    )
    found = find_risks(facts, options)
    assert {risk.kind for risk in found} <= kinds_of(entity, keys)
    return [(risk.kind.value, risk.key, risk.text) for risk in found]


TOPICS = [
    # before, after, default of all brokers, risks as kind:key
    ("retention.ms=604800000", "retention.ms=3600000", "", "smaller-retention:retention.ms"),
    ("retention.ms=3600000", "retention.ms=604800000", "", ""),
    ("retention.ms=3600000", "retention.ms=-1", "", ""),
    ("retention.ms=-1", "retention.ms=9223372036854775807", "", "smaller-retention:retention.ms"),
    ("", "retention.ms=3600000", "", "smaller-retention:retention.ms"),
    ("", "retention.ms=604800000", "", ""),
    ("retention.ms=864000000", "", "", "smaller-retention:retention.ms"),
    ("retention.ms=3600000", "", "", ""),
    ("retention.ms=864000000", "", "log.retention.ms=-1", ""),
    ("retention.ms=-1", "", "log.retention.ms=864000000", "smaller-retention:retention.ms"),
    ("retention.bytes=-1", "retention.bytes=0", "", "smaller-retention:retention.bytes"),
    ("retention.bytes=1000", "", "", ""),
    (
        "retention.ms=-1 retention.bytes=-1",
        "retention.ms=1 retention.bytes=1",
        "",
        "smaller-retention:retention.ms smaller-retention:retention.bytes",
    ),
    # Only a policy with delete deletes records.
    ("cleanup.policy=compact retention.ms=-1", "cleanup.policy=compact retention.ms=1", "", ""),
    ("cleanup.policy=compact", "cleanup.policy=compact,delete", "", "smaller-retention:cleanup.policy"),
    ("cleanup.policy=compact", "", "", "smaller-retention:cleanup.policy"),
    ("cleanup.policy=compact retention.ms=-1", "retention.ms=-1", "", ""),
    ("cleanup.policy=delete", "cleanup.policy=compact", "", ""),
    ("segment.bytes=1000000", "segment.bytes=100000", "", ""),
    ("retention.ms=oops", "retention.ms=3600000", "", "smaller-retention:retention.ms"),
]


@pytest.mark.parametrize(("before", "after", "default", "expected"), TOPICS)
def test_the_retention_of_a_topic(before: str, after: str, default: str, expected: str) -> None:
    found = risks("topic=orders", config(before), config(after), others={"broker": config(default)}, static={})
    assert " ".join(f"{kind}:{key}" for kind, key, _ in found) == expected


def test_a_retention_that_depends_on_unknown_files_is_named_as_such() -> None:
    removal = {"retention.ms": "864000000"}, dict[str, str]()
    [(_, _, known)] = risks("topic=orders", *removal, static={})
    [(_, _, assumed)] = risks("topic=orders", *removal)
    assert known == (
        "The retention.ms of topic=orders falls from 864000000 to 604800000. Brokers delete the records beyond it at"
        " once, and no revert brings them back"
    )
    assert "to 604800000, if the brokers' own files leave Kafka's defaults. " in assumed
    assert risks("topic=orders", *removal, static={"log.retention.hours": "-1"}) == []


@pytest.mark.parametrize(
    ("entity", "before", "after", "key"),
    [
        ("broker", "log.retention.ms=604800000", "log.retention.ms=3600000", "log.retention.ms"),
        ("broker=1", "", "log.retention.hours=1", "log.retention.hours"),
        ("broker=1", "log.retention.minutes=100000", "", "log.retention.minutes"),
        ("broker", "", "log.retention.bytes=1", "log.retention.bytes"),
        ("broker", "log.cleanup.policy=compact", "", "log.cleanup.policy"),
        ("broker", "", "log.retention.ms=-1", None),
        ("broker", "log.retention.ms=1", "log.retention.ms=1 log.retention.hours=1", None),
        ("broker", "", "num.io.threads=3", None),
    ],
)
def test_the_retention_of_brokers_is_that_of_topics_without_one(
    entity: str, before: str, after: str, key: str | None
) -> None:
    found = risks(entity, config(before), config(after), static={})
    assert [(kind, name) for kind, name, _ in found] == ([] if key is None else [("smaller-retention", key)])
    assert all("of topics without one of their own falls" in text for _, _, text in found)


@pytest.mark.parametrize(
    ("before", "after", "replicas", "effect"),
    [
        ("", "min.insync.replicas=2", 3, None),
        ("", "min.insync.replicas=3", 3, "fail while one of its replicas is out of sync"),
        ("", "min.insync.replicas=4", 3, "always fail"),
        ("", "min.insync.replicas=4", None, None),
        ("", "min.insync.replicas=1", 1, None),
        ("", "min.insync.replicas=2", 1, "always fail"),
        ("min.insync.replicas=1", "", 2, "fail while one of its replicas is out of sync"),
        ("retention.ms=1", "", 2, None),
    ],
)
def test_min_insync_replicas(before: str, after: str, replicas: int | None, effect: str | None) -> None:
    default = {"broker": {"min.insync.replicas": "2"}}
    found = risks("topic=orders", config(before), config(after), others=default, replicas=replicas, static={})
    assert [(kind, key) for kind, key, _ in found] == (
        [] if effect is None else [("min-insync-replicas", "min.insync.replicas")]
    )
    assert all(text.endswith(f"writes with acks=all {effect}") for _, _, text in found)


RATE = "producer_byte_rate"
QUOTAS = [
    # entity, before, after, quotas of other entities, kinds of risk
    ("user", None, 100, {}, "default-quota"),
    ("user", 100, 200, {}, ""),
    ("user", 200, 100, {}, "default-quota"),
    ("user", 200, None, {}, ""),
    ("user", None, 100, {"user=kafka": 9}, "default-quota"),
    ("user", None, 100, {"user=kafka": 9, "user=registry": 9}, ""),
    ("user", None, 100, {"user=kafka": 9, "user=registry,client-id": 9}, ""),
    ("user", None, 100, {"user=kafka": 9, "user=registry,client-id=x": 9}, "default-quota"),
    ("user", 200, None, {"client-id": 150}, "default-quota"),
    ("user,client-id", None, 100, {}, "default-quota"),
    ("user,client-id=x", None, 100, {}, "default-quota"),
    ("user,client-id=x", None, 100, {"user=kafka": 9, "user=registry,client-id=x": 9}, ""),
    ("client-id", None, 100, {}, "default-quota"),
    ("client-id", None, 100, {"user": 50}, ""),
    ("client-id=x", None, 100, {}, ""),
    ("user=alice,client-id", None, 100, {}, ""),
    ("user=kafka", None, 100, {}, ""),
    ("user=User:alice", None, 100, {}, "user-prefix"),
    ("user=User:alice", 100, None, {}, ""),
    ("user=User:alice,client-id=x", 100, 99, {}, "user-prefix"),
    ("user=Users", None, 100, {}, ""),
    ("user=alice", 1000, 100, {}, ""),
    ("user=alice", 1000, 99, {}, "lower-quota"),
    ("user=alice", 1000, 0, {}, "lower-quota"),
    ("user=alice", 0, 0.5, {}, ""),
    ("user=alice", None, 1, {}, ""),
    ("user=alice", None, 1, {"user": 1000}, ""),
    ("user=alice", 1000, None, {"user": 1}, "lower-quota"),
    ("user=alice", 1000, None, {}, ""),
    ("user=alice", "1.0E3", "9.9E1", {}, "lower-quota"),
    ("user=alice", "oops", "1", {}, ""),
    ("user=alice", None, 1, {"user=alice,client-id": 1000}, ""),
    ("client-id=x", 1000, 1, {}, "lower-quota"),
]


@pytest.mark.parametrize(("entity", "before", "after", "others", "expected"), QUOTAS)
def test_quotas(
    entity: str, before: float | str | None, after: float | str | None, others: dict[str, float], expected: str
) -> None:
    found = risks(
        entity.replace("User:", "User~3A"),
        {} if before is None else {RATE: str(before)},
        {} if after is None else {RATE: str(after)},
        others={name: {RATE: str(value)} for name, value in others.items()},
    )
    assert " ".join(kind for kind, _, _ in found) == expected
    assert all(key == RATE for _, key, _ in found)


def test_the_limit_of_connections_of_all_addresses_concerns_brokers() -> None:
    rate = "connection_creation_rate"
    assert [kind for kind, _, _ in risks("ip", {}, {rate: "5"})] == ["default-quota"]
    assert risks("ip", {rate: "5"}, {rate: "6"}) == []
    assert risks("ip=10.0.0.1", {}, {rate: "5"}) == []


def test_only_principals_that_begin_to_be_limited_are_named() -> None:
    [(_, _, text)] = risks("user", {}, {RATE: "5"}, others={"user=kafka": {RATE: "5"}})
    assert "begins to limit User:registry. " in text
    assert risks("user", {}, {RATE: "5"}, options=RiskOptions()) == []


@given(
    st.dictionaries(st.sampled_from(["retention.ms", "retention.bytes"]), st.integers(-1, 10**12).map(str)),
    st.dictionaries(st.sampled_from(["retention.ms", "retention.bytes"]), st.integers(-1, 10**12).map(str)),
)
def test_of_a_change_and_its_reverse_each_limit_is_smaller_in_one_at_most(
    one: dict[str, str], other: dict[str, str]
) -> None:
    there = {text.partition(" of ")[0] for _, _, text in risks("topic=orders", one, other, static={})}
    back = {text.partition(" of ")[0] for _, _, text in risks("topic=orders", other, one, static={})}
    assert not there & back
