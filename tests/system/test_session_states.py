"""Suspended and lost sessions as a caller sees them: said in readiness and headers, refused at once, gone by itself."""

from __future__ import annotations

import asyncio
import uuid
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any, Final

import pytest

from confplane.client import ProblemError
from confplane.domain.entities import Entity
from tests.support.metrics import scrape
from tests.support.stores import kafka_writes
from tests.support.waiting import until
from tests.support.world import World

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Awaitable, Callable
    from pathlib import Path

    from kazoo.client import KazooClient

    from tests.support.facets import ConfplaneClient
    from tests.support.metrics import Scraped
    from tests.support.proxy import Proxy
    from tests.support.servers import Database
    from tests.support.service import Service

ALICE: Final = Entity.of(user="alice")
RATE: Final = {"producer_byte_rate": 1}
LONG_MS: Final = 60_000
"""A session's timeout that no test outlasts."""
SHORT_MS: Final = 8_000
"""A session's timeout that tests wait for. On a busy machine a process may get no processor for seconds."""
PATIENT_MS: Final = 300_000
"""A deadline that no test reaches: an answer comes at once, or not within the test."""
ENTITIES: Final = 300
NEVER: Final = 9_000_000_000_000_000_000


async def metrics(service: Service) -> Scraped:
    """The metrics of the service."""
    return await asyncio.to_thread(scrape, service)


async def state(client: ConfplaneClient) -> dict[str, Any]:
    """The cluster as /readyz tells it."""
    answer = await client.request("GET", "/readyz")
    return {"status": answer.body["status"], **answer.body["clusters"]["default"]}


async def state_when(
    client: ConfplaneClient, holds: Callable[[dict[str, Any]], object], within_s: float = 120
) -> dict[str, Any]:
    found: list[dict[str, Any]] = []

    async def holding() -> object:
        found[:] = [await state(client)]
        return holds(found[0])

    await until(holding, within_s, why=lambda: found)
    return found[0]


async def refused_at_once(what: Awaitable[Any]) -> ProblemError:
    """Have a request refused well before its deadline of five minutes."""
    with pytest.raises(ProblemError) as caught:
        async with asyncio.timeout(150):
            await what
    assert caught.value.status == 503
    assert caught.value.retry_after_s is not None
    return caught.value


async def refuses_writes_and_waits(client: ConfplaneClient) -> None:
    write = await refused_at_once(client.put("client-quotas", ALICE, {"producer_byte_rate": 2}))
    assert write.outcome == "not_applied"
    keyed = client.put("client-quotas", ALICE, {"producer_byte_rate": 2}, idempotency_key=str(uuid.uuid4()))
    assert (await refused_at_once(keyed)).outcome == "not_applied"
    await refused_at_once(client.get("client-quotas", ALICE, strong=True))
    await refused_at_once(client.get("client-quotas", ALICE, min_revision=NEVER))


async def serves_the_old_copy(client: ConfplaneClient) -> None:
    read = await client.get("client-quotas", ALICE)
    assert read.body["quotas"] == RATE
    assert read.stale_ms is not None
    assert (await client.get("client-quotas", ALICE, min_revision=read.revision)).stale_ms is not None


@pytest.fixture
def world(tmp_path: Path, module_chroot: str, module_database: Database, zk: KazooClient) -> World:
    """Services on the stores of the module."""
    return World(tmp_path, module_chroot, module_database, zk)


@asynccontextmanager
async def at_the_end(world: World, zk_proxy: Proxy, timeout_ms: int) -> AsyncIterator[tuple[Service, ConfplaneClient]]:
    """A service at the end of a line, with a client; a request may wait for five minutes."""
    cluster = {"session_timeout_ms": timeout_ms}
    async with (
        world.service(through=zk_proxy, cluster=cluster, deadline_ms=PATIENT_MS) as service,
        service.client(timeout_s=300) as client,
    ):
        yield service, client


async def test_a_cut_suspends_the_session_and_it_goes_on(world: World, zk_proxy: Proxy) -> None:
    async with at_the_end(world, zk_proxy, LONG_MS) as (service, client):
        await client.put("client-quotas", ALICE, RATE)
        found = await state_when(client, lambda found: found["mirror"] == "fresh")
        assert (found["status"], found["session"], found["staleMs"]) == ("ready", "connected", None)
        waiting = asyncio.create_task(client.get("client-quotas", ALICE, min_revision=NEVER))
        zk_proxy.accepting = False
        zk_proxy.cut()
        found = await state_when(client, lambda found: found["session"] == "suspended")
        assert (found["status"], found["connected"], found["mirror"]) == ("degraded", False, "stale")
        later = await state_when(client, lambda later: later["sessionMs"] > found["sessionMs"] + 10)
        assert later["staleMs"] > found["staleMs"]
        await serves_the_old_copy(client)
        await refuses_writes_and_waits(client)
        await refused_at_once(waiting)
        told = await metrics(service)
        assert (told.state("session_state"), told.state("mirror_state")) == ("suspended", "stale")
        assert told("mirror_stale_seconds", cluster="default") * 1000 >= later["staleMs"]
        assert told("session_state_seconds", cluster="default") * 1000 >= later["sessionMs"]
        assert told("leader", cluster="default") == 0
        zk_proxy.accepting = True
        found = await state_when(client, lambda found: found["mirror"] == "fresh")
        assert (found["status"], found["session"]) == ("ready", "connected")
        told = await metrics(service)
        assert (told.state("session_state"), told.state("mirror_state")) == ("connected", "fresh")
        assert told("session_transitions_total", cluster="default", state="connected") == 2
        assert told("session_transitions_total", cluster="default", state="suspended") == 1
        read = await client.get("client-quotas", ALICE, strong=True)
        assert (read.body["quotas"], read.stale_ms) == (RATE, None)
        await client.put("client-quotas", ALICE, {"producer_byte_rate": 3})


async def test_a_long_cut_loses_the_session_and_a_new_one_goes_on_without_holes(
    world: World, zk_proxy: Proxy, zk: KazooClient
) -> None:
    """The old copy is answered from, whole, until the new one is there: notifications are lost, so all is loaded."""
    content = b'{"version":1,"config":{"consumer_byte_rate":"1"}}'
    kept = [f"user=kept{number}" for number in range(ENTITIES)]
    for number in range(ENTITIES):
        kafka_writes(zk, f"users/kept{number}", content)
    kafka_writes(zk, "users/removed", content)
    async with at_the_end(world, zk_proxy, SHORT_MS) as (service, client):
        await client.put("client-quotas", ALICE, RATE)
        await state_when(client, lambda found: found["mirror"] == "fresh")
        writers = set(zk.get_children("/confplane/writers"))
        over = asyncio.Event()

        async def read_on() -> set[tuple[bool, bool]]:
            """List all the while; return what was seen of the entity that went and the one that came."""
            seen = set()
            while not over.is_set():
                page = await client.request("GET", "client-quotas", params={"pageSize": "1000"})
                ids = {item["id"] for item in page.body["items"]}
                assert ids >= {*kept, ALICE.id}
                seen.add(("user=removed" in ids, "user=added" in ids))
            return seen

        reading = asyncio.create_task(read_on())
        zk_proxy.accepting = False
        zk_proxy.cut()
        found = await state_when(client, lambda found: found["session"] == "lost")
        assert (found["status"], found["mirror"], found["loaded"]) == ("degraded", "stale", True)
        await serves_the_old_copy(client)
        await refuses_writes_and_waits(client)
        told = await metrics(service)
        assert (told.state("session_state"), told.state("mirror_state")) == ("lost", "stale")
        before = told("mirror_loads_total", cluster="default")
        await until(lambda: not writers & set(zk.get_children("/confplane/writers")))
        notified = kafka_writes(zk, "users/added", content)
        zk.delete("/config/users/removed")
        zk.delete(notified)
        zk_proxy.accepting = True
        found = await state_when(client, lambda found: found["mirror"] == "fresh")
        assert (found["status"], found["session"]) == ("ready", "connected")
        assert (await client.get("client-quotas", ALICE, strong=True)).stale_ms is None
        page = await client.request("GET", "client-quotas", params={"pageSize": "1000"})
        assert {item["id"] for item in page.body["items"]} == {*kept, ALICE.id, "user=added"}
        told = await metrics(service)
        assert (told.state("session_state"), told.state("mirror_state")) == ("connected", "fresh")
        assert told("mirror_loads_total", cluster="default") > before
        assert told("mirror_gaps_total", cluster="default") >= 1
        over.set()
        assert await reading <= {(True, False), (False, True)}
        assert len(zk.get_children("/confplane/writers")) == 1
        await client.put("client-quotas", ALICE, {"producer_byte_rate": 3})
