"""A describe of one entity is a short read: it does not wait for its turn behind requests with long work."""

from __future__ import annotations

import asyncio
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any, Final

from confplane.services.cooperative_yielding import next_turn
from tests.support.inside import running_inside

if TYPE_CHECKING:
    from collections.abc import AsyncIterator
    from pathlib import Path

    from tests.support.inside import Inside
    from tests.support.servers import Database

WAITING: Final = 1000
"""Tasks with long work. Each takes a turn of the loop of its own, so a request behind them waits for as many turns."""
USER: Final = {"entityType": "user", "matchType": "exact", "match": "alice"}


class Turns:
    """The turns that other tasks with long work took."""

    def __init__(self) -> None:
        self.taken = 0

    async def take(self) -> None:
        while True:
            await next_turn()
            self.taken += 1

    @asynccontextmanager
    async def waiting(self) -> AsyncIterator[None]:
        """Have tasks wait for turns until the end of the context."""
        tasks = [asyncio.create_task(self.take()) for _ in range(WAITING)]
        await asyncio.sleep(0)
        try:
            yield
        finally:
            for each in tasks:
                each.cancel()
            await asyncio.wait(tasks)


async def _turns(inside: Inside, facet: str, **body: Any) -> int:
    """Return the turns of other tasks until a describe is answered."""
    turns = Turns()
    async with turns.waiting():
        answer = await inside.send("admin", "POST", f"{facet}:describe", body)
        taken = turns.taken
    assert answer.status_code == 200, answer.text
    assert [each["entity"][0]["entityName"] for each in answer.json()["entries"]] == ["alice"]
    return taken


async def test_a_describe_of_one_entity_waits_for_no_turn(chroot: str, migrated: Database, tmp_path: Path) -> None:
    async with running_inside(chroot, migrated, tmp_path) as inside:
        for facet, body in (
            ("client-quotas", {"quotas": {"producer_byte_rate": 1}}),
            ("client-configs", {"configs": {"acks": "all"}}),
        ):
            written = await inside.send("admin", "PUT", f"{facet}/user=alice", body)
            assert written.status_code == 200, written.text
            assert await _turns(inside, facet, components=[USER], strict=True) < WAITING
        # A filter that may select many entities is long work, which begins in its turn.
        assert await _turns(inside, "client-quotas", components=[USER]) >= WAITING
