"""Subscriptions to the metrics of clients, with the cases of Kafka's own ClientMetricsConfigsTest."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from confplane.domain.broker_levels import ConfigSource
from confplane.domain.client_metrics import (
    SELECTORS,
    check_client_metrics,
    describe_client_metrics,
    effective_client_metrics,
)
from confplane.domain.errors import ConfplaneError, InvalidConfigError, InvalidRequestError, KafkaCode
from tests.support.catalogs import NEWEST


@pytest.mark.parametrize("value", ["100", "3600000", " 0500 "])
def test_intervals(value: str) -> None:
    assert check_client_metrics(NEWEST, {"interval.ms": value}) == []


@pytest.mark.parametrize("value", ["99", "3600001", "-1"])
def test_intervals_out_of_bounds(value: str) -> None:
    with pytest.raises(InvalidRequestError, match="at least 100 and at most 3600000") as caught:
        check_client_metrics(NEWEST, {"interval.ms": value}, pointers={"interval.ms": "/here"})
    assert (caught.value.code, caught.value.pointer) == (KafkaCode.INVALID_REQUEST, "/here")


@pytest.mark.parametrize(
    ("key", "value", "rule"),
    [
        ("interval.ms", "1 s", "must be a whole number"),
        ("metrics", "a,,b", "must not have an empty element"),
    ],
)
def test_values_of_another_form(key: str, value: str, rule: str) -> None:
    with pytest.raises(InvalidConfigError, match=rule) as caught:
        check_client_metrics(NEWEST, {key: value}, pointers={key: "/here"})
    assert (caught.value.code, caught.value.pointer) == (KafkaCode.INVALID_CONFIG, "/here")


def test_unknown_keys() -> None:
    with pytest.raises(
        InvalidRequestError, match=r"^Unknown client metrics configuration: interval; did you mean interval\.ms\?$"
    ):
        check_client_metrics(NEWEST, {"interval": "100"})


@pytest.mark.parametrize("value", ["*", "", "a,a", "org.apache.kafka.producer.,org.apache.kafka.consumer."])
def test_metrics(value: str) -> None:
    assert check_client_metrics(NEWEST, {"metrics": value}) == []


@pytest.mark.parametrize(
    "value",
    [
        "", *(f"{name}=a" for name in SELECTORS), " client_id = a.* , client_software_version=11\\.1.*",
        "client_id=.", "client_id=a{2}", "client_id=(a|b)+?", "client_id=a==",
        "client_id=[{]", "client_id=\\{", "client_instance_id=b69cc35a-7a54-4790-aa69-cc2bd4ee4538", "client_id=a++",
        "client_id=(?i)billing",
    ],
)  # fmt: skip
def test_selectors(value: str) -> None:
    assert check_client_metrics(NEWEST, {"match": value}) == []


@pytest.mark.parametrize(
    "value",
    [
        "client_id", "client_id=", "=a", "clientid=a", "CLIENT_ID=a", "client_id=a=b", "client_id=a,b",
        "client_id=(", "client_id=[a", "client_id=*", "client_id=a{", "client_id=(?P<x>a)", "client_id=a)",
        "client_id=(?#c)b", "client_id=(?a)b", "client_id=a{,3}", "client_id=[]", "client_id=[z-a]", "client_id=\\q",
        "client_id=a\\",
    ],
)  # fmt: skip
def test_no_selectors(value: str) -> None:
    with pytest.raises(InvalidConfigError, match=r"^match: "):
        check_client_metrics(NEWEST, {"match": value})


@pytest.mark.parametrize(
    "value",
    ["client_id=\\p{Alpha}+", "client_id=\\Qa\\E", "client_id=[a-z&&[^b]]", "client_id=(?<x>a)", "client_id=a(?i)b"],
)
def test_selectors_that_only_brokers_can_read(value: str) -> None:
    [warning] = check_client_metrics(NEWEST, {"match": value})
    assert "not this service" in warning


def test_existing_external_values_stay() -> None:
    stored = {"foreign": "1", "interval.ms": "5"}
    warnings = check_client_metrics(NEWEST, {**stored, "metrics": "*"}, stored=stored)
    assert len(warnings) == 2
    with pytest.raises(InvalidRequestError):
        check_client_metrics(NEWEST, {**stored, "interval.ms": "6"}, stored=stored)


@given(st.dictionaries(st.sampled_from([*NEWEST.client_metrics, "x"]), st.text() | st.integers().map(str)))
def test_one_error_ever(config: dict[str, str]) -> None:
    try:
        check_client_metrics(NEWEST, config)
    except ConfplaneError as error:
        assert isinstance(error, InvalidConfigError | InvalidRequestError)


def test_describe() -> None:
    found = {item.name: item for item in describe_client_metrics(NEWEST, {"interval.ms": "0500", "x": "secret"})}
    assert list(found) == ["interval.ms", "match", "metrics", "x"]
    interval = found["interval.ms"]
    assert (interval.value, interval.source) == ("500", ConfigSource.DYNAMIC_CLIENT_METRICS_CONFIG)
    assert [(synonym.name, synonym.value) for synonym in interval.synonyms] == [("interval.ms", "500")]
    assert (found["match"].value, found["match"].source, found["match"].synonyms) == (
        "", ConfigSource.DEFAULT_CONFIG, (),
    )  # fmt: skip
    assert (found["x"].value, found["x"].sensitive) == (None, True)
    assert effective_client_metrics(NEWEST, "interval.ms", {}).value == "300000"
