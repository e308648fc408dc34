"""Producers and consumers of each library that follow their dynamic configs, on one broker."""

from __future__ import annotations

import asyncio
import sys
import threading
import traceback
from collections import Counter
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final, Literal

from aiokafka import AIOKafkaConsumer
from aiokafka.errors import KafkaError as AIOKafkaError
from confluent_kafka import OFFSET_BEGINNING, Consumer, KafkaException, Producer, TopicPartition
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewPartitions
from kafka.errors import KafkaError

from confplane.client.dynamic import (
    AIOKAFKA,
    CONFLUENT_KAFKA,
    KAFKA_PYTHON,
    AsyncDynamicConsumerConfig,
    AsyncDynamicProducerConfig,
    DynamicConsumerConfig,
    DynamicProducerConfig,
    Library,
    Service,
)
from confplane.client.dynamic.adapters import aiokafka, confluent_kafka, kafka_python
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
        await until(lambda: len(self.acks) >= producers, why=lambda: f"{self.acks} after {self.sent} records")

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


class Numbers:
    """Records with the numbers from 0, sent to the partitions of a topic in turn.

    Args:
        bootstrap: The broker.
        topic: The topic.
        partitions: The number of its partitions, which are made.
        per_s: Records a second, about.
    """

    def __init__(self, bootstrap: str, topic: str, *, partitions: int, per_s: int) -> None:
        self._topic = topic
        self.partitions = partitions
        self._per_turn = max(1, per_s // 20)
        self._producer = Producer({"bootstrap.servers": bootstrap})
        self._admin = AdminClient({"bootstrap.servers": bootstrap})
        self.sent = 0

    @asynccontextmanager
    async def running(self) -> AsyncIterator[None]:
        """Send in the background; afterwards each record has arrived."""
        if self.partitions > 1:
            (made,) = self._admin.create_partitions([NewPartitions(self._topic, self.partitions)]).values()
            await asyncio.to_thread(made.result)
        sending = asyncio.create_task(self._send())
        try:
            yield
        finally:
            sending.cancel()
            await asyncio.wait({sending})
            assert await asyncio.to_thread(self._producer.flush, 60) == 0

    async def _send(self) -> None:
        while True:
            for _ in range(self._per_turn):
                value = b"%d" % self.sent
                self._producer.produce(self._topic, value, value, partition=self.sent % self.partitions)
                self.sent += 1
            self._producer.poll(0)
            await asyncio.sleep(0.05)


@dataclass
class Member:
    """A consumer of a group, in a thread of its own, that follows its dynamic configs.

    Args:
        library: Its library.
        service: The service.
        own: The application's own settings, by Java's names.
        topic: The topic that it reads.
        commits: The application commits by itself: after each poll, or with a swap and at the end alone. None where the
            library commits.
        spread_s: Seconds over which a change is spread.
    """

    library: Library
    service: Service
    own: dict[str, Any]
    topic: str
    commits: Literal["each", "last"] | None = None
    spread_s: float = 0.0
    clients: int = 0
    """The consumers that were made, one after the other."""
    reads: bool = False
    """True once the latest of them has read records."""
    assigned: bool = False
    read: list[int] = field(default_factory=list)
    uncommitted: int = 0
    """The commits after polls that failed, since the group rebalanced."""

    def __post_init__(self) -> None:
        self._ended = threading.Event()
        self._error: BaseException | None = None
        self._last: object = None
        self._thread = threading.Thread(target=self._run, daemon=True)

    async def made(self, clients: int) -> None:
        """Wait until so many consumers were made."""
        await until(lambda: self.clients >= clients or self._error, why=lambda: f"{clients} consumers: {self}")

    async def reading(self, clients: int) -> None:
        """Wait until that consumer has read records, or a later one was made."""
        await self.made(clients)
        await until(
            lambda: self.reads or self.clients > clients or self._error,
            why=lambda: f"records of consumer {clients}: {self}",
        )

    def __str__(self) -> str:
        """Its state, and the place at which its thread is."""
        frame = sys._current_frames().get(self._thread.ident or 0)
        return (
            f"{self.library.name} commits={self.commits} uncommitted={self.uncommitted} clients={self.clients}"
            f" reads={self.reads} assigned={self.assigned} read={len(self.read)} error={self._error!r}\n"
            + "".join(traceback.format_stack(frame))
        )

    def start(self) -> None:
        self._thread.start()

    def end(self) -> None:
        """Have it end after its poll."""
        self._ended.set()

    def stop(self) -> None:
        """End it; raises the exception that has ended it before."""
        self.end()
        self._thread.join()
        self._last = None
        if self._error is not None:
            raise self._error

    def _run(self) -> None:
        try:
            if self.library is AIOKAFKA:
                asyncio.run(self._in_tasks())
            else:
                self._in_this_thread()
        except BaseException as error:  # noqa: BLE001 - raised by stop
            self._error = error

    def _settings(self) -> dict[str, Any]:
        own = {self.library.spelled(name): value for name, value in self.own.items()}
        return own | {self.library.spelled("enable.auto.commit"): self.commits is None}

    def _took(self, consumer: Any, numbers: list[int]) -> bool:
        """Note the numbers of a poll; return True where the application is to commit."""
        if consumer is not self._last:
            self._last, self.reads = consumer, False
            self.clients += 1
        self.reads = self.reads or bool(numbers)
        self.read += numbers
        self.assigned = bool(consumer.assignment())
        return self.commits == "each" and bool(numbers)

    def _in_this_thread(self) -> None:
        dynamic = DynamicConsumerConfig(
            self._settings(), library=self.library, service=self.service, spread_s=self.spread_s
        )
        adapter: Any = confluent_kafka if self.library is CONFLUENT_KAFKA else kafka_python
        commit, poll = _COMMITS[self.library.name], _POLLS[self.library.name]
        with dynamic:
            swapped = adapter.swapped_consumer(dynamic, [self.topic], commit=commit if self.commits else None)
            while not self._ended.is_set():
                consumer = swapped.current()
                if self._took(consumer, poll(consumer)):
                    try:
                        commit(consumer)
                    except (KafkaException, KafkaError):
                        self.uncommitted += 1
        swapped.close()

    async def _in_tasks(self) -> None:
        own = self._settings()
        async with AsyncDynamicConsumerConfig(
            own, library=self.library, service=self.service, spread_s=self.spread_s
        ) as dynamic:
            commit = AIOKafkaConsumer.commit
            swapped = aiokafka.swapped_consumer(dynamic, [self.topic], commit=commit if self.commits else None)
            await swapped.start()
            while not self._ended.is_set():
                consumer = await swapped.current()
                records = await consumer.getmany(timeout_ms=100)
                if self._took(consumer, [int(record.value) for each in records.values() for record in each]):
                    try:
                        await commit(consumer)
                    except AIOKafkaError:
                        self.uncommitted += 1
        await swapped.close()


async def all_read(group: list[Member], numbers: Numbers) -> None:
    """Wait until a group has read each record that was sent."""

    def missing() -> list[int]:
        return sorted(set(range(numbers.sent)).difference(*(member.read for member in group)))

    def why() -> str:
        lacking = missing()
        by_partition = Counter(number % numbers.partitions for number in lacking)
        return f"{lacking[:20]} of {numbers.sent}, by partition {dict(by_partition)}: " + "\n".join(map(str, group))

    await until(lambda: not missing(), why=why, pause_s=0.2)


_COMMITS: Final[dict[str, Callable[[Any], object]]] = {
    CONFLUENT_KAFKA.name: lambda consumer: consumer.commit(asynchronous=False),
    KAFKA_PYTHON.name: lambda consumer: consumer.commit(),
}
_POLLS: Final[dict[str, Callable[[Any], list[int]]]] = {
    # One by one: a group that read by `consume` has read a batch twice, probably as it rebalanced amid the batch.
    CONFLUENT_KAFKA.name: lambda consumer: [
        int(message.value()) for message in [consumer.poll(0.1)] if message is not None and message.error() is None
    ],
    # For long: a join of its group that ends between two polls is forgotten, and the consumer joins anew.
    KAFKA_PYTHON.name: lambda consumer: [
        int(record.value) for each in consumer.poll(timeout_ms=5_000).values() for record in each
    ],
}
