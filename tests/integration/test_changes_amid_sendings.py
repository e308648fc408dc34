"""Changes that callers commit while an earlier change of the same entity is on its way to the Kafka cluster.

ZooKeeper and Postgres are real, the Kafka cluster is a double.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

import pytest

from app.domain.facets import Tree
from app.services.ports.applying import Refused
from app.services.target.standing import Standings
from tests.support.adopting import ALICE, OTHER, RATE, alter, apply, equal, opener
from tests.support.kafka_double import KafkaDouble
from tests.support.stores import soon, until

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from app.domain.changes import Node
    from tests.support.adopting import Opener
    from tests.support.observing import Observing
    from tests.support.stage import Stage


@pytest.fixture
def kafka() -> KafkaDouble:
    made = KafkaDouble()
    made.alter(ALICE, {RATE: "1024", OTHER: "1"})
    return made


@pytest.fixture
async def opened(stage: Stage, kafka: KafkaDouble) -> AsyncIterator[Opener]:
    """Opens processes that adopt the cluster; the first imports it."""
    async with opener(stage, kafka) as found:
        yield found


async def nothing() -> None:
    """Do nothing behind a request."""


def node_of(one: Observing) -> Node:
    node = one.store.get(Tree.CONFIG, ALICE.id)
    assert node is not None
    return node


async def standing_of(one: Observing) -> str:
    """The standing of the entity's newest change."""
    found = await Standings(one.store, one.states).of([node_of(one)])
    return found[ALICE.id].state.value


@pytest.mark.parametrize("refused", [False, True], ids=["applied", "refused"])
async def test_a_change_that_the_journal_shows_amid_a_sending_is_sent_behind_it(
    opened: Opener, kafka: KafkaDouble, *, refused: bool
) -> None:
    one = await opened()
    await one.look()
    await alter(one, ALICE, producer_byte_rate=2048)
    if refused:
        kafka.refusals[ALICE] = Refused(42, "No")

    async def change_again() -> None:
        kafka.behind_request = nothing
        await alter(one, ALICE, consumer_byte_rate=5)
        await one.store.catch_up(soon())
        # The next round of the applier reads the journal while the request is under way.
        await one.applier._begin()

    kafka.behind_request = change_again
    first = node_of(one).mzxid
    await apply(one)
    kafka.refusals.clear()
    # The end of the first change is known to all, and the frontier does not pass the second.
    await until(lambda: one.store.applied_revision() == first)
    # No look has it sent.
    await apply(one)
    assert kafka.now.configs[ALICE][OTHER] == "5"
    assert len(kafka.requests) == 2
    await until(lambda: (one.store.applied_revision() or 0) >= node_of(one).mzxid)
    equal(one, kafka)


@pytest.mark.parametrize("back", [False, True], ids=["another key", "back to the value on its way"])
async def test_the_appliers_own_rounds_end_every_change(opened: Opener, kafka: KafkaDouble, *, back: bool) -> None:
    one = await opened()
    await one.look()
    under_way, answered = asyncio.Event(), asyncio.Event()

    async def wait() -> None:
        kafka.behind_request = nothing
        under_way.set()
        await answered.wait()

    kafka.behind_request = wait
    one.applier.start()
    try:
        await alter(one, ALICE, producer_byte_rate=2048)
        await under_way.wait()
        if back:
            await alter(one, ALICE, producer_byte_rate=4096)
            await alter(one, ALICE, producer_byte_rate=2048)
        else:
            await alter(one, ALICE, consumer_byte_rate=5)
        newest = node_of(one).mzxid
        # The applier's rounds have read the journal meanwhile.
        await until(lambda: (one.applier._frontier._collected or 0) >= newest)
        answered.set()
        await until(lambda: (one.store.applied_revision() or 0) >= newest)
        assert await standing_of(one) == "applied"
        equal(one, kafka)
    finally:
        await one.applier.stop()
