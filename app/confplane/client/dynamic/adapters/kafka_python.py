"""Swaps for kafka-python."""

from __future__ import annotations

from typing import TYPE_CHECKING

from kafka import KafkaConsumer, KafkaProducer

from confplane.client.dynamic.swap import SwappedConsumer, SwappedProducer

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from confplane.client.dynamic.config import DynamicConsumerConfig, DynamicProducerConfig


def swapped_producer(dynamic: DynamicProducerConfig) -> SwappedProducer[KafkaProducer]:
    """Return a producer that follows its dynamic configs."""
    return SwappedProducer(
        dynamic,
        build=lambda settings: KafkaProducer(**settings),
        flush=KafkaProducer.flush,
        close=KafkaProducer.close,
        calls_back_in=lambda producer: producer._sender,  # noqa: SLF001 - there is no other way to its thread
    )


def swapped_consumer(
    dynamic: DynamicConsumerConfig, topics: Sequence[str], *, commit: Callable[[KafkaConsumer], object] | None = None
) -> SwappedConsumer[KafkaConsumer]:
    """Return a consumer of topics that follows its dynamic configs."""
    return SwappedConsumer(
        dynamic,
        build=lambda settings: KafkaConsumer(**settings),
        join=lambda consumer: consumer.subscribe(list(topics)),
        close=KafkaConsumer.close,
        commit=commit,
    )
