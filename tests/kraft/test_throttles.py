"""Throttles of reassignments that are left after the reassignment, on a real Kafka 4."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

import pytest

from confplane.connection_settings import KafkaSettings
from confplane.kraft.cluster import KraftCluster as Cluster
from confplane.kraft.views import ConfigResourceType, Resource
from confplane.kraft_wiring import rules_of
from tests.kraft.test_adopting import kinds
from tests.kraft.test_adopting_faults import active, value_of
from tests.support.catalogs import NEWEST
from tests.support.commands import target
from tests.support.kraft import random_id, unsecured_token
from tests.support.kraft_client import client_of
from tests.support.kraft_writer import KraftWriter
from tests.support.metrics import scrape
from tests.support.stores import soon
from tests.support.waiting import until, until_warned

if TYPE_CHECKING:
    from pathlib import Path

    from tests.support.facets import ConfplaneClient
    from tests.support.kraft import KraftCluster
    from tests.support.service import Service
    from tests.support.world import World

LEFT: Final = "throttles of reassignments are left"
REPLICAS, RATE = "leader.replication.throttled.replicas", "leader.replication.throttled.rate"
OFTEN: Final = {"confplane.services.upkeep.throttles.INTERVAL_S": 0.5}
CLUSTER, DESCRIBE, DESCRIBE_CONFIGS = 4, 8, 10
"""The type of a resource, and operations, in ACLs."""


async def _left(client: ConfplaneClient) -> bool:
    return LEFT in str((await client.request("GET", "/readyz")).body["warnings"])


def _asked(service: Service) -> float:
    """Return how often the service has listed the reassignments."""
    return scrape(service).total("target_requests_total", api="ListPartitionReassignments", code="NONE")


@pytest.mark.timeout(600)
async def test_throttles_are_reported_once_their_reassignment_has_ended(quorum: KraftCluster, world: World) -> None:
    name = f"moved-{random_id()}"
    controller = await active(quorum)
    away, holder = [node for node in quorum.brokers if node is not controller]
    service = world.adopting(quorum, constants=OFTEN)
    target(service, "enforce", "--reason", "a test")
    topic = Resource(ConfigResourceType.TOPIC, name), {REPLICAS: "*"}
    broker = Resource(ConfigResourceType.BROKER, str(holder.node_id)), {RATE: "1000000"}
    async with KraftWriter(holder.bootstrap) as writer, client_of(holder.bootstrap) as kafka:
        await writer.create_topics(name, brokers=[holder.node_id])
        away.kill()
        await writer.configs(topic, broker)
        # It waits for the broker that is away.
        await writer.reassign(name, [holder.node_id, away.node_id])
        with service:
            async with service.client() as client:
                # Two rounds would report them.
                await until(lambda: _asked(service) > 2)
                assert not await _left(client)
                away.start()
                await until(lambda: _ended(kafka, name))
                await until_warned(client, LEFT)
                warnings = str((await client.request("GET", "/readyz")).body["warnings"])
                assert f"broker={holder.node_id} {RATE}, topic={name} {REPLICAS}" in warnings
                assert scrape(service)("reassignment_throttles_left", cluster="default") == 2
                # They were followed.
                assert await value_of(kafka, topic[0], REPLICAS) == "*"
                assert await value_of(kafka, broker[0], RATE) == "1000000"
                assert await kinds(client, f"topic={name}") == ["observed"]
                await writer.configs((topic[0], {REPLICAS: None}), (broker[0], {RATE: None}))
                await until(lambda: _not_left(client))
        await writer.delete_topics(name)


async def _ended(kafka: Any, name: str) -> bool:
    return name not in await kafka.reassigned_topics(soon())


async def _not_left(client: ConfplaneClient) -> bool:
    return not await _left(client)


async def test_without_the_right_it_is_unknown_whether_a_reassignment_is_in_progress(
    kraft: KraftCluster, tmp_path: Path
) -> None:
    (node,) = kraft.nodes
    token = tmp_path / "token"
    token.write_text(unsecured_token("rita"))
    sasl = {"mechanism": "OAUTHBEARER", "token_file": str(token)}
    settings = KafkaSettings.model_validate({"bootstrap": [node.listener("SASL")], "sasl": sasl})
    cluster = Cluster("test", settings, rules_of(lambda: NEWEST), lambda: kraft.cluster_id)
    try:
        async with KraftWriter(kraft.bootstrap[0]) as writer:
            await writer.allow("User:rita", [(CLUSTER, "kafka-cluster", DESCRIBE_CONFIGS)])
            assert await cluster.reassigned_topics((), soon()) is None
            await writer.allow("User:rita", [(CLUSTER, "kafka-cluster", DESCRIBE)])

            async def known() -> bool:
                return await cluster.reassigned_topics((), soon()) == frozenset()

            await until(known)
    finally:
        await cluster.close()
