"""Topics that the cluster has, and those it has not: followed for reads, asked of ZooKeeper for writes."""

from __future__ import annotations

import asyncio
import json
from typing import TYPE_CHECKING

import pytest
from kazoo.security import make_digest_acl

from confplane.domain.entities import Entity
from confplane.domain.errors import UnavailableError, UnknownTopicError
from confplane.domain.facets import Tree
from confplane.services.ports.transactions import Conflict
from tests.support.stores import ALICE, commit, committed, soon, until, write

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from kazoo.client import KazooClient

    from confplane.store import ZooKeeperStore

    Opener = Callable[..., Awaitable[ZooKeeperStore]]

ORDERS = Entity.of(topic="orders")
GONE = Entity.of(topic="gone")


def make_topic(zk: KazooClient, name: str) -> None:
    """Create a topic as brokers do: its config, then its metadata; no notification."""
    zk.create(f"/config/topics/{name}", b'{"version":1,"config":{}}', makepath=True)
    zk.create(f"/brokers/topics/{name}", b"{}", makepath=True)


def delete_topic(zk: KazooClient, name: str) -> None:
    """Delete one as the controller does."""
    zk.delete(f"/brokers/topics/{name}")
    zk.delete(f"/config/topics/{name}")


async def test_without_metadata_any_topic_may_be_written(store: ZooKeeperStore) -> None:
    assert store.topic_exists("orders") is None
    await store.check_admission([write(ORDERS, {"retention.ms": "1"})], soon())
    await committed(store, write(ORDERS, {"retention.ms": "1"}))
    assert await store.confirm(store.writer(), [(Tree.CONFIG, GONE, None)], soon())


async def test_metadata_are_there_from_the_first_read(open_store: Opener, raw_zk: KazooClient) -> None:
    make_topic(raw_zk, "orders")
    store = await open_store(ready=False)
    await until(lambda: store.freshness() is not None)
    assert store.topic_exists("orders") is True
    assert store.topic_exists("gone") is False


async def test_nothing_is_known_before_the_first_load(chroot: str) -> None:
    from tests.support.stores import opened  # noqa: PLC0415 - a server that is not there, for this one

    store = await opened("127.0.0.1:1" + chroot[chroot.index("/") :], ready=False)
    try:
        with pytest.raises(UnavailableError):
            store.topic_exists("orders")
    finally:
        await store.stop()


async def test_topics_are_followed_through_creation_deletion_and_the_loss_of_all(
    store: ZooKeeperStore, raw_zk: KazooClient
) -> None:
    raw_zk.ensure_path("/brokers/topics")
    await until(lambda: store.topic_exists("orders") is False)
    make_topic(raw_zk, "orders")
    await until(lambda: store.topic_exists("orders") is True)
    assert store.get(Tree.CONFIG, ORDERS.id) is not None or await store.catch_up(soon())
    delete_topic(raw_zk, "orders")
    make_topic(raw_zk, "other")
    await until(lambda: store.topic_exists("orders") is False and store.topic_exists("other") is True)
    raw_zk.delete("/brokers/topics", recursive=True)
    await until(lambda: store.topic_exists("other") is None)
    make_topic(raw_zk, "again")
    await until(lambda: store.topic_exists("again") is True)


async def test_a_strong_read_knows_the_topics_of_its_moment(store: ZooKeeperStore, raw_zk: KazooClient) -> None:
    for number in range(20):
        make_topic(raw_zk, f"t{number}")
        await store.catch_up(soon())
        assert store.topic_exists(f"t{number}") is True
        assert store.get(Tree.CONFIG, f"topic=t{number}") is not None


async def test_writes_to_an_unknown_topic_are_refused(store: ZooKeeperStore, raw_zk: KazooClient) -> None:
    make_topic(raw_zk, "orders")
    for expected in (None, 0):
        with pytest.raises(UnknownTopicError, match=r"no topic 'gone'") as refusal:
            await store.check_admission([write(ORDERS, {}, 0), write(GONE, {}, expected)], soon())
        assert refusal.value.code == 3
        assert refusal.value.outcome == "not_applied"
    # Ending without a change is refused as well: Kafka looks at the topic first.
    with pytest.raises(UnknownTopicError):
        await store.confirm(store.writer(), [(Tree.CONFIG, GONE, None)], soon())
    await store.check_admission([write(ORDERS, {}, 0), write(ALICE, {})], soon())
    await committed(store, write(ORDERS, {"retention.ms": "1"}, 0), write(ALICE, {}))


async def test_configs_that_a_topic_left_behind_are_not_written(store: ZooKeeperStore, raw_zk: KazooClient) -> None:
    make_topic(raw_zk, "orders")
    raw_zk.delete("/brokers/topics/orders")
    await store.catch_up(soon())
    assert store.get(Tree.CONFIG, ORDERS.id) is not None
    with pytest.raises(UnknownTopicError):
        await store.check_admission([write(ORDERS, {}, 0)], soon())


async def test_a_topic_made_this_moment_is_known_to_writes(store: ZooKeeperStore, raw_zk: KazooClient) -> None:
    raw_zk.ensure_path("/brokers/topics")
    for number in range(20):
        name = f"t{number}"
        make_topic(raw_zk, name)
        await store.check_admission([write(Entity.of(topic=name), {}, 0)], soon())


@pytest.mark.parametrize("expected", [0, None])
async def test_topic_deleted_between_admission_and_commit_gets_no_configs(
    store: ZooKeeperStore, raw_zk: KazooClient, expected: int | None
) -> None:
    make_topic(raw_zk, "orders")
    await store.check_admission([write(ORDERS, {}, expected)], soon())
    delete_topic(raw_zk, "orders")
    assert await commit(store, write(ORDERS, {"retention.ms": "1"}, expected), write(ALICE, {})) == Conflict()
    assert raw_zk.exists("/config/topics/orders") is None
    assert raw_zk.exists("/config/users/alice") is None
    with pytest.raises(UnknownTopicError):
        await store.check_admission([write(ORDERS, {}, expected)], soon())


async def test_many_topics_cost_their_names_alone(store: ZooKeeperStore, raw_zk: KazooClient) -> None:
    raw_zk.ensure_path("/brokers/topics")
    pending = [raw_zk.create_async(f"/brokers/topics/t{number}") for number in range(3_000)]
    for each in pending:
        await asyncio.to_thread(each.get, timeout=60)
    await until(lambda: store.topic_exists("t2999") is True)
    assert len(store._follower.metadata.names or ()) == 3_000
    assert store._follower.loaded().entities() == 0


def reassigned(*, adding: list[int], removing: list[int]) -> bytes:
    """The znode of a topic with one partition, as the controller writes it (kafka.zk.TopicZNode)."""
    state = {
        "partitions": {"0": [1, 2]}, "topic_id": "VYqPJnNoRcSMNfVZlJNfRQ", "version": 3,
        "adding_replicas": {"0": adding} if adding else {}, "removing_replicas": {"0": removing} if removing else {},
    }  # fmt: skip
    return json.dumps(state).encode()


async def test_reassignments_are_those_in_the_metadata_of_topics(store: ZooKeeperStore, raw_zk: KazooClient) -> None:
    contents = {
        "added": reassigned(adding=[2], removing=[]),
        "removed": reassigned(adding=[], removing=[1]),
        "still": reassigned(adding=[], removing=[]),
        "odd": b"[]",
    }
    for name, content in contents.items():
        raw_zk.create(f"/brokers/topics/{name}", content, makepath=True)
    asked = {*contents, "gone"}
    assert await store.reassigned_topics(asked, soon()) == frozenset({"added", "removed"})
    assert await store.reassigned_topics({"still"}, soon()) == frozenset()
    assert await store.reassigned_topics((), soon()) == frozenset()
    # A request that was not made through a broker.
    request = {"version": 1, "partitions": [{"topic": "moved", "partition": 0, "replicas": [2]}]}
    raw_zk.create("/admin/reassign_partitions", json.dumps(request).encode(), makepath=True)
    assert await store.reassigned_topics({"still"}, soon()) == frozenset({"moved"})
    raw_zk.set("/admin/reassign_partitions", b"{")
    assert await store.reassigned_topics({"still"}, soon()) == frozenset()


async def test_reassignments_of_more_topics_than_are_read_at_once_are_found(
    store: ZooKeeperStore, raw_zk: KazooClient
) -> None:
    names = [f"t{number}" for number in range(1_500)]
    raw_zk.ensure_path("/brokers/topics")
    made = [
        raw_zk.create_async(f"/brokers/topics/{name}", reassigned(adding=[2] if name == "t700" else [], removing=[]))
        for name in names
    ]
    assert all(each.get() for each in made)
    assert await store.reassigned_topics(names, soon()) == frozenset({"t700"})


@pytest.mark.parametrize("path", ["/brokers/topics/added", "/admin/reassign_partitions"])
async def test_reassignments_that_may_not_be_read_are_unknown(
    store: ZooKeeperStore, raw_zk: KazooClient, path: str
) -> None:
    for each in ("/brokers/topics/added", "/admin/reassign_partitions"):
        raw_zk.create(each, b"{}", makepath=True)
    raw_zk.set_acls(path, [make_digest_acl("someone", "else", all=True)])
    assert await store.reassigned_topics({"added"}, soon()) is None
