"""A frozen cluster on a real ZooKeeper: nothing commits behind the freeze, whoever writes and whatever they know."""

from __future__ import annotations

import asyncio
import json
import uuid
from typing import TYPE_CHECKING, Any

import pytest

from confplane.domain.entities import Entity
from confplane.domain.errors import FrozenError, UnavailableError
from confplane.domain.facets import Tree
from confplane.services.ports.cluster_states import Freeze
from confplane.services.ports.transactions import Committed, Conflict, Guarded, SessionEnded, StateWrite, Transaction
from tests.support.stores import ALICE, commit, committed, soon, transaction, until, write

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from kazoo.client import KazooClient

    from confplane.store import ZooKeeperStore

    Opener = Callable[..., Awaitable[ZooKeeperStore]]

UPGRADE = Freeze("upgrade to 3.9", "User:bob", 1_700_000_000_000)


def freezing(store: ZooKeeperStore, freeze: Freeze | None, expected: int, **more: Any) -> Transaction:
    """One attempt."""
    return transaction(store, StateWrite("/confplane/freeze", expected, freeze), guarded=Guarded.NONE, **more)


async def freeze(store: ZooKeeperStore, what: Freeze | None) -> Committed:
    """Freeze or thaw, which must succeed."""
    state = await store.read_state(Freeze, soon())
    result = await store.commit(freezing(store, what, state.version), soon())
    assert isinstance(result, Committed), result
    return result


async def test_freeze_and_thaw_are_transactions_with_a_marker(store: ZooKeeperStore, raw_zk: KazooClient) -> None:
    data, stat = raw_zk.get("/confplane/freeze")
    assert (data, stat.version) == (None, 0)
    assert store.status().frozen is None
    assert (await store.read_state(Freeze, soon())).value is None
    change_id = uuid.uuid4()
    result = await store.commit(freezing(store, UPGRADE, 0, change_id=change_id), soon())
    assert isinstance(result, Committed)
    data, stat = raw_zk.get("/confplane/freeze")
    assert json.loads(data) == {
        "version": 1,
        "reason": "upgrade to 3.9",
        "principal": "User:bob",
        "since": 1_700_000_000_000,
    }
    assert (stat.mzxid, stat.mtime, stat.version) == (result.revision, result.time_ms, 1)
    marker, marker_stat = raw_zk.get(f"/confplane/commits/{change_id}")
    assert marker_stat.czxid == result.revision
    assert json.loads(marker)["writes"] == [{"path": "/confplane/freeze", "version": 1}]
    assert str(store.status().frozen) == "upgrade to 3.9"
    assert raw_zk.get_children("/config/changes") == []
    state = await store.read_state(Freeze, soon())
    assert (state.version, state.value) == (1, UPGRADE)
    with pytest.raises(FrozenError, match=r"since 2023-11-14T22:13:20Z by User:bob: upgrade to 3\.9") as refusal:
        await store.check_admission([write(ALICE, {})], soon())
    assert "confplane thaw --cluster default" in refusal.value.detail
    assert refusal.value.outcome == "not_applied"
    with pytest.raises(FrozenError):
        await commit(store, write(ALICE, {}))
    # What ends without a change goes on.
    assert await store.confirm(store.writer(), [(Tree.CONFIG, ALICE, None)], soon())
    await freeze(store, None)
    assert raw_zk.get("/confplane/freeze")[0] == b""
    assert store.status().frozen is None
    await store.check_admission([write(ALICE, {})], soon())
    await committed(store, write(ALICE, {}))


async def test_another_process_that_has_not_heard_of_it_commits_nothing(
    open_store: Opener, raw_zk: KazooClient
) -> None:
    one, other = await open_store(), await open_store()
    unaware = other._guard.observed_checks
    await freeze(one, UPGRADE)
    await until(lambda: other.status().frozen)
    # As if its watch were still on the way.
    other._guard.freeze, other._guard.observed_checks = None, unaware
    assert await commit(other, write(ALICE, {})) == Conflict()
    assert raw_zk.exists("/config/users/alice") is None
    # The refused transaction had it read again.
    assert str(other.status().frozen) == "upgrade to 3.9"
    with pytest.raises(FrozenError):
        await other.check_admission([write(ALICE, {})], soon())
    await freeze(one, None)
    # A refusal is never decided on what was heard earlier.
    await other.check_admission([write(ALICE, {})], soon())
    await committed(other, write(ALICE, {}))


async def test_nothing_commits_after_a_freeze_during_writes(open_store: Opener, raw_zk: KazooClient) -> None:
    stores = [await open_store(), await open_store()]
    operator = await open_store()
    stop = asyncio.Event()
    revisions: list[int] = []

    async def writing(store: ZooKeeperStore, name: str) -> None:
        entity, version = Entity.of(user=name), None
        while not stop.is_set():
            try:
                result = await commit(store, write(entity, {"acks": "1"}, version))
            except FrozenError:
                await asyncio.sleep(0)
                continue
            if isinstance(result, Committed):
                version = result.nodes[0].version
                revisions.append(result.revision)

    tasks = [asyncio.create_task(writing(store, f"u{number}")) for number, store in enumerate(stores * 4)]
    for _ in range(5):
        so_far = len(revisions)
        await until(lambda so_far=so_far: len(revisions) > so_far + 50)  # type: ignore[misc]
        frozen = await freeze(operator, UPGRADE)
        # Every reply that is still on the way is here after a write of each session's own.
        for store in stores:
            await store.catch_up(soon())
        held = {name: raw_zk.exists(f"/config/users/{name}").mzxid for name in raw_zk.get_children("/config/users")}
        assert max(held.values()) < frozen.revision
        thawed = await freeze(operator, None)
        assert not [revision for revision in revisions if frozen.revision < revision < thawed.revision]
    stop.set()
    await asyncio.gather(*tasks)


async def test_two_that_change_the_freeze_at_once(store: ZooKeeperStore, raw_zk: KazooClient) -> None:
    first = await store.commit(freezing(store, UPGRADE, 0), soon())
    assert isinstance(first, Committed)
    assert await store.commit(freezing(store, None, 0), soon()) == Conflict()
    assert store.status().frozen
    taken = uuid.uuid4()
    raw_zk.create(f"/confplane/commits/{taken}", b"aborted")
    assert isinstance(await store.commit(freezing(store, None, 1, change_id=taken), soon()), SessionEnded)
    assert isinstance(await store.commit(freezing(store, None, 1, writer="0" * 32), soon()), SessionEnded)
    with pytest.raises(UnavailableError, match="deadline"):
        await store.commit(freezing(store, None, 1), soon(-1))
    assert (await store.read_state(Freeze, soon())).version == 1


@pytest.mark.parametrize(
    "data",
    [
        b"{}",
        b"junk",
        b"[]",
        b'{"version":2,"reason":"x","principal":"User:x","since":1}',
        b'{"version":1,"reason":1,"principal":"User:x","since":1}',
        b'{"version":1,"reason":"x","principal":null,"since":1}',
        b'{"version":1,"reason":"x","principal":"User:x","since":"1"}',
        b'{"version":1,"reason":"x","principal":"User:x","since":true}',
        b'{"version":1,"reason":"x","principal":"User:x","since":1e30}',
        b'{"version":1,"reason":"x","principal":"User:x","since":300000000000000}',
    ],
)
async def test_what_cannot_be_read_is_a_freeze(store: ZooKeeperStore, raw_zk: KazooClient, data: bytes) -> None:
    raw_zk.set("/confplane/freeze", data)
    await until(lambda: store.status().frozen)
    with pytest.raises(FrozenError, match=r"the znode /confplane/freeze holds data that can't be read"):
        await store.check_admission([write(ALICE, {})], soon())
    await freeze(store, None)
    await committed(store, write(ALICE, {}))


async def test_freeze_node_that_was_deleted_is_recreated(store: ZooKeeperStore, raw_zk: KazooClient) -> None:
    await freeze(store, UPGRADE)
    raw_zk.delete("/confplane/freeze")
    await until(lambda: raw_zk.exists("/confplane/freeze") and store.status().frozen is None)
    await store.check_admission([write(ALICE, {})], soon())
    await committed(store, write(ALICE, {}))


async def test_freeze_is_known_before_anything_is_written(open_store: Opener) -> None:
    await freeze(await open_store(), UPGRADE)
    later = await open_store()
    assert str(later.status().frozen) == "upgrade to 3.9"


async def test_freeze_needs_no_controller(store: ZooKeeperStore, raw_zk: KazooClient) -> None:
    raw_zk.create("/brokers/ids/0", b"{}", makepath=True)
    await until(lambda: store.status().brokers_registered)
    await freeze(store, UPGRADE)
    with pytest.raises(FrozenError):
        await store.check_admission([write(ALICE, {})], soon())
    await freeze(store, None)


async def test_read_raw(store: ZooKeeperStore, raw_zk: KazooClient) -> None:
    assert await store.read_raw("/brokers/config", soon()) is None
    raw_zk.create("/brokers/config", b'{"version":"1"}', makepath=True)
    assert await store.read_raw("/brokers/config", soon()) == b'{"version":"1"}'
    assert await store.read_raw("/brokers", soon()) == b""
    acls, _ = raw_zk.get_acls("/brokers/config")
    raw_zk.set_acls("/brokers/config", [acls[0]._replace(perms=0b11110)])
    with pytest.raises(UnavailableError, match="NoAuthError"):
        await store.read_raw("/brokers/config", soon())
    with pytest.raises(UnavailableError):
        await store.read_raw("/brokers", soon(-1))
