"""The end of a temporary change whose process is killed at each step: it is applied once, by another process."""

from __future__ import annotations

from datetime import UTC, datetime
from functools import partial
from typing import TYPE_CHECKING, Any, Final

import pytest

from confplane.domain.entities import Entity
from tests.support.waiting import until
from tests.support.world import RECORDING

if TYPE_CHECKING:
    from tests.support.facets import ConfplaneClient
    from tests.support.world import World

RATE: Final = "producer_byte_rate"
HOUR_S: Final = 3_600
ALICE: Final = Entity.of(user="alice")
SOON: Final = {
    **RECORDING,
    "confplane.services.schedules.service.SHORTEST_S": -HOUR_S,
    "confplane.services.schedules.scheduler.INTERVAL_S": 0.2,
}
"""Constants of a service that accepts ends in the past, and ends due changes at once."""


def _now() -> str:
    return datetime.now(UTC).isoformat()


async def _ended(client: ConfplaneClient) -> list[dict[str, Any]]:
    return [each async for each in client.items("schedules", ended="true")]


async def _ends(client: ConfplaneClient) -> list[dict[str, Any]]:
    """The committed ends of temporary changes."""
    return [each async for each in client.items("audit", outcome="committed") if each["ends"] is not None]


@pytest.mark.parametrize("step", ["begin", "intent", "transaction", "outcome"])
async def test_an_end_whose_process_is_killed_at_a_step_is_applied_once(world: World, step: str) -> None:
    async with world.service(constants=SOON) as first, first.client() as client:
        await client.put("client-quotas", ALICE, {RATE: 1})
        await client.schedules.pause("the step is prepared")
        await client.put("client-quotas", ALICE, {RATE: 2}, revert_at=_now())
        first.dies_at(step)
        await client.schedules.resume()
        await until(lambda: not first.running)
    async with world.service(constants=SOON) as second, second.client() as client:
        await until(partial(_ended, client))
        [schedule], [end] = await _ended(client), await _ends(client)
        assert (schedule["state"], schedule["endChangeId"]) == ("ended", end["changeId"])
        assert (await client.get("client-quotas", ALICE, strong=True)).body["quotas"] == {RATE: 1}
