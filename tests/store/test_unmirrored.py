"""A store without a mirror on a real ZooKeeper: it lists and reads entities, and writes its own znodes."""

from __future__ import annotations

from typing import TYPE_CHECKING

from kazoo.security import make_acl

from confplane.domain.entities import Entity
from confplane.domain.errors import UnavailableError
from confplane.domain.facets import Tree
from confplane.services.ports.cluster_states import Freeze
from confplane.services.ports.transactions import Committed, Guarded, StateWrite
from tests.support.stores import commit, facets, kafka_writes, rate, soon, until

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from kazoo.client import KazooClient

    from confplane.store import ZooKeeperStore

    Opener = Callable[..., Awaitable[ZooKeeperStore]]

PATHS = ("users/alice", "users/alice/clients/billing", "users/bob/clients/<default>", "clients/x", "topics/orders")
IDS = {"user=alice", "user=bob", "client-id=x", "topic=orders"}


async def test_it_lists_and_reads_all_entities_of_both_trees(open_store: Opener, raw_zk: KazooClient) -> None:
    store = await open_store(mirrored=False, facets=facets(Tree.CLIENT_CONFIGS))
    for path in PATHS:
        kafka_writes(raw_zk, path, rate(1))
    raw_zk.create("/config/users/not%zz", b"")  # no name in Kafka's spelling
    raw_zk.create(f"{Tree.CLIENT_CONFIGS}/users/carol", rate(2), makepath=True)
    recording = store.recording
    assert recording.trees == (Tree.CONFIG, Tree.CLIENT_CONFIGS)
    assert set(await recording.entities(Tree.CONFIG)) == IDS
    pairs = await recording.pairs(Tree.CONFIG, ["user=alice", "user=bob", "user=gone"])
    assert sorted(pairs) == ["user=alice,client-id=billing", "user=bob,client-id"]
    assert list(await recording.entities(Tree.CLIENT_CONFIGS)) == ["user=carol"]

    [node, absent] = await store.read_many(Tree.CONFIG, [Entity.of(user="alice"), Entity.of(user="gone")], soon())
    assert node is not None
    assert not isinstance(node, UnavailableError)
    assert node.config == {"producer_byte_rate": "1"}
    assert absent is None


async def test_it_reads_around_znodes_that_it_may_not_read(open_store: Opener, raw_zk: KazooClient) -> None:
    store = await open_store(mirrored=False)
    for path in PATHS:
        kafka_writes(raw_zk, path, rate(1))
    nobody = [make_acl("digest", "somebody:else", admin=True)]
    raw_zk.create("/config/users/closed", rate(1), acl=nobody)
    assert set(await store.recording.entities(Tree.CONFIG)) == {*IDS, "user=closed"}
    assert list(await store.recording.pairs(Tree.CONFIG, ["user=closed"])) == []
    [closed] = await store.read_many(Tree.CONFIG, [Entity.of(user="closed")], soon())
    assert isinstance(closed, UnavailableError)


async def test_it_follows_notifications_and_topics_without_a_copy(open_store: Opener, raw_zk: KazooClient) -> None:
    store = await open_store(mirrored=False)
    before = await store.catch_up(soon())
    kafka_writes(raw_zk, "topics/orders", rate(1))
    kafka_writes(raw_zk, "users/alice/clients/billing", rate(1))
    await until(lambda: store.status().revision > before and store.status().stale_ms is None)
    assert not any(sample.name == "entities" for sample in store.metrics())
    assert store.status().warnings == ()

    frozen = await store.read_state(Freeze, soon())
    write = StateWrite("/confplane/freeze", frozen.version, Freeze("look", "User:test", 1), frozen.czxid)
    assert isinstance(await commit(store, write, guarded=Guarded.NONE), Committed)
    assert store.status().frozen is not None
