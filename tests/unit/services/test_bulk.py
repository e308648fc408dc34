"""The loads of one request: what goes when, and what waits for what."""

from __future__ import annotations

import asyncio
import time
from typing import TYPE_CHECKING

import pytest

from confplane.services.changes import bulk
from confplane.services.changes.bulk import Bulk, LoadSemaphores, Stage
from confplane.services.ports.trail import FEW
from tests.support.waiting import run_ready_tasks

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from confplane.services.changes.bulk import ReadyEdit


class BulkRun:
    """Loads as they are sent; each edit ends when the test says so, or at once."""

    def __init__(self, *chains: list[Stage], at_once: bool = True) -> None:
        self.bulk = Bulk(chains)
        self.loads: list[list[int]] = []
        self.planned: dict[int, dict[str, dict[str, str]]] = {}
        self.held: set[int] = set()
        self.going = asyncio.Event()
        self.most_at_once = self._now = 0
        if at_once:
            self.going.set()

    async def send(self, load: Sequence[ReadyEdit]) -> None:
        self.loads.append([each.position for each in load])
        self.planned |= {each.position: {name: dict(made) for name, made in each.planned.items()} for each in load}
        self._now += 1
        self.most_at_once = max(self.most_at_once, self._now)
        await self.going.wait()
        await asyncio.sleep(0)
        self._now -= 1
        for each in load:
            if each.position not in self.held:
                self.end(each.position)

    async def run(self) -> None:
        await self.bulk.run(self.send)

    def end(self, position: int) -> None:
        self.bulk.ended(position, (f"e{position}", {"made": str(position)}))


def alone(count: int) -> list[list[Stage]]:
    return [[Stage("", [position])] for position in range(count)]


async def test_all_edits_go_in_loads_that_are_bounded_a_few_at_once() -> None:
    sending = BulkRun(*alone(5 * bulk.MOST + 1))
    await sending.run()
    assert [len(load) for load in sending.loads] == [*[bulk.MOST] * 5, 1]
    assert [position for load in sending.loads for position in load] == list(range(5 * bulk.MOST + 1))
    assert sending.most_at_once == bulk.AT_ONCE


async def test_nothing_to_send() -> None:
    await BulkRun().run()


async def test_stages_go_one_after_another_and_know_what_those_of_other_ranks_made() -> None:
    sending = BulkRun([Stage("user", [0]), Stage("pair", [1, 2]), Stage("user", [3])], [Stage("user", [4])])
    await sending.run()
    assert sending.loads == [[0, 4], [1, 2], [3]]
    assert sending.planned == {
        0: {},
        4: {},
        1: {"e0": {"made": "0"}},
        2: {"e0": {"made": "0"}},
        3: {"e1": {"made": "1"}, "e2": {"made": "2"}},
    }


async def test_what_failed_made_nothing() -> None:
    sending = BulkRun([Stage("user", [0]), Stage("pair", [1])])
    sending.held = {0}
    running = asyncio.create_task(sending.run())
    await run_ready_tasks()
    sending.bulk.ended(0, None)
    await running
    assert sending.planned[1] == {}


async def test_one_that_takes_long_holds_up_its_own_chain_alone() -> None:
    sending = BulkRun([Stage("user", [0]), Stage("pair", [1])], [Stage("user", [2]), Stage("pair", [3])], *alone(0))
    sending.held = {0}
    running = asyncio.create_task(sending.run())
    await run_ready_tasks()
    assert sending.loads == [[0, 2], [3]]
    sending.end(0)
    await running
    assert sending.loads == [[0, 2], [3], [1]]


async def test_as_many_that_take_long_as_loads_may_go_hold_up_none() -> None:
    """An edit that goes by itself takes no load's place."""
    count = 3 * bulk.AT_ONCE * bulk.MOST
    sending = BulkRun(*alone(count))
    sending.held = set(range(0, count, bulk.MOST))
    running = asyncio.create_task(sending.run())
    await run_ready_tasks()
    assert len(sending.loads) == 3 * bulk.AT_ONCE
    assert not running.done()
    for position in sending.held:
        sending.end(position)
    await running


async def test_a_fault_ends_it() -> None:
    sending = BulkRun(*alone(2 * bulk.AT_ONCE * bulk.MOST))
    sending.held = {0}
    sending.going.clear()
    running = asyncio.create_task(sending.run())
    await run_ready_tasks()
    sending.bulk.failed(RuntimeError("a fault"))
    sending.going.set()
    with pytest.raises(RuntimeError, match="a fault"):
        await running
    assert len(sending.loads) == bulk.AT_ONCE


async def test_an_error_of_a_load_ends_it_after_the_running_loads() -> None:
    """Nothing of a request is sent behind its answer, and no load waits for an edit that never ends."""
    going = asyncio.Event()
    ended: list[int] = []
    sent: list[Sequence[ReadyEdit]] = []

    async def send(load: Sequence[ReadyEdit]) -> None:
        sent.append(load)
        if len(sent) == 1:
            await asyncio.sleep(0)
            raise RuntimeError("a fault")
        await going.wait()
        for each in load:
            the_bulk.ended(each.position, None)
            ended.append(each.position)

    the_bulk = Bulk(alone(2 * bulk.AT_ONCE * bulk.MOST))
    running = asyncio.create_task(the_bulk.run(send))
    await run_ready_tasks()
    assert not running.done()
    going.set()
    with pytest.raises(RuntimeError, match="a fault"):
        await running
    assert len(ended) == (bulk.AT_ONCE - 1) * bulk.MOST
    assert len(sent) == bulk.AT_ONCE


async def test_an_error_of_a_load_ends_the_wait_for_its_edits() -> None:
    async def send(_load: Sequence[ReadyEdit]) -> None:
        await asyncio.sleep(0)
        raise RuntimeError("a fault")

    before = asyncio.all_tasks()
    with pytest.raises(RuntimeError, match="a fault"):
        await Bulk(alone(2)).run(send)
    await asyncio.sleep(0)
    assert asyncio.all_tasks() == before


async def test_chains_are_begun_load_by_load() -> None:
    """A large request must not take the loop for the time of all its chains."""
    begun: list[int] = []

    class Chain(list[Stage]):
        def __iter__(self) -> Iterator[Stage]:
            begun.append(1)
            return super().__iter__()

    sending = BulkRun(*(Chain(stages) for stages in alone(5 * bulk.MOST)))
    assert begun == []
    sending.going.clear()
    running = asyncio.create_task(sending.run())
    await run_ready_tasks()
    assert len(begun) == bulk.AT_ONCE * bulk.MOST
    sending.going.set()
    await running
    assert len(begun) == 5 * bulk.MOST


async def test_large_loads_of_all_requests_to_a_cluster_are_a_few_at_a_time() -> None:
    semaphores = LoadSemaphores()
    entered: list[int] = []
    going = asyncio.Event()

    async def load(number: int, edits: int, cluster: str = "one") -> None:
        async with semaphores.slot(cluster, edits, time.monotonic() + 60):
            entered.append(number)
            await going.wait()

    large = [asyncio.create_task(load(number, bulk.MOST)) for number in range(bulk.AT_ONCE + 3)]
    await run_ready_tasks()
    assert entered == list(range(bulk.AT_ONCE))
    # A small load, and one to another cluster, wait for none of them.
    others = [asyncio.create_task(load(100, FEW)), asyncio.create_task(load(101, bulk.MOST, "another"))]
    await run_ready_tasks()
    assert entered[bulk.AT_ONCE :] == [100, 101]
    going.set()
    await asyncio.gather(*large, *others)
    assert entered == [*range(bulk.AT_ONCE), 100, 101, *range(bulk.AT_ONCE, bulk.AT_ONCE + 3)]


@pytest.mark.parametrize("cancelled", [False, True])
async def test_a_load_waits_for_other_loads_until_the_deadline_at_most(*, cancelled: bool) -> None:
    semaphores = LoadSemaphores()
    going, entered = asyncio.Event(), 0

    async def load(seconds: float) -> None:
        nonlocal entered
        async with semaphores.slot("one", bulk.MOST, time.monotonic() + seconds):
            entered += 1
            await going.wait()

    running = [asyncio.create_task(load(60)) for _ in range(bulk.AT_ONCE)]
    late = asyncio.create_task(load(60 if cancelled else 0))
    await run_ready_tasks()
    assert entered == bulk.AT_ONCE + (not cancelled)
    if cancelled:
        late.cancel()
    going.set()
    await asyncio.gather(*running)
    await asyncio.wait({late})
    assert late.cancelled() is cancelled
    # Neither took a place with it.
    async with asyncio.timeout(60):
        for _ in range(bulk.AT_ONCE + 1):
            async with semaphores.slot("one", bulk.MOST, time.monotonic() + 60):
                pass
    assert semaphores._semaphores["one"]._value == bulk.AT_ONCE
