"""Broker configs beyond single values: scopes of prefixes, what is stored already, the whole of one broker."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from confplane.domain.broker_keys import is_reloaded_file
from confplane.domain.broker_levels import ConfigLevels, DynamicLevel
from confplane.domain.brokers import check_level, validate
from confplane.domain.definitions import catalog_of
from confplane.domain.errors import ConfplaneError, InvalidConfigError, InvalidRequestError
from tests.support.catalogs import ZOOKEEPER

LONG_DAY = "86400000"


def broker(after: dict[str, str], before: dict[str, str] | None = None, **levels: dict[str, str] | None) -> list[str]:
    return validate(after, level=DynamicLevel.BROKER, levels=ConfigLevels(ZOOKEEPER, broker=before or {}, **levels))  # type: ignore[arg-type]  # static and default alone


def default(after: dict[str, str], before: dict[str, str] | None = None, **levels: dict[str, str] | None) -> list[str]:
    return validate(after, level=DynamicLevel.DEFAULT, levels=ConfigLevels(ZOOKEEPER, default=before or {}, **levels))  # type: ignore[arg-type]  # static and broker alone


# ---------------------------------------------------------------- names and scopes


@pytest.mark.parametrize("base", ["max.connections", "max.connection.creation.rate", "num.network.threads"])
def test_the_three_prefixed_keys_of_all_brokers(base: str) -> None:
    name = f"listener.name.external.{base}"
    default({name: "3"}, static={})
    broker({name: "3"}, static={})
    with pytest.raises(InvalidRequestError, match=f"{base}"):
        broker({name: "many"}, static={})


@pytest.mark.parametrize(
    "name",
    ["listener.name.external.ssl.keystore.type", "listener.name.x.plain.sasl.jaas.config", "listener.name.x.anything",
     "listener.name.x.num.io.threads", "listener.name..max.connections.per.ip"],
)  # fmt: skip
def test_other_prefixed_keys_are_a_broker_s_own(name: str) -> None:
    with pytest.raises(InvalidRequestError, match="at default cluster level"):
        default({name: "x"})


def test_all_offenders_are_named() -> None:
    with pytest.raises(InvalidRequestError) as caught:
        check_level(ZOOKEEPER, {"zookeeper.connect": "x", "broker.id": "1", "custom": "y"}, level=DynamicLevel.BROKER)
    assert caught.value.detail == "Cannot update these configs dynamically: Set(broker.id, zookeeper.connect)"


CUSTOM = " It is stored as a custom config, and its value is never shown"


def test_custom_keys_are_taken_as_they_are_with_a_warning() -> None:
    none = "No broker config of Kafka 3.9 has the name com.example.plugin."
    assert broker({"com.example.plugin": "\u00fc any=;"}, static={}) == [none + CUSTOM]
    assert default({"com.example.plugin": "x"}, static={}) == [none + CUSTOM]


@pytest.mark.parametrize(
    ("name", "end"),
    [
        ("num.io.thread", "; did you mean num.io.threads?"),
        ("log.retention.m", "; did you mean log.retention.ms?"),
        ("listener.name.x.ssl.keystore.locaton", "; did you mean ssl.keystore.location?"),
        ("retention.ms", "; it is a topic config, and that of brokers is log.retention.ms."),
        ("cleanup.policy", "; it is a topic config, and that of brokers is log.cleanup.policy."),
        ("producer_byte_rate", "; it is a quota."),
        ("linger.ms", "; it is a client config."),
        ("producer_byte_rat", "; did you mean the quota producer_byte_rate?"),
    ],
)
def test_a_key_that_is_rarely_meant_is_named_with_the_one_that_is(name: str, end: str) -> None:
    assert broker({name: "1"}, static={}) == [f"No broker config of Kafka 3.9 has the name {name}{end}{CUSTOM}"]


def test_a_stored_custom_key_is_no_new_warning() -> None:
    assert check_level(ZOOKEEPER, {"my.key": "1"}, level=DynamicLevel.BROKER, stored={"my.key": "1"}) == []


def test_custom_secrets_are_a_broker_s_own() -> None:
    broker({"my.ssl.key.password": "planted"}, static={})
    with pytest.raises(InvalidConfigError) as caught:
        default({"my.ssl.key.password": "planted"})
    assert "planted" not in caught.value.detail
    assert caught.value.code == 40


def test_prefixed_values_are_checked_as_their_base() -> None:
    with pytest.raises(InvalidRequestError, match=r"listener\.name\.x\.ssl\.client\.auth: .* must be one of"):
        broker({"listener.name.x.ssl.client.auth": "maybe"})
    # Not dynamic by itself, and read by the listener all the same.
    with pytest.raises(InvalidRequestError, match="must be a whole number"):
        broker({"listener.name.x.plain.connections.max.reauth.ms": "often"})
    broker({"listener.name.x.plain.connections.max.reauth.ms": "1000"})


# ---------------------------------------------------------------- what is stored already


def test_existing_errors_are_not_attributed_to_this_change() -> None:
    junk = {"broker.id": "7", "num.io.threads": "lots", "ssl.keystore.location": "/x", "sasl.jaas.config": "planted"}
    warnings = broker({**junk, "log.preallocate": "true"}, junk, static={})
    assert warnings == [
        "Brokers leave out the stored broker.id: it is not dynamic",
        "Brokers leave out the stored num.io.threads: num.io.threads must be a whole number (INT)",
        "Brokers leave out the stored ssl.keystore.location: it is dynamic only with a listener's prefix",
    ]
    with pytest.raises(InvalidRequestError, match=r"Set\(broker\.id\)"):
        broker({**junk, "broker.id": "8"}, junk, static={})
    assert default({"ssl.client.auth": "none"}, {"ssl.client.auth": "none"}, static={}) == [
        "Brokers leave out the stored ssl.client.auth: it can't be a default of all brokers"
    ]


def test_references_to_providers() -> None:
    config = {"config.providers": "file", "config.providers.file.class": "x", "num.io.threads": "${file:/a:b}"}
    assert broker(config, static={}) == [
        "num.io.threads refers to a config provider: brokers resolve and check it, not this service"
    ]
    with pytest.raises(InvalidRequestError, match="must be a whole number"):
        broker({"num.io.threads": "${file:/a:b}"}, static={})


# ---------------------------------------------------------------- remarks


@pytest.mark.parametrize(
    ("name", "value", "remark"),
    [
        ("sasl.jaas.config", "a.B required;", "is not read by any listener"),
        ("listener.name.x.sasl.jaas.config", "a.B required;", "the mechanism is missing"),
        ("listener.name.EXTERNAL.max.connections", "9", "look for their names in lower case"),
        ("listener.name.x.num.io.threads", "9", "has no form for one listener"),
        ("listener.name.x.ssl.keystore.location", "/k", "give new files new names"),
        ("listener.name.x.ssl.keystore.location", "/k", "but then does not start again"),
        (
            "metric.reporters",
            "com.example.Reporter",
            "does not find one of these classes when it starts does not start",
        ),
        ("principal.builder.class", "com.example.Builder", "does not find the class leaves this out"),
    ],
)
def test_accepted_with_a_remark(name: str, value: str, remark: str) -> None:
    (warning,) = check_level(ZOOKEEPER, {name: value}, level=DynamicLevel.BROKER)
    assert remark in warning
    assert value == "9" or value not in warning


@pytest.mark.parametrize("key", ["ssl.keystore.location", "ssl.truststore.type"])
def test_files_of_kafka_4_are_loaded_again_if_their_paths_are_set_again(key: str) -> None:
    (warning,) = check_level(catalog_of("4.4"), {f"listener.name.x.{key}": "none"}, level=DynamicLevel.BROKER)
    assert warning.endswith("set its location again after a file was replaced under its old name")


@pytest.mark.parametrize("release", ["3.9", "4.4"])
def test_reloaded_files_are_dynamic_configs_of_one_listener(release: str) -> None:
    catalog = catalog_of(release)
    reloaded = {key for key in catalog.broker if is_reloaded_file(catalog, f"listener.name.x.{key}")}
    assert reloaded == {"ssl.keystore.location", "ssl.truststore.location"}
    assert all(catalog.broker[key].prefix_only for key in reloaded)
    assert not any(is_reloaded_file(catalog, key) for key in reloaded)


# ---------------------------------------------------------------- sasl.jaas.config


def test_jaas() -> None:
    good = 'org.apache.kafka.common.security.scram.ScramLoginModule required password="planted";'
    assert broker({"listener.name.x.scram-sha-256.sasl.jaas.config": good}, static={}) == []
    with pytest.raises(
        InvalidRequestError, match=r"the mechanism before sasl\.jaas\.config must be written in lower case"
    ):
        broker({"listener.name.x.SCRAM-SHA-256.sasl.jaas.config": good}, static={})
    for bad in (good.rstrip(";"), good + good, good.replace("required", "planted"), ""):
        with pytest.raises(InvalidRequestError) as caught:
            broker({"listener.name.x.scram-sha-256.sasl.jaas.config": bad}, static={})
        assert "planted" not in caught.value.detail


@given(st.sampled_from(sorted(name for name, found in ZOOKEEPER.broker.items() if found.sensitive)), st.text())
def test_secrets_are_in_no_error(key: str, text: str) -> None:
    value = f"{text}\u2603planted\u2603"  # in no word of any message
    for name in (key, f"listener.name.x.{key}", f"listener.name.x.plain.{key}", f"my.{key}"):
        for level in DynamicLevel:
            try:
                said = " ".join(validate({name: value}, level=level, levels=ConfigLevels(ZOOKEEPER)))
            except ConfplaneError as error:
                said = error.detail
            assert "planted" not in said


# ---------------------------------------------------------------- threads


@pytest.mark.parametrize(("old", "new"), [(8, 4), (8, 16), (1, 2), (3, 1), (3, 6), (5, 2)])
@pytest.mark.parametrize("key", ["num.io.threads", "background.threads", "num.replica.fetchers", "log.cleaner.threads",
                                 "num.recovery.threads.per.data.dir", "num.network.threads"])  # fmt: skip
def test_pools_within_reach(key: str, old: int, new: int) -> None:
    assert broker({key: str(new)}, static={key: str(old)}) == []
    assert broker({key: str(new)}, {key: str(old)}) == []
    assert default({key: str(new)}, {key: str(old)}) == []
    assert broker({}, {key: str(new)}, static={key: str(new)}) == []


@pytest.mark.parametrize(("old", "new"), [(8, 3), (8, 17), (1, 3), (1, 8), (6, 2)])
@pytest.mark.parametrize("key", ["num.io.threads", "log.cleaner.threads", "num.network.threads"])
def test_pools_out_of_reach(key: str, old: int, new: int) -> None:
    for level, levels, after in (
        (DynamicLevel.BROKER, ConfigLevels(ZOOKEEPER, static={key: str(old)}), {key: str(new)}),
        (DynamicLevel.BROKER, ConfigLevels(ZOOKEEPER, default={key: str(old)}), {key: str(new)}),
        (DynamicLevel.DEFAULT, ConfigLevels(ZOOKEEPER, default={key: str(old)}), {key: str(new)}),
        (DynamicLevel.DEFAULT, ConfigLevels(ZOOKEEPER, static={key: str(new)}, default={key: str(old)}), {}),
    ):
        with pytest.raises(InvalidRequestError, match=f"half and double of the {old} that the broker runs with"):
            validate(after, level=level, levels=levels)


def test_a_pool_whose_size_is_not_known() -> None:
    (warning,) = broker({"num.io.threads": "100"})
    assert "not known here" in warning
    assert len(broker({}, {"num.io.threads": "100"})) == 1
    # Where the broker's own value hides the default of all, nothing changes on it.
    assert default({"num.io.threads": "100"}, broker={"num.io.threads": "8"}) == []
    # What is the same before and after is no change either.
    assert broker({"num.io.threads": "100", "log.preallocate": "true"}, {"num.io.threads": "100"}) == []


def test_network_threads_of_one_listener() -> None:
    name = "listener.name.external.num.network.threads"
    assert broker({name: "6"}, static={}) == []
    with pytest.raises(InvalidRequestError, match="can be between 1 and 6 next"):
        broker({name: "7"}, static={})
    with pytest.raises(InvalidRequestError, match=r"external\.num\.network\.threads can be between 6 and 24"):
        broker({}, {name: "12"}, static={})
    assert broker({"num.network.threads": "6", name: "4"}, {name: "4"}, static={}) == []


def test_a_cleaner_that_does_not_run() -> None:
    assert broker({"log.cleaner.threads": "9"}, static={"log.cleaner.enable": "false"}) == []
    with pytest.raises(InvalidRequestError, match="must be at least 1"):
        broker({"log.cleaner.threads": "0"})


# ---------------------------------------------------------------- the whole


@pytest.mark.parametrize(
    ("after", "static", "error"),
    [
        ({"log.retention.ms": "0"}, {}, "log.retention.ms must be at least 1"),
        ({"log.preallocate": "true"}, {"log.retention.minutes": "0"}, "log.retention.ms must be at least 1"),
        ({"log.cleaner.threads": "2"}, {"log.cleaner.dedupe.buffer.size": "2097152"}, "for each of the 2"),
        ({"log.local.retention.ms": LONG_DAY}, {"log.retention.hours": "23"}, "which is 82800000"),
        ({"log.local.retention.ms": LONG_DAY}, {"log.retention.minutes": "1"}, "which is 60000"),
        ({"log.local.retention.ms": "-1"}, {}, "must not be -1 while log.retention.ms is limited"),
        ({"log.retention.ms": "5"}, {"log.local.retention.ms": "6"}, "must be at most log.retention.ms, which is 5"),
        ({"log.local.retention.bytes": "6", "log.retention.bytes": "5"}, {}, "at most log.retention.bytes"),
        ({"log.local.retention.bytes": "-1", "log.retention.bytes": "5"}, {}, "must not be -1"),
        ({"max.connections.per.ip": "0"}, {}, "can be 0 only where"),
        ({"max.connections.per.ip.overrides": "host"}, {}, "must be a list of host:count"),
        ({"max.connections.per.ip.overrides": "host:x"}, {}, "must be a list of host:count"),
    ],
)
def test_contradictions(after: dict[str, str], static: dict[str, str], error: str) -> None:
    for change in (broker, default):
        with pytest.raises(InvalidRequestError) as caught:
            change(after, static=static)
        assert error in caught.value.detail
        assert caught.value.detail.startswith("Invalid dynamic configuration: ")


@pytest.mark.parametrize(
    ("after", "static"),
    [
        ({"log.retention.ms": "-5"}, {}),
        ({"log.retention.ms": "60000"}, {"log.retention.minutes": "0"}),
        ({"log.cleaner.threads": "2"}, {}),
        ({"log.local.retention.ms": "-1", "log.retention.ms": "-1"}, {}),
        ({"log.local.retention.ms": "-2"}, {"log.retention.ms": "1"}),
        ({"log.local.retention.ms": LONG_DAY}, {"log.retention.hours": "24"}),
        ({"log.local.retention.bytes": "-1"}, {}),
        (
            {
                "max.connections.per.ip": "0",
                "max.connections.per.ip.overrides": "::1:5",
            },
            {},
        ),
    ],
)
def test_what_fits_together(after: dict[str, str], static: dict[str, str]) -> None:
    assert broker(after, static=static) == []
    assert default(after, static=static) == []


def test_contradictions_that_may_not_be_any() -> None:
    """The file could hold the other half, so this can only be a warning."""
    (warning,) = broker({"log.local.retention.ms": "604800001"})
    assert "must be at most log.retention.ms, which is 604800000, if the broker's own file" in warning
    (warning,) = broker({"max.connections.per.ip": "0"})
    assert "can be 0 only" in warning
    with pytest.raises(InvalidRequestError, match="must be at most"):
        broker({"log.local.retention.ms": "6", "log.retention.ms": "5"})


def test_a_time_between_flushes_that_no_topic_can_have() -> None:
    (warning,) = broker({"log.flush.interval.ms": "-2"}, static={})
    assert "neither describe nor alter a topic" in warning
    assert broker({"log.flush.interval.ms": "0"}, static={}) == []


def test_nothing_changed_nothing_to_say() -> None:
    broken = {"log.retention.ms": "0", "num.io.threads": "0"}
    assert broker(broken, broken, static={}) == [
        "Brokers leave out the stored num.io.threads: num.io.threads must be at least 1"
    ]


# ---------------------------------------------------------------- listeners

TWO = {
    "listeners": "INTERNAL://:9092,EXTERNAL://:9093",
    "listener.security.protocol.map": "INTERNAL:SASL_PLAINTEXT,EXTERNAL:SSL",
    "inter.broker.listener.name": "INTERNAL",
    "sasl.mechanism.inter.broker.protocol": "PLAIN",
    "sasl.enabled.mechanisms": "PLAIN",
}


@pytest.mark.parametrize(
    ("after", "error"),
    [
        ({"listeners": "INTERNAL://:9092,OTHER://:9094"}, "has no protocol for OTHER"),
        ({"listeners": "EXTERNAL://:9093"}, "INTERNAL is missing, which brokers use among themselves"),
        ({"listeners": "INTERNAL://:9092,EXTERNAL://:9092"}, "must give each listener a port of its own"),
        ({"listeners": "INTERNAL://:9092,internal://:9093"}, "must name each listener once"),
        ({"listeners": "INTERNAL://:70000"}, "must be a list of NAME://host:port"),
        ({"listeners": ""}, "must name at least one listener"),
        ({"advertised.listeners": "INTERNAL://a:1,MORE://b:2"}, "advertised.listeners: listeners has no MORE"),
        ({"advertised.listeners": "EXTERNAL://a:1"}, "INTERNAL is missing"),
        ({"listener.security.protocol.map": "INTERNAL:PLAINTEXT,EXTERNAL:SSL"}, "protocol of the listener INTERNAL"),
        ({"listener.security.protocol.map": "INTERNAL:SASL_PLAINTEXT"}, "has no protocol for EXTERNAL"),
        ({"listener.security.protocol.map": "A:SSL,a:SSL"}, "must name each listener once"),
        (
            {"listener.security.protocol.map": "INTERNAL:SASL_PLAINTEXT,EXTERNAL:SSL,:SSL"},
            "must be a list of NAME:PROTOCOL",
        ),
        (
            {"ssl.client.auth": "required", "listener.name.external.ssl.protocol": "TLSv1.2"},
            "listener.name.external.ssl.protocol is other than in the broker's own file",
        ),
        ({"sasl.enabled.mechanisms": "GSSAPI"}, "must be one of the sasl.enabled.mechanisms of the listener INTERNAL"),
        ({"listener.name.internal.sasl.enabled.mechanisms": "GSSAPI"}, "of the listener INTERNAL"),
        ({"sasl.mechanism.inter.broker.protocol": "GSSAPI"}, "must be one of the sasl.enabled.mechanisms"),
    ],
)
def test_listeners_that_do_not_fit(after: dict[str, str], error: str) -> None:
    with pytest.raises(InvalidRequestError) as caught:
        validate(
            after,
            level=DynamicLevel.BROKER,
            levels=ConfigLevels(ZOOKEEPER, static=TWO),
            pointers=dict.fromkeys(after, "/here"),
        )
    assert error in caught.value.detail
    assert caught.value.pointer == "/here"


@pytest.mark.parametrize(
    "after",
    [
        {"listeners": "INTERNAL://:9092"},
        {"listeners": "INTERNAL://127.0.0.1:9092,EXTERNAL://[::1]:9092"},
        {"advertised.listeners": "INTERNAL://a:1,EXTERNAL://b:1"},
        {"listeners": "INTERNAL://:9092,NEW://:9094",
         "listener.security.protocol.map": "INTERNAL:SASL_PLAINTEXT,EXTERNAL:SSL,NEW:SASL_SSL",
         "listener.name.new.ssl.protocol": "TLSv1.3"},
        {"ssl.client.auth": "required", "listener.name.external.max.connections": "7"},
        {"listener.name.external.ssl.protocol": "TLSv1.2"},
        {"sasl.enabled.mechanisms": "GSSAPI,PLAIN"},
        {"listener.name.internal.sasl.enabled.mechanisms": "SCRAM-SHA-256,PLAIN"},
    ],
)  # fmt: skip
def test_listeners_that_fit(after: dict[str, str]) -> None:
    assert broker(after, static=TWO) == []


def test_what_a_listener_takes_from_the_file_alone_holds_up_what_all_share() -> None:
    """A broker compares with its file, so what was stored long before counts as well."""
    own = {"listener.name.external.ssl.protocol": "TLSv1.2"}
    shared = {"ssl.cipher.suites": "TLS_AES_128_GCM_SHA256"}
    assert broker(own | {"log.retention.ms": "1000"}, own, static=TWO) == []
    with pytest.raises(InvalidRequestError, match="is other than in the broker's own file") as caught:
        validate(
            own | shared,
            level=DynamicLevel.BROKER,
            levels=ConfigLevels(ZOOKEEPER, static=TWO, broker=own),
            pointers=dict.fromkeys(shared, "/shared"),
        )
    assert caught.value.pointer == "/shared"
    with pytest.raises(InvalidRequestError, match="is other than in the broker's own file"):
        broker(own, own | shared, static=TWO)
    with pytest.raises(InvalidRequestError, match="is other than in the broker's own file"):
        broker(own | shared, own, static=TWO | {"listener.name.external.ssl.protocol": "TLSv1.3"})
    assert broker(own | shared, own, static=TWO | own) == []
    assert broker(shared, own, static=TWO) == []
    # Nor is it known what a file that is not given has for the listener.
    listeners = {key: TWO[key] for key in ("listeners", "listener.security.protocol.map")}
    assert broker(listeners | own | shared, listeners | own) == []


def test_listeners_with_an_unknown_file() -> None:
    (warning,) = broker({"advertised.listeners": "ANY://a:1"})
    assert "can't be checked against each other" in warning
    (warning,) = broker({"sasl.enabled.mechanisms": "PLAIN"})
    assert "whether they do is in their own file" in warning
    (warning,) = broker({"listeners": "CUSTOM://:9092"})
    assert "has no protocol for CUSTOM, if the broker's own file leaves Kafka's defaults" in warning
    assert broker({"ssl.client.auth": "none"}) == []
