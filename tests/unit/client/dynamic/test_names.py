from __future__ import annotations

import pytest

from app.client.dynamic import AIOKAFKA, CONFLUENT_KAFKA, JAVA, KAFKA_PYTHON, Library
from app.client.dynamic.rules import decide, max_age_s
from app.domain.definitions import Kind

TIMEOUTS = {"session.timeout.ms": "20000", "heartbeat.interval.ms": " 4000 "}


@pytest.mark.parametrize("library", [JAVA, CONFLUENT_KAFKA])
def test_names_with_dots_take_texts(library: Library) -> None:
    assert library.merged({"client.id": "c", "acks": 1}, {"acks": "all"}) == {"client.id": "c", "acks": "all"}
    assert library.merged({}, TIMEOUTS) == {"session.timeout.ms": "20000", "heartbeat.interval.ms": "4000"}


@pytest.mark.parametrize("library", [KAFKA_PYTHON, AIOKAFKA])
def test_names_with_underscores_take_numbers(library: Library) -> None:
    assert library.merged({"client_id": "c", "session_timeout_ms": 1}, TIMEOUTS) == {
        "client_id": "c",
        "session_timeout_ms": 20000,
        "heartbeat_interval_ms": 4000,
    }
    assert [library.merged({}, {"acks": acks})["acks"] for acks in ("0", "1", "-1", "all")] == [0, 1, "all", "all"]


def test_a_name_of_librdkafka_gives_way_to_the_dynamic_value() -> None:
    own = {"request.required.acks": "1"}
    assert CONFLUENT_KAFKA.in_java(own) == {"acks": "1"}
    assert CONFLUENT_KAFKA.merged(own, {"acks": "0"}) == {"acks": "0"}
    assert CONFLUENT_KAFKA.merged(own, {}) == own


@pytest.mark.parametrize("library", [JAVA, CONFLUENT_KAFKA, KAFKA_PYTHON, AIOKAFKA])
def test_the_switch_is_never_passed_on(library: Library) -> None:
    name = library.spelled("enable.dynamic.config")
    assert library.in_java({name: False}) == {"enable.dynamic.config": "false"}
    assert library.merged({name: True}, {}) == {}


def test_settings_without_a_value_are_not_set() -> None:
    own = KAFKA_PYTHON.in_java({"transactional_id": None, "enable_idempotence": True, "bootstrap_servers": ["a:1"]})
    assert own == {"enable.idempotence": "true"}


def test_defaults_are_those_of_the_library() -> None:
    dynamic = {"heartbeat.interval.ms": "10000"}
    assert decide(Kind.CONSUMER, {}, dynamic, KAFKA_PYTHON).accepted == dynamic
    (dropped,) = decide(Kind.CONSUMER, {}, dynamic, AIOKAFKA).dropped
    assert dropped.reason == "heartbeat.interval.ms (10000) would not be below session.timeout.ms (10000)"


def test_the_time_between_polls() -> None:
    assert max_age_s({}) == 300
    assert max_age_s({"metadata.max.age.ms": "1500"}) == 1.5
    for text in ("0", "-1", "soon", "1.5"):
        with pytest.raises(ValueError, match=r"metadata\.max\.age\.ms must be a whole number"):
            max_age_s({"metadata.max.age.ms": text})


def test_a_library_that_is_not_installed_has_no_version() -> None:
    assert Library("no-such-distribution").version == "unknown"
    assert Library("httpx").version[0].isdecimal()
