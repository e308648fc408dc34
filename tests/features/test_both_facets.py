"""Client quotas and client configs of an entity in one change: in one znode, and in two."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any, Final, cast

import pytest

from confplane.audit import PostgresTrailHistory
from confplane.client import ProblemError
from confplane.domain.entities import Entity
from confplane.domain.errors import LayoutMovingError, NotAttemptedError, ObservedError, PreconditionFailedError
from confplane.domain.facets import FacetName, Tree
from confplane.domain.ops import Op, OpType
from confplane.services.ports.cluster_states import Layout
from confplane.services.ports.transactions import Guarded, StateWrite
from confplane.services.reads.describe import DescribeService
from confplane.services.reads.history import HistoryService
from tests.support.kafka_double import CLUSTER_ID
from tests.support.replicas import assert_chains
from tests.support.stores import ALICE, committed, content, mirror_paused, notify, soon, until

if TYPE_CHECKING:
    from kazoo.client import KazooClient

    from confplane.services.cluster_facet import ClusterFacet
    from tests.support.facets import ConfplaneClient
    from tests.support.replicas import Replica
    from tests.support.service import Service
    from tests.support.world import World

QUOTAS, CONFIGS = FacetName.CLIENT_QUOTAS, FacetName.CLIENT_CONFIGS
RATE: Final = "producer_byte_rate"
PATHS: Final = {
    "shared": {QUOTAS: "/config/users/alice", CONFIGS: "/config/users/alice"},
    "separate": {QUOTAS: "/config/users/alice", CONFIGS: "/confplane/client-configs/users/alice"},
}
LAYOUTS: Final = pytest.mark.parametrize("layout", PATHS)


def stored(zk: KazooClient, path: str) -> dict[str, str]:
    found: dict[str, str] = json.loads(zk.get(path)[0])["config"] if zk.exists(path) else {}
    return found


def collection_of(one: Replica, facet: FacetName) -> ClusterFacet:
    return one.parts.clusters.get("default").facets[facet]


def quota(value: int) -> Op:
    return Op(RATE, OpType.SET, value)


def acks(value: str | None) -> Op:
    return Op("acks", OpType.DELETE) if value is None else Op("acks", OpType.SET, value)


@LAYOUTS
async def test_it_is_one_change_whose_past_each_facet_has(world: World, layout: str) -> None:
    one = await world.replica(client_configs_layout=layout)
    await one.record()
    paths = PATHS[layout]
    revisions = []
    for number, (value, text) in enumerate(((1, "all"), (2, None), (2, "1"))):
        result = await one.edit_facets(ALICE, {QUOTAS: quota(value), CONFIGS: acks(text)})
        assert result.error is None
        assert len(world.zk.get_children("/config/changes")) == number + 1
        assert result.revision is not None
        revisions.append(result.revision)
        assert stored(world.zk, paths[QUOTAS])[RATE] == str(value)
        assert stored(world.zk, paths[CONFIGS]).get("acks") == text
        assert world.zk.get(paths[CONFIGS])[1].mzxid == result.revision
        of_quotas = result.revision if layout == "shared" or number < 2 else revisions[1]
        assert world.zk.get(paths[QUOTAS])[1].mzxid == of_quotas
    trail = await one.trail(entity_id=ALICE.id)
    apart = [["client-quotas", "client-configs"]] * 2 + [["client-configs"]]
    together = [["clients"]] * 2 + [["client-configs"]]
    assert [[row.facet for row in record.intent.entities] for record in trail] == (
        together if layout == "shared" else apart
    )
    assert [sorted(key for row in record.intent.entities for key in row.keys) for record in trail] == [
        ["acks", RATE],
        ["acks", RATE],
        ["acks"],
    ]
    await one.record()
    assert await one.external() == []
    assert_chains(trail)

    describe = DescribeService(cast("Any", None))  # registrations are no part of the past
    history = HistoryService(PostgresTrailHistory(one.parts.database), one.audit, describe)
    expected: dict[FacetName, list[Any]] = {QUOTAS: [None, 1, 2, 2], CONFIGS: [None, "all", None, "1"]}
    for facet, key in ((QUOTAS, RATE), (CONFIGS, "acks")):
        collection = collection_of(one, facet)
        for revision, value in zip((revisions[0] - 1, *revisions), expected[facet], strict=True):
            found = await history.entity(collection, ALICE, revision, soon(60))
            assert (found.declared.get(key), found.exact) == (value, True)
        items, _ = await history.changes(collection, ALICE, page_size=10, page_token=None)
        steps = zip(expected[facet], expected[facet][1:], strict=False)
        assert [(each.before, each.after) for item in reversed(items) for each in item.changes] == [
            (before, after) for before, after in steps if before != after
        ]
        diff = await history.diff(collection, ALICE, revisions[0], revisions[-1], soon(60))
        assert [(each.key, each.before, each.after) for each in diff.changes] == [
            (key, expected[facet][1], expected[facet][-1])
        ]


@LAYOUTS
async def test_an_external_write_to_one_facet_affects_both(world: World, layout: str) -> None:
    one = await world.replica(client_configs_layout=layout)
    path = PATHS[layout][CONFIGS]
    await one.edit_facets(ALICE, {QUOTAS: quota(1), CONFIGS: acks("all")})
    collection = collection_of(one, CONFIGS)
    node = collection.get(ALICE.id)
    assert node is not None
    etag = collection.tagged(ALICE, node.config, node)[1]
    assert etag is not None
    async with mirror_paused(one.store):
        world.zk.set(path, content(**{**stored(world.zk, path), "acks": "0"}))
        notify(world.zk, ALICE.path)
        refused = await one.edit_facets(ALICE, {QUOTAS: quota(2), CONFIGS: acks("1")}, {CONFIGS: etag})
    assert isinstance(refused.error, PreconditionFailedError)
    assert stored(world.zk, PATHS[layout][QUOTAS])[RATE] == "1"
    assert stored(world.zk, path)["acks"] == "0"
    async with mirror_paused(one.store):
        world.zk.set(path, content(**{**stored(world.zk, path), "session.timeout.ms": "20000"}))
        notify(world.zk, ALICE.path)
        applied = await one.edit_facets(ALICE, {QUOTAS: quota(3), CONFIGS: acks("1")})
    assert applied.error is None
    assert stored(world.zk, PATHS[layout][QUOTAS])[RATE] == "3"
    assert stored(world.zk, path).items() >= {"acks": "1", "session.timeout.ms": "20000"}.items()


async def test_an_observed_cluster_refuses_both_where_it_refuses_the_quotas(world: World) -> None:
    target = {"version": 1, "kind": "kraft", "mode": "observe", "cluster_id": CLUSTER_ID, "paused": False}
    one = await world.replica(client_configs_layout="separate")
    world.zk.set("/confplane/target", json.dumps({**target, "imported": True}).encode())
    await until(lambda: one.store._guard.target is not None)
    refused = await one.edit_facets(ALICE, {QUOTAS: quota(1), CONFIGS: acks("all")})
    assert isinstance(refused.error, ObservedError)
    assert [stored(world.zk, path) for path in PATHS["separate"].values()] == [{}, {}]
    assert (await one.edit_facets(ALICE, {CONFIGS: acks("all")})).error is None


async def test_entries_are_independent_unless_atomic(client: ConfplaneClient, zk: KazooClient) -> None:
    users = [Entity.of(user=name) for name in ("ines", "jack")]
    good, bad = ({RATE: 5}, {"acks": "1"}), ({RATE: 5}, {"acks": "2"})
    with pytest.raises(ProblemError) as caught:
        await client.alter_clients([(users[0], *good), (users[1], *bad)], atomic=True)
    assert [entry["errorName"] for entry in caught.value.body["entries"]] == [
        "OPERATION_NOT_ATTEMPTED",
        "INVALID_REQUEST",
    ]
    assert zk.exists("/config/users/ines") is None
    answer = await client.alter_clients([(users[0], *good), (users[1], *bad)])
    assert (answer.status, [entry["errorName"] for entry in answer.body["entries"]]) == (
        207,
        ["NONE", "INVALID_REQUEST"],
    )
    assert stored(zk, "/config/users/ines") == {RATE: "5", "acks": "1"}
    assert zk.exists("/config/users/jack") is None
    whole = await client.alter_clients([(user, {RATE: None}, {"acks": "0"}) for user in users], atomic=True)
    assert {entry["changeId"] for entry in whole.body["entries"]} == {whole.change_id}
    each = await client.alter_clients([(user, {RATE: 7}, {"acks": None}) for user in users])
    assert len({entry["changeId"] for entry in each.body["entries"]}) == 2


async def test_an_entity_in_two_entries_is_refused_in_both(client: ConfplaneClient, zk: KazooClient) -> None:
    twice = Entity.of(user="twice")
    for atomic in (False, True):
        with pytest.raises(ProblemError) as caught:
            await client.alter_clients([(twice, {RATE: 1}, {}), (twice, {}, {"acks": "1"})], atomic=atomic)
        assert [entry["errorName"] for entry in caught.value.body["entries"]] == ["INVALID_REQUEST"] * 2
    assert zk.exists("/config/users/twice") is None


async def test_a_change_that_is_only_validated_writes_nothing(client: ConfplaneClient, zk: KazooClient) -> None:
    answer = await client.alter_clients([(Entity.of(user="tried"), {RATE: 1}, {"acks": "1"})], validate_only=True)
    [entry] = answer.body["entries"]
    assert (entry["changeId"], entry["revision"]) == (None, None)
    assert {member: [each["key"] for each in diff] for member, diff in entry["diff"].items()} == {
        "quotas": [RATE],
        "configs": ["acks"],
    }
    assert zk.exists("/config/users/tried") is None


async def test_entries_of_one_facet_or_none(client: ConfplaneClient, zk: KazooClient) -> None:
    entries = [
        {"entity": [{"entityType": "ip", "entityName": "10.1.2.3"}], "quotas": [{"key": "connection_creation_rate", "value": 5}]},
        {"entity": [{"entityType": "user", "entityName": "kate"}], "configs": [{"key": "acks", "value": "1"}]},
        {"entity": [{"entityType": "user", "entityName": "nobody"}]},
    ]  # fmt: skip
    answer = await client.request("POST", "clients:alter", json={"entries": entries})
    assert [entry["changeId"] is None for entry in answer.body["entries"]] == [False, False, True]
    assert stored(zk, "/config/ips/10.1.2.3") == {"connection_creation_rate": "5"}
    assert stored(zk, "/config/users/kate") == {"acks": "1"}
    assert zk.exists("/config/users/nobody") is None


async def test_sent_again_through_another_process_it_is_done_once(
    pair: tuple[Service, Service], zk: KazooClient
) -> None:
    entries = [(Entity.of(user="once"), {RATE: 1}, {"acks": "1"})]
    async with pair[0].client() as one, pair[1].client() as two:
        first = await one.alter_clients(entries, idempotency_key="both facets, once")
        version = zk.get("/config/users/once")[1].version
        again = await two.alter_clients(entries, idempotency_key="both facets, once")
        assert (again.body, again.change_id, again.revision) == (first.body, first.change_id, first.revision)
        assert (first.replayed, again.replayed) == (False, True)
        assert zk.get("/config/users/once")[1].version == version
        assert len([item async for item in two.items("audit", entity="user=once")]) == 1


async def test_while_client_configs_are_moved_only_their_edit_is_refused_for_that(world: World) -> None:
    """The tree is looked for in each attempt, and the edits before it in the change are not to blame."""
    one = await world.replica()
    state = await one.store.read_state(Layout, soon())
    moving = StateWrite("/confplane/layout", state.version, Layout(Tree.CLIENT_CONFIGS, Tree.CONFIG))
    await committed(one.store, moving, guarded=Guarded.NONE)
    await until(lambda: one.store.place().moving)
    entry = await one.edit_facets(ALICE, {QUOTAS: quota(1), CONFIGS: acks("all")})
    assert [type(each.error) for each in entry.results] == [NotAttemptedError, LayoutMovingError]
    assert isinstance(entry.error, LayoutMovingError)
    assert entry.error.outcome == "not_applied"
    assert not world.zk.exists("/config/users/alice")
    assert (await one.edit_facets(ALICE, {QUOTAS: quota(1)})).error is None
