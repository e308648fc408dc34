"""Requests with many alters: their rate while a store grows, and the holds of the loop. No broker is registered."""

from __future__ import annotations

import itertools
from typing import TYPE_CHECKING

from tests.bench.caller import Caller
from tests.bench.event_loop_holds import service_with_longest_hold
from tests.bench.rounds import Figure, progress

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tests.bench.world import World

_FIRST = 1_000_000_000
_REQUESTS = 10
_HOLD_MS = 20.0
"""The goal of the longest hold."""


def measure(world: World, *, rounds: int, entities: int, bulk: int) -> Iterator[Figure]:
    """Yield the figure of requests with ``bulk`` alters each, which create ``entities`` entities."""
    share = max(bulk, entities // 10)
    first: list[float] = []
    last: list[float] = []
    for number in range(1, rounds + 1):
        with world.service() as service:
            caller = Caller(service)
            rates = [
                share / sum(caller.alter_many(bulk, _FIRST, at) for at in range(begin, begin + share, bulk))
                for begin in range(0, entities, share)
            ]
        first.append(rates[0])
        last.append(rates[-1])
        progress.print(
            f"  new entities by requests of {bulk:,}, the last {share:,} | the first, a second, round {number} of"
            f" {rounds}: {last[-1]:,.0f} | {first[-1]:,.0f}"
        )
    name = f"Requests of {bulk:,} alters: the last {share:,} of {entities:,} new entities"
    yield Figure(name, "/s", last, f"the first {share:,}", first)


def holds(world: World, *, rounds: int, bulk: int) -> Iterator[Figure]:
    """Yield the longest hold of the event loop during requests with ``bulk`` alters each."""
    longest_ms: list[float] = []
    with service_with_longest_hold(world) as (service, longest):
        caller, values = Caller(service), itertools.count(1)
        caller.alter_many(bulk, next(values))
        for number in range(1, rounds + 1):
            longest()
            for _ in range(_REQUESTS):
                caller.alter_many(bulk, next(values))
            longest_ms.append(longest() * 1000)
            progress.print(
                f"  longest hold in {_REQUESTS} requests of {bulk:,}, round {number} of {rounds}: {longest_ms[-1]:.0f} ms"
            )
    name = f"Longest hold of the event loop in {_REQUESTS} requests of {bulk:,} alters"
    yield Figure(name, "ms", longest_ms, "the goal", [_HOLD_MS] * rounds, "1.00", less_is_better=True)
