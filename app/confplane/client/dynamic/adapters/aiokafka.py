"""Swaps for aiokafka."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from aiokafka import AIOKafkaConsumer, AIOKafkaProducer

from confplane.client.dynamic.swap_async import AsyncSwappedConsumer, AsyncSwappedProducer

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Sequence

    from confplane.client.dynamic.config import AsyncDynamicConsumerConfig, AsyncDynamicProducerConfig


def swapped_producer(dynamic: AsyncDynamicProducerConfig) -> AsyncSwappedProducer[AIOKafkaProducer]:
    """Return a producer that follows its dynamic configs."""
    return AsyncSwappedProducer(dynamic, build=_started, flush=AIOKafkaProducer.flush, close=AIOKafkaProducer.stop)


def swapped_consumer(
    dynamic: AsyncDynamicConsumerConfig,
    topics: Sequence[str],
    *,
    commit: Callable[[AIOKafkaConsumer], Awaitable[object]] | None = None,
) -> AsyncSwappedConsumer[AIOKafkaConsumer]:
    """Return a consumer of topics that follows its dynamic configs."""
    return AsyncSwappedConsumer(
        dynamic,
        build=lambda settings: AIOKafkaConsumer(*topics, **settings),
        join=AIOKafkaConsumer.start,
        close=AIOKafkaConsumer.stop,
        commit=commit,
    )


async def _started(settings: dict[str, Any]) -> AIOKafkaProducer:
    producer = AIOKafkaProducer(**settings)
    try:
        await producer.start()
    except BaseException:
        await producer.stop()
        raise
    return producer
