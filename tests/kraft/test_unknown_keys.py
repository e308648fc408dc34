"""Keys that a real Kafka 4 has and does not define: those of plug-ins of brokers, and those of topics from Kafka 3."""

from __future__ import annotations

from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any

import pytest

from confplane.client.errors import InvalidConfigError
from confplane.kraft.views import ConfigResourceType, Resource
from tests.kraft.test_adopting import until_released
from tests.kraft.test_refused_keys import alter
from tests.support import tools
from tests.support.kraft import kraft_cluster
from tests.support.kraft_client import client_of
from tests.support.kraft_writer import KraftWriter
from tests.support.stores import soon
from tests.support.world import UNTIL_APPLIED

if TYPE_CHECKING:
    from collections.abc import AsyncIterator
    from pathlib import Path

    from tests.support.facets import ConfplaneClient
    from tests.support.kraft import KraftCluster
    from tests.support.world import World

PLUGIN, FORMAT, RETENTION = "acme.unknown", "message.format.version", "retention.ms"
TOPIC = Resource(ConfigResourceType.TOPIC, "from-kafka-3")
BROKERS = Resource(ConfigResourceType.BROKER, ""), Resource(ConfigResourceType.BROKER, "1")
"""The default first, because a broker lists its keys as well."""


async def has(kraft: KraftCluster, resource: Resource, key: str) -> bool:
    """Return whether the cluster lists a key, whose value it hides."""
    async with client_of(*kraft.bootstrap) as client:
        [found] = await client.describe_configs([resource], soon())
    values = [each.value for each in found.entries if each.name == key]
    assert values in ([], [None])
    return bool(values)


async def delete(http: ConfplaneClient, kraft: KraftCluster, resource: Resource, key: str) -> None:
    """Delete a key that the cluster has; a second deletion changes nothing."""
    assert await has(kraft, resource, key)
    result = await alter(http, resource, {key: None}, **UNTIL_APPLIED)
    assert result["applied"]["state"] == "applied", result
    assert not await has(kraft, resource, key)
    assert await unchanged(http, resource, key)


async def unchanged(http: ConfplaneClient, resource: Resource, key: str) -> bool:
    """Delete a key, and return whether this changed nothing."""
    result: dict[str, Any] = await alter(http, resource, {key: None})
    assert not result["errorCode"], result
    return result.get("changeId") is None


@asynccontextmanager
async def from_kafka_3(directory: Path, class_path: str) -> AsyncIterator[KraftCluster]:
    """Run a cluster with a topic that Kafka 3.9 created."""
    with kraft_cluster(directory, tools.obtain(tools.kafka_class_path).read_text()) as kraft:
        [node] = kraft.nodes
        async with KraftWriter(kraft.bootstrap[0]) as writer:
            await writer.create_topics(TOPIC.name, configs={FORMAT: "2.8", RETENTION: "1000"})
        node.stop()
        node.change_release(class_path)
        node.start()
        yield kraft


async def test_an_unknown_key_of_brokers_is_deleted(kraft: KraftCluster, world: World) -> None:
    async with KraftWriter(kraft.bootstrap[0]) as writer:
        await writer.configs(*((resource, {PLUGIN: "1"}) for resource in BROKERS))
    service = world.adopting(kraft)
    with service:
        async with service.client() as http:
            await until_released(http)
            for resource in BROKERS:
                await delete(http, kraft, resource, PLUGIN)


@pytest.mark.long
@pytest.mark.timeout(900)
async def test_an_unknown_key_of_a_topic_is_deleted(tmp_path: Path, world: World) -> None:
    """Until it is deleted, the cluster refuses each alter of the topic."""
    class_path = tools.obtain(tools.earlier_kraft_class_path).read_text()
    async with from_kafka_3(tmp_path / "kafka", class_path) as kraft:
        service = world.adopting(kraft)
        with service:
            async with service.client() as http:
                await until_released(http)
                with pytest.raises(InvalidConfigError, match=FORMAT):
                    await alter(http, TOPIC, {RETENTION: "2000"})
                await delete(http, kraft, TOPIC, FORMAT)
                result = await alter(http, TOPIC, {RETENTION: "2000"}, **UNTIL_APPLIED)
                assert result["applied"]["state"] == "applied", result


@pytest.mark.timeout(900)
async def test_a_release_that_drops_unknown_keys_of_topics_has_none(
    kraft_class_path: str, tmp_path: Path, world: World
) -> None:
    async with from_kafka_3(tmp_path / "kafka", kraft_class_path) as kraft:
        service = world.adopting(kraft)
        with service:
            async with service.client() as http:
                await until_released(http)
                assert not await has(kraft, TOPIC, FORMAT)
                assert await unchanged(http, TOPIC, FORMAT)
                result = await alter(http, TOPIC, {RETENTION: "2000"}, **UNTIL_APPLIED)
                assert result["applied"]["state"] == "applied", result
