"""Dynamic configs of clients as a broker feels them."""

from __future__ import annotations

import asyncio
import os
import subprocess
import sys
import uuid
from typing import TYPE_CHECKING, Any, Final

import aiokafka
import kafka
import pytest
from confluent_kafka import Consumer, Producer

from confplane.client.dynamic import (
    AIOKAFKA,
    CONFLUENT_KAFKA,
    AsyncDynamicConsumerConfig,
    AsyncDynamicProducerConfig,
    Library,
)
from confplane.client.dynamic import Service as Reached
from confplane.domain.entities import Entity
from tests.interop.compare import new_topics
from tests.interop.swapping import LIBRARIES
from tests.support.processes import ROOT
from tests.support.waiting import until, wait_for

if TYPE_CHECKING:
    from pathlib import Path

    from tests.interop.admin import Admin
    from tests.support.broker import Broker
    from tests.support.facets import ConfplaneClient
    from tests.support.service import Service

pytestmark = [
    pytest.mark.interop,
    pytest.mark.timeout(600),
    # kafka-python leaves a socket open where a consumer is closed while it connects.
    pytest.mark.filterwarnings("ignore:unclosed <socket:ResourceWarning"),
]


@pytest.mark.parametrize("library", LIBRARIES, ids=lambda library: library.name)
async def test_dynamic_acks_are_those_of_the_producers_requests(
    broker: Broker, service: Service, client: ConfplaneClient, admin: Admin, library: Library
) -> None:
    """A broker answers a request with acks=0 by nothing, so the producer never learns the record's offset."""
    user = f"felt-{uuid.uuid4().hex}"
    await new_topics(client, admin, user)
    reached = Reached(service.url, user, service.token)
    own = {library.spelled("bootstrap.servers"): broker.bootstrap}
    for number, (acks, answered) in enumerate((("1", True), ("0", False), ("all", True))):
        await client.put("client-configs", Entity.of(user=user), {"acks": acks})
        async with AsyncDynamicProducerConfig(own, library=library, service=reached) as dynamic:
            if library is AIOKAFKA:
                offset = await _sent_by_aiokafka(dynamic.settings, user)
            else:
                sent = _sent_by_confluent if library is CONFLUENT_KAFKA else _sent_by_kafka_python
                offset = await asyncio.to_thread(sent, dynamic.settings, user)
        assert (offset == number) is answered, acks


def _sent_by_confluent(settings: dict[str, Any], topic: str) -> int | None:
    offsets: list[int | None] = []
    producer = Producer(settings)
    producer.produce(topic, b"value", b"key", on_delivery=lambda _, message: offsets.append(message.offset()))
    assert producer.flush(60) == 0
    (offset,) = offsets
    return offset


def _sent_by_kafka_python(settings: dict[str, Any], topic: str) -> int | None:
    producer = kafka.KafkaProducer(**settings)
    try:
        offset: int = producer.send(topic, b"value", b"key").get(60).offset
    finally:
        producer.close()
    return offset


async def _sent_by_aiokafka(settings: dict[str, Any], topic: str) -> int | None:
    async with aiokafka.AIOKafkaProducer(**settings) as producer:
        found = await producer.send_and_wait(topic, b"value", b"key")
    return None if found is None else found.offset


@pytest.mark.parametrize("library", LIBRARIES, ids=lambda library: library.name)
async def test_a_dynamic_session_timeout_is_the_members_until_its_key_is_removed(
    broker: Broker, service: Service, client: ConfplaneClient, admin: Admin, library: Library
) -> None:
    user = f"timeout-{uuid.uuid4().hex}"
    await new_topics(client, admin, user)
    await client.put("client-configs", Entity.of(user=user), {"session.timeout.ms": "20000"})
    values = {"bootstrap.servers": broker.bootstrap, "session.timeout.ms": 25_000, "metadata.max.age.ms": 200}
    own = {library.spelled(name): value for name, value in values.items()}
    async with AsyncDynamicConsumerConfig(
        own, library=library, service=Reached(service.url, user, service.token)
    ) as dynamic:
        first = dynamic.settings
        await client.delete("client-configs", Entity.of(user=user))
        await until(lambda: dynamic.settings != first)
        groups = {f"{user}-dynamic": first, f"{user}-own": dynamic.settings}
    await asyncio.gather(
        *(
            _member(library, {**settings, library.spelled("group.id"): group}, user)
            for group, settings in groups.items()
        )
    )
    await until(lambda: [broker.timeouts_of_leavers(group) for group in groups] == [[20_000], [25_000]])


async def _member(library: Library, settings: dict[str, Any], topic: str) -> None:
    """Be a member of a group for a moment."""
    if library is AIOKAFKA:
        async with aiokafka.AIOKafkaConsumer(topic, **settings):
            return
    await asyncio.to_thread(
        _joined_by_confluent if library is CONFLUENT_KAFKA else _joined_by_kafka_python, settings, topic
    )


def _joined_by_confluent(settings: dict[str, Any], topic: str) -> None:
    consumer = Consumer(settings)
    consumer.subscribe([topic])
    wait_for(lambda: consumer.poll(0.1) or consumer.assignment())
    consumer.close()


def _joined_by_kafka_python(settings: dict[str, Any], topic: str) -> None:
    consumer = kafka.KafkaConsumer(topic, **settings)
    wait_for(lambda: consumer.poll(timeout_ms=100) or consumer.assignment())
    consumer.close()


@pytest.mark.parametrize("library", LIBRARIES, ids=lambda library: library.name)
async def test_a_dead_consumer_is_removed_after_its_dynamic_session_timeout(
    broker: Broker, service: Service, client: ConfplaneClient, admin: Admin, tmp_path: Path, library: Library
) -> None:
    """Beside it dies one with a session timeout of its own, 45 s, which is still a member then."""
    soon, late = (f"dies-{name}-{uuid.uuid4().hex}" for name in ("soon", "late"))
    await new_topics(client, admin, soon, late)
    await client.put("client-configs", Entity.of(user=soon), {"session.timeout.ms": "6000"})
    members: list[subprocess.Popen[bytes]] = []
    try:
        for user in (soon, late):
            with (tmp_path / user).open("wb") as output:
                members.append(
                    subprocess.Popen(  # noqa: ASYNC220 - a start takes no time
                        [sys.executable, "-c", _MEMBERS[library.name], service.url, user, broker.bootstrap],
                        env={**os.environ, "PYTHONPATH": str(ROOT / "app"), "TOKEN": service.token},
                        stdout=output,
                        stderr=output,
                    )
                )
        for user in (soon, late):
            await _joined(tmp_path / user)
        for member in members:
            member.kill()
        await until(lambda: f"in group {soon} has failed, removing it" in broker.said())
        assert f"in group {late} has failed, removing it" not in broker.said()
    finally:
        for member in members:
            member.kill()
            member.wait()


async def _joined(said: Path) -> None:
    await until(lambda: "joined" in said.read_text(), why=said.read_text)


_IN_A_THREAD = """
import os, sys
from confplane.client.dynamic import {constant}, DynamicConsumerConfig, Service
from confplane.client.dynamic.adapters.{adapter} import swapped_consumer

url, user, bootstrap = sys.argv[1:]
values = {{"bootstrap.servers": bootstrap, "group.id": user, "session.timeout.ms": 45000}}
own = {{{constant}.spelled(name): value for name, value in values.items()}}
with DynamicConsumerConfig(own, library={constant}, service=Service(url, user, os.environ["TOKEN"])) as dynamic:
    swapped = swapped_consumer(dynamic, [user])
    while True:
        swapped.current().poll({poll})
        if swapped.current().assignment():
            print("joined", flush=True)
"""
_IN_A_TASK = """
import asyncio, os, sys
from confplane.client.dynamic import AIOKAFKA, AsyncDynamicConsumerConfig, Service
from confplane.client.dynamic.adapters.aiokafka import swapped_consumer

async def main(url, user, bootstrap):
    own = {"bootstrap_servers": bootstrap, "group_id": user, "session_timeout_ms": 45000}
    service = Service(url, user, os.environ["TOKEN"])
    async with AsyncDynamicConsumerConfig(own, library=AIOKAFKA, service=service) as dynamic:
        swapped = swapped_consumer(dynamic, [user])
        await swapped.start()
        while True:
            await (await swapped.current()).getmany(timeout_ms=100)
            if (await swapped.current()).assignment():
                print("joined", flush=True)

asyncio.run(main(*sys.argv[1:]))
"""
_MEMBERS: Final = {
    "confluent-kafka": _IN_A_THREAD.format(constant="CONFLUENT_KAFKA", adapter="confluent_kafka", poll=0.1),
    "kafka-python": _IN_A_THREAD.format(constant="KAFKA_PYTHON", adapter="kafka_python", poll=100),
    "aiokafka": _IN_A_TASK,
}
