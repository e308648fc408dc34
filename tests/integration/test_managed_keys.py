"""A key that a Kafka cluster sets by itself, and lets nobody remove, is no part of replacements and conflicts.

ZooKeeper and Postgres are real, the Kafka cluster is a double.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from confplane.domain.entities import Entity
from confplane.domain.errors import AlreadyExistsError
from confplane.domain.facets import FacetName
from confplane.domain.ops import Op, OpType
from confplane.services.changes.edits import Edit, Mode
from tests.support.adopting import alter, apply, drift, equal
from tests.support.kafka_double import KafkaDouble
from tests.support.observing import caller
from tests.support.waiting import until

if TYPE_CHECKING:
    from confplane.services.changes.edits import EditResult
    from tests.support.adopting import Opener
    from tests.support.observing import Observing

DEFAULT, BROKER = Entity.of(broker=None), Entity.of(broker="1")
MANAGED, KEY, OTHER = "min.insync.replicas", "log.retention.ms", "message.max.bytes"


@pytest.fixture
def kafka() -> KafkaDouble:
    """A fresh cluster: it has set the key, and refuses its removal."""
    made = KafkaDouble()
    made.alter(DEFAULT, {MANAGED: "1"})
    made.refused_keys = {MANAGED: {None}}
    return made


async def edit(one: Observing, mode: Mode, entity: Entity = DEFAULT, /, **values: str) -> EditResult:
    """A whole resource of a client; underscores in names are dots."""
    ops = tuple(Op(key.replace("_", "."), OpType.SET, value) for key, value in values.items())
    facet = one.replica.parts.clusters.get("default").facets[FacetName.CONFIGS]
    [result] = await one.replica.parts.alter.alter(facet, [Edit(entity, ops, mode)], caller())
    return result


async def test_a_replacement_keeps_the_key(opened: Opener, kafka: KafkaDouble) -> None:
    one = await opened()
    created = await edit(one, Mode.REPLACE, log_retention_ms="2")
    assert (created.error, created.created, [MANAGED in each for each in created.warnings]) == (None, True, [False])
    replaced = await edit(one, Mode.REPLACE, message_max_bytes="9999")
    assert (replaced.error, [each.key for each in replaced.diff]) == (None, [KEY, OTHER])
    await apply(one)
    assert kafka.now.configs[DEFAULT] == {MANAGED: "1", OTHER: "9999"}
    named = await edit(one, Mode.REPLACE, min_insync_replicas="2")
    assert (named.error, named.created) == (None, False)
    await apply(one)
    assert kafka.now.configs[DEFAULT] == {MANAGED: "2"}
    assert await drift(one) == []
    equal(one, kafka)


@pytest.mark.parametrize("config", [{}, {KEY: "2"}], ids=["nothing else", "another key"])
async def test_a_deletion_keeps_the_key_and_says_so(opened: Opener, kafka: KafkaDouble, config: dict[str, str]) -> None:
    one = await opened()
    if config:
        await alter(one, DEFAULT, config)
    deleted = await edit(one, Mode.REPLACE)
    assert (deleted.error, [each.key for each in deleted.diff]) == (None, list(config))
    assert [MANAGED in each for each in deleted.warnings] == [True]
    await apply(one)
    assert kafka.now.configs[DEFAULT] == {MANAGED: "1"}
    equal(one, kafka)


async def test_a_creation_meets_only_other_keys(opened: Opener, kafka: KafkaDouble) -> None:
    one = await opened()
    created = await edit(one, Mode.CREATE, log_retention_ms="2")
    assert (created.error, created.created) == (None, True)
    again = await edit(one, Mode.CREATE, log_retention_ms="2")
    assert (again.error, again.diff) == (None, ())
    for values in ({"log_retention_ms": "3"}, {"log_retention_ms": "2", "min_insync_replicas": "2"}):
        assert isinstance((await edit(one, Mode.CREATE, **values)).error, AlreadyExistsError)
    await apply(one)
    assert kafka.now.configs[DEFAULT] == {MANAGED: "1", KEY: "2"}
    equal(one, kafka)


async def test_without_the_feature_it_is_a_key_like_any_other(opened: Opener, kafka: KafkaDouble) -> None:
    """Every process knows of the feature from the report of the leader."""
    one, two = await opened(), await opened()
    assert (one.store.keeps_eligible_replicas(), two.store.keeps_eligible_replicas()) == (True, True)
    kafka.keeps_eligible_replicas, kafka.refused_keys = False, {}
    await one.reporter.publish()
    await until(lambda: not two.store.keeps_eligible_replicas())
    assert isinstance((await edit(two, Mode.CREATE, log_retention_ms="2")).error, AlreadyExistsError)
    replaced = await edit(two, Mode.REPLACE, log_retention_ms="2")
    assert (replaced.error, replaced.created, [each.key for each in replaced.diff]) == (None, False, [KEY, MANAGED])
    await apply(one)
    assert kafka.now.configs[DEFAULT] == {KEY: "2"}
    # A report that does not say so changes nothing, for example of a leader that has not reached the cluster.
    one.reporter.begin_term(one.store.target())  # type: ignore[arg-type]
    before = two.store.observation()
    await one.reporter.publish()
    await until(lambda: two.store.observation() != before)
    assert not two.store.keeps_eligible_replicas()


async def test_keys_of_one_broker_are_never_managed(opened: Opener, kafka: KafkaDouble) -> None:
    """A broker of a cluster with the feature has no such key, so a key that waits can be given up."""
    one = await opened()
    kafka.down = "No broker answers"
    await alter(one, BROKER, {MANAGED: "2"})
    kafka.down = None
    assert (await edit(one, Mode.REPLACE, BROKER)).error is None
    assert one.config(BROKER) == {}
