from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from confplane.domain.config_rules import ConfigValue, NonEmpty, OneOf, Range
from confplane.domain.definitions import ConfigDef, ConfigType, ConfigValueError, parse
from tests.support.catalogs import ZOOKEEPER


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("acks", "STRING all [all, -1, 0, 1]"),
        ("heartbeat.interval.ms", "INT 3000 None"),
        ("session.timeout.ms", "INT 45000 None"),
        ("max.poll.interval.ms", "INT 300000 [1,...]"),
        ("enable.idempotence", "BOOLEAN true None"),
    ],
)
def test_configs_that_the_rules_of_dynamic_clients_depend_on(name: str, expected: str) -> None:
    """``tests/catalog`` compares all definitions with Kafka's classes."""
    (found,) = ZOOKEEPER.find(name)
    assert f"{found.type} {found.default} {found.valid}" == expected


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
    ("valid", "shown", "good", "bad", "rule"),
    [
        (Range(0, None), "[0,...]", ["0", "5"], ["-1"], "some.key must be at least 0"),
        (Range(None, 5), "[...,5]", ["5", "-9"], ["6"], "some.key must be at most 5"),
        (Range(1, 9, (-1,)), "[1,...,9] or -1", ["-1", "1", "9"], ["0", "-2", "10"], "9, or -1|1, or -1"),
        (Range(0.5, 1.0), "[0.5,...,1.0]", ["0.5", "1"], ["0.4", "1.1", "NaN"], "must be at (least|most)"),
        (OneOf(("a", "b")), "[a, b]", ["a", " b "], ["A", ""], "some.key must be one of a, b"),
        (OneOf(("A", "B"), ignore_case=True), "(case insensitive) [A, B]", ["a", "B"], ["c"], "A, B in any case"),
        (NonEmpty(), "non-empty string", ["a"], ["", "  "], "some.key must not be empty"),
    ],
    ids=str,
)
def test_rules(valid: Range | OneOf | NonEmpty, shown: str, good: list[str], bad: list[str], rule: str) -> None:
    assert str(valid) == shown
    kind = ConfigType.STRING
    if isinstance(valid, Range):
        kind = ConfigType.DOUBLE if isinstance(valid.minimum, float) else ConfigType.INT
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
