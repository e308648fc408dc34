"""The recorder on real ZooKeeper and Postgres: what others write is in the trail once, with before and after."""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import json
import random
import secrets
import time
from typing import TYPE_CHECKING, Any, Final, cast

import kazoo.exceptions
import pytest

from confplane.audit.feed import PostgresFeedTrail
from confplane.domain.entities import Entity
from confplane.domain.errors import InvalidRequestError, UnavailableError
from confplane.domain.facets import FacetName, Tree, full_path
from confplane.domain.ops import Op, OpType
from confplane.services.changes.callers import Caller
from confplane.services.changes.edits import Edit
from confplane.services.changes.runner import ChangeRunner
from confplane.services.ports.trail import LAST_ID, AuditQuery, HistoryPlace
from confplane.services.ports.transactions import TransactionUnknown
from confplane.services.recorder import explain, record
from confplane.services.upkeep.compact import CompactService
from confplane.store.session.session import Session
from confplane.store.write import unnotified
from tests.audit.rows import count, fetch, run
from tests.support.replicas import Backup, Leads, assert_chains, everything, shown, states
from tests.support.stores import (
    ALICE,
    BILLING,
    content,
    kafka_writes,
    mirror_paused,
    notify,
    rate,
    skip_notification,
    soon,
)
from tests.support.waiting import until

if TYPE_CHECKING:
    from collections.abc import Sequence
    from uuid import UUID

    from kazoo.client import KazooClient

    from confplane.services.ports.store import Marker
    from confplane.store.mirror.journal import MirrorJournal
    from tests.support.replicas import Replica
    from tests.support.world import World

RATE = "producer_byte_rate"


async def test_what_was_there_at_first_contact_is_a_state_and_no_change(world: World) -> None:
    for number in range(30):
        kafka_writes(world.zk, f"users/u{number}", rate(number))
    one = await world.replica()
    await one.record()
    assert await one.trail() == []
    known = states(world.database.owner_dsn)
    assert len(known) == 30
    stat = world.zk.exists("/config/users/u7")
    assert known["user=u7"] == (True, stat.czxid, 0, {RATE: "7"})


async def test_first_contact_is_complete_after_everything_taken_as_it_was(world: World) -> None:
    kafka_writes(world.zk, "users/alice", rate(1))
    one = await world.replica()
    await one.round()
    # Taken at this version, by a comparison that began before it.
    kafka_writes(world.zk, "users/alice", rate(2))
    taken = world.zk.get("/config/users/alice")[1]
    await one.store.catch_up(soon(60))
    await one.record()
    kafka_writes(world.zk, "users/alice", rate(3))
    await one.record()
    assert [shown(record)[:2] for record in await one.external()] == [(1, 2)]
    known = await one.states.watermark("default")
    assert known is not None
    assert known.since is not None
    assert known.since >= taken.mzxid


async def test_a_write_of_kafkas_tools_is_recorded_once_with_before_and_after(world: World) -> None:
    kafka_writes(world.zk, "users/alice", rate(1))
    one, two = await world.replica(), await world.replica()
    await one.record()
    await two.record()
    kafka_writes(world.zk, "users/alice", content(producer_byte_rate="2", acks="all"))
    stat = world.zk.exists("/config/users/alice")
    await asyncio.gather(one.record(), two.record())
    await asyncio.gather(two.record(), one.record())
    [record] = await one.trail()
    assert shown(record) == (0, 1, 1, {RATE: "1"}, {RATE: "2", "acks": "all"})
    assert record.kind == "external"
    assert record.intent.principal == "External:unknown"
    assert record.intent.entities[0].keys == ("acks", RATE)
    assert record.outcome is not None
    assert (record.outcome.revision, record.outcome.time_ms) == (stat.mzxid, stat.mtime)
    assert int(record.created_at.timestamp() * 1000) == stat.mtime
    for filters in ({"entity_id": "user=alice"}, {"key": "acks"}, {"principal": "External:unknown"}):
        assert await one.trail(**filters) == [record]
    assert await one.audit.get("default", record.intent.change_id) == record


async def test_a_created_entity_is_recorded_and_a_parent_without_content_is_not(world: World) -> None:
    one = await world.replica()
    await one.record()
    kafka_writes(world.zk, "users/alice/clients/billing", rate(5))
    await one.record()
    [record] = await one.trail()
    assert record.intent.entities[0].entity_id == BILLING.id
    assert shown(record) == (None, 0, 1, {}, {RATE: "5"})
    await one.alter(Entity.of(user="olga", client_id="x"), producer_byte_rate=1)
    await one.record()
    assert len(await one.external()) == 1


async def test_runs_between_our_own_changes_are_distinguished(world: World) -> None:
    one = await world.replica()
    await one.record()
    await one.alter(ALICE, producer_byte_rate=1)
    for value in (2, 3, 4):
        kafka_writes(world.zk, "users/alice", content(producer_byte_rate=str(value), acks="1"))
    await one.store.catch_up(soon(60))
    await one.alter(ALICE, consumer_byte_rate=9)
    await one.alter(ALICE, FacetName.CLIENT_CONFIGS, acks="all")
    for value in (5, 6):
        world.zk.set("/config/users/alice", content(producer_byte_rate=str(value)))
    notify(world.zk, "users/alice")
    await one.record()
    first, second = await one.external()
    assert shown(first) == (0, 3, 3, {RATE: "1"}, {RATE: "4", "acks": "1"})
    assert shown(second) == (
        5, 7, 2, {RATE: "4", "acks": "all", "consumer_byte_rate": "9"}, {RATE: "6"}
    )  # fmt: skip
    assert_chains(await one.trail())


async def test_values_of_runs_around_a_change_of_another_facet_are_those_that_stood(world: World) -> None:
    one = await world.replica()
    await one.alter(ALICE, FacetName.CLIENT_CONFIGS, acks="all")
    await one.record()
    for value in (2, 3):
        kafka_writes(world.zk, "users/alice", content(acks=f"{value}, first"))
        await one.store.catch_up(soon(60))
        await one.alter(ALICE, producer_byte_rate=value)
        kafka_writes(world.zk, "users/alice", content(acks=f"{value}, second", producer_byte_rate=str(value)))
        await one.store.catch_up(soon(60))
    await one.record()
    found = [(told[3]["acks"], told[4]["acks"]) for told in map(shown, await one.external())]
    assert found == [("all", "2, first"), ("2, first", "3, first"), ("3, first", "3, second")]
    assert_chains(await one.trail())


async def test_what_was_written_while_no_process_ran_is_recorded_once_in_order(world: World) -> None:
    kafka_writes(world.zk, "users/gone", rate(1))
    kafka_writes(world.zk, "users/again", rate(1))
    one = await world.replica()
    await one.alter(ALICE, producer_byte_rate=1)
    await one.record()
    await world.stop_replicas()
    kafka_writes(world.zk, "users/zoe", rate(3))
    kafka_writes(world.zk, "users/alice", rate(2))
    world.zk.delete("/config/users/gone")
    world.zk.delete("/config/users/again")
    kafka_writes(world.zk, "users/again", rate(2))
    kafka_writes(world.zk, "users/bob", rate(4))
    for name in world.zk.get_children("/config/changes"):
        world.zk.delete(f"/config/changes/{name}")
    two = await world.replica()
    await two.record()
    await two.record()
    found = {record.intent.entities[0].entity_id: shown(record) for record in await two.external()}
    assert found == {
        "user=zoe": (None, 0, 1, {}, {RATE: "3"}),
        "user=alice": (0, 1, 1, {RATE: "1"}, {RATE: "2"}),
        "user=gone": (0, None, 1, {RATE: "1"}, {}),
        "user=again": (0, 0, 2, {RATE: "1"}, {RATE: "2"}),
        "user=bob": (None, 0, 1, {}, {RATE: "4"}),
    }
    records, _ = await two.audit.search(AuditQuery("default"))
    newest_first = [record.intent.entities[0].entity_id for record in records if record.kind == "external"]
    written = ["user=zoe", "user=alice", "user=again", "user=bob"]
    assert [each for each in reversed(newest_first) if each != "user=gone"] == written


async def test_deleted_and_created_again_under_our_eyes(world: World) -> None:
    one = await world.replica()
    await one.alter(ALICE, producer_byte_rate=1)
    await one.record()
    world.zk.delete("/config/users/alice")
    notify(world.zk, "users/alice")
    await one.record()
    kafka_writes(world.zk, "users/alice", rate(7))
    await one.record()
    await one.alter(ALICE, producer_byte_rate=8)
    await one.record()
    gone, back = await one.external()
    assert shown(gone) == (0, None, 1, {RATE: "1"}, {})
    assert shown(back) == (None, 0, 1, {}, {RATE: "7"})
    assert len(await one.trail()) == 4
    # Twice the same: a state that is gone is not taken for the one before it.
    world.zk.delete("/config/users/alice")
    notify(world.zk, "users/alice")
    await one.record()
    assert len(await one.external()) == 3


@pytest.mark.parametrize("another_leads", [False, True])
async def test_unobserved_values_are_recorded_where_we_wrote_in_between(world: World, *, another_leads: bool) -> None:
    one, two = await world.replica(), await world.replica(leads=False)
    await one.record()
    kafka_writes(world.zk, "users/alice", rate(1))
    await two.store.catch_up(soon(60))
    await two.alter(ALICE, producer_byte_rate=2)
    kafka_writes(world.zk, "users/alice", rate(3))
    world.zk.delete("/config/users/alice")
    notify(world.zk, "users/alice")
    # Another's mirror never had it.
    recorder = await world.replica() if another_leads else one
    await recorder.record()
    await recorder.alter(ALICE, producer_byte_rate=5)
    await recorder.record()
    first, second = await recorder.external()
    assert shown(first) == (None, 0, 1, {}, {RATE: "1"})
    assert shown(second) == (1, None, 1, {RATE: "2"}, {})
    assert states(world.database.owner_dsn)["user=alice"][3] == {RATE: "5"}


@pytest.mark.parametrize("another_leads", [False, True])
@pytest.mark.parametrize("settled", [False, True])
async def test_our_creation_deleted_externally_before_the_leader_read_it_is_recorded(
    world: World, *, another_leads: bool, settled: bool
) -> None:
    one, two = await world.replica(), await world.replica(leads=False)
    await one.record()
    async with contextlib.AsyncExitStack() as stack:
        if not settled:
            await stack.enter_async_context(two.without_outcomes())
        async with mirror_paused(one.store):
            await two.alter(ALICE, producer_byte_rate=1)
            world.zk.delete("/config/users/alice")
            notify(world.zk, "users/alice")
        recorder = await world.replica() if another_leads else one
        await recorder.store.catch_up(soon(60))
        for _ in range(4):
            await recorder.round()
    await recorder.record()
    assert [shown(record)[:3] for record in await recorder.trail()] == [(None, 0, None), (0, None, 1)]
    kafka_writes(world.zk, "users/alice", rate(2))
    await recorder.record()
    assert [shown(record)[:3] for record in await recorder.external()] == [(0, None, 1), (None, 0, 1)]


@pytest.mark.parametrize("settled", [None, "by its writer", "by the leader"])
async def test_a_znode_recreated_under_a_change_of_ours_is_recorded_as_recreated(
    world: World, monkeypatch: pytest.MonkeyPatch, settled: str | None
) -> None:
    """ZooKeeper checks versions, and those of a znode made again begin anew."""
    one = await world.replica()
    await one.alter(ALICE, producer_byte_rate=1)
    await one.record()
    intend = one.audit.intend

    async def meanwhile(*given: Any) -> None:
        await intend(*given)
        world.zk.delete("/config/users/alice")
        world.zk.create("/config/users/alice", content(consumer_byte_rate="5"))

    monkeypatch.setattr(one.audit, "intend", meanwhile)
    commit = one.store.commit

    async def without_reply(*given: Any) -> TransactionUnknown:
        await commit(*given)
        return TransactionUnknown()

    if settled == "by its writer":
        monkeypatch.setattr(one.store, "commit", without_reply)
    async with one.without_outcomes() if settled == "by the leader" else contextlib.nullcontext():
        result = await one.alter(ALICE, producer_byte_rate=2)
    monkeypatch.undo()
    assert any("deleted and created again externally" in warning for warning in result.warnings)
    stored, stat = world.zk.get("/config/users/alice")
    assert (stored, stat.version) == (rate(2), 1)
    await one.alter(ALICE, producer_byte_rate=3)
    await one.record()
    first, others, ours, later = await one.trail()
    assert [record.kind for record in (first, others, ours, later)] == ["change", "external", "change", "change"]
    # A deletion and a creation, of what nobody saw.
    assert shown(others) == (0, 0, 2, {RATE: "1"}, {RATE: None})
    assert shown(ours) == (0, 1, None, {RATE: "1"}, {RATE: "2"})
    assert shown(later) == (1, 2, None, {RATE: "2"}, {RATE: "3"})
    assert [record.outcome.remade for record in (first, others, ours, later) if record.outcome] == [
        {}, {}, {"/config/users/alice": stat.czxid}, {}
    ]  # fmt: skip
    assert stat.czxid != ours.intent.entities[0].czxid_read


async def test_external_changes_of_several_writes_and_deletions_are_complete_in_the_feed(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Another process may have shown each of the writes, with keys that the last one does not have."""
    one = await world.replica()
    await one.record()
    for writes in (1, 1, 2):
        for value in range(writes):
            kafka_writes(world.zk, "users/alice", rate(value + writes * 10 + 1))
        await one.record()
        await one.alter(ALICE, producer_byte_rate=writes)
    world.zk.delete("/config/users/alice")
    monkeypatch.setattr(unnotified, "UNNOTIFIED_AGE_S", 0.0)
    await one.store.recording.notify_unnotified(lambda: True)
    await one.record()
    found = await PostgresFeedTrail(one.parts.database).changes("default", HistoryPlace(1, 0, LAST_ID), 2**62, 100)
    assert [(each.kind, each.entities[0].complete) for each in found] == [
        *(("external", False), ("change", False)),
        *(("external", False), ("change", False)),
        *(("external", True), ("change", False)),
        ("external", True),
    ]


async def test_equal_content_moves_the_state_and_makes_no_row(world: World) -> None:
    one = await world.replica()
    await one.alter(ALICE, producer_byte_rate=1)
    kafka_writes(world.zk, "users/alice", rate(1))
    await one.record()
    assert await one.external() == []
    assert states(world.database.owner_dsn)["user=alice"][2] == 1
    kafka_writes(world.zk, "users/alice", rate(2))
    await one.record()
    assert [shown(record) for record in await one.external()] == [(1, 2, 1, {RATE: "1"}, {RATE: "2"})]


async def test_changes_of_secrets_are_recorded_without_their_values(world: World) -> None:
    scram = "salt=MHRhbnQ=,stored_key=c3RvcmVk,server_key=c2VydmVy,iterations=8192"
    kafka_writes(world.zk, "users/alice", content(**{"SCRAM-SHA-256": "salt=first-secret", RATE: "1"}))
    kafka_writes(world.zk, "brokers/0", content(**{"ssl.key.password": "first-password", "background.threads": "4"}))
    one = await world.replica()
    await one.record()
    kafka_writes(world.zk, "users/alice", content(**{"SCRAM-SHA-256": scram, RATE: "1"}))
    kafka_writes(world.zk, "brokers/0", content(**{"ssl.key.password": "other-password", "background.threads": "5"}))
    kafka_writes(world.zk, "users/bob", content(**{"SCRAM-SHA-512": "salt=bobs-secret", "my.own": "private-thing"}))
    await one.record()
    found = {record.intent.entities[0].entity_id: record for record in await one.external()}
    assert shown(found["user=alice"])[3:] == ({"SCRAM-SHA-256": None, RATE: "1"}, {"SCRAM-SHA-256": None, RATE: "1"})
    assert found["user=alice"].intent.entities[0].keys == ("SCRAM-SHA-256",)
    assert shown(found["broker=0"])[3:] == (
        {"ssl.key.password": None, "background.threads": "4"},
        {"ssl.key.password": None, "background.threads": "5"},
    )
    assert found["broker=0"].intent.entities[0].keys == ("background.threads", "ssl.key.password")
    assert shown(found["user=bob"])[3:] == ({}, {"SCRAM-SHA-512": None, "my.own": None})
    # A secret that may have been set anew while nobody looked is told of as well.
    await world.stop_replicas()
    kafka_writes(world.zk, "users/bob", content(**{"SCRAM-SHA-512": "salt=later-secret", "my.own": "private-thing"}))
    two = await world.replica()
    await two.record()
    later = (await two.external())[-1].intent.entities[0]
    assert (later.entity_id, later.keys) == ("user=bob", ("SCRAM-SHA-512", "my.own"))
    text = everything(world.database.owner_dsn)
    for secret in ("secret", "-password", "private-thing", "c3RvcmVk"):
        assert secret not in text


async def test_an_entity_with_an_open_change_of_ours_waits_until_it_is_settled(world: World) -> None:
    one = await world.replica()
    await one.alter(ALICE, producer_byte_rate=1)
    await one.record()
    async with one.without_outcomes():
        await one.alter(ALICE, producer_byte_rate=2)
        kafka_writes(world.zk, "users/alice", rate(3))
        kafka_writes(world.zk, "users/bob", rate(3))
        await one.store.catch_up(soon(60))
        for _ in range(3):
            await one.round()
        assert [record.intent.entities[0].entity_id for record in await one.external()] == ["user=bob"]
    await one.record()
    assert [shown(record)[:3] for record in await one.external(entity_id="user=alice")] == [(1, 2, 1)]
    assert_chains(await one.trail())


@pytest.mark.parametrize("before", ["it was never there", "it is absent", "others delete it"])
@pytest.mark.parametrize("after", ["others write it", "we write it as well", "others delete it again"])
async def test_a_user_that_came_with_an_open_creation_of_a_pair_waits_until_that_is_settled(
    world: World, before: str, after: str
) -> None:
    """The transaction makes the user's znode too, and the trail names the pair alone."""
    one = await world.replica()
    await one.record()
    expected = []
    if before != "it was never there":
        kafka_writes(world.zk, "users/alice", rate(1))
        await one.record()
        world.zk.delete("/config/users/alice")
        notify(world.zk, "users/alice")
        await one.store.catch_up(soon(60))
        expected = [(None, 0, 1, {}, {RATE: "1"}), (0, None, 1, {RATE: "1"}, {})]
    if before == "it is absent":
        await one.record()
    async with one.without_outcomes():
        await one.alter(BILLING, producer_byte_rate=2)
        kafka_writes(world.zk, "users/alice", rate(3))
        await one.store.catch_up(soon(60))
        expected.append((0, 1, 1, {}, {RATE: "3"}))
        if after != "others write it":
            await one.alter(ALICE, producer_byte_rate=4)
        if after == "others delete it again":
            world.zk.delete("/config/users/alice", recursive=True)
            notify(world.zk, "users/alice")
            await one.store.catch_up(soon(60))
            expected.append((2, None, 1, {RATE: "4"}, {}))
        kafka_writes(world.zk, "users/bob", rate(3))
        await one.store.catch_up(soon(60))
        known = await one.external(entity_id=ALICE.id)
        for _ in range(3):
            await one.round()
        assert await one.external(entity_id=ALICE.id) == known
        assert len(await one.external(entity_id="user=bob")) == 1
    await one.record()
    assert [shown(record) for record in await one.external(entity_id=ALICE.id)] == expected


async def test_a_recorder_that_ends_during_its_work_is_followed_by_one_that_finds_each_change_once(
    world: World,
) -> None:
    one = await world.replica()
    await one.record()
    for number in range(40):
        kafka_writes(world.zk, f"users/u{number}", rate(number + 1))
    await one.store.catch_up(soon(60))
    await one.round()
    move, moved = one.states.move, 0

    async def half(cluster: str, moves: Any, **named: Any) -> Any:
        """Postgres takes it, and the process ends before it knows."""
        nonlocal moved
        await move(cluster, moves[:20], **named)
        moved += 1
        raise KeyError

    cast("Any", one.states).move = half
    with pytest.raises(KeyError):
        await one.recorder.round()
    assert moved == 1
    assert count(world.database.owner_dsn, "outcomes") == 20
    two = await world.replica()
    cast("Any", one.states).move = move
    await asyncio.gather(two.record(), one.record())
    assert len({record.intent.entities[0].entity_id for record in await two.external()}) == 40
    assert count(world.database.owner_dsn, "outcomes") == 40


async def test_a_content_that_postgres_can_not_take_as_it_is(world: World) -> None:
    one = await world.replica()
    await one.record()
    kafka_writes(world.zk, "users/nul", b'{"version":1,"config":{"a\\u0000b":"1","producer_byte_rate":"\\u0000"}}')
    kafka_writes(world.zk, "users/long", content(**{secrets.token_hex(2500): "1", RATE: "2"}))
    kafka_writes(world.zk, "users/wide", content(**{"\U0001f418" * 900 + secrets.token_hex(50): "1", RATE: "2"}))
    kafka_writes(world.zk, "users/broken", b"no json")
    kafka_writes(world.zk, "users/fine", rate(1))
    await one.record()
    found = {record.intent.entities[0].entity_id: record for record in await one.external()}
    assert set(found) == {"user=nul", "user=long", "user=wide", "user=broken", "user=fine"}
    # A name that is too long for an index: it can't be recorded, which is told, and the others are.
    long = secrets.token_hex(4500)
    kafka_writes(world.zk, f"users/{long}", rate(1))
    kafka_writes(world.zk, "users/other", rate(1))
    assert one.recorder.warnings() == []
    await one.record()
    assert set(states(world.database.owner_dsn)) == {*found, "user=other"}
    [warning] = one.recorder.warnings()
    assert "Postgres refuses the states of 1 entities" in str(warning)
    assert found["user=broken"].intent.reason == "The znode does not hold JSON"
    assert shown(found["user=nul"])[4] == {"a�b": None, RATE: None}
    # A change of ours leaves it where it is.
    kafka_writes(world.zk, "users/nul", b'{"version":1,"config":{"a\\u0000b":"1"}}')
    await one.store.catch_up(soon(60))
    await one.alter(Entity.of(user="nul"), producer_byte_rate=7)
    assert world.zk.get("/config/users/nul")[0] == b'{"version":1,"config":{"a\\u0000b":"1","producer_byte_rate":"7"}}'
    assert (await one.trail())[-1].intent.entities[0].after == {"a�b": None, RATE: "7"}


@pytest.mark.parametrize("layout", ["shared", "separate"])
async def test_an_entity_that_no_index_takes_holds_up_nothing_and_is_not_altered(world: World, layout: str) -> None:
    one = await world.replica(client_configs_layout=layout)
    await one.alter(ALICE, FacetName.CLIENT_CONFIGS, acks="1")
    await one.record()
    tree = Tree.CONFIG if layout == "shared" else Tree.CLIENT_CONFIGS
    name = secrets.token_hex(2_000)
    long = Entity.of(user=name)
    world.zk.create(full_path(tree, long), content(acks="all"), makepath=True)
    notify(world.zk, f"users/{name}")
    before = one.recorder.watermark
    assert before is not None
    kafka_writes(world.zk, "users/other", rate(1))
    await one.record()
    after = one.recorder.watermark
    assert after is not None
    assert after.revision > before.revision
    assert "user=other" in states(world.database.owner_dsn)
    [warning] = one.recorder.warnings()
    assert "Postgres refuses the states of 1 entities" in str(warning)
    refused = (await one.alter(long, FacetName.CLIENT_CONFIGS, acks="1")).error
    assert isinstance(refused, InvalidRequestError)
    assert "an entity id takes 2000 bytes at most" in refused.detail
    # Others in the same load of a bulk are altered.
    facet = one.parts.clusters.get("default").facets[FacetName.CLIENT_CONFIGS]
    ops = (Op("acks", OpType.SET, "1"),)
    edits = [Edit(each, ops) for each in (long, Entity.of(user="beside"), BILLING)]
    results = await one.parts.alter.alter(facet, edits, Caller.operator("User:admin", "127.0.0.1", "r", soon(30)))
    assert [type(each.error) for each in results] == [InvalidRequestError, type(None), type(None)]
    # A deletion has no state either, and holds up nothing.
    world.zk.delete(full_path(tree, long))
    notify(world.zk, f"users/{name}")
    kafka_writes(world.zk, "users/other", rate(2))
    await one.record()
    assert one.recorder.watermark is not None
    assert one.recorder.watermark.revision > after.revision


async def test_a_write_without_a_notification_is_found_and_notified(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    kafka_writes(world.zk, "users/alice", rate(1))
    kafka_writes(world.zk, "users/alice/clients/billing", rate(1))
    kafka_writes(world.zk, "users/gone", rate(1))
    one, two = await world.replica(), await world.replica()
    await one.record()
    world.zk.set("/config/users/alice", rate(2))
    world.zk.create("/config/users/alice/clients/new", rate(3))
    world.zk.create("/config/users/other/clients/deep", rate(4), makepath=True)
    world.zk.delete("/config/users/gone")
    before = set(world.zk.get_children("/config/changes"))
    # Whoever wrote it has a minute to write the notification as well.
    assert await one.store.recording.notify_unnotified(lambda: True) == 0
    await one.record()
    assert await one.external() == []
    monkeypatch.setattr(unnotified, "UNNOTIFIED_AGE_S", 0.0)
    # The parent that came with one of them is a node of its own.
    assert await one.store.recording.notify_unnotified(lambda: True) == 5
    assert len(set(world.zk.get_children("/config/changes")) - before) == 5
    await one.record()
    found = {record.intent.entities[0].entity_id: shown(record) for record in await one.external()}
    assert found == {
        "user=alice": (0, 1, 1, {RATE: "1"}, {RATE: "2"}),
        "user=alice,client-id=new": (None, 0, 1, {}, {RATE: "3"}),
        "user=other,client-id=deep": (None, 0, 1, {}, {RATE: "4"}),
        "user=gone": (0, None, 1, {RATE: "1"}, {}),
    }
    # Other processes know by now, and there is nothing more to be found.
    await two.store.catch_up(soon(60))
    assert two.store.get(Tree.CONFIG, "user=gone") is None
    assert await one.store.recording.notify_unnotified(lambda: True) == 0
    with pytest.raises(UnavailableError):
        await one.store.recording.notify_unnotified(lambda: False)


async def test_a_write_without_a_notification_that_the_leader_knows_is_notified(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A read found it, or it was there when the mirror was loaded: other mirrors and brokers do not have it."""
    for name in ("alice", "loaded", "gone"):
        kafka_writes(world.zk, f"users/{name}", rate(1))
    one, two = await world.replica(), await world.replica()
    await one.record()
    monkeypatch.setattr(unnotified, "UNNOTIFIED_AGE_S", 0.0)
    assert await one.store.recording.notify_unnotified(lambda: True) == 0
    world.zk.set("/config/users/alice", rate(2))
    await one.store.read(Tree.CONFIG, ALICE, soon(60))
    world.zk.set("/config/users/loaded", rate(3))
    world.zk.delete("/config/users/gone")
    # Brokers create topics, and ZooKeeper's clients parents, without a notification.
    world.zk.create("/config/topics/new", content(retention_ms="1"))
    world.zk.create("/config/users/parent/clients", makepath=True)
    one.store._follower.reload()
    await until(lambda: one.store.get(Tree.CONFIG, "user=gone") is None)
    before = set(world.zk.get_children("/config/changes"))
    await one.record()
    assert len(set(world.zk.get_children("/config/changes")) - before) == 1
    assert await one.store.recording.notify_unnotified(lambda: True) == 2
    await two.store.catch_up(soon(60))
    assert [two.store.get(Tree.CONFIG, f"user={name}") for name in ("alice", "loaded", "gone")] == [
        one.store.get(Tree.CONFIG, f"user={name}") for name in ("alice", "loaded", "gone")
    ]
    assert await one.store.recording.notify_unnotified(lambda: True) == 0


@pytest.mark.parametrize(("long_walk_s", "reads"), [(600.0, 1), (0.0, 2)], ids=["short", "long"])
async def test_a_walk_reads_the_notifications_once_and_a_long_one_twice(
    world: World, monkeypatch: pytest.MonkeyPatch, *, long_walk_s: float, reads: int
) -> None:
    kafka_writes(world.zk, "users/alice", rate(1))
    one = await world.replica()
    monkeypatch.setattr(unnotified, "UNNOTIFIED_AGE_S", 0.0)
    monkeypatch.setattr(unnotified, "LONG_WALK_S", long_walk_s)
    children = Session.children
    listed: list[str] = []

    def counted(session: Session, path: str, *watch: Any) -> Any:
        if asyncio.current_task() is walk:
            listed.append(path)
        return children(session, path, *watch)

    monkeypatch.setattr(Session, "children", counted)
    walk = asyncio.ensure_future(one.store.recording.notify_unnotified(lambda: True))
    assert await walk == 0
    assert listed.count("/config/changes") == reads


async def test_a_write_without_a_notification_that_was_read_for_an_earlier_one_is_recorded(world: World) -> None:
    """No mirror differs from ZooKeeper, so nobody notifies of it, and nothing else is written."""
    one = await world.replica()
    await one.record()
    async with mirror_paused(one.store):
        kafka_writes(world.zk, "users/bob", rate(1))
        world.zk.set("/config/users/bob", rate(2))
        last = world.zk.get("/config/users/bob")[1].mzxid

    async def recorded() -> bool:
        await one.round()
        known = await one.states.watermark("default")
        return known is not None and known.revision >= last

    await until(recorded)
    assert [shown(record)[:3] for record in await one.external()] == [(None, 1, 2)]


async def test_an_entity_that_only_another_mirror_knows_is_not_taken_for_deleted(world: World) -> None:
    one = await world.replica()
    await one.record()
    world.zk.create("/config/users/late", rate(1))
    two = await world.replica()
    await two.record()
    assert [shown(record)[4] for record in await two.external()] == [{RATE: "1"}]
    one.recorder._step_down()
    assert one.store.get(Tree.CONFIG, "user=late") is None
    await one.record()
    assert len(await one.external()) == 1
    assert states(world.database.owner_dsn)["user=late"][0] is True


async def test_a_mirror_that_was_loaded_again_is_compared_with_the_states(world: World) -> None:
    one = await world.replica()
    await one.alter(ALICE, producer_byte_rate=1)
    await one.record()
    kafka_writes(world.zk, "users/alice", rate(2))
    skip_notification(world.zk)
    await one.record()
    await one.record()
    assert [shown(record) for record in await one.external()] == [(0, 1, 1, {RATE: "1"}, {RATE: "2"})]


def advance(one: Replica, seconds: float) -> None:
    """Set the recorder's clock so many seconds ahead."""
    one.recorder.clock = lambda: time.monotonic() + seconds


class Ailing:
    """The states of a replica, in a Postgres that is away for one call of a round."""

    def __init__(self, replica: Replica) -> None:
        self._replica = replica
        self._left = 0
        for name in ("watermark", "known", "own", "open", "contents", "move", "advance", "present"):
            setattr(replica.states, name, self._ailing(getattr(replica.states, name)))

    def _ailing(self, call: Any) -> Any:
        async def called(*given: Any, **more: Any) -> Any:
            self._left -= 1
            if not self._left:
                raise UnavailableError("away")
            return await call(*given, **more)

        return called

    async def fail_a_round(self, call: int) -> bool:
        """Run a round whose n-th call fails; return False where the round has fewer calls."""
        self._left = call
        try:
            await self._replica.recorder.round()
        except UnavailableError:
            return True
        finally:
            self._left = 0
        return False


@pytest.mark.parametrize("last", ["we write it", "others write it", "others delete it", "others make it anew"])
async def test_a_node_that_waits_through_a_load_gives_way_to_what_was_loaded(world: World, last: str) -> None:
    one = await world.replica()
    await one.alter(ALICE, producer_byte_rate=1)
    await one.record()
    kafka_writes(world.zk, "users/alice", rate(2))
    await one.store.catch_up(soon(60))
    await one.round()
    assert one.recorder._explainer.pending
    match last:
        case "we write it":
            await one.alter(ALICE, producer_byte_rate=3)
        case "others write it":
            kafka_writes(world.zk, "users/alice", rate(3))
        case _:
            world.zk.delete("/config/users/alice")
            if last == "others make it anew":
                kafka_writes(world.zk, "users/alice", rate(3))
    skip_notification(world.zk)
    await one.store.catch_up(soon(60))
    assert await Ailing(one).fail_a_round(2)
    await one.record()
    if last == "others delete it":
        assert states(world.database.owner_dsn)[ALICE.id][0] is False
        return
    await one.alter(ALICE, producer_byte_rate=4)
    await one.record()
    stat = world.zk.exists("/config/users/alice")
    assert states(world.database.owner_dsn)[ALICE.id][:3] == (True, stat.czxid, stat.version)
    if last != "others make it anew":
        assert assert_chains(await one.trail()) == {"/config/users/alice": 3}
        assert len([record for record in await one.trail() if record.kind == "change"]) == (3 if "we" in last else 2)


@pytest.mark.parametrize("seed", [3, 4, *(pytest.param(seed, marks=pytest.mark.long) for seed in range(5, 40))])
async def test_load_and_failures_of_postgres_lose_no_version(world: World, seed: int) -> None:
    """Each version has one row, however loads of the mirror and rounds that fail in the middle are interleaved."""
    dice = random.Random(seed)  # noqa: S311 - a test's
    one = await world.replica()
    await one.record()
    entities = [Entity.of(user=f"u{number}") for number in range(4)]
    for entity in entities:
        await one.alter(entity, producer_byte_rate=0)
    await one.record()
    values = itertools.count(1)
    postgres = Ailing(one)
    for _ in range(80):
        entity = dice.choice(entities)
        match dice.choice(["ours", "ours", "theirs", "theirs", "reload", "failing", "failing", "round", "catch up"]):
            case "ours":
                await one.alter(entity, producer_byte_rate=next(values))
            case "theirs":
                kafka_writes(world.zk, entity.path, rate(next(values)))
            case "reload":
                skip_notification(world.zk)
            case "failing":
                await postgres.fail_a_round(dice.randrange(1, 9))
            case "round":
                await one.round()
            case _:
                await one.store.catch_up(soon(60))
    await one.record()
    ends = assert_chains(await one.trail())
    known = states(world.database.owner_dsn)
    for entity in entities:
        stat = world.zk.exists(f"/config/{entity.path}")
        assert ends[f"/config/{entity.path}"] == stat.version
        assert known[entity.id][:3] == (True, stat.czxid, stat.version)


@pytest.mark.long
async def test_what_the_journal_had_to_drop_is_found_by_comparing_all(world: World) -> None:
    one = await world.replica()
    await one.record()
    cast("MirrorJournal", one.store.journal).most = 4
    for number in range(20):
        kafka_writes(world.zk, f"users/u{number}", rate(1))
        await one.alter(ALICE, producer_byte_rate=number)
    kafka_writes(world.zk, "users/u7", rate(2))
    await one.record()
    assert len({record.intent.entities[0].entity_id for record in await one.external()}) == 20
    assert_chains(await one.trail(entity_id=ALICE.id))


async def test_concurrent_own_and_external_changes_are_each_explained_once(world: World) -> None:
    """The trail folds up to what ZooKeeper has: no version is missing, none is in it twice, whoever records."""
    replicas = [await world.replica() for _ in range(2)]
    await replicas[0].record()  # what is there at first contact has no row
    entities = [Entity.of(user=f"u{number}", client_id="x") for number in range(6)]
    ended = asyncio.Event()
    # No value twice: a run of others that ends with what was there makes no row.
    values = itertools.count(1)

    async def ours(replica: Replica, seed: int) -> None:
        dice = random.Random(seed)  # noqa: S311 - a test's
        for _ in range(60):
            entity = dice.choice(entities)
            if dice.random() < 0.5:
                await replica.alter(entity, producer_byte_rate=next(values))
            else:
                await replica.alter(entity, FacetName.CLIENT_CONFIGS, acks=dice.choice(["0", "1", "all"]))

    def theirs(seed: int) -> None:
        dice = random.Random(seed)  # noqa: S311 - a test's
        for _ in range(60):
            entity = dice.choice(entities)
            value = str(next(values))
            with contextlib.suppress(kazoo.exceptions.NodeExistsError):  # created by us this moment
                kafka_writes(world.zk, entity.path, content(producer_byte_rate=value, acks="1"))
            time.sleep(dice.random() / 50)

    async def record(replica: Replica) -> None:
        while not ended.is_set():
            await replica.round()
            await asyncio.sleep(0)

    recording = [asyncio.create_task(record(replica)) for replica in replicas]
    await asyncio.gather(
        *(ours(replica, number) for number, replica in enumerate(replicas * 3)), asyncio.to_thread(theirs, 99)
    )
    ended.set()
    await asyncio.gather(*recording)
    await replicas[0].record()
    trail = await replicas[0].trail()
    ends = assert_chains(trail)
    for entity in entities:
        stat = world.zk.exists(f"/config/{entity.path}")
        if stat is not None:
            assert ends[f"/config/{entity.path}"] == stat.version
    assert len([record for record in trail if record.kind == "external"]) > 5


async def test_the_recorder_gets_over_a_database_that_is_away(world: World, caplog: pytest.LogCaptureFixture) -> None:
    one = await world.replica()
    await one.record()
    known, answers = one.states.known, iter([UnavailableError("away"), ValueError("odd")])

    async def ailing(*given: Any, **more: Any) -> Any:
        for error in answers:
            raise error
        return await known(*given, **more)

    cast("Any", one.states).known = ailing
    record.INTERVAL_S, interval = 0.05, record.INTERVAL_S
    try:
        one.recorder.start()
        kafka_writes(world.zk, "users/alice", rate(2))
        await until(one.external)
    finally:
        record.INTERVAL_S = interval
    assert "recording has to wait: away" in caplog.text
    assert "recording failed" in caplog.text


async def test_a_replica_that_does_not_lead_records_nothing_and_follows_the_leader(world: World) -> None:
    leader, other = await world.replica(), await world.replica(leads=False)
    watermark = await leader.record()
    assert not await other.recorder.round()
    kafka_writes(world.zk, "users/alice", rate(2))
    await other.store.catch_up(soon(60))
    await other.recorder.round()
    assert await other.external() == []
    kept = other.store._purger._kept
    assert kept is not None
    assert kept[0] == watermark


async def test_what_compaction_removes_is_ours(world: World) -> None:
    one = await world.replica()
    await one.record()
    pair = Entity.of(user="olga", client_id="x")
    await one.alter(pair, producer_byte_rate=1)
    await one.record()
    await one.edit(pair, FacetName.CLIENT_QUOTAS, (Op(RATE, OpType.DELETE),))
    service = CompactService(ChangeRunner(one.audit), one.store, one.parts.target_states)
    caller = Caller.operator("User:admin", "127.0.0.1", "r", soon(30))
    run = service.run([(Tree.CONFIG, pair.id)], caller, older_than_s=-60, apply=True)
    assert [result is not None and result.error is None async for result in run] == [True]
    assert world.zk.exists("/config/users/olga") is None
    await one.alter(pair, producer_byte_rate=2)
    await one.record()
    assert await one.external() == []
    kafka_writes(world.zk, pair.path, rate(3))
    await one.record()
    assert [shown(record) for record in await one.external()] == [(0, 1, 1, {RATE: "2"}, {RATE: "3"})]


async def test_the_separate_tree_of_client_configs_is_recorded_as_well(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    one = await world.replica(client_configs_layout="separate")
    await one.record()
    await one.alter(ALICE, FacetName.CLIENT_CONFIGS, acks="all")
    await one.alter(ALICE, producer_byte_rate=1)
    path = "/confplane/client-configs/users/alice"
    world.zk.set(path, content(acks="0", producer_byte_rate="7"))
    notify(world.zk, "users/alice")
    await one.record()
    [record] = await one.external()
    assert record.intent.entities[0].path == path
    # A quota has no business there: its value is that of an unknown key.
    assert shown(record) == (0, 1, 1, {"acks": "all"}, {"acks": "0", RATE: None})
    monkeypatch.setattr(unnotified, "UNNOTIFIED_AGE_S", 0.0)
    world.zk.set(path, content(acks="1"))
    assert await one.store.recording.notify_unnotified(lambda: True) == 1
    await one.record()
    assert len(await one.external()) == 2


async def test_a_change_that_postgres_lost_is_recovered_by_its_marker(world: World) -> None:
    """A standby that was behind is promoted: rows that were confirmed are gone, and another server answers."""
    one = await world.replica()
    await one.record()
    await one.alter(ALICE, producer_byte_rate=1)
    await one.record()
    backup = Backup(world.database.owner_dsn)
    lost = await one.alter(ALICE, producer_byte_rate=2)
    both = await one.edit_all([ALICE, BILLING], consumer_byte_rate=3)
    kafka_writes(world.zk, "users/alice", rate(4))
    await one.record()
    assert len(await one.trail()) == 4
    backup.restore()
    assert len(await one.trail()) == 1
    # Nothing says so but that it is another run of a server.
    one.recorder.server = "the one before"
    await one.record()
    trail = await one.trail()
    assert [record.kind for record in trail] == ["change", "recovered", "recovered", "external"]
    first, second = trail[1:3]
    assert (str(first.intent.change_id), str(second.intent.change_id)) == (lost.change_id, both[0].change_id)
    assert (first.intent.principal, first.intent.request_id) == ("User:admin", "r")
    assert first.outcome is not None
    assert first.outcome.revision == lost.revision
    assert shown(first)[:4] == (0, 1, 1, {RATE: "1"})
    assert {entity.entity_id for entity in second.intent.entities} == {ALICE.id, BILLING.id}
    assert_chains(trail)
    # A second look finds nothing.
    one.recorder.server = "the one before"
    await one.record()
    assert await one.trail() == trail


NEW_PAIRS: Final = [Entity.of(user="olga", client_id=client) for client in ("x", "y")]


def notified(zk: KazooClient, revision: int) -> list[str]:
    """The paths of a transaction's notifications, in order."""
    found = []
    for name in sorted(zk.get_children("/config/changes")):
        data, stat = zk.get(f"/config/changes/{name}")
        if stat.czxid == revision:
            found.append(json.loads(data)["entity_path"])
    return found


async def test_changes_of_one_transaction_are_each_explained_by_themselves(world: World) -> None:
    one = await world.replica()
    await one.record()
    await one.alter(ALICE, producer_byte_rate=1)
    kafka_writes(world.zk, "users/alice", rate(2))
    await one.store.catch_up(soon())
    made = await one.edit_all([*NEW_PAIRS, ALICE, BILLING], atomic=False, producer_byte_rate=3)
    [revision] = {result.revision for result in made}
    kafka_writes(world.zk, "users/olga", rate(4))
    await one.record()
    trail = await one.trail()
    assert_chains([record for record in trail if record.intent.entities[0].entity_id != "user=olga"])
    # Others wrote alice before it, and after it the user that came with the pairs and has no row of its own.
    assert [record.intent.entities[0].entity_id for record in trail if record.kind == "external"] == [
        ALICE.id,
        "user=olga",
    ]
    # Newest first, the trail lists them in the order of their notifications.
    listed, _ = await one.audit.search(AuditQuery("default", page_size=2))
    last, _ = await one.audit.search(AuditQuery("default", page_size=10, before=listed[-1].intent.change_id))
    of_one = [each for each in (*listed, *last) if each.outcome is not None and each.outcome.revision == revision]
    paths = [each.intent.entities[0].path.removeprefix("/config/") for each in reversed(of_one)]
    assert paths == notified(world.zk, revision or 0) == [each.path for each in (*NEW_PAIRS, ALICE, BILLING)]


async def test_changes_of_one_transaction_that_postgres_lost_are_each_recovered(world: World) -> None:
    one = await world.replica()
    await one.alter(ALICE, producer_byte_rate=1)
    await one.record()
    backup = Backup(world.database.owner_dsn)
    made = await one.edit_all([*NEW_PAIRS, ALICE, BILLING], atomic=False, producer_byte_rate=3)
    kafka_writes(world.zk, "users/olga", rate(4))
    await one.record()
    backup.restore()
    one.recorder.server = "the one before"
    await one.record()
    trail = await one.trail()
    recovered = [record for record in trail if record.kind == "recovered"]
    assert {str(record.intent.change_id) for record in recovered} == {result.change_id for result in made}
    assert {record.outcome.revision for record in recovered if record.outcome} == {made[0].revision}
    # The user that came with the pairs is ours as well: only the write to it is external.
    [external] = [record for record in trail if record.kind == "external"]
    assert (external.intent.entities[0].entity_id, shown(external)[:2]) == ("user=olga", (0, 1))
    assert_chains([record for record in trail if record.intent.entities[0].entity_id != "user=olga"])


async def test_thousands_of_changes_that_postgres_lost_are_recovered_and_each_marker_is_read_once(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    one = await world.replica()
    await one.record()
    backup = Backup(world.database.owner_dsn)
    many = [Entity.of(user=f"u{number:04}") for number in range(2_000)]
    # Changes of two entities each, which are far apart by their last writes.
    pairs = [(each, Entity.of(user=f"other-{each.id[-4:]}")) for each in many[::200]]
    for pair in pairs:
        await one.edit_all(pair, producer_byte_rate=2)
    for start in range(0, len(many), 1_000):
        await one.edit_all(many[start : start + 1_000], atomic=False, producer_byte_rate=1)
    kafka_writes(world.zk, "users/u0001", rate(3))
    await one.record()
    assert await one.external() != []
    backup.restore()
    read: list[UUID] = []
    recording = one.store.recording
    commits = recording.commits

    async def note(change_ids: Sequence[UUID]) -> list[Marker]:
        read.extend(change_ids)
        return await commits(change_ids)

    monkeypatch.setattr(recording, "commits", note)
    # However long it takes: the time of the search begins at its end.
    one.recorder._explainer.lost.seconds = 0.0
    one.recorder.server = "the one before"
    await one.record()
    assert len(read) == len(set(read)) == len(many) + len(pairs)
    kinds = fetch(world.database.owner_dsn, "SELECT kind, count(*) FROM intents GROUP BY kind ORDER BY kind")
    assert kinds == [("external", 1), ("recovered", len(read))]
    [external] = await one.external()
    assert shown(external)[:2] == (0, 1)


async def test_the_rest_of_a_lost_change_is_recovered_by_the_next_leader(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The first leader ends when it has recovered the part of one entity."""
    one = await world.replica()
    await one.alter(ALICE, producer_byte_rate=1)
    await one.record()
    backup = Backup(world.database.owner_dsn)
    await one.edit_all([ALICE, BILLING], consumer_byte_rate=3)
    await one.record()
    backup.restore()
    monkeypatch.setattr(explain, "BATCH", 1)
    moved = 0

    class Ends:
        """A leadership that ends with the first move."""

        @property
        def held(self) -> bool:
            return not moved

    move = one.states.move

    async def note(*args: Any, **options: Any) -> Any:
        nonlocal moved
        moved += 1
        return await move(*args, **options)

    monkeypatch.setattr(one.states, "move", note)
    cast("Any", one.store).leadership = Ends()
    one.recorder.server = "the one before"
    with contextlib.suppress(UnavailableError):
        while await one.recorder.round():
            pass
    assert moved == 1
    [trail] = [record for record in await one.trail() if record.kind != "change"]
    assert len(trail.intent.entities) == 1
    two = await world.replica()
    await two.record()
    assert await two.external() == []
    [recovered] = [record for record in await two.trail() if record.kind == "recovered"]
    assert {entity.entity_id for entity in recovered.intent.entities} == {ALICE.id, BILLING.id}


async def test_a_compaction_that_postgres_lost_is_recovered_by_its_marker(world: World) -> None:
    one = await world.replica()
    pair = Entity.of(user="olga", client_id="x")
    await one.alter(pair, producer_byte_rate=1)
    await one.edit(pair, FacetName.CLIENT_QUOTAS, (Op(RATE, OpType.DELETE),))
    await one.record()
    backup = Backup(world.database.owner_dsn)
    service = CompactService(ChangeRunner(one.audit), one.store, one.parts.target_states)
    caller = Caller.operator("User:admin", "127.0.0.1", "r", soon(30))
    run = service.run([(Tree.CONFIG, pair.id)], caller, older_than_s=-60, apply=True)
    [removed] = [result async for result in run]
    assert removed is not None
    assert removed.entity_ids == (pair.id, "user=olga")
    await one.record()
    backup.restore()
    one.recorder.server = "the one before"
    await one.record()
    trail = await one.trail()
    assert [record.kind for record in trail] == ["change", "change", "recovered"]
    [recovered] = trail[2:]
    assert str(recovered.intent.change_id) == removed.change_id
    assert {(each.entity_id, each.version_read) for each in recovered.intent.entities} == {
        (pair.id, 1),
        ("user=olga", 0),
    }
    assert recovered.outcome is not None
    assert recovered.outcome.versions == {}
    # What is made anew is ours, and the removal is nobody else's.
    await one.alter(pair, producer_byte_rate=2)
    await one.record()
    assert await one.external() == []


async def test_a_recursive_delete_takes_siblings_along(world: World) -> None:
    for name in ("billing", "shipping"):
        kafka_writes(world.zk, f"users/alice/clients/{name}", rate(1))
    kafka_writes(world.zk, "users/alice", rate(2))
    one = await world.replica()
    await one.record()
    world.zk.delete("/config/users/alice", recursive=True)
    # One notification, and of one of the pairs only.
    notify(world.zk, "users/alice/clients/billing")
    await one.record()
    found = {record.intent.entities[0].entity_id: shown(record) for record in await one.external()}
    assert found == {
        ALICE.id: (1, None, 1, {RATE: "2"}, {}),
        BILLING.id: (0, None, 1, {RATE: "1"}, {}),
        "user=alice,client-id=shipping": (0, None, 1, {RATE: "1"}, {}),
    }


async def test_what_is_gone_for_long_is_forgotten_and_comes_back_as_new(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    kafka_writes(world.zk, "users/alice", rate(1))
    kafka_writes(world.zk, "users/bob", rate(1))
    one = await world.replica()
    await one.record()
    world.zk.delete("/config/users/alice")
    notify(world.zk, "users/alice")
    await one.record()
    advance(one, 3_600)
    await one.round()
    assert set(states(world.database.owner_dsn)) == {"user=alice", "user=bob"}
    monkeypatch.setattr(record, "GONE_S", 0.0)
    advance(one, 7_200)
    await one.round()
    assert set(states(world.database.owner_dsn)) == {"user=bob"}
    kafka_writes(world.zk, "users/alice", rate(2))
    await one.record()
    assert [shown(each)[:3] for each in await one.external()] == [(0, None, 1), (None, 0, 1)]


async def test_a_missing_recorder_is_reported_and_catches_up_later(world: World) -> None:
    """The process that leads has the setting off, or is of an earlier version."""
    one, other = await world.replica(), await world.replica(leads=False)
    await one.record()
    since = other.recorder.watermark
    assert since is None
    await other.recorder.round()
    since = other.recorder.watermark
    assert since is not None
    assert since.since == since.revision
    assert other.recorder.warnings() == []
    kafka_writes(world.zk, "users/alice", rate(1))
    await other.alter(ALICE, producer_byte_rate=2)
    kafka_writes(world.zk, "users/alice", rate(3))
    run(world.database.owner_dsn, "UPDATE watermarks SET recorded_at = recorded_at - interval '61 s'")
    advance(other, 11)
    await other.recorder.round()
    advance(other, 72)
    [warning] = other.recorder.warnings()
    assert "another process leads, and does not record external changes" in str(warning)
    cast("Any", other.store).leadership = Leads()
    await other.record()
    assert other.recorder.warnings() == []
    assert [each.kind for each in await other.trail()] == ["external", "change", "external"]
    assert_chains(await other.trail())
    assert other.recorder.watermark is not None
    assert other.recorder.watermark.since == since.since


async def test_what_comes_back_while_all_entities_are_compared_is_explained_from_where_it_was(world: World) -> None:
    """Absent while the entities are compared, alice is back when the recorder looks for the missing ones."""
    one = await world.replica()
    await one.alter(ALICE, producer_byte_rate=1)
    await one.record()
    one.recorder._step_down()
    for value in (None, 2, None):
        if value is None:
            world.zk.delete("/config/users/alice")
            notify(world.zk, "users/alice")
            await one.store.catch_up(soon(60))
        else:
            await one.alter(ALICE, producer_byte_rate=value)
    present = one.states.present

    async def late(*given: Any) -> list[str]:
        if one.store.get(Tree.CONFIG, ALICE.id) is None:
            kafka_writes(world.zk, "users/alice", rate(3))
            await one.store.catch_up(soon(60))
        return await present(*given)

    cast("Any", one.states).present = late
    await one.record()
    await one.record()
    assert [shown(record)[:3] for record in await one.trail()] == [
        (None, 0, None), (0, None, 1), (None, 0, None), (0, 0, 2)
    ]  # fmt: skip
