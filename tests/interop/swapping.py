"""Producers and consumers of each library that follow their dynamic configs, on one broker."""

from __future__ import annotations

import asyncio
import threading
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final

from confluent_kafka import OFFSET_BEGINNING, Consumer, TopicPartition

from app.client.dynamic import (
    AIOKAFKA,
    CONFLUENT_KAFKA,
    KAFKA_PYTHON,
    AsyncDynamicProducerConfig,
    DynamicProducerConfig,
    Library,
    Service,
)
from app.client.dynamic.adapters import aiokafka, confluent_kafka, kafka_python
from tests.support.waiting import until

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable

LIBRARIES: Final = (CONFLUENT_KAFKA, KAFKA_PYTHON, AIOKAFKA)
POLL_MS: Final = 200


@dataclass
class Load:
    """Records that are sent without a pause, numbered from 0, until there were enough."""

    library: Library
    service: Service
    own: dict[str, Any]
    topic: str
    least: int
    acks: list[Any] = field(default_factory=list)
    """The ``acks`` of each producer, in their order."""
    sent: int = 0
    failed: list[object] = field(default_factory=list)
    enough: bool = False

    @asynccontextmanager
    async def running(self) -> AsyncIterator[None]:
        """Send in the background, with keys: topics are compacted here."""
        if self.library is AIOKAFKA:
            sending = asyncio.create_task(self._in_tasks())
        else:
            sending = asyncio.create_task(asyncio.to_thread(self._in_a_thread))
        try:
            yield
        finally:
            self.enough = True
            await sending

    async def made(self, producers: int) -> None:
        """Wait until so many producers were made."""
        await until(lambda: len(self.acks) >= producers)

    def _in_a_thread(self) -> None:
        dynamic = DynamicProducerConfig(self.own, library=self.library, service=self.service)
        send: Callable[[Any, bytes], object] = self._to_confluent
        swapped: Any
        with dynamic:
            if self.library is CONFLUENT_KAFKA:
                swapped = confluent_kafka.swapped_producer(dynamic)
            else:
                swapped, send = kafka_python.swapped_producer(dynamic), self._to_kafka_python
            last = None
            while not self.enough or self.sent < self.least:
                with swapped.use() as producer:
                    if producer is not last:
                        self.acks.append(dynamic.settings["acks"])
                    last = producer
                    send(producer, b"%d" % self.sent)
                    self.sent += 1
        swapped.close()

    def _to_confluent(self, producer: Any, value: bytes) -> None:
        def delivered(error: object, _: object) -> None:
            if error is not None:
                self.failed.append(error)

        while True:
            try:
                producer.produce(self.topic, value, value, partition=0, on_delivery=delivered)
            except BufferError:
                producer.poll(0.1)
            else:
                producer.poll(0)
                return

    def _to_kafka_python(self, producer: Any, value: bytes) -> None:
        producer.send(self.topic, value, value, partition=0).add_errback(self.failed.append)

    async def _in_tasks(self) -> None:
        sending: list[asyncio.Future[Any]] = []
        async with AsyncDynamicProducerConfig(self.own, library=self.library, service=self.service) as dynamic:
            swapped = aiokafka.swapped_producer(dynamic)
            await swapped.start()
            last = None
            while not self.enough or self.sent < self.least:
                async with swapped.use() as producer:
                    if producer is not last:
                        self.acks.append(dynamic.settings["acks"])
                    last = producer
                    value = b"%d" % self.sent
                    sending.append(await producer.send(self.topic, value, value, partition=0))
                    self.sent += 1
                if self.sent % 100 == 0:
                    await asyncio.sleep(0)
        await swapped.close()
        self.failed += [error for each in sending if (error := each.exception()) is not None]


def arrived(bootstrap: str, topic: str) -> list[int]:
    """All numbers in partition 0 of a topic, in their order."""
    consumer = Consumer({"bootstrap.servers": bootstrap, "group.id": "reading", "enable.auto.commit": False})
    try:
        partition = TopicPartition(topic, 0, OFFSET_BEGINNING)
        _, end = consumer.get_watermark_offsets(TopicPartition(topic, 0), timeout=60)
        consumer.assign([partition])
        found: list[int] = []
        while len(found) < end:
            found += [int(message.value() or b"") for message in consumer.consume(10_000, timeout=1.0)]
        return found
    finally:
        consumer.close()


class Member:
    """A consumer of a group, in a thread of its own."""

    def __init__(self, dynamic: Any, topic: str) -> None:
        self._dynamic = dynamic
        self._topic = topic
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._run)
        self.clients = 0
        self.assigned = False
        self.read: list[int] = []

    async def made(self, clients: int) -> None:
        """Wait until so many consumers were made."""
        await until(lambda: self.clients >= clients)

    def start(self) -> None:
        self._thread.start()

    def stop(self) -> None:
        self._ended.set()
        self._thread.join()

    def _run(self) -> None:
        with self._dynamic as dynamic:
            swapped = confluent_kafka.swapped_consumer(dynamic, [self._topic])
            last = None
            while not self._ended.is_set():
                consumer = swapped.current()
                if consumer is not last:
                    self.clients += 1
                last = consumer
                self.read += [int(message.value() or b"") for message in consumer.consume(100, timeout=0.1)]
                self.assigned = bool(consumer.assignment())
        swapped.close()
