"""A revert of any change, of random ones: the state before the change, or a refusal that names the reason."""

from __future__ import annotations

import random
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

import pytest

from confplane.domain.entities import Entity
from confplane.domain.errors import ConfplaneError, NotRevertibleError, RevertConflictError
from confplane.domain.facets import FacetName, Tree
from confplane.domain.ops import Op, OpType
from tests.support.reverting import now, revert
from tests.support.stores import ALICE, kafka_writes, rate, soon

if TYPE_CHECKING:
    from kazoo.client import KazooClient

    from confplane.services.ports.trail import AuditRecord
    from tests.support.replicas import Replica
    from tests.support.world import World

QUOTAS: Final = FacetName.CLIENT_QUOTAS
CLIENT_CONFIGS: Final = FacetName.CLIENT_CONFIGS
RATE: Final = "producer_byte_rate"
BOB: Final = Entity.of(user="bob")
PAIR: Final = Entity.of(user="alice", client_id="app")
ENTITIES: Final = (ALICE, BOB, PAIR)


@dataclass(frozen=True)
class Known:
    """A change by the trail, with the content of its znodes before it and after it."""

    record: AuditRecord

    def keys(self, entity: Entity) -> set[str]:
        return {key for row in self.record.intent.entities if row.entity_id == entity.id for key in row.keys}

    def before(self, entity: Entity, key: str) -> str | None:
        [value] = [
            row.before.get(key) for row in self.record.intent.entities if row.entity_id == entity.id and key in row.keys
        ]
        return value

    @property
    def revision(self) -> int:
        assert self.record.outcome is not None
        assert self.record.outcome.revision is not None
        return self.record.outcome.revision


class RandomWalk:
    """Writers of one cluster, and what they did."""

    def __init__(self, one: Replica, zk: KazooClient, dice: random.Random) -> None:
        self.one = one
        self._zk = zk
        self._dice = dice

    async def step(self) -> None:
        dice = self._dice
        await self.one.store.catch_up(soon(60))
        match dice.randrange(6):
            case 0:
                some = dice.sample(ENTITIES, dice.randrange(2, 4))
                await self.one.edit_all(some, producer_byte_rate=dice.randrange(1, 4))
            case 1:
                kafka_writes(self._zk, dice.choice(ENTITIES).path, rate(dice.randrange(1, 4)))
                await self.one.record()
            case 2:
                op = Op("acks", dice.choice([OpType.SET, OpType.DELETE]), dice.choice(["all", "1", "0"]))
                await self.one.edit(dice.choice(ENTITIES), CLIENT_CONFIGS, (op,))
            case 3:
                both = {
                    QUOTAS: Op(RATE, OpType.SET, dice.randrange(1, 4)),
                    CLIENT_CONFIGS: Op("acks", OpType.SET, dice.choice(["all", "1", "0"])),
                }
                await self.one.edit_facets(dice.choice(ENTITIES), both)
            case _:
                key = dice.choice([RATE, "consumer_byte_rate"])
                op = Op(key, dice.choice([OpType.SET, OpType.SET, OpType.DELETE]), dice.randrange(1, 4))
                await self.one.edit(dice.choice(ENTITIES), QUOTAS, (op,))

    async def contents(self) -> dict[str, dict[str, str]]:
        return {
            entity.id: {key: value for tree in Tree for key, value in (await now(self.one, entity, tree)).items()}
            for entity in ENTITIES
        }

    async def check(self) -> str:
        """Revert any change, and hold the result against the trail; return how it ended."""
        known = [Known(record) for record in await self.one.trail(outcome="committed")]
        chosen = self._dice.choice(known[-12:])
        change, before = chosen.record.intent.change_id, await self.contents()
        force = self._dice.random() < 0.2
        try:
            results = await revert(self.one, change, force=force)
        except NotRevertibleError as error:
            assert "no key another value" in error.detail, error.detail
            return "nothing"
        after = await self.contents()
        errors = [each.result.error for each in results if each.result.error is not None]
        if errors:
            assert not force, errors
            assert after == before
            self._check_refusal(chosen, known, errors)
            return "refused"
        for entity in ENTITIES:
            wanted = dict(before[entity.id])
            for key in chosen.keys(entity):
                wanted.pop(key, None)
                value = chosen.before(entity, key)
                if value is not None:
                    wanted[key] = value
            assert after[entity.id] == wanted, chosen.record
        if after == before:
            return "so already"
        ids = {each.result.change_id for each in results} - {None}
        for made_id in sorted(ids, key=str, reverse=True):
            assert made_id is not None
            undone = await revert(self.one, made_id)
            assert [each.result.error for each in undone] == [None] * len(undone)
        assert await self.contents() == before
        return "reverted"

    def _check_refusal(self, chosen: Known, known: list[Known], errors: list[ConfplaneError]) -> None:
        for error in errors:
            if not isinstance(error, RevertConflictError):
                assert error.code.name == "OPERATION_NOT_ATTEMPTED", error
                continue
            assert error.later
            for each in error.later:
                [named] = [other for other in known if other.record.intent.change_id == each.change_id]
                assert named.revision > chosen.revision
                touched = [entity for entity in ENTITIES if named.keys(entity) & chosen.keys(entity)]
                assert any(set(each.keys) <= named.keys(entity) & chosen.keys(entity) for entity in touched)
        assert any(isinstance(error, RevertConflictError) for error in errors)


@pytest.mark.parametrize("layout", [pytest.param("shared", marks=pytest.mark.long), "separate"])
@pytest.mark.parametrize("seed", [1, *(pytest.param(seed, marks=pytest.mark.long) for seed in range(2, 5))])
async def test_a_revert_of_any_change_gives_the_state_before_it_or_names_the_reason(
    world: World, seed: int, layout: str
) -> None:
    dice = random.Random(seed)  # noqa: S311 - reproducible
    one = await world.replica(client_configs_layout=layout)
    await one.record()
    walk, ends = RandomWalk(one, world.zk, dice), []
    for _ in range(10):
        await walk.step()
    for _ in range(40 if seed == 1 else 300):
        await walk.step()
        ends.append(await walk.check())
    assert {"reverted", "refused", "so already"} <= set(ends)
