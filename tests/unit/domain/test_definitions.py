from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from confplane.domain.config_rules import ConfigValue, NonEmpty, OneOf, Range
from confplane.domain.definitions import ConfigDef, ConfigType, ConfigValueError, parse
from tests.support.catalogs import ZOOKEEPER

# name, type, default, valid; from the class documentation of ProducerConfig and ConsumerConfig 3.9.
PRODUCER = """
acks STRING all [all, -1, 0, 1]
batch.size INT 16384 [0,...]
buffer.memory LONG 33554432 [0,...]
compression.gzip.level INT -1 [1,...,9] or -1
compression.lz4.level INT 9 [1,...,17]
compression.type STRING none [none, gzip, snappy, lz4, zstd]
compression.zstd.level INT 3 [-131072,...,22]
connections.max.idle.ms LONG 540000 -
delivery.timeout.ms INT 120000 [0,...]
enable.idempotence BOOLEAN true -
linger.ms LONG 0 [0,...]
max.block.ms LONG 60000 [0,...]
max.in.flight.requests.per.connection INT 5 [1,...]
max.request.size INT 1048576 [0,...]
metadata.max.age.ms LONG 300000 [0,...]
metadata.max.idle.ms LONG 300000 [5000,...]
partitioner.ignore.keys BOOLEAN false -
receive.buffer.bytes INT 32768 [-1,...]
reconnect.backoff.max.ms LONG 1000 [0,...]
reconnect.backoff.ms LONG 50 [0,...]
request.timeout.ms INT 30000 [0,...]
retries INT 2147483647 [0,...,2147483647]
retry.backoff.max.ms LONG 1000 [0,...]
retry.backoff.ms LONG 100 [0,...]
security.protocol STRING PLAINTEXT (case insensitive) [PLAINTEXT, SASL_PLAINTEXT, SASL_SSL, SSL]
send.buffer.bytes INT 131072 [-1,...]
transaction.timeout.ms INT 60000 -
transactional.id STRING null non-empty string
"""
CONSUMER = """
allow.auto.create.topics BOOLEAN true -
auto.commit.interval.ms INT 5000 [0,...]
auto.offset.reset STRING latest [latest, earliest, none]
check.crcs BOOLEAN true -
default.api.timeout.ms INT 60000 [0,...]
enable.auto.commit BOOLEAN true -
exclude.internal.topics BOOLEAN true -
fetch.max.bytes INT 52428800 [0,...]
fetch.max.wait.ms INT 500 [0,...]
fetch.min.bytes INT 1 [0,...]
group.id STRING null -
group.instance.id STRING null non-empty string
group.protocol STRING classic (case insensitive) [CLASSIC, CONSUMER]
group.remote.assignor STRING null -
heartbeat.interval.ms INT 3000 -
isolation.level STRING read_uncommitted [read_committed, read_uncommitted]
max.partition.fetch.bytes INT 1048576 [0,...]
max.poll.interval.ms INT 300000 [1,...]
max.poll.records INT 500 [1,...]
metadata.max.age.ms LONG 300000 [0,...]
receive.buffer.bytes INT 65536 [-1,...]
reconnect.backoff.max.ms LONG 1000 [0,...]
reconnect.backoff.ms LONG 50 [0,...]
request.timeout.ms INT 30000 [0,...]
retry.backoff.max.ms LONG 1000 [0,...]
retry.backoff.ms LONG 100 [0,...]
security.protocol STRING PLAINTEXT (case insensitive) [PLAINTEXT, SASL_PLAINTEXT, SASL_SSL, SSL]
send.buffer.bytes INT 131072 [-1,...]
session.timeout.ms INT 45000 -
"""


@pytest.mark.parametrize("row", PRODUCER.strip().splitlines())
def test_producer(row: str) -> None:
    assert described(ZOOKEEPER.producer[row.split(maxsplit=1)[0]]) == row


@pytest.mark.parametrize("row", CONSUMER.strip().splitlines())
def test_consumer(row: str) -> None:
    assert described(ZOOKEEPER.consumer[row.split(maxsplit=1)[0]]) == row


def described(definition: ConfigDef) -> str:
    return f"{definition.name} {definition.type} {definition.default or 'null'} {definition.valid or '-'}"


def test_the_rest_of_the_catalog() -> None:
    assert ZOOKEEPER.producer["client.id"].default == ""
    assert ZOOKEEPER.consumer["client.rack"].default == ""
    assert ZOOKEEPER.producer["key.serializer"].required
    assert ZOOKEEPER.producer["key.serializer"].default is None
    assert ZOOKEEPER.consumer["internal.leave.group.on.close"].internal
    assert len(ZOOKEEPER.producer) > 90
    assert len(ZOOKEEPER.consumer) > 90
    secret = {name for name, known in ZOOKEEPER.producer.items() if known.sensitive}
    assert secret == {
        "sasl.jaas.config",
        "ssl.key.password",
        "ssl.keystore.certificate.chain",
        "ssl.keystore.key",
        "ssl.keystore.password",
        "ssl.truststore.certificates",
        "ssl.truststore.password",
    }
    assert ZOOKEEPER.producer is ZOOKEEPER.producer


def test_every_default_is_valid() -> None:
    for catalog in (ZOOKEEPER.producer, ZOOKEEPER.consumer):
        for definition in catalog.values():
            if definition.default is not None:
                parse(definition, definition.default)


def test_find() -> None:
    assert [known.default for known in ZOOKEEPER.find("receive.buffer.bytes")] == ["32768", "65536"]
    assert [known.default for known in ZOOKEEPER.find("acks")] == ["all"]
    assert ZOOKEEPER.find("nonsense") == ()


def definition(kind: ConfigType, valid: Range | OneOf | NonEmpty | None = None) -> ConfigDef:
    return ConfigDef("some.key", kind, None, required=False, importance="LOW", valid=valid, internal=False)


@pytest.mark.parametrize(
    ("kind", "text", "value"),
    [
        (ConfigType.BOOLEAN, "true", True),
        (ConfigType.BOOLEAN, " FALSE\n", False),
        (ConfigType.INT, " 30000 ", 30000),
        (ConfigType.INT, "-2147483648", -(2**31)),
        (ConfigType.INT, "+7", 7),
        (ConfigType.INT, "0" * 5000 + "7", 7),
        (ConfigType.SHORT, "32767", 32767),
        (ConfigType.LONG, "9223372036854775807", 2**63 - 1),
        (ConfigType.DOUBLE, "1e7", 1e7),
        (ConfigType.LIST, "", []),
        (ConfigType.LIST, " a , b,,c ", ["a", "b", "", "c"]),
        (ConfigType.CLASS, "org.apache.kafka.Outer$Inner", "org.apache.kafka.Outer$Inner"),
        (ConfigType.STRING, " a b ", "a b"),
        (ConfigType.PASSWORD, "secret ", "secret"),
    ],
)
def test_parse(kind: ConfigType, text: str, value: ConfigValue) -> None:
    parsed = parse(definition(kind), text)
    assert parsed == value
    assert type(parsed) is type(value)


@pytest.mark.parametrize(
    ("kind", "text", "rule"),
    [
        (ConfigType.BOOLEAN, "yes", "must be one of true, false"),
        (ConfigType.BOOLEAN, "", "must be one of true, false"),
        (ConfigType.INT, "", "must be a whole number"),
        (ConfigType.INT, "1.0", "must be a whole number"),
        (ConfigType.INT, "1e3", "must be a whole number"),
        (ConfigType.INT, "1_000", "must be a whole number"),
        (ConfigType.INT, "\u0663", "must be a whole number"),
        (ConfigType.INT, "2147483648", "at most 2147483647"),
        (ConfigType.INT, "-2147483649", "at least -2147483648"),
        (ConfigType.INT, "9" * 5000, "at most 2147483647"),
        (ConfigType.SHORT, "32768", "at most 32767"),
        (ConfigType.LONG, "9223372036854775808", "at most 9223372036854775807"),
        (ConfigType.DOUBLE, "inf", "must be a number"),
        (ConfigType.CLASS, "a b", "must be the name of a Java class"),
        (ConfigType.CLASS, "a..b", "must be the name of a Java class"),
        (ConfigType.CLASS, "", "must be the name of a Java class"),
    ],
)
def test_parse_refuses(kind: ConfigType, text: str, rule: str) -> None:
    with pytest.raises(ConfigValueError, match=rule) as caught:
        parse(definition(kind), text)
    assert len(str(caught.value)) < 200


@pytest.mark.parametrize(
    ("valid", "kind", "good", "bad", "rule"),
    [
        (Range(0, None), ConfigType.INT, ["0", "5"], ["-1"], "some.key must be at least 0"),
        (Range(None, 5), ConfigType.INT, ["5", "-9"], ["6"], "some.key must be at most 5"),
        (Range(1, 9, (-1,)), ConfigType.INT, ["-1", "1", "9"], ["0", "-2", "10"], "9, or -1|1, or -1"),
        (Range(0.5, 1.0), ConfigType.DOUBLE, ["0.5", "1"], ["0.4", "1.1", "NaN"], "must be at (least|most)"),
        (OneOf(("a", "b")), ConfigType.STRING, ["a", " b "], ["A", ""], "some.key must be one of a, b"),
        (OneOf(("A", "B"), ignore_case=True), ConfigType.STRING, ["a", "B"], ["c"], "one of A, B in any case"),
        (NonEmpty(), ConfigType.STRING, ["a"], ["", "  "], "some.key must not be empty"),
    ],
    ids=str,
)
def test_rules(valid: Range | OneOf | NonEmpty, kind: ConfigType, good: list[str], bad: list[str], rule: str) -> None:
    for text in good:
        parse(definition(kind, valid), text)
    for text in bad:
        with pytest.raises(ConfigValueError, match=rule):
            parse(definition(kind, valid), text)


@given(
    st.sampled_from([*ZOOKEEPER.producer.values(), *ZOOKEEPER.consumer.values()]),
    st.text() | st.integers().map(str) | st.floats().map(str),
)
def test_only_one_error_ever(known: ConfigDef, text: str) -> None:
    try:
        parsed = parse(known, text)
    except ConfigValueError as error:
        assert str(error).startswith(f"{known.name} must ")
    else:
        assert isinstance(parsed, bool | int | float | str | list)
