"""Large copies: no collection walks them, and none is freed at once."""

from __future__ import annotations

import asyncio
import gc
import logging
import weakref
from typing import TYPE_CHECKING, Any

import pytest
from kazoo.exceptions import ConnectionLoss

from confplane.domain.changes import Node
from confplane.domain.facets import Tree
from confplane.services import cooperative_yielding
from confplane.store.mirror import loader, memory
from confplane.store.mirror.nodes import Mirror
from tests.support.stores import facets, kafka_writes, skip_notification, soon, until

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Iterator

    from kazoo.client import KazooClient

    from confplane.store import ZooKeeperStore

    Opener = Callable[..., Awaitable[ZooKeeperStore]]

ONE = b'{"version":1,"config":{"producer_byte_rate":"1"}}'


@pytest.fixture
def few(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Few nodes count as many."""
    monkeypatch.setattr(memory, "collector", memory.Collector(2))
    yield
    assert gc.isenabled()


def filled(count: int) -> Mirror:
    mirror = Mirror({Tree.CONFIG: facets()})
    for number in range(count):
        ids = f"user=u{number % 100},client-id=c{number}"
        mirror.trees[Tree.CONFIG].put_node(Node(ids, ("acks", "1"), 0, number, number, number))
    return mirror


def tracked(node: Node) -> bool:
    """True where a collection walks the node."""
    return any(each is node for each in gc.get_objects())


@pytest.mark.usefixtures("few")
async def test_collections_rest_during_a_load_and_walk_no_loaded_node(
    open_store: Opener, raw_zk: KazooClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    for number in range(3):
        kafka_writes(raw_zk, f"users/u{number}", ONE)
    enabled: list[bool] = []
    take = loader.apply_nodes

    def noted(*args: Any) -> None:
        enabled.append(gc.isenabled())
        take(*args)

    monkeypatch.setattr(loader, "apply_nodes", noted)
    store = await open_store()
    assert enabled
    assert not any(enabled)
    nodes = list(store._follower.loaded().trees[Tree.CONFIG].nodes.values())
    assert len(nodes) == 3
    assert not any(map(tracked, nodes))


@pytest.mark.usefixtures("few")
async def test_a_load_that_fails_leaves_the_collector_on(
    open_store: Opener, raw_zk: KazooClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = await open_store()
    load, failures = loader.load, iter([ConnectionLoss()])

    async def once(*args: Any) -> None:
        for failure in failures:
            assert not gc.isenabled()
            raise failure
        await load(*args)

    monkeypatch.setattr(loader, "load", once)
    skip_notification(raw_zk)
    await until(lambda: store._follower.trouble == "ConnectionLoss")
    assert gc.isenabled()
    await until(lambda: store._follower.loads == 2)


def test_the_progress_of_a_load_is_logged_every_ten_seconds(caplog: pytest.LogCaptureFixture) -> None:
    times = iter((100.0, 109.0, 110.0, 112.0, 119.9, 120.0))
    progress = loader.LoadProgress("default", lambda: next(times))
    progress.listed = 90
    with caplog.at_level(logging.INFO, loader.__name__):
        for _ in range(5):
            progress.add(10)
    assert [record.getMessage() for record in caplog.records] == [
        "Cluster default: loading its configs: 20 of 90 nodes listed so far were read in 10 s",
        "Cluster default: loading its configs: 50 of 90 nodes listed so far were read in 20 s",
    ]


def test_few_nodes_are_walked_until_they_are_many(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(memory, "collector", memory.Collector(10))
    copies = [filled(6), filled(6)]
    for copy, walked in zip(copies, (True, False), strict=True):
        with memory.gc_paused(copy):
            assert not gc.isenabled()
        nodes = [each for some in copies for each in some.trees[Tree.CONFIG].nodes.values()]
        assert {tracked(node) for node in nodes} == {walked}


async def test_the_collector_rests_until_the_last_of_several_loads_ends() -> None:
    with memory.gc_paused(filled(1)):
        with memory.gc_paused(filled(1)):
            pass
        assert not gc.isenabled()
    assert gc.isenabled()


@pytest.fixture
def uncollected() -> Iterator[None]:
    """No collection runs."""
    gc.disable()
    yield
    gc.enable()


@pytest.mark.usefixtures("uncollected")
async def test_a_replaced_copy_is_freed_by_its_last_reference(store: ZooKeeperStore, raw_zk: KazooClient) -> None:
    kafka_writes(raw_zk, "users/alice", ONE)
    await store.catch_up(soon())
    copies = [weakref.ref(store._follower.loaded())]
    while len(copies) < 3:
        skip_notification(raw_zk)
        await until(lambda: store._follower.loads > len(copies))
        copies.append(weakref.ref(store._follower.loaded()))
    await until(lambda: [each() is None for each in copies] == [True, True, False])
    assert list(store._follower.loaded().trees[Tree.CONFIG].nodes) == ["user=alice"]


@pytest.mark.usefixtures("uncollected")
async def test_a_copy_whose_load_fails_is_freed_by_its_last_reference(
    store: ZooKeeperStore, raw_zk: KazooClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    kafka_writes(raw_zk, "users/alice", ONE)
    await store.catch_up(soon())
    copies: list[weakref.ref[Mirror]] = []
    take = loader.apply_nodes

    def fails(mirror: Mirror, *args: Any) -> None:
        if not copies:
            copies.append(weakref.ref(mirror))
            raise ConnectionLoss
        take(mirror, *args)

    monkeypatch.setattr(loader, "apply_nodes", fails)
    skip_notification(raw_zk)
    await until(lambda: store._follower.loads == 2)
    await until(lambda: copies[0]() is None)


async def test_a_copy_is_freed_in_slices_and_not_under_a_reader(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cooperative_yielding, "SLICE_S", 0.0)
    copy = filled(5_000)
    gone = weakref.ref(copy)
    reader = copy.trees[Tree.CONFIG].with_keys("client-configs", after=None, prefix="")
    first = next(reader)
    freeing = asyncio.create_task(memory.free(copy))
    del copy
    turns = 0
    while not freeing.done():
        await asyncio.sleep(0)
        turns += 1
    assert turns > 3 * 5_000 / cooperative_yielding.PIECE
    assert gone() is None
    assert len([first, *reader]) == 5_000
