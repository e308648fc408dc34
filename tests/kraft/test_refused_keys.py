"""Keys that a real Kafka 4 refuses after the commit, because it was away: the other keys of the entity are applied."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from confplane.connection_settings import KafkaSettings
from confplane.domain.entities import Entity
from confplane.kraft.cluster import KraftCluster as Cluster
from confplane.kraft.views import ConfigResourceType, Resource
from confplane.kraft_wiring import rules_of
from confplane.services.ports.applying import AlterApplied, Alteration, AlterRefused, AlterRetriable
from tests.support.catalogs import NEWEST
from tests.support.kraft import kraft_cluster
from tests.support.kraft_client import client_of
from tests.support.kraft_writer import KraftWriter
from tests.support.stores import soon
from tests.support.waiting import until
from tests.support.world import UNTIL_APPLIED

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from tests.support.facets import ConfplaneClient
    from tests.support.kraft import KraftCluster
    from tests.support.world import World

NAME = "refused"
REFUSED = {
    "broker": (
        Resource(ConfigResourceType.BROKER, ""),
        {"metric.reporters": "acme.Nope"},
        ("log.cleaner.threads", "2"),
    ),
    f"topic={NAME}": (
        Resource(ConfigResourceType.TOPIC, NAME),
        {"remote.storage.enable": "true"},
        ("retention.ms", "7000"),
    ),
    f"group={NAME}": (
        Resource(ConfigResourceType.GROUP, NAME),
        {"consumer.session.timeout.ms": "55000"},
        ("consumer.heartbeat.interval.ms", "6000"),
    ),
}
"""Keys that the cluster refuses and this service does not, with another key."""


@pytest.fixture
def kraft(tmp_path: Path, kraft_class_path: str) -> Iterator[KraftCluster]:
    """A node that tests stop and start again."""
    properties = {"group.consumer.max.session.timeout.ms": "50000"}
    with kraft_cluster(tmp_path / "kafka", kraft_class_path, properties=properties) as running:
        yield running


async def alter(http: ConfplaneClient, resource: Resource, values: dict[str, str | None], **headers: str) -> Any:
    """Alter keys of a resource; return its result."""
    ops = [
        {"name": key, "configOperation": "DELETE" if value is None else "SET", "value": value}
        for key, value in values.items()
    ]
    body = {"resources": [{"resourceType": resource.type.name, "resourceName": resource.name, "configs": ops}]}
    [result] = (await http.request("POST", "configs:incrementalAlter", json=body, headers=headers)).body["responses"]
    return result


async def test_a_refused_key_holds_up_no_other_key(kraft: KraftCluster, world: World) -> None:
    [node] = kraft.nodes
    async with KraftWriter(kraft.bootstrap[0]) as outside:
        await outside.create_topics(NAME)
    service = world.adopting(kraft)
    with service:
        async with service.client() as http:
            node.kill()
            for resource, bad, _ in REFUSED.values():
                result = await alter(http, resource, {**bad})
                assert "was not asked" in result["warnings"][-1]
            node.start()
            for entity in REFUSED:

                async def refused(entity: str = entity) -> bool:
                    found = (await http.request("GET", f"configs/{entity}?view=full")).body["status"]["applied"]
                    return bool(found["state"] == "refused")

                await until(refused, why=entity)
            for entity, (resource, bad, (key, value)) in REFUSED.items():
                result = await alter(http, resource, {key: value}, **UNTIL_APPLIED)
                assert any(name in each for name in bad for each in result["warnings"]), result
                assert result["applied"]["state"] == "partly-refused"
                assert [each["key"] for each in result["applied"]["refusedKeys"]] == list(bad)
                [drifted] = (await http.request("GET", f"drift?entity={entity}")).body["items"]
                assert [(each["key"], each["state"]) for each in drifted["keys"]] == [(name, "refused") for name in bad]
                async with client_of(*kraft.bootstrap) as client:
                    (found,) = await client.describe_configs([resource], soon(), keys=[key])
                    assert [each.value for each in found.entries if each.name == key] == [value]
                # The refused keys are given up.
                result = await alter(http, resource, dict.fromkeys(bad), **UNTIL_APPLIED)
                assert result["applied"]["state"] == "applied"


async def test_a_controller_is_no_broker(tmp_path: Path, kraft_class_path: str) -> None:
    with kraft_cluster(tmp_path / "apart", kraft_class_path, controllers=1) as running:
        [controller], [broker] = running.controllers, running.brokers
        settings = KafkaSettings.model_validate({"bootstrap": running.bootstrap})
        cluster: Cluster = Cluster("test", settings, rules_of(lambda: NEWEST), lambda: None)
        try:
            outcomes = [
                (
                    await cluster.alter_configs(
                        [Alteration(Entity.of(broker=str(node)), {"log.cleaner.threads": "2"})], soon()
                    )
                )[0]
                for node in (broker.node_id, controller.node_id, broker.node_id + controller.node_id)
            ]
        finally:
            await cluster.close()
    assert [type(each) for each in outcomes] == [AlterApplied, AlterRefused, AlterRetriable]
    assert isinstance(outcomes[-1], AlterRetriable)
    assert outcomes[-1].unregistered
