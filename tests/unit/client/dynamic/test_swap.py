from __future__ import annotations

import asyncio
import threading
from typing import TYPE_CHECKING, Any, cast

import pytest

from confplane.client.dynamic import (
    CONFLUENT_KAFKA,
    AsyncDynamicConsumerConfig,
    AsyncDynamicProducerConfig,
    DynamicConsumerConfig,
    DynamicProducerConfig,
)
from confplane.client.dynamic.source import DynamicValues
from confplane.client.dynamic.steps import MIN_SWAP_INTERVAL_S
from confplane.client.dynamic.swap import SwappedConsumer, SwappedProducer
from confplane.client.dynamic.swap_async import AsyncSwappedConsumer, AsyncSwappedProducer
from tests.support.waiting import until
from tests.unit.client.dynamic.scripted import OWN, SERVICE, Script

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable


@pytest.fixture
def steps() -> list[str]:
    """The steps of the clients of a test."""
    return []


class Fake:
    """A client that writes down each step."""

    def __init__(self, settings: dict[str, Any], steps: list[str]) -> None:
        self.name = settings.get("acks") or settings.get("session.timeout.ms") or "own"
        if self.name == "bad":
            raise ValueError("the library refuses it")
        self.steps = steps
        self.on_flush: Callable[[], None] = lambda: None
        self._say("build")

    def _say(self, step: str) -> None:
        self.steps.append(f"{step} {self.name}")

    def flush(self) -> None:
        self.on_flush()
        self._say("flush")

    def join(self) -> None:
        self._say("join")

    def commit(self) -> None:
        self._say("commit")

    def close(self) -> None:
        self._say("close")


class AsyncFake(Fake):
    """The same for coroutines."""

    async def flushed(self) -> None:
        self.flush()

    async def joined(self) -> None:
        self.join()

    async def committed(self) -> None:
        self.commit()

    async def closed(self) -> None:
        self.close()


def producer(steps: list[str]) -> SwappedProducer[Fake]:
    dynamic = DynamicProducerConfig(OWN, library=CONFLUENT_KAFKA, service=SERVICE, source=Script())
    return SwappedProducer(dynamic, build=lambda settings: Fake(settings, steps), flush=Fake.flush, close=Fake.close)


def consumer(
    steps: list[str],
    commit: Callable[[Fake], object] | None = Fake.commit,
    clock: Callable[[], float] = lambda: 0.0,
) -> SwappedConsumer[Fake]:
    dynamic = DynamicConsumerConfig(OWN, library=CONFLUENT_KAFKA, service=SERVICE, source=Script())
    return SwappedConsumer(
        dynamic,
        build=lambda settings: Fake(settings, steps),
        join=Fake.join,
        close=Fake.close,
        commit=commit,
        clock=clock,
    )


def test_a_producer_is_built_flushed_switched_and_closed(steps: list[str]) -> None:
    swapped = producer(steps)
    swapped.reconfigure({"acks": "all"})
    with swapped.use() as current:
        assert current.name == "all"
    swapped.close()
    assert steps == ["build own", "build all", "flush own", "close own", "flush all", "close all"]


def test_a_producer_that_can_not_be_built_leaves_the_old_one(steps: list[str]) -> None:
    swapped = producer(steps)
    with pytest.raises(ValueError, match="refuses"):
        swapped.reconfigure({"acks": "bad"})
    with swapped.use() as current:
        assert current.name == "own"
    assert steps == ["build own"]


def test_a_producer_that_can_not_be_flushed_stays_and_the_new_one_is_closed(steps: list[str]) -> None:
    swapped = producer(steps)

    def fail() -> None:
        raise TimeoutError("not flushed")

    with swapped.use() as current:
        current.on_flush = fail
    with pytest.raises(TimeoutError):
        swapped.reconfigure({"acks": "all"})
    with swapped.use() as current:
        assert current.name == "own"
    assert steps == ["build own", "build all", "close all"]


def is_waited_for(swapped: SwappedProducer[Any]) -> bool:
    """Return whether a thread waits for the producer."""
    return bool(cast("Any", swapped._free)._waiters)


async def test_a_swap_waits_for_uses_and_uses_wait_for_a_swap(steps: list[str]) -> None:
    swapped = producer(steps)
    flushing, go_on = threading.Event(), threading.Event()

    def flush() -> None:
        flushing.set()
        assert go_on.wait(60)

    with swapped.use() as old:
        old.on_flush = flush
        swapping = asyncio.create_task(asyncio.to_thread(swapped.reconfigure, {"acks": "all"}))
        await until(lambda: "build all" in steps)
        with swapped.use() as nested:  # of a thread that holds it already
            assert nested is old
        assert not flushing.is_set()

    def use() -> str:
        with swapped.use() as current:
            return current.name

    await until(flushing.is_set)
    using = asyncio.create_task(asyncio.to_thread(use))
    await until(lambda: using.done() or is_waited_for(swapped))
    assert not using.done()
    go_on.set()
    assert await using == "all"
    await swapping


def test_a_callback_in_a_flush_uses_the_producer_that_is_flushed(steps: list[str]) -> None:
    swapped = producer(steps)
    seen: list[str] = []

    def call_back() -> None:
        with swapped.use() as current:
            seen.append(current.name)

    with swapped.use() as old:
        old.on_flush = call_back
    swapped.reconfigure({"acks": "all"})
    assert seen == ["own"]


def test_a_consumer_commits_and_leaves_before_the_next_one_joins(steps: list[str]) -> None:
    swapped = consumer(steps)
    assert swapped.current() is swapped.current()
    swapped.reconfigure({"session.timeout.ms": "20000"})
    assert steps == ["build own", "join own", "build 20000"]
    assert swapped.current().name == "20000"
    assert steps[3:] == ["commit own", "close own", "join 20000"]
    swapped.close()
    assert steps[6:] == ["commit 20000", "close 20000"]


def test_a_consumer_that_was_never_asked_for_is_closed(steps: list[str]) -> None:
    swapped = consumer(steps, commit=None)
    swapped.reconfigure({"session.timeout.ms": "20000"})
    swapped.reconfigure({"session.timeout.ms": "30000"})
    assert steps[2:] == ["build 20000", "build 30000", "close 20000"]
    swapped.close()
    assert steps[5:] == ["close own", "close 30000"]


def test_a_consumer_that_took_the_place_of_another_stays_until_it_can_have_joined_its_group(steps: list[str]) -> None:
    now = 0.0
    swapped = consumer(steps, commit=None, clock=lambda: now)
    swapped.reconfigure({"session.timeout.ms": "20000"})
    assert swapped.current().name == "20000", "the first change is taken over at once"
    now = MIN_SWAP_INTERVAL_S / 2
    swapped.reconfigure({"session.timeout.ms": "30000"})
    swapped.reconfigure({"session.timeout.ms": "40000"})
    assert (swapped.current().name, swapped.waiting) == ("20000", True)
    now = MIN_SWAP_INTERVAL_S
    assert (swapped.current().name, swapped.waiting) == ("40000", False)
    assert [step for step in steps if "join" in step] == ["join own", "join 20000", "join 40000"]


def test_after_a_failed_commit_the_old_consumer_goes_on_until_the_next_try(
    steps: list[str], caplog: pytest.LogCaptureFixture
) -> None:
    failures = [OSError("not committed")]
    now = 0.0

    def commit(current: Fake) -> None:
        if failures:
            raise failures.pop()
        current.commit()

    swapped = consumer(steps, commit=commit, clock=lambda: now)
    swapped.reconfigure({"session.timeout.ms": "20000"})
    assert swapped.current().name == "own"
    assert "not committed" in caplog.text
    assert swapped.current().name == "own", "its polls may have to end a rebalance first"
    now = MIN_SWAP_INTERVAL_S
    assert swapped.current().name == "20000"
    assert steps[2:] == ["build 20000", "commit own", "close own", "join 20000"]


def test_a_consumer_is_closed_after_a_failed_commit_too(steps: list[str]) -> None:

    def commit(_: Fake) -> None:
        raise OSError("not committed")

    swapped = consumer(steps, commit=commit)
    swapped.reconfigure({"session.timeout.ms": "20000"})
    with pytest.raises(OSError, match="not committed"):
        swapped.close()
    assert steps[3:] == ["close own", "close 20000"]


def test_a_client_that_can_not_be_closed_is_swapped_all_the_same(
    steps: list[str], caplog: pytest.LogCaptureFixture
) -> None:

    def close(client: Fake) -> None:
        client.close()
        raise OSError("not closed")

    of_producer = DynamicProducerConfig(OWN, library=CONFLUENT_KAFKA, service=SERVICE, source=Script())
    producing = SwappedProducer(of_producer, build=lambda given: Fake(given, steps), flush=Fake.flush, close=close)
    producing.reconfigure({"acks": "all"})
    with producing.use() as current:
        assert current.name == "all"
    of_consumer = DynamicConsumerConfig(OWN, library=CONFLUENT_KAFKA, service=SERVICE, source=Script())
    consuming = SwappedConsumer(of_consumer, build=lambda given: Fake(given, steps), join=Fake.join, close=close)
    consuming.reconfigure({"session.timeout.ms": "20000"})
    consuming.reconfigure({"session.timeout.ms": "30000"})
    assert (consuming.current().name, consuming.waiting) == ("30000", False)
    assert caplog.text.count("could not be closed") == 3


async def test_a_first_client_that_can_not_be_made_is_not_offered_changes(steps: list[str]) -> None:
    """Applications try again, and each try would leave an object behind that builds a client at each change."""
    failures = 2

    async def build(settings: dict[str, Any]) -> AsyncFake:
        return joined_late(AsyncFake(settings, steps))

    def joined_late(client: AsyncFake) -> AsyncFake:
        nonlocal failures
        if failures:
            failures -= 1
            raise OSError("no brokers")
        return client

    async def join(client: AsyncFake) -> None:
        await joined_late(client).joined()

    script = Script(DynamicValues({"acks": "1"}), DynamicValues({"acks": "all"}))
    producers = AsyncDynamicProducerConfig(OWN, library=CONFLUENT_KAFKA, service=SERVICE, source=script)
    swapped = AsyncSwappedProducer(producers, build=build, flush=AsyncFake.flushed, close=AsyncFake.closed)
    for _ in range(failures):
        with pytest.raises(OSError, match="no brokers"):
            await swapped.start()
    steps.clear()
    await swapped.start()
    async with producers:
        await until(lambda: script.exhausted)
    assert steps == ["build own", "build 1", "flush own", "close own", "build all", "flush 1", "close 1"]

    steps.clear()
    failures = 1
    script = Script(DynamicValues({"session.timeout.ms": "20000"}))
    consumers = AsyncDynamicConsumerConfig(OWN, library=CONFLUENT_KAFKA, service=SERVICE, source=script)
    consuming = AsyncSwappedConsumer(
        consumers, build=lambda settings: AsyncFake(settings, steps), join=join, close=AsyncFake.closed
    )
    with pytest.raises(OSError, match="no brokers"):
        await consuming.start()
    await consuming.start()
    async with consumers:
        await until(lambda: script.exhausted)
    assert steps == ["build own", "close own", "build own", "join own", "build 20000"]


def test_a_change_that_comes_while_the_first_producer_is_built_is_offered_to_it(steps: list[str]) -> None:
    dynamic = DynamicProducerConfig(OWN, library=CONFLUENT_KAFKA, service=SERVICE, source=Script())

    def build(settings: dict[str, Any]) -> Fake:
        dynamic._follower.take(DynamicValues({"acks": "all"}))
        return Fake(settings, steps)

    SwappedProducer(dynamic, build=build, flush=Fake.flush, close=Fake.close)
    assert not dynamic._reconfigurables.settled(dynamic.settings)


def waits(swapped: AsyncSwappedConsumer[Any]) -> bool:
    return swapped.waiting


async def test_a_consumer_that_can_not_join_is_closed_and_the_next_call_makes_another(steps: list[str]) -> None:
    hindered = asyncio.Event()
    hindrances: list[Callable[[], Awaitable[object]]] = []

    async def refuse() -> None:
        raise OSError("no brokers")

    async def join(client: AsyncFake) -> None:
        if hindrances:
            hindered.set()
            await hindrances.pop(0)()
        await client.joined()

    dynamic = AsyncDynamicConsumerConfig(OWN, library=CONFLUENT_KAFKA, service=SERVICE, source=Script())
    swapped = AsyncSwappedConsumer(
        dynamic, build=lambda settings: AsyncFake(settings, steps), join=join, close=AsyncFake.closed
    )
    await swapped.start()
    await swapped.reconfigure({"session.timeout.ms": "20000"})
    hindrances += [refuse, asyncio.Event().wait]
    with pytest.raises(OSError, match="no brokers"):
        await swapped.current()
    assert waits(swapped)
    hindered.clear()
    cancelled = asyncio.create_task(swapped.current())
    await hindered.wait()
    cancelled.cancel()
    with pytest.raises(asyncio.CancelledError):
        await cancelled
    assert (await swapped.current()).name == "20000"
    assert not waits(swapped)
    assert steps[2:] == [
        *("build 20000", "close own", "close 20000"),
        *("build 20000", "close 20000", "build 20000", "join 20000"),
    ]


def test_callbacks_in_a_thread_of_the_library_use_the_producer_that_is_flushed(steps: list[str]) -> None:
    """So kafka-python calls back: its flush waits for the callbacks that run in its own thread."""
    own_thread = threading.Thread(target=lambda: None)
    dynamic = DynamicProducerConfig(OWN, library=CONFLUENT_KAFKA, service=SERVICE, source=Script())
    swapped = SwappedProducer(
        dynamic,
        build=lambda settings: Fake(settings, steps),
        flush=Fake.flush,
        close=Fake.close,
        calls_back_in=lambda _: own_thread,
    )
    seen: list[str] = []

    def call_back() -> None:
        with swapped.use() as current:
            seen.append(current.name)

    def flush_once() -> None:
        nonlocal own_thread
        with swapped.use() as current:
            current.on_flush = lambda: None
        own_thread = threading.Thread(target=call_back)
        own_thread.start()
        own_thread.join(10)

    with swapped.use() as old:
        old.on_flush = flush_once
    swapped.reconfigure({"acks": "all"})
    assert seen == ["own"]
    # What the callback sent is flushed as well, before records go to the new one.
    assert steps == ["build own", "build all", "flush own", "flush own", "close own"]


async def test_a_close_waits_for_a_swap_and_no_other_follows(steps: list[str]) -> None:
    flushing, go_on = threading.Event(), threading.Event()
    swapped = producer(steps)

    def wait() -> None:
        flushing.set()
        go_on.wait()

    with swapped.use() as old:
        old.on_flush = wait
    swapping = asyncio.create_task(asyncio.to_thread(swapped.reconfigure, {"acks": "all"}))
    await until(flushing.is_set)
    closing = asyncio.create_task(asyncio.to_thread(swapped.close))
    await until(lambda: closing.done() or is_waited_for(swapped))
    assert not closing.done()
    go_on.set()
    await swapping
    await closing
    swapped.reconfigure({"acks": "1"})
    assert [step for step in steps if step.startswith("close")][:2] == ["close own", "close all"]
    assert steps[-2:] == ["build 1", "close 1"]


async def test_in_tasks_the_steps_are_the_same(steps: list[str]) -> None:

    async def build(settings: dict[str, Any]) -> AsyncFake:
        return AsyncFake(settings, steps)

    producers = AsyncSwappedProducer(
        AsyncDynamicProducerConfig(OWN, library=CONFLUENT_KAFKA, service=SERVICE, source=Script()),
        build=build,
        flush=AsyncFake.flushed,
        close=AsyncFake.closed,
    )
    await producers.start()
    async with producers.use() as old:
        swapping = asyncio.create_task(producers.reconfigure({"acks": "all"}))
        await until(lambda: "build all" in steps)
        assert old.name == "own"
    await swapping
    async with producers.use() as current:
        assert current.name == "all"
    with pytest.raises(ValueError, match="refuses"):
        await producers.reconfigure({"acks": "bad"})
    await producers.close()
    assert steps == ["build own", "build all", "flush own", "close own", "flush all", "close all"]

    steps.clear()
    now = 0.0
    consumers = AsyncSwappedConsumer(
        AsyncDynamicConsumerConfig(OWN, library=CONFLUENT_KAFKA, service=SERVICE, source=Script()),
        build=lambda settings: AsyncFake(settings, steps),
        join=AsyncFake.joined,
        close=AsyncFake.closed,
        commit=AsyncFake.committed,
        clock=lambda: now,
    )
    await consumers.start()
    await consumers.reconfigure({"session.timeout.ms": "20000"})
    await consumers.reconfigure({"session.timeout.ms": "30000"})
    assert (await consumers.current()).name == "30000"
    await consumers.reconfigure({"session.timeout.ms": "40000"})
    assert (await consumers.current()).name == "30000", "it may not have joined its group yet"
    now = MIN_SWAP_INTERVAL_S
    assert (await consumers.current()).name == "40000"
    await consumers.close()
    assert steps == [
        *("build own", "join own", "build 20000", "build 30000", "close 20000"),
        *("commit own", "close own", "join 30000", "build 40000"),
        *("commit 30000", "close 30000", "join 40000", "commit 40000", "close 40000"),
    ]
