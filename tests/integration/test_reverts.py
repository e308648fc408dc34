"""Reverts on real stores: the state before a change comes back, or a refusal names the reason; nothing is done twice."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any, Final, cast

import pytest

from confplane.domain.entities import Entity
from confplane.domain.errors import BeforeHistoryError, NotFoundError, NotRevertibleError, RevertConflictError
from confplane.domain.etags import Precondition
from confplane.domain.facets import FacetName, Tree
from confplane.domain.ops import Op, OpType
from confplane.services.changes.edits import Edit
from confplane.services.changes.freeze import FreezeService
from confplane.services.reverts.service import RevertSelection
from confplane.services.upkeep.layout import LayoutService
from tests.support.reverting import back_to, caller_of, made, now, revert, reverts_of
from tests.support.stores import ALICE, content, kafka_writes, soon

if TYPE_CHECKING:
    from confplane.services.reverts.service import RevertService
    from tests.support.replicas import Replica
    from tests.support.world import World

QUOTAS: Final = FacetName.CLIENT_QUOTAS
CLIENT_CONFIGS: Final = FacetName.CLIENT_CONFIGS
RATE: Final = "producer_byte_rate"
BOB: Final = Entity.of(user="bob")
PAIR: Final = Entity.of(user="alice", client_id="app")
ENTITIES: Final = (ALICE, BOB, PAIR)


async def test_a_change_is_undone_key_by_key_and_the_trail_says_so(world: World) -> None:
    one = await world.replica(client_configs_layout="shared")
    await one.alter(ALICE, producer_byte_rate=1)
    change = made(await one.alter(ALICE, producer_byte_rate=2, request_percentage=5))
    await one.alter(ALICE, consumer_byte_rate=7)
    await one.alter(ALICE, CLIENT_CONFIGS, acks="all")
    [shown] = await revert(one, change, validate_only=True)
    assert await now(one, ALICE) == {RATE: "2", "request_percentage": "5.0", "consumer_byte_rate": "7", "acks": "all"}
    [done] = await revert(one, change)
    assert done.result.diff == shown.result.diff
    assert [(each.key, each.before, each.after) for each in done.result.diff] == [
        (RATE, "2", "1"),
        ("request_percentage", "5.0", None),
    ]
    assert await now(one, ALICE) == {RATE: "1", "consumer_byte_rate": "7", "acks": "all"}
    last = (await one.trail())[-1]
    assert [str(each) for each in last.intent.reverts] == [change]
    assert [record.intent.reverts for record in (await one.trail())[:-1]] == [()] * 4
    # A second one finds all as it was; nothing is written.
    [again] = await revert(one, change)
    assert (again.result.error, again.result.diff, again.result.change_id) == (None, (), None)


async def test_later_changes_refuse_a_revert_and_are_named_unless_it_is_forced(world: World) -> None:
    one = await world.replica()
    await one.record()
    first = made(await one.alter(ALICE, producer_byte_rate=1))
    second = made(await one.alter(ALICE, producer_byte_rate=2))
    [refused] = await revert(one, first)
    error = refused.result.error
    assert isinstance(error, RevertConflictError)
    assert [(str(each.change_id), each.principal, each.keys) for each in error.later] == [
        (second, "User:admin", (RATE,))
    ]
    assert second in error.detail
    # Once the second is reverted, nothing stands in the way; a revert of that revert does again.
    [undone] = await revert(one, second)
    [validated] = await revert(one, first, validate_only=True)
    assert validated.result.error is None
    [redone] = await revert(one, made(undone.result))
    assert await now(one, ALICE) == {RATE: "2"}
    [refused] = await revert(one, first)
    assert isinstance(refused.result.error, RevertConflictError)
    assert [str(each.change_id) for each in refused.result.error.later] == [second]
    [forced] = await revert(one, first, force=True)
    assert made(forced.result) != made(redone.result)
    assert await now(one, ALICE) == {}


async def test_what_one_change_did_is_undone_in_one_or_not_at_all(world: World) -> None:
    one = await world.replica()
    results = await one.edit_all(ENTITIES, producer_byte_rate=1)
    change = made(results[0])
    later = made(await one.alter(BOB, producer_byte_rate=5))
    refused = await revert(one, change)
    kinds = {each.result.edit.entity.id: type(each.result.error).__name__ for each in refused}
    assert kinds.pop(BOB.id) == "RevertConflictError"
    assert set(kinds.values()) == {"NotAttemptedError"}
    assert await now(one, ALICE) == {RATE: "1"}
    await revert(one, later)
    done = await revert(one, change)
    assert len({made(each.result) for each in done}) == 1
    assert [await now(one, entity) for entity in ENTITIES] == [{}, {}, {}]


async def test_the_changes_of_a_request_and_of_a_principal_are_undone_entity_by_entity(world: World) -> None:
    one = await world.replica()
    collection = one.parts.clusters.get("default").facets[QUOTAS]
    before = made(await one.alter(ALICE, producer_byte_rate=1))
    begin = (await one.trail())[-1].created_at
    for value in (2, 3):
        edits = [Edit(entity, (Op(RATE, OpType.SET, value),)) for entity in (ALICE, BOB)]
        await one.parts.alter.alter(collection, edits, caller_of("User:bot", f"request-{value}"))
    await one.alter(BOB, producer_byte_rate=9)
    await FreezeService(one.parts.runner).freeze(one.store, "x", caller_of("User:bot", "f"))
    await FreezeService(one.parts.runner).thaw(one.store, "x", caller_of("User:bot", "f"))
    found = await revert(one, RevertSelection(request_id="request-3"), validate_only=True)
    assert {each.result.edit.entity.id: type(each.result.error) for each in found} == {
        ALICE.id: type(None),
        BOB.id: RevertConflictError,
    }
    service, cluster = reverts_of(one.parts), one.parts.clusters.get("default")
    done = await service.changes(cluster, RevertSelection(principal="User:bot", since=begin), caller_of())
    assert [len(each.changes) for each in done.results] == [2, 2]
    assert len(done.skipped) == 2
    assert await now(one, ALICE) == {RATE: "1"}
    assert await now(one, BOB) == {RATE: "9"}
    assert before not in {str(change) for each in done.results for change in each.changes}
    for nobody in (RevertSelection(request_id="none"), RevertSelection(principal="User:none", since=begin)):
        with pytest.raises(NotFoundError):
            await revert(one, nobody)
    with pytest.raises(NotFoundError, match=r"as in User:bot$"):
        await revert(one, RevertSelection(principal="bot", since=begin))
    with pytest.raises(NotRevertibleError, match="It is a freeze"):
        await revert(one, RevertSelection(request_id="f"))


async def test_external_writes_are_reverted_and_those_not_in_the_trail_yet_are_not_overwritten(world: World) -> None:
    one = await world.replica()
    await one.alter(ALICE, producer_byte_rate=1)
    await one.record()
    kafka_writes(world.zk, ALICE.path, content(producer_byte_rate="2", consumer_byte_rate="3"))
    await one.record()
    [external] = await one.external()
    kafka_writes(world.zk, ALICE.path, content(producer_byte_rate="4", consumer_byte_rate="3"))
    await one.store.catch_up(soon(60))
    change = external.intent.change_id
    [refused] = await revert(one, change)
    assert isinstance(refused.result.error, RevertConflictError)
    [later] = refused.result.error.later
    assert (later.change_id, later.keys) == (None, (RATE,))
    assert "not in the trail yet" in refused.result.error.detail
    await one.record()
    [refused] = await revert(one, change)
    assert isinstance(refused.result.error, RevertConflictError)
    assert [each.kind for each in refused.result.error.later] == ["external"]
    # The keys that nobody else touched can be named.
    [done] = await revert(one, change, keys={"consumer_byte_rate"})
    assert made(done.result)
    assert await now(one, ALICE) == {RATE: "4"}


async def test_keys_of_no_facet_are_refused_with_the_way_out(world: World) -> None:
    one = await world.replica()
    await one.alter(ALICE, producer_byte_rate=1)
    await one.record()
    kafka_writes(world.zk, ALICE.path, content(producer_byte_rate="2", **{"SCRAM-SHA-256": "hidden"}))
    await one.record()
    kafka_writes(world.zk, BOB.path, content(**{"SCRAM-SHA-256": "hidden"}))
    await one.record()
    mixed, alone = await one.external()
    [refused] = await revert(one, mixed.intent.change_id)
    assert isinstance(refused.result.error, NotRevertibleError)
    assert "SCRAM-SHA-256" in refused.result.error.detail
    assert "kafka-configs.sh" in refused.result.error.detail
    with pytest.raises(NotRevertibleError, match=r"kafka-configs\.sh"):
        await revert(one, alone.intent.change_id)
    [done] = await revert(one, mixed.intent.change_id, keys={RATE})
    assert made(done.result)
    assert await now(one, ALICE) == {RATE: "1", "SCRAM-SHA-256": "hidden"}
    with pytest.raises(NotRevertibleError, match="none of these keys"):
        await revert(one, mixed.intent.change_id, keys={"consumer_byte_rate"})


def overtaken_reverts(one: Replica, two: Replica, **values: Any) -> tuple[RevertService, list[str]]:
    """Reverts of a process whose plan another one overtakes once, by a change; and the ids of such changes."""
    service = reverts_of(one.parts)
    changes: list[str] = []
    trail = cast("Any", service)._trail
    later = trail.later

    async def overtaken(cluster: str, touched: Any) -> Any:
        found = await later(cluster, touched)
        if not changes:
            changes.append(made(await two.alter(ALICE, **values)))
        return found

    trail.later = overtaken
    return service, changes


async def test_a_change_between_the_plan_and_the_write_refuses_it_and_is_named_alone(world: World) -> None:
    one, two = await world.replica(), await world.replica(leads=False)
    await one.alter(ALICE, producer_byte_rate=1)
    collection = one.parts.clusters.get("default").facets[QUOTAS]
    for value in (2, 3):
        edits = [Edit(ALICE, (Op(RATE, OpType.SET, value),))]
        await one.parts.alter.alter(collection, edits, caller_of("User:bot", "request"))
    service, overtaking = overtaken_reverts(one, two, producer_byte_rate=4)
    cluster = one.parts.clusters.get("default")
    [refused] = (await service.changes(cluster, RevertSelection(request_id="request"), caller_of())).results
    assert isinstance(refused.result.error, RevertConflictError)
    assert [str(each.change_id) for each in refused.result.error.later] == overtaking
    assert await now(one, ALICE) == {RATE: "4"}


@pytest.mark.parametrize("force", [False, True])
async def test_a_race_with_a_return_to_a_revision_refuses_it_and_forced_it_goes_on(
    world: World, *, force: bool
) -> None:
    one, two = await world.replica(), await world.replica(leads=False)
    await one.record()
    first = await one.alter(ALICE, producer_byte_rate=1)
    await one.alter(ALICE, producer_byte_rate=2)
    assert first.revision is not None
    service, _ = overtaken_reverts(one, two, consumer_byte_rate=3)
    collection = one.parts.clusters.get("default").facets[QUOTAS]
    done = await service.entity(
        collection, ALICE, first.revision, caller_of(), precondition=Precondition(), force=force
    )
    if force:
        assert done.result.error is None
        assert await now(one, ALICE) == {RATE: "1"}
    else:
        assert isinstance(done.result.error, RevertConflictError)
        assert await now(one, ALICE) == {RATE: "2", "consumer_byte_rate": "3"}


async def test_two_reverts_at_once_write_once(world: World) -> None:
    one, two = await world.replica(), await world.replica(leads=False)
    for value in range(1, 9):
        change = made(await one.alter(ALICE, producer_byte_rate=value))
        await two.store.catch_up(soon(60))
        before = len(await one.trail(outcome="committed"))
        done = await asyncio.gather(revert(one, change), revert(two, change))
        results = [result.result for [result] in done]
        assert [result.error for result in results] == [None, None]
        assert sorted(result.change_id is None for result in results) == [False, True]
        assert len(await one.trail(outcome="committed")) == before + 1
        assert await now(one, ALICE) == {}


async def test_an_entity_goes_back_to_a_revision(world: World) -> None:
    one = await world.replica(client_configs_layout="shared")
    early = await one.store.catch_up(soon(60))
    await one.record()
    first = await one.alter(ALICE, producer_byte_rate=1, consumer_byte_rate=1)
    await one.alter(ALICE, CLIENT_CONFIGS, acks="1")
    second = made(await one.alter(ALICE, producer_byte_rate=2))
    kafka_writes(world.zk, ALICE.path, content(request_percentage="50.5", acks="1"))
    await one.record()
    assert first.revision is not None
    shown = await back_to(one, ALICE, first.revision, validate_only=True)
    done = await back_to(one, ALICE, first.revision)
    assert made(done)
    assert done.diff == shown.diff
    assert await now(one, ALICE) == {RATE: "1", "consumer_byte_rate": "1", "acks": "1"}
    [external] = await one.external()
    reverts = (await one.trail())[-1].intent.reverts
    assert [str(each) for each in reverts] == [second, str(external.intent.change_id)]
    again = await back_to(one, ALICE, first.revision)
    assert (again.error, again.diff, again.change_id) == (None, (), None)
    stale = await back_to(one, ALICE, first.revision, precondition=Precondition(if_match=("none",)))
    assert stale.error is not None
    with pytest.raises(BeforeHistoryError):
        await back_to(one, ALICE, early)
    for value in ("7", "8"):
        kafka_writes(world.zk, ALICE.path, content(producer_byte_rate=value))
        await one.store.catch_up(soon(60))
    await one.record()
    run = (await one.external())[-1].outcome
    assert run is not None
    assert run.revision is not None
    with pytest.raises(NotRevertibleError, match="not known exactly"):
        await back_to(one, ALICE, run.revision - 1)


async def test_client_configs_are_undone_in_the_layout_of_today(world: World) -> None:
    one = await world.replica(client_configs_layout="shared")
    await one.record()
    first = await one.alter(ALICE, CLIENT_CONFIGS, acks="all")
    change = made(await one.alter(ALICE, CLIENT_CONFIGS, acks="1"))
    layouts = LayoutService(one.parts.runner, one.parts.clusters.get("default").facets[CLIENT_CONFIGS])
    survey = await layouts.survey(Tree.CLIENT_CONFIGS, soon(60))
    await layouts.begin(survey, caller_of())
    survey = await layouts.survey(Tree.CLIENT_CONFIGS, soon(60))
    assert [each.error async for each in layouts.move(survey, survey.version, caller_of())] == [None]
    await layouts.end(await layouts.survey(Tree.CLIENT_CONFIGS, soon(60)), caller_of())
    move = next(
        record
        for record in await one.trail()
        if any(op.get("op") == "MOVE" for row in record.intent.entities for op in row.ops)
    )
    with pytest.raises(NotRevertibleError, match="layout move"):
        await revert(one, move.intent.change_id)
    [done] = await revert(one, change)
    undone = made(done.result)
    assert await now(one, ALICE, Tree.CLIENT_CONFIGS) == {"acks": "all"}
    [redone] = await revert(one, undone)
    assert made(redone.result)
    assert await now(one, ALICE, Tree.CLIENT_CONFIGS) == {"acks": "1"}
    assert first.revision is not None
    assert made(await back_to(one, ALICE, first.revision, CLIENT_CONFIGS))
    assert await now(one, ALICE, Tree.CLIENT_CONFIGS) == {"acks": "all"}
