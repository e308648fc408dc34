"""A change in the feed whose writer died before it wrote an outcome, and whose marker is damaged."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

import pytest

from confplane.client import ClientError
from tests.integration.test_feed import RATE, quota, start, user
from tests.support.feeding import page

if TYPE_CHECKING:
    from tests.support.world import World


async def test_a_change_that_can_not_be_settled_does_not_stop_the_feed(world: World) -> None:
    """Its marker is damaged: what it wrote comes as an external change, and later changes come after it."""
    async with world.service() as one, world.service() as two:
        two.wait_recorded()
        position = await start(two)
        async with one.client() as writer, two.client() as other:
            one.dies_at("transaction")
            with pytest.raises(ClientError):
                await writer.put("client-quotas", user("undecided"), {RATE: 1})
            assert await asyncio.to_thread(one.died)
            [marker] = world.zk.get_children("/confplane/commits")
            world.zk.set(f"/confplane/commits/{marker}", b"damaged")
            await other.put("client-quotas", user("later"), {RATE: 2})
        found: list[dict[str, Any]] = []
        while len(found) < 2:
            answer = await page(two, after=position, wait="30")
            assert answer.status_code == 200, answer.text
            found += answer.json()["events"]
            position = answer.json()["position"]
    assert [(event["source"], *quota(event)) for event in found] == [
        ("external", ("user=undecided", None, 1)),
        ("confplane", ("user=later", None, 2)),
    ]
