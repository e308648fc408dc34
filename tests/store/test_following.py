"""The mirror follows external writes: brokers (entity, then notification), tools, other replicas."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

import pytest
from kazoo.exceptions import ConnectionLoss

from confplane.domain.entities import Entity
from confplane.domain.errors import UnavailableError
from confplane.domain.facets import Tree
from confplane.services.ports.store import SessionState
from confplane.services.ports.transactions import Conflict
from confplane.store.mirror import loader
from tests.support.stores import (
    ALICE,
    BILLING,
    commit,
    committed,
    facets,
    kafka_writes,
    mirror_paused,
    notify,
    skip_notification,
    soon,
    until,
    write,
)
from tests.support.waiting import run_ready_tasks

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from kazoo.client import KazooClient

    from confplane.domain.changes import Node
    from confplane.store import ZooKeeperStore
    from tests.support.proxy import Proxy

    Opener = Callable[..., Awaitable[ZooKeeperStore]]

ONE = b'{"version":1,"config":{"producer_byte_rate":"1"}}'
TWO = b'{"version":1,"config":{"producer_byte_rate":"2"}}'


def znodes_of(zk: KazooClient, root: str = "/config") -> dict[str, tuple[bytes | None, int]]:
    """All entity nodes as a plain client sees them: path -> (data, mzxid)."""
    found = {}
    for kind in ("users", "clients", "ips", "topics", "brokers"):
        for name in zk.get_children(f"{root}/{kind}"):
            paths = [f"{kind}/{name}"]
            if kind == "users" and "clients" in zk.get_children(f"{root}/users/{name}"):
                paths += [f"users/{name}/clients/{each}" for each in zk.get_children(f"{root}/users/{name}/clients")]
            for path in paths:
                data, stat = zk.get(f"{root}/{path}")
                found[Entity.from_path(path).id] = (data or None, stat.mzxid)
    return found


def mirrored(store: ZooKeeperStore, tree: Tree = Tree.CONFIG) -> dict[str, int]:
    """The contents of the mirror: id -> mzxid."""
    return {entity_id: node.mzxid for entity_id, node in store._follower.loaded().trees[tree].nodes.items()}


def same(store: ZooKeeperStore, zk: KazooClient) -> bool:
    """Compare the mirror with the znodes that a plain client sees."""
    return mirrored(store) == {entity_id: mzxid for entity_id, (_, mzxid) in znodes_of(zk).items()}


def value(node: Node | None) -> str | None:
    """The one quota of a node."""
    return None if node is None else node.config.get("producer_byte_rate")


async def test_everything_is_loaded(open_store: Opener, raw_zk: KazooClient) -> None:
    for path in ("users/alice", "users/<default>", "clients/<default>", "clients/c%201", "ips/1.2.3.4", "topics/t"):
        raw_zk.create(f"/config/{path}", ONE, makepath=True)
    for path in ("users/bob/clients/x", "users/bob/clients/<default>", "users/alice/clients/x", "brokers/0"):
        raw_zk.create(f"/config/{path}", TWO, makepath=True)
    raw_zk.create("/config/users/a+b", ONE)
    raw_zk.create("/config/users/broken", b"junk")
    raw_zk.create("/config/changes/_stray", makepath=True)
    store = await open_store()
    raw_zk.delete("/config/users/a+b")
    assert same(store, raw_zk)
    parent = store.get(Tree.CONFIG, "user=bob")
    assert parent is not None
    assert (parent.items, parent.version, parent.defect) == ((), 0, None)
    assert value(store.get(Tree.CONFIG, "user=alice,client-id=x")) == "2"
    assert [node.id for node in store.with_keys(Tree.CONFIG, "client-quotas")] == [
        "client-id",
        "client-id=c~201",
        "user",
        "user=alice",
        "user=alice,client-id=x",
        "user=bob,client-id",
        "user=bob,client-id=x",
        "user=broken",
    ]
    warnings = " | ".join(map(str, store.status().warnings))
    assert "'_stray'" in warnings
    assert "user=broken, does not hold JSON" in warnings
    assert "'/config/users/a+b'" in warnings


async def test_kafkas_writes_are_followed(store: ZooKeeperStore, raw_zk: KazooClient) -> None:
    kafka_writes(raw_zk, "users/alice", ONE)
    await until(lambda: value(store.get(Tree.CONFIG, "user=alice")) == "1")
    kafka_writes(raw_zk, "users/alice", TWO)
    kafka_writes(raw_zk, "users/bob/clients/<default>", TWO)
    last = kafka_writes(raw_zk, "clients/c%201", ONE)
    await store.wait_for(raw_zk.exists(last).czxid, soon())
    assert same(store, raw_zk)
    # The parent came with the pair, without a notification of its own.
    assert store.get(Tree.CONFIG, "user=bob") is not None
    raw_zk.delete("/config/clients/c%201")
    last = notify(raw_zk, "clients/c%201")
    await store.wait_for(raw_zk.exists(last).czxid, soon())
    assert store.get(Tree.CONFIG, "client-id=c~201") is None
    assert same(store, raw_zk)


@pytest.mark.parametrize("gone", ["/config/users/bob", "/config/users/bob/clients", "/config/users/bob/clients/x"])
async def test_recursive_deletes_take_all_below_along(store: ZooKeeperStore, raw_zk: KazooClient, gone: str) -> None:
    for path in ("users/bob", "users/bob/clients/x", "users/bob/clients/y", "users/bobby/clients/x"):
        kafka_writes(raw_zk, path, ONE)
    await store.catch_up(soon())
    assert same(store, raw_zk)
    raw_zk.delete(gone, recursive=True)
    last = notify(raw_zk, "users/bob/clients/x")
    await store.wait_for(raw_zk.exists(last).czxid, soon())
    assert same(store, raw_zk)


async def test_topics_come_and_go_without_a_notification(store: ZooKeeperStore, raw_zk: KazooClient) -> None:
    raw_zk.create("/config/topics/orders", b'{"version":1,"config":{"retention.ms":"1"}}')
    await until(lambda: store.get(Tree.CONFIG, "topic=orders") is not None)
    raw_zk.create("/config/topics/other", b'{"version":1,"config":{}}')
    raw_zk.delete("/config/topics/orders")
    await until(lambda: set(mirrored(store)) == {"topic=other"})


async def test_many_at_once(store: ZooKeeperStore, raw_zk: KazooClient) -> None:
    pending = []
    for number in range(1_200):
        batch = raw_zk.transaction()
        batch.create(f"/config/users/u{number}", ONE)
        batch.create(
            "/config/changes/config_change_", b'{"version":2,"entity_path":"users/u%d"}' % number, sequence=True
        )
        pending.append(batch.commit_async())
    for each in pending:
        each.get(timeout=60)
    await store.catch_up(soon())
    assert len(mirrored(store)) == 1_200
    assert same(store, raw_zk)


async def test_what_may_not_be_read_is_named_and_does_no_harm(open_store: Opener, raw_zk: KazooClient) -> None:
    raw_zk.create("/config/users/secret", ONE, makepath=True)
    raw_zk.create("/config/users/secret/clients/open", ONE, makepath=True)
    acls, _ = raw_zk.get_acls("/config/users/secret")
    raw_zk.set_acls("/config/users/secret", [acls[0]._replace(perms=0b11110)])
    store = await open_store()
    assert set(mirrored(store)) == {"user=secret,client-id=open"}
    assert "'/config/users/secret'" in " ".join(map(str, store.status().warnings))
    assert await commit(store, write(Entity.of(user="secret"), {})) == Conflict()
    with pytest.raises(UnavailableError, match="NoAuthError"):
        await store.read(Tree.CONFIG, Entity.of(user="secret"), soon())
    raw_zk.set_acls("/config/users/secret", acls)
    last = notify(raw_zk, "users/secret")
    await store.wait_for(raw_zk.exists(last).czxid, soon())
    assert same(store, raw_zk)
    assert not store.status().warnings


async def test_two_stores_see_each_others_writes(open_store: Opener, raw_zk: KazooClient) -> None:
    first, second = await open_store(), await open_store()
    assert first.writer() != second.writer()

    async def alter(store: ZooKeeperStore, user: str) -> None:
        version = None
        for number in range(20):
            config = {"producer_byte_rate": str(number)}
            result = await committed(store, write(Entity.of(user=user), config, version))
            version = result.nodes[0].version

    await asyncio.gather(*(alter(store, f"u{n}-{store.writer()}") for n in range(8) for store in (first, second)))
    last = await committed(first, write(BILLING, {"producer_byte_rate": "1"}))
    await second.wait_for(last.revision, soon())
    assert second.status().revision >= last.revision
    assert await first.catch_up(soon()) > last.revision
    assert mirrored(first) == mirrored(second)
    assert same(first, raw_zk)
    assert first._follower.loaded().trees[Tree.CONFIG].nodes == second._follower.loaded().trees[Tree.CONFIG].nodes
    assert first.status().notifications == second.status().notifications == len(raw_zk.get_children("/config/changes"))


async def test_catching_up_reaches_a_write_after_an_own_one_that_is_applied_already(
    store: ZooKeeperStore, raw_zk: KazooClient
) -> None:
    await store.catch_up(soon())
    waking = asyncio.create_task(store.catch_up(soon()))
    async with mirror_paused(store):
        await committed(store, write(BILLING, {"producer_byte_rate": "1"}))
        written = raw_zk.exists(raw_zk.create("/elsewhere")).czxid
        caught_up = asyncio.create_task(store.catch_up(soon()))
        await run_ready_tasks()
    assert await caught_up >= written
    await waking


async def test_separate_layout_reads_both_nodes(open_store: Opener, raw_zk: KazooClient) -> None:
    first = await open_store(facets=facets(Tree.CLIENT_CONFIGS))
    second = await open_store(facets=facets(Tree.CLIENT_CONFIGS))
    await committed(first, write(BILLING, {"acks": "1"}, tree=Tree.CLIENT_CONFIGS))
    last = kafka_writes(raw_zk, "users/alice/clients/billing", ONE)
    for store in (first, second):
        await store.wait_for(raw_zk.exists(last).czxid, soon())
        mine = store.get(Tree.CLIENT_CONFIGS, BILLING.id)
        assert mine is not None
        assert mine.config == {"acks": "1"}
        assert value(store.get(Tree.CONFIG, BILLING.id)) == "1"
        assert [node.id for node in store.with_keys(Tree.CLIENT_CONFIGS, "client-configs")] == [BILLING.id]
        assert [node.id for node in store.with_client_id(Tree.CONFIG, "billing")] == [BILLING.id]
        assert not list(store.with_keys(Tree.CONFIG, "client-quotas", prefix="user=alice", after=BILLING.id))
        assert set(mirrored(store, Tree.CLIENT_CONFIGS)) == {"user=alice", BILLING.id}
    third = await open_store(facets=facets(Tree.CLIENT_CONFIGS))
    assert mirrored(third, Tree.CLIENT_CONFIGS) == mirrored(first, Tree.CLIENT_CONFIGS)


# ---------------------------------------------------------------- gaps


async def test_notification_that_vanished_is_a_gap(store: ZooKeeperStore, raw_zk: KazooClient) -> None:
    kafka_writes(raw_zk, "users/alice", ONE)
    await store.catch_up(soon())
    before = store._follower.mirror
    batch = raw_zk.transaction()
    batch.create("/config/users/bob", ONE)
    batch.create("/config/changes/config_change_", b"", sequence=True)
    path = batch.commit()[1]
    raw_zk.delete(path)
    await until(lambda: store._follower.mirror is not before)
    assert same(store, raw_zk)


async def test_stray_child_uses_a_number_up(store: ZooKeeperStore, raw_zk: KazooClient) -> None:
    before = store._follower.mirror
    raw_zk.create("/config/changes/stray")
    last = kafka_writes(raw_zk, "users/alice", ONE)
    await store.wait_for(raw_zk.exists(last).czxid, soon())
    assert store._follower.mirror is not before
    assert any("'stray'" in str(warning) for warning in store.status().warnings)
    after = store._follower.mirror
    last = kafka_writes(raw_zk, "users/alice", TWO)
    await store.wait_for(raw_zk.exists(last).czxid, soon())
    assert value(store.get(Tree.CONFIG, "user=alice")) == "2"
    assert store._follower.mirror is after


async def test_a_recreated_changes_node_is_a_gap(store: ZooKeeperStore, raw_zk: KazooClient) -> None:
    for _ in range(3):
        kafka_writes(raw_zk, "users/alice", ONE)
    await store.catch_up(soon())
    raw_zk.delete("/config/changes", recursive=True)
    kafka_writes(raw_zk, "users/bob", TWO)
    await until(lambda: value(store.get(Tree.CONFIG, "user=bob")) == "2")
    assert same(store, raw_zk)
    await committed(store, write(ALICE, {"producer_byte_rate": "7"}, raw_zk.exists("/config/users/alice").version))


async def test_purge_of_what_was_read_is_no_gap(store: ZooKeeperStore, raw_zk: KazooClient) -> None:
    paths = [kafka_writes(raw_zk, "users/alice", ONE) for _ in range(3)]
    await store.catch_up(soon())
    before = store._follower.mirror
    for path in paths:
        raw_zk.delete(path)
    await store.catch_up(soon())
    last = kafka_writes(raw_zk, "users/alice", TWO)
    await store.wait_for(raw_zk.exists(last).czxid, soon())
    assert value(store.get(Tree.CONFIG, "user=alice")) == "2"
    assert store._follower.mirror is before


# ---------------------------------------------------------------- revisions


async def test_catch_up_reaches_the_moment_of_the_call(store: ZooKeeperStore, raw_zk: KazooClient) -> None:
    for number in range(20):
        data = b'{"version":1,"config":{"producer_byte_rate":"%d"}}' % number
        last = kafka_writes(raw_zk, "users/alice", data)
        revisions = await asyncio.gather(*(store.catch_up(soon()) for _ in range(3)))
        assert min(revisions) > raw_zk.exists(last).czxid
        assert value(store.get(Tree.CONFIG, "user=alice")) == str(number)


async def test_wait_for(store: ZooKeeperStore, raw_zk: KazooClient) -> None:
    await store.wait_for(store.status().revision, soon(-1))
    # A zxid that was no notification's: met because a write shows nothing newer.
    raw_zk.create("/elsewhere")
    await store.wait_for(raw_zk.exists("/elsewhere").czxid, soon())
    with pytest.raises(UnavailableError):
        await store.wait_for(store.status().revision + 1_000_000, soon(0.1))
    assert not store._follower._waiting


async def test_own_commit_never_hides_a_predecessor(store: ZooKeeperStore, raw_zk: KazooClient) -> None:
    """An own commit behind an unread notification is applied, but the revision waits for that notification."""
    before = store.status().revision
    async with mirror_paused(store):
        kafka_writes(raw_zk, "users/bob", ONE)
        own = await committed(store, write(ALICE, {"producer_byte_rate": "1"}))
        assert store.get(Tree.CONFIG, ALICE.id) == own.nodes[0]
        assert store.get(Tree.CONFIG, "user=bob") is None
        assert store.status().revision == before
    await store.wait_for(own.revision, soon())
    assert value(store.get(Tree.CONFIG, "user=bob")) == "1"
    assert not store._follower._own


async def test_a_failed_load_is_not_reported_while_the_connection_is_down(
    zk_proxy: Proxy, chroot: str, open_store: Opener, raw_zk: KazooClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = await open_store(zk_proxy.connect(chroot))

    async def fail(*_: object) -> None:
        raise ConnectionLoss

    monkeypatch.setattr(loader, "load", fail)
    skip_notification(raw_zk)
    await until(lambda: store._follower.trouble == "ConnectionLoss")
    zk_proxy.accepting = False
    zk_proxy.cut()
    await until(lambda: store._follower.trouble is None)
    assert store.status().session is not SessionState.CONNECTED
    monkeypatch.undo()
    zk_proxy.accepting = True
    await until(lambda: store.status().stale_ms is None)
