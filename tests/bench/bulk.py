"""Requests with many alters: their rate while a store grows, and a single alter beside them. No broker is registered."""

from __future__ import annotations

import statistics
import threading
import time
from typing import TYPE_CHECKING

from tests.bench.caller import QUOTAS, Caller
from tests.bench.rounds import Figure, alternate, column

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tests.bench.rounds import Sample
    from tests.bench.stage import Stage

_PATH = f"{QUOTAS}/user=alone"
_FIRST = 1_000_000_000


def measure(stage: Stage, *, rounds: int, seconds: float, entities: int, bulk: int) -> Iterator[Figure]:
    """Yield the figures of requests with ``bulk`` alters each, of up to ``entities`` entities."""
    share = max(bulk, entities // 10)
    name = f"Alters a second, requests of {bulk:,}"
    first, last = [], []
    for _ in range(rounds):
        with stage.service() as service:
            caller = Caller(service)
            rates = [
                share / sum(caller.alter_many(bulk, _FIRST, at) for at in range(begin, begin + share, bulk))
                for begin in range(0, entities, share)
            ]
        first.append(rates[0])
        last.append(rates[-1])
    yield Figure(f"{name}: the last {share:,} of {entities:,} new entities", "/s", last, f"the first {share:,}", first)
    yield from _beside(stage, rounds=rounds, seconds=seconds, bulk=bulk)


def _beside(stage: Stage, *, rounds: int, seconds: float, bulk: int) -> Iterator[Figure]:
    with stage.service() as service:
        caller, other = Caller(service), Caller(service)

        def alone(number: int) -> Sample:
            first = _FIRST + number * 1_000_000
            took: list[float] = []
            end = time.monotonic() + seconds
            while (begun := time.monotonic()) < end:
                caller("PUT", _PATH, f'{{"quotas":{{"producer_byte_rate":{first + len(took)}}}}}')
                took.append((time.monotonic() - begun) * 1000)
            took.sort()
            return statistics.median(took), took[len(took) * 99 // 100]

        def beside(number: int) -> Sample:
            enough = threading.Event()
            values = iter(range(_FIRST + number * 1_000_000, _FIRST + (number + 1) * 1_000_000))

            def send() -> None:
                while not enough.is_set():
                    other.alter_many(bulk, next(values))

            sender = threading.Thread(target=send)
            sender.start()
            try:
                return alone(rounds + number)
            finally:
                enough.set()
                sender.join()

        other.alter_many(bulk, _FIRST)
        alone(0)
        ours, reference = alternate(
            f"one alter at a time beside requests of {bulk:,} | alone, median ms", rounds, beside, alone, decimals=1
        )
    for index, goal in (0, "information"), (1, "0.50"):
        yield Figure(
            f"Alter of one entity beside requests of {bulk:,}: {('median', '99th percentile')[index]}",
            "ms",
            column(ours, index),
            "alone",
            column(reference, index),
            goal,
            decimals=1,
            less_is_better=True,
        )
