"""Effective configs of topics and brokers, over all levels: topic, broker, default of all brokers, file, Kafka's own."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import pytest

from confplane.client import ProblemError
from tests.support.configs import alter, resource

if TYPE_CHECKING:
    from kazoo.client import KazooClient

    from tests.support.facets import ConfplaneClient

pytestmark = pytest.mark.usefixtures("no_brokers")

PREFIXED = "listener.name.external.ssl.keystore.type"
FILES = {
    # The topics' values come from the broker with the lowest id.
    "0": "log.retention.hours=2\nnum.io.threads=6\nlog.roll.hours=1\n",
    "1": f"log.retention.hours=2\nlog.retention.ms=1000\n{PREFIXED}=PEM\nssl.keystore.type=JKS\n"
    "ssl.key.password=hidden-in-a-file\n",
}
TOPIC, BROKER, DEFAULT = "DYNAMIC_TOPIC_CONFIG", "DYNAMIC_BROKER_CONFIG", "DYNAMIC_DEFAULT_BROKER_CONFIG"
STATIC, KAFKA = "STATIC_BROKER_CONFIG", "DEFAULT_CONFIG"


@pytest.fixture(scope="module")
def service_options(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    """A service that knows the files of two brokers."""
    directory = tmp_path_factory.mktemp("files")
    files = {}
    for broker, text in FILES.items():
        path = directory / f"server-{broker}.properties"
        path.write_text(text)
        files[broker] = str(path)
    return {"cluster": {"server_properties": files}}


async def found(client: ConfplaneClient, entity: str, key: str) -> tuple[Any, Any, list[tuple[Any, ...]]]:
    """Return a config's value, source and synonyms, the same by both ways to ask."""
    effective = await client.effective("configs", entity)
    item = next(item for item in effective.body["configs"] if item["key"] == key)
    kind, _, name = entity.partition("=")
    body = {
        "resources": [{"resourceType": kind.upper(), "resourceName": name, "configurationKeys": [key]}],
        "includeSynonyms": True,
    }
    (result,) = (await client.request("POST", "configs:describe", json=body)).body["results"]
    (described,) = result["configs"]
    assert {**described, "key": key, "source": described["configSource"]}.items() >= {
        name: value for name, value in item.items() if name != "synonyms"
    }.items()
    assert described["synonyms"] == item["synonyms"]
    assert result["warnings"] == effective.body["warnings"]
    return item["value"], item["source"], [(each["name"], each["value"], each["source"]) for each in item["synonyms"]]


async def test_a_topics_retention_at_all_five_levels(client: ConfplaneClient) -> None:
    await client.put("configs", "topic=five", {"retention.ms": "1000"})
    await client.put("configs", "broker=0", {"log.retention.ms": "2000"})
    await client.put("configs", "broker", {"log.retention.ms": "3000"})
    levels = [
        ("retention.ms", "1000", TOPIC),
        ("log.retention.ms", "2000", BROKER),
        ("log.retention.ms", "3000", DEFAULT),
        ("log.retention.hours", "2", STATIC),
        ("log.retention.hours", "168", KAFKA),
    ]
    assert await found(client, "topic=five", "retention.ms") == ("1000", TOPIC, levels)
    await client.delete("configs", "topic=five")
    assert await found(client, "topic=five", "retention.ms") == ("2000", BROKER, levels[1:])
    await client.delete("configs", "broker=0")
    assert await found(client, "topic=five", "retention.ms") == ("3000", DEFAULT, levels[2:])
    await client.delete("configs", "broker")
    # Two hours in milliseconds. The hours lead no list of a config that is called something else.
    assert await found(client, "topic=five", "retention.ms") == ("7200000", KAFKA, [])
    assert await found(client, "topic=five", "segment.ms") == ("3600000", KAFKA, [])


async def test_a_brokers_own_value_goes_before_the_default(client: ConfplaneClient, zk: KazooClient) -> None:
    key = "background.threads"
    await client.put("configs", "broker", {key: "12"})
    levels = [(key, "12", DEFAULT), (key, "10", KAFKA)]
    assert await found(client, "broker=0", key) == ("12", DEFAULT, levels)
    await client.put("configs", "broker=0", {key: "14"})
    assert await found(client, "broker=0", key) == ("14", BROKER, [(key, "14", BROKER), *levels])
    assert await found(client, "broker=1", key) == ("12", DEFAULT, levels)
    # The default alone is what is set there; nothing below it counts.
    assert await found(client, "broker", key) == ("12", DEFAULT, levels[:1])
    assert [item["key"] for item in (await client.effective("configs", "broker")).body["configs"]] == [key]
    await client.delete("configs", "broker=0")
    assert zk.get("/config/brokers/0")[0] == b'{"version":1,"config":{}}'
    assert (await found(client, "broker=0", key))[:2] == ("12", DEFAULT)


async def test_secrets_of_files_are_not_shown(client: ConfplaneClient) -> None:
    body = (await client.effective("configs", "broker=1")).body
    item = next(item for item in body["configs"] if item["key"] == "ssl.key.password")
    assert (item["value"], item["source"], item["isSensitive"]) == (None, STATIC, True)
    assert item["synonyms"] == [{"name": "ssl.key.password", "value": None, "source": STATIC}]
    assert "hidden" not in json.dumps(body)


async def test_entries_that_brokers_leave_out(client: ConfplaneClient, zk: KazooClient) -> None:
    config = {
        "num.partitions": "9",
        "log.flush.interval.ms": "soon",
        "ssl.keystore.type": "PEM",
        "background.threads": "7",
    }
    zk.create("/config/brokers/30", json.dumps({"version": 1, "config": config}).encode(), makepath=True)
    zk.create("/config/changes/config_change_", b'{"version":2,"entity_path":"brokers/30"}', sequence=True)
    await client.get("configs", "broker=30", strong=True)
    body = (await client.effective("configs", "broker=30")).body
    effective = {item["key"]: (item["value"], item["source"]) for item in body["configs"]}
    assert effective["background.threads"] == ("7", BROKER)
    assert effective["num.partitions"] == ("1", KAFKA)
    assert effective["log.flush.interval.ms"] == (None, KAFKA)
    assert effective["ssl.keystore.type"] == ("JKS", KAFKA)
    assert sorted(warning.split(":")[0] for warning in body["warnings"]) == [
        "Brokers leave out the stored log.flush.interval.ms",
        "Brokers leave out the stored num.partitions",
        "Brokers leave out the stored ssl.keystore.type",
    ]
    # They are shown as declared, and a change of something else leaves them where they are.
    assert (await client.get("configs", "broker=30")).body["configs"] == config
    etag = (await client.effective("configs", "broker=30")).etag
    answer = await alter(client, resource("BROKER", "30", ("background.threads", "SET", "8")))
    assert any("num.partitions" in warning for warning in answer["responses"][0]["warnings"])
    assert json.loads(zk.get("/config/brokers/30")[0])["config"] == {**config, "background.threads": "8"}
    # What is said besides the values is a part of what a poller is told.
    await client.put("configs", "broker=30", {"background.threads": "7"})
    assert (await client.effective("configs", "broker=30")).body["warnings"] == []
    assert (await client.effective("configs", "broker=30")).etag != etag


async def test_a_default_must_suit_each_broker(client: ConfplaneClient) -> None:
    """A default is effective on every broker that has no value of its own: on broker 0, whose file has 6 threads."""
    with pytest.raises(ProblemError) as caught:
        await client.put("configs", "broker", {"num.io.threads": "16"})
    assert caught.value.kafka_error_code == 42
    # In one batch it counts what the batch gives a broker before.
    own, default = (
        resource("BROKER", name, ("num.io.threads", "SET", value)) for name, value in (("0", "8"), ("", "16"))
    )
    assert (await alter(client, own, default, atomic=True))["failed"] == 0
