"""Keys that a real Kafka 4 does not have, and whose removal it does not accept: each way back ends in the same state."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any

import pytest

from confplane.client.errors import NothingSetError
from confplane.kraft.views import ConfigResourceType, Resource
from tests.kraft.test_adopting import until_released
from tests.kraft.test_refused_keys import alter
from tests.support.commands import target
from tests.support.kraft import kraft_cluster
from tests.support.waiting import until
from tests.support.world import UNTIL_APPLIED

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from tests.support.facets import ConfplaneClient
    from tests.support.kraft import KraftCluster
    from tests.support.service import Service
    from tests.support.world import World

OWN, ABSENT = Resource(ConfigResourceType.BROKER, "1"), Resource(ConfigResourceType.BROKER, "3001")
MANAGED, OTHER = "min.insync.replicas", "log.cleaner.threads"


@dataclass(frozen=True, slots=True)
class Change:
    """A change that set a key of a broker."""

    resource: Resource
    key: str
    others: dict[str, str]
    """The other keys of the broker."""
    id: str

    @property
    def entity(self) -> str:
        """The id of the broker."""
        return f"broker={self.resource.name}"


@pytest.fixture
def restarted(tmp_path: Path, kraft_class_path: str) -> Iterator[KraftCluster]:
    """A node that tests stop and start again."""
    with kraft_cluster(tmp_path / "kafka", kraft_class_path) as running:
        yield running


async def _delete(http: ConfplaneClient, change: Change) -> None:
    await alter(http, change.resource, {change.key: None}, **UNTIL_APPLIED)


async def _replace(http: ConfplaneClient, change: Change) -> None:
    body = {"configs": change.others}
    method = "PUT" if change.others else "DELETE"
    await http.request(method, f"configs/{change.entity}", json=body if change.others else None, headers=UNTIL_APPLIED)


async def _adopt(http: ConfplaneClient, change: Change) -> None:
    await http.request("POST", "drift:adopt", json={"entities": [{"id": change.entity, "keys": [change.key]}]})


async def _revert(http: ConfplaneClient, change: Change) -> None:
    await http.request("POST", "audit:revert", json={"changeId": change.id}, headers=UNTIL_APPLIED)


async def _end_mode(service: Service, http: ConfplaneClient, change: Change) -> None:
    await asyncio.to_thread(target, service, "observe", "--reason", "a test")

    async def undone() -> bool:
        return await _configs(http, change.entity) == change.others

    await until(undone)
    await asyncio.to_thread(target, service, "adopt", "--reason", "a test")


Way = Callable[["ConfplaneClient", Change], Awaitable[None]]
WAYS: dict[str, Way] = {"delete": _delete, "replace": _replace, "adopt": _adopt, "revert": _revert}


async def _configs(http: ConfplaneClient, entity: str) -> dict[str, str]:
    try:
        return {**(await http.request("GET", f"configs/{entity}")).body["configs"]}
    except NothingSetError:
        return {}


async def _state(http: ConfplaneClient, resource: Resource) -> str:
    body = (await http.request("GET", f"configs/broker={resource.name}?view=full")).body
    return str(body["status"]["applied"]["state"])


async def _applying(http: ConfplaneClient) -> dict[str, Any]:
    """Return the leader's report, which is empty before its first one."""
    return (await http.request("GET", "/v1/clusters/default")).body["target"]["applying"] or {}


async def _nothing_waits(http: ConfplaneClient) -> bool:
    report = await _applying(http)
    return (
        bool(report)
        and not any(report[name]["count"] for name in ("refused", "held", "unknown"))
        and not report["pending"]
    )


async def _go_back(http: ConfplaneClient, way: Way, change: Change) -> None:
    """Take a way back from a change, and expect that nothing is left of it."""
    await way(http, change)

    async def is_applied() -> bool:
        if not change.others:
            return True
        status = (await http.request("GET", f"configs/{change.entity}?view=full")).body["status"]
        return status.get("applied") is not None and status["applied"]["state"] == "applied"

    await until(is_applied)
    await until(lambda: _nothing_waits(http))
    assert await _configs(http, change.entity) == change.others
    assert (await http.request("GET", "drift")).body["items"] == []


@pytest.mark.long
@pytest.mark.timeout(900)
async def test_a_refused_key_of_one_broker_has_ways_back(restarted: KraftCluster, world: World) -> None:
    """Under eligible leader replicas a broker refuses the key and its removal."""
    [node] = restarted.nodes
    others = {OTHER: "2"}
    service = world.adopting(restarted)
    with service:
        async with service.client() as http:
            await until_released(http)
            assert (await alter(http, OWN, {**others}, **UNTIL_APPLIED))["applied"]["state"] == "applied"
            ways: dict[str, Way] = {**WAYS, "end of the mode": partial(_end_mode, service)}
            for name, way in ways.items():
                node.kill()
                change_id = (await alter(http, OWN, {MANAGED: "2"}))["changeId"]
                node.start()

                async def refused() -> bool:
                    return await _state(http, OWN) in {"refused", "partly-refused"}

                await until(refused, why=name)
                await _go_back(http, way, Change(OWN, MANAGED, others, change_id))


async def test_a_key_of_a_broker_that_never_registered_has_ways_back(kraft: KraftCluster, world: World) -> None:
    """No broker accepts the key or its removal, or shows what could be adopted."""
    service = world.adopting(kraft)
    with service:
        async with service.client() as http:
            await until_released(http)
            for way in ("delete", "replace", "revert"):
                change_id = (await alter(http, ABSENT, {OTHER: "2"}))["changeId"]

                async def held() -> bool:
                    report = await _applying(http)
                    return bool(report and report["held"]["count"])

                await until(held, why=way)
                assert await _state(http, ABSENT) == "pending"
                await _go_back(http, WAYS[way], Change(ABSENT, OTHER, {}, change_id))
