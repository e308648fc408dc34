"""Slices of long work, by a made-up clock."""

from __future__ import annotations

import asyncio
from itertools import pairwise
from types import SimpleNamespace

import pytest

from confplane.services import cooperative_yielding
from tests.support.waiting import PATIENCE_S

_OTHERS_S = 0.01


class _Clock:
    """Time that passes only by work, with the loop's turns in between."""

    def __init__(self) -> None:
        self.now = 0.0
        self.turns: list[float] = []

    def work(self, seconds: float) -> float:
        self.now += seconds
        return self.now

    async def other_task(self) -> None:
        """Take note of the time in each turn of the loop, and use some of it."""
        while True:
            self.turns.append(self.now)
            self.now += _OTHERS_S
            await asyncio.sleep(0)


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> _Clock:
    made = _Clock()
    monkeypatch.setattr(cooperative_yielding, "time", SimpleNamespace(monotonic=lambda: made.now))
    return made


async def _holds(clock: _Clock, *works: list[float]) -> list[float]:
    """Run lists of work one after another beside other tasks; return the seconds of each hold of the loop."""
    others = asyncio.create_task(clock.other_task())
    await asyncio.sleep(0)
    for items in works:
        assert len(await cooperative_yielding.in_slices(clock.work, items)) == len(items)
    await asyncio.sleep(0)
    others.cancel()
    holds = [later - earlier - _OTHERS_S for earlier, later in pairwise(clock.turns)]
    return [seconds for hold in holds if (seconds := round(hold, 6))]


async def test_other_tasks_run_once_a_slice_has_used_its_time(clock: _Clock) -> None:
    assert await _holds(clock, [0.0008] * 7) == [0.0024, 0.0024, 0.0008]


async def test_lists_of_work_one_after_another_hold_the_loop_no_longer_than_one(clock: _Clock) -> None:
    assert await _holds(clock, [0.0015], [0.0015], [0.0008, 0.0008]) == [0.0015, 0.0015, 0.0016]


async def test_short_lists_share_a_turn_of_the_loop(clock: _Clock) -> None:
    assert await _holds(clock, [0.0002], [0.0003], [0.0004]) == [0.0009]


async def test_a_turn_of_the_loop_has_a_slice_of_one_task_only(clock: _Clock) -> None:
    async def request() -> None:
        await cooperative_yielding.take_turn()
        await cooperative_yielding.in_slices(clock.work, [0.003] * 3)

    others = asyncio.create_task(clock.other_task())
    await asyncio.gather(*(request() for _ in range(5)))
    others.cancel()
    assert max(later - earlier for earlier, later in pairwise(clock.turns)) == pytest.approx(0.003 + _OTHERS_S)


async def test_long_work_begins_at_once_if_no_other_task_has_some() -> None:
    begun = cooperative_yielding.take_turn()
    with pytest.raises(StopIteration):
        begun.send(None)


async def test_a_task_that_was_cancelled_does_not_keep_its_turn() -> None:
    await cooperative_yielding.take_turn()
    first, second = (asyncio.create_task(cooperative_yielding.take_turn()) for _ in range(2))
    await asyncio.sleep(0)
    first.cancel()
    await asyncio.wait_for(second, PATIENCE_S)


def test_the_turns_of_a_loop_that_has_ended_do_not_delay_the_next_one() -> None:
    async def take(times: int) -> None:
        for _ in range(times):
            await cooperative_yielding.take_turn()

    async def leave_one() -> None:
        await cooperative_yielding.take_turn()
        asyncio.get_running_loop().stop()

    for _ in range(3):
        loop = asyncio.new_event_loop()
        with pytest.raises(RuntimeError):
            loop.run_until_complete(asyncio.wait({loop.create_task(leave_one()), loop.create_task(take(9))}))
        loop.close()
    asyncio.run(asyncio.wait_for(take(3), PATIENCE_S))


async def test_objects_are_freed_in_slices(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cooperative_yielding, "SLICE_S", 0.0)
    objects = [[number] for number in range(4 * cooperative_yielding.PIECE)]
    freeing = asyncio.create_task(cooperative_yielding.free_in_slices(objects))
    left = []
    while not freeing.done():
        left.append(len(objects))
        await asyncio.sleep(0)
    assert list(dict.fromkeys(left)) == [pieces * cooperative_yielding.PIECE for pieces in (4, 3, 2, 1, 0)]
