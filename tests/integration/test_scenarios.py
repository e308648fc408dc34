"""One short scenario each on a Kafka 3.9 broker, on a Kafka 4 node, and in a Spark job. Other suites go further."""

from __future__ import annotations

import json
import uuid
from typing import TYPE_CHECKING, Any, Final

import pytest
from confluent_kafka import admin

from confplane.domain.entities import Entity
from tests.support import servers, tools
from tests.support.broker import Broker
from tests.support.commands import Commands
from tests.support.kraft import kraft_cluster
from tests.support.kraft_client import client_of
from tests.support.kraft_writer import KraftWriter
from tests.support.service import Service
from tests.support.stores import soon
from tests.support.waiting import until

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from tests.support.kraft import KraftCluster
    from tests.support.world import World

pytestmark = pytest.mark.interop
RATE: Final = "producer_byte_rate"
RETENTION: Final = "retention.ms"


async def test_a_kafka_3_9_broker_takes_what_is_altered(
    chroot: str, migrated: servers.Database, tmp_path: Path
) -> None:
    class_path, topic, user = tools.obtain(tools.kafka_class_path).read_text(), "t-" + uuid.uuid4().hex, "olga o/é"
    with (
        Broker(tmp_path / "broker", class_path=class_path, connect=chroot) as broker,
        Service(tmp_path, connect=chroot, dsn=migrated.service_dsn) as service,
    ):
        # confluent_kafka.admin has no __all__ for what it imports to be used by others: hence the ignored errors.
        kafka = admin.AdminClient({"bootstrap.servers": broker.bootstrap, "log_level": 0})
        kafka.create_topics([admin.NewTopic(topic, 1, 1)])[topic].result()  # type: ignore[attr-defined]
        async with service.client() as client, client_of(broker.bootstrap) as wire:
            await client.request("PUT", f"configs/topic={topic}", json={"configs": {RETENTION: "123456"}})
            await client.alter("client-quotas", [(Entity.of(user=user), {RATE: 4096})])

            async def taken() -> bool:
                resource = admin.ConfigResource("topic", topic)  # type: ignore[attr-defined]
                found = kafka.describe_configs([resource])[resource].result()[RETENTION]
                return (found.value, found.is_default) == ("123456", False)

            await until(taken)

            async def throttled() -> bool:
                return await wire.describe_quotas_of([("user", user)], soon()) == {RATE: 4096.0}

            await until(throttled)
            heard = f"Processing override for entityPath: {Entity.of(user=user).path} with config: "
            await until(lambda: heard in broker.said(), why=heard)


@pytest.fixture
def kraft(kraft_class_path: str, tmp_path: Path) -> Iterator[KraftCluster]:
    """A running Kafka 4 of one node."""
    with kraft_cluster(tmp_path / "kraft", kraft_class_path) as running:
        yield running


async def test_a_kafka_4_cluster_is_adopted_altered_and_compared(kraft: KraftCluster, world: World) -> None:
    ours, theirs = f"ours-{uuid.uuid4()}", f"theirs-{uuid.uuid4()}"
    async with KraftWriter(kraft.bootstrap[0]) as outside, client_of(*kraft.bootstrap) as kafka:
        await outside.quotas(({"user": theirs}, {RATE: 1000.0}))
        service = world.adopting(kraft)
        with service:
            async with service.client() as client:

                async def quota(user: str) -> dict[str, Any]:
                    found: dict[str, Any] = (await client.request("GET", f"client-quotas/user={user}")).body["quotas"]
                    return found

                assert await quota(theirs) == {RATE: 1000}
                await client.request("PUT", f"client-quotas/user={ours}", json={"quotas": {RATE: 2000}})

                async def applied() -> bool:
                    return await kafka.describe_quotas_of([("user", ours)], soon()) == {RATE: 2000.0}

                await until(applied)
                # In this mode a change by others is followed, and no drift is left.
                await outside.quotas(({"user": ours}, {RATE: 3000.0}))

                async def followed() -> bool:
                    return await quota(ours) == {RATE: 3000}

                await until(followed)

                async def settled() -> bool:
                    found = await client.request("GET", "drift")
                    return not any(item["id"] == f"user={ours}" for item in found.body["items"])

                await until(settled)


async def test_a_spark_job_counts_a_hundred_changes(chroot: str, migrated: servers.Database, tmp_path: Path) -> None:
    with Service(tmp_path, connect=chroot, dsn=migrated.service_dsn) as service:
        async with service.client() as client:
            for number in range(100):
                await client.request("PUT", f"client-quotas/user=u{number % 10}", json={"quotas": {RATE: 1 + number}})
    commands = Commands(tmp_path / "commands", connect=chroot, dsn=migrated.service_dsn)
    said = commands.run("rollups", "run", "activity")
    assert said.code == 0, said.err
    rows = [json.loads(line) for line in commands.run("rollups", "show", "activity", "--json").out.splitlines()]
    assert sum(row["committed"] for row in rows if row["configKey"] == RATE) == 100
