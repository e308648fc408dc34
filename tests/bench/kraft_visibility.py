"""The time until a change by another client of Kafka is in an answer of an observing service."""

from __future__ import annotations

import asyncio
import json
import threading
import time
from typing import TYPE_CHECKING, Final

from tests.bench.caller import QUOTAS, Caller
from tests.bench.kraft_describes import DEADLINE_S
from tests.bench.rounds import summary
from tests.support.kraft_client import client_of
from tests.support.kraft_writer import KraftWriter

if TYPE_CHECKING:
    from tests.bench.rounds import Sample
    from tests.support.kraft import KraftNode
    from tests.support.service import Service

_SPACING_S: Final = 0.05
_POLL_S: Final = 0.002


async def latencies(node: KraftNode, service: Service, changes: int) -> tuple[Sample, Sample]:
    """Alter users one after another; return when each was shown, after the request: by the service, by the broker."""
    sent = [0.0] * changes
    shown: list[dict[int, float]] = [{}, {}]
    stop = threading.Event()

    def note(seen: dict[int, float], users: set[str]) -> None:
        now = time.perf_counter()
        for number in range(changes):
            if number not in seen and f"seen-{number:04d}" in users:
                seen[number] = now

    def by_service() -> None:
        caller = Caller(service)
        while not stop.is_set() and len(shown[0]) < changes:
            items = json.loads(caller("GET", f"{QUOTAS}?pageSize=1000"))["items"]
            note(shown[0], {each["id"].removeprefix("user=") for each in items})
            time.sleep(_POLL_S)

    async def by_broker() -> None:
        async with client_of(node.bootstrap) as client:
            while len(shown[1]) < changes:
                found = await client.describe_quotas(None, time.monotonic() + DEADLINE_S)
                assert found.entries is not None
                note(shown[1], {each.entity[0][1] or "" for each in found.entries})
                await asyncio.sleep(_POLL_S)

    async def write() -> None:
        async with KraftWriter(node.bootstrap) as writer:
            for number in range(changes):
                sent[number] = time.perf_counter()
                await writer.quotas(({"user": f"seen-{number:04d}"}, {"producer_byte_rate": 1.0}))
                await asyncio.sleep(_SPACING_S)

    try:
        async with asyncio.timeout(DEADLINE_S):
            await asyncio.gather(write(), by_broker(), asyncio.to_thread(by_service))
    finally:
        stop.set()
    async with KraftWriter(node.bootstrap) as writer:
        await writer.quotas(
            *(({"user": f"seen-{number:04d}"}, {"producer_byte_rate": None}) for number in range(changes))
        )
    ours, theirs = (summary([seen[number] - sent[number] for number in range(changes)]) for seen in shown)
    return ours, theirs
