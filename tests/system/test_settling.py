"""Writes cut off in the middle, in services as they run: each is applied and told so, or not and told so, and the trail agrees.

What must hold whatever happens: an entity's versions are the trail's committed changes, one each.
"""

from __future__ import annotations

import asyncio
import json
import signal
from typing import TYPE_CHECKING, Any

import pytest

from confplane.client import ClientError, ProblemError
from confplane.domain.entities import Entity
from tests.support.metrics import scrape
from tests.support.stepping import REASON
from tests.support.waiting import until
from tests.support.world import World

if TYPE_CHECKING:
    from pathlib import Path

    from kazoo.client import KazooClient

    from confplane.client import Answer
    from tests.support.facets import ConfplaneClient
    from tests.support.proxy import Proxy
    from tests.support.servers import Database

ALICE = Entity.of(user="alice")
NODE = "/config/users/alice"
COMMITS = "/confplane/commits"
LEADER = "/confplane/leader"
QUICK = {"confplane.services.upkeep.reconcile.INTERVAL_S": 0.2}
SWEEPING = {
    **QUICK,
    "confplane.services.upkeep.reconcile.SWEEP_AGE_S": 1.0,
    "confplane.services.upkeep.reconcile._SLACK_S": 1.0,
    "confplane.store.write.markers.RELEASE_SECONDS": 1.0,
    "confplane.services.upkeep.dropping.PERIOD_S": 1.0,
}


@pytest.fixture
def scene(tmp_path: Path, chroot: str, migrated: Database, raw_zk: KazooClient) -> World:
    return World(tmp_path, chroot, migrated, raw_zk, QUICK)


async def concluded(client: ConfplaneClient) -> list[dict[str, Any]]:
    """The trail of alice, oldest first, once nothing in it is open."""

    async def whole() -> list[dict[str, Any]]:
        items = [item async for item in client.items("audit", entity=ALICE.id)]
        return [] if any(item["outcome"] == "open" for item in items) else items[::-1]

    found: list[dict[str, Any]] = await until(whole)
    return found


async def step(client: ConfplaneClient, value: int) -> Answer[Any]:
    """The write that comes to the step."""
    return await client.alter("client-quotas", [(ALICE, {"producer_byte_rate": value})], reason=REASON)


def agrees(trail: list[dict[str, Any]], zk: KazooClient) -> None:
    """The trail's committed changes are the node's versions, one each."""
    stat = zk.exists(NODE)
    changes = [item for item in trail if item["outcome"] == "committed"]
    assert [item["entities"][0]["version"] for item in changes] == list(range(0 if stat is None else stat.version + 1))
    if stat is not None:
        assert int(changes[-1]["revision"]) == stat.mzxid


@pytest.mark.parametrize(("at", "outcome"), [("intent", "rejected"), ("transaction", "committed")])
async def test_a_leader_killed_during_a_write_is_followed_by_another_that_settles_it(
    scene: World, raw_zk: KazooClient, at: str, outcome: str
) -> None:
    async with (
        scene.service(step=f"{at}:SIGKILL", constants=SWEEPING) as one,
        scene.service(constants=SWEEPING) as two,
        one.client(timeout_s=300) as first,
        two.client(timeout_s=300) as second,
    ):
        await first.put("client-quotas", ALICE, {"producer_byte_rate": 1})
        await until(lambda: raw_zk.exists(LEADER))
        leader = json.loads(raw_zk.get(LEADER)[0])["process"]
        with pytest.raises(ClientError):
            await step(first, 2)
        assert await asyncio.to_thread(one.stop, kill=True) == -signal.SIGKILL
        trail = await concluded(second)
        assert [item["outcome"] for item in trail] == ["committed", outcome]
        agrees(trail, raw_zk)
        led = await until(lambda: raw_zk.exists(LEADER) and json.loads(raw_zk.get(LEADER)[0])["process"])
        assert led.endswith(f":{two.pid}")
        assert leader.endswith((f":{one.pid}", f":{two.pid}"))
        # Marker and abort marker go once they have done their work.
        await until(lambda: not raw_zk.get_children(COMMITS))
        told = await asyncio.to_thread(scrape, two)
        settled = {"rejected": "aborted", "committed": "committed"}[outcome]
        assert told("settlements_total", cluster="default", outcome=settled) >= 1
        assert told.total("settlements_total") == told("settlements_total", cluster="default", outcome=settled)
        # The first change's marker may have been dropped by the process that made it.
        assert told("markers_dropped_total", cluster="default") >= 1
        await until(lambda: scrape(two).get("open_changes", cluster="default") == 0)
        again = await second.put("client-quotas", ALICE, {"producer_byte_rate": 3})
        assert again.revision >= raw_zk.exists(NODE).mzxid
        agrees(await concluded(second), raw_zk)


async def test_a_lost_reply_to_an_applied_change_is_answered_with_its_revision(
    scene: World, zk_proxy: Proxy, raw_zk: KazooClient
) -> None:
    bob = Entity.of(user="bob", client_id="billing")
    async with scene.service(through=zk_proxy) as service, service.client(timeout_s=300) as client:
        await client.put("client-quotas", ALICE, {"producer_byte_rate": 1})
        # Its parents are known then, and need not be read.
        await client.put("client-quotas", Entity.of(user="bob", client_id="other"), {"producer_byte_rate": 1})
        zk_proxy.replies.clear()
        entries = [(ALICE, {"producer_byte_rate": 2}), (bob, {"consumer_byte_rate": 3})]
        writing = asyncio.create_task(client.alter("client-quotas", entries, atomic=True))
        await until(lambda: raw_zk.exists("/config/users/bob/clients/billing"))
        zk_proxy.cut()
        zk_proxy.replies.set()
        answer = await writing
        stat = raw_zk.exists(NODE)
        assert stat.mzxid == raw_zk.exists("/config/users/bob/clients/billing").czxid
        assert [int(entry["revision"]) for entry in answer.body["entries"]] == [stat.mzxid] * 2
        read = await client.get("client-quotas", ALICE)
        assert read.body["quotas"] == {"producer_byte_rate": 2}
        trail = await concluded(client)
        assert {entry["changeId"] for entry in answer.body["entries"]} == {trail[-1]["changeId"]}
        agrees(trail, raw_zk)


async def test_a_lost_reply_to_a_write_that_never_arrived_is_not_applied(
    scene: World, zk_proxy: Proxy, raw_zk: KazooClient
) -> None:
    async with scene.service(through=zk_proxy) as service, service.client(timeout_s=300) as client:
        await client.put("client-quotas", ALICE, {"producer_byte_rate": 1})
        zk_proxy.swallowing = True
        writing = asyncio.create_task(client.put("client-quotas", ALICE, {"producer_byte_rate": 2}))
        await until(lambda: zk_proxy.swallowed_a_write)
        zk_proxy.cut()
        zk_proxy.swallowing = False
        with pytest.raises(ProblemError) as caught:
            await writing
        assert (caught.value.status, caught.value.outcome) == (503, "not_applied")
        assert caught.value.retry_after_s is not None
        assert raw_zk.exists(NODE).version == 0
        trail = await concluded(client)
        assert [item["outcome"] for item in trail] == ["committed", "rejected"]
        agrees(trail, raw_zk)
