"""A key that a real Kafka 4 refuses, as it does its removal: each way to be rid of it ends in the same state."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from confplane.kraft.views import ConfigResourceType, Resource
from tests.kraft.test_adopting import until_released
from tests.kraft.test_refused_keys import WAIT, alter
from tests.support.kraft import kraft_cluster
from tests.support.waiting import until

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Iterator
    from pathlib import Path

    from tests.support.facets import ConfplaneClient
    from tests.support.kraft import KraftCluster
    from tests.support.world import World

OWN = Resource(ConfigResourceType.BROKER, "1")
MANAGED, OTHER = "min.insync.replicas", "log.cleaner.threads"


@pytest.fixture
def kraft(tmp_path: Path, kraft_class_path: str) -> Iterator[KraftCluster]:
    """A node that tests stop and start again."""
    with kraft_cluster(tmp_path / "kafka", kraft_class_path) as running:
        yield running


async def _delete(http: ConfplaneClient, _: str) -> Any:
    return await alter(http, OWN, {MANAGED: None}, **WAIT)


async def _replace(http: ConfplaneClient, _: str) -> Any:
    return (await http.request("PUT", "configs/broker=1", json={"configs": {OTHER: "2"}}, headers=WAIT)).body


async def _adopt(http: ConfplaneClient, _: str) -> Any:
    body = {"entities": [{"id": "broker=1", "keys": [MANAGED]}]}
    return (await http.request("POST", "drift:adopt", json=body)).body


async def _revert(http: ConfplaneClient, change_id: str) -> Any:
    return (await http.request("POST", "audit:revert", json={"changeId": change_id}, headers=WAIT)).body


async def _applied(http: ConfplaneClient, entity: str) -> bool:
    status = (await http.request("GET", f"configs/{entity}?view=full")).body["status"]
    return bool(status["applied"]["state"] == "applied")


async def _nothing_waits(http: ConfplaneClient) -> bool:
    applying = (await http.request("GET", "/v1/clusters/default")).body["target"]["applying"]
    return not any(applying[name]["count"] for name in ("refused", "held", "unknown")) and not applying["pending"]


@pytest.mark.timeout(900)
async def test_a_refused_key_of_one_broker_has_ways_back(kraft: KraftCluster, world: World) -> None:
    """Under eligible leader replicas a broker refuses the key and its removal."""
    [node] = kraft.nodes
    ways: dict[str, Callable[[ConfplaneClient, str], Awaitable[Any]]] = {
        "delete": _delete, "replace": _replace, "adopt": _adopt, "revert": _revert
    }  # fmt: skip
    service = world.adopting(kraft)
    with service:
        async with service.client() as http:
            await until_released(http)
            assert (await alter(http, OWN, {OTHER: "2"}, **WAIT))["applied"]["state"] == "applied"
            for way, act in ways.items():
                node.kill()
                change_id = (await alter(http, OWN, {MANAGED: "2"}))["changeId"]
                node.start()

                async def refused() -> bool:
                    body = (await http.request("GET", "configs/broker=1?view=full")).body
                    return body["status"]["applied"]["state"] in {"refused", "partly-refused"}

                await until(refused, why=way)
                await act(http, change_id)
                await until(lambda: _applied(http, "broker=1"), why=way)
                await until(lambda: _nothing_waits(http), why=way)
                assert (await http.request("GET", "configs/broker=1")).body["configs"] == {OTHER: "2"}, way
                assert (await http.request("GET", "drift")).body["items"] == [], way
