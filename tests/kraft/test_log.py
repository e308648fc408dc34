"""The metadata log, followed from real controllers: records with offset and time, snapshots, a change of the leader."""

from __future__ import annotations

import asyncio
import time
from contextlib import AsyncExitStack, aclosing
from typing import TYPE_CHECKING

import pytest

from confplane.kraft.metadata_log import MetadataLog
from confplane.kraft.views import ConfigResourceType, Resource
from confplane.kraft.wire import errors
from confplane.kraft.wire.messages import ClientQuotaRecord, ConfigRecord, RemoveTopicRecord, TopicRecord
from confplane.kraft.wire.options import Address, Options
from tests.support.kraft import kraft_cluster
from tests.support.kraft_client import client_of
from tests.support.kraft_writer import KraftWriter

if TYPE_CHECKING:
    from pathlib import Path

    from confplane.kraft.client import KraftClient
    from confplane.kraft.metadata_log import LogRecord
    from tests.support.kraft import KraftCluster


def log_of(cluster: KraftCluster, cluster_id: str | None = None) -> MetadataLog:
    addresses = [Address.parse(node.controller) for node in cluster.controllers]
    return MetadataLog(addresses, Options(), cluster_id=cluster_id)


async def read_until(log: MetadataLog, key: str, after: int = -1) -> tuple[list[LogRecord], int]:
    """Return the records behind an offset up to a quota with the given key, and the offset to follow on from."""
    found: list[LogRecord] = []
    async with asyncio.timeout(60), aclosing(log.follow(after)) as parts:
        async for part in parts:
            found += part.records
            if any(_marks(each, key) for each in part.records):
                return found, part.after
    raise AssertionError("the log has no end")


def _marks(record: LogRecord, key: str) -> bool:
    quota = record.message
    if not isinstance(quota, ClientQuotaRecord) or quota.key != key or quota.remove:
        return False
    return [each.entity_name for each in quota.entity] == ["marker"] and quota.value == 4321.0


async def mark(writer: KraftWriter, key: str) -> None:
    await writer.quotas(({"user": "marker"}, {key: 4321.0}))


async def test_every_write_is_there_with_its_offset_and_time(kraft: KraftCluster) -> None:
    log = log_of(kraft, kraft.cluster_id)
    topic = Resource(ConfigResourceType.TOPIC, "followed")
    try:
        async with KraftWriter(kraft.bootstrap[0]) as writer:
            await mark(writer, "producer_byte_rate")
            _, after = await read_until(log, "producer_byte_rate")
            began = time.time() * 1000
            await writer.quotas(({"user": "fol", "client-id": None}, {"request_percentage": 1.5}))
            await writer.create_topics("followed", configs={"retention.ms": "77"})
            await writer.configs((topic, {"retention.ms": "78"}))
            await writer.configs((topic, {"retention.ms": None}))
            await writer.delete_topics("followed")
            await writer.quotas(({"user": "fol", "client-id": None}, {"request_percentage": None}))
            await mark(writer, "consumer_byte_rate")
            found, _ = await read_until(log, "consumer_byte_rate", after)
        messages = [each.message for each in found]
        assert [(m.key, m.value, m.remove) for m in messages if isinstance(m, ClientQuotaRecord)] == [
            ("request_percentage", 1.5, False), ("request_percentage", 0.0, True), ("consumer_byte_rate", 4321.0, False),
        ]  # fmt: skip
        configs = [m for m in messages if isinstance(m, ConfigRecord)]
        assert [(m.resource_name, m.name, m.value) for m in configs] == [
            ("followed", "retention.ms", value) for value in ("77", "78", None)
        ]
        assert "78" not in repr(configs)
        (made,) = [m for m in messages if isinstance(m, TopicRecord)]
        (removed,) = [m for m in messages if isinstance(m, RemoveTopicRecord)]
        assert made.topic_id == removed.topic_id
        offsets = [each.offset for each in found]
        assert offsets == sorted(set(offsets))
        assert offsets[0] > after
        assert all(began - 1000 < each.timestamp < time.time() * 1000 + 1000 for each in found)
    finally:
        await log.close()


async def test_another_clusters_controller_is_asked_nothing_but_its_id(kraft: KraftCluster) -> None:
    log = log_of(kraft, "AnotherClustersIdAAAAA")
    try:
        async with aclosing(log.follow(-1)) as parts:
            with pytest.raises(errors.WrongClusterError):
                await anext(parts)
    finally:
        await log.close()


async def test_an_offset_after_the_end_is_an_error(kraft: KraftCluster) -> None:
    log = log_of(kraft)
    try:
        async with asyncio.timeout(60), aclosing(log.follow(10**12)) as parts:
            with pytest.raises(errors.ProtocolError, match="ends at"):
                await anext(parts)
    finally:
        await log.close()


async def test_a_failover_and_snapshots(quorum: KraftCluster) -> None:
    await _followed_through_a_failover(quorum)


@pytest.mark.long
async def test_controllers_of_their_own_with_a_failover_and_snapshots(tmp_path: Path, kraft_class_path: str) -> None:
    properties = {"metadata.log.max.record.bytes.between.snapshots": "3000"}
    with kraft_cluster(tmp_path, kraft_class_path, brokers=2, controllers=3, properties=properties) as cluster:
        await _followed_through_a_failover(cluster)
        async with client_of(*cluster.bootstrap) as client:
            await _both_brokers_say_the_same(cluster, client)


async def _followed_through_a_failover(cluster: KraftCluster) -> None:
    """Assert that each write is in the log though the leader is killed, which is started again at the end."""
    log = log_of(cluster, cluster.cluster_id)
    async with AsyncExitStack() as stack:
        stack.push_async_callback(log.close)
        client = await stack.enter_async_context(client_of(*cluster.bootstrap))
        before = await client.quorum(time.monotonic() + 30)
        assert {voter.replica_id for voter in before.current_voters} == {node.node_id for node in cluster.controllers}
        leader = cluster.node(before.leader_id)
        through = next(node for node in cluster.brokers if node is not leader)
        writer = await stack.enter_async_context(KraftWriter(through.bootstrap))
        begin = await client.barrier(time.monotonic() + 30)
        for at in range(1, 61):
            await writer.quotas(
                ({"user": f"followed-{at}"}, {"producer_byte_rate": float(at), "consumer_byte_rate": 1})
            )
        await mark(writer, "request_percentage")
        found, after = await read_until(log, "request_percentage", begin)
        stack.callback(leader.start)
        leader.kill()
        for at in range(61, 71):
            await writer.quotas(({"user": f"followed-{at}"}, {"producer_byte_rate": float(at)}))
        await mark(writer, "controller_mutation_rate")
        more, _ = await read_until(log, "controller_mutation_rate", after)
        assert (await client.quorum(time.monotonic() + 30)).leader_id != leader.node_id
        values = {
            each.message.entity[0].entity_name: each.message.value
            for each in [*found, *more]
            if isinstance(each.message, ClientQuotaRecord)
            and each.message.key == "producer_byte_rate"
            and (each.message.entity[0].entity_name or "").startswith("followed-")
        }
        assert values == {f"followed-{at}": float(at) for at in range(1, 71)}
        await _a_new_reader_begins_after_a_snapshot(log)


async def _a_new_reader_begins_after_a_snapshot(log: MetadataLog) -> None:
    async with asyncio.timeout(60), aclosing(log.follow(-1)) as parts:
        first, then = await anext(parts), await anext(parts)
        assert (first.records, first.reset, then.reset) == ((), True, False)
        assert then.after >= first.after


async def _both_brokers_say_the_same(cluster: KraftCluster, client: KraftClient) -> None:
    await client.barrier(time.monotonic() + 30)
    wanted = [Resource(ConfigResourceType.BROKER, "1"), Resource(ConfigResourceType.BROKER, "2")]
    keys = ["node.id"]
    found = await client.describe_configs(wanted, time.monotonic() + 30, keys=keys)
    assert [each.entries[0].value for each in found] == ["1", "2"]
    assert found[0].source != found[1].source
    gone = cluster.node(2)
    gone.kill()
    one, two = await client.describe_configs(wanted, time.monotonic() + 30, keys=keys)
    assert one.error is None
    assert isinstance(two.error, errors.UnreachableError)
    gone.start()
    again = await client.describe_configs(wanted, time.monotonic() + 60, keys=keys)
    while again[1].error is not None:  # its address may be in back-off
        await asyncio.sleep(0.2)
        again = await client.describe_configs(wanted, time.monotonic() + 60, keys=keys)
    assert [each.entries[0].value for each in again] == ["1", "2"]
