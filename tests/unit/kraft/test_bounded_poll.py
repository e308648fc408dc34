"""Snapshots between two metadata offsets: settled ones, brokers that change, brokers that stand still."""

from __future__ import annotations

import asyncio
import time
from typing import TYPE_CHECKING, Any, cast

import pytest

from confplane.domain.errors import UnavailableError
from confplane.kraft.bounded_poll import poll_bounded
from confplane.kraft.views import Features
from confplane.kraft.wire.options import Address
from confplane.services.ports.kafka import Snapshot

if TYPE_CHECKING:
    from collections.abc import Callable

    from confplane.kraft.client import KraftClient

HERE, THERE = Address("here", 1), Address("there", 1)


class Broker:
    """Brokers whose offsets and addresses follow a script: one entry for each question, the last one for ever."""

    def __init__(self, *script: tuple[Address, int]) -> None:
        self.script = list(script)
        self.asked = 0

    async def features(self, _deadline: float, _broker: int | None = None) -> Features:
        source, offset = self.script[min(self.asked, len(self.script) - 1)]
        self.asked += 1
        return Features(source, offset, {}, {})

    async def snapshot(self, *, told: Callable[[], None] = lambda: None, **options: Any) -> Snapshot:
        async def snapshot(_: KraftClient) -> tuple[Snapshot, set[Address | None]]:
            told()
            return Snapshot((), (), 0, 0, 0), {HERE}

        client = cast("KraftClient", self)
        return await poll_bounded(client, snapshot, frozenset(), lambda: time.monotonic() + 60, **options)


async def test_a_snapshot_has_the_offsets_around_it() -> None:
    found = await Broker((HERE, 5), (HERE, 7)).snapshot(settled=False)
    assert (found.after, found.until) == (5, 7)


async def test_a_settled_snapshot_begins_after_the_next_offset() -> None:
    broker = Broker((HERE, 5), (HERE, 5), (HERE, 5), (HERE, 6), (HERE, 8))
    at: list[int] = []
    found = await broker.snapshot(settled=True, settled_s=60, pause_s=0, told=lambda: at.append(broker.asked))
    assert (found.after, found.until) == (5, 8)
    assert at == [4], "the look begins once the broker has passed the offset 5"


async def test_offsets_that_stand_still_count_after_a_while() -> None:
    found = await Broker((HERE, 5)).snapshot(settled=True, settled_s=0.05, pause_s=0.01)
    assert (found.after, found.until) == (5, 5)


async def test_a_snapshot_during_a_change_of_brokers_is_taken_again() -> None:
    found = await Broker((THERE, 9), (HERE, 5), (HERE, 5), (HERE, 6)).snapshot(settled=False)
    assert (found.after, found.until) == (5, 6)
    with pytest.raises(UnavailableError, match="changed amid each look"):
        await Broker((HERE, 5), (THERE, 9), (HERE, 5), (THERE, 9), (HERE, 5), (THERE, 9)).snapshot(settled=False)


class Together:
    """Brokers that answer once all of them are asked."""

    def __init__(self, brokers: set[int]) -> None:
        self.waiting = brokers
        self.all_asked = asyncio.Event()

    async def features(self, _deadline: float, broker: int | None = None) -> Features:
        if broker is not None:
            self.waiting = self.waiting - {broker}
            if not self.waiting:
                self.all_asked.set()
            await self.all_asked.wait()
        return Features(HERE, 5, {}, {})


async def test_brokers_are_asked_at_once() -> None:
    client = Together({1, 2, 3})

    async def snapshot(_: KraftClient) -> tuple[Snapshot, set[Address | None]]:
        return Snapshot((), (), 0, 0, 0), {HERE}

    async with asyncio.timeout(60):
        found = await poll_bounded(cast("KraftClient", client), snapshot, {1, 2, 3}, lambda: time.monotonic() + 60)
    assert (found.after, found.until) == (5, 5)
