"""The revision of a write that writes nothing: that of the state that decided, although the mirror is behind."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import pytest

from confplane.api.responses import written_revision
from confplane.domain.entities import Entity
from confplane.domain.errors import PreconditionFailedError
from confplane.domain.etags import Precondition
from confplane.domain.facets import FacetName
from confplane.domain.ops import Op, OpType
from confplane.services.changes.callers import Caller
from confplane.services.changes.edits import Edit
from tests.support.stores import ALICE, kafka_writes, mirror_paused, rate, soon

if TYPE_CHECKING:
    from confplane.services.changes.edits import EditResult
    from tests.support.replicas import Replica
    from tests.support.world import World

PATH: Final = "users/alice"
OTHERS: Final = tuple(Entity.of(user=name) for name in "xyz")


async def alter(one: Replica, precondition: Precondition, value: int, *others: Entity) -> EditResult:
    """Alter the rate of alice on a condition, in one request with others."""
    collection = one.parts.clusters.get("default").facets[FacetName.CLIENT_QUOTAS]
    ops = (Op("producer_byte_rate", OpType.SET, value),)
    edits = [Edit(ALICE, ops, precondition=precondition), *(Edit(other, ops) for other in others)]
    caller = Caller.operator("User:admin", "127.0.0.1", "r", soon(30))
    return (await one.parts.alter.alter(collection, edits, caller))[0]


def etag(one: Replica) -> str:
    collection = one.parts.clusters.get("default").facets[FacetName.CLIENT_QUOTAS]
    node = collection.get(ALICE.id)
    assert node is not None
    found = collection.tagged(ALICE, node.config, node)[1]
    assert found is not None
    return found


@pytest.mark.parametrize("others", [(), OTHERS], ids=["alone", "with others"])
@pytest.mark.parametrize("named", ["the earlier", "none"])
async def test_a_refusal_has_the_revision_of_the_node_that_refused_it(
    world: World, named: str, others: tuple[Entity, ...]
) -> None:
    one = await world.replica()
    await one.alter(ALICE, producer_byte_rate=1)
    condition = Precondition(if_match=(etag(one),)) if named == "the earlier" else Precondition(if_match=('"never"',))
    async with mirror_paused(one.store):
        kafka_writes(world.zk, PATH, rate(2))
        refused = await alter(one, condition, 3, *others)
        written = world.zk.exists(f"/config/{PATH}").mzxid
        mirror, _ = one.store.freshness() or (0, None)
        revision = written_revision(one.store, [refused])
    assert isinstance(refused.error, PreconditionFailedError)
    assert mirror < written, "the mirror has not seen the write"
    assert revision is not None
    assert revision >= written
    await one.store.wait_for(revision, soon(30))
    assert refused.error.etag == etag(one)


async def test_a_write_of_the_present_content_has_the_revision_of_the_node(world: World) -> None:
    one = await world.replica()
    await one.alter(ALICE, producer_byte_rate=1)
    async with mirror_paused(one.store):
        kafka_writes(world.zk, PATH, rate(2))
        unchanged = await alter(one, Precondition(), 2)
        revision = written_revision(one.store, [unchanged])
    assert (unchanged.error, unchanged.change_id) == (None, None)
    assert revision == world.zk.exists(f"/config/{PATH}").mzxid
