"""POST configs:describe: every topic and broker, what of it is shown, and what can't be described."""

from __future__ import annotations

import asyncio
import json
from typing import TYPE_CHECKING

import httpx
import pytest

from tests.support.configs import alter, describe, problem, resource
from tests.support.service import Service, ServiceInThread

if TYPE_CHECKING:
    from pathlib import Path

    from kazoo.client import KazooClient

    from tests.support.facets import ConfplaneClient
    from tests.support.servers import Database

pytestmark = pytest.mark.usefixtures("no_brokers")


async def test_describe_answers_all_configs(client: ConfplaneClient) -> None:
    await client.put("configs", "broker=5", {"log.retention.ms": "1000", "plugin.x": "hidden"})
    await client.put("configs", "broker", {"background.threads": "12"})
    answer = await describe(client, ("TOPIC", "plain"), (4, "5", []), ("BROKER", "", None), includeDocumentation=True)
    assert answer["throttleTimeMs"] == 0
    topic, broker, default = answer["results"]
    names = [item["name"] for item in topic["configs"]]
    assert names == sorted(names)
    assert {"retention.ms", "cleanup.policy", "min.insync.replicas"} <= set(names)
    found = {item["name"]: item for item in broker["configs"]}
    assert found["log.retention.ms"] == {
        "name": "log.retention.ms",
        "value": "1000",
        "configSource": "DYNAMIC_BROKER_CONFIG",
        "readOnly": False,
        "isSensitive": False,
        "configType": "LONG",
        "assumed": False,
        "synonyms": [],
        "documentation": found["log.retention.ms"]["documentation"],
    }
    # Kafka documents every config that it knows, read-only ones too.
    assert [name for name, item in found.items() if not item["documentation"]] == ["plugin.x"]
    assert found["background.threads"]["configSource"] == "DYNAMIC_DEFAULT_BROKER_CONFIG"
    assert found["plugin.x"] == {
        "name": "plugin.x",
        "value": None,
        "configSource": "DYNAMIC_BROKER_CONFIG",
        "readOnly": True,
        "isSensitive": True,
        "configType": "UNKNOWN",
        "assumed": False,
        "synonyms": [],
        "documentation": None,
    }
    assert found["broker.id"]["readOnly"] is True
    assert found["num.io.threads"]["assumed"] is True
    assert [(item["name"], item["value"]) for item in default["configs"]] == [("background.threads", "12")]
    assert "hidden" not in json.dumps(answer)


async def test_describe_of_some_keys(client: ConfplaneClient) -> None:
    answer = await describe(
        client,
        ("TOPIC", "keys", ["flush.ms", "nonsense", "retention.ms"]),
        (2, "keys-none", ["nonsense"]),
        ("TOPIC", "keys-one", ["flush.ms"]),
        includeSynonyms=True,
    )
    assert [[item["name"] for item in result["configs"]] for result in answer["results"]] == [
        ["flush.ms", "retention.ms"],
        [],
        ["flush.ms"],
    ]
    assert {item["documentation"] for result in answer["results"] for item in result["configs"]} == {None}
    assert await describe(client) == {"throttleTimeMs": 0, "results": []}


async def test_other_requests_are_served_during_a_large_describe(service: Service) -> None:
    brokers = [{"resourceType": "BROKER", "resourceName": str(number)} for number in range(100)]
    body = {"resources": brokers, "includeSynonyms": True}
    answered = 0
    async with httpx.AsyncClient(
        base_url=service.url, headers={"Authorization": f"Bearer {service.token}"}, timeout=600, trust_env=False
    ) as http:
        request = http.build_request("POST", "/v1/clusters/default/configs:describe", json=body)
        describing = asyncio.create_task(http.send(request, stream=True))  # done when the answer begins
        while not describing.done():
            assert (await http.get("/livez")).status_code == 200
            answered += 1
        response = await describing
        await response.aread()
    assert len(response.json()["results"]) == 100
    # One or two may be answered before the describe is read, and one after it.
    assert answered > 5


async def test_a_broken_znode(client: ConfplaneClient, zk: KazooClient) -> None:
    zk.create("/config/topics/broken", b"no JSON", makepath=True)
    zk.create("/config/changes/config_change_", b'{"version":2,"entity_path":"topics/broken"}', sequence=True)
    body = {"resources": [{"resourceType": "TOPIC", "resourceName": "broken"}]}
    refused = await problem(client.request("POST", "configs:describe", json=body, params={"consistency": "strong"}))
    assert refused.status == 409
    assert "/config/topics/broken" in refused.body["detail"]
    refused = await problem(alter(client, resource("TOPIC", "broken", ("flush.ms", "SET", "1"))))
    assert (refused.status, refused.body["path"]) == (409, "/config/topics/broken")
    assert zk.get("/config/topics/broken")[0] == b"no JSON"
    zk.set("/config/topics/broken", b'{"version":1,"config":{}}')
    zk.create("/config/changes/config_change_", b'{"version":2,"entity_path":"topics/broken"}', sequence=True)


async def test_topics_that_the_cluster_has_not(
    tmp_path: Path, chroot: str, raw_zk: KazooClient, migrated: Database
) -> None:
    raw_zk.create("/brokers/topics/here", b'{"partitions":{}}', makepath=True)
    change = ("flush.ms", "SET", "5")
    with ServiceInThread(tmp_path, connect=chroot, dsn=migrated.service_dsn) as service:
        async with service.client() as client:
            assert (await alter(client, resource("TOPIC", "here", change)))["failed"] == 0
            answer = await describe(client, ("TOPIC", "here"), ("TOPIC", "gone"))
            assert [item["errorCode"] for item in answer["results"]] == [0, 3]
            for call in (
                describe(client, ("TOPIC", "gone")),
                alter(client, resource("TOPIC", "gone", change)),
                alter(client, resource("TOPIC", "gone", change), validateOnly=True),
                client.put("configs", "topic=gone", {"flush.ms": "5"}),
                client.effective("configs", "topic=gone"),
            ):
                refused = await problem(call)
                assert (refused.status, refused.kafka_error_code) == (404, 3)
            assert raw_zk.exists("/config/topics/gone") is None
            # Topics come without a notification.
            raw_zk.create("/brokers/topics/gone", b'{"partitions":{}}')
            assert (await alter(client, resource("TOPIC", "gone", change)))["failed"] == 0
