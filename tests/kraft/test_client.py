"""Describes of real clusters through the client."""

from __future__ import annotations

import asyncio
import time
from typing import TYPE_CHECKING

import pytest

from confplane.kraft.views import ConfigResourceType, Resource
from confplane.kraft.wire import errors
from confplane.kraft.wire.options import Options
from confplane.kraft.wire.sasl import Scram
from tests.support.kraft import PASSWORDS
from tests.support.kraft_client import client_of
from tests.support.kraft_writer import KraftWriter

if TYPE_CHECKING:
    from confplane.kraft.client import KraftClient
    from tests.support.kraft import KraftCluster


def soon() -> float:
    return time.monotonic() + 30


async def test_the_cluster(kraft: KraftCluster) -> None:
    (node,) = kraft.nodes
    async with client_of(*kraft.bootstrap) as client:
        assert await client.cluster_id(soon()) == kraft.cluster_id
        (broker,) = await client.brokers(soon())
        assert (broker.node_id, str(broker.address)) == (1, node.bootstrap)
        features = await client.features(soon())
        assert (await client.features(soon(), broker=1)).offset >= features.offset > 0
        assert features.finalized["metadata.version"] == features.supported["metadata.version"][1]
        quorum = await client.quorum(soon())
        assert quorum.leader_id == 1
        assert [voter.replica_id for voter in quorum.current_voters] == [1]
        assert await client.barrier(soon()) >= quorum.high_watermark - 1


async def test_resources_that_are_not_there_have_an_error_in_their_place(kraft: KraftCluster) -> None:
    there, unknown = Resource(ConfigResourceType.BROKER, ""), Resource(ConfigResourceType.TOPIC, "no-such-topic")
    away = Resource(ConfigResourceType.BROKER, "77")
    async with client_of(*kraft.bootstrap) as client:
        found = await client.describe_configs([unknown, there, away], soon())
    assert [each.resource for each in found] == [unknown, there, away]
    assert isinstance(found[0].error, errors.AnswerError)
    assert (found[0].error.code, found[1].error) == (3, None)
    assert isinstance(found[2].error, errors.UnreachableError)


async def test_missing_rights_are_named_and_given_ones_are_enough(kraft: KraftCluster) -> None:
    (node,) = kraft.nodes
    group, metrics = Resource(ConfigResourceType.GROUP, "g"), Resource(ConfigResourceType.CLIENT_METRICS, "m")
    topic, broker = Resource(ConfigResourceType.TOPIC, "rights"), Resource(ConfigResourceType.BROKER, "1")

    def login() -> Scram:
        return Scram("bob", PASSWORDS["bob"])

    sasl = client_of(node.listener("SASL"), options=Options(login=login))
    async with sasl as bob, KraftWriter(kraft.bootstrap[0]) as writer:
        await writer.create_topics("rights")
        calls = (
            lambda: bob.describe_quotas(None, soon()),
            lambda: bob.quorum(soon()),
            lambda: bob.list_config_resources([ConfigResourceType.GROUP], soon()),
        )
        for call in calls:
            with pytest.raises(errors.RightsError, match="is not permitted") as refused:
                await call()
            assert refused.value.code == 31
        assert "rights" not in await bob.topics(soon())
        found = await bob.describe_configs([topic, broker, group, metrics], soon())
        assert [each.error.code for each in found if isinstance(each.error, errors.RightsError)] == [29, 31, 30, 31]
        # DESCRIBE 8 and DESCRIBE_CONFIGS 10 on the cluster 4, all topics 2 and all groups 3.
        grants = [(4, "kafka-cluster", 10), (4, "kafka-cluster", 8), (2, "*", 10), (2, "*", 8), (3, "*", 10)]
        await writer.allow("User:bob", grants)
        await bob.barrier(await _until_allowed(bob))
        for call in calls:
            await call()
        assert "rights" in await bob.topics(soon())
        found = await bob.describe_configs([topic, broker, group, metrics], soon())
        assert [each.error for each in found] == [None] * 4
        await writer.delete_topics("rights")


async def _until_allowed(client: KraftClient) -> float:
    """Wait until the broker knows of the rights to describe the cluster; return a deadline for what follows."""
    deadline = time.monotonic() + 60
    while True:
        try:
            await client.quorum(deadline)
        except errors.RightsError:
            assert time.monotonic() < deadline
            await asyncio.sleep(0.05)
        else:
            return soon()
