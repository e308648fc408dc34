"""Markers decide: whoever creates one first, the transaction or the settler, has decided how the change ended."""

from __future__ import annotations

import asyncio
import json
import time
import uuid
from typing import TYPE_CHECKING, cast

import pytest

from confplane.domain.entities import Entity
from confplane.domain.errors import CorruptZnodeError, UnavailableError
from confplane.domain.facets import Tree
from confplane.services.ports.store import Marker
from confplane.services.ports.transactions import Committed, SessionEnded, TransactionUnknown
from confplane.store.write import markers
from tests.support.stores import ALICE, commit, committed, soon, transaction, until, write

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Sequence

    from kazoo.client import KazooClient

    from confplane.store import ZooKeeperStore
    from tests.support.proxy import Proxy

    Opener = Callable[..., Awaitable[ZooKeeperStore]]

COMMITS = "/confplane/commits"


async def settled(store: ZooKeeperStore, change_id: uuid.UUID) -> Marker | None:
    """Settle as soon as ZooKeeper answers."""

    async def settle() -> tuple[Marker | None]:
        return (await store.markers.settle(change_id, soon()),)

    (marker,) = await until(settle, refused=UnavailableError)
    return cast("Marker | None", marker)


async def test_a_committed_change_is_settled_as_it_was_committed(
    store: ZooKeeperStore, open_store: Opener, raw_zk: KazooClient
) -> None:
    change_id = uuid.uuid4()
    await committed(store, write(ALICE, {"acks": "0"}))
    result = await committed(
        store, write(ALICE, {"acks": "1"}, 0), write(Entity.of(user="bob"), {}), change_id=change_id, attempt=3
    )
    other = await open_store()
    for settler in (store, other):
        assert await settler.markers.settle(change_id, soon()) == Marker(
            change_id,
            committed=True,
            attempt=3,
            revision=result.revision,
            time_ms=result.time_ms,
            versions={"/config/users/alice": 1, "/config/users/bob": 0},
            principal="User:test",
            writer=store.writer(),
            request_id="request-1",
        )
    assert raw_zk.get_children(COMMITS).count(str(change_id)) == 1


async def test_an_abort_marker_keeps_a_late_transaction_from_committing(
    store: ZooKeeperStore, open_store: Opener, raw_zk: KazooClient
) -> None:
    change_id = uuid.uuid4()
    late = transaction(store, write(ALICE, {"acks": "1"}), change_id=change_id)
    settler = await open_store()
    assert await settler.markers.settle(change_id, soon()) == Marker(change_id, committed=False)
    assert json.loads(raw_zk.get(f"{COMMITS}/{change_id}")[0]) == {
        "version": 1,
        "state": "aborted",
        "settler": settler.writer(),
    }
    assert isinstance(await store.commit(late, soon()), SessionEnded)
    assert raw_zk.exists("/config/users/alice") is None
    # Settling again finds the abort marker, whoever asks.
    assert await store.markers.settle(change_id, soon()) == Marker(change_id, committed=False)


async def test_settlers_and_transaction_at_once_agree(store: ZooKeeperStore, open_store: Opener) -> None:
    others = [await open_store() for _ in range(2)]
    for number in range(60):
        change_id = uuid.uuid4()
        entity = Entity.of(user=f"u{number}")
        result, decisions = await asyncio.gather(
            commit(store, write(entity, {"acks": "1"}), change_id=change_id),
            asyncio.gather(*(settler.markers.settle(change_id, soon()) for settler in (*others, *others))),
        )
        [decision] = {(each.committed, each.revision) for each in decisions if each is not None}
        if isinstance(result, Committed):
            assert decision == (True, result.revision)
        else:
            assert isinstance(result, SessionEnded)
            assert decision == (False, None)


async def test_a_lost_reply_is_settled_by_the_same_store(
    zk_proxy: Proxy, chroot: str, open_store: Opener, raw_zk: KazooClient
) -> None:
    store = await open_store(zk_proxy.connect(chroot), session_timeout_ms=2_000)
    change_id = uuid.uuid4()
    zk_proxy.replies.clear()
    task = asyncio.create_task(commit(store, write(ALICE, {"acks": "1"}), change_id=change_id))
    await until(lambda: raw_zk.exists("/config/users/alice"))
    zk_proxy.cut()
    assert await task == TransactionUnknown()
    zk_proxy.replies.set()
    marker = await settled(store, change_id)
    assert marker is not None
    assert marker.committed
    assert marker.revision == raw_zk.exists("/config/users/alice").mzxid
    # The notification tells the mirror.
    await until(lambda: store.get(Tree.CONFIG, ALICE.id) is not None)
    assert store._follower.in_flight == 0


async def test_without_a_connection_nothing_is_settled(zk_proxy: Proxy, chroot: str, open_store: Opener) -> None:
    store = await open_store(zk_proxy.connect(chroot))
    zk_proxy.replies.clear()
    with pytest.raises(UnavailableError):
        await store.markers.settle(uuid.uuid4(), soon(0.2))
    zk_proxy.accepting = False
    zk_proxy.cut()
    await until(lambda: not store.status().connected)
    with pytest.raises(UnavailableError):
        await store.markers.settle(uuid.uuid4(), soon())


async def test_a_settler_whose_writer_node_is_gone_settles_nothing(store: ZooKeeperStore, raw_zk: KazooClient) -> None:
    change_id = uuid.uuid4()
    writer = store.writer()
    raw_zk.delete(f"/confplane/writers/{writer}")
    with pytest.raises(UnavailableError):
        await store.markers.settle(change_id, soon())
    assert raw_zk.exists(f"{COMMITS}/{change_id}") is None
    assert await settled(store, change_id) == Marker(change_id, committed=False)
    assert store.writer() != writer


async def test_settling_mends_a_root_that_is_gone(store: ZooKeeperStore, raw_zk: KazooClient) -> None:
    raw_zk.delete(COMMITS)
    change_id = uuid.uuid4()
    assert await store.markers.settle(change_id, soon()) == Marker(change_id, committed=False)


@pytest.mark.parametrize("data", [b"", b"aborted", b'{"version":2,"state":"aborted"}', b'{"version":1,"state":"committed","attempt":1,"writes":[{}]}'])  # fmt: skip
async def test_what_is_no_marker_decides_nothing(store: ZooKeeperStore, raw_zk: KazooClient, data: bytes) -> None:
    change_id = uuid.uuid4()
    raw_zk.create(f"{COMMITS}/{change_id}", data)
    with pytest.raises(CorruptZnodeError, match=str(change_id)):
        await store.markers.settle(change_id, soon())


async def every(change_ids: Sequence[uuid.UUID]) -> Sequence[uuid.UUID]:
    """The outcomes of all changes last."""
    return change_ids


async def test_released_markers_are_dropped_after_a_while(store: ZooKeeperStore, raw_zk: KazooClient) -> None:
    changes = [uuid.uuid4() for _ in range(3)]
    for number, change_id in enumerate(changes):
        await committed(store, write(Entity.of(user=f"u{number}"), {}), change_id=change_id)
    store.markers.release(changes[0])
    store.markers.release(changes[1])
    now = time.monotonic()
    asked: list[list[uuid.UUID]] = []

    async def one_lasts(change_ids: Sequence[uuid.UUID]) -> set[uuid.UUID]:
        asked.append(list(change_ids))
        return {changes[0]}

    assert markers.RELEASE_SECONDS == 60
    assert await store.markers.drop_released(now + markers.RELEASE_SECONDS - 5, every) == 0
    found, strays = await store.markers.found(soon())
    assert (set(found), strays) == (set(changes), [])
    raw_zk.delete(f"{COMMITS}/{changes[0]}")
    assert await store.markers.drop_released(now + markers.RELEASE_SECONDS + 5, one_lasts) == 1
    assert asked == [changes[:2]]
    # The other waits another while.
    assert await store.markers.drop_released(now + 2 * markers.RELEASE_SECONDS, every) == 0
    found, _ = await store.markers.found(soon())
    assert set(found) == set(changes[1:])
    assert await store.markers.drop_released(now + 2 * markers.RELEASE_SECONDS + 10, every) == 1
    raw_zk.create(f"{COMMITS}/stray")
    assert await store.markers.found(soon()) == ([changes[2]], ["stray"])


async def test_markers_that_could_not_be_dropped_are_dropped_later(store: ZooKeeperStore, raw_zk: KazooClient) -> None:
    change_id = uuid.uuid4()
    await committed(store, write(ALICE, {}), change_id=change_id)
    store.markers.release(change_id)
    later = time.monotonic() + markers.RELEASE_SECONDS + 5
    writer = store.writer()
    store._session_manager.replace(store._session_manager.current)
    await until(lambda: not store.status().connected)
    with pytest.raises(UnavailableError):
        await store.markers.drop_released(later, every)
    await until(lambda: store.status().connected and store.writer() != writer)
    assert await store.markers.drop_released(later, every) == 1
    assert raw_zk.get_children(COMMITS) == []


async def test_many_markers_are_dropped_in_bulk(store: ZooKeeperStore, raw_zk: KazooClient) -> None:
    changes = [uuid.uuid4() for _ in range(450)]
    for change_id in changes:
        raw_zk.create_async(f"{COMMITS}/{change_id}")
    kept = raw_zk.create(f"{COMMITS}/{uuid.uuid4()}")
    await store.markers.drop(changes)
    assert raw_zk.get_children(COMMITS) == [kept.rpartition("/")[2]]


async def test_the_writers_that_are_there(store: ZooKeeperStore, open_store: Opener) -> None:
    other = await open_store()
    assert await store.markers.writers(soon()) == {store.writer(), other.writer()}
    gone = other.writer()
    await other.stop()

    async def left() -> bool:
        return gone not in await store.markers.writers(soon())

    await until(left)


def test_names_of_markers() -> None:
    change_id = uuid.uuid4()
    assert markers.change_id_of(str(change_id)) == change_id
    for name in ("", "stray", str(change_id).upper(), change_id.hex, f"{{{change_id}}}"):
        assert markers.change_id_of(name) is None
