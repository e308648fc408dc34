"""Content at moments of the past, compared with a replay of ZooKeeper's own transaction log."""

from __future__ import annotations

import asyncio
import json
import random
from dataclasses import replace
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any, Final, TypeVar, cast

import pytest

from confplane.audit import PostgresTrailHistory
from confplane.domain.access.operations import Operation, PatternType, Permission, ResourceType
from confplane.domain.entities import Entity
from confplane.domain.errors import CorruptZnodeError, InvalidRequestError, UnavailableError
from confplane.domain.facets import FacetName, Tree
from confplane.domain.ops import Op, OpType
from confplane.services.changes.callers import Caller
from confplane.services.ports.trail import AuditQuery
from confplane.services.reads import history as history_module
from confplane.services.reads.describe import DescribeService, ListQuery, decode_token
from confplane.services.reads.history import HistoryService
from confplane.services.upkeep.layout import LayoutService
from tests.faults.txnlog import read_events
from tests.support.grants import Grants, access_of
from tests.support.stores import ALICE, content, kafka_writes, mirror_paused, notify, rate, soon
from tests.support.waiting import until

if TYPE_CHECKING:
    from collections.abc import Coroutine

    from kazoo.client import KazooClient

    from confplane.devstack.zookeeper import ZooKeeper
    from confplane.services.cluster_facet import ClusterFacet
    from confplane.services.reads.history import PastEntity, PastPage
    from tests.faults.history import NodeEvent
    from tests.support.replicas import Replica
    from tests.support.world import World

T = TypeVar("T")
QUOTAS: Final = FacetName.CLIENT_QUOTAS
CONFIGS: Final = FacetName.CLIENT_CONFIGS
RATE: Final = "producer_byte_rate"
USERS: Final = [Entity.of(user=name) for name in ("alice", "bob", "carol", "old")]
PAIRS: Final = [Entity.of(user=name, client_id="app") for name in ("alice", "bob")]


def history_of(one: Replica, **options: Any) -> HistoryService:
    describe = DescribeService(cast("Any", None))  # registrations are no part of the past
    return HistoryService(PostgresTrailHistory(one.parts.database), one.audit, describe, **options)


def collection_of(one: Replica, facet: FacetName = QUOTAS) -> ClusterFacet:
    return one.parts.clusters.get("default").facets[facet]


class Replay:
    """The content that ZooKeeper had at each revision, by its transaction log."""

    def __init__(self, events: list[NodeEvent]) -> None:
        self.events = events
        self._highest: list[tuple[int, int]] = []
        latest = 0
        for event in events:
            latest = max(latest, event.time_ms)
            self._highest.append((event.zxid, latest))

    def declared(self, collection: ClusterFacet, entity: Entity, tree: Tree, zxid: int) -> dict[str, Any]:
        path, found = f"{tree.value}/{entity.path}", None
        for event in self.events:
            if event.zxid > zxid:
                break
            if event.path == path:
                found = event.data
        config = json.loads(found)["config"] if found else {}
        return collection.declared(entity, config)

    def revision_at(self, time_ms: int) -> int:
        """The last revision before the first that is later."""
        return next((zxid - 1 for zxid, highest in self._highest if highest > time_ms), self.events[-1].zxid)


class RandomWalk:
    """Writers of one cluster: this service, and others past it."""

    def __init__(self, one: Replica, zk: KazooClient, dice: random.Random) -> None:
        self.one = one
        self.zk = zk
        self.dice = dice
        self._fresh: set[str] = set()
        """Nodes that others made since the last record. Made and deleted between two looks they leave no trace."""

    async def step(self) -> None:
        dice = self.dice
        await dice.choices(
            [self.ours, self.others, self.run, self.deletion, self.record, self.poll],
            weights=[8, 4, 2, 1, 2, 4],
        )[0]()

    async def ours(self) -> None:
        if self.dice.random() < 0.2:
            await self.both()
            return
        if self.dice.random() < 0.4:
            op = Op("acks", self.dice.choice([OpType.SET, OpType.DELETE]), self.dice.choice(["all", "1", "0"]))
            facet = CONFIGS
        else:
            key = self.dice.choice([RATE, "consumer_byte_rate"])
            op = Op(key, self.dice.choice([OpType.SET, OpType.SET, OpType.DELETE]), self.dice.randrange(1, 4))
            facet = QUOTAS
        await self.one.store.catch_up(soon(60))
        [result] = await self.one.edit(self.dice.choice([*USERS, *PAIRS]), facet, (op,))
        assert result.error is None, result.error

    async def both(self) -> None:
        """One change of both facets; one of them, or both, may be as asked already."""
        acks = Op("acks", self.dice.choice([OpType.SET, OpType.DELETE]), self.dice.choice(["all", "1", "0"]))
        given = {QUOTAS: Op(RATE, OpType.SET, self.dice.randrange(1, 4)), CONFIGS: acks}
        await self.one.store.catch_up(soon(60))
        result = await self.one.edit_facets(self.dice.choice([*USERS, *PAIRS]), given)
        assert result.error is None, result.error

    async def others(self) -> None:
        self.write(self.dice.choice([*USERS, *PAIRS]))

    async def run(self) -> None:
        """Several writes that the recorder may see as one; some leave everything as it was."""
        entity = self.dice.choice([*USERS, *PAIRS])
        for _ in range(self.dice.randrange(2, 4)):
            self.write(entity)

    def write(self, entity: Entity) -> None:
        if self.zk.exists(f"/config/{entity.path}") is None:
            self._fresh.add(entity.path)
        kafka_writes(self.zk, entity.path, rate(self.dice.randrange(1, 4)))

    async def deletion(self) -> None:
        entity = self.dice.choice(PAIRS)
        if entity.path not in self._fresh and self.zk.exists(f"/config/{entity.path}") is not None:
            self.zk.delete(f"/config/{entity.path}")
            notify(self.zk, entity.path)

    async def record(self) -> None:
        await self.one.record()
        self._fresh.clear()

    async def poll(self) -> None:
        await self.one.round()


@pytest.mark.parametrize("seed", [1, pytest.param(3, marks=pytest.mark.long)])
async def test_the_content_at_random_moments_is_that_of_zookeepers_log(
    world: World, zookeeper: ZooKeeper, chroot: str, seed: int
) -> None:
    dice = random.Random(seed)  # noqa: S311 - reproducible
    for _ in range(3):
        kafka_writes(world.zk, "users/old", rate(7))
    one = await world.replica(client_configs_layout="shared")
    await one.record()
    walk = RandomWalk(one, world.zk, dice)
    steps, moments = (600, 1_000) if seed == 3 else (60, 60)
    for _ in range(steps):
        await walk.step()
    await one.record()
    replay = Replay(read_events([zookeeper.data_dir / "data" / "version-2"], chroot="/" + chroot.partition("/")[2]))
    knowledge = await PostgresTrailHistory(one.parts.database).coverage("default")
    assert knowledge is not None
    history, known = history_of(one), [e for e in replay.events if e.zxid >= knowledge.since]
    exact = 0
    for number in range(moments):
        facet = dice.choice([QUOTAS, CONFIGS])
        collection = collection_of(one, facet)
        zxid = dice.randrange(knowledge.since, known[-1].zxid + 1)
        at: int | datetime = zxid
        if number % 2:
            time_ms = dice.randrange(int(knowledge.since_at.timestamp() * 1000) + 1, known[-1].time_ms + 1)
            at, zxid = datetime.fromtimestamp(time_ms / 1000, UTC), replay.revision_at(time_ms)
        entities = {e.id: replay.declared(collection, e, Tree.CONFIG, zxid) for e in [*USERS, *PAIRS]}
        page = await everything(history, collection, at, dice.choice([1, 2, 100]))
        assert page.keys() <= entities.keys()
        for entity in [*USERS, *PAIRS]:
            found = await history.entity(collection, entity, at, soon(60))
            listed = page.get(entity.id)
            assert (dict(found.declared) or None) == (None if listed is None else dict(listed.declared)), entity
            if found.exact:
                exact += 1
                assert dict(found.declared) == entities[entity.id], (at, zxid, entity.id, found)
            else:
                assert found.low is not None
                assert found.low <= zxid
                assert found.high is None or found.high >= zxid
    # Most of the content is known exactly.
    assert exact > moments * 2


async def everything(
    history: HistoryService, collection: ClusterFacet, at: int | datetime, size: int
) -> dict[str, PastEntity]:
    """All pages of a list at a moment."""
    found: dict[str, PastEntity] = {}
    token = None
    while True:
        page = await history.page(collection, ListQuery(page_size=size, page_token=token), at, soon(60))
        assert page.skipped == []
        for item in page.items:
            assert item.entity_id > max(found, default="")
            found[item.entity_id] = item
        token = page.next_page_token
        if token is None:
            return found


async def test_client_configs_are_read_where_they_were(world: World) -> None:
    one = await world.replica(client_configs_layout="shared")
    await one.record()
    configs, history = collection_of(one, CONFIGS), history_of(one)
    revisions = []
    for value in ("all", "1"):
        [result] = await one.edit(ALICE, CONFIGS, (Op("acks", OpType.SET, value),))
        assert result.revision is not None
        revisions.append(result.revision)
        if value == "all":
            revisions += await moved(one, configs)
    for revision, acks in zip((revisions[0] - 1, *revisions), (None, "all", "all", "all", "1"), strict=True):
        found = await history.entity(configs, ALICE, revision, soon(60))
        assert (found.declared.get("acks"), found.exact) == (acks, True)
        page = await everything(history, configs, revision, 1)
        assert {key: item.declared for key, item in page.items()} == ({ALICE.id: found.declared} if acks else {})
    items, cursor = await history.changes(configs, ALICE, page_size=10, page_token=None)
    assert ([item.moved for item in items], cursor) == ([False, True, False], None)
    diff = await history.diff(configs, ALICE, revisions[0], revisions[-1], soon(60))
    assert [(change.key, change.before, change.after) for change in diff.changes] == [("acks", "all", "1")]


async def moved(one: Replica, configs: ClusterFacet) -> list[int]:
    """Move the client configs to the other layout; return a revision during the move, and one behind it."""
    layouts = LayoutService(one.parts.runner, configs)
    caller = Caller.operator("User:admin", "127.0.0.1", "r", soon(60))
    survey = await layouts.survey(Tree.CLIENT_CONFIGS, soon(60))
    await layouts.begin(survey, caller)
    during = await one.store.catch_up(soon(60))
    survey = await layouts.survey(Tree.CLIENT_CONFIGS, soon(60))
    assert [each.error async for each in layouts.move(survey, survey.version, caller)] == [None]
    await layouts.end(await layouts.survey(Tree.CLIENT_CONFIGS, soon(60)), caller)
    return [during, await one.store.catch_up(soon(60))]


@pytest.mark.parametrize("by_time", [False, True])
async def test_a_moment_that_the_mirror_has_not_reached_is_waited_for(
    world: World, monkeypatch: pytest.MonkeyPatch, *, by_time: bool
) -> None:
    one, two = await world.replica(), await world.replica(leads=False)
    await one.alter(ALICE, producer_byte_rate=1)
    await one.record()
    await two.store.catch_up(soon(60))
    async with mirror_paused(two.store):
        result = await one.alter(ALICE, producer_byte_rate=2)
        await one.record()
        assert result.revision is not None
        at = datetime.now(UTC) if by_time else result.revision
        found = await waiting(two, history_of(two).entity(collection_of(two), ALICE, at, soon(60)), monkeypatch)
    assert (await found).declared == {RATE: 2}


async def test_a_list_of_the_past_has_what_was_removed_by_a_change_without_an_outcome(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    one = await world.replica()
    await one.record()
    result = await one.alter(ALICE, producer_byte_rate=1)
    await one.record()
    assert result.revision is not None
    async with one.without_outcomes():
        async with mirror_paused(one.store):
            # The journal has the own commit only behind the older external write.
            kafka_writes(world.zk, "users/bob", rate(2))
            await one.edit(ALICE, QUOTAS, (Op(RATE, OpType.DELETE),))
            page = history_of(one).page(collection_of(one), ListQuery(), result.revision, soon(60))
            found = await waiting(one, page, monkeypatch)
        assert [(item.entity_id, item.declared) for item in (await found).items] == [(ALICE.id, {RATE: 1})]


async def waiting(one: Replica, reading: Coroutine[Any, Any, T], monkeypatch: pytest.MonkeyPatch) -> asyncio.Task[T]:
    """Begin to read; return once the read waits for the paused mirror, or did not need to."""
    waits, catch_up = asyncio.Event(), one.store.catch_up

    async def noted(deadline: float) -> int:
        waits.set()
        return await catch_up(deadline)

    monkeypatch.setattr(one.store, "catch_up", noted)
    task = asyncio.create_task(reading)
    await until(lambda: waits.is_set() or task.done())
    return task


async def test_a_content_that_could_not_be_read_then_is_answered_as_such(world: World) -> None:
    one = await world.replica()
    revisions = []
    for data in (rate(1), b"no JSON", rate(2)):
        kafka_writes(world.zk, "users/alice", data)
        await one.record()
        revisions.append(await one.store.catch_up(soon(60)))
    history, quotas = history_of(one), collection_of(one)
    for revision, value in ((revisions[0], 1), (revisions[2], 2)):
        assert (await history.entity(quotas, ALICE, revision, soon(60))).declared == {RATE: value}
    with pytest.raises(CorruptZnodeError, match=r"^The znode /config/users/alice does not hold JSON;"):
        await history.entity(quotas, ALICE, revisions[1], soon(60))
    page = await history.page(quotas, ListQuery(), revisions[1], soon(60))
    assert (page.items, page.skipped) == ([], ["/config/users/alice"])


async def test_keys_of_no_facet_and_of_the_other_facet_are_no_history_of_a_facet(world: World) -> None:
    one = await world.replica(client_configs_layout="shared")
    await one.record()
    await one.alter(ALICE, producer_byte_rate=1)
    kafka_writes(world.zk, "users/alice", content(producer_byte_rate="1", **{"SCRAM-SHA-256": "hidden"}))
    await one.record()
    await one.alter(ALICE, CONFIGS, acks="all")
    history = history_of(one)
    for facet, key in ((QUOTAS, RATE), (CONFIGS, "acks")):
        items, _ = await history.changes(collection_of(one, facet), ALICE, page_size=10, page_token=None)
        assert [[change.key for change in item.changes] for item in items] == [[key]]


async def test_a_history_is_sorted_by_revision_although_two_processes_write(world: World) -> None:
    replicas = [await world.replica(), await world.replica(leads=False)]
    edits = (one.edit(ALICE, QUOTAS, (Op(RATE, OpType.SET, i),)) for i in range(1, 61) for one in [replicas[i % 2]])
    results = [result for [result] in await asyncio.gather(*edits)]
    assert not [result.error for result in results if result.error is not None]
    revisions = sorted({result.revision for result in results if result.revision is not None}, reverse=True)
    for size in (7, 100):
        listed, token = [], None
        while True:
            items, token = await history_of(replicas[0]).changes(
                collection_of(replicas[0]), ALICE, page_size=size, page_token=token
            )
            listed += items
            if token is None:
                break
        assert [item.revision for item in listed] == revisions
        # Each change found the value that the change below it left.
        values = [(item.changes[0].before, item.changes[0].after) for item in listed]
        assert [before for before, _ in values[:-1]] == [after for _, after in values[1:]]


async def test_a_page_token_of_an_earlier_release_leads_to_the_changes_with_lower_ids(world: World) -> None:
    one = await world.replica()
    for value in (1, 2, 3):
        await one.alter(ALICE, producer_byte_rate=value)
    [*_, last], _ = await one.audit.search(AuditQuery("default", entity_id=ALICE.id, page_size=2))
    token = str(last.intent.change_id)
    items, after = await history_of(one).changes(collection_of(one), ALICE, page_size=10, page_token=token)
    assert [[change.after for change in item.changes] for item in items] == [[1]]
    assert after is None


@pytest.mark.parametrize("token", ["", "x", "MUAyQDM", "MUAtMUAwMTlhYTMAMDE5YWEz", "Mg" * 3000])
async def test_what_is_no_page_token_of_a_history_is_refused(world: World, token: str) -> None:
    one = await world.replica()
    with pytest.raises(InvalidRequestError, match=r"^pageToken is not one that this API gave$"):
        await history_of(one).changes(collection_of(one), ALICE, page_size=10, page_token=token)


async def test_external_writes_that_are_not_recorded_yet_are_not_skipped(world: World) -> None:
    kafka_writes(world.zk, "users/alice", rate(1))
    kafka_writes(world.zk, "users/bob", rate(1))
    one = await world.replica()
    await one.record()
    revision = await one.store.catch_up(soon(60))
    world.zk.delete("/config/users/alice")
    notify(world.zk, "users/alice")
    for value in (2, 3):
        kafka_writes(world.zk, "users/bob", rate(value))
    newest = await one.store.catch_up(soon(60))
    history, quotas = history_of(one, patience_s=0), collection_of(one)
    for recorded in (False, True):
        if recorded:
            await one.record()
        page = await everything(history, quotas, revision, 1)
        assert [(item.declared, item.exact) for item in page.values()] == [({RATE: 1}, False)] * 2
        assert [item.high is None for item in page.values()] == [not recorded, False]
        for entity in USERS[:2]:
            assert await history.entity(quotas, entity, revision, soon(60)) == page[entity.id]
        now = datetime.now(UTC)
        if recorded:
            assert (await history.entity(quotas, USERS[1], now, soon(60))).declared == {RATE: 3}
        else:
            with pytest.raises(UnavailableError, match="recorded up to revision"):
                await history.entity(quotas, USERS[1], now, soon(60))
        assert (await history.entity(quotas, USERS[1], newest, soon(60))).declared == {RATE: 3}


@pytest.mark.parametrize(
    "query", [ListQuery(key="request_percentage"), ListQuery(kind=("user", "client-id")), ListQuery()]
)
async def test_a_page_of_the_past_ends_after_some_entities_whether_or_not_they_are_in_it(
    world: World, monkeypatch: pytest.MonkeyPatch, query: ListQuery
) -> None:
    monkeypatch.setattr(history_module, "SLICE", 4)
    one = await world.replica()
    await one.record()
    users = [Entity.of(user=f"u{number:02}") for number in range(20)]
    for entity in users:
        await one.alter(entity, producer_byte_rate=1)
    revision = await one.store.catch_up(soon(60))
    for entity in users[::2]:  # changed since; the last three are removed
        await one.edit(entity, QUOTAS, (Op(RATE, OpType.SET if entity.id < "user=u14" else OpType.DELETE, 2),))
    history, quotas = history_of(one, max_visited=6), collection_of(one)

    async def pages() -> list[PastPage]:
        found: list[PastPage] = []
        while not found or found[-1].next_page_token is not None:
            token = found[-1].next_page_token if found else None
            found.append(await history.page(quotas, replace(query, page_token=token), revision, soon(60)))
        return found

    found = await pages()
    assert len(found) > 2
    assert all(page.visited <= 6 + 2 * 4 for page in found)
    assert sum(page.visited for page in found) >= len(users)
    listed = {item.entity_id: item.declared for page in found for item in page.items}
    assert listed == ({} if query.key or query.kind else {entity.id: {RATE: 1} for entity in users})
    if query == ListQuery(key="request_percentage"):
        assert found[0].next_page_token is not None
        concurrent = await asyncio.gather(*(pages() for _ in range(8)))
        assert concurrent == [found] * 8


async def test_a_list_of_the_past_is_refused_while_external_removals_may_be_unknown(world: World) -> None:
    one = await world.replica()
    kafka_writes(world.zk, "users/alice", rate(1))
    await one.record()
    revision = await one.store.catch_up(soon(60))
    world.zk.delete("/config/users/alice")
    notify(world.zk, "users/alice")
    await one.store.catch_up(soon(60))
    # The journal of a process that started since does not have the removal, and neither has the trail yet.
    two = await world.replica(leads=False)
    with pytest.raises(UnavailableError, match=r"recorded up to revision \d+ only\. Send the request again") as refused:
        await everything(history_of(two), collection_of(two), revision, 1)
    assert refused.value.retry_after_s == 1
    await one.record()
    assert list(await everything(history_of(two), collection_of(two), revision, 1)) == [ALICE.id]


async def test_page_tokens_of_the_past_name_no_entity_that_the_caller_may_not_describe(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(history_module, "SLICE", 2)
    one = await world.replica()
    await one.record()
    users = [Entity.of(user=f"u{number:02}") for number in range(20)]
    for entity in users:
        await one.alter(entity, producer_byte_rate=1)
    revision = await one.store.catch_up(soon(60))
    for entity in users:
        await one.edit(entity, QUOTAS, (Op(RATE, OpType.DELETE),))
    grants = Grants()
    for name in ("never", "u00", "u00x", "u01x", "u07", "u07a", "u07b", "u13"):
        grants.give(
            "User:team",
            permission=Permission.ALLOW,
            operation=Operation.DESCRIBE_CONFIGS,
            resource=ResourceType.USER,
            pattern=PatternType.LITERAL,
            name=name,
        )
    history, quotas = history_of(one, max_visited=1), collection_of(one).visible_to(access_of("User:team", grants))
    for key in (None, "request_percentage"):
        found, token = [], None
        while True:
            page = await history.page(quotas, ListQuery(key=key, page_token=token), revision, soon(60))
            found += [item.entity_id for item in page.items]
            token = page.next_page_token
            if token is None:
                break
            assert decode_token(token, lambda text: text.partition("@")[2]) in {"user=u00", "user=u07", "user=u13"}
        assert found == ([] if key else ["user=u00", "user=u07", "user=u13"])
