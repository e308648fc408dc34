"""The libraries themselves take the settings that are made for them, and have the defaults that the rules assume."""

from __future__ import annotations

import inspect
from typing import Any

import aiokafka
import confluent_kafka
import kafka
import pytest
from aiokafka.errors import KafkaConnectionError

from confplane.client.dynamic import (
    AIOKAFKA,
    CONFLUENT_KAFKA,
    KAFKA_PYTHON,
    AsyncDynamicProducerConfig,
    DynamicConsumerConfig,
)
from confplane.client.dynamic.adapters import aiokafka as aiokafka_adapter
from confplane.client.dynamic.adapters import confluent_kafka as confluent_adapter
from tests.unit.client.dynamic.scripted import SERVICE, Script

TIMEOUTS = {"session.timeout.ms": "20000", "heartbeat.interval.ms": "4000"}
NOWHERE = "127.0.0.1:1"


@pytest.mark.parametrize("acks", ["0", "1", "-1", "all"])
async def test_producers_take_acks(acks: str) -> None:
    own: dict[str, Any] = {"bootstrap.servers": NOWHERE, "log_level": 0, "enable.dynamic.config": True}
    confluent_kafka.Producer(CONFLUENT_KAFKA.merged(own, {"acks": acks}))
    own = {"bootstrap_servers": NOWHERE, "enable_dynamic_config": True}
    # A client of kafka-python connects at once, and leaves its sockets open where nobody answers.
    assert KAFKA_PYTHON.merged(own, {"acks": acks}).keys() <= kafka.KafkaProducer.DEFAULT_CONFIG.keys()
    await aiokafka.AIOKafkaProducer(**AIOKAFKA.merged(own, {"acks": acks})).stop()


async def test_consumers_take_timeouts() -> None:
    own: dict[str, Any] = {"bootstrap.servers": NOWHERE, "log_level": 0, "group.id": "g"}
    confluent_kafka.Consumer(CONFLUENT_KAFKA.merged(own, TIMEOUTS)).close()
    longest = {"session.timeout.ms": "600000"}
    confluent_kafka.Consumer(CONFLUENT_KAFKA.merged(own | {"max.poll.interval.ms": 600_000}, longest)).close()
    own = {"bootstrap_servers": NOWHERE, "group_id": "g"}
    assert KAFKA_PYTHON.merged(own, TIMEOUTS).keys() <= kafka.KafkaConsumer.DEFAULT_CONFIG.keys()
    await aiokafka.AIOKafkaConsumer(**AIOKAFKA.merged(own, TIMEOUTS)).stop()


def test_librdkafka_refuses_a_session_timeout_above_the_poll_interval() -> None:
    own = {"bootstrap.servers": NOWHERE, "log_level": 0, "group.id": "g"}
    confluent_kafka.Consumer(own | {"session.timeout.ms": str(CONFLUENT_KAFKA.max_poll_interval_ms)}).close()
    with pytest.raises(confluent_kafka.KafkaException, match=r"max\.poll\.interval\.ms"):
        confluent_kafka.Consumer(own | {"session.timeout.ms": "300001"})


def test_librdkafka_refuses_timeouts_under_the_new_protocol() -> None:
    with pytest.raises(confluent_kafka.KafkaException, match="defined broker side"):
        confluent_kafka.Consumer({"group.id": "g", "group.protocol": "consumer", "session.timeout.ms": "20000"})


def test_defaults() -> None:
    found = kafka.KafkaConsumer.DEFAULT_CONFIG
    assert found["session_timeout_ms"] == KAFKA_PYTHON.session_timeout_ms
    assert found["heartbeat_interval_ms"] == KAFKA_PYTHON.heartbeat_interval_ms
    parameters = inspect.signature(aiokafka.AIOKafkaConsumer).parameters
    assert parameters["session_timeout_ms"].default == AIOKAFKA.session_timeout_ms
    assert parameters["heartbeat_interval_ms"].default == AIOKAFKA.heartbeat_interval_ms


@pytest.mark.parametrize("library", [CONFLUENT_KAFKA, KAFKA_PYTHON, AIOKAFKA], ids=lambda library: library.name)
def test_the_version_is_that_of_the_installed_package(library: Any) -> None:
    packages = {"confluent-kafka": confluent_kafka, "kafka-python": kafka, "aiokafka": aiokafka}
    assert library.version == packages[library.name].__version__


async def test_a_producer_of_aiokafka_that_can_not_start_is_closed(monkeypatch: pytest.MonkeyPatch) -> None:
    stopped = []

    class Recorded(aiokafka.AIOKafkaProducer):  # type: ignore[misc]  # aiokafka has no types
        async def stop(self) -> None:
            await super().stop()
            stopped.append(self)

    monkeypatch.setattr(aiokafka_adapter, "AIOKafkaProducer", Recorded)
    own = {"bootstrap_servers": NOWHERE, "request_timeout_ms": 100}
    dynamic = AsyncDynamicProducerConfig(own, library=AIOKAFKA, service=SERVICE, source=Script())
    with pytest.raises(KafkaConnectionError):
        await aiokafka_adapter.swapped_producer(dynamic).start()
    assert len(stopped) == 1


def test_a_commit_of_nothing_is_none_to_librdkafka() -> None:
    own = {"bootstrap.servers": NOWHERE, "log_level": 0, "group.id": "g"}
    dynamic = DynamicConsumerConfig(own, library=CONFLUENT_KAFKA, service=SERVICE, source=Script())
    swapped = confluent_adapter.swapped_consumer(
        dynamic, ["orders"], commit=lambda consumer: consumer.commit(asynchronous=False)
    )
    first = swapped.current()
    swapped.reconfigure(own | {"session.timeout.ms": "20000"})
    assert swapped.current() is not first
    swapped.close()


def test_a_consumer_of_librdkafka_subscribes_once_the_old_one_is_closed(monkeypatch: pytest.MonkeyPatch) -> None:
    steps: list[str] = []

    class Recorded(confluent_kafka.Consumer):
        def subscribe(self, *args: Any, **kwargs: Any) -> None:
            steps.append("subscribe")
            super().subscribe(*args, **kwargs)

        def close(self) -> None:
            steps.append("close")
            super().close()

    monkeypatch.setattr(confluent_adapter, "Consumer", Recorded)
    own = {"bootstrap.servers": NOWHERE, "log_level": 0, "group.id": "g"}
    dynamic = DynamicConsumerConfig(own, library=CONFLUENT_KAFKA, service=SERVICE, source=Script())
    swapped = confluent_adapter.swapped_consumer(dynamic, ["orders"])
    swapped.reconfigure(own | {"session.timeout.ms": "20000"})
    swapped.current()
    swapped.close()
    assert steps == ["subscribe", "close", "subscribe", "close"]
