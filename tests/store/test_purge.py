"""The purge of notifications, and the notifications that it must leave."""

from __future__ import annotations

from typing import TYPE_CHECKING, cast

from confplane.domain.entities import Entity
from confplane.domain.facets import Tree
from tests.support.stores import ALICE, Late, committed, kafka_writes, pass_millisecond, soon, until, write

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from kazoo.client import KazooClient

    from confplane.store import ZooKeeperStore
    from confplane.store.session.session import Session

    Opener = Callable[..., Awaitable[ZooKeeperStore]]

ONE = b'{"version":1,"config":{"producer_byte_rate":"1"}}'


async def purged(store: ZooKeeperStore) -> int:
    """Run the purge once."""
    return await store._purger.purge(store._session_manager.current)


async def test_only_what_is_older_than_the_limit_goes(store: ZooKeeperStore, raw_zk: KazooClient) -> None:
    raw_zk.create("/brokers/ids/0", b"{}", makepath=True)
    for _ in range(3):
        kafka_writes(raw_zk, "users/alice", ONE)
    await store.catch_up(soon())
    assert await purged(store) == 0
    pass_millisecond(raw_zk)
    young = kafka_writes(raw_zk, "users/bob", ONE)
    stray = raw_zk.create("/config/changes/stray")
    await store.catch_up(soon())
    limit = raw_zk.exists(young).ctime + 15 * 60 * 1000
    assert await store._purger.purge(cast("Session", Late(store._session_manager.current, limit))) == 3
    assert {f"/config/changes/{name}" for name in raw_zk.get_children("/config/changes")} == {young, stray}
    assert any("'stray'" in str(warning) for warning in store.status().warnings)
    assert store.status().notifications == 2


async def test_oldest_above_the_cap_go_while_there_are_no_brokers(open_store: Opener, raw_zk: KazooClient) -> None:
    store = await open_store(notifications_max=10)
    follower = await open_store(notifications_max=10)
    copies = store._follower.mirror, follower._follower.mirror
    for number in range(25):
        await committed(store, write(Entity.of(user=f"u{number}"), {}))
    # Far above the cap the purge does not wait for its minute.
    await until(lambda: len(raw_zk.get_children("/config/changes")) <= 11)
    await follower.catch_up(soon())
    await purged(store)
    left = sorted(raw_zk.get_children("/config/changes"))
    assert left == [f"config_change_{number:010d}" for number in range(15, 25)]
    await committed(store, write(ALICE, {}))
    assert (await follower.catch_up(soon())) > 0
    assert follower.get(Tree.CONFIG, ALICE.id) is not None
    assert store._follower.mirror is copies[0]


async def test_nothing_young_goes_while_brokers_are_registered(open_store: Opener, raw_zk: KazooClient) -> None:
    store = await open_store(notifications_max=10)
    raw_zk.create("/brokers/ids/0", b"{}", makepath=True)
    await until(lambda: store.status().brokers_registered)
    for _ in range(25):
        kafka_writes(raw_zk, "users/alice", ONE)
    await store.catch_up(soon())
    assert await purged(store) == 0
    assert len(raw_zk.get_children("/config/changes")) == 25


async def test_what_was_not_recorded_is_kept_for_longer(store: ZooKeeperStore, raw_zk: KazooClient) -> None:
    raw_zk.create("/brokers/ids/0", b"{}", makepath=True)
    paths = [kafka_writes(raw_zk, "users/alice", ONE) for _ in range(6)]
    await store.catch_up(soon())
    recorded, last = raw_zk.exists(paths[1]).czxid, raw_zk.exists(paths[-1]).ctime

    async def left(minutes: int) -> int:
        await store._purger.purge(cast("Session", Late(store._session_manager.current, last + minutes * 60 * 1000)))
        return len(raw_zk.get_children("/config/changes"))

    store.recording.keep_notifications(recorded, 600)
    assert await left(14) == 6
    assert await left(16) == 4
    assert await left(59) == 4
    store.recording.keep_notifications(None, 600)
    assert await left(16) == 0


async def test_what_was_not_recorded_is_not_kept_for_ever(store: ZooKeeperStore, raw_zk: KazooClient) -> None:
    path = kafka_writes(raw_zk, "users/alice", ONE)
    await store.catch_up(soon())
    store.recording.keep_notifications(0, 600)
    late = raw_zk.exists(path).ctime + 61 * 60 * 1000
    assert await store._purger.purge(cast("Session", Late(store._session_manager.current, late))) == 1
