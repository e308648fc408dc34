"""Changes by callers applied to a real Kafka 4 while its controllers change, a broker is away, or no answer comes."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from confplane.kraft.views import ConfigResourceType, Resource
from confplane.kraft.wire.errors import UnreachableError
from tests.kraft.test_adopting import RATE, kinds, put, until_released
from tests.support.kraft import kraft_cluster
from tests.support.kraft_client import client_of
from tests.support.kraft_writer import KraftWriter
from tests.support.metrics import scrape
from tests.support.stores import soon
from tests.support.waiting import until, until_warned

if TYPE_CHECKING:
    from collections.abc import AsyncIterator
    from pathlib import Path

    from confplane.kraft.client import KraftClient
    from tests.support.facets import ConfplaneClient
    from tests.support.kraft import KraftCluster, KraftNode
    from tests.support.service import Service
    from tests.support.world import World

USERS = 4
TOPIC, GROUP = Resource(ConfigResourceType.TOPIC, "failover-t"), Resource(ConfigResourceType.GROUP, "failover-g")


@pytest.fixture
async def client(quorum: KraftCluster) -> AsyncIterator[KraftClient]:
    """A client of the cluster of three."""
    async with client_of(*quorum.bootstrap) as made:
        yield made


async def active(kafka: KraftCluster) -> KraftNode:
    """Return the node with the active controller; amid an election, and of brokers that are busy, wait for it."""
    async with client_of(*kafka.bootstrap) as client:

        async def leader() -> KraftNode | None:
            found = (await client.quorum(soon(60))).leader_id
            return None if found == -1 else kafka.node(found)

        found: KraftNode = await until(leader, refused=(UnreachableError,))
        return found


async def configured(http: ConfplaneClient, entity: str, key: str, value: str) -> None:
    await http.request("PUT", f"configs/{entity}", json={"configs": {key: value}})


async def value_of(client: KraftClient, resource: Resource, key: str) -> str | None:
    (found,) = await client.describe_configs([resource], soon(), keys=[key])
    return next((each.value for each in found.entries if each.name == key), None)


@pytest.mark.long
@pytest.mark.timeout(600)
async def test_controllers_change_while_changes_are_applied(
    quorum: KraftCluster, client: KraftClient, world: World
) -> None:
    service = world.adopting(quorum)
    writers = [each.bootstrap for each in quorum.brokers]
    async with KraftWriter(writers[0]) as outside:
        await outside.create_topics(TOPIC.name)
    with service:
        async with service.client() as http:
            await until_released(http)

            async def change(first: int) -> None:
                for number in range(first, first + 8):
                    await put(http, f"failover-{number % USERS}", number)
                await configured(http, "topic=failover-t", "retention.ms", str(1000 + first))
                await configured(http, "group=failover-g", "consumer.session.timeout.ms", str(46_000 + first))

            await change(1)
            killed = await active(quorum)
            killed.kill()
            await change(11)
            await until(lambda: _elected(client, killed.node_id))
            await change(21)
            killed.start()
            await change(31)
            wanted = {number % USERS: {RATE: float(number)} for number in range(35, 39)}
            await until(lambda: _quotas_are(client, wanted))
            await until(lambda: _is(client, TOPIC, "retention.ms", "1031"))
            await until(lambda: _is(client, GROUP, "consumer.session.timeout.ms", "46031"))
            for number in range(USERS):
                shown = await http.request("GET", f"client-quotas/user=failover-{number}?consistency=strong")
                assert shown.body["quotas"] == wanted[number]
                assert set(await kinds(http, f"user=failover-{number}")) == {"change"}
            for entity in ("topic=failover-t", "group=failover-g"):
                assert await kinds(http, entity) == ["change"] * 4
    async with KraftWriter(quorum.bootstrap[0]) as outside:
        await outside.quotas(*(({"user": f"failover-{number}"}, {RATE: None}) for number in range(USERS)))
        await outside.configs((GROUP, {"consumer.session.timeout.ms": None}))
        await outside.delete_topics(TOPIC.name)


async def _quotas_are(client: KraftClient, wanted: dict[int, dict[str, float]]) -> bool:
    found = {each: await client.describe_quotas_of([("user", f"failover-{each}")], soon()) for each in wanted}
    return found == wanted


async def _elected(client: KraftClient, former: int) -> bool:
    return (await client.quorum(soon(60))).leader_id not in {former, -1}


@pytest.mark.long
@pytest.mark.timeout(600)
async def test_configs_of_a_broker_that_is_away_wait_alone(
    quorum: KraftCluster, client: KraftClient, world: World
) -> None:
    service = world.adopting(quorum)
    leader = await active(quorum)
    away = next(node for node in quorum.brokers if node is not leader)
    own, key = Resource(ConfigResourceType.BROKER, str(away.node_id)), "log.cleaner.threads"
    with service:
        async with service.client() as http:
            await until_released(http)
            away.kill()
            await configured(http, f"broker={away.node_id}", key, "2")

            async def applied() -> bool:
                # The same again has no effect, and waits for what is there.
                waiting = {"Confplane-Wait-Applied": "5000"}
                answer = await http.request(
                    "PUT", "client-quotas/user=beside", json={"quotas": {RATE: 7}}, headers=waiting
                )
                return bool(answer.body["applied"]["state"] == "applied")

            await until(applied)
            await until_warned(http, "some changes are blocked and will be retried one at a time")
            away.start()
            await until(lambda: _is(client, own, key, "2"))
            assert await kinds(http, f"broker={away.node_id}") == ["change"]
            assert await kinds(http, "user=beside") == ["change"]
            await http.request("DELETE", "client-quotas/user=beside")
            await http.request("DELETE", f"configs/broker={away.node_id}")
            await until(lambda: _is(client, own, key, "1"))


async def _is(client: KraftClient, resource: Resource, key: str, value: str) -> bool:
    return await value_of(client, resource, key) == value


@pytest.mark.long
@pytest.mark.timeout(900)
@pytest.mark.parametrize(("timeout_ms", "code"), [(3_000, "timeout"), (120_000, "REQUEST_TIMED_OUT")])
async def test_a_controller_that_hangs_leaves_changes_unknown_until_it_goes_on(
    kraft_class_path: str, world: World, tmp_path: Path, timeout_ms: int, code: str
) -> None:
    """The broker answers neither alters nor describes of the quorum meanwhile, and forwards the alters afterwards.

    By itself it answers after about a minute: with code 7. A service asks no broker for so long.
    """
    patient = {"confplane.services.kraft.round.ROUND_S": timeout_ms / 1000}
    with kraft_cluster(tmp_path / "kafka", kraft_class_path, controllers=1) as kafka:
        (controller,) = kafka.controllers
        service = world.adopting(kafka, constants=patient, settings={"request_timeout_ms": timeout_ms})
        with service:
            async with client_of(*kafka.bootstrap) as client, service.client() as http:
                await put(http, "hangs", 1)
                await until(lambda: _has(client, 1.0))
                before = _unknown(service, code)
                controller.pause()
                await put(http, "hangs", 2)
                await until(
                    lambda: all(now > then for now, then in zip(_unknown(service, code), before, strict=True)), 240
                )
                controller.resume()
                await until(lambda: _has(client, 2.0))
                await put(http, "hangs", 3)
                await until(lambda: _has(client, 3.0))
                shown = await http.request("GET", "client-quotas/user=hangs?consistency=strong")
                assert shown.body["quotas"] == {RATE: 3}
                assert await kinds(http, "user=hangs") == ["change"] * 3


async def _has(client: KraftClient, rate: float) -> bool:
    return await client.describe_quotas_of([("user", "hangs")], soon()) == {RATE: rate}


def _unknown(service: Service, code: str) -> tuple[float, float]:
    """Return the numbers of deliveries without an outcome, and of alters of quotas that ended by a code for want of time."""
    found = scrape(service)
    return (
        found.total("applied_changes_total", end="unknown"),
        found.total("target_requests_total", api="AlterClientQuotas", code=code),
    )
