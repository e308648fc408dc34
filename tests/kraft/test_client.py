"""Describes of real clusters through the client."""

from __future__ import annotations

import asyncio
import time
from typing import TYPE_CHECKING

import pytest

from confplane.kraft.views import ConfigResourceType, KafkaConfigSource, Quotas, Resource, UnchangedQuotas
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
        assert (broker.node_id, str(broker.address), broker.rack) == (1, node.bootstrap, None)
        features = await client.features(soon())
        assert (await client.features(soon(), broker=1)).offset >= features.offset > 0
        assert features.finalized["metadata.version"] == features.supported["metadata.version"][1]
        quorum = await client.quorum(soon())
        assert quorum.leader_id == 1
        assert [voter.node_id for voter in quorum.voters] == [1]
        assert str(quorum.controllers[1]) == node.controller
        assert await client.barrier(soon()) >= quorum.high_watermark - 1


async def test_another_clusters_broker_is_asked_nothing_but_its_id(kraft: KraftCluster) -> None:
    async with client_of(*kraft.bootstrap, cluster_id="AnotherClustersIdAAAAA") as client:
        with pytest.raises(errors.WrongClusterError, match=f"{kraft.cluster_id}, not to AnotherClustersIdAAAAA"):
            await client.topics(soon())


async def test_a_change_is_described_right_after_a_barrier(kraft: KraftCluster) -> None:
    async with client_of(*kraft.bootstrap) as client, KraftWriter(kraft.bootstrap[0]) as writer:
        for at in range(40):
            await writer.quotas(({"user": "barrier"}, {"producer_byte_rate": 1000.0 + at}))
            await client.barrier(soon())
            found = await client.describe_quotas_of([("user", "barrier")], soon())
            assert found == {"producer_byte_rate": 1000.0 + at}
        await writer.quotas(({"user": "barrier"}, {"producer_byte_rate": None}))
        await client.barrier(soon())
        assert await client.describe_quotas_of([("user", "barrier")], soon()) is None


async def test_all_quotas_are_decoded_only_once_changed(kraft: KraftCluster) -> None:
    entities: list[dict[str, str | None]] = [
        {"user": "\u00fc ser", "client-id": None}, {"user": None}, {"client-id": "c"}, {"ip": "10.0.0.1"},
    ]  # fmt: skip
    async with client_of(*kraft.bootstrap) as client, KraftWriter(kraft.bootstrap[0]) as writer:
        key = "connection_creation_rate"
        await writer.quotas(*((each, {key if "ip" in each else "request_percentage": 12}) for each in entities))
        await client.barrier(soon())
        first = await client.describe_quotas(None, soon())
        assert isinstance(first, Quotas)
        found = {frozenset(each.entity): dict(each.values) for each in first.entries}
        assert [found[frozenset(each.items())] for each in entities] == [
            {key if "ip" in each else "request_percentage": 12} for each in entities
        ]
        assert isinstance(await client.describe_quotas(first.digest, soon()), UnchangedQuotas)
        await writer.quotas(({"user": None}, {"request_percentage": 13.0}))
        await client.barrier(soon())
        second = await client.describe_quotas(first.digest, soon())
        assert isinstance(second, Quotas)
        assert second.digest != first.digest
        await writer.quotas(*((each, {key if "ip" in each else "request_percentage": None}) for each in entities))


async def test_configs_of_each_kind(kraft: KraftCluster) -> None:
    values = {
        Resource(ConfigResourceType.TOPIC, "described"): {"retention.ms": "1000", "cleanup.policy": "delete , compact"},
        Resource(ConfigResourceType.BROKER, "1"): {"background.threads": "3"},
        Resource(ConfigResourceType.BROKER, ""): {"log.retention.ms": "3600000"},
        Resource(ConfigResourceType.GROUP, "g/1"): {"consumer.session.timeout.ms": "46000"},
        Resource(ConfigResourceType.CLIENT_METRICS, "m"): {"interval.ms": "1000"},
    }
    sources = (
        KafkaConfigSource.TOPIC,
        KafkaConfigSource.BROKER,
        KafkaConfigSource.DEFAULT_BROKER,
        KafkaConfigSource.GROUP,
        KafkaConfigSource.CLIENT_METRICS,
    )
    async with client_of(*kraft.bootstrap) as client, KraftWriter(kraft.bootstrap[0]) as writer:
        await writer.create_topics("described")
        await writer.configs(*values.items())
        await client.barrier(soon(), settled=True)
        unknown = Resource(ConfigResourceType.TOPIC, "no-such-topic")
        away = Resource(ConfigResourceType.BROKER, "77")
        found = await client.describe_configs([*values, unknown, away], soon(), synonyms=True)
        assert [each.resource for each in found] == [*values, unknown, away]
        for each, wanted, source in zip(found, values.values(), sources, strict=False):
            declared = {
                entry.name: entry.value
                for entry in each.entries
                if source in {entry.source, *(synonym.source for synonym in entry.synonyms)}
            }
            normal = wanted | ({"cleanup.policy": "delete,compact"} if "cleanup.policy" in wanted else {})
            assert declared.items() >= normal.items()
        assert isinstance(found[-2].error, errors.AnswerError)
        assert found[-2].error.code == 3
        assert isinstance(found[-1].error, errors.UnreachableError)
        listed = await client.list_config_resources(
            [ConfigResourceType.GROUP, ConfigResourceType.CLIENT_METRICS], soon()
        )
        assert {*list(values)[-2:]} <= set(listed)
        assert (await client.topics(soon()))["described"].topic_id.int != 0
        for resource, wanted in values.items():
            await writer.configs((resource, dict.fromkeys(wanted)))
        await writer.delete_topics("described")


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
