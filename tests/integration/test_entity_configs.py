"""KIP-21 over HTTP: entities of every type in one request."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import pytest

from confplane.client import ProblemError
from tests.support.service import ServiceInThread

if TYPE_CHECKING:
    from pathlib import Path

    from kazoo.client import KazooClient

    from confplane.client import Answer
    from tests.support.facets import ConfplaneClient
    from tests.support.servers import Database


def entity(kind: str, name: str | None, *deleted: str, **added: Any) -> dict[str, Any]:
    """One entity of an alter; in the names of added keys ``__`` is a dot."""
    pairs = [{"configKey": key.replace("__", "."), "configValue": value} for key, value in added.items()]
    return {"entityType": kind, "entityName": name, "addedConfigs": pairs, "deletedConfigs": list(deleted)}


async def alter(client: ConfplaneClient, *entities: dict[str, Any], **more: Any) -> Answer[Any]:
    return await client.request("POST", "entity-configs:alter", json={"entities": list(entities), **more})


async def described(client: ConfplaneClient, kind: str, name: str | None) -> dict[str, str | None]:
    body = {"entities": [{"entityType": kind, "entityName": name}]}
    [found] = (await client.request("POST", "entity-configs:describe", json=body)).body["entities"]
    assert (found["entityType"], found["entityName"], found["errorCode"]) == (kind, name, 0)
    return {item["configKey"]: item["configValue"] for item in found["configEntries"]}


def config(zk: KazooClient, path: str) -> dict[str, str]:
    found: dict[str, str] = json.loads(zk.get(f"/config/{path}")[0])["config"]
    return found


async def test_several_entities_of_several_types(client: ConfplaneClient, zk: KazooClient) -> None:
    answer = await alter(
        client,
        entity("topics", "orders", retention__ms="1000", cleanup__policy="compact"),
        entity("clients", "billing", producer_byte_rate="1024", request_percentage="1e1"),
        entity("users", "CN=a b", consumer_byte_rate="9007199254740993"),
        entity("user", "carol", acks="all", session__timeout__ms="20000"),
        entity("brokers", "7", log__cleaner__threads="2"),
        entity("broker", None, message__max__bytes="2000000"),
        entity("ip", "10.0.0.1", connection_creation_rate="5"),
        entity("users", None, controller_mutation_rate="0.5"),
    )
    assert answer.status == 200
    results = answer.body["entities"]
    assert answer.body["failed"] == 0
    assert [(item["entityType"], item["entityName"]) for item in results[:2]] == [
        ("topics", "orders"),
        ("clients", "billing"),
    ]
    assert len({item["changeId"] for item in results}) == 8
    assert answer.revision == max(int(item["revision"]) for item in results)
    assert config(zk, "topics/orders") == {"retention.ms": "1000", "cleanup.policy": "compact"}
    assert config(zk, "clients/billing") == {"producer_byte_rate": "1024", "request_percentage": "10.0"}
    assert config(zk, "users/CN%3Da%20b") == {"consumer_byte_rate": "9007199254740993"}
    assert config(zk, "users/carol") == {"acks": "all", "session.timeout.ms": "20000"}
    assert config(zk, "brokers/7") == {"log.cleaner.threads": "2"}
    assert config(zk, "brokers/<default>")["message.max.bytes"] == "2000000"
    assert config(zk, "ips/10.0.0.1") == {"connection_creation_rate": "5"}
    assert config(zk, "users/<default>") == {"controller_mutation_rate": "0.5"}
    assert await described(client, "client-id", "billing") == {
        "producer_byte_rate": "1024",
        "request_percentage": "10.0",
    }
    assert await described(client, "user", None) == {"controller_mutation_rate": "0.5"}
    assert await described(client, "topic", "nothing-set") == {}


async def test_types_in_singular_and_plural(client: ConfplaneClient) -> None:
    names = dict.fromkeys(("topic", "user", "client-id", "client"), "spelled") | {"broker": "70", "ip": "10.1.1.1"}
    for kind, name in names.items():
        assert (await described(client, kind, name), await described(client, f"{kind}s", name)) == ({}, {})


async def test_quotas_and_client_configs_of_a_user_are_one_change(client: ConfplaneClient, zk: KazooClient) -> None:
    await alter(client, entity("user", None, producer_byte_rate="1000"))
    made = await alter(client, entity("user", "gina", acks="1", producer_byte_rate="5", session__timeout__ms="20000"))
    [result] = made.body["entities"]
    assert (result["changeId"], result["revision"]) == (made.change_id, str(made.revision))
    assert config(zk, "users/gina") == {"producer_byte_rate": "5", "acks": "1", "session.timeout.ms": "20000"}
    [row] = [item async for item in client.items("audit", entity="user=gina")]
    assert row["changeId"] == made.change_id
    answer = await alter(
        client, entity("users", "gina", "session.timeout.ms", "producer_byte_rate", "acks", consumer_byte_rate="7")
    )
    assert [tuple(each.values()) for each in answer.body["entities"][0]["fallbacks"]] == [
        ("session.timeout.ms", None, "DEFAULT_CONFIG"),
        ("producer_byte_rate", "1000", "user"),
        ("acks", None, "DEFAULT_CONFIG"),
    ]
    assert config(zk, "users/gina") == {"consumer_byte_rate": "7"}


async def test_one_entity_fails_and_the_rest_do_not(client: ConfplaneClient, zk: KazooClient) -> None:
    answer = await alter(
        client,
        entity("topic", "twice", retention__ms="1"),
        entity("topic", "mixed", retention__ms="1"),
        entity("topics", "twice", flush__ms="1"),
        entity("broker", "one", "log.preallocate"),
    )
    assert answer.status == 207
    assert answer.body["failed"] == 3
    names = [item["errorName"] for item in answer.body["entities"]]
    assert names == ["INVALID_REQUEST", "NONE", "INVALID_REQUEST", "INVALID_ENTITY"]
    assert zk.exists("/config/topics/twice") is None
    assert config(zk, "topics/mixed") == {"retention.ms": "1"}
    assert answer.change_id == answer.body["entities"][1]["changeId"]


async def test_deleted_keys_show_what_takes_over(client: ConfplaneClient) -> None:
    await alter(
        client,
        entity("topic", "falls", retention__ms="1", segment__bytes="20000000", flush__ms="3"),
        entity("broker", None, log__retention__ms="7200000", log__segment__bytes="30000000"),
        entity("broker", "71", log__segment__bytes="40000000", log__preallocate="true"),
        # The broker that topics are answered by: the one with the lowest id.
        entity("broker", "0", background__threads="11"),
        entity("user", "dora", producer_byte_rate="1", consumer_byte_rate="2"),
        entity("user", None, producer_byte_rate="1000"),
    )
    answer = await alter(
        client,
        entity("topic", "falls", "retention.ms", "segment.bytes", "flush.ms"),
        entity("broker", "71", "log.preallocate", "log.segment.bytes"),
        entity("broker", None, "log.segment.bytes"),
        entity("user", "dora", "producer_byte_rate", "consumer_byte_rate"),
        validateOnly=True,
    )

    def fallbacks(index: int) -> list[tuple[Any, ...]]:
        return [tuple(item.values()) for item in answer.body["entities"][index]["fallbacks"]]

    expected = [
        [
            ("retention.ms", "7200000", "DYNAMIC_DEFAULT_BROKER_CONFIG"),
            ("segment.bytes", "1073741824", "DEFAULT_CONFIG"),
            ("flush.ms", "9223372036854775807", "DEFAULT_CONFIG"),
        ],
        [
            ("log.preallocate", "false", "DEFAULT_CONFIG"),
            ("log.segment.bytes", "1073741824", "DEFAULT_CONFIG"),
        ],
        [("log.segment.bytes", "1073741824", "DEFAULT_CONFIG")],
        [("producer_byte_rate", "1000", "user"), ("consumer_byte_rate", None, "DEFAULT_CONFIG")],
    ]
    assert [fallbacks(index) for index in range(4)] == expected
    assert all(item["changeId"] is None for item in answer.body["entities"])
    assert "not known here" in " ".join(answer.body["entities"][1]["warnings"])
    assert (await described(client, "topic", "falls")).keys() == {"flush.ms", "retention.ms", "segment.bytes"}
    # The same in earnest, but for the brokers, so that they are what the topic's key falls back on.
    answer = await alter(
        client, entity("topic", "falls", "segment.bytes"), entity("user", "dora", "producer_byte_rate")
    )
    assert [fallbacks(index) for index in range(2)] == [
        [("segment.bytes", "30000000", "DYNAMIC_DEFAULT_BROKER_CONFIG")],
        [("producer_byte_rate", "1000", "user")],
    ]
    assert (await described(client, "topic", "falls")).keys() == {"flush.ms", "retention.ms"}


async def test_credentials_and_secrets_stay_and_are_not_shown(client: ConfplaneClient, zk: KazooClient) -> None:
    zk.create("/config/users/frank", b'{"version":1,"config":{"SCRAM-SHA-256":"hidden-1","producer_byte_rate":"1"}}')
    zk.create("/config/changes/config_change_", b'{"version":2,"entity_path":"users/frank"}', sequence=True)
    await alter(client, entity("broker", "72", my__plugin__url="hidden-2"))
    body = {"entities": [{"entityType": "user", "entityName": "frank"}, {"entityType": "broker", "entityName": "72"}]}
    answer = await client.request("POST", "entity-configs:describe", json=body, params={"consistency": "strong"})
    assert [item["configEntries"] for item in answer.body["entities"]] == [
        [{"configKey": "producer_byte_rate", "configValue": "1"}],
        [{"configKey": "my.plugin.url", "configValue": None}],
    ]
    changed = await alter(
        client, entity("user", "frank", "producer_byte_rate"), entity("broker", "72", "my.plugin.url")
    )
    assert config(zk, "users/frank") == {"SCRAM-SHA-256": "hidden-1"}
    assert config(zk, "brokers/72") == {}
    assert "hidden" not in json.dumps([answer.body, changed.body])


async def test_a_broken_node_fails_alone(client: ConfplaneClient, zk: KazooClient) -> None:
    zk.create("/config/users/broken", b"{")
    zk.create("/config/changes/config_change_", b'{"version":2,"entity_path":"users/broken"}', sequence=True)
    body = {"entities": [{"entityType": "user", "entityName": name} for name in ("broken", "sound")]}
    answer = await client.request("POST", "entity-configs:describe", json=body, params={"consistency": "strong"})
    assert answer.status == 207
    assert [item["errorCode"] for item in answer.body["entities"]] == [-1, 0]
    assert "/config/users/broken" in answer.body["entities"][0]["errorMessage"]


async def test_unknown_topics_and_the_separate_layout(
    tmp_path: Path, chroot: str, raw_zk: KazooClient, migrated: Database
) -> None:
    raw_zk.ensure_path("/brokers/topics/known")
    cluster = {"client_configs_layout": "separate"}
    with ServiceInThread(tmp_path, connect=chroot, dsn=migrated.service_dsn, cluster=cluster) as service:
        async with service.client() as client:
            answer = await alter(
                client,
                entity("topic", "known", retention__ms="1"),
                entity("topic", "unknown", retention__ms="1"),
                entity("user", "gina", acks="all"),
            )
            codes = [(item["errorCode"], item["errorName"]) for item in answer.body["entities"]]
            assert codes == [(0, "NONE"), (3, "UNKNOWN_TOPIC_OR_PARTITION"), (0, "NONE")]
            await alter(client, entity("user", "gina", producer_byte_rate="1"))
            assert config(raw_zk, "users/gina") == {"producer_byte_rate": "1"}
            assert raw_zk.get("/confplane/client-configs/users/gina")[0] == b'{"version":1,"config":{"acks":"all"}}'
            assert await described(client, "users", "gina") == {"acks": "all", "producer_byte_rate": "1"}
            with pytest.raises(ProblemError) as caught:
                await described(client, "topic", "unknown")
            assert (caught.value.status, caught.value.kafka_error_code) == (404, 3)
