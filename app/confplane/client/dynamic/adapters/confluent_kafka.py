"""Swaps for confluent-kafka (librdkafka)."""

from __future__ import annotations

from typing import TYPE_CHECKING

from confluent_kafka import Consumer, KafkaError, KafkaException, Producer

from confplane.client.dynamic.swap import SwappedConsumer, SwappedProducer

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from confplane.client.dynamic.config import DynamicConsumerConfig, DynamicProducerConfig


def swapped_producer(dynamic: DynamicProducerConfig) -> SwappedProducer[Producer]:
    """Return a producer that follows its dynamic configs."""
    # Earlier versions have no close: a producer ends once it is no longer referenced.
    return SwappedProducer(dynamic, build=Producer, flush=_flush, close=getattr(Producer, "close", lambda _: None))


def swapped_consumer(
    dynamic: DynamicConsumerConfig, topics: Sequence[str], *, commit: Callable[[Consumer], object] | None = None
) -> SwappedConsumer[Consumer]:
    """Return a consumer of topics that follows its dynamic configs."""
    return SwappedConsumer(
        dynamic,
        build=Consumer,
        join=lambda consumer: consumer.subscribe(list(topics)),
        close=Consumer.close,
        commit=None if commit is None else lambda consumer: _commit(consumer, commit),
    )


def _commit(consumer: Consumer, commit: Callable[[Consumer], object]) -> None:
    """Commit. librdkafka reports an error if nothing was read since the last commit."""
    try:
        commit(consumer)
    except KafkaException as error:
        if error.args[0].code() != KafkaError._NO_OFFSET:  # noqa: SLF001 - librdkafka's own codes are spelled so
            raise


def _flush(producer: Producer) -> None:
    """Wait for each record. A record that can't be delivered fails after ``message.timeout.ms``."""
    while producer.flush(1.0):
        pass
