"""Files that brokers load again because a client sets their paths again: changes of the kind ``reload``.

ZooKeeper and Postgres are real, the Kafka cluster is a double.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from confplane.domain.entities import Entity
from confplane.domain.facets import FacetName, Tree
from confplane.domain.ops import Op, OpType
from confplane.services.changes.edits import Edit, Mode
from confplane.services.kraft.apply.apply_status import ApplyWaiter
from tests.support.adopting import alter, apply, equal, kinds, restore, rows
from tests.support.kafka_double import KafkaDouble
from tests.support.observing import caller
from tests.support.reverting import made, revert
from tests.support.stores import soon

if TYPE_CHECKING:
    from tests.support.adopting import Opener
    from tests.support.observing import Observing

BROKER, THREADS = Entity.of(broker="1"), "log.cleaner.threads"
KEYSTORE, TRUSTSTORE = "listener.name.tls.ssl.keystore.location", "listener.name.tls.ssl.truststore.location"
PATHS = {KEYSTORE: "/etc/kafka/keys.p12", TRUSTSTORE: "/etc/kafka/trust.p12"}


@pytest.fixture
def kafka() -> KafkaDouble:
    return KafkaDouble()


@pytest.fixture
async def one(opened: Opener, kafka: KafkaDouble) -> Observing:
    """A process that has delivered the paths, with another key."""
    found = await opened()
    await alter(found, BROKER, {**PATHS, THREADS: "1"})
    await restore(found)
    assert kafka.now.configs[BROKER] == {**PATHS, THREADS: "1"}
    kafka.requests.clear()
    return found


async def edit(one: Observing, values: dict[str, str], mode: Mode = Mode.ALTER) -> Any:
    await one.store.catch_up(soon())
    facet = one.replica.parts.clusters.get("default").facets[FacetName.CONFIGS]
    ops = tuple(Op(key, OpType.SET, value) for key, value in values.items())
    [result] = await one.replica.parts.alter.alter(facet, [Edit(BROKER, ops, mode)], caller())
    assert result.error is None, result.error
    return result


async def status(one: Observing) -> str:
    await one.store.catch_up(soon())
    node = one.store.get(Tree.CONFIG, BROKER.id)
    assert node is not None
    return (await ApplyWaiter(one.store, one.states).statuses([node]))[BROKER.id].state.value


@pytest.mark.parametrize("key", PATHS)
@pytest.mark.parametrize("mode", ["adopt", "enforce"])
async def test_a_path_that_is_set_again_is_a_change_and_is_sent_once(
    opened: Opener, kafka: KafkaDouble, key: str, mode: str
) -> None:
    one = await opened(mode)
    await alter(one, BROKER, {**PATHS, THREADS: "1"})
    await restore(one)
    kafka.requests.clear()
    before = one.store.get(Tree.CONFIG, BROKER.id)
    result = await edit(one, {key: PATHS[key]})
    assert before is not None
    assert (result.node.version, result.node.config) == (before.version + 1, before.config)
    assert [(each.key, each.before, each.after) for each in result.diff] == [(key, PATHS[key], PATHS[key])]
    assert "loads the file again" in result.warnings[-1]
    assert await status(one) == "pending"
    await restore(one)
    assert (kafka.requests, await status(one)) == ([{BROKER: {key: PATHS[key]}}], "applied")
    _, row = await rows(one, BROKER)
    [changed] = row.intent.entities
    assert (row.kind, changed.keys, changed.before) == ("reload", (key,), changed.after)
    # Later changes of other keys do not send it again.
    kafka.requests.clear()
    await alter(one, BROKER, {THREADS: "2"})
    await restore(one)
    assert kafka.requests == [{BROKER: {THREADS: "2"}}]
    assert await kinds(one, BROKER) == ["change", "reload", "change"]
    equal(one, kafka)


@pytest.mark.parametrize("mode", [Mode.REPLACE, Mode.CREATE])
async def test_equal_content_sends_nothing(one: Observing, kafka: KafkaDouble, mode: Mode) -> None:
    result = await edit(one, {**PATHS, THREADS: "1"}, mode)
    await restore(one)
    assert (result.change_id, result.diff, result.warnings, kafka.requests) == (None, (), (), [])
    assert await kinds(one, BROKER) == ["change"]


async def test_other_keys_with_equal_values_are_no_reload(one: Observing, kafka: KafkaDouble) -> None:
    result = await edit(one, {THREADS: "1"})
    await restore(one)
    assert (result.change_id, kafka.requests) == (None, [])


async def test_a_change_of_other_keys_names_the_path_as_well(one: Observing, kafka: KafkaDouble) -> None:
    await edit(one, {KEYSTORE: PATHS[KEYSTORE], THREADS: "2"})
    await restore(one)
    assert kafka.requests == [{BROKER: {KEYSTORE: PATHS[KEYSTORE], THREADS: "2"}}]
    _, row = await rows(one, BROKER)
    assert (row.kind, set(row.intent.entities[0].keys)) == ("change", {KEYSTORE, THREADS})


@pytest.mark.parametrize("cut", ["before", "after", "late"])
async def test_a_reload_without_an_answer_is_sent_again(one: Observing, kafka: KafkaDouble, cut: str) -> None:
    await edit(one, {KEYSTORE: PATHS[KEYSTORE]})
    kafka.cut = cut
    await apply(one)
    assert await status(one) == "pending"
    await restore(one)
    assert (kafka.requests, await status(one)) == ([{BROKER: {KEYSTORE: PATHS[KEYSTORE]}}] * 2, "applied")


async def test_a_reload_waits_for_its_broker_and_another_leader_sends_it(
    one: Observing, opened: Opener, kafka: KafkaDouble
) -> None:
    kafka.away = True
    result = await edit(one, {KEYSTORE: PATHS[KEYSTORE]})
    await apply(one)
    assert (result.change_id is not None, await status(one)) == (True, "pending")
    kafka.away = False
    kafka.requests.clear()
    two = await opened()
    await restore(two)
    assert (kafka.requests, await status(two)) == ([{BROKER: {KEYSTORE: PATHS[KEYSTORE]}}], "applied")


async def test_a_reload_is_in_the_way_of_no_revert_and_is_not_reverted(one: Observing, kafka: KafkaDouble) -> None:
    moved = await edit(one, {KEYSTORE: "/etc/kafka/new.p12"})
    reloaded = await edit(one, {KEYSTORE: "/etc/kafka/new.p12"})
    await restore(one)
    [nothing] = await revert(one.replica, made(reloaded))
    assert (nothing.result.error, nothing.result.change_id) == (None, None)
    [undone] = await revert(one.replica, made(moved))
    assert undone.result.error is None, undone.result.error
    await restore(one)
    assert kafka.now.configs[BROKER][KEYSTORE] == PATHS[KEYSTORE]
    assert await kinds(one, BROKER) == ["change", "change", "reload", "change"]


async def test_a_path_that_is_set_again_with_other_keys_is_in_the_way_of_no_revert(
    one: Observing, kafka: KafkaDouble
) -> None:
    moved = await edit(one, {KEYSTORE: "/etc/kafka/new.p12"})
    await edit(one, {KEYSTORE: "/etc/kafka/new.p12", THREADS: "2"})
    await restore(one)
    [undone] = await revert(one.replica, made(moved))
    assert undone.result.error is None, undone.result.error
    await restore(one)
    assert kafka.now.configs[BROKER] == {**PATHS, THREADS: "2"}
