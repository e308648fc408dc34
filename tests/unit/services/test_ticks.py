"""Ticks and batches: loops of several clusters poll in the same iteration of the event loop, in one statement."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

import pytest

from confplane.audit.batcher import Batcher
from confplane.services.ticks import Ticks

if TYPE_CHECKING:
    from collections.abc import Sequence


async def test_loops_that_wait_for_a_tick_send_one_batch() -> None:
    sent: list[Sequence[str]] = []

    async def send(requests: Sequence[str]) -> list[str]:
        sent.append(list(requests))
        return [request.upper() for request in requests]

    ticks, batcher = Ticks(), Batcher(send)

    async def poll(name: str) -> list[str]:
        found = []
        for _ in range(3):
            await ticks.wait(0.001)
            found.append(await batcher.request(name))
        return found

    assert tuple(await asyncio.gather(poll("a"), poll("b"), poll("c"))) == (["A"] * 3, ["B"] * 3, ["C"] * 3)
    assert sent == [["a", "b", "c"]] * 3


async def test_a_loop_that_is_late_delays_no_other_and_joins_the_next_tick() -> None:
    ticks, ticked, late = Ticks(), [0], asyncio.Event()

    async def poll() -> None:
        while ticked[0] < 3:
            await ticks.wait(0.001)
            ticked[0] += 1
        late.set()

    async def hang() -> int:
        await ticks.wait(0.001)
        await late.wait()
        await ticks.wait(0.001)
        return ticked[0]

    assert (await asyncio.gather(hang(), poll()))[0] == 3


async def test_requests_of_a_later_iteration_do_not_wait_for_a_batch_that_hangs() -> None:
    hanging = asyncio.Event()

    async def send(requests: Sequence[int]) -> Sequence[int]:
        if 1 in requests:
            await hanging.wait()
        return requests

    batcher = Batcher(send)
    first = asyncio.create_task(batcher.request(1))
    await asyncio.sleep(0)
    await asyncio.sleep(0)
    assert await batcher.request(2) == 2
    assert not first.done()
    hanging.set()
    assert await first == 1


async def test_an_error_reaches_all_of_a_batch_and_the_end_of_one_caller_no_other() -> None:
    async def send(requests: Sequence[int]) -> Sequence[int]:
        await asyncio.sleep(0)
        if 0 in requests:
            raise ZeroDivisionError
        return requests

    batcher = Batcher(send)
    found = await asyncio.gather(batcher.request(0), batcher.request(1), return_exceptions=True)
    assert [type(each) for each in found] == [ZeroDivisionError] * 2

    gone, stays = asyncio.create_task(batcher.request(2)), asyncio.create_task(batcher.request(3))
    await asyncio.sleep(0)
    gone.cancel()
    assert await stays == 3
    with pytest.raises(asyncio.CancelledError):
        await gone
