"""Reverts at the seams: facets and layouts, secrets, observed and frozen clusters, policies, bounds."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any, Final

import pytest

from confplane.audit import later_changes
from confplane.domain.entities import Entity
from confplane.domain.errors import (
    BodyTooLargeError,
    FrozenError,
    NotAttemptedError,
    NotRevertibleError,
    ObservedError,
    PolicyViolationError,
    RevertConflictError,
    UnavailableError,
    WriteOutcome,
)
from confplane.domain.facets import FacetName, Tree
from confplane.domain.ops import Op, OpType
from confplane.services.changes import entities_change
from confplane.services.changes.edits import Edit
from confplane.services.changes.freeze import FreezeService
from confplane.services.reverts import service as reverts
from confplane.services.reverts.service import RevertSelection
from confplane.services.upkeep.compact import CompactService
from tests.support import kinds
from tests.support.kafka_double import CLUSTER_ID
from tests.support.reverting import back_to, caller_of, made, now, revert
from tests.support.stores import ALICE, content, kafka_writes, soon, until

if TYPE_CHECKING:
    from pathlib import Path

    from tests.support.replicas import Replica
    from tests.support.world import World

QUOTAS, CLIENT_CONFIGS, CONFIGS = FacetName.CLIENT_QUOTAS, FacetName.CLIENT_CONFIGS, FacetName.CONFIGS
RATE: Final = "producer_byte_rate"
BROKER: Final = Entity.of(broker="0")
PASSWORD: Final = "listener.name.external.ssl.key.password"
THREADS: Final = "log.cleaner.threads"


async def both(one: Replica) -> list[dict[str, str]]:
    """The quotas and the client configs of alice, wherever they are."""
    return [await now(one, ALICE, tree) for tree in Tree]


def quota(value: int) -> Op:
    return Op(RATE, OpType.SET, value)


def acks(value: str) -> Op:
    return Op("acks", OpType.SET, value)


@pytest.mark.parametrize("layout", ["shared", "separate"])
async def test_a_change_of_quotas_and_client_configs_is_undone_in_one(world: World, layout: str) -> None:
    one = await world.replica(client_configs_layout=layout)
    await one.edit_facets(ALICE, {QUOTAS: quota(1), CLIENT_CONFIGS: acks("all")})
    before = await both(one)
    result = await one.edit_facets(ALICE, {QUOTAS: quota(2), CLIENT_CONFIGS: acks("1")})
    change = str(result.change_id)
    later = made(await one.alter(ALICE, CLIENT_CONFIGS, acks="0"))
    refused = {each.cluster_facet.name: each.result.error for each in await revert(one, change)}
    assert isinstance(refused[CLIENT_CONFIGS], RevertConflictError)
    assert isinstance(refused[QUOTAS], NotAttemptedError)
    assert (await now(one, ALICE))[RATE] == "2"
    await revert(one, later)
    shown = await revert(one, change, validate_only=True)
    done = await revert(one, change)
    assert [each.result.diff for each in done] == [each.result.diff for each in shown]
    assert {each.cluster_facet.name: [item.key for item in each.result.diff] for each in done} == {
        QUOTAS: [RATE],
        CLIENT_CONFIGS: ["acks"],
    }
    assert len({made(each.result) for each in done}) == 1
    assert await both(one) == before
    last = (await one.trail())[-1]
    assert {row.facet for row in last.intent.entities} == (
        {"clients"} if layout == "shared" else {"client-quotas", "client-configs"}
    )
    assert [str(each) for each in last.intent.reverts] == [change]
    # One facet of it alone.
    await revert(one, last.intent.change_id)
    [alone] = await revert(one, change, keys={"acks"})
    assert alone.cluster_facet.name is CLIENT_CONFIGS
    assert made(alone.result)
    assert (await now(one, ALICE))[RATE] == "2"


async def test_secrets_are_refused_with_the_way_out(world: World, tmp_path: Path) -> None:
    encoder = kinds.secrets_of(tmp_path).model_dump(mode="json")
    one = await world.replica(password_encoder=encoder)
    await one.record()

    async def put(secret: str, threads: str) -> tuple[str, int]:
        ops = Op(PASSWORD, OpType.SET, secret), Op(THREADS, OpType.SET, threads)
        [result] = await one.edit(BROKER, CONFIGS, ops)
        assert result.revision is not None
        return made(result), result.revision

    first, then = await put("hush-1", "2")
    second, _ = await put("hush-2", "3")
    [refused] = await revert(one, second)
    assert isinstance(refused.result.error, NotRevertibleError)
    for part in (PASSWORD, "PUT", "keys"):
        assert part in refused.result.error.detail
    [still] = await revert(one, second, force=True)
    assert isinstance(still.result.error, NotRevertibleError)
    with pytest.raises(NotRevertibleError, match=PASSWORD):
        await back_to(one, BROKER, then, CONFIGS)
    [named] = await revert(one, second, keys={THREADS})
    assert made(named.result)
    stored = await now(one, BROKER)
    assert stored[THREADS] == "2"
    # Before the first change there was no secret: that is known.
    [kept] = await revert(one, first)
    assert isinstance(kept.result.error, RevertConflictError)
    [forced] = await revert(one, first, force=True)
    assert made(forced.result)
    assert await now(one, BROKER) == {}
    # A secret that nobody changed since stays as it is.
    _, then = await put("hush-3", "4")
    secret = (await now(one, BROKER))[PASSWORD]
    await one.edit(BROKER, CONFIGS, (Op(THREADS, OpType.SET, "5"),))
    assert made(await back_to(one, BROKER, then, CONFIGS))
    assert await now(one, BROKER) == {PASSWORD: secret, THREADS: "4"}
    assert "hush" not in str(await one.trail())


async def put_secret(one: Replica) -> str:
    """Set a secret of the broker; return the change."""
    [result] = await one.edit(BROKER, CONFIGS, (Op(PASSWORD, OpType.SET, "hush"),))
    return made(result)


async def assert_refused(one: Replica, change: str, kind: str | None) -> None:
    """A revert would overwrite a secret that is not the one of the change, by a later change of this kind."""
    before = await now(one, BROKER)
    [refused] = await revert(one, change)
    assert isinstance(refused.result.error, RevertConflictError)
    assert [(each.kind, each.keys) for each in refused.result.error.later] == [(kind, (PASSWORD,))]
    assert await now(one, BROKER) == before


async def test_a_hidden_value_is_that_of_the_change_only_if_the_trail_says_so(world: World, tmp_path: Path) -> None:
    one = await world.replica(password_encoder=kinds.secrets_of(tmp_path).model_dump(mode="json"))
    await one.record()
    change = await put_secret(one)
    secret = (await now(one, BROKER))[PASSWORD]
    for _ in range(2):  # the second write changes nothing, so the trail has no row of it
        kafka_writes(world.zk, BROKER.path, content(**{PASSWORD: secret, THREADS: "2"}))
        await one.record()
        [validated] = await revert(one, change, validate_only=True)
        assert validated.result.error is None
    kafka_writes(world.zk, BROKER.path, content(**{PASSWORD: "external", THREADS: "2"}))
    await one.store.catch_up(soon(60))
    await assert_refused(one, change, None)
    await one.record()
    await assert_refused(one, change, "external")


async def test_an_entity_is_not_reverted_over_a_hidden_value_that_the_trail_does_not_know(
    world: World, tmp_path: Path
) -> None:
    one = await world.replica(password_encoder=kinds.secrets_of(tmp_path).model_dump(mode="json"))
    await one.record()
    [secret] = await one.edit(BROKER, CONFIGS, (Op(PASSWORD, OpType.SET, "hush"), Op(THREADS, OpType.SET, "4")))
    await one.edit(BROKER, CONFIGS, (Op(THREADS, OpType.SET, "5"),))
    assert secret.revision is not None
    assert made(await back_to(one, BROKER, secret.revision, CONFIGS))
    kafka_writes(world.zk, BROKER.path, content(**{PASSWORD: "external", THREADS: "5"}))
    await one.store.catch_up(soon(60))
    for _ in range(2):  # before the external write is recorded, and after it
        with pytest.raises(NotRevertibleError, match=PASSWORD):
            await back_to(one, BROKER, secret.revision, CONFIGS)
        assert (await now(one, BROKER))[PASSWORD] == "external"
        await one.record()


async def test_a_recreated_node_is_not_the_one_that_the_change_wrote(world: World, tmp_path: Path) -> None:
    """Its version is the same."""
    one = await world.replica(password_encoder=kinds.secrets_of(tmp_path).model_dump(mode="json"))
    await one.record()
    change = await put_secret(one)
    world.zk.delete(f"/config/{BROKER.path}")
    kafka_writes(world.zk, BROKER.path, content(**{PASSWORD: "external"}))
    await one.store.catch_up(soon(60))
    await assert_refused(one, change, None)
    await one.record()
    await assert_refused(one, change, "external")


async def test_a_change_of_a_node_that_was_recreated_during_it_is_not_reverted(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    one = await world.replica()
    await one.alter(ALICE, producer_byte_rate=1)
    await one.record()
    intend = one.audit.intend

    async def recreate(*given: Any) -> None:
        await intend(*given)
        world.zk.delete(f"/config/{ALICE.path}")
        world.zk.create(f"/config/{ALICE.path}", content(producer_byte_rate="5"))

    with monkeypatch.context() as patched:
        patched.setattr(one.audit, "intend", recreate)
        change = made(await one.alter(ALICE, producer_byte_rate=2))
    for force in (False, True):
        [refused] = await revert(one, change, force=force)
        assert isinstance(refused.result.error, NotRevertibleError)
    assert await now(one, ALICE) == {RATE: "2"}


async def test_a_frozen_and_an_observed_cluster_refuse_reverts_as_any_write(world: World) -> None:
    one = await world.replica(client_configs_layout="separate")
    change = made(await one.alter(ALICE, producer_byte_rate=1))
    configs = made(await one.alter(ALICE, CLIENT_CONFIGS, acks="all"))
    freezes = FreezeService(one.parts.runner)
    await freezes.freeze(one.store, "upgrade", caller_of())
    [refused] = await revert(one, change)
    assert isinstance(refused.result.error, FrozenError)
    await freezes.thaw(one.store, "upgraded", caller_of())
    target = {"version": 1, "kind": "kraft", "mode": "observe", "cluster_id": CLUSTER_ID, "paused": False}
    world.zk.set("/confplane/target", json.dumps({**target, "imported": True}).encode())
    await until(lambda: one.store._guard.target is not None)
    [refused] = await revert(one, change)
    assert isinstance(refused.result.error, ObservedError)
    assert await now(one, ALICE) == {RATE: "1"}
    # Client configs are written there, and so reverted too.
    [done] = await revert(one, configs)
    assert made(done.result)
    assert await now(one, ALICE, Tree.CLIENT_CONFIGS) == {}


async def test_a_policy_is_asked_about_the_earlier_value(world: World, tmp_path: Path) -> None:
    rules = tmp_path / "rules.yaml"
    rules.write_text("rules:\n  - name: no-huge-quota\n    ranges: {producer_byte_rate: {max: 10}}\n")
    one = await world.replica(policy_file=str(rules))
    await one.record()
    kafka_writes(world.zk, ALICE.path, content(producer_byte_rate="11"))
    await one.record()
    change = made(await one.alter(ALICE, producer_byte_rate=1))
    for validate_only in (True, False):
        [refused] = await revert(one, change, validate_only=validate_only)
        assert isinstance(refused.result.error, PolicyViolationError)
    assert await now(one, ALICE) == {RATE: "1"}


async def test_upkeep_is_left_out_with_its_reason(world: World) -> None:
    one = await world.replica()
    removed = made(await one.alter(ALICE, producer_byte_rate=1))
    await one.edit(ALICE, QUOTAS, (Op(RATE, OpType.DELETE),))
    compact = CompactService(one.parts.runner, one.store, one.parts.target_states).run(
        [(Tree.CONFIG, ALICE.id)], caller_of(request_id="compact"), older_than_s=-60, apply=True
    )
    assert [result is None or result.error is None async for result in compact] == [True]
    assert world.zk.exists(f"/config/{ALICE.path}") is None
    with pytest.raises(NotRevertibleError, match="no key another value"):
        await revert(one, RevertSelection(request_id="compact"))
    # Behind the compaction, a change of the entity is still undone.
    [done] = await revert(one, removed)
    assert (done.result.error, done.result.diff) == (None, ())


async def test_too_many_changes_are_refused_with_the_way_out(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    one = await world.replica()
    first = made(await one.alter(ALICE, producer_byte_rate=1))
    changes = [first, *[made(await one.alter(ALICE, producer_byte_rate=value)) for value in (2, 3, 4)]]
    monkeypatch.setattr(reverts, "MOST_CHANGES", 3)
    monkeypatch.setattr(reverts, "PAGE", 2)
    with pytest.raises(BodyTooLargeError, match="several requests"):
        await revert(one, RevertSelection(request_id="r"))
    monkeypatch.setattr(reverts, "MOST_CHANGES", 4)
    # A row of the trail names the latest of them, the answer all.
    monkeypatch.setattr(entities_change, "MOST_REVERTS", 2)
    [done] = await revert(one, RevertSelection(request_id="r"))
    assert [str(each) for each in done.changes] == changes
    assert await now(one, ALICE) == {}
    assert [str(each) for each in (await one.trail())[-1].intent.reverts] == changes[-2:]
    monkeypatch.setattr(later_changes, "EXAMINED", 3)
    [refused] = await revert(one, first)
    assert isinstance(refused.result.error, NotRevertibleError)
    assert "force" in refused.result.error.detail
    [forced] = await revert(one, first, force=True)
    assert (forced.result.error, forced.result.diff) == (None, ())


async def test_a_bulk_is_undone_entity_by_entity(world: World) -> None:
    one = await world.replica()
    users = [Entity.of(user=f"u{number}") for number in range(40)]
    collection = one.parts.clusters.get("default").facets[QUOTAS]
    edits: list[Any] = [Edit(user, (quota(1),)) for user in users]
    await one.parts.alter.alter(collection, edits, caller_of(request_id="bulk"))
    later = made(await one.alter(users[7], producer_byte_rate=2))
    done = await revert(one, RevertSelection(request_id="bulk"))
    assert len(done) == len(users)
    [refused] = [each for each in done if each.result.error is not None]
    assert isinstance(refused.result.error, RevertConflictError)
    assert later in refused.result.error.detail
    assert [await now(one, user) for user in users[6:9]] == [{}, {RATE: "2"}, {}]


async def test_a_change_without_an_outcome_can_be_reverted_once_it_has_one(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    one = await world.replica()

    async def unwritten(*_given: Any) -> bool:
        return False

    with monkeypatch.context() as patch:
        patch.setattr(one.audit, "conclude", unwritten)
        change = made(await one.alter(ALICE, producer_byte_rate=2))
    with pytest.raises(UnavailableError, match="no outcome yet") as refused:
        await revert(one, change)
    assert (refused.value.outcome, refused.value.retry_after_s) == (WriteOutcome.NOT_APPLIED, 1)
