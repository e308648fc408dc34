"""Effective configs of a broker, and their sources."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from confplane.domain.broker_keys import (
    ListenerKey,
    definition_of,
    is_password,
    is_read_only,
    is_sensitive,
    listener_key,
    synonyms_of,
)
from confplane.domain.broker_levels import (
    ConfigLevels,
    ConfigSource,
    DynamicLevel,
    describe_broker,
    describe_default,
    effective_broker,
    read_level,
)
from confplane.domain.definitions import ConfigType
from tests.support.catalogs import ZOOKEEPER

MS, MINUTES, HOURS = "log.retention.ms", "log.retention.minutes", "log.retention.hours"
OWN, SHARED, FILE, DEFAULT = (
    ConfigSource.DYNAMIC_BROKER_CONFIG,
    ConfigSource.DYNAMIC_DEFAULT_BROKER_CONFIG,
    ConfigSource.STATIC_BROKER_CONFIG,
    ConfigSource.DEFAULT_CONFIG,
)


def short(name: str, levels: ConfigLevels) -> tuple[str | None, int, list[tuple[str, int]]]:
    found = effective_broker(name, levels)
    return found.value, found.source.number, [(synonym.name, synonym.source.number) for synonym in found.synonyms]


def test_source_numbers() -> None:
    assert [(source.name, source.number) for source in ConfigSource] == [
        ("DYNAMIC_TOPIC_CONFIG", 1), ("DYNAMIC_BROKER_CONFIG", 2), ("DYNAMIC_DEFAULT_BROKER_CONFIG", 3),
        ("STATIC_BROKER_CONFIG", 4), ("DEFAULT_CONFIG", 5), ("DYNAMIC_CLIENT_METRICS_CONFIG", 7),
        ("DYNAMIC_GROUP_CONFIG", 8),
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("name", "levels", "expected"),
    [
        (HOURS, ConfigLevels(ZOOKEEPER, static={HOURS: "2", MS: "5"}), ("2", 4, [(HOURS, 4), (HOURS, 5)])),
        (MS, ConfigLevels(ZOOKEEPER, static={HOURS: "2", MS: "5"}), ("5", 4, [(MS, 4), (HOURS, 4), (HOURS, 5)])),
        (MS, ConfigLevels(ZOOKEEPER, static={HOURS: "2"}), (None, 5, [])),
        (MS, ConfigLevels(ZOOKEEPER, static={HOURS: "2"}, default={MS: "1"}), ("1", 3, [(MS, 3), (HOURS, 4), (HOURS, 5)])),
        # A dynamic value hides what the file says under another name; the list goes on telling of both.
        (HOURS, ConfigLevels(ZOOKEEPER, static={HOURS: "2"}, default={MS: "1"}), ("168", 4, [(HOURS, 4), (HOURS, 5)])),
        (
            "num.io.threads",
            ConfigLevels(ZOOKEEPER, static={"num.io.threads": "4"}, default={"num.io.threads": "5"}, broker={"num.io.threads": " 6"}),
            ("6", 2, [("num.io.threads", 2), ("num.io.threads", 3), ("num.io.threads", 4), ("num.io.threads", 5)]),
        ),
        ("num.io.threads", ConfigLevels(ZOOKEEPER, static={}), ("8", 5, [("num.io.threads", 5)])),
        ("ssl.provider", ConfigLevels(ZOOKEEPER, static={}), (None, 5, [])),
        (
            "log.flush.interval.ms",
            ConfigLevels(ZOOKEEPER, static={"log.flush.scheduler.interval.ms": "9"}, broker={"log.flush.interval.ms": "7"}),
            ("7", 2, [("log.flush.interval.ms", 2), ("log.flush.scheduler.interval.ms", 4),
                      ("log.flush.scheduler.interval.ms", 5)]),
        ),
        ("my.plugin", ConfigLevels(ZOOKEEPER, static={}, broker={"my.plugin": "x"}), (None, 2, [("my.plugin", 2)])),
    ],
)  # fmt: skip
def test_effective(name: str, levels: ConfigLevels, expected: tuple[str | None, int, list[tuple[str, int]]]) -> None:
    assert short(name, levels) == expected


def test_a_listener_s_own_value() -> None:
    name, base = "listener.name.external.ssl.keystore.type", "ssl.keystore.type"
    levels = ConfigLevels(ZOOKEEPER, static={name: "PEM", base: "JKS"}, broker={name: "PKCS12"})
    assert short(name, levels) == ("PKCS12", 2, [(name, 2), (name, 4), (base, 4), (base, 5)])
    found = effective_broker(name, levels)
    assert (found.read_only, found.sensitive, found.type) == (True, False, ConfigType.STRING)
    # The base is not hidden by it.
    assert levels.merged()[base] == "JKS"


def test_secrets_are_never_there() -> None:
    levels = ConfigLevels(
        ZOOKEEPER,
        static={"ssl.key.password": "planted-1"},
        broker={"listener.name.x.ssl.key.password": "planted-2", "custom": "planted-3"},
    )
    described = describe_broker(levels)
    assert "planted" not in repr(described)
    by_name = {found.name: found for found in described}
    secret = by_name["listener.name.x.ssl.key.password"]
    assert (secret.sensitive, secret.value, secret.type) == (True, None, ConfigType.PASSWORD)
    assert [synonym.value for synonym in secret.synonyms] == [None, None]
    custom = by_name["custom"]
    assert (custom.sensitive, custom.value, custom.type, custom.read_only) == (True, None, None, True)
    assert "planted" not in repr(describe_default(ZOOKEEPER, {"custom": "planted-4"}))


def test_what_a_describe_lists() -> None:
    levels = ConfigLevels(ZOOKEEPER, static={"log.initial.task.delay.ms": "1"}, default={"x": "y"})
    described = describe_broker(levels)
    names = [found.name for found in described]
    documented = {name for name, found in ZOOKEEPER.broker.items() if not found.internal and not found.dynamic_only}
    assert names == sorted(documented | {"log.initial.task.delay.ms", "x"})
    assert "leader.replication.throttled.rate" not in names
    wanted = {"x", "num.io.threads", "leader.replication.throttled.rate", "none"}
    assert describe_broker(levels, wanted) == [found for found in described if found.name in wanted]


def test_the_default_of_all_brokers() -> None:
    (cleaner, retention) = describe_default(ZOOKEEPER, {MS: "1", "log.cleaner.threads": "02"})
    assert (cleaner.name, cleaner.value, cleaner.source) == ("log.cleaner.threads", "02", SHARED)  # as it was given
    assert (retention.name, retention.value, retention.synonyms) == (MS, "1", ((MS, "1", SHARED),))


def test_only_what_a_broker_parses_has_the_form_of_its_type() -> None:
    prefixed, rate = "listener.name.x.num.network.threads", "leader.replication.throttled.rate"
    shown = {
        found.name: found
        for found in describe_broker(
            ConfigLevels(ZOOKEEPER, broker={"num.io.threads": " 08", prefixed: " 08", rate: "08"})
        )
    }
    assert shown["num.io.threads"].value == "8"
    assert [synonym.value for synonym in shown["num.io.threads"].synonyms] == [" 08", "8"]
    assert shown[prefixed].value == " 08"
    assert (shown[rate].value, shown[rate].synonyms) == ("08", ((rate, "08", ConfigSource.DYNAMIC_BROKER_CONFIG),))


def test_what_an_unknown_file_could_say() -> None:
    assert effective_broker("num.io.threads", ConfigLevels(ZOOKEEPER)).assumed
    assert not effective_broker("num.io.threads", ConfigLevels(ZOOKEEPER, static={})).assumed
    assert not effective_broker("num.io.threads", ConfigLevels(ZOOKEEPER, default={"num.io.threads": "9"})).assumed
    # A dynamic value hides whatever the file says under its other names.
    assert not effective_broker(HOURS, ConfigLevels(ZOOKEEPER, default={MS: "9"})).assumed
    assert effective_broker("log.roll.hours", ConfigLevels(ZOOKEEPER, default={MS: "9"})).assumed


def test_printed_as_the_type_is() -> None:
    levels = ConfigLevels(
        ZOOKEEPER, static={}, broker={"log.preallocate": "TRUE", "log.cleanup.policy": "compact , delete"}
    )
    assert effective_broker("log.preallocate", levels).value == "true"
    assert effective_broker("log.cleanup.policy", levels).value == "compact,delete"
    assert effective_broker("num.io.threads", ConfigLevels(ZOOKEEPER, static={"num.io.threads": "x"})).value == "x"


# ---------------------------------------------------------------- reading a level


def test_entries_that_brokers_leave_out() -> None:
    stored = {
        "num.io.threads": "planted",
        "zookeeper.connect": "planted",
        "ssl.keystore.password": "planted",
        "listeners": "PLAINTEXT://:9092",
        "listener.name.x.ssl.client.auth": "none",
        "listener.name.x.max.connections": "5",
        "log.retention.ms": "5",
        "custom": "anything",
        "leader.replication.throttled.rate": "1",
    }
    kept, warnings = read_level(ZOOKEEPER, stored, DynamicLevel.DEFAULT)
    assert kept.keys() == {
        "listener.name.x.max.connections", "log.retention.ms", "custom", "leader.replication.throttled.rate",
    }  # fmt: skip
    assert len(warnings) == 5
    assert "planted" not in " ".join(warnings)
    kept, warnings = read_level(ZOOKEEPER, stored, DynamicLevel.BROKER)
    assert stored.keys() - kept.keys() == {"num.io.threads", "zookeeper.connect", "ssl.keystore.password"}
    assert "Brokers leave out the stored zookeeper.connect: it is not dynamic" in warnings


@given(st.dictionaries(st.sampled_from([*ZOOKEEPER.broker, "listener.name.x.ssl.protocol", "x"]), st.text()))
def test_what_is_kept_is_kept_again(stored: dict[str, str]) -> None:
    for level in DynamicLevel:
        kept, _ = read_level(ZOOKEEPER, stored, level)
        assert read_level(ZOOKEEPER, kept, level) == (kept, [])


@given(
    st.dictionaries(st.sampled_from([MS, MINUTES, HOURS]), st.integers(1, 9).map(str)),
    st.dictionaries(st.just(MS), st.integers(1, 9).map(str)),
    st.dictionaries(st.just(MS), st.integers(1, 9).map(str)),
)
def test_the_first_synonym_is_the_effective_one(
    static: dict[str, str], default: dict[str, str], broker: dict[str, str]
) -> None:
    levels = ConfigLevels(ZOOKEEPER, static, default, broker)
    found = effective_broker(MS, levels)
    assert found.value == (found.synonyms[0].value if found.synonyms else None)
    numbers = [synonym.source.number for synonym in found.synonyms]
    assert numbers == sorted(numbers)


# ---------------------------------------------------------------- names


@pytest.mark.parametrize(
    ("name", "parts"),
    [
        ("num.io.threads", None),
        ("listener.name.external", None),
        ("listener.name.external.ssl.client.auth", ListenerKey("external", None, "ssl.client.auth")),
        ("listener.name.x.scram-sha-256.sasl.jaas.config", ListenerKey("x", "scram-sha-256", "sasl.jaas.config")),
        ("listener.name.x.sasl.jaas.config", ListenerKey("x", None, "sasl.jaas.config")),
        ("listener.name.x.plain.sasl.login.class", ListenerKey("x", "plain", "sasl.login.class")),
        ("listener.name..custom", ListenerKey("", None, "custom")),
    ],
)
def test_names_apart(name: str, parts: ListenerKey | None) -> None:
    assert listener_key(ZOOKEEPER, name) == parts


def test_names() -> None:
    assert synonyms_of(ZOOKEEPER, "log.roll.hours") == ("log.roll.ms", "log.roll.hours")
    assert synonyms_of(ZOOKEEPER, "log.flush.scheduler.interval.ms") == ("log.flush.scheduler.interval.ms",)
    assert synonyms_of(ZOOKEEPER, "listener.name.x.y", listener_bases=False) == ("listener.name.x.y",)
    assert definition_of(ZOOKEEPER, "listener.name.x.gssapi.sasl.jaas.config") is ZOOKEEPER.broker["sasl.jaas.config"]
    assert definition_of(ZOOKEEPER, "listener.name.x.custom") is None
    assert is_password("any.sasl.jaas.config")
    assert is_password("listener.name.x.ssl.keystore.key")
    assert not is_password("password.encoder.secret")
    assert is_sensitive(ZOOKEEPER, "password.encoder.secret")
    assert is_sensitive(ZOOKEEPER, "my.ssl.key.password")
    assert not is_sensitive(ZOOKEEPER, "listener.name.x.ssl.protocol")


@pytest.mark.parametrize(
    ("name", "read_only"),
    [
        ("num.io.threads", False),
        ("ssl.keystore.location", False),
        ("listener.name.x.ssl.keystore.location", True),
        ("leader.replication.throttled.rate", True),
        ("custom", True),
        ("zookeeper.connect", True),
    ],
)
def test_read_only_as_kafka_says_it(name: str, read_only: bool) -> None:  # noqa: FBT001 - a column
    assert is_read_only(ZOOKEEPER, name) is read_only
