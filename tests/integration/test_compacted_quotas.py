"""``confplane compact`` with a Kafka cluster without ZooKeeper: emptied znodes go once nothing depends on them.

ZooKeeper and Postgres are real, the Kafka cluster is a double.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from confplane.domain.entities import Entity
from confplane.domain.facets import Tree
from confplane.services.ports.applying import AlterRefused
from confplane.services.upkeep.compact import CompactService
from tests.support.adopting import ALICE, BOB, PAIR, RATE, alter, apply, equal, kinds, opener, restore
from tests.support.kafka_double import KafkaDouble
from tests.support.observing import caller
from tests.support.stores import soon

if TYPE_CHECKING:
    from tests.support.observing import Observing
    from tests.support.world import World

CLIENT = Entity.of(client_id="x")
EMPTIED = (ALICE, BOB, CLIENT)


@pytest.fixture
def kafka() -> KafkaDouble:
    made = KafkaDouble()
    for entity in (*EMPTIED, PAIR):
        made.alter(entity, {RATE: "1024"})
    return made


async def compacted(one: Observing, *entities: Entity) -> list[str]:
    """Compact; return those of the entities that have no znode afterwards."""
    await one.store.catch_up(soon())
    parts = one.replica.parts
    service = CompactService(parts.runner, one.store, parts.target_states)
    run = service.run(service.candidates(), caller(), older_than_s=-60, apply=True)
    assert [each.error async for each in run if each is not None and each.error is not None] == []
    await one.store.catch_up(soon())
    return [each.id for each in entities if one.store.get(Tree.CONFIG, each.id) is None]


@pytest.mark.parametrize("enforced", [False, True])
async def test_a_removed_quota_leaves_no_znode_once_the_cluster_has_taken_it(
    world: World, kafka: KafkaDouble, *, enforced: bool
) -> None:
    async with opener(world, kafka) as open_one:
        one = await open_one("enforce" if enforced else "adopt")
        for entity in (PAIR, ALICE, CLIENT):
            await alter(one, entity, {RATE: None})
        assert await compacted(one, PAIR, ALICE, CLIENT) == []
        await apply(one)
        await one.poll()
        assert await compacted(one, PAIR, ALICE, CLIENT) == [PAIR.id, ALICE.id, CLIENT.id]
        equal(one, kafka)
        # What is known of the removal stays: an external change is put back in the mode that does so.
        kafka.alter(ALICE, {RATE: "7"})
        await restore(one)
        assert ("put-back" if enforced else "observed") in await kinds(one, ALICE)
        assert (ALICE in kafka.now.configs) is not enforced
        equal(one, kafka)
        await alter(one, CLIENT, {RATE: 5})
        await restore(one)
        assert kafka.now.configs[CLIENT] == {RATE: "5"}
        equal(one, kafka)


async def test_what_was_removed_externally_leaves_no_znode(world: World, kafka: KafkaDouble) -> None:
    async with opener(world, kafka) as open_one:
        one = await open_one()
        kafka.alter(BOB, {RATE: None})
        await one.poll()
        assert await compacted(one, BOB) == [BOB.id]
        await restore(one)
        equal(one, kafka)


async def test_a_znode_stays_while_its_removal_may_still_be_delivered(world: World, kafka: KafkaDouble) -> None:
    async with opener(world, kafka) as open_one:
        one = await open_one()
        # Refused, without a known outcome, and unknown to the cluster.
        kafka.refusals[ALICE] = AlterRefused(42, "no")
        await alter(one, ALICE, {RATE: None})
        await apply(one)
        kafka.cut = "late"
        await alter(one, BOB, {RATE: None})
        await apply(one)
        await alter(one, CLIENT, {RATE: None})
        assert await compacted(one, *EMPTIED) == []


async def test_a_znode_of_an_observed_cluster_stays(world: World, kafka: KafkaDouble) -> None:
    async with opener(world, kafka) as open_one:
        one = await open_one("observe")
        kafka.alter(BOB, {RATE: None})
        await one.poll()
        assert one.config(BOB) == {}
        assert await compacted(one, BOB) == []
