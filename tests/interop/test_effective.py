"""Configs set through Confplane are effective on the running broker, without a restart, as its clients feel it."""

from __future__ import annotations

import asyncio
import re
import uuid
from typing import TYPE_CHECKING, Any, Final

import pytest

from confplane.domain.entities import Entity
from tests.interop.compare import new_topics, our_alter, same_configs
from tests.support.broker import BROKER_ID
from tests.support.waiting import until

if TYPE_CHECKING:
    from tests.interop.admin import Admin
    from tests.support.broker import Broker
    from tests.support.facets import ConfplaneClient

pytestmark = [pytest.mark.interop, pytest.mark.timeout(1800)]

BROKER = str(BROKER_ID)
MUCH: Final = 1_000_000_000
REPORTER: Final = "kafka.server.TestMetricsReporter"
"""In Kafka's own test jar: it takes ``polling.interval``, and refuses one that is not positive."""
EXPLAINED_ERRORS = (
    # What the broker says of what its reporter refuses.
    "polling.interval=0} for ConfigResource(type=BROKER, name='') failed",
)


class Producers:
    """Users of the broker, and what they produce."""

    def __init__(self, admin: Admin, broker: Broker, topic: str) -> None:
        host, port = broker.listener("SASL_PLAINTEXT")
        self.address = f"{host}:{port}"
        self.admin = admin
        self.broker = broker
        self.topic = topic

    async def add(self, user: str) -> None:
        await asyncio.to_thread(self.admin.set_scram, user, "secret")
        await until(lambda: self.admin.login(self.address, user, "secret")["code"] == 0, why=f"a login as {user}")

    async def heard(self, user: str, rate: int) -> None:
        """Wait until the broker has taken a user's quota."""
        said = re.compile(
            rf"Processing override for entityPath: users/{user} with config: .*\bproducer_byte_rate -> {rate}\b"
        )
        await until(lambda: said.search(self.broker.said()), why=said.pattern)

    async def produce(self, user: str, **how: Any) -> Any:
        return await asyncio.to_thread(self.admin.produce, self.address, user, "secret", topic=self.topic, **how)


@pytest.fixture
async def producers(client: ConfplaneClient, admin: Admin, broker: Broker) -> Producers:
    """With a topic of their own to produce to."""
    topic = f"produced-{uuid.uuid4().hex}"
    await new_topics(client, admin, topic)
    return Producers(admin, broker, topic)


async def test_a_produce_quota_throttles_its_user_and_no_other(client: ConfplaneClient, producers: Producers) -> None:
    for user, rate in (("limited", 65_536), ("free", MUCH), ("released", 1)):
        await producers.add(user)
        # With quotas of their own the defaults, which other tests set, are not theirs.
        quotas = {"producer_byte_rate": rate, "request_percentage": 10_000}
        await client.put("client-quotas", Entity.of(user=user), quotas)
        await producers.heard(user, rate)
    throttled = await producers.produce("limited", valueBytes=10_000, seconds=60, untilThrottled=True)
    assert throttled["code"] == 0, throttled
    assert throttled["throttledMs"] > 0
    await client.alter("client-quotas", [(Entity.of(user="released"), {"producer_byte_rate": MUCH})])
    await producers.heard("released", MUCH)
    for user in ("free", "released"):
        # Above the first one's quota for all of the time over which the broker measures.
        found = await producers.produce(user, valueBytes=10_000, seconds=60, mostBytes=4_000_000)
        assert (found["code"], found["bytes"], found["throttledMs"]) == (0, 4_000_000, 0)


@pytest.mark.long
@pytest.mark.parametrize("quota", [262_144, 1_048_576])
async def test_a_producer_comes_to_the_rate_of_its_quota(
    client: ConfplaneClient, producers: Producers, quota: int
) -> None:
    user = f"steady-{quota}"
    await producers.add(user)
    quotas = {"producer_byte_rate": quota, "request_percentage": 10_000}
    await client.put("client-quotas", Entity.of(user=user), quotas)
    await producers.heard(user, quota)
    found = await producers.produce(user, valueBytes=10_000, warmUpS=20, seconds=60)
    assert found["code"] == 0, found
    assert found["throttledMs"] > 0
    assert found["seconds"] > 55
    assert found["bytes"] / found["seconds"] == pytest.approx(quota, rel=0.2)


@pytest.mark.usefixtures("restored")
async def test_a_topics_default_is_effective_at_once(
    client: ConfplaneClient, admin: Admin, producers: Producers
) -> None:
    await producers.add("large")

    async def code() -> int:
        found = await producers.produce("large", valueBytes=200_000, seconds=60, mostBytes=1)
        return int(found["code"])

    assert await code() == 0
    await our_alter(client, "BROKER", "", ("message.max.bytes", "SET", "100000"))
    await same_configs(client, admin, "TOPIC", producers.topic)
    deadline = asyncio.get_running_loop().time() + 60
    while (refused := await code()) == 0:
        assert asyncio.get_running_loop().time() < deadline, "the broker still takes large messages"
    assert refused == 10
    await our_alter(client, "TOPIC", producers.topic, ("max.message.bytes", "SET", "300000"))
    await same_configs(client, admin, "TOPIC", producers.topic)
    deadline = asyncio.get_running_loop().time() + 60
    while await code():
        assert asyncio.get_running_loop().time() < deadline, "the broker does not take the topic's own value"


@pytest.mark.usefixtures("restored")
async def test_a_metrics_reporter_is_loaded_reconfigured_and_closed(client: ConfplaneClient, admin: Admin) -> None:
    refused = [("polling.interval", "SET", "0")]

    def code() -> int:
        return int(admin.alter_configs("BROKER", "", refused, validate_only=True)["code"])

    # Nobody's: the broker takes any value of it.
    assert code() == 0
    await our_alter(client, "BROKER", "", ("polling.interval", "SET", "1000"), ("metric.reporters", "SET", REPORTER))
    found = await same_configs(client, admin, "BROKER", BROKER)
    assert found["metric.reporters"]["value"] == REPORTER
    await until(lambda: code() == 42, why="the reporter judges what is its own")
    answer = admin.alter_configs("BROKER", "", refused, validate_only=True)
    assert "Invalid polling interval 0" in answer["message"]
    await our_alter(client, "BROKER", "", ("polling.interval", "SET", "2000"))
    await same_configs(client, admin, "BROKER", "")
    assert code() == 42
    await our_alter(client, "BROKER", "", ("metric.reporters", "DELETE", None))
    await until(lambda: code() == 0, why="the reporter is gone")
