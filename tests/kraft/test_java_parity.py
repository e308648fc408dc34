"""The describes, compared with those of Kafka's own AdminClient on the same cluster."""

from __future__ import annotations

import asyncio
import json
import math
import subprocess
import time
from base64 import urlsafe_b64encode
from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from confplane.devstack.java import find_java
from confplane.kraft.views import ConfigResourceType, KafkaConfigSource, Resource
from confplane.kraft.wire import errors
from confplane.services.ports.applying import AlterApplied, AlterRefused
from tests.interop.admin import Admin
from tests.support.java import java_environment, quick_java
from tests.support.kraft_client import settle
from tests.support.kraft_writer import KraftWriter

if TYPE_CHECKING:
    from confplane.kraft.client import KraftClient
    from confplane.services.ports.applying import AlterOutcome
    from tests.support.kraft import KraftCluster

# The names that the AdminClient has for the places of values (ConfigEntry.ConfigSource).
SOURCES: Final = {
    KafkaConfigSource.UNKNOWN: "UNKNOWN",
    KafkaConfigSource.TOPIC: "DYNAMIC_TOPIC_CONFIG",
    KafkaConfigSource.BROKER: "DYNAMIC_BROKER_CONFIG",
    KafkaConfigSource.DEFAULT_BROKER: "DYNAMIC_DEFAULT_BROKER_CONFIG",
    KafkaConfigSource.STATIC_BROKER: "STATIC_BROKER_CONFIG",
    KafkaConfigSource.DEFAULT: "DEFAULT_CONFIG",
    KafkaConfigSource.BROKER_LOGGER: "DYNAMIC_BROKER_LOGGER_CONFIG",
    KafkaConfigSource.CLIENT_METRICS: "DYNAMIC_CLIENT_METRICS_CONFIG",
    KafkaConfigSource.GROUP: "DYNAMIC_GROUP_CONFIG",
}
VALUES: Final = {
    Resource(ConfigResourceType.TOPIC, "beside"): {"retention.ms": "86400000", "cleanup.policy": "compact"},
    Resource(ConfigResourceType.BROKER, "1"): {"background.threads": "3", "log.retention.ms": "0100"},
    Resource(ConfigResourceType.BROKER, ""): {"log.retention.ms": "7200000"},
    Resource(ConfigResourceType.GROUP, "\u00fc/g"): {"consumer.session.timeout.ms": "47000"},
    Resource(ConfigResourceType.CLIENT_METRICS, "m x"): {"interval.ms": "2000", "metrics": "a.b,c"},
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
    command = [str(find_java()), *quick_java(), "-Dfile.encoding=UTF-8"]
    done = subprocess.run(
        [*command, "-Dsun.jnu.encoding=UTF-8", "-Dstdout.encoding=UTF-8", "-cp", class_path, str(source), bootstrap, *names],
        capture_output=True, check=False, timeout=300, env={**java_environment(), "LC_ALL": "C.UTF-8"},
    )  # fmt: skip
    assert done.returncode == 0, done.stderr.decode()
    return json.loads(done.stdout.decode().splitlines()[-1])


async def test_all_answers_are_those_of_the_admin_client(
    kraft: KraftCluster, client: KraftClient, kraft_class_path: str
) -> None:
    deadline = time.monotonic() + 300
    async with KraftWriter(kraft.bootstrap[0]) as writer:
        await writer.create_topics("beside")
        await writer.configs(*VALUES.items())
        await writer.quotas(*QUOTAS)
        await settle(client)
        theirs = of_java(kraft_class_path, kraft.bootstrap[0])
        quotas = await client.describe_quotas(None, deadline)
        assert quotas.entries is not None
        assert _sorted([{"entity": dict(each.entity), "values": dict(each.values)} for each in quotas.entries]) == (
            _sorted(theirs["quotas"])
        )
        assert len(quotas.entries) >= len(QUOTAS)
        assert theirs["clusterId"] == await client.cluster_id(deadline)
        for described in await client.describe_configs(list(VALUES), deadline, synonyms=True):
            name = f"{described.resource.type.name}={described.resource.name}"
            ours = [
                {
                    "name": each.name, "value": each.value, "source": SOURCES[KafkaConfigSource(each.config_source)],
                    "readOnly": each.read_only, "sensitive": each.is_sensitive,
                    "synonyms": [[one.name, one.value, SOURCES[KafkaConfigSource(one.source)]] for one in each.synonyms],
                }
                for each in described.entries
            ]  # fmt: skip
            assert _sorted(ours) == _sorted(theirs["configs"][name]), name
            assert ours
        kinds = [ConfigResourceType.GROUP, ConfigResourceType.CLIENT_METRICS]
        listed = await client.list_config_resources(kinds, deadline)
        assert sorted(f"{each.type.name}={each.name}" for each in listed) == sorted(theirs["listed"])
        topics = {name: each for name, each in (await client.topics(deadline)).items() if not name.startswith("__")}
        assert {name: _spelled(each.bytes) for name, each in topics.items()} == theirs["topics"]
        features = await client.features(deadline)
        assert {"finalized": dict(features.finalized),
                "supported": {name: list(each) for name, each in features.supported.items()}} == theirs["features"]  # fmt: skip
        assert features.finalized
        quorum = await client.quorum(deadline)
        assert {"leaderId": quorum.leader_id, "leaderEpoch": quorum.leader_epoch,
                "voters": [voter.replica_id for voter in quorum.current_voters]} == theirs["quorum"]  # fmt: skip
        for resource, wanted in VALUES.items():
            await writer.configs((resource, dict.fromkeys(wanted)))
        await writer.quotas(*((entity, dict.fromkeys(values)) for entity, values in QUOTAS))
        await writer.delete_topics("beside")


ALTERED_QUOTAS: Final[list[tuple[tuple[tuple[str, str | None], ...], dict[str, float | None]]]] = [
    ((("user", "CN=\u00fc,O=x"),), {"producer_byte_rate": 1.0, "request_percentage": 0.1}),
    ((("user", "u"), ("client-id", None)), {"controller_mutation_rate": 1e-3, "consumer_byte_rate": None}),
    ((("ip", "10.1.2.3"),), {"connection_creation_rate": 8.0}),
    ((("ip", "no.such.host.invalid"),), {"connection_creation_rate": 8.0}),
    ((("ip", "10.1.2.4"),), {"producer_byte_rate": 8.0}),
    ((("user", "absent"),), {"producer_byte_rate": None}),
    ((("user", "unknown"),), {"no_such_key": 1.0}),
    ((("user", "negative"),), {"producer_byte_rate": -1.0}),
    ((("user", "fraction"),), {"producer_byte_rate": 0.5}),
    ((("user", "nan"),), {"request_percentage": float("nan")}),
]
ALTERED: Final = {
    Resource(ConfigResourceType.TOPIC, "altered-beside"): {"retention.ms": "86400000", "cleanup.policy": "compact"},
    Resource(ConfigResourceType.TOPIC, "altered-absent"): {"retention.ms": "1"},
    Resource(ConfigResourceType.TOPIC, "no name"): {"retention.ms": "1"},
    Resource(ConfigResourceType.BROKER, ""): {"log.retention.ms": "7200000"},
    Resource(ConfigResourceType.GROUP, "\u00fc/g"): {"consumer.session.timeout.ms": "47000"},
    Resource(ConfigResourceType.GROUP, "low"): {"consumer.session.timeout.ms": "1"},
    Resource(ConfigResourceType.GROUP, ""): {"consumer.session.timeout.ms": "47000"},
    Resource(ConfigResourceType.CLIENT_METRICS, "m x"): {"interval.ms": "2000", "metrics": "a.b,c"},
    Resource(ConfigResourceType.CLIENT_METRICS, "low"): {"interval.ms": "1"},
}
# The refusal of too many threads names the broker's current number, so that key is not altered here: a broker takes an
# alter in a moment after it is answered.
OWN: Final = [{"background.threads": "3"}, {"log.retention.ms": "x"}, {"num.io.threads": "300"}, {"node.id": "7"}]


async def test_all_ends_of_alters_are_those_of_the_admin_client(
    kraft: KraftCluster, client: KraftClient, kraft_class_path: str, tmp_path: Path
) -> None:
    """Checked alone, made, and made again, which has no effect; each with its code and its words."""
    bootstrap = kraft.bootstrap[0]
    broker = Resource(ConfigResourceType.BROKER, "1")

    def soon() -> float:
        return time.monotonic() + 60

    with Admin(tmp_path, class_path=kraft_class_path, bootstrap=bootstrap) as admin:
        await asyncio.to_thread(admin.create_topics, "altered-beside")
        codes: Counter[int] = Counter()
        for validate_only in (True, False, False):
            ends = await client.quota_alters.alter(ALTERED_QUOTAS, soon, validate_only=validate_only)
            theirs = await asyncio.to_thread(
                admin.alter_quotas,
                *((dict(name), _spelled_for_java(values)) for name, values in ALTERED_QUOTAS),
                validate_only=validate_only,
            )
            found = list(zip(map(_end, ends), map(_their_end, theirs), strict=True))
            configs = await client.config_alters().alter(list(ALTERED.items()), soon, validate_only=validate_only)
            own = [
                (await client.config_alters(1).alter([(broker, each)], soon, validate_only=validate_only))[0]
                for each in OWN
            ]
            asked = [*ALTERED.items(), *((broker, each) for each in OWN)]
            for (resource, values), end in zip(asked, [*configs, *own], strict=True):
                ops = [(key, "SET", value) for key, value in values.items()]
                outcome = await asyncio.to_thread(
                    admin.alter_configs, resource.type.name, resource.name, ops, validate_only=validate_only
                )
                found.append((_end(end), _their_end(outcome)))
            assert [ours for ours, _ in found] == [theirs for _, theirs in found]
            codes.update(code for (code, _), _ in found)
        assert {0, errors.UNKNOWN_TOPIC_OR_PARTITION, errors.INVALID_CONFIG, errors.INVALID_REQUEST} <= codes.keys()
        await client.quota_alters.alter([(name, dict.fromkeys(values)) for name, values in ALTERED_QUOTAS], soon)
        await client.config_alters().alter([(each, dict.fromkeys(ops)) for each, ops in ALTERED.items()], soon)
        await client.config_alters(1).alter([(broker, {"background.threads": None})], soon)
        await asyncio.to_thread(admin.delete_topic, "altered-beside")


def _spelled_for_java(values: dict[str, float | None]) -> list[tuple[str, float | str | None]]:
    return [(key, "NaN" if value is not None and math.isnan(value) else value) for key, value in values.items()]


def _end(end: AlterOutcome) -> tuple[int, str | None]:
    """Return the code of an end, and the words of the cluster."""
    assert isinstance(end, AlterApplied | AlterRefused), end
    return (0, None) if isinstance(end, AlterApplied) else (end.code, end.text)


def _their_end(outcome: Any) -> tuple[int, str | None]:
    return outcome["code"], outcome["message"] if outcome["code"] else None


def _sorted(items: list[Any]) -> list[Any]:
    return sorted(items, key=lambda item: json.dumps(item, sort_keys=True))


def _spelled(topic_id: bytes) -> str:
    return urlsafe_b64encode(topic_id).decode().rstrip("=")
