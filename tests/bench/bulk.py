"""Requests with many alters: their rate while a store grows. No broker is registered."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tests.bench.caller import Caller
from tests.bench.rounds import Figure, progress

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tests.bench.stage import Stage

_FIRST = 1_000_000_000


def measure(stage: Stage, *, rounds: int, entities: int, bulk: int) -> Iterator[Figure]:
    """Yield the figure of requests with ``bulk`` alters each, which create ``entities`` entities."""
    share = max(bulk, entities // 10)
    first: list[float] = []
    last: list[float] = []
    for number in range(1, rounds + 1):
        with stage.service() as service:
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
