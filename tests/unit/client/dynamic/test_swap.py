from __future__ import annotations

import asyncio
import threading
from typing import TYPE_CHECKING, Any

import pytest

from app.client.dynamic import (
    CONFLUENT_KAFKA,
    AsyncDynamicConsumerConfig,
    AsyncDynamicProducerConfig,
    DynamicConsumerConfig,
    DynamicProducerConfig,
)
from app.client.dynamic.swap import REST_S, SwappedConsumer, SwappedProducer
from app.client.dynamic.swap_async import AsyncSwappedConsumer, AsyncSwappedProducer
from tests.support.waiting import until
from tests.unit.client.dynamic.scripted import OWN, SERVICE, Script

if TYPE_CHECKING:
    from collections.abc import Callable


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


def test_a_producer_is_built_flushed_switched_and_closed() -> None:
    steps: list[str] = []
    swapped = producer(steps)
    swapped.reconfigure({"acks": "all"})
    with swapped.use() as current:
        assert current.name == "all"
    swapped.close()
    assert steps == ["build own", "build all", "flush own", "close own", "flush all", "close all"]


def test_a_producer_that_can_not_be_built_leaves_the_old_one() -> None:
    steps: list[str] = []
    swapped = producer(steps)
    with pytest.raises(ValueError, match="refuses"):
        swapped.reconfigure({"acks": "bad"})
    with swapped.use() as current:
        assert current.name == "own"
    assert steps == ["build own"]


def test_a_producer_that_can_not_be_flushed_stays_and_the_new_one_is_closed() -> None:
    steps: list[str] = []
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


async def test_a_swap_waits_for_uses_and_uses_wait_for_a_swap() -> None:
    steps: list[str] = []
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
    await asyncio.sleep(0.05)
    assert not using.done()
    go_on.set()
    assert await using == "all"
    await swapping


def test_a_callback_in_a_flush_uses_the_producer_that_is_flushed() -> None:
    steps: list[str] = []
    swapped = producer(steps)
    seen: list[str] = []

    def call_back() -> None:
        with swapped.use() as current:
            seen.append(current.name)

    with swapped.use() as old:
        old.on_flush = call_back
    swapped.reconfigure({"acks": "all"})
    assert seen == ["own"]


def test_a_consumer_commits_and_leaves_before_the_next_one_joins() -> None:
    steps: list[str] = []
    swapped = consumer(steps)
    assert swapped.current() is swapped.current()
    swapped.reconfigure({"session.timeout.ms": "20000"})
    assert steps == ["build own", "join own", "build 20000"]
    assert swapped.current().name == "20000"
    assert steps[3:] == ["commit own", "close own", "join 20000"]
    swapped.close()
    assert steps[6:] == ["commit 20000", "close 20000"]


def test_a_consumer_that_was_never_asked_for_is_closed() -> None:
    steps: list[str] = []
    swapped = consumer(steps, commit=None)
    swapped.reconfigure({"session.timeout.ms": "20000"})
    swapped.reconfigure({"session.timeout.ms": "30000"})
    assert steps[2:] == ["build 20000", "build 30000", "close 20000"]
    swapped.close()
    assert steps[5:] == ["close own", "close 30000"]


def test_a_consumer_that_took_the_place_of_another_stays_until_it_can_have_joined_its_group() -> None:
    steps: list[str] = []
    now = 0.0
    swapped = consumer(steps, commit=None, clock=lambda: now)
    swapped.reconfigure({"session.timeout.ms": "20000"})
    assert swapped.current().name == "20000", "the first change is taken over at once"
    now = REST_S / 2
    swapped.reconfigure({"session.timeout.ms": "30000"})
    swapped.reconfigure({"session.timeout.ms": "40000"})
    assert (swapped.current().name, swapped.waiting) == ("20000", True)
    now = REST_S
    assert (swapped.current().name, swapped.waiting) == ("40000", False)
    assert [step for step in steps if "join" in step] == ["join own", "join 20000", "join 40000"]


def test_a_failed_commit_leaves_the_old_consumer_until_the_next_call() -> None:
    steps: list[str] = []
    failures = [OSError("not committed")]

    def commit(current: Fake) -> None:
        if failures:
            raise failures.pop()
        current.commit()

    swapped = consumer(steps, commit=commit)
    swapped.reconfigure({"session.timeout.ms": "20000"})
    with pytest.raises(OSError, match="not committed"):
        swapped.current()
    assert swapped.current().name == "20000"
    assert steps[2:] == ["build 20000", "commit own", "close own", "join 20000"]


async def test_in_tasks_the_steps_are_the_same() -> None:
    steps: list[str] = []

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
    now = REST_S
    assert (await consumers.current()).name == "40000"
    await consumers.close()
    assert steps == [
        *("build own", "join own", "build 20000", "build 30000", "close 20000"),
        *("commit own", "close own", "join 30000", "build 40000"),
        *("commit 30000", "close 30000", "join 40000", "commit 40000", "close 40000"),
    ]
