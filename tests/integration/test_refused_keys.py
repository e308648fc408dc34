"""A key that the cluster refuses is isolated: all other keys of its entity are applied and followed as usual.

ZooKeeper and Postgres are real, the Kafka cluster is a double.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from confplane.domain.entities import Entity
from confplane.domain.errors import UnavailableError
from confplane.domain.facets import FacetName, Tree
from confplane.domain.ops import Op, OpType
from confplane.services.changes.edits import Edit, Mode
from confplane.services.kraft.apply.apply_status import ApplyWaiter
from confplane.services.kraft.reconcile.drift import DriftSelection
from confplane.services.ports.applying import AlterRefused
from tests.support.adopting import ADMIN, adopt_drift, alter, apply, drift, equal, kinds, shown_drift
from tests.support.kafka_double import KafkaDouble, nothing
from tests.support.observing import caller
from tests.support.stores import soon

if TYPE_CHECKING:
    from collections.abc import Mapping

    from confplane.services.kraft.apply.apply_status import ApplyStatus
    from tests.support.adopting import Opener
    from tests.support.observing import Observing

DEFAULT, TOPIC, GROUP = Entity.of(broker=None), Entity.of(topic="t"), Entity.of(group="g")
BROKER, PASSWORD = Entity.of(broker="1"), "listener.name.internal.ssl.keystore.password"
KEYS = {
    DEFAULT: (("log.retention.ms", "7000000"), ("log.cleaner.threads", "3"), ("message.max.bytes", "9999")),
    TOPIC: (("retention.ms", "5"), ("segment.ms", "77"), ("flush.ms", "9")),
    GROUP: (
        ("consumer.session.timeout.ms", "46000"),
        ("consumer.heartbeat.interval.ms", "6000"),
        ("share.session.timeout.ms", "47000"),
    ),
}
"""A key that is refused with its value, and two others."""


@pytest.fixture
def kafka() -> KafkaDouble:
    made = KafkaDouble()
    made.create_topic("t")
    return made


@pytest.fixture
def opened(opened_with_encoder: Opener) -> Opener:
    return opened_with_encoder


async def status(one: Observing, entity: Entity) -> ApplyStatus:
    node = one.store.get(Tree.CONFIG, entity.id)
    assert node is not None
    return (await ApplyWaiter(one.store, one.states).statuses([node]))[entity.id]


async def alter_unasked(one: Observing, kafka: KafkaDouble, entity: Entity, values: Mapping[str, str | None]) -> None:
    """Change an entity while the cluster is away, so that it is not asked before the commit."""
    kafka.down = "No broker answers"
    await alter(one, entity, {**values})
    kafka.down = None


async def refuse(one: Observing, kafka: KafkaDouble, entity: Entity) -> tuple[str, str, dict[str, str]]:
    """Write two keys while the cluster is away, of which it refuses one; return both, and what the cluster takes."""
    (bad, value), (good, taken), _ = KEYS[entity]
    kafka.refused_keys = {bad: {value}}
    await alter_unasked(one, kafka, entity, {bad: value, good: taken})
    await apply(one)
    return bad, value, {good: taken}


@pytest.mark.parametrize("entity", KEYS, ids=str)
@pytest.mark.parametrize("enforced", [False, True], ids=["adopt", "enforce"])
async def test_the_other_keys_are_applied_and_followed(
    opened: Opener, kafka: KafkaDouble, entity: Entity, *, enforced: bool
) -> None:
    one = await opened("enforce" if enforced else "adopt")
    bad, value, taken = await refuse(one, kafka, entity)
    assert kafka.now.configs[entity] == taken
    refused = await status(one, entity)
    assert (refused.state, refused.code, list(refused.refused_keys)) == ("partly-refused", 40, [bad])
    assert one.queues.report().refused.first == ((entity.id, f"{bad}: Invalid value of {bad} (code 40)"),)
    # Polls leave the refused key alone, and another leader sends nothing.
    two = await opened()
    for each in (one, two):
        await each.poll()
        await apply(each)
        assert each.config(entity) == taken | {bad: value}
        assert each.queues.report().refused.count == 1
    assert await kinds(one, entity) == ["change"]
    # A later change of another key is applied, and an external change of it is followed or put back.
    sent, (_, _, (other, new)) = len(kafka.requests), KEYS[entity]
    await alter(one, entity, {other: new})
    await apply(one)
    assert kafka.requests[sent:] == [{entity: {other: new}}]
    assert (await status(one, entity)).state == "partly-refused"
    [good] = taken
    kafka.alter(entity, {good: str(int(taken[good]) + 1)})
    await one.poll()
    await apply(one)
    await apply(one)
    after = taken if enforced else {good: kafka.now.configs[entity][good]}
    assert kafka.now.configs[entity] == after | {other: new}
    assert one.config(entity) == after | {other: new, bad: value}
    assert (await status(one, entity)).state == "partly-refused"
    assert sorted(await kinds(one, entity)) == ["change", "change", "put-back" if enforced else "observed"]
    assert shown_drift(await drift(one)) == {entity.id: {bad: ("refused", value, None, "User:admin")}}


@pytest.mark.parametrize("entity", KEYS, ids=str)
@pytest.mark.parametrize("way", ["change", "delete", "reapply", "adopt", "external"])
async def test_a_refused_key_has_ways_back(opened: Opener, kafka: KafkaDouble, entity: Entity, way: str) -> None:
    one = await opened()
    bad, value, taken = await refuse(one, kafka, entity)
    match way:
        case "change":
            value = str(int(value) + 1)
            await alter(one, entity, {bad: value})
        case "delete":
            await alter(one, entity, {bad: None})
        case "reapply":
            kafka.refused_keys.clear()
            assert await one.drift.reapply([DriftSelection(entity, None)], ADMIN, validate_only=False) == {
                entity.id: [bad]
            }
        case "adopt":
            assert [each.error for each in await adopt_drift(one, DriftSelection(entity, None))] == [None]
        case _:
            kafka.alter(entity, {bad: value})
    await apply(one)
    for _ in range(2):
        await one.poll()
        await apply(one)
    equal(one, kafka)
    assert kafka.now.configs[entity] == (taken if way in {"delete", "adopt"} else taken | {bad: value})
    assert (await status(one, entity)).state == "applied"
    assert (await drift(one), one.queues.report().refused.count) == ([], 0)


async def test_clients_that_write_to_the_entity_are_warned(opened: Opener, kafka: KafkaDouble) -> None:
    one = await opened()
    bad, _, _ = await refuse(one, kafka, DEFAULT)
    _, _, (other, new) = KEYS[DEFAULT]
    ops = (Op(other, OpType.SET, new),)
    (result,) = await one.replica.edit(DEFAULT, FacetName.CONFIGS, ops)
    assert result.error is None
    assert [each for each in result.warnings if f"{bad}: Invalid value of {bad} (code 40)" in each]
    (result,) = await one.replica.edit(DEFAULT, FacetName.CONFIGS, (Op(bad, OpType.SET, "8000000"),))
    assert not [each for each in result.warnings if "refused" in each]


async def test_all_refused_keys_are_found_also_if_others_depend_on_each_other(
    opened: Opener, kafka: KafkaDouble
) -> None:
    one = await opened()
    kafka.refused_keys = {"log.retention.ms": {"7000000"}, "message.max.bytes": {"9999"}}
    kafka.needed_keys = {"log.cleaner.threads": "num.io.threads"}
    kafka.down = "No broker answers"
    values = {
        "log.cleaner.threads": "3",
        "log.retention.ms": "7000000",
        "message.max.bytes": "9999",
        "num.io.threads": "9",
    }
    await alter(one, DEFAULT, values)
    kafka.down = None
    await apply(one)
    assert kafka.now.configs[DEFAULT] == {"log.cleaner.threads": "3", "num.io.threads": "9"}
    assert list((await status(one, DEFAULT)).refused_keys) == ["log.retention.ms", "message.max.bytes"]


async def test_a_refused_password_stays_refused_and_secret(opened: Opener, kafka: KafkaDouble) -> None:
    one = await opened()
    kafka.refused_keys = {PASSWORD: {"hunter2"}}
    await alter_unasked(one, kafka, BROKER, {PASSWORD: "hunter2", "log.cleaner.threads": "2"})
    await apply(one)
    await one.poll()
    assert kafka.now.configs[BROKER] == {"log.cleaner.threads": "2"}
    assert list((await status(one, BROKER)).refused_keys) == [PASSWORD]
    assert shown_drift(await drift(one)) == {BROKER.id: {PASSWORD: ("refused", None, None, "User:admin")}}


async def test_a_cluster_that_goes_away_during_the_search_leaves_the_entity_queued(
    opened: Opener, kafka: KafkaDouble
) -> None:
    one = await opened()

    async def go_away() -> None:
        kafka.down = "No broker answers"

    kafka.after_request = go_away
    with pytest.raises(UnavailableError):
        await refuse(one, kafka, TOPIC)
    (bad, _), (good, value), _ = KEYS[TOPIC]
    assert (kafka.now.configs, one.queues.report().pending) == ({}, 1)
    kafka.after_request, kafka.down = nothing, None
    await apply(one)
    assert kafka.now.configs[TOPIC] == {good: value}
    assert list((await status(one, TOPIC)).refused_keys) == [bad]


MANAGED = "min.insync.replicas"


@pytest.mark.parametrize("others", [{}, {"log.cleaner.threads": "2"}], ids=["refused", "partly refused"])
@pytest.mark.parametrize("way", ["delete", "put", "adopt", "before it was sent"])
async def test_a_key_that_the_cluster_never_had_is_removed_without_it(
    opened: Opener, kafka: KafkaDouble, way: str, others: dict[str, str]
) -> None:
    """Under eligible leader replicas a broker refuses both the key and its removal."""
    one = await opened()
    kafka.refused_keys = {MANAGED: {"2", None}}
    await alter_unasked(one, kafka, BROKER, {MANAGED: "2", **others})
    if way != "before it was sent":
        await apply(one)
        assert (await status(one, BROKER)).state == ("partly-refused" if others else "refused")
    match way:
        case "put":
            ops = tuple(Op(key, OpType.SET, value) for key, value in others.items())
            collection = one.replica.parts.clusters.get("default").facets[FacetName.CONFIGS]
            [result] = await one.replica.parts.alter.alter(collection, [Edit(BROKER, ops, Mode.REPLACE)], caller())
            assert result.error is None
        case "adopt":
            assert [each.error for each in await adopt_drift(one, DriftSelection(BROKER, None))] == [None]
        case _:
            await alter(one, BROKER, {MANAGED: None})
    await apply(one)
    assert (await status(one, BROKER)).state == "applied"
    await one.poll()
    assert one.config(BROKER) == kafka.now.configs.get(BROKER, {}) == others
    # It is not sent later either.
    await alter(one, BROKER, {"num.io.threads": "9"})
    await apply(one)
    assert kafka.requests[-1] == {BROKER: {"num.io.threads": "9"}}
    assert (await drift(one), one.queues.report().refused.count) == ([], 0)


async def test_a_key_that_the_cluster_had_is_removed_by_a_request(opened: Opener, kafka: KafkaDouble) -> None:
    kafka.alter(BROKER, {MANAGED: "1"})
    one = await opened()
    kafka.refused_keys = {MANAGED: {"2"}}
    await alter_unasked(one, kafka, BROKER, {MANAGED: "2", "log.cleaner.threads": "2"})
    await apply(one)
    await alter(one, BROKER, {MANAGED: None})
    await apply(one)
    assert kafka.requests[-1] == {BROKER: {MANAGED: None}}
    assert kafka.now.configs[BROKER] == {"log.cleaner.threads": "2"}


async def test_a_key_of_a_broker_that_never_registered_is_given_up(opened: Opener, kafka: KafkaDouble) -> None:
    one = await opened()
    kafka.brokers = ()
    await alter(one, BROKER, {"log.cleaner.threads": "2"})
    await apply(one)
    assert one.queues.report().held.count == 1
    await alter(one, BROKER, {"log.cleaner.threads": None})
    await apply(one)
    assert (one.queues.report().pending, one.queues.report().held.count) == (0, 0)
    assert (await status(one, BROKER)).state == "applied"
    assert await drift(one) == []


@pytest.mark.parametrize("entity", KEYS, ids=str)
@pytest.mark.parametrize("enforced", [False, True], ids=["adopt", "enforce"])
@pytest.mark.parametrize("was_refused", [False, True], ids=["never sent", "refused"])
async def test_a_removal_also_removes_what_another_tool_has_set(
    opened: Opener, kafka: KafkaDouble, entity: Entity, *, enforced: bool, was_refused: bool
) -> None:
    one = await opened("enforce" if enforced else "adopt")
    (bad, value), *_ = KEYS[entity]
    taken: dict[str, str] = {}
    if was_refused:
        _, _, taken = await refuse(one, kafka, entity)
    else:
        kafka.down = "No broker answers"
        await alter(one, entity, {bad: value})
    kafka.alter(entity, {bad: str(int(value) + 1)})
    if was_refused:
        # Polls leave the refused key alone.
        await one.poll()
    await alter(one, entity, {bad: None})
    kafka.down = None
    await apply(one)
    assert kafka.requests[-1] == {entity: {bad: None}}
    assert (await status(one, entity)).state == "applied"
    for _ in range(2):
        await one.poll()
        await apply(one)
    equal(one, kafka)
    assert kafka.now.configs.get(entity, {}) == taken
    assert (await drift(one), one.queues.report().refused.count) == ([], 0)


@pytest.mark.parametrize("entity", KEYS, ids=str)
@pytest.mark.parametrize("cut", ["before", "after"])
async def test_a_removal_without_an_answer_is_sent_again(
    opened: Opener, kafka: KafkaDouble, entity: Entity, cut: str
) -> None:
    one = await opened()
    (bad, value), *_ = KEYS[entity]
    kafka.down = "No broker answers"
    await alter(one, entity, {bad: value})
    kafka.alter(entity, {bad: str(int(value) + 1)})
    await alter(one, entity, {bad: None})
    kafka.down, kafka.cut = None, cut
    await apply(one)
    assert one.queues.report().unknown.count == 1
    assert (await status(one, entity)).state == "pending"
    await apply(one)
    assert kafka.requests == [{entity: {bad: None}}] * 2
    assert kafka.now.configs == {}
    assert (await status(one, entity)).state == "applied"


async def test_a_removal_waits_for_a_broker_that_is_away(opened: Opener, kafka: KafkaDouble) -> None:
    """While a broker is away, another tool may have set the key before."""
    one = await opened()
    kafka.away = True
    await alter(one, BROKER, {"log.cleaner.threads": "2"})
    kafka.alter(BROKER, {"log.cleaner.threads": "3"})
    await alter(one, BROKER, {"log.cleaner.threads": None})
    await apply(one)
    assert one.queues.report().held.count == 1
    assert (await status(one, BROKER)).state == "pending"
    kafka.away = False
    await apply(one)
    assert (kafka.now.configs, (await status(one, BROKER)).state) == ({}, "applied")


async def test_an_absent_key_is_removed_although_all_keys_are_refused(opened: Opener, kafka: KafkaDouble) -> None:
    one = await opened()
    kafka.refused_keys = {MANAGED: {"2", None}, "log.cleaner.threads": {"3"}}
    kafka.down = "No broker answers"
    await alter(one, BROKER, {MANAGED: "2"})
    await alter(one, BROKER, {MANAGED: None, "log.cleaner.threads": "3"})
    kafka.down = None
    await apply(one)
    refused = await status(one, BROKER)
    assert (refused.state, list(refused.refused_keys)) == ("partly-refused", ["log.cleaner.threads"])
    assert kafka.now.configs == {}


async def test_a_refusal_ends_once_the_cluster_has_the_values(opened: Opener, kafka: KafkaDouble) -> None:
    one = await opened()
    await one.poll()
    kafka.refusals[DEFAULT] = AlterRefused(40, "Not now")
    await alter_unasked(one, kafka, DEFAULT, {"log.retention.ms": "5"})
    await apply(one)
    kafka.alter(DEFAULT, {"log.retention.ms": "5"})
    await one.poll()
    await apply(one)
    assert (await status(one, DEFAULT)).state == "applied"
    assert one.queues.report().refused.count == 0


async def test_a_refusal_stays_if_a_poll_shows_a_later_change_as_equal(opened: Opener, kafka: KafkaDouble) -> None:
    one = await opened()
    await one.poll()
    kafka.refused_keys = {"log.retention.ms": {"5"}}
    await alter_unasked(one, kafka, DEFAULT, {"log.retention.ms": "5"})
    await apply(one)
    node = one.store.get(Tree.CONFIG, DEFAULT.id)
    assert node is not None
    await alter(one, DEFAULT, {"log.retention.ms": None})
    await one.poll()
    waited = await ApplyWaiter(one.store, one.states).wait({DEFAULT.id: node.mzxid}, soon())
    assert waited[DEFAULT.id].state == "refused"
    await apply(one)
    assert (await status(one, DEFAULT)).state == "applied"


@pytest.mark.parametrize("others", [{}, {"log.cleaner.threads": "2"}], ids=["refused", "partly refused"])
@pytest.mark.parametrize("adopts", [False, True], ids=["delete", "adopt"])
@pytest.mark.parametrize("removals", [0, 2], ids=["", "and removals"])
async def test_a_refused_key_can_be_removed_after_requests_without_an_answer(
    opened: Opener, kafka: KafkaDouble, others: dict[str, str], removals: int, *, adopts: bool
) -> None:
    """A request that is lost while the broker starts would have been refused as well."""
    one = await opened()
    kafka.refused_keys = {MANAGED: {"2", None}}
    await alter_unasked(one, kafka, BROKER, {MANAGED: "2", **others})
    kafka.cut = "before"
    await apply(one)
    await apply(one)
    assert (await status(one, BROKER)).state == ("partly-refused" if others else "refused")
    if adopts:
        [result] = await adopt_drift(one, DriftSelection(BROKER, frozenset({MANAGED})))
        assert result.error is None
    else:
        await alter(one, BROKER, {MANAGED: None})
    for _ in range(removals):
        kafka.cut = "before"
        await apply(one)
    await apply(one)
    assert (await status(one, BROKER)).state == "applied"
    assert one.config(BROKER) == kafka.now.configs.get(BROKER, {}) == others
    assert await drift(one) == []


@pytest.mark.parametrize("again", ["another value", "reapply"])
async def test_a_key_that_was_refused_twice_can_be_removed(opened: Opener, kafka: KafkaDouble, again: str) -> None:
    one = await opened()
    kafka.refused_keys = {MANAGED: {"2", "3", None}}
    await alter_unasked(one, kafka, BROKER, {MANAGED: "2", "log.cleaner.threads": "2"})
    await apply(one)
    if again == "reapply":
        assert await one.drift.reapply([DriftSelection(BROKER, None)], ADMIN, validate_only=False)
    else:
        await alter_unasked(one, kafka, BROKER, {MANAGED: "3"})
    await apply(one)
    assert (await status(one, BROKER)).state == "refused"
    await alter(one, BROKER, {MANAGED: None})
    await apply(one)
    assert (await status(one, BROKER)).state == "applied"
    assert one.config(BROKER) == kafka.now.configs[BROKER] == {"log.cleaner.threads": "2"}


async def test_a_value_that_was_lost_after_its_refusal_may_be_there(opened: Opener, kafka: KafkaDouble) -> None:
    """The cluster may have accepted it by then. It refuses the removal, which is not done then."""
    one = await opened()
    kafka.refused_keys = {MANAGED: {"2", None}}
    await alter_unasked(one, kafka, BROKER, {MANAGED: "2"})
    await apply(one)
    kafka.refused_keys = {MANAGED: {None}}
    assert await one.drift.reapply([DriftSelection(BROKER, None)], ADMIN, validate_only=False)
    kafka.cut = "after"
    await apply(one)
    await alter_unasked(one, kafka, BROKER, {MANAGED: None})
    await apply(one)
    assert kafka.now.configs[BROKER] == {MANAGED: "2"}
    assert (await status(one, BROKER)).state == "refused"
