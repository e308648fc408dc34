"""The target of a cluster on a real ZooKeeper: who may write which configs, in every process, whatever it knows."""

from __future__ import annotations

import json
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Any

import pytest

from confplane.domain.entities import Entity
from confplane.domain.errors import CorruptZnodeError, ObservedError
from confplane.domain.facets import Tree
from confplane.services.ports.cluster_states import Freeze, Target, TargetMode
from confplane.services.ports.kafka import KraftEntityType
from confplane.services.ports.transactions import Committed, Conflict, Guarded, StateWrite, Transaction
from tests.support.stores import ALICE, commit, committed, soon, transaction, until, write

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from kazoo.client import KazooClient

    from confplane.store import ZooKeeperStore

    Opener = Callable[..., Awaitable[ZooKeeperStore]]

PATH = "/confplane/target"
OBSERVED = Target("5L6g3nShT-eMCtK--X86sw", imported=True)


async def set_target(store: ZooKeeperStore, target: Target | None) -> Committed:
    """Write the target, which must succeed."""
    state = await store.read_state(Target, soon())
    result = await store.commit(
        transaction(store, StateWrite(PATH, state.version, target), guarded=Guarded.CALLER), soon()
    )
    assert isinstance(result, Committed), result
    return result


def following(store: ZooKeeperStore, *writes: Any) -> Transaction:
    """One attempt at a change that follows the target."""
    return transaction(store, *writes, guarded=Guarded.OBSERVED)


async def test_without_a_target_clients_write_and_nothing_is_followed(store: ZooKeeperStore) -> None:
    assert store.target() is None
    assert (await store.read_state(Target, soon())).value is None
    await committed(store, write(ALICE, {}))
    with pytest.raises(ObservedError, match="nothing follows"):
        await store.check_admission([write(ALICE, {}, 0)], soon(), guarded=Guarded.OBSERVED)
    with pytest.raises(ObservedError):
        await store.commit(following(store, write(ALICE, {}, 0)), soon())


async def test_quotas_of_an_observed_cluster_only_follow_it(store: ZooKeeperStore, raw_zk: KazooClient) -> None:
    result = await set_target(store, OBSERVED)
    data, stat = raw_zk.get(PATH)
    assert json.loads(data) == {
        "version": 1,
        "kind": "kraft",
        "mode": "observe",
        "cluster_id": OBSERVED.cluster_id,
        "imported": True,
        "paused": False,
    }
    assert stat.mzxid == result.revision
    assert store.target() == (await store.read_state(Target, soon())).value == OBSERVED
    assert store.target() == Target(OBSERVED.cluster_id, TargetMode.OBSERVE, imported=True, paused=False)
    with pytest.raises(ObservedError, match=OBSERVED.cluster_id) as refusal:
        await store.check_admission([write(ALICE, {"producer_byte_rate": "1"})], soon())
    assert refusal.value.outcome == "not_applied"
    with pytest.raises(ObservedError):
        await commit(store, write(ALICE, {"producer_byte_rate": "1"}))
    assert raw_zk.exists("/config/users/alice") is None
    # Client configs are in no Kafka cluster.
    client_config = write(ALICE, {"acks": "all"}, tree=Tree.CLIENT_CONFIGS)
    await store.check_admission([client_config], soon())
    await committed(store, client_config)
    assert isinstance(
        await store.commit(following(store, write(ALICE, {"producer_byte_rate": "1"})), soon()), Committed
    )
    # A freeze stops callers, and not the changes of others.
    state = await store.read_state(Freeze, soon())
    frozen = StateWrite("/confplane/freeze", state.version, Freeze("upgrade", "User:bob", 1_700_000_000_000))
    assert isinstance(await store.commit(transaction(store, frozen, guarded=Guarded.NONE), soon()), Committed)
    assert isinstance(await store.commit(following(store, write(ALICE, {}, 0)), soon()), Committed)


async def test_entity_types_have_modes_of_their_own(store: ZooKeeperStore, raw_zk: KazooClient) -> None:
    mixed = OBSERVED.with_mode(TargetMode.ENFORCE, [KraftEntityType.QUOTAS]).with_mode(
        TargetMode.ADOPT, [KraftEntityType.TOPICS]
    )
    await set_target(store, mixed)
    data = json.loads(raw_zk.get(PATH)[0])
    # No earlier release reads this version; so such a process writes nothing.
    assert (data["version"], data["mode"]) == (3, "observe")
    assert data["modes"] == {"client-quotas": "enforce", "topics": "adopt"}
    assert store.target() == (await store.read_state(Target, soon())).value == mixed
    assert str(mixed) == f"observe cluster {OBSERVED.cluster_id} (imported; client-quotas: enforce; topics: adopt)"
    topic, group = Entity.of(topic="t"), Entity.of(group="g")
    for entity in (ALICE, topic):
        await store.check_admission([write(entity, {}, applied=True)], soon())
    refused = write(group, {}, applied=True)
    with pytest.raises(ObservedError, match="its groups are followed"):
        await store.check_admission([refused], soon())
    with pytest.raises(ObservedError):
        await commit(store, refused)
    # So does the mark of states by key, which the leader sets if an earlier release began the mode.
    begun = replace(OBSERVED, mode=TargetMode.ADOPT).with_mode(TargetMode.ENFORCE, [KraftEntityType.QUOTAS])
    await set_target(store, begun)
    assert json.loads(raw_zk.get(PATH)[0])["version"] == 2
    await set_target(store, mixed)
    # The mode of all types, and the same mode named for a type, leave the earlier form.
    same = mixed.with_mode(TargetMode.OBSERVE, [KraftEntityType.QUOTAS, KraftEntityType.TOPICS])
    assert same == mixed.with_mode(TargetMode.OBSERVE, []) == OBSERVED
    await set_target(store, same)
    assert json.loads(raw_zk.get(PATH)[0])["version"] == 1


@pytest.mark.parametrize("modes", [[], {"topics": "adopts"}, {"topic": "adopt"}, {"topics": ["adopt"]}])
async def test_modes_of_another_form_stop_all_writes(store: ZooKeeperStore, raw_zk: KazooClient, modes: Any) -> None:
    await set_target(store, OBSERVED.with_mode(TargetMode.ADOPT, [KraftEntityType.TOPICS]))
    data = json.loads(raw_zk.get(PATH)[0])
    raw_zk.set(PATH, json.dumps({**data, "modes": modes}).encode())
    await until(lambda: store._guard.target_defect is not None)
    with pytest.raises(CorruptZnodeError):
        await store.check_admission([write(Entity.of(topic="t"), {}, applied=True)], soon())


async def test_a_write_drafted_before_the_cluster_was_adopted_is_refused(store: ZooKeeperStore) -> None:
    """A write that names no keys to apply, which the Kafka cluster would never get."""
    await set_target(store, OBSERVED.with_mode(TargetMode.ADOPT, []))
    drafted = write(ALICE, {"producer_byte_rate": "1"})
    with pytest.raises(ObservedError, match="send it again") as refusal:
        await commit(store, drafted)
    assert refusal.value.outcome == "not_applied"
    await committed(store, replace(drafted, applied=True))


async def test_a_pause_stops_what_follows(store: ZooKeeperStore) -> None:
    await set_target(store, OBSERVED)
    await set_target(store, Target(OBSERVED.cluster_id, imported=True, paused=True))
    with pytest.raises(ObservedError, match="nothing follows"):
        await store.check_admission([write(ALICE, {})], soon(), guarded=Guarded.OBSERVED)
    with pytest.raises(ObservedError, match="is observed"):
        await store.check_admission([write(ALICE, {})], soon())


@pytest.mark.parametrize("guarded", [Guarded.CALLER, Guarded.OBSERVED])
async def test_a_process_that_has_not_noticed_the_target_commits_nothing(
    open_store: Opener, raw_zk: KazooClient, guarded: Guarded
) -> None:
    one, other = await open_store(), await open_store()
    follows = guarded is Guarded.OBSERVED
    if follows:
        await set_target(one, OBSERVED)
        await until(lambda: other.target() == OBSERVED)
    guard = other._guard
    unaware = guard.target, guard.target_check
    await set_target(one, None if follows else OBSERVED)
    await until(lambda: (other.target() is None) is follows)
    guard.target, guard.target_check = unaware
    assert await other.commit(transaction(other, write(ALICE, {}), guarded=guarded), soon()) == Conflict()
    assert raw_zk.exists("/config/users/alice") is None
    assert (other.target() is None) is follows, "the refused transaction had the target read again"


@pytest.mark.parametrize("data", [b"{", b'{"version":2}', b'{"version":1,"kind":"kraft","mode":"enforce"}', b"[]"])
async def test_an_unreadable_target_is_reported_and_left(
    store: ZooKeeperStore, raw_zk: KazooClient, data: bytes
) -> None:
    raw_zk.set(PATH, data)
    await until(lambda: store._guard.target_defect)
    for guarded in (Guarded.CALLER, Guarded.OBSERVED):
        with pytest.raises(CorruptZnodeError) as refusal:
            await store.check_admission([write(ALICE, {})], soon(), guarded=guarded)
        assert refusal.value.path == PATH
    with pytest.raises(CorruptZnodeError):
        await store.read_state(Target, soon())
    assert raw_zk.get(PATH)[0] == data
    assert any(PATH in str(warning) for warning in store.status().warnings)
    raw_zk.set(PATH, b"")
    await until(lambda: not store._guard.target_defect)
    await committed(store, write(ALICE, {}))


def follows(one: ZooKeeperStore, other: ZooKeeperStore, report: bytes) -> bool:
    """Return True once both processes have the report."""
    return one.observation() == other.observation() == report


async def test_every_process_follows_the_report(open_store: Opener, raw_zk: KazooClient) -> None:
    one, other = await open_store(), await open_store()
    assert one.observation() is None
    for report in (b'{"at":1}', b'{"at":2}'):
        await one.publish_observation(report, soon())
        await until(partial(follows, one, other, report))
    raw_zk.set("/confplane/observation", b"")
    await until(lambda: other.observation() is None)


async def test_a_pair_is_followed_with_its_user(store: ZooKeeperStore, raw_zk: KazooClient) -> None:
    await set_target(store, OBSERVED)
    pair = Entity.of(user="bob", client_id="x")
    assert isinstance(await store.commit(following(store, write(pair, {"request_percentage": "5"})), soon()), Committed)
    assert raw_zk.exists("/config/users/bob/clients/x") is not None


async def test_topics_of_an_observed_cluster_need_no_metadata_in_zookeeper(
    store: ZooKeeperStore, raw_zk: KazooClient
) -> None:
    raw_zk.ensure_path("/brokers/topics/old")
    await set_target(store, OBSERVED)
    topic = write(Entity.of(topic="new"), {"retention.ms": "1"})
    await store.check_admission([topic], soon(), guarded=Guarded.OBSERVED)
    assert isinstance(await store.commit(following(store, topic), soon()), Committed)
