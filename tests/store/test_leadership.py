"""One process leads a cluster, and another takes over when it is gone."""

from __future__ import annotations

import asyncio
import json
import os
from typing import TYPE_CHECKING

import pytest

from confplane.domain.errors import UnavailableError
from confplane.store.leadership import UNREADABLE, ZooKeeperLeadership
from tests.support.stores import soon, until

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from kazoo.client import KazooClient

    from confplane.store import ZooKeeperStore
    from tests.support.proxy import Proxy

    Opener = Callable[..., Awaitable[ZooKeeperStore]]

LEADER = "/confplane/leader"
TARGET = "/confplane/target"
ADOPTED = {"kind": "kraft", "mode": "adopt", "cluster_id": "x", "imported": True, "paused": False}
LONG_MS = 20_000
"""A session's timeout that no pause of the machine comes near."""


async def leads(store: ZooKeeperStore, seconds: float = 60.0) -> None:
    """Wait until a store leads."""
    await until(lambda: store.leadership.seek(soon()), seconds)


def is_leading(store: ZooKeeperStore) -> bool:
    return store.leadership.held


def leader_of(store: ZooKeeperStore) -> str | None:
    assert isinstance(store.leadership, ZooKeeperLeadership)
    return store.leadership.leader


async def test_the_first_to_seek_leads_and_says_who_it_is(open_store: Opener, raw_zk: KazooClient) -> None:
    first, second = [await open_store(session_timeout_ms=LONG_MS) for _ in range(2)]
    assert not is_leading(first)
    assert await first.leadership.seek(soon())
    assert not await second.leadership.seek(soon())
    assert is_leading(first)
    assert not is_leading(second)
    assert await first.leadership.seek(soon())
    data, stat = raw_zk.get(LEADER)
    assert json.loads(data)["writer"] == first.writer()
    assert stat.ephemeralOwner
    assert leader_of(first) == leader_of(second)
    assert str(leader_of(first)).endswith(f":{os.getpid()}")


async def test_processes_of_a_release_without_states_by_key_lead_first(open_store: Opener, raw_zk: KazooClient) -> None:
    store = await open_store(session_timeout_ms=LONG_MS)
    assert await store.leadership.seek(soon())
    assert not store.status().warnings
    raw_zk.create("/confplane/writers/0123", ephemeral=True)
    raw_zk.set(TARGET, json.dumps({"version": 1, **ADOPTED}).encode())
    await until(lambda: store.target() is not None)
    # The leader steps down at once, so that the other process leads.
    for _ in range(2):
        assert not await store.leadership.seek(soon())
        assert not is_leading(store)
        assert raw_zk.exists(LEADER) is None
    [warning] = store.status().warnings
    assert str(warning).endswith("applies changes once they have stopped (1 registered)")
    assert not await store.claim_states(soon())
    assert json.loads(raw_zk.get(TARGET)[0])["version"] == 1
    raw_zk.delete("/confplane/writers/0123")
    assert await store.leadership.seek(soon())
    assert not store.status().warnings
    for _ in range(2):
        assert await store.claim_states(soon())
    assert json.loads(raw_zk.get(TARGET)[0]) == {"version": 3, **ADOPTED}
    # It applies nothing later, so nothing waits for it.
    raw_zk.create("/confplane/writers/0123", ephemeral=True)
    await until(lambda: (target := store.target()) is not None and target.states_by_key)
    assert await store.leadership.seek(soon())


async def test_of_many_at_once_one_leads(open_store: Opener) -> None:
    stores = [await open_store() for _ in range(4)]
    assert sum(await asyncio.gather(*(store.leadership.seek(soon()) for store in stores))) == 1


async def test_another_leads_when_the_leader_stops(open_store: Opener) -> None:
    first, second = await open_store(), await open_store()
    await leads(first)
    await first.stop()
    assert not is_leading(first)
    await leads(second)


async def test_leading_ends_when_the_connection_goes_down(zk_proxy: Proxy, chroot: str, open_store: Opener) -> None:
    first = await open_store(zk_proxy.connect(chroot), session_timeout_ms=2_000)
    second = await open_store()
    await leads(first)
    zk_proxy.accepting = False
    zk_proxy.cut()
    await until(lambda: not is_leading(first))
    with pytest.raises(UnavailableError):
        await first.leadership.seek(soon())
    await leads(second)
    zk_proxy.accepting = True
    await until(lambda: first.status().connected)
    assert not await first.leadership.seek(soon())


async def test_leading_ends_by_our_own_clock_when_the_server_is_silent(
    zk_proxy: Proxy, chroot: str, open_store: Opener
) -> None:
    store, now = await open_store(zk_proxy.connect(chroot), session_timeout_ms=LONG_MS), 0.0
    leadership = ZooKeeperLeadership("default", store._session_manager, store._gate, store._guard, clock=lambda: now)
    assert await leadership.seek(soon())
    for now, led in ((LONG_MS / 1000 - 0.1, True), (LONG_MS / 1000, False)):  # noqa: B007 - the clock reads it
        assert leadership.held is led
    assert store.status().connected
    zk_proxy.replies.clear()
    with pytest.raises(UnavailableError):
        await leadership.seek(soon(0.2))
    assert not leadership.held
    zk_proxy.replies.set()
    await until(lambda: store.status().connected)


async def test_a_session_that_ended_leads_no_more(open_store: Opener, raw_zk: KazooClient) -> None:
    store = await open_store()
    await leads(store)
    writer = store.writer()
    raw_zk.delete(f"/confplane/writers/{writer}")
    with pytest.raises(UnavailableError):
        await store.leadership.seek(soon())
    await until(lambda: store.status().connected and store.writer() != writer)
    await leads(store)
    assert json.loads(raw_zk.get(LEADER)[0])["writer"] == store.writer()


async def test_a_node_that_is_of_no_session_stands_in_nobodys_way(store: ZooKeeperStore, raw_zk: KazooClient) -> None:
    raw_zk.create(LEADER, b'{"version":1,"process":"old:1","writer":"w"}')
    assert await store.leadership.seek(soon())
    assert raw_zk.get(LEADER)[1].ephemeralOwner


async def test_a_node_that_can_not_be_read_is_somebodys(store: ZooKeeperStore, raw_zk: KazooClient) -> None:
    raw_zk.create(LEADER, b"me", ephemeral=True)
    assert not await store.leadership.seek(soon())
    assert leader_of(store) == UNREADABLE
    raw_zk.delete(LEADER)
    assert await store.leadership.seek(soon())
