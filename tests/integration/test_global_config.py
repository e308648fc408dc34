"""KIP-5 over HTTP: the configs that all brokers share."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import pytest

from confplane.client import ProblemError

if TYPE_CHECKING:
    from kazoo.client import KazooClient

    from confplane.client import Answer
    from tests.support.facets import ConfplaneClient

NODE = "/config/brokers/<default>"


def pair(key: str, value: Any) -> dict[str, Any]:
    return {"configKey": key, "configValue": value}


async def change(client: ConfplaneClient, *pairs: dict[str, Any], **more: Any) -> Answer[Any]:
    return await client.request("POST", "global-config:change", json={"configData": list(pairs), **more})


async def refused(client: ConfplaneClient, *pairs: dict[str, Any]) -> dict[str, Any]:
    """The problem of a change, which must be refused and leave the node as it was."""
    with pytest.raises(ProblemError) as caught:
        await change(client, *pairs)
    body: dict[str, Any] = caught.value.body
    assert body["errorCode"] == body["kafkaErrorCode"]
    assert body["errorMessage"] == body["detail"]
    assert (body["revision"], body["diff"]) == (None, [])
    return body


async def shown(client: ConfplaneClient) -> dict[str, str | None]:
    body = (await client.request("GET", "global-config")).body
    return {item["configKey"]: item["configValue"] for item in body["configData"]}


def stored(zk: KazooClient) -> bytes:
    data: bytes = zk.get(NODE)[0]
    return data


async def test_a_change_is_merged_with_what_is_stored(client: ConfplaneClient, zk: KazooClient) -> None:
    nothing = (await client.request("GET", "global-config")).body
    assert nothing == {"configData": [], "revision": None, "warnings": []}
    first = await change(client, pair("message.max.bytes", "2000000"), pair("log.preallocate", "true"))
    assert stored(zk) == b'{"version":1,"config":{"message.max.bytes":"2000000","log.preallocate":"true"}}'
    second = await change(client, pair("log.preallocate", None), pair("num.replica.fetchers", "2"))
    assert stored(zk) == b'{"version":1,"config":{"message.max.bytes":"2000000","num.replica.fetchers":"2"}}'
    assert int(second.body["revision"]) > int(first.body["revision"])
    assert second.body["diff"] == [
        {"key": "log.preallocate", "before": "true", "after": None},
        {"key": "num.replica.fetchers", "before": None, "after": "2"},
    ]
    found = (await client.request("GET", "global-config")).body
    assert found["configData"] == [pair("message.max.bytes", "2000000"), pair("num.replica.fetchers", "2")]
    assert found["revision"] == second.body["revision"]
    newest = max(zk.get_children("/config/changes"))
    assert zk.get(f"/config/changes/{newest}")[0] == b'{"version":2,"entity_path":"brokers/<default>"}'
    trail = (await client.request("GET", f"audit/{second.body['changeId']}")).body
    assert (trail["outcome"], trail["entities"][0]["id"]) == ("committed", "broker")


async def test_validate_only_writes_nothing(client: ConfplaneClient, zk: KazooClient) -> None:
    await change(client, pair("log.preallocate", "true"))
    before = stored(zk)
    tried = (await change(client, pair("log.preallocate", "false"), validateOnly=True)).body
    assert (tried["errorCode"], tried["errorName"], tried["changeId"]) == (0, "NONE", None)
    assert tried["diff"] == [{"key": "log.preallocate", "before": "true", "after": "false"}]
    assert stored(zk) == before


async def test_the_same_again_is_no_change(client: ConfplaneClient) -> None:
    made = (await change(client, pair("background.threads", "11"))).body
    again = (await change(client, pair("background.threads", "11"), pair("log.roll.ms", None))).body
    assert (again["changeId"], again["revision"], again["diff"]) == (None, made["revision"], [])


async def test_what_stays_with_each_broker_is_refused_before_all_else(client: ConfplaneClient) -> None:
    key = "advertised.listeners"
    body = await refused(client, pair("log.preallocate", "perhaps"), pair(key, "1"), pair("no.such.key", "1"))
    assert (body["errorCode"], body["errorName"], body["status"]) == (42, "INVALID_REQUEST", 400)
    assert key in body["detail"]
    assert "stays in each broker's server.properties" in body["detail"]
    assert body["errors"][0]["pointer"] == "/configData/1"


async def test_what_never_should_have_been_there_can_be_removed(client: ConfplaneClient, zk: KazooClient) -> None:
    await change(client, pair("log.flush.interval.ms", "1000"))
    version = zk.get(NODE)[1].version
    config = json.loads(stored(zk))["config"]
    zk.set(NODE, json.dumps({"version": 1, "config": {**config, "listeners": "PLAINTEXT://:1"}}).encode(), version)
    zk.create("/config/changes/config_change_", b'{"version":2,"entity_path":"brokers/<default>"}', sequence=True)
    found = (await client.request("GET", "global-config", params={"consistency": "strong"})).body
    assert any("listeners" in warning for warning in found["warnings"])
    kept = (await change(client, pair("log.flush.interval.ms", "2000"))).body
    assert any("listeners" in warning for warning in kept["warnings"])
    await change(client, pair("listeners", None))
    assert json.loads(stored(zk))["config"] == {**config, "log.flush.interval.ms": "2000"}


async def test_custom_configs_are_kept_and_never_shown(client: ConfplaneClient, zk: KazooClient) -> None:
    made = await change(client, pair("my.plugin.url", "hidden-url"))
    assert b'"my.plugin.url":"hidden-url"' in stored(zk)
    assert (await shown(client))["my.plugin.url"] is None
    trail = await client.request("GET", f"audit/{made.body['changeId']}")
    assert "hidden-url" not in json.dumps([made.body, trail.body])


async def test_a_broken_node_is_reported_and_never_overwritten(client: ConfplaneClient, zk: KazooClient) -> None:
    await change(client, pair("log.cleaner.threads", "1"))
    sound = stored(zk)
    zk.set(NODE, b"{")
    zk.create("/config/changes/config_change_", b'{"version":2,"entity_path":"brokers/<default>"}', sequence=True)
    try:
        with pytest.raises(ProblemError) as caught:
            await client.request("GET", "global-config", params={"consistency": "strong"})
        assert (caught.value.status, caught.value.body["path"]) == (409, NODE)
        body = await refused(client, pair("log.cleaner.threads", "2"))
        assert (body["status"], body["path"]) == (409, NODE)
        assert stored(zk) == b"{"
    finally:
        zk.set(NODE, sound)
        zk.create("/config/changes/config_change_", b'{"version":2,"entity_path":"brokers/<default>"}', sequence=True)
