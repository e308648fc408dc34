from __future__ import annotations

import pytest

from confplane.client.dynamic import AIOKAFKA, CONFLUENT_KAFKA, JAVA, KAFKA_PYTHON, Library
from confplane.client.dynamic.rules import decide, max_age_s
from confplane.domain.client_configs import SESSION_TIMEOUT
from confplane.domain.definitions import ConfigKind

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
    assert decide(ConfigKind.CONSUMER, {}, dynamic, KAFKA_PYTHON).accepted == dynamic
    (dropped,) = decide(ConfigKind.CONSUMER, {}, dynamic, AIOKAFKA).dropped
    assert dropped.reason == "heartbeat.interval.ms (10000) would not be below session.timeout.ms (10000)"


def test_the_time_between_polls() -> None:
    assert max_age_s({}) == 300
    assert max_age_s({"metadata.max.age.ms": "1500"}) == 1.5
    assert max_age_s({"metadata.max.age.ms": "300000.0"}) == 300
    for text in ("0", "-1", "soon", "inf", "nan"):
        assert max_age_s({"metadata.max.age.ms": text}) is None


@pytest.mark.parametrize(
    ("library", "own", "dropped"),
    [
        (CONFLUENT_KAFKA, {}, [SESSION_TIMEOUT]),
        (CONFLUENT_KAFKA, {"max.poll.interval.ms": "600000"}, []),
        (CONFLUENT_KAFKA, {"max.poll.interval.ms": "599999"}, [SESSION_TIMEOUT]),
        (KAFKA_PYTHON, {}, []),
        (AIOKAFKA, {}, []),
        (JAVA, {}, []),
    ],
)
def test_a_session_timeout_above_the_poll_interval_is_dropped_where_consumers_would_not_start(
    library: Library, own: dict[str, str], dropped: list[str]
) -> None:
    decision = decide(ConfigKind.CONSUMER, own, {SESSION_TIMEOUT: "600000"}, library)
    assert [each.key for each in decision.dropped] == dropped
    assert all("would be above max.poll.interval.ms" in each.reason for each in decision.dropped)


def test_a_library_that_is_not_installed_has_no_version() -> None:
    assert Library("no-such-distribution").version == "unknown"
    assert Library("httpx").version[0].isdecimal()
