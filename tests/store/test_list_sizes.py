"""Listings of brokers: the sums of names' bytes, and the creations that they forbid."""

from __future__ import annotations

import random
import subprocess
from pathlib import Path
from typing import TYPE_CHECKING

import pyspark
import pytest

from confplane.devstack.java import find_java
from confplane.domain.entities import DEFAULT_NODE, Entity
from confplane.domain.errors import KafkaCode, ListFullError
from confplane.domain.facets import Tree
from confplane.store.mirror import loader
from confplane.store.mirror.list_sizes import ALL_PAIRS, list_position
from confplane.store.mirror.nodes import Mirror
from confplane.store.session.reads import FORBIDDEN
from tests.support.alerts import PartAlerts
from tests.support.stores import committed, facets, kafka_writes, notify, soon, until, write

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from kazoo.client import KazooClient

    from confplane.devstack.zookeeper import ZooKeeper
    from confplane.services.ports.transactions import EntityWrite
    from confplane.store import ZooKeeperStore

    Opener = Callable[..., Awaitable[ZooKeeperStore]]

LIMIT = 100_000
ONE = b'{"version":1,"config":{"producer_byte_rate":"1"}}'
KINDS = ("users", "clients", "ips", "topics", "brokers", "groups", "client-metrics")


def expected_bytes(paths: set[str]) -> dict[str, int]:
    """The bytes of each list, from all paths below a tree's root; without the users' lists, but for the longest."""
    lists = dict.fromkeys(KINDS, 88)
    for path in paths:
        parent, _, name = path.rpartition("/")
        lists[parent] = lists.get(parent, 88) + 4 + len(name.encode())
    of_users = [lists.pop(parent) for parent in list(lists) if parent not in KINDS]
    return lists | ({ALL_PAIRS: max(of_users)} if of_users else {})


def test_the_sums_are_kept_as_names_come_and_go() -> None:
    chance = random.Random(7)  # noqa: S311 - the same order each time
    mirror = Mirror({tree: facets() for tree in Tree})
    users = ["alice", "b%20b", DEFAULT_NODE, "%", "a+b", "é"]
    paths = [f"users/{user}" for user in users]
    paths += [f"users/{user}/clients/{name}" for user in users for name in ("x", "y%3D", DEFAULT_NODE, "%zz", "é,=")]
    paths += [
        "clients/c",
        f"clients/{DEFAULT_NODE}",
        "ips/10.0.0.1",
        "topics/t",
        "topics/t t",
        "brokers/7",
        "brokers/x",
    ]
    for zxid in range(1, 3_000):
        found = chance.choice([None, FORBIDDEN, (ONE, (zxid, zxid, 0, 0, 0, 0, 0, 0, 0, 0, zxid))])
        loader.apply_node(mirror, chance.choice(list(Tree)), chance.choice(paths), found)
        for tree, copy in mirror.trees.items():
            there = {Entity.from_id(entity_id).path for entity_id in copy.nodes}
            there |= {
                path.removeprefix(f"{tree.value}/")
                for path in (*mirror.unaddressed, *mirror.forbidden)
                if path.startswith(f"{tree.value}/")
            }
            longest = copy.list_sizes.longest_of_users()
            sizes = dict(copy.list_sizes.sizes()) | ({} if longest is None else {ALL_PAIRS: longest[1]})
            assert sizes == expected_bytes(there)
    for tree, copy in mirror.trees.items():
        for path in paths:
            loader.apply_node(mirror, tree, path, None)
        assert dict(copy.list_sizes.sizes()) == dict.fromkeys(KINDS, 88)
        assert copy.list_sizes.longest_of_users() is None


def test_a_java_client_reads_a_list_of_so_many_bytes_and_not_a_longer_one(
    chroot: str, raw_zk: KazooClient, zookeeper: ZooKeeper
) -> None:
    mirror = Mirror({Tree.CONFIG: facets()})
    raw_zk.ensure_path("/config/users")
    for number in range(200):
        user = Entity.of(user=f"{'é' * 20} {number}")
        raw_zk.create(f"/config/{user.path}")
        mirror.trees[Tree.CONFIG].list_sizes.add(*list_position(user.id))
    size = dict(mirror.trees[Tree.CONFIG].list_sizes.sizes())["users"]
    jars = Path(pyspark.__file__).parent / "jars"
    for limit, wanted in ((size + 1, 200), (size - 1, 0)):
        command = [str(find_java()), "-XX:TieredStopAtLevel=1", f"-Djute.maxbuffer={limit}", "-cp", f"{jars}/*"]
        command += ["org.apache.zookeeper.ZooKeeperMain", "-server", zookeeper.hosts, "-timeout", "60000"]
        command += ["-waitforconnection", "ls", "-s", f"/{chroot.partition('/')[2]}/config/users"]
        done = subprocess.run(command, capture_output=True, text=True, timeout=300, check=False)
        assert done.stdout.count("%C3%A9%20") == wanted, done.stderr


# ---------------------------------------------------------------- what is refused


def named(number: int) -> Entity:
    return Entity.of(user=f"{number:02}" + "x" * 3_900)


async def admitted(store: ZooKeeperStore, *writes: EntityWrite) -> None:
    await store.check_admission(writes, soon())


async def test_nothing_is_created_that_brokers_could_not_list(open_store: Opener, raw_zk: KazooClient) -> None:
    for number in range(25):
        raw_zk.create(f"/config/{named(number).path}", ONE, makepath=True)
    store = await open_store(jute_maxbuffer=LIMIT)
    other = await open_store(jute_maxbuffer=LIMIT)
    assert "ListNearLimit" in PartAlerts(store).scrape()
    more = write(named(25), {})
    # Nobody lists them.
    await admitted(store, more)
    assert store.status().warnings == ()
    raw_zk.create("/controller", b'{"version":1,"brokerid":0,"timestamp":"1"}')
    raw_zk.create("/brokers/ids/0", b"{}", makepath=True)
    await until(lambda: store.status().brokers_registered and other.status().brokers_registered)
    with pytest.raises(ListFullError) as refusal:
        await admitted(store, more)
    assert refusal.value.code is KafkaCode.POLICY_VIOLATION
    assert refusal.value.outcome == "not_applied"
    assert "/config/users" in refusal.value.detail
    assert "jute_maxbuffer" in refusal.value.detail
    [told] = store.status().warnings
    assert "97738 of the 100000 bytes" in told.public
    # One that is there is altered; a client below it is in another list, a user below which it comes is not.
    await committed(store, write(named(0), {"acks": "1"}, 0))
    await committed(store, write(Entity.of(user=named(0).components[0][1], client_id="c"), {}))
    with pytest.raises(ListFullError):
        await admitted(store, write(Entity.of(user=named(25).components[0][1], client_id="c"), {}))
    # Short ones fit, until all of them together do not.
    await admitted(store, write(Entity.of(user="short"), {}))
    batch = [write(Entity.of(user=f"{'y' * 100}{number}"), {}) for number in range(25)]
    await admitted(store, *batch[:20])
    with pytest.raises(ListFullError):
        await admitted(store, *batch)
    # Others make room without this process's having heard of it, and make the very entity.
    raw_zk.delete(f"/config/{named(1).path}")
    notify(raw_zk, named(1).path)
    await admitted(store, more)
    kafka_writes(raw_zk, more.entity.path, ONE)
    await admitted(other, more)
    metrics = {(sample.name, sample.labels): sample.value for sample in store.metrics() if "list" in sample.name}
    assert metrics["list_bytes", ("default", Tree.CONFIG.value, ALL_PAIRS)] == 88 + 4 + 1
    assert metrics["list_bytes_limit", ("default",)] == LIMIT


async def test_one_users_clients_are_a_list_of_their_own(open_store: Opener, raw_zk: KazooClient) -> None:
    for number in range(25):
        raw_zk.create(f"/config/users/alice/clients/{number:02}{'x' * 3_900}", ONE, makepath=True)
    raw_zk.create("/controller", b'{"version":1,"brokerid":0,"timestamp":"1"}')
    raw_zk.create("/brokers/ids/0", b"{}", makepath=True)
    store = await open_store(jute_maxbuffer=LIMIT)
    with pytest.raises(ListFullError, match="/config/users/alice/clients"):
        await admitted(store, write(Entity.of(user="alice", client_id="y" * 3_900), {}))
    await admitted(store, write(Entity.of(user="bob", client_id="y" * 3_900), {}))
    [told] = store.status().warnings
    assert "alice" in str(told)
    assert "alice" not in told.public
