"""POST configs:incrementalAlter: what is written and what is answered; malformed.txt has what is refused."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import pytest

from tests.support.configs import ALTER, alter, problem, resource

if TYPE_CHECKING:
    from kazoo.client import KazooClient

    from tests.support.facets import ConfplaneClient

pytestmark = pytest.mark.usefixtures("no_brokers")

HOUR = "3600000"


def notified(zk: KazooClient) -> bytes:
    newest = max(zk.get_children("/config/changes"))
    return bytes(zk.get(f"/config/changes/{newest}")[0])


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


@pytest.mark.parametrize("key", ["keystore", "truststore"])
async def test_a_path_that_is_set_again_is_not_sent_to_brokers_that_read_zookeeper(
    client: ConfplaneClient, zk: KazooClient, key: str
) -> None:
    name, path = f"listener.name.tls.ssl.{key}.location", "/etc/kafka/store.p12"
    await alter(client, resource("BROKER", "9", (name, "SET", path)))
    version = zk.get("/config/brokers/9")[1].version
    [again] = (await alter(client, resource("BROKER", "9", (name, "SET", path))))["responses"]
    assert (again["changeId"], again["diff"], zk.get("/config/brokers/9")[1].version) == (None, [], version)
    assert any("does not load the file again. Give the new file another name" in each for each in again["warnings"])


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


async def test_a_resource_that_is_named_twice(client: ConfplaneClient, zk: KazooClient) -> None:
    twice = resource("TOPIC", "twice", ("flush.ms", "SET", "1"))
    answer = await alter(
        client, twice, resource("TOPIC", "twice-2", ("flush.ms", "SET", "1")), {**twice, "resourceType": 2}
    )
    assert [item["errorCode"] for item in answer["responses"]] == [42, 0, 42]
    assert answer["responses"][2]["errors"][0]["pointer"] == "/resources/2/resourceName"
    assert zk.exists("/config/topics/twice") is None


async def test_what_is_rarely_meant_is_stored_with_a_warning(client: ConfplaneClient, zk: KazooClient) -> None:
    answer = await alter(
        client,
        resource("BROKER", "7", ("num.io.thread", "SET", "8"), ("retention.ms", "SET", "1")),
        resource("BROKER", "", ("my.plugin.setting", "SET", "1")),
        resource("TOPIC", "warned", ("cleanup.policy", "SET", "delete, delete,compact")),
        resource("BROKER", "8", ("listener.name.x.ssl.cipher.suites", "SET", "a,b,a")),
    )
    assert [each["errorCode"] for each in answer["responses"]] == [0, 0, 0, 0], answer
    first, second, third, fourth = answer["responses"]
    assert [each.partition(" It is stored")[0] for each in first["warnings"]] == [
        "No broker config of Kafka 3.9 has the name num.io.thread; did you mean num.io.threads?",
        (
            "No broker config of Kafka 3.9 has the name retention.ms; it is a topic config, and that of brokers is"
            " log.retention.ms."
        ),
    ]
    assert second["warnings"][0].startswith(
        "No broker config of Kafka 3.9 has the name my.plugin.setting. It is stored"
    )
    assert third["warnings"] == ["cleanup.policy is stored without repeated elements: delete"]
    assert fourth["warnings"] == ["listener.name.x.ssl.cipher.suites is stored without repeated elements: a"]
    assert json.loads(zk.get("/config/topics/warned")[0])["config"] == {"cleanup.policy": "delete,compact"}
    # The same again is no change, although the request repeats the element.
    again = await alter(client, resource("TOPIC", "warned", ("cleanup.policy", "SET", "delete, delete,compact")))
    assert again["responses"][0]["diff"] == []


@pytest.mark.parametrize(
    ("collection", "entity", "before", "after", "gone"),
    [
        ("configs", "topic=removed", {"retention.ms": "1", "flush.ms": "2"}, {"retention.ms": "1"}, "flush.ms"),
        ("client-quotas", "user=removed", {"producer_byte_rate": 1, "request_percentage": 2}, {"producer_byte_rate": 1},
         "request_percentage"),
        ("client-configs", "user=removed", {"acks": "1", "session.timeout.ms": "20000"}, {"acks": "all"},
         "session.timeout.ms"),
    ],
)  # fmt: skip
async def test_a_put_that_removes_keys_names_them_unless_it_is_conditional(
    client: ConfplaneClient, collection: str, entity: str, before: dict[str, Any], after: dict[str, Any], gone: str
) -> None:
    member = "quotas" if collection == "client-quotas" else "configs"

    async def warnings(values: dict[str, Any], **headers: str) -> list[str]:
        answer = await client.request(
            "PUT", f"{collection}/{entity}", json={member: values}, params={"view": "full"}, headers=headers
        )
        return [each for each in answer.body["status"]["warnings"] if each.startswith("Removed")]

    etag = (await client.put(collection, entity, before)).etag
    assert etag is not None
    assert await warnings(after, **{"If-Match": etag}) == []
    assert await warnings(before) == []
    assert await warnings(after) == [
        f"Removed, because the request does not name them: {gone}. If-Match protects keys added in the meantime"
    ]
