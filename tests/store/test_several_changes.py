"""Several changes in one transaction on a real ZooKeeper: what each is told, and which one a refusal blames."""

from __future__ import annotations

import itertools
import json
import uuid
from typing import TYPE_CHECKING, Any, NamedTuple

import pytest

from confplane.domain.entities import Entity
from confplane.domain.errors import BodyTooLargeError
from confplane.domain.facets import Tree, full_path
from confplane.services.changes.commit import parts_of
from confplane.services.ports.transactions import (
    Committed,
    Conflict,
    EntityWrite,
    Removal,
    SessionEnded,
    Transaction,
)
from confplane.store.session.access import ZooKeeperAccess
from confplane.store.write import transactions
from tests.support.stores import ALICE, BILLING, committed, intent, mirror_paused, soon, until, write

if TYPE_CHECKING:
    from collections.abc import Sequence
    from uuid import UUID

    from kazoo.client import KazooClient

    from confplane.services.ports.transactions import Write
    from confplane.store import ZooKeeperStore

BOB, CAROL = Entity.of(user="bob"), Entity.of(user="carol")
ORDERS = Entity.of(topic="orders")


class Change(NamedTuple):
    """A change of one write."""

    change_id: UUID
    write: Write


def changes(*writes: Write) -> list[Change]:
    """A change of each write, with ids that rise."""
    return [Change(each, one) for each, one in zip(sorted(uuid.uuid4() for _ in writes), writes, strict=True)]


def transaction(writer: str, made: Sequence[Change], **more: Any) -> Transaction:
    intents = (intent(writer, each.change_id, request_id=f"r-{each.write.path}") for each in made)
    return Transaction(writer, tuple(intents), tuple((each.write,) for each in made), **more)


async def commit(store: ZooKeeperStore, made: Sequence[Change], **more: Any) -> Any:
    return await store.commit(transaction(store.writer(), made, **more), soon())


def notified(zk: KazooClient) -> list[str]:
    """The paths of the notifications, in order."""
    names = sorted(zk.get_children("/config/changes"))
    return [json.loads(zk.get(f"/config/changes/{name}")[0])["entity_path"] for name in names]


async def test_each_has_its_own_notification_marker_and_part(store: ZooKeeperStore, raw_zk: KazooClient) -> None:
    first = await committed(store, write(ALICE, {"acks": "1"}))
    made = changes(write(BILLING, {"acks": "0"}), write(ALICE, {"acks": "all"}, 0), write(BOB, {"acks": "1"}))
    whole = await commit(store, made)
    assert isinstance(whole, Committed)
    parts = parts_of(whole, [[change.write] for change in made])
    assert [(part.revision, part.time_ms) for part in parts] == 3 * [(whole.revision, whole.time_ms)]
    assert [part.versions for part in parts] == [
        {f"/config/{BILLING.path}": 0},
        {f"/config/{ALICE.path}": 1},
        {f"/config/{BOB.path}": 0},
    ]
    assert [[(node.id, node.version, node.czxid) for node in part.nodes] for part in parts] == [
        [(BILLING.id, 0, whole.revision)],
        [(ALICE.id, 1, first.revision)],
        [(BOB.id, 0, whole.revision)],
    ]
    assert [store.get(Tree.CONFIG, part.nodes[0].id) for part in parts] == [part.nodes[0] for part in parts]
    assert store.status().revision >= whole.revision
    # In the order of the changes, whichever node had to be written first.
    assert notified(raw_zk)[1:] == [BILLING.path, ALICE.path, BOB.path]
    for change in made:
        marker = await store.markers.settle(change.change_id, soon())
        assert marker is not None
        path = change.write.path
        assert (marker.committed, marker.revision, marker.request_id) == (True, whole.revision, f"r-{path}")
        assert marker.versions == {path: parts[made.index(change)].versions[path]}


@pytest.mark.parametrize("at", [0, 1, 2])
async def test_a_removal_alongside_writes_is_in_the_mirror_by_their_revision(
    store: ZooKeeperStore, raw_zk: KazooClient, at: int
) -> None:
    del raw_zk
    bob = await committed(store, write(BOB, {"acks": "1"}))
    await committed(store, write(ALICE, {"acks": "1"}))
    gone = Removal(f"/config/{BOB.path}", BOB, 0, bob.revision)
    writes: list[Write] = [write(ALICE, {"acks": "0"}, 0), write(CAROL, {"acks": "1"})]
    async with mirror_paused(store):
        done = await commit(store, changes(*writes[:at], gone, *writes[at:]))
        assert isinstance(done, Committed)
        assert store.get(Tree.CONFIG, BOB.id) is not None, "the notification was read: the test shows nothing"
        assert store.status().revision < done.revision
    await store.wait_for(done.revision, soon())
    assert store.get(Tree.CONFIG, BOB.id) is None


async def test_a_recreated_znode_is_attributed_to_its_own_change(store: ZooKeeperStore, raw_zk: KazooClient) -> None:
    first = await committed(store, write(ALICE, {"acks": "1"}))
    raw_zk.delete("/config/users/alice")
    raw_zk.create("/config/users/alice", b'{"version":1,"config":{}}')
    made = changes(write(BOB, {}), write(ALICE, {}, 0, czxid=first.revision))
    whole = await commit(store, made)
    assert [part.remade for part in parts_of(whole, [[change.write] for change in made])] == [
        {},
        {"/config/users/alice": raw_zk.exists("/config/users/alice").czxid},
    ]


@pytest.mark.parametrize("refused", [0, 1, 2])
async def test_a_version_that_was_not_read_blames_its_change(
    store: ZooKeeperStore, raw_zk: KazooClient, refused: int
) -> None:
    for entity in (ALICE, BOB, CAROL):
        await committed(store, write(entity, {"acks": "1"}))
    raw_zk.set(f"/config/{(ALICE, BOB, CAROL)[refused].path}", b'{"version":1,"config":{}}')
    before = notified(raw_zk)
    made = changes(*(write(entity, {"acks": "0"}, 0) for entity in (ALICE, BOB, CAROL)))
    assert await commit(store, made) == Conflict(made[refused].change_id)
    assert notified(raw_zk) == before
    assert [raw_zk.exists(f"/confplane/commits/{change.change_id}") for change in made] == [None] * 3


async def test_a_node_that_is_there_blames_its_change(store: ZooKeeperStore, raw_zk: KazooClient) -> None:
    raw_zk.create("/config/users/bob", b"")
    made = changes(write(ALICE, {}), write(BOB, {}), write(CAROL, {}))
    assert await commit(store, made) == Conflict(made[1].change_id)


async def test_a_parent_blames_the_first_change_that_needs_it(store: ZooKeeperStore, raw_zk: KazooClient) -> None:
    other = Entity.of(user="alice", client_id="other")
    await committed(store, write(BILLING, {"acks": "1"}))
    # Without a notification the mirror goes on believing in the parents.
    raw_zk.delete("/config/users/alice", recursive=True)
    third = Entity.of(user="alice", client_id="third")
    made = changes(write(BOB, {}), write(other, {"acks": "1"}), write(third, {"acks": "1"}))
    assert await commit(store, made) == Conflict(made[1].change_id)
    left = (made[0], made[2])
    assert await commit(store, left) == Conflict(made[2].change_id)
    # The others bring along the parents that they need, once ZooKeeper is asked for these.
    assert isinstance(await commit(store, left, again=True), Committed)
    assert raw_zk.exists("/config/users/alice/clients/third")


async def test_a_marker_that_stands_ends_its_change(store: ZooKeeperStore, raw_zk: KazooClient) -> None:
    made = changes(write(ALICE, {}), write(BOB, {}))
    raw_zk.create(f"/confplane/commits/{made[1].change_id}", b"aborted")
    result = await commit(store, made)
    assert isinstance(result, SessionEnded)
    assert result.change_id == made[1].change_id
    assert raw_zk.exists("/config/users/alice") is None


async def test_a_writer_that_is_gone_ends_all(store: ZooKeeperStore, raw_zk: KazooClient) -> None:
    made = changes(write(ALICE, {}), write(BOB, {}))
    raw_zk.delete(f"/confplane/writers/{store.writer()}")
    result = await commit(store, made)
    assert isinstance(result, SessionEnded)
    assert result.change_id is None


async def test_rights_that_lack_blame_their_change(store: ZooKeeperStore, raw_zk: KazooClient) -> None:
    await committed(store, write(BOB, {}))
    acls, stat = raw_zk.get_acls("/config/users/bob")
    raw_zk.set_acls("/config/users/bob", [acls[0]._replace(perms=1)], stat.aversion)
    made = changes(write(ALICE, {}), write(BOB, {"acks": "1"}, 0))
    assert await commit(store, made) == Conflict(made[1].change_id)


async def test_a_topic_that_is_gone_blames_its_change(store: ZooKeeperStore, raw_zk: KazooClient) -> None:
    raw_zk.ensure_path("/brokers/topics/orders")
    gone = Entity.of(topic="gone")
    made = changes(write(ALICE, {}), write(gone, {"retention.ms": "1"}), write(ORDERS, {"retention.ms": "1"}))
    assert await commit(store, made) == Conflict(made[1].change_id)
    assert isinstance(await commit(store, (made[0], made[2])), Committed)


async def test_what_belongs_to_all_blames_none(store: ZooKeeperStore, raw_zk: KazooClient) -> None:
    raw_zk.create("/controller_epoch", b"1")
    raw_zk.create("/controller", b'{"version":1,"brokerid":0,"timestamp":"1"}')
    await until(lambda: len(store._guard.observed_checks) == 3)
    store._guard.observed_checks = tuple(
        (kind, path, version + 1) for kind, path, version in store._guard.observed_checks
    )
    made = changes(write(ALICE, {}), write(BOB, {}))
    assert await commit(store, made) == Conflict()
    raw_zk.delete("/confplane/commits")
    assert await commit(store, made) == Conflict()
    assert isinstance(await commit(store, made), Committed)


async def test_a_znode_is_never_written_by_two(store: ZooKeeperStore) -> None:
    with pytest.raises(ValueError, match="twice"):
        await commit(store, changes(write(ALICE, {}), write(BOB, {}), write(ALICE, {})))


async def test_several_changes_may_take_less_than_one(store: ZooKeeperStore) -> None:
    large = [write(Entity.of(user=f"u{number}"), {"k": "x" * 10_000}) for number in range(30)]
    assert await store.check_admission(large, soon(), changes=1) > 1
    with pytest.raises(BodyTooLargeError):
        await store.check_admission(large, soon(), changes=30)
    assert 0.5 < await store.check_admission(large[:20], soon(), changes=20) <= 1


@pytest.mark.parametrize("access", [ZooKeeperAccess(), ZooKeeperAccess("sasl:käfka", "confplane:secret")])
@pytest.mark.parametrize("root", ["", "/a/chroot"])
@pytest.mark.parametrize("config", [{}, {"acks": "1"}, {"é": '"' * 100, "\n": "é" * 100}])
@pytest.mark.parametrize("expected", [None, 3])
def test_the_estimate_of_a_size_is_never_below_the_measured_one(
    access: ZooKeeperAccess, root: str, config: dict[str, str], expected: int | None
) -> None:
    limits = transactions.PacketLimits(900_000, root, access.acls)
    names = "users/u/clients/<default>", f"users/{'%41' * 50}/clients/c", "users/u", f"topics/{'t' * 200}", "brokers/1"
    for tree, name in itertools.product(Tree, names):
        entity = Entity.from_path(name)
        writes: Sequence[Write] = [
            EntityWrite(full_path(tree, entity), tree, entity, expected, config, b'{"foreign":1}')
        ] * 3
        removals: Sequence[Write] = [Removal(f"{tree.value}/{name}", entity, expected)] * 3
        for given, changes in itertools.product((writes[:1], writes, removals[:1], removals), (1, 3)):
            assert transactions.estimate(given, limits, changes) >= transactions.measure(given, limits, changes)


def test_the_size_of_a_shared_transaction_has_room_for_all_of_its_markers(store: ZooKeeperStore) -> None:
    made = changes(*(write(Entity.of(user=f"u{number}"), {"acks": "1"}) for number in range(100)))
    limits = transactions.PacketLimits(900_000, "", store._limits.acls)
    size = transactions.packet_size(transactions.operations_of(transaction("0" * 32, made)).operations, limits)
    writes = [change.write for change in made]
    tight = transactions.PacketLimits(size, "", store._limits.acls)
    with pytest.raises(BodyTooLargeError):
        transactions.check_size(writes, tight, 100)
