"""The end of a temporary change whose process is killed at each step: it is applied once, by another process."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Final

import pytest

from confplane.domain.entities import Entity
from tests.support import temporary_changes
from tests.support.waiting import until

if TYPE_CHECKING:
    from tests.support.world import World

RATE: Final = "producer_byte_rate"
ALICE: Final = Entity.of(user="alice")


@pytest.mark.parametrize("step", ["begin", "intent", "transaction", "outcome"])
async def test_an_end_whose_process_is_killed_at_a_step_is_applied_once(world: World, step: str) -> None:
    async with world.service(constants=temporary_changes.SOON) as first, first.client() as client:
        await client.put("client-quotas", ALICE, {RATE: 1})
        await client.schedules.pause("the step is prepared")
        await client.put("client-quotas", ALICE, {RATE: 2}, revert_at=temporary_changes.now())
        first.dies_at(step)
        await client.schedules.resume()
        await until(lambda: not first.running)
    async with world.service(constants=temporary_changes.SOON) as second, second.client() as client:
        await until(partial(temporary_changes.ended, client))
        [schedule], [end] = await temporary_changes.ended(client), await temporary_changes.ends(client)
        assert (schedule["state"], schedule["endChangeId"]) == ("ended", end["changeId"])
        assert (await client.get("client-quotas", ALICE, strong=True)).body["quotas"] == {RATE: 1}
