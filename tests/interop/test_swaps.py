"""Producers and consumers that follow their dynamic configs on a real broker, under load."""

from __future__ import annotations

import asyncio
import gc
import re
import uuid
from itertools import cycle, islice
from typing import TYPE_CHECKING, Any, Literal

import pytest

from confplane.client.dynamic import CONFLUENT_KAFKA, KAFKA_PYTHON, DynamicProducerConfig, Library, steps
from confplane.client.dynamic import Service as Reached
from confplane.client.dynamic.adapters import confluent_kafka, kafka_python
from confplane.domain.entities import Entity
from tests.interop.compare import new_topics
from tests.interop.swapping import LIBRARIES, POLL_MS, Load, Member, Numbers, all_read, arrived
from tests.support.sampling import sampled
from tests.support.waiting import until

if TYPE_CHECKING:
    from tests.interop.admin import Admin
    from tests.support.broker import Broker
    from tests.support.facets import ConfplaneClient
    from tests.support.service import Service

pytestmark = [pytest.mark.interop, pytest.mark.timeout(1800)]


@pytest.mark.parametrize("library", LIBRARIES, ids=lambda library: library.name)
@pytest.mark.parametrize(
    ("records", "changes"), [(2_000, 3), pytest.param(100_000, 20, marks=pytest.mark.long)], ids=str
)
async def test_no_record_is_lost_or_sent_twice_while_acks_change(
    broker: Broker,
    service: Service,
    client: ConfplaneClient,
    admin: Admin,
    library: Library,
    records: int,
    changes: int,
) -> None:
    user = f"swapped-{uuid.uuid4().hex}"
    await new_topics(client, admin, user)
    entity = Entity.of(user=user)
    given = list(islice(cycle(["1", "all"]), changes + 1))
    await client.put("client-configs", entity, {"acks": given[0]})
    own = {"bootstrap.servers": broker.bootstrap, "client.id": "load", "metadata.max.age.ms": POLL_MS}
    own = {library.spelled(name): value for name, value in own.items()}
    load = Load(library, Reached(service.url, user, service.token), own, user, least=records)
    async with load.running():
        for count, acks in enumerate(given, 1):
            await client.put("client-configs", entity, {"acks": acks})
            await load.made(count)
    assert [str(acks) for acks in load.acks] == given
    assert not load.failed[:3]
    assert load.sent >= records
    assert await asyncio.to_thread(arrived, broker.bootstrap, user) == list(range(load.sent))


@pytest.mark.parametrize("library", [CONFLUENT_KAFKA, KAFKA_PYTHON], ids=lambda library: library.name)
async def test_callbacks_of_records_that_a_swap_flushes_send_again(
    broker: Broker, client: ConfplaneClient, admin: Admin, library: Library
) -> None:
    topic = f"again-{uuid.uuid4().hex}"
    await new_topics(client, admin, topic)
    values = {"bootstrap.servers": broker.bootstrap, "linger.ms": 200}
    own = {library.spelled(name): value for name, value in values.items()}
    dynamic = DynamicProducerConfig(own, library=library, service=Reached("http://127.0.0.1:1", topic, None))
    adapter = confluent_kafka if library is CONFLUENT_KAFKA else kafka_python
    swapped: Any = adapter.swapped_producer(dynamic)

    def send(number: int) -> None:
        value = b"%d" % number
        with swapped.use() as producer:
            if library is CONFLUENT_KAFKA:
                producer.produce(topic, value, value, partition=0, on_delivery=lambda *_: again(number))
            else:
                producer.send(topic, value, value, partition=0).add_callback(lambda _: again(number))

    def again(number: int) -> None:
        if number < 500:
            send(number + 1000)

    def swap() -> None:
        for number in range(500):
            send(number)
        swapped.reconfigure(own | {"acks": 1})
        with swapped.use() as producer:
            used.append(producer)
        swapped.close()

    used: list[object] = []
    with swapped.use() as producer:
        used.append(producer)
    await asyncio.to_thread(swap)
    assert used[0] is not used[1]
    found = await asyncio.to_thread(arrived, broker.bootstrap, topic)
    assert sorted(found) == [*range(500), *range(1000, 1500)]


# kafka-python leaves a socket open where a consumer is closed while it connects.
@pytest.mark.filterwarnings("ignore:unclosed <socket:ResourceWarning")
@pytest.mark.parametrize(
    ("group_of", "library"), sampled([(2, ["20000"]), (10, ["20000", "30000", "25000"])], LIBRARIES, one_in=4)
)
async def test_a_group_rebalances_once_a_member_and_change_at_most(
    broker: Broker,
    service: Service,
    client: ConfplaneClient,
    admin: Admin,
    library: Library,
    group_of: tuple[int, list[str]],
    caplog: pytest.LogCaptureFixture,
) -> None:
    members, timeouts = group_of
    user = f"group-{uuid.uuid4().hex}"
    await new_topics(client, admin, user)
    entity = Entity.of(user=user)
    own: dict[str, Any] = {
        "bootstrap.servers": broker.bootstrap,
        "client.id": "member",
        "metadata.max.age.ms": POLL_MS,
        "group.id": user,
        "auto.offset.reset": "earliest",
    }
    reached = Reached(service.url, user, service.token)
    group = [Member(library, reached, own, user, spread_s=2) for _ in range(members)]
    numbers = Numbers(broker.bootstrap, user, partitions=members, per_s=200)

    def generations() -> list[int]:
        """The number of members in each generation of the group."""
        return [int(count) for count in re.findall(rf"Stabilized group {user} .* with (\d+) members", broker.said())]

    def states() -> str:
        return f"generations of {generations()} members: " + "\n".join(map(str, group))

    try:
        async with numbers.running():
            for member in group:
                member.start()
            await until(lambda: members in generations(), why=states)
            for change, timeout in enumerate(timeouts, 1):
                for member in group:
                    await member.reading(change)
                before = len(generations())
                await client.put("client-configs", entity, {"session.timeout.ms": timeout})
                for member in group:
                    await member.made(change + 1)
                await asyncio.sleep(4)  # more than a heartbeat: a rebalance that is due begins
                await until(
                    lambda: generations()[-1] == members and any(member.assigned for member in group), why=states
                )
                changed = generations()[before:]
                # On a slow machine the group may notice that a member has left before its successor has joined.
                assert 1 <= changed.count(members) <= members, states()
                assert max(changed) == members, states()
        await all_read(group, numbers)
    finally:
        await _stopped(group)
    if not _may_read_twice(user, broker, caplog):
        assert sorted(each for member in group for each in member.read) == list(range(numbers.sent))


# kafka-python leaves a socket open where a consumer is closed while it connects.
@pytest.mark.filterwarnings("ignore:unclosed <socket:ResourceWarning")
@pytest.mark.parametrize(("size", "library"), sampled([(1, 2, 100), (10, 6, 1_000)], LIBRARIES, one_in=4))
async def test_consumers_that_are_swapped_read_each_record_once(
    broker: Broker,
    service: Service,
    client: ConfplaneClient,
    admin: Admin,
    library: Library,
    size: tuple[int, int, int],
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    """Groups of one member and of many, in which the library commits, or the application does."""
    changes, many, per_s = size
    monkeypatch.setattr(steps, "MIN_SWAP_INTERVAL_S", 1.0)
    user = f"reading-{uuid.uuid4().hex}"
    await new_topics(client, admin, user)
    own = {
        "bootstrap.servers": broker.bootstrap,
        "client.id": "member",
        "metadata.max.age.ms": POLL_MS,
        "auto.offset.reset": "earliest",
    }
    reached = Reached(service.url, user, service.token)
    commits: list[tuple[int, Literal["each", "last"] | None]] = [(1, None), (1, "last"), (many, None), (many, "each")]
    groups = [
        [Member(library, reached, own | {"group.id": f"{user}-{number}"}, user, commits=kind) for _ in range(members)]
        for number, (members, kind) in enumerate(commits)
    ]
    everyone = [member for group in groups for member in group]
    numbers = Numbers(broker.bootstrap, user, partitions=many, per_s=per_s)
    try:
        async with numbers.running():
            for member in everyone:
                member.start()
            for change in range(changes):
                for member in everyone:
                    await member.reading(change + 1)
                await client.put("client-configs", Entity.of(user=user), {"session.timeout.ms": str(20_000 + change)})
            for member in everyone:
                await member.reading(changes + 1)
        for group in groups:
            await all_read(group, numbers)
    finally:
        await _stopped(everyone)
    for number, group in enumerate(groups):
        if not any(member.uncommitted for member in group) and not _may_read_twice(f"{user}-{number}", broker, caplog):
            assert sorted(each for member in group for each in member.read) == list(range(numbers.sent))


async def _stopped(members: list[Member]) -> None:
    for member in members:
        member.end()
    for member in members:
        await asyncio.to_thread(member.stop)
    gc.collect()  # while the warning of open sockets is none


def _may_read_twice(group: str, broker: Broker, caplog: pytest.LogCaptureFixture) -> bool:
    """Return True where a group has lost a member on a slow machine, or where kafka-python could not commit in time.

    Groups promise to read each record at least once.
    """
    return f"in group {group} has failed, removing it" in broker.said() or "duplicate message delivery" in caplog.text
