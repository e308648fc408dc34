"""Topics and brokers over HTTP: describe, incrementalAlter and the resources, on real servers."""

from __future__ import annotations

import asyncio
import json
from typing import TYPE_CHECKING, Any

import httpx
import pytest
import pytest_asyncio

from app.audit.migrate import upgrade
from app.client import ProblemError
from app.devstack.postgres import SERVICE
from app.domain.entities import Entity
from tests.support.service import Service

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Awaitable
    from pathlib import Path

    from kazoo.client import KazooClient

    from app.client import ConfplaneClient
    from tests.support.servers import Database

HOUR = "3600000"
ALTER = "configs:incrementalAlter"


@pytest_asyncio.fixture(autouse=True)
async def _no_brokers(client: ConfplaneClient) -> AsyncIterator[None]:
    """What a test leaves on the brokers would be in force for the topics of the next."""
    yield
    async for item in client.items("configs", kind="broker"):
        await client.delete("configs", item["id"])


async def problem(call: Awaitable[Any]) -> ProblemError:
    with pytest.raises(ProblemError) as caught:
        await call
    return caught.value


def resource(kind: int | str, name: str, *ops: tuple[Any, ...], **more: Any) -> dict[str, Any]:
    """A resource of an alter: its ops are ``(name, operation, value)``, the value left out where there is none."""
    members = ("name", "configOperation", "value")
    return {
        "resourceType": kind,
        "resourceName": name,
        "configs": [dict(zip(members, op, strict=False)) for op in ops],
        **more,
    }


async def alter(client: ConfplaneClient, *resources: dict[str, Any], **members: Any) -> Any:
    return (await client.request("POST", ALTER, json={"resources": list(resources), **members})).body


async def describe(client: ConfplaneClient, *resources: tuple[Any, ...], **members: Any) -> Any:
    names = ("resourceType", "resourceName", "configurationKeys")
    body = {"resources": [dict(zip(names, item, strict=False)) for item in resources], **members}
    return (await client.request("POST", "configs:describe", json=body)).body


def notified(zk: KazooClient) -> bytes:
    newest = max(zk.get_children("/config/changes"))
    return bytes(zk.get(f"/config/changes/{newest}")[0])


# ---------------------------------------------------------------- incrementalAlter


async def test_znodes_and_notifications_are_kafkas(client: ConfplaneClient, zk: KazooClient) -> None:
    for kind, name, path, key, value in (
        ("TOPIC", "znode.A_1-x", "topics/znode.A_1-x", "retention.ms", "1000"),
        (4, "7", "brokers/7", "log.retention.ms", "-1"),
        ("BROKER", "", "brokers/<default>", "log.cleaner.io.max.bytes.per.second", "1.0E7"),
        (2, "quoted", "topics/quoted", "follower.replication.throttled.replicas", "*"),
        ("BROKER", "8", "brokers/8", "sasl.kerberos.kinit.cmd", 'a "b" \\ é'),
    ):
        answer = await alter(client, resource(kind, name, (key, "SET", value)))
        assert answer["failed"] == 0
        stored = value.replace("\\", "\\\\").replace('"', '\\"')
        assert zk.get(f"/config/{path}")[0].decode() == f'{{"version":1,"config":{{"{key}":"{stored}"}}}}'
        assert notified(zk) == f'{{"version":2,"entity_path":"{path}"}}'.encode()
        await alter(client, resource(kind, name, (key, "DELETE")))
        assert zk.get(f"/config/{path}")[0] == b'{"version":1,"config":{}}'


async def test_ops_on_lists(client: ConfplaneClient, zk: KazooClient) -> None:
    def stored() -> Any:
        return json.loads(zk.get("/config/topics/lists")[0])["config"]

    # Where nothing is stored, Kafka's default is what is appended to.
    await alter(client, resource("TOPIC", "lists", ("cleanup.policy", 2, "compact")))
    assert stored() == {"cleanup.policy": "delete,compact"}
    answer = await alter(client, resource("TOPIC", "lists", ("cleanup.policy", "APPEND", "compact")))
    assert answer["responses"][0]["diff"] == []
    assert answer["responses"][0]["changeId"] is None
    await alter(client, resource("TOPIC", "lists", ("cleanup.policy", 3, "delete,compact")))
    assert stored() == {"cleanup.policy": ""}
    await alter(
        client,
        resource(
            "TOPIC",
            "lists",
            ("cleanup.policy", 1, "not looked at"),
            ("leader.replication.throttled.replicas", "APPEND", "0:1,1:2"),
            ("flush.ms", 0, "5"),
        ),
    )
    assert stored() == {"leader.replication.throttled.replicas": "0:1,1:2", "flush.ms": "5"}


async def test_each_resource_has_its_result(client: ConfplaneClient, zk: KazooClient) -> None:
    await client.put("configs", "topic=each-1", {"retention.ms": HOUR})
    answer = await alter(
        client,
        resource("TOPIC", "each-1", ("retention.ms", "SET", "1"), ("flush.ms", "SET", "9")),
        resource("TOPIC", "each-2", ("retention.ms", "SET", HOUR), ("flush.ms", "SET", "soon")),
        resource("BROKER", "", ("plugin.x", "SET", "1")),
        resource(99, "each-3"),
    )
    assert answer["failed"] == 2
    first, second, third, fourth = answer["responses"]
    assert {key: first[key] for key in ("errorCode", "errorName", "errorMessage", "resourceType", "resourceName")} == {
        "errorCode": 0,
        "errorName": "NONE",
        "errorMessage": None,
        "resourceType": "TOPIC",
        "resourceName": "each-1",
    }
    assert first["diff"] == [
        {"key": "flush.ms", "before": None, "after": "9"},
        {"key": "retention.ms", "before": HOUR, "after": "1"},
    ]
    assert first["revision"] is not None
    assert second["errorCode"] == 40
    assert second["errors"][0]["pointer"] == "/resources/1/configs/1/value"
    assert second["outcome"] == "not_applied"
    # What nobody knows the type of is hidden, as Kafka's describe has it.
    assert third["diff"] == [{"key": "plugin.x", "before": None, "after": None, "secret": True}]
    assert (fourth["errorCode"], fourth["resourceType"]) == (42, 99)
    assert fourth["errors"][0]["pointer"] == "/resources/3/resourceType"
    assert zk.exists("/config/topics/each-2") is None


async def test_atomic_and_validate_only(client: ConfplaneClient, zk: KazooClient) -> None:
    good = resource("TOPIC", "atomic-1", ("retention.ms", "SET", HOUR))
    refused = await problem(alter(client, good, resource(2, "atomic-2", ("nonsense", "SET", "1")), atomic=True))
    assert (refused.status, refused.kafka_error_code, refused.outcome) == (422, 40, "not_applied")
    assert [item["errorCode"] for item in refused.body["responses"]] == [55, 40]
    assert zk.exists("/config/topics/atomic-1") is None
    tried = await alter(client, good, validateOnly=True)
    assert tried["responses"][0]["diff"] == [{"key": "retention.ms", "before": None, "after": HOUR}]
    assert tried["responses"][0]["changeId"] is None
    assert zk.exists("/config/topics/atomic-1") is None
    done = await client.request(
        "POST",
        ALTER,
        json={"resources": [good, resource("BROKER", "3", ("log.flush.interval.ms", 0, "7"))], "atomic": True},
        params={"reason": "both"},
    )
    assert {item["changeId"] for item in done.body["responses"]} == {done.change_id}
    assert len({item["revision"] for item in done.body["responses"]}) == 1
    trail = (await client.request("GET", f"audit/{done.change_id}")).body
    assert trail["reason"] == "both"
    assert [(item["id"], item["facet"], item["ops"], item["after"]) for item in trail["entities"]] == [
        (
            "topic=atomic-1",
            "configs",
            [{"key": "retention.ms", "op": "SET", "value": HOUR}],
            {"retention.ms": HOUR},
        ),
        (
            "broker=3",
            "configs",
            [{"key": "log.flush.interval.ms", "op": "SET", "value": "7"}],
            {"log.flush.interval.ms": "7"},
        ),
    ]


async def test_an_etag_guards_one_resource(client: ConfplaneClient) -> None:
    etag = (await client.put("configs", "topic=tagged", {"retention.ms": HOUR})).etag
    change = resource("TOPIC", "tagged", ("retention.ms", "SET", "2"), etag=etag)
    assert (await alter(client, change))["failed"] == 0
    stale = await problem(alter(client, {**change, "configs": [{**change["configs"][0], "value": "3"}]}))
    assert stale.status == 412
    assert stale.body["responses"][0]["etag"] == (await client.get("configs", "topic=tagged")).etag
    assert stale.body["errors"][0]["pointer"] == "/resources/0/etag"


ONE = "/resources/0"
VALUE = f"{ONE}/configs/0/value"


@pytest.mark.parametrize(
    ("given", "status", "code", "pointer", "words"),
    [
        (resource("GROUP", "g"), 400, 42, f"{ONE}/resourceType", "Unknown resource type GROUP"),
        (resource(0, "g"), 400, 42, f"{ONE}/resourceType", "Unknown resource type 0"),
        (resource("topic", "t"), 400, 42, f"{ONE}/resourceType", "TOPIC (2)"),
        (resource("BROKER_LOGGER", "0"), 400, 42, f"{ONE}/resourceType", "BROKER_LOGGER"),
        (resource(16, "m"), 400, 42, f"{ONE}/resourceType", "CLIENT_METRICS"),
        (resource("TOPIC", ""), 400, 42, f"{ONE}/resourceName", "Default topic resources are not allowed."),
        (resource("TOPIC", ".."), 404, 3, f"{ONE}/resourceName", "no such topic"),
        (resource("TOPIC", "a/b"), 404, 3, f"{ONE}/resourceName", "no such topic"),
        (resource("TOPIC", "t" * 250), 404, 3, f"{ONE}/resourceName", "no such topic"),
        (resource("BROKER", "one"), 400, 42, f"{ONE}/resourceName", "'one'"),
        (resource("BROKER", "00"), 400, 42, f"{ONE}/resourceName", "'00'"),
        (resource("BROKER", "-1"), 400, 42, f"{ONE}/resourceName", "'-1'"),
        (resource("BROKER", "2147483648"), 400, 42, f"{ONE}/resourceName", "whole number"),
        (resource("TOPIC", "t", ("flush.ms", "PUT", "1")), 400, 42, f"{ONE}/configs/0/configOperation", "SUBTRACT (3)"),
        (resource("TOPIC", "t", ("flush.ms", 4, "1")), 400, 42, f"{ONE}/configs/0/configOperation", "operation 4"),
        (resource("TOPIC", "t", ("flush.ms", "SET")), 400, 42, f"{ONE}/configs/0", "Null value not supported for"),
        (resource("TOPIC", "t", ("flush.ms", "APPEND", None)), 400, 42, f"{ONE}/configs/0", "Null value"),
        (
            resource("TOPIC", "t", ("flush.ms", "SET", "1"), ("flush.ms", "DELETE")),
            400,
            42,
            f"{ONE}/configs/1",
            "duplicate config keys",
        ),
        (resource("TOPIC", "t", ("nonsense", "SET", "1")), 422, 40, VALUE, "Unknown topic config name: nonsense"),
        (resource("TOPIC", "t", ("log.retention.ms", "SET", "1")), 422, 40, VALUE, "Unknown topic config name"),
        (resource("TOPIC", "t", ("flush.ms", "SET", "-1")), 422, 40, VALUE, "flush.ms"),
        (resource("TOPIC", "t", ("flush.ms", "APPEND", "1")), 422, 40, VALUE, "append is not allowed"),
        (resource("TOPIC", "t", ("nonsense", "SUBTRACT", "1")), 422, 40, VALUE, "Unknown config name: nonsense"),
        (
            resource("TOPIC", "t", ("min.compaction.lag.ms", "SET", "2"), ("max.compaction.lag.ms", "SET", "1")),
            422,
            40,
            VALUE,
            "max.compaction.lag.ms",
        ),
        (resource("BROKER", "0", ("num.partitions", "SET", "1")), 400, 42, VALUE, "Cannot update these configs dynam"),
        (resource("BROKER", "0", ("ssl.keystore.type", "SET", "JKS")), 400, 42, VALUE, "listener prefix"),
        (resource("BROKER", "", ("listeners", "SET", "A://:1")), 400, 42, VALUE, "at default cluster level"),
        (resource("BROKER", "0", ("log.retention.ms", "SET", "x")), 400, 42, VALUE, "log.retention.ms"),
        (resource("BROKER", "0", ("plugin.x", "APPEND", "x")), 422, 40, VALUE, "Unknown config name"),
        (resource("TOPIC", "t", etag="abc"), 400, 42, f"{ONE}/etag", "ETag"),
    ],
)
async def test_what_is_refused(
    client: ConfplaneClient,
    zk: KazooClient,
    given: dict[str, Any],
    status: int,
    code: int,
    pointer: str,
    words: str,
) -> None:
    refused = await problem(alter(client, given))
    assert (refused.status, refused.kafka_error_code) == (status, code)
    assert [part["pointer"] for part in refused.body["errors"]] == [pointer]
    assert words in refused.body["detail"]
    assert refused.body["failed"] == 1
    assert refused.body["responses"][0]["errorCode"] == code
    assert zk.exists("/config/topics/t") is None
    assert zk.exists("/config/brokers/0") is None


async def test_a_resource_that_is_named_twice(client: ConfplaneClient, zk: KazooClient) -> None:
    twice = resource("TOPIC", "twice", ("flush.ms", "SET", "1"))
    answer = await alter(
        client, twice, resource("TOPIC", "twice-2", ("flush.ms", "SET", "1")), {**twice, "resourceType": 2}
    )
    assert [item["errorCode"] for item in answer["responses"]] == [42, 0, 42]
    assert answer["responses"][2]["errors"][0]["pointer"] == "/resources/2/resourceName"
    assert zk.exists("/config/topics/twice") is None


# ---------------------------------------------------------------- describe


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
    assert found["log.retention.ms"]["documentation"]
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
        (2, "keys", ["nonsense"]),
        ("TOPIC", "keys", ["flush.ms"]),
        includeSynonyms=True,
    )
    assert [[item["name"] for item in result["configs"]] for result in answer["results"]] == [
        ["flush.ms", "retention.ms"],
        [],
        ["flush.ms"],
    ]
    assert {item["documentation"] for result in answer["results"] for item in result["configs"]} == {None}
    assert await describe(client) == {"throttleTimeMs": 0, "results": []}


@pytest.mark.parametrize(
    ("kind", "name", "status", "code", "member", "words"),
    [
        (8, "0", 400, 42, "resourceType", "BROKER_LOGGER resources are not kept"),
        ("CLIENT_METRICS", "m", 400, 42, "resourceType", "CLIENT_METRICS resources are not kept"),
        ("TOPIC", "", 400, 42, "resourceName", "Default topic resources are not allowed."),
        ("TOPIC", "a b", 400, 17, "resourceName", "a-z A-Z 0-9"),
        ("TOPIC", ".", 400, 17, "resourceName", "can't be named"),
        ("TOPIC", "t" * 250, 400, 17, "resourceName", "249"),
        ("BROKER", "x", 400, 42, "resourceName", "'x'"),
    ],
)
async def test_what_can_not_be_described(
    client: ConfplaneClient, kind: int | str, name: str, status: int, code: int, member: str, words: str
) -> None:
    alone = await problem(describe(client, (kind, name)))
    assert (alone.status, alone.kafka_error_code) == (status, code)
    assert alone.body["errors"][0]["pointer"] == f"/resources/0/{member}"
    assert words in alone.body["detail"]
    answer = await describe(client, ("TOPIC", "good"), (kind, name))
    good, bad = answer["results"]
    assert good["errorCode"] == 0
    assert (bad["errorCode"], bad["configs"], bad["resourceName"]) == (code, [], name)
    assert bad["errors"][0]["pointer"] == f"/resources/1/{member}"


async def test_an_unknown_type_fails_a_describe_as_a_whole(client: ConfplaneClient) -> None:
    for kind in (3, 0, "USER", "topic"):
        whole = await problem(describe(client, ("TOPIC", "good"), (kind, "x")))
        assert (whole.status, whole.kafka_error_code) == (400, 42)
        assert whole.body["errors"][0]["pointer"] == "/resources/1/resourceType"
        assert "results" not in whole.body


async def test_others_are_served_during_a_large_describe(service: Service) -> None:
    body = {"resources": [{"resourceType": "BROKER", "resourceName": "1"}] * 500, "includeSynonyms": True}
    started = asyncio.Event()
    answered = 0

    async def poll(http: httpx.AsyncClient, done: asyncio.Task[httpx.Response]) -> None:
        nonlocal answered
        while not done.done():
            assert (await http.get("/livez")).status_code == 200
            # From here on it is under way; an answer before it was read at all would prove nothing.
            answered += started.is_set()

    async with httpx.AsyncClient(
        base_url=service.url, headers={"Authorization": f"Bearer {service.token}"}, timeout=120, trust_env=False
    ) as http:
        request = http.build_request("POST", "/v1/clusters/default/configs:describe", json=body)
        describing = asyncio.create_task(http.send(request, stream=True))
        asyncio.get_running_loop().call_later(0.2, started.set)
        await poll(http, describing)
        response = await describing
        assert len((await response.aread()) and response.json()["results"]) == 500
    assert answered >= 3


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


# ---------------------------------------------------------------- resources


async def test_a_topic_as_a_resource(client: ConfplaneClient, zk: KazooClient) -> None:
    orders = Entity.of(topic="orders")
    created = await client.create("configs", orders, {"retention.ms": HOUR, "cleanup.policy": "compact"})
    assert created.status == 201
    assert created.body == {"id": "topic=orders", "configs": {"cleanup.policy": "compact", "retention.ms": HOUR}}
    assert (await client.get("configs", orders)).body == created.body
    assert (await client.get("configs", orders, if_none_match=created.etag)).status == 304
    replaced = await client.put("configs", orders, {"flush.ms": "5"}, if_match=created.etag)
    assert zk.get("/config/topics/orders")[0] == b'{"version":1,"config":{"flush.ms":"5"}}'
    assert replaced.etag != created.etag
    assert (await problem(client.put("configs", orders, {"flush.ms": "6"}, if_match=created.etag))).status == 412
    assert (await client.delete("configs", orders)).body == {"id": "topic=orders"}
    assert zk.get("/config/topics/orders")[0] == b'{"version":1,"config":{}}'
    assert (await problem(client.get("configs", orders))).status == 404


async def test_effective_is_polled(client: ConfplaneClient) -> None:
    first = await client.effective("configs", "broker=9")
    url = "configs/broker=9/effective"
    again = await client.request("GET", url, headers={"If-None-Match": str(first.etag)})
    assert again.status == 304
    await client.put("configs", "broker", {"background.threads": "11"})
    changed = await client.request("GET", url, headers={"If-None-Match": str(first.etag)})
    assert changed.status == 200
    found = next(item for item in changed.body["configs"] if item["key"] == "background.threads")
    assert found == {
        "key": "background.threads",
        "value": "11",
        "source": "DYNAMIC_DEFAULT_BROKER_CONFIG",
        "readOnly": False,
        "isSensitive": False,
        "configType": "INT",
        "assumed": False,
        "synonyms": [
            {"name": "background.threads", "value": "11", "source": "DYNAMIC_DEFAULT_BROKER_CONFIG"},
            {"name": "background.threads", "value": "10", "source": "DEFAULT_CONFIG"},
        ],
    }
    assert changed.body["entity"] == {"broker": "9"}
    for entity in ("user=a", "topic"):
        assert (await problem(client.effective("configs", entity))).status == 400


async def test_lists(client: ConfplaneClient) -> None:
    topics = [f"topic=list-{number}" for number in range(5)]
    for entity in (*topics, "broker=40", "broker=4", "broker"):
        is_topic = entity.startswith("topic")
        await client.put("configs", entity, {"flush.ms" if is_topic else "background.threads": "5"})

    async def ids(collection: str = "configs", **filters: str) -> list[str]:
        return [item["id"] async for item in client.items(collection, **filters)]

    assert await ids(kind="broker") == ["broker", "broker=4", "broker=40"]
    assert await ids(kind="broker", pageSize="1") == ["broker", "broker=4", "broker=40"]
    assert await ids(broker="4") == ["broker=4"]
    assert await ids(broker="") == ["broker"]
    assert await ids(broker="5") == []
    assert await ids(topic="list-3") == ["topic=list-3"]
    assert await ids(topic="a/b c") == []
    assert await ids(topic="list-3", broker="4") == []
    assert await ids(topic="list-3", key="retention.ms") == []
    assert await ids(id="topic=list-1") == ["topic=list-1"]
    assert set(topics) <= set(await ids(kind="topic", pageSize="2", key="flush.ms"))
    assert await ids(kind="topic", key="background.threads") == []
    assert await ids(user="list-3") == []
    everything = await ids(pageSize="2")
    assert everything == sorted(everything)
    assert {"broker", *topics} <= set(everything)
    for collection in ("client-quotas", "client-configs"):
        for filters in ({"topic": "list-3"}, {"broker": "4"}, {"id": "broker"}, {"kind": "topic"}):
            assert await ids(collection, **filters) == []
    full = await client.request("GET", "configs", params={"broker": "4", "view": "full"})
    assert full.body["items"][0]["entity"] == {"broker": "4"}
    assert full.body["items"][0]["status"]["fingerprints"] == {}


@pytest.mark.parametrize(
    ("entity", "configs", "status", "code", "pointer"),
    [
        ("topic=t", {"retention.ms": 5}, 400, 42, "/configs/retention.ms"),
        ("topic=t", {"retention.ms": None}, 400, 42, "/configs/retention.ms"),
        ("topic=t", {"no~such/key": "1"}, 422, 40, "/configs/no~0such~1key"),
        ("topic=t", {}, 400, 42, "/configs"),
        ("broker=0", {"broker.id": "1"}, 400, 42, "/configs/broker.id"),
        ("broker=0", {"plugin.x": None}, 400, 42, "/configs/plugin.x"),
        ("broker", {"listener.name.x.sasl.jaas.config": "x"}, 400, 42, "/configs/listener.name.x.sasl.jaas.config"),
        ("user=a", {"acks": "1"}, 400, 42, None),
        ("topic", {"flush.ms": "1"}, 400, 42, None),
    ],
)
async def test_what_resources_refuse(
    client: ConfplaneClient, entity: str, configs: dict[str, Any], status: int, code: int, pointer: str | None
) -> None:
    refused = await problem(client.put("configs", entity, configs))
    assert (refused.status, refused.kafka_error_code) == (status, code)
    assert [part["pointer"] for part in refused.body["errors"]] == ([] if pointer is None else [pointer])


# ---------------------------------------------------------------- topics of the cluster's metadata


async def test_topics_that_the_cluster_has_not(
    tmp_path: Path, chroot: str, raw_zk: KazooClient, database: Database
) -> None:
    upgrade(database.owner_dsn, SERVICE)
    raw_zk.create("/brokers/topics/here", b'{"partitions":{}}', makepath=True)
    change = ("flush.ms", "SET", "5")
    with Service(tmp_path, connect=chroot, dsn=database.service_dsn) as service:
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
