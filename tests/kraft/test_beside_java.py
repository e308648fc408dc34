"""The describes beside those of Kafka's own AdminClient, on the same cluster."""

from __future__ import annotations

import json
import subprocess
import time
from base64 import urlsafe_b64encode
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from app.devstack.java import find_java
from app.kraft.client import KraftClient
from app.kraft.views import Quotas, Resource, ResourceType, Source
from app.kraft.wire.options import Address, Options
from tests.support.java import java_environment
from tests.support.kraft_writer import KraftWriter

if TYPE_CHECKING:
    from tests.support.kraft import KraftCluster

# The names that the AdminClient has for the places of values (ConfigEntry.ConfigSource).
SOURCES: Final = {
    Source.UNKNOWN: "UNKNOWN",
    Source.TOPIC: "DYNAMIC_TOPIC_CONFIG",
    Source.BROKER: "DYNAMIC_BROKER_CONFIG",
    Source.DEFAULT_BROKER: "DYNAMIC_DEFAULT_BROKER_CONFIG",
    Source.STATIC_BROKER: "STATIC_BROKER_CONFIG",
    Source.DEFAULT: "DEFAULT_CONFIG",
    Source.BROKER_LOGGER: "DYNAMIC_BROKER_LOGGER_CONFIG",
    Source.CLIENT_METRICS: "DYNAMIC_CLIENT_METRICS_CONFIG",
    Source.GROUP: "DYNAMIC_GROUP_CONFIG",
}
VALUES: Final = {
    Resource(ResourceType.TOPIC, "beside"): {"retention.ms": "86400000", "cleanup.policy": "compact"},
    Resource(ResourceType.BROKER, "1"): {"background.threads": "3", "log.retention.ms": "0100"},
    Resource(ResourceType.BROKER, ""): {"log.retention.ms": "7200000"},
    Resource(ResourceType.GROUP, "\u00fc/g"): {"consumer.session.timeout.ms": "47000"},
    Resource(ResourceType.CLIENT_METRICS, "m x"): {"interval.ms": "2000", "metrics": "a.b,c"},
}
QUOTAS: Final[list[tuple[dict[str, str | None], dict[str, float | None]]]] = [
    ({"user": "CN=\u00fc,O=x"}, {"producer_byte_rate": 1.0, "request_percentage": 0.1}),
    ({"user": "u", "client-id": None}, {"controller_mutation_rate": 1e-3}),
    ({"user": None, "client-id": "c"}, {"consumer_byte_rate": 9007199254740993.0}),
    ({"user": None}, {"consumer_byte_rate": 5.0}),
    ({"client-id": None}, {"producer_byte_rate": 6.0}),
    ({"ip": None}, {"connection_creation_rate": 7.0}),
    ({"ip": "10.1.2.3"}, {"connection_creation_rate": 8.0}),
]


def of_java(class_path: str, bootstrap: str) -> Any:
    names = [f"{each.type.name}={each.name}" for each in VALUES]
    source = Path(__file__).with_name("Describe.java")
    command = [str(find_java()), "-Xmx256m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1", "-Dfile.encoding=UTF-8"]
    done = subprocess.run(
        [*command, "-Dsun.jnu.encoding=UTF-8", "-Dstdout.encoding=UTF-8", "-cp", class_path, str(source), bootstrap, *names],
        capture_output=True, check=False, timeout=300, env={**java_environment(), "LC_ALL": "C.UTF-8"},
    )  # fmt: skip
    assert done.returncode == 0, done.stderr.decode()
    return json.loads(done.stdout.decode().splitlines()[-1])


async def test_all_answers_are_those_of_the_admin_client(kraft: KraftCluster, kraft_class_path: str) -> None:
    deadline = time.monotonic() + 300
    client = KraftClient([Address.parse(each) for each in kraft.bootstrap], Options())
    try:
        async with KraftWriter(kraft.bootstrap[0]) as writer:
            await writer.create_topics("beside")
            await writer.configs(*VALUES.items())
            await writer.quotas(*QUOTAS)
            await client.barrier(deadline, settled=True)
            theirs = of_java(kraft_class_path, kraft.bootstrap[0])
            quotas = await client.describe_quotas(None, deadline)
            assert isinstance(quotas, Quotas)
            assert _sorted([{"entity": dict(each.entity), "values": dict(each.values)} for each in quotas.entries]) == (
                _sorted(theirs["quotas"])
            )
            assert len(quotas.entries) >= len(QUOTAS)
            assert theirs["clusterId"] == await client.cluster_id(deadline)
            for described in await client.describe_configs(list(VALUES), deadline, synonyms=True):
                name = f"{described.resource.type.name}={described.resource.name}"
                ours = [
                    {
                        "name": each.name, "value": each.value, "source": SOURCES[Source(each.source)],
                        "readOnly": each.read_only, "sensitive": each.sensitive,
                        "synonyms": [[one.name, one.value, SOURCES[Source(one.source)]] for one in each.synonyms],
                    }
                    for each in described.entries
                ]  # fmt: skip
                assert _sorted(ours) == _sorted(theirs["configs"][name]), name
                assert ours
            kinds = [ResourceType.GROUP, ResourceType.CLIENT_METRICS]
            listed = await client.list_config_resources(kinds, deadline)
            assert sorted(f"{each.type.name}={each.name}" for each in listed) == sorted(theirs["listed"])
            topics = {each.name: each for each in (await client.topics(deadline)).values() if not each.internal}
            assert {name: _spelled(each.topic_id.bytes) for name, each in topics.items()} == theirs["topics"]
            quorum = await client.quorum(deadline)
            assert {"leaderId": quorum.leader_id, "leaderEpoch": quorum.leader_epoch,
                    "voters": [voter.node_id for voter in quorum.voters]} == theirs["quorum"]  # fmt: skip
            for resource, wanted in VALUES.items():
                await writer.configs((resource, dict.fromkeys(wanted)))
            await writer.quotas(*((entity, dict.fromkeys(values)) for entity, values in QUOTAS))
            await writer.delete_topics("beside")
    finally:
        await client.close()


def _sorted(items: list[Any]) -> list[Any]:
    return sorted(items, key=lambda item: json.dumps(item, sort_keys=True))


def _spelled(topic_id: bytes) -> str:
    return urlsafe_b64encode(topic_id).decode().rstrip("=")
