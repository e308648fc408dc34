"""Conditional writes beside others: the ETag is compared with what the Kafka cluster has, and no write goes unseen.

ZooKeeper and Postgres are real, the Kafka cluster is a double. No look but that of the write itself is made.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from confplane.domain.entities import Entity
from confplane.domain.errors import PreconditionFailedError, RevertConflictError, UnavailableError, WriteOutcome
from confplane.domain.etags import Precondition
from confplane.domain.facets import FacetName
from confplane.domain.ops import Op, OpType
from confplane.services.changes.edits import Edit
from confplane.services.ports.applying import AlterRefused
from confplane.services.ports.kafka import KraftEntityType, kraft_type_of
from tests.support.adopting import ALICE, BOB, GROUP, PAIR, RATE, TOPIC, alter, apply, kinds
from tests.support.kafka_double import KafkaDouble
from tests.support.observing import caller
from tests.support.reverting import revert
from tests.support.stores import soon

if TYPE_CHECKING:
    from confplane.services.changes.edits import EntryResult
    from tests.support.adopting import Opener
    from tests.support.observing import Observing
    from tests.support.world import World

QUOTAS, CONFIGS = FacetName.CLIENT_QUOTAS, FacetName.CONFIGS
WRITTEN: dict[Entity, tuple[str, str, str, Any]] = {
    ALICE: (RATE, "1000", "2000", 9000),
    PAIR: (RATE, "1000", "2000", 9000),
    TOPIC: ("retention.ms", "1000", "2000", "9000"),
    GROUP: ("consumer.session.timeout.ms", "46000", "47000", "48000"),
    Entity.of(broker="1"): ("log.cleaner.threads", "2", "3", "4"),
}
"""Entities, each with a key, its value, that of others, and that of a caller."""


@pytest.fixture
def kafka() -> KafkaDouble:
    made = KafkaDouble()
    made.create_topic("t")
    for entity, (key, ours, *_) in WRITTEN.items():
        made.alter(entity, {key: ours})
    return made


def etag(one: Observing, entity: Entity) -> str:
    """The ETag that a reader has."""
    collection = one.replica.parts.clusters.get("default").facets[facet_of(entity)]
    found = collection.tagged(entity, one.config(entity) or {}, None)[1]
    assert found is not None
    return found


def facet_of(entity: Entity) -> FacetName:
    return QUOTAS if kraft_type_of(entity) is KraftEntityType.QUOTAS else CONFIGS


async def write(
    one: Observing, *edits: tuple[Entity, dict[str, Any], Precondition], atomic: bool = False
) -> list[EntryResult]:
    """One request of a caller, with an entry for each edit."""
    collections = one.replica.parts.clusters.get("default").facets
    entries = [
        {
            collections[facet_of(entity)]: Edit(
                entity,
                tuple(Op(key, OpType.SET, value) for key, value in values.items()),
                precondition=precondition,
            )
        }
        for entity, values, precondition in edits
    ]
    return await one.replica.parts.alter.alter_entries(entries, caller(), atomic=atomic)


@pytest.mark.parametrize("entity", WRITTEN, ids=lambda each: each.id)
async def test_an_etag_is_compared_with_what_the_cluster_has(
    opened: Opener, kafka: KafkaDouble, entity: Entity
) -> None:
    one = await opened()
    key, ours, theirs, value = WRITTEN[entity]
    seen = Precondition(if_match=(etag(one, entity),))
    kafka.alter(entity, {key: theirs})
    [result] = await write(one, (entity, {key: value}, seen))
    # The error has the ETag of what others wrote, and their write has its row.
    assert isinstance(result.error, PreconditionFailedError)
    assert (one.config(entity) or {})[key] == theirs
    assert result.error.etag == etag(one, entity)
    node = one.replica.parts.clusters.get("default").facets[facet_of(entity)].get(entity.id)
    assert node is not None
    assert (result.error.revision or 0) >= node.mzxid
    assert await kinds(one, entity) == ["observed"]
    # Without a condition nothing is looked at.
    kafka.alter(entity, {key: ours})
    await alter(one, entity, {key: value})
    assert await kinds(one, entity) == ["observed", "change"]


async def test_an_externally_created_entity_does_not_count_as_absent(opened: Opener, kafka: KafkaDouble) -> None:
    one = await opened()
    absent = Precondition(if_none_match=("*",))
    kafka.alter(BOB, {RATE: "5"})
    [result] = await write(one, (BOB, {RATE: 6}, absent))
    assert isinstance(result.error, PreconditionFailedError)
    kafka.alter(BOB, {RATE: None})
    [result] = await write(one, (BOB, {RATE: 6}, absent))
    assert result.error is None
    assert await kinds(one, BOB) == ["observed", "observed", "change"]
    # What callers wrote and nobody applied yet counts, whatever the cluster has.
    [result] = await write(one, (BOB, {RATE: 7}, Precondition(if_match=(etag(one, BOB),))))
    assert result.error is None


async def test_while_the_cluster_is_away_conditional_entries_alone_fail(opened: Opener, kafka: KafkaDouble) -> None:
    one = await opened()
    seen = Precondition(if_match=(etag(one, ALICE),))
    kafka.down = "No broker of the cluster answers"
    entries = (ALICE, {RATE: 9}, seen), (BOB, {RATE: 9}, Precondition())
    conditional, free = await write(one, *entries)
    assert isinstance(conditional.error, UnavailableError)
    assert conditional.error.outcome is WriteOutcome.NOT_APPLIED
    assert "No broker of the cluster answers" in conditional.error.detail
    assert free.error is None
    assert [each.error is None for each in await write(one, *entries, atomic=True)] == [False, False]
    # Client configs are in no cluster.
    ops = {FacetName.CLIENT_CONFIGS: Op("acks", OpType.SET, "all")}
    assert (await one.replica.edit_facets(ALICE, ops)).error is None
    collection = one.replica.parts.clusters.get("default").facets[FacetName.CLIENT_CONFIGS]
    _, tag = collection.tagged(ALICE, {"acks": "all"}, None)
    assert tag is not None
    result = await one.replica.edit_facets(
        ALICE, {FacetName.CLIENT_CONFIGS: Op("acks", OpType.SET, "1")}, {FacetName.CLIENT_CONFIGS: tag}
    )
    assert result.error is None


async def test_an_entity_type_that_may_not_be_described_fails_alone(opened: Opener, kafka: KafkaDouble) -> None:
    one = await opened()
    seen = [Precondition(if_match=(etag(one, each),)) for each in (TOPIC, ALICE)]
    kafka.denied.add(KraftEntityType.TOPICS)
    topic, quotas = await write(one, (TOPIC, {"retention.ms": "9"}, seen[0]), (ALICE, {RATE: 9}, seen[1]))
    assert isinstance(topic.error, UnavailableError)
    assert "DESCRIBE_CONFIGS is missing for topics" in topic.error.detail
    assert quotas.error is None


async def test_a_cluster_without_a_target_is_not_polled(world: World) -> None:
    replica = await world.replica()
    replica.parts.alter.refreshes = {}
    made, again = Precondition(if_none_match=("*",)), Precondition(if_match=("*",))
    collection = replica.parts.clusters.get("default").facets[QUOTAS]
    for precondition in (made, again):
        edit = Edit(BOB, (Op(RATE, OpType.SET, 9),), precondition=precondition)
        [result] = await replica.parts.alter.alter(collection, [edit], caller())
        assert result.error is None


@pytest.mark.parametrize("enforced", [False, True])
async def test_an_entity_whose_values_the_cluster_refuses_is_written_under_a_condition(
    opened: Opener, kafka: KafkaDouble, *, enforced: bool
) -> None:
    one = await opened("enforce" if enforced else "adopt")
    await alter(one, ALICE, {RATE: 3000})
    await apply(one)
    kafka.refusals[ALICE] = AlterRefused(44, "A policy forbids it")
    for value, theirs in ((4000, "2001"), (5000, "2002")):
        await alter(one, ALICE, {RATE: value})
        for _ in range(2):
            # Neither what others set then nor what they set behind the refusal changes the version here.
            kafka.alter(ALICE, {RATE: theirs})
            seen = Precondition(if_match=(etag(one, ALICE),))
            [result] = await write(one, (ALICE, {RATE: value + 1}, seen))
            assert result.error is None
            await apply(one)
    kafka.refusals.clear()
    [result] = await write(one, (ALICE, {RATE: 6000}, Precondition(if_match=(etag(one, ALICE),))))
    assert result.error is None
    await apply(one)
    assert kafka.now.configs[ALICE][RATE] == "6000"


async def test_many_entities_are_polled_in_one_request_for_all(opened: Opener, kafka: KafkaDouble) -> None:
    users = [Entity.of(user=f"u{at}") for at in range(60)]
    for each in users:
        kafka.alter(each, {RATE: "1000"})
    one = await opened()
    seen = {each: Precondition(if_match=(etag(one, each),)) for each in users}
    kafka.alter(users[7], {RATE: "2000"})
    kafka.alter(users[8], {RATE: None})
    before = kafka.calls["quotas"], kafka.calls["quotas_of"]
    results = await write(one, *((each, {RATE: 9}, seen[each]) for each in users))
    assert [at for at, each in enumerate(results) if each.error is not None] == [7, 8]
    assert (kafka.calls["quotas"], kafka.calls["quotas_of"]) == (before[0] + 1, before[1])


async def test_a_lagging_broker_is_waited_for(opened: Opener, kafka: KafkaDouble) -> None:
    one = await opened()
    seen = Precondition(if_match=(etag(one, ALICE),))
    with kafka.lagging():
        kafka.alter(ALICE, {RATE: "2000"})
        collections = one.replica.parts.clusters.get("default").facets
        edit = Edit(ALICE, (Op(RATE, OpType.SET, 9),), precondition=seen)
        hurried = type(caller()).operator("User:olga", "127.0.0.1", "r", soon(1))
        [result] = await one.replica.parts.alter.alter(collections[QUOTAS], [edit], hurried)
        assert isinstance(result.error, UnavailableError)
    [result] = await one.replica.parts.alter.alter(collections[QUOTAS], [edit], caller())
    assert isinstance(result.error, PreconditionFailedError)


async def test_what_is_to_be_put_back_has_its_row_before_a_conditional_write(
    opened: Opener, kafka: KafkaDouble
) -> None:
    one = await opened("enforce")
    await alter(one, ALICE, {RATE: 3000})
    await apply(one)
    kafka.alter(ALICE, {RATE: "2000"})
    [result] = await write(one, (ALICE, {RATE: 9}, Precondition(if_match=(etag(one, ALICE),))))
    assert result.error is None
    # What was put back never was a version, and has no revision.
    assert await kinds(one, ALICE) == ["put-back", "change", "change"]


async def test_a_revert_does_not_undo_unobserved_external_writes(opened: Opener, kafka: KafkaDouble) -> None:
    one = await opened()
    await alter(one, ALICE, {RATE: 3000})
    await apply(one)
    [change] = [each for each in await one.replica.trail(entity_id=ALICE.id) if each.kind == "change"]
    kafka.alter(ALICE, {RATE: "2000"})
    [reversal] = await revert(one.replica, change.intent.change_id)
    assert isinstance(reversal.result.error, RevertConflictError)
    assert one.config(ALICE) == {RATE: "2000"}
    # With force it is not compared with anything.
    [reversal] = await revert(one.replica, change.intent.change_id, force=True)
    assert reversal.result.error is None
    assert one.config(ALICE) == {RATE: "1000"}
