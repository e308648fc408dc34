"""Polls between two metadata offsets of the polled brokers.

A broker reports a metadata offset before it has applied the records up to there to the configs of brokers, groups and
client metrics that it describes. It has applied them when it reports its next offset (BrokerMetadataPublisher). A poll
of these configs is **settled** if it begins after the broker has passed the offset that bounds it.
"""

from __future__ import annotations

import asyncio
import time
from dataclasses import replace
from typing import TYPE_CHECKING, Final

from confplane.domain.errors import UnavailableError
from confplane.kraft.pool import fan_out
from confplane.kraft.wire import errors

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable
    from collections.abc import Set as AbstractSet

    from confplane.kraft.client import KraftClient
    from confplane.kraft.wire.options import Address
    from confplane.services.ports.kafka import Snapshot

_ATTEMPTS: Final = 3
_SETTLED_S: Final = 1.5
"""Seconds after which an offset is settled even without a next one. Controllers write a record every half second,
unless ``metadata.max.idle.interval.ms`` is set to another value."""
_PAUSE_S: Final = 0.05


async def poll_bounded(
    client: KraftClient,
    take_snapshot: Callable[[KraftClient], Awaitable[tuple[Snapshot, set[Address | None]]]],
    brokers: AbstractSet[int],
    by: Callable[[], float],
    *,
    settled: bool = False,
    settled_s: float = _SETTLED_S,
    pause_s: float = _PAUSE_S,
) -> Snapshot:
    """Poll between two offsets of the same brokers. A poll during a change of brokers is repeated.

    Args:
        client: The cluster.
        take_snapshot: Takes the snapshot, and returns it with the addresses of the polled brokers.
        brokers: Brokers that are polled for their own configs.
        by: Returns the deadline of one request.
        settled: Begin after the next offset, at most half a second later.
        settled_s: Seconds after which an offset is settled even without a next one.
        pause_s: The pause between two requests for the next offset.

    Raises:
        KraftError: The broker that serves all other requests is unavailable, or refuses the login.
        UnavailableError: The brokers changed during each poll.
    """
    for _ in range(_ATTEMPTS):
        at_ms = int(time.time() * 1000)
        before = await _offsets(client, brokers, by)
        if settled:
            await _settle(client, before, by, settled_s, pause_s)
        found, sources = await take_snapshot(client)
        after = await _offsets(client, brokers, by)
        # The offsets of a broker that disappeared or returned during the poll are ignored.
        known = [each for each in before.keys() & after.keys() if before[each][0] == after[each][0]]
        if None in known and sources <= {None, *(before[each][0] for each in known)}:
            first, last = min(before[each][1] for each in known), max(after[each][1] for each in known)
            return replace(found, after=first, until=last, at_ms=at_ms)
    raise UnavailableError("The connections to the brokers changed amid each look; another look follows")


async def _offsets(
    client: KraftClient, brokers: AbstractSet[int], by: Callable[[], float]
) -> dict[int | None, tuple[Address, int]]:
    """Return the metadata offset of each broker.

    The key None has that of the broker that serves all other requests.
    """

    async def ask(broker: int | None) -> tuple[Address, int] | None:
        try:
            features = await client.features(by(), broker)
        except errors.UnreachableError:
            if broker is None:
                raise
            return None  # it is omitted from the poll as well
        if features.offset < 0:
            raise UnavailableError(f"The broker at {features.source} names no metadata offset: it uses ZooKeeper")
        return features.source, features.offset

    asked = (None, *sorted(brokers))
    found = zip(asked, await fan_out(asked, ask), strict=True)
    return {broker: offset for broker, offset in found if offset is not None}


async def _settle(
    client: KraftClient,
    offsets: dict[int | None, tuple[Address, int]],
    by: Callable[[], float],
    settled_s: float,
    pause_s: float,
) -> None:
    """Wait until each broker has passed its offset, or has been replaced by another one."""
    end, waiting = time.monotonic() + settled_s, dict(offsets)
    while waiting and time.monotonic() < end:
        now = await _offsets(client, {broker for broker in waiting if broker is not None}, by)
        waiting = {
            broker: offset
            for broker, offset in waiting.items()
            if broker in now and now[broker][0] == offset[0] and now[broker][1] <= offset[1]
        }
        if waiting:
            await asyncio.sleep(pause_s)
