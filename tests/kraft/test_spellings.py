"""Values in any spelling that a real Kafka 4 accepts: each is recorded once, and no later poll differs.

They are written externally, or by clients under the mode ``adopt``.
"""

from __future__ import annotations

import time
from random import Random
from typing import TYPE_CHECKING, Final, NamedTuple

import pytest

from confplane.connection_settings import KafkaSettings
from confplane.domain.definitions import ConfigType, catalog_of
from confplane.domain.entities import Entity
from confplane.domain.facets import FacetName
from confplane.domain.ops import Op, OpType
from confplane.kraft.cluster import KraftCluster as Cluster
from confplane.kraft.views import ConfigResourceType, Resource
from confplane.kraft_wiring import rules_of
from confplane.services.ports.kafka import KraftEntityType
from tests.support.adopting import alter, apply
from tests.support.catalogs import NEWEST
from tests.support.kraft_writer import KraftWriter, RefusedError
from tests.support.observing import Observing
from tests.support.waiting import until

if TYPE_CHECKING:
    from confplane.domain.definitions import ConfigDef
    from tests.support.kraft import KraftCluster
    from tests.support.world import World

CATALOG: Final = catalog_of("4.4")
RULES: Final = rules_of(lambda: NEWEST)
RATES: Final = (1e3, 1024.0, 0.1 + 0.2, 1e-7, 2.0**53 + 2, 1e15, 1e22)
"""Quotas are doubles for Kafka's tools, which spell them; LONGs among them without a fraction."""
# Of brokers the defaults of topics alone: the node is that of other tests, too.
BROKER_KEYS: Final = ("log.retention.ms", "log.cleanup.policy", "compression.type", "log.cleaner.min.cleanable.ratio")


class Place(NamedTuple):
    """A key of a resource."""

    resource: Resource
    entity: Entity
    definition: ConfigDef


def places(name: str) -> list[Place]:
    """Return all keys of a topic, a group, a subscription, and those of the default of all brokers."""
    topic, broker = Entity.of(topic=name), Entity.of(broker=None)
    group, metrics = Entity.of(group=name), Entity.of(client_metrics=name)
    of_brokers = [CATALOG.broker[key] for key in BROKER_KEYS]
    return [
        Place(Resource(kind, resource), entity, definition)
        for kind, resource, entity, definitions in (
            (ConfigResourceType.TOPIC, name, topic, CATALOG.topic.values()),
            (ConfigResourceType.GROUP, name, group, CATALOG.group.values()),
            (ConfigResourceType.CLIENT_METRICS, name, metrics, CATALOG.client_metrics.values()),
            (ConfigResourceType.BROKER, "", broker, of_brokers),
        )
        for definition in definitions
        if RULES.governs(entity, definition.name)
    ]


def spellings(random: Random, definition: ConfigDef, *, blanks: bool) -> list[str]:
    """Return spellings of one value, those that brokers refuse among them; with ``blanks`` around it, some of them."""
    value = definition.default or random.choice(["1", "x", "true"])
    match definition.type:
        case ConfigType.BOOLEAN:
            found = [value.lower(), value.upper(), value.capitalize()]
        case ConfigType.SHORT | ConfigType.INT | ConfigType.LONG:
            sign, digits = ("-", value[1:]) if value.startswith("-") else ("", value)
            found = [value, f"{sign}00{digits}", f"{sign or '+'}{digits}", f"{value}.0", f"{value}e0"]
        case ConfigType.DOUBLE:
            found = [value, f"0{value}", f"{value}e0", f"{value}0", f"+{value}"]
        case ConfigType.LIST:
            words = [word.strip() for word in value.split(",")]
            if definition.name.endswith("cleanup.policy"):
                words = ["delete", "compact"]
            found = [separator.join(words) for separator in (",", " , ", ",\t", " ,")]
        case _:
            found = [value]
    found += [f"{blank}{text}{blank}" for text in found for blank in (" ", "\t") if blanks]
    return random.sample(found, k=len(found))


@pytest.mark.parametrize("by_log", [False, True], ids=["by-looks", "by-the-log"])
async def test_no_accepted_spelling_is_a_change_twice(kraft: KraftCluster, world: World, *, by_log: bool) -> None:
    await spelled(kraft, world, 4, by_log=by_log, keys=24)


@pytest.mark.long
@pytest.mark.parametrize("by_log", [False, True], ids=["by-looks", "by-the-log"])
@pytest.mark.parametrize("seed", range(5))
async def test_no_accepted_spelling_of_any_key_is_a_change_twice(
    kraft: KraftCluster, world: World, seed: int, *, by_log: bool
) -> None:
    await spelled(kraft, world, seed, by_log=by_log, keys=1_000)


async def test_no_accepted_spelling_is_an_external_change(kraft: KraftCluster, world: World) -> None:
    await spelled_by_callers(kraft, world, 5, rounds=2)


@pytest.mark.long
@pytest.mark.parametrize("seed", range(6, 9))
async def test_no_accepted_spelling_is_ever_an_external_change(kraft: KraftCluster, world: World, seed: int) -> None:
    await spelled_by_callers(kraft, world, seed, rounds=8)


async def spelled_by_callers(kraft: KraftCluster, world: World, seed: int, *, rounds: int) -> None:
    """Apply a spelling of each key in each round; poll each twice."""
    random = Random(seed)  # noqa: S311 - no secret
    cluster = Cluster("test", KafkaSettings.model_validate({"bootstrap": kraft.bootstrap}), RULES, lambda: None)
    one = Observing(await world.replica(client_configs_layout="separate"), cluster)
    name = f"spelled-{random.randrange(1 << 30)}"
    tried = [(place, spellings(random, place.definition, blanks=True)) for place in places(name)]
    user = Entity.of(user=name)
    async with KraftWriter(kraft.bootstrap[0]) as writer:
        await writer.create_topics(name)
        await one.import_all()
        await one.poll()
        await one.reporter.publish()
        await one.set_mode("adopt")
        await until(lambda: one.store.kafka_release() == cluster.release)
        before = len(await one.followed())
        accepted = 0
        try:
            for rate in RATES[:rounds]:
                for place, texts in tried:
                    accepted += await _altered(one, place, texts)
                await alter(one, user, request_percentage=rate)
                await until(lambda: _applied(one))
                assert await _observed(one, cluster) == await _observed(one, cluster) == before
            assert accepted > len(tried)
            assert {each.kind for each in await one.replica.trail(entity_id=user.id)} == {"change"}
        finally:
            for resource in {place.resource for place, _ in tried}:
                keys = [place.definition.name for place, _ in tried if place.resource == resource]
                await writer.configs((resource, dict.fromkeys(keys)))
            await writer.quotas(({"user": name}, {"request_percentage": None}))
            await writer.delete_topics(name)
            await cluster.close()


async def _altered(one: Observing, place: Place, texts: list[str]) -> bool:
    """Have a caller write the next spelling that is accepted; False where there is none left."""
    while texts:
        op = Op(place.definition.name, OpType.SET, texts.pop())
        (result,) = await one.replica.edit(place.entity, FacetName.CONFIGS, (op,))
        if result.error is None:
            return True
    return False


async def _applied(one: Observing) -> bool:
    """Run a round of the applier; say whether nothing is left."""
    await apply(one)
    report = one.queues.report()
    assert not report.refused.count, report
    return not report.pending


async def spelled(kraft: KraftCluster, world: World, seed: int, *, by_log: bool, keys: int) -> None:
    """Write values in one spelling and then in different ones; poll each twice."""
    (node,) = kraft.nodes
    random = Random(seed)  # noqa: S311 - no secret
    settings = KafkaSettings.model_validate({"bootstrap": kraft.bootstrap, "controllers": [node.controller]})
    cluster = Cluster("test", settings, RULES, lambda: None)
    replica = await world.replica(client_configs_layout="separate")
    one = Observing(replica, cluster, log=by_log)
    name = f"spelled-{'log' if by_log else 'looks'}-{random.randrange(1 << 30)}"
    all_places = places(name)
    tried = []
    for place in random.sample(all_places, min(keys, len(all_places))):
        # A number with blanks is taken into the log, and fails in brokers, which then do not list the group at all.
        blanks = by_log or place.resource.type is not ConfigResourceType.GROUP
        tried.append((place, spellings(random, place.definition, blanks=blanks)))
    users = [{"user": name, "client-id": f"{number}"} for number in range(len(RATES))]
    async with KraftWriter(kraft.bootstrap[0]) as writer:
        await writer.create_topics(name)
        await one.import_all()
        if by_log:
            one.observer.start()
        try:
            accepted = [place for place, texts in tried if await _write(writer, place, texts)]
            assert len(accepted) > len(tried) // 2
            await writer.quotas(
                *((user, {"request_percentage": rate}) for user, rate in zip(users, RATES, strict=True))
            )
            first = await _observed(one, cluster)
            lacking = [place.definition.name for place in accepted if _stored(one, place) is None]
            assert not lacking
            assert await _observed(one, cluster) == first
            # The same values, spelled otherwise: the log has each write, and a poll sees no difference.
            again = sum([await _write(writer, place, texts) for place, texts in tried if place in accepted])
            assert again > len(accepted) // 2
            second = await _observed(one, cluster)
            assert (second - first > 0) is by_log
            assert await _observed(one, cluster) == second
        finally:
            await one.observer.stop()
            for resource in {place.resource for place in all_places}:
                written = [place.definition.name for place, _ in tried if place.resource == resource]
                await writer.configs((resource, dict.fromkeys(written)))
            await writer.quotas(*((user, {"request_percentage": None}) for user in users))
            await writer.delete_topics(name)


async def _write(writer: KraftWriter, place: Place, texts: list[str]) -> bool:
    """Write the next spelling that the cluster accepts; False where there is none left."""
    while texts:
        try:
            await writer.configs((place.resource, {place.definition.name: texts.pop()}))
        except RefusedError:
            continue
        return True
    return False


async def _observed(one: Observing, cluster: Cluster) -> int:
    """Follow everything that was acknowledged, poll everything, and return the number of rows."""
    deadline = time.monotonic() + 60
    offset = await cluster.barrier(deadline)
    log = one.polls.log
    if log is not None:
        await until(lambda: log.following and (log.offset or 0) >= offset)
    await one.refresher.refresh((), KraftEntityType, deadline)
    return len(await one.followed())


def _stored(one: Observing, place: Place) -> str | None:
    return (one.config(place.entity) or {}).get(place.definition.name)
