"""Brokers validate their dynamic configs against their own files at a start, and drop those that do not fit."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Any

import httpx
import pytest

from confplane.client.errors import ProblemError
from confplane.kraft.views import ConfigResourceType, Resource
from tests.support.alerts import firing
from tests.support.commands import target
from tests.support.kraft import kraft_cluster
from tests.support.kraft_writer import KraftWriter
from tests.support.promql import ScrapeSeries
from tests.support.waiting import until, until_warned
from tests.support.world import UNTIL_APPLIED

if TYPE_CHECKING:
    from pathlib import Path

    from tests.support.facets import ConfplaneClient
    from tests.support.world import World

BROKER = "broker=1"
WARNING = "brokers do not use some of their dynamic configs"


async def _alter(client: ConfplaneClient, name: str, key: str, value: int) -> dict[str, Any]:
    """Set a key of a broker, or of the default of all for the empty name, and wait until it is applied."""
    ops = [{"name": key, "configOperation": "SET", "value": str(value)}]
    resource = {"resourceType": "BROKER", "resourceName": name, "configs": ops}
    answer = await client.request(
        "POST", "configs:incrementalAlter", json={"resources": [resource]}, headers=UNTIL_APPLIED
    )
    (response,) = answer.body["responses"]
    return dict(response)


async def _ineffective(client: ConfplaneClient) -> dict[str, str]:
    target = (await client.request("GET", "/v1/clusters/default")).body["target"]
    return {each["name"]: each["reason"] for each in target["areas"]["brokers"]["ineffective"]["first"]}


@pytest.mark.timeout(600)
async def test_sizes_of_pools_fit_to_the_files_of_brokers(kraft_class_path: str, world: World, tmp_path: Path) -> None:
    file = {"background.threads": "2", "num.io.threads": "2"}
    with (
        kraft_cluster(tmp_path / "kafka", kraft_class_path, properties=file) as kraft,
        world.adopting(kraft) as service,
    ):
        async with service.client() as client:
            await _refused_steps(client)
            (node,) = kraft.nodes
            async with KraftWriter(kraft.bootstrap[0]) as writer:
                # Kafka takes the second step.
                await writer.configs((Resource(ConfigResourceType.BROKER, ""), {"background.threads": "8"}))
            assert await _ineffective(client) == {}
            node.stop()
            node.start()
            await until_warned(client, WARNING)
            assert await _ineffective(client) == {
                f"{BROKER} background.threads": "8 is set as the default of all brokers, and the broker uses 2",
                f"{BROKER} remote.log.reader.threads": "20 is set as the default of all brokers, and the broker"
                " uses 10",
                # It fits, but the broker drops everything together.
                f"{BROKER} num.io.threads": "4 is set for the broker, and the broker uses 2",
            }
            assert "brokers, set and not used: 3" in target(service, "status")
            async with httpx.AsyncClient(trust_env=False) as plain:
                metrics = (await plain.get(f"{service.url}/metrics")).text
            assert 'confplane_observation_ineffective{area="brokers",cluster="default"} 3.0' in metrics
            assert "KafkaConfigsNotUsed" in firing(ScrapeSeries().add(metrics, time.time()))


async def _refused_steps(client: ConfplaneClient) -> None:
    """The first step from each broker's file is applied, and the second one is refused."""
    for name, key, first, second, bounds in (
        ("", "background.threads", 4, 8, "between 1 and 4 on broker 1, half and double of the 2"),
        ("", "remote.log.reader.threads", 20, 40, "between 5 and 20 on broker 1, half and double of the 10"),
        ("1", "num.io.threads", 4, 8, "between 1 and 4 on broker 1, half and double of the 2"),
    ):
        answer = await _alter(client, name, key, first)
        assert answer["applied"]["state"] == "applied", answer
        assert "at the next start" not in str(answer["warnings"]), answer

        # The broker has changed its pools once it accepts the next size by itself.
        async def refused(name: str = name, key: str = key, second: int = second, bounds: str = bounds) -> bool:
            with pytest.raises(ProblemError) as caught:
                await _alter(client, name, key, second)
            assert caught.value.status == 400
            return bounds in caught.value.body["detail"]

        await until(refused)
