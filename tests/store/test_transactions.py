"""Commits on a real ZooKeeper, checked by a plain client."""

from __future__ import annotations

import asyncio
import json
import uuid
from typing import TYPE_CHECKING

import pytest
from kazoo.protocol.serialization import CheckVersion, Create, SetData
from kazoo.protocol.serialization import Transaction as KazooTransaction

from confplane.domain.entities import Entity
from confplane.domain.errors import BodyTooLargeError, StaleControllerError, ThrottledError, UnavailableError
from confplane.domain.facets import Tree
from confplane.services.ports.transactions import Committed, Conflict, SessionEnded, TransactionUnknown
from confplane.store import ZooKeeperAccess
from confplane.store.write import transactions
from confplane.store.write.transactions import PacketLimits
from tests.support.stores import ALICE, BILLING, acl_of, commit, committed, facets, soon, transaction, until, write

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from kazoo.client import KazooClient

    from confplane.store import ZooKeeperStore

    Opener = Callable[..., Awaitable[ZooKeeperStore]]

ODD = [
    Entity.of(user="CN=Alice, O=Acme/x y*é"),
    Entity.of(user="<default>", client_id="~+%"),
    Entity.of(user=None),
    Entity.of(user="x" * 200, client_id=None),
    Entity.of(client_id=None),
    Entity.of(ip="10.0.0.1"),
]
NODES = [
    "users/CN%3DAlice%2C%20O%3DAcme%2Fx%20y%2A%C3%A9",
    "users/%3Cdefault%3E/clients/%7E%2B%25",
    "users/<default>",
    f"users/{'x' * 200}/clients/<default>",
    "clients/<default>",
    "ips/10.0.0.1",
]


def changes(zk: KazooClient) -> list[bytes]:
    """The notifications, in order."""
    return [zk.get(f"/config/changes/{name}")[0] for name in sorted(zk.get_children("/config/changes"))]


@pytest.mark.parametrize(("entity", "path"), list(zip(ODD, NODES, strict=True)), ids=range(len(ODD)))
async def test_commit_writes_what_kafka_would(
    store: ZooKeeperStore, raw_zk: KazooClient, entity: Entity, path: str
) -> None:
    change_id = uuid.uuid4()
    result = await committed(store, write(entity, {"k": "v\x1f"}), change_id=change_id)
    data, stat = raw_zk.get(f"/config/{path}")
    assert data == rb'{"version":1,"config":{"k":"v\u001F"}}'
    assert (stat.czxid, stat.mzxid, stat.mtime, stat.version) == (result.revision, result.revision, result.time_ms, 0)
    assert changes(raw_zk) == [b'{"version":2,"entity_path":"' + path.encode() + b'"}']
    marker, marker_stat = raw_zk.get(f"/confplane/commits/{change_id}")
    assert marker_stat.czxid == result.revision
    assert json.loads(marker) == {
        "version": 1,
        "state": "committed",
        "attempt": 1,
        "writer": store.writer(),
        "principal": "User:test",
        "requestId": "request-1",
        "writes": [{"path": f"/config/{path}", "version": 0}],
    }
    [node] = result.nodes
    assert store.get(Tree.CONFIG, entity.id) == node
    assert await store.read(Tree.CONFIG, entity, soon()) == node
    assert node.config == {"k": "v\x1f"}


async def test_set_at_the_version_read(store: ZooKeeperStore, raw_zk: KazooClient) -> None:
    first = await committed(store, write(ALICE, {"acks": "1"}))
    second = await committed(store, write(ALICE, {}, 0, extra=b'{"owner":"x"}'))
    assert raw_zk.get("/config/users/alice")[0] == b'{"version":1,"config":{},"owner":"x"}'
    assert second.nodes[0].version == 1
    assert second.nodes[0].czxid == first.revision
    assert second.revision > first.revision
    assert store.status().revision >= second.revision
    assert store.get(Tree.CONFIG, ALICE.id) == second.nodes[0] == await store.read(Tree.CONFIG, ALICE, soon())


async def test_conflicts_apply_nothing(store: ZooKeeperStore, raw_zk: KazooClient) -> None:
    await committed(store, write(ALICE, {"acks": "1"}))
    before = (changes(raw_zk), raw_zk.get_children("/confplane/commits"), raw_zk.get("/config/users/alice"))
    assert await commit(store, write(ALICE, {"acks": "0"}, 7)) == Conflict()
    assert await commit(store, write(ALICE, {"acks": "0"})) == Conflict()
    assert await commit(store, write(Entity.of(user="bob"), {}, 0)) == Conflict()
    assert await commit(store, write(Entity.of(user="new"), {}), write(ALICE, {}, 9)) == Conflict()
    assert before == (changes(raw_zk), raw_zk.get_children("/confplane/commits"), raw_zk.get("/config/users/alice"))
    assert raw_zk.exists("/config/users/new") is None
    assert store.get(Tree.CONFIG, "user=new") is None


async def test_missing_parents_are_made_and_known(store: ZooKeeperStore, raw_zk: KazooClient) -> None:
    result = await committed(store, write(BILLING, {"acks": "1"}))
    for path in ("/config/users/alice", "/config/users/alice/clients"):
        data, stat = raw_zk.get(path)
        assert (data, stat.czxid) == (None, result.revision)
    assert len(changes(raw_zk)) == 1
    parent = store.get(Tree.CONFIG, "user=alice")
    assert parent is not None
    assert (parent.items, parent.version, parent.czxid) == ((), 0, result.revision)
    # The parent exists with a version: a first write to it is a set.
    await committed(store, write(ALICE, {"acks": "0"}, parent.version))
    # A sibling needs no parents any more.
    await committed(store, write(Entity.of(user="alice", client_id="other"), {"acks": "1"}))


async def test_parents_that_vanished_are_a_conflict_then_made(store: ZooKeeperStore, raw_zk: KazooClient) -> None:
    await committed(store, write(BILLING, {"acks": "1"}))
    # Without a notification the mirror goes on believing in them.
    raw_zk.delete("/config/users/alice", recursive=True)
    other = Entity.of(user="alice", client_id="other")
    assert await commit(store, write(other, {"acks": "1"})) == Conflict()
    await committed(store, write(other, {"acks": "1"}), attempt=2)
    assert raw_zk.exists("/config/users/alice/clients/other")


async def test_batch_is_one_transaction(open_store: Opener, raw_zk: KazooClient) -> None:
    store = await open_store(facets=facets(Tree.CLIENT_CONFIGS))
    result = await committed(
        store,
        write(BILLING, {"producer_byte_rate": "1"}),
        write(ALICE, {"producer_byte_rate": "2"}),
        write(BILLING, {"acks": "1"}, tree=Tree.CLIENT_CONFIGS),
    )
    assert [(node.id, node.config) for node in result.nodes] == [
        ("user=alice,client-id=billing", {"producer_byte_rate": "1"}),
        ("user=alice", {"producer_byte_rate": "2"}),
        ("user=alice,client-id=billing", {"acks": "1"}),
    ]
    assert changes(raw_zk) == [
        b'{"version":2,"entity_path":"users/alice/clients/billing"}',
        b'{"version":2,"entity_path":"users/alice"}',
    ]
    paths = ["/config/users/alice", "/config/users/alice/clients/billing"]
    paths.append("/confplane/client-configs/users/alice/clients/billing")
    assert {raw_zk.exists(path).czxid for path in paths} == {result.revision}
    assert store.get(Tree.CLIENT_CONFIGS, BILLING.id) == result.nodes[2]
    assert store.get(Tree.CONFIG, BILLING.id) == result.nodes[0]
    with pytest.raises(ValueError, match="twice"):
        await commit(store, write(ALICE, {}, 0), write(ALICE, {}, 0))


async def test_writer_that_is_gone_ends_the_session(store: ZooKeeperStore, raw_zk: KazooClient) -> None:
    writer = store.writer()
    raw_zk.delete(f"/confplane/writers/{writer}")
    assert isinstance(await commit(store, write(ALICE, {}), writer=writer), SessionEnded)
    assert raw_zk.exists("/config/users/alice") is None
    await until(lambda: store.status().connected and store.writer() != writer)
    assert isinstance(await commit(store, write(ALICE, {}), writer=writer), SessionEnded)
    await until(lambda: store._guard.known)
    await committed(store, write(ALICE, {}))


async def test_roots_that_were_deleted_are_recreated(store: ZooKeeperStore, raw_zk: KazooClient) -> None:
    raw_zk.delete("/confplane/commits")
    assert await commit(store, write(ALICE, {})) == Conflict()
    await committed(store, write(ALICE, {}))


async def test_confirm(store: ZooKeeperStore, raw_zk: KazooClient) -> None:
    await committed(store, write(ALICE, {"acks": "1"}))
    writer, bob = store.writer(), Entity.of(user="bob")
    at = await store.confirm(writer, [(Tree.CONFIG, ALICE, 0), (Tree.CONFIG, bob, None)], soon())
    assert at == raw_zk.exists(f"/confplane/writers/{writer}").mzxid
    assert await store.confirm(writer, [(Tree.CONFIG, ALICE, 1)], soon()) is None
    assert await store.confirm(writer, [(Tree.CONFIG, bob, 0)], soon()) is None
    assert await store.confirm(writer, [(Tree.CONFIG, ALICE, None)], soon()) is None
    with pytest.raises(UnavailableError):
        await store.confirm("0" * 32, [], soon())


async def test_read_sees_what_was_committed_before(store: ZooKeeperStore, raw_zk: KazooClient) -> None:
    assert await store.read(Tree.CONFIG, ALICE, soon()) is None
    raw_zk.create("/config/users/alice", b"junk")
    node = await store.read(Tree.CONFIG, ALICE, soon())
    assert node is not None
    assert node.defect == "does not hold JSON"
    assert store.get(Tree.CONFIG, ALICE.id) == node


async def test_deadline_that_passed_submits_nothing(store: ZooKeeperStore, raw_zk: KazooClient) -> None:
    with pytest.raises(UnavailableError) as refusal:
        await store.commit(transaction(store, write(ALICE, {})), soon(-1))
    assert refusal.value.outcome == "not_applied"
    with pytest.raises(UnavailableError):
        await store.read(Tree.CONFIG, ALICE, soon(-1))
    await store.catch_up(soon())
    assert raw_zk.exists("/config/users/alice") is None


async def test_cancelled_caller_does_not_lose_the_commit(store: ZooKeeperStore) -> None:
    task = asyncio.create_task(commit(store, write(ALICE, {"acks": "1"})))
    await asyncio.sleep(0)
    assert store._follower.in_flight == 1
    task.cancel()
    await until(lambda: store.get(Tree.CONFIG, ALICE.id) is not None)
    assert store._follower.in_flight == 0
    assert (await asyncio.gather(task, return_exceptions=True))[0].__class__ is asyncio.CancelledError


# ---------------------------------------------------------------- the guard


def controller(zk: KazooClient, data: bytes = b'{"version":1,"brokerid":0,"timestamp":"1"}') -> None:
    """Register a broker and make it the controller."""
    zk.create("/brokers/ids/0", b"{}", makepath=True)
    zk.create("/controller_epoch", b"1")
    zk.create("/controller", data)


async def test_guard_follows_the_controller(store: ZooKeeperStore, raw_zk: KazooClient) -> None:
    await store.check_admission([write(ALICE, {})], soon())
    assert not store.status().brokers_registered
    raw_zk.create("/brokers/ids/0", b"{}", makepath=True)
    await until(lambda: store.status().brokers_registered)
    with pytest.raises(StaleControllerError, match="no controller"):
        await store.check_admission([write(ALICE, {})], soon())
    with pytest.raises(StaleControllerError):
        await commit(store, write(ALICE, {}))
    raw_zk.create("/controller", b"{}")
    await until(lambda: not store._guard._refusal and ("check", "/controller", 0) in store._guard.observed_checks)
    await committed(store, write(ALICE, {}))
    raw_zk.delete("/controller")
    raw_zk.create("/controller", b'{"version":2,"brokerid":3000,"timestamp":"1","kraftControllerEpoch":3}')
    await until(lambda: "KRaft" in (store._guard._refusal or ""))
    with pytest.raises(StaleControllerError, match="KRaft"):
        await store.check_admission([write(ALICE, {}, 0)], soon())
    raw_zk.delete("/controller")
    raw_zk.delete("/brokers/ids/0")
    await until(lambda: not store._guard._refusal and not store._guard.brokers)
    await store.check_admission([write(ALICE, {}, 0)], soon())


@pytest.mark.parametrize("path", ["/controller", "/controller_epoch"])
async def test_an_unobserved_controller_change_is_a_conflict(
    store: ZooKeeperStore, raw_zk: KazooClient, path: str
) -> None:
    controller(raw_zk)
    await until(lambda: len(store._guard.observed_checks) == 3)
    seen = store._guard.observed_checks
    store._guard.observed_checks = tuple((kind, each, 7 if each == path else version) for kind, each, version in seen)
    assert await commit(store, write(ALICE, {})) == Conflict()
    assert raw_zk.exists("/config/users/alice") is None
    # The conflict had the controller read again before it was answered.
    assert store._guard.observed_checks == seen
    await committed(store, write(ALICE, {}))


async def test_a_takeover_that_leaves_the_version_equal_is_detected(store: ZooKeeperStore, raw_zk: KazooClient) -> None:
    controller(raw_zk)
    await until(lambda: len(store._guard.observed_checks) == 3)
    checks = store._guard.observed_checks
    takeover = raw_zk.transaction()
    takeover.delete("/controller")
    takeover.create("/controller", b'{"version":2,"brokerid":3000,"timestamp":"1","kraftControllerEpoch":3}')
    takeover.set_data("/controller_epoch", b"2")
    takeover.commit()
    assert raw_zk.exists("/controller").version == checks[0][2]
    probe = raw_zk.transaction()
    for _, path, version in checks:
        probe.check(path, version)
    assert any(isinstance(result, Exception) for result in probe.commit())
    await until(lambda: store._guard._refusal)


# ---------------------------------------------------------------- admission


async def test_throttled_only_while_brokers_are_registered(open_store: Opener, raw_zk: KazooClient) -> None:
    store = await open_store(notifications_max=10)
    for number in range(10):
        await committed(store, write(Entity.of(user=f"u{number}"), {}))
    await store.check_admission([write(ALICE, {})], soon())
    controller(raw_zk)
    await until(lambda: len(store._guard.observed_checks) == 3)
    with pytest.raises(ThrottledError) as refusal:
        await store.check_admission([write(ALICE, {})], soon())
    assert refusal.value.retry_after_s
    assert refusal.value.outcome == "not_applied"
    raw_zk.delete("/config/changes/config_change_0000000000")
    await until(lambda: store.status().notifications == 9)
    await store.check_admission([write(ALICE, {})], soon())
    with pytest.raises(ThrottledError):
        await store.check_admission([write(ALICE, {}), write(BILLING, {})], soon())


async def test_too_large_is_refused_before_it_is_sent(open_store: Opener) -> None:
    store = await open_store(max_packet=20_000)
    await store.check_admission([write(ALICE, {"k": "x" * 17_000})], soon())
    await committed(store, write(ALICE, {"k": "x" * 17_000}))
    for config in ({"k": "x" * 20_000}, {"k": "é" * 10_000}):
        with pytest.raises(BodyTooLargeError):
            await store.check_admission([write(ALICE, config)], soon())
        with pytest.raises(BodyTooLargeError):
            await commit(store, write(ALICE, config, 0))
    with pytest.raises(BodyTooLargeError):
        await store.check_admission([write(Entity.of(user=f"u{number}"), {}) for number in range(60)], soon())
    assert store.status().connected


@pytest.mark.parametrize("access", [ZooKeeperAccess(), ZooKeeperAccess("sasl:käfka", "confplane:secret")])
async def test_size_is_what_kazoo_sends(store: ZooKeeperStore, access: ZooKeeperAccess) -> None:
    writes = [write(BILLING, {"é": "x" * 1000}), write(ALICE, {}, 3)]
    made = transactions.operations_of(
        transaction(store, *writes),
        guard=(("check", "/controller", 1),),
        missing=frozenset({"/config/users/alice/clients"}),
    )
    kinds = {"set": SetData, "check": CheckVersion}
    root = "/chroot"
    packet = KazooTransaction(
        [
            kinds[kind](root + path, *rest) if kind in kinds else Create(root + path, *rest, acl_of(access, path), 0)
            for kind, path, *rest in made.operations
        ]
    ).serialize()
    assert transactions.packet_size(made.operations, PacketLimits(0, root, access.acls)) == 4 + 4 + 4 + len(packet)
    estimate = transactions._PRINCIPAL_ALLOWANCE + len(packet)
    with pytest.raises(BodyTooLargeError):
        transactions.check_size(writes, PacketLimits(len(packet), root, access.acls))
    transactions.check_size(writes, PacketLimits(estimate + 1000, root, access.acls))


async def test_refusal_of_zookeepers_own_is_not_applied(store: ZooKeeperStore, raw_zk: KazooClient) -> None:
    result = await commit(store, write(ALICE, {}))
    assert isinstance(result, Committed)
    assert not isinstance(result, TransactionUnknown)
    # Nobody may write this node: an ACL that grants reading only.
    acls, stat = raw_zk.get_acls("/config/users/alice")
    raw_zk.set_acls("/config/users/alice", [acls[0]._replace(perms=1)], stat.aversion)
    with pytest.raises(UnavailableError, match="NoAuthError") as refusal:
        await commit(store, write(ALICE, {"acks": "1"}, 0))
    assert refusal.value.outcome == "not_applied"
