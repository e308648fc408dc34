"""Passwords of brokers: stored as Kafka encodes them, and told apart. ``tests/system/test_leaks.py`` looks for them."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import pytest

from confplane.client import ProblemError
from confplane.crypto.password_encoder import PasswordEncoder
from tests.support.service import ServiceInThread

if TYPE_CHECKING:
    from pathlib import Path

    from kazoo.client import KazooClient

    from confplane.client import Answer
    from tests.support.facets import ConfplaneClient
    from tests.support.servers import Database

SECRET = "the-secret-of-the-encoders"
KEY = "listener.name.internal.ssl.key.password"
JAAS = "listener.name.internal.plain.sasl.jaas.config"
LOGIN = 'org.apache.kafka.common.security.plain.PlainLoginModule required username="u" password="hidden-jaas";'


@pytest.fixture(scope="module")
def service_options(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    """A service with an encoder secret."""
    directory = tmp_path_factory.mktemp("secrets")
    (directory / "secret").write_text(SECRET)
    return {"cluster": {"password_encoder": {"secret_file": str(directory / "secret")}}}


def stored(zk: KazooClient, broker: int) -> dict[str, str]:
    config: dict[str, str] = json.loads(zk.get(f"/config/brokers/{broker}")[0])["config"]
    return config


async def alter(client: ConfplaneClient, broker: int, *ops: dict[str, Any], **members: Any) -> Answer[Any]:
    resource = {"resourceType": "BROKER", "resourceName": str(broker), "configs": list(ops)}
    return await client.request("POST", "configs:incrementalAlter", json={"resources": [resource], **members})


def setting(key: str, value: str) -> dict[str, Any]:
    return {"name": key, "configOperation": "SET", "value": value}


async def fingerprint(client: ConfplaneClient, broker: int, key: str = KEY) -> Any:
    answer = await client.get("configs", f"broker={broker}", full=True)
    return answer.body["status"]["fingerprints"][key]


async def test_passwords_are_stored_encoded(client: ConfplaneClient, zk: KazooClient) -> None:
    await client.put("configs", "broker=1", {KEY: "hidden-1", "log.retention.ms": "5"})
    await alter(client, 1, setting(JAAS, LOGIN))
    config = stored(zk, 1)
    assert config["log.retention.ms"] == "5"
    assert not any("hidden" in value for value in config.values())
    encoder = PasswordEncoder(SECRET)
    assert encoder.decode(config[KEY]) == "hidden-1"
    assert encoder.decode(config[JAAS]) == LOGIN
    shown = await client.get("configs", "broker=1")
    assert shown.body["configs"] == {KEY: None, JAAS: None, "log.retention.ms": "5"}


async def test_a_fingerprint_and_the_etag_distinguish_passwords(client: ConfplaneClient, zk: KazooClient) -> None:
    first = await client.put("configs", "broker=2", {KEY: "hidden-1"})
    mark, text = await fingerprint(client, 2), stored(zk, 2)[KEY]
    assert mark
    # The same password again: nothing changes, although each encoding is another text.
    again = await client.put("configs", "broker=2", {KEY: "hidden-1"})
    assert again.change_id is None
    assert again.etag == first.etag
    same = (await alter(client, 2, setting(KEY, "hidden-1"))).body["responses"][0]
    assert (same["changeId"], same["diff"], same["revision"]) == (None, [], str(first.revision))
    assert stored(zk, 2)[KEY] == text
    second = await client.put("configs", "broker=2", {KEY: "hidden-2"}, if_match=first.etag)
    assert second.change_id is not None
    assert second.etag != first.etag
    assert await fingerprint(client, 2) not in {None, mark}
    with pytest.raises(ProblemError) as caught:
        await client.put("configs", "broker=2", {KEY: "hidden-3"}, if_match=first.etag)
    assert caught.value.status == 412
    # Back to the first password: the same fingerprint, and a diff that shows neither.
    back = (await alter(client, 2, setting(KEY, "hidden-1"))).body["responses"][0]
    assert back["diff"] == [{"key": KEY, "before": None, "after": None, "secret": True}]
    assert await fingerprint(client, 2) == mark
    # Of two brokers with one secret too, but not of another config.
    await client.put("configs", "broker=3", {KEY: "hidden-1", KEY.replace("internal", "external"): "hidden-1"})
    assert await fingerprint(client, 3) == mark
    assert await fingerprint(client, 3, KEY.replace("internal", "external")) != mark


async def test_null_keeps_what_is_stored(client: ConfplaneClient, zk: KazooClient) -> None:
    await client.put("configs", "broker=4", {KEY: "hidden-1", "plugin.x": "hidden-2", "log.retention.ms": "5"})
    before = stored(zk, 4)
    got = await client.get("configs", "broker=4", full=True)
    sent = await client.request("PUT", "configs/broker=4", json=got.body)
    assert sent.change_id is None
    changed = {**got.body["configs"], "log.retention.ms": "6"}
    assert (await client.put("configs", "broker=4", changed)).body["configs"] == changed
    assert stored(zk, 4) == {**before, "log.retention.ms": "6"}
    # What is left out goes.
    await client.put("configs", "broker=4", {KEY: None})
    assert stored(zk, 4) == {KEY: before[KEY]}
    with pytest.raises(ProblemError) as caught:
        await client.put("configs", "broker=4", {KEY: None, JAAS: None})
    assert caught.value.body["errors"][0]["pointer"] == f"/configs/{JAAS}"
    assert "none is stored" in caught.value.body["detail"]


async def test_what_an_encoder_can_not_open(client: ConfplaneClient, zk: KazooClient) -> None:
    encoded = PasswordEncoder("another secret").encode("hidden-1")
    config = {KEY: encoded, JAAS: "no encoding at all"}
    zk.create("/config/brokers/5", json.dumps({"version": 1, "config": config}).encode(), makepath=True)
    zk.create("/config/changes/config_change_", b'{"version":2,"entity_path":"brokers/5"}', sequence=True)
    got = await client.get("configs", "broker=5", strong=True)
    assert got.body["configs"] == {KEY: None, JAAS: None}
    assert await fingerprint(client, 5) is None
    effective = (await client.effective("configs", "broker=5")).body
    assert KEY not in {item["key"] for item in effective["configs"]}
    assert sum(KEY in warning or JAAS in warning for warning in effective["warnings"]) == 2
    # Other keys can be changed beside it, and it can be replaced.
    await alter(client, 5, setting("log.retention.ms", "5"))
    assert stored(zk, 5)[KEY] == encoded
    await alter(client, 5, setting(KEY, "hidden-1"))
    assert PasswordEncoder(SECRET).decode(stored(zk, 5)[KEY]) == "hidden-1"


async def test_without_a_secret(tmp_path: Path, chroot: str, raw_zk: KazooClient, migrated: Database) -> None:
    with ServiceInThread(tmp_path, connect=chroot, dsn=migrated.service_dsn) as service:
        async with service.client() as client:
            for call, pointer in (
                (client.put("configs", "broker=0", {"log.retention.ms": "5", KEY: "hidden-1"}), f"/configs/{KEY}"),
                (alter(client, 0, setting(KEY, "hidden-1")), "/resources/0/configs/0/value"),
                (alter(client, 0, setting(KEY, "hidden-1"), validateOnly=True), "/resources/0/configs/0/value"),
            ):
                with pytest.raises(ProblemError) as caught:
                    await call
                assert (caught.value.status, caught.value.kafka_error_code) == (422, 40)
                assert "clusters.default.password_encoder.secret_file" in caught.value.body["detail"]
                assert caught.value.body["errors"][0]["pointer"] == pointer
                assert caught.value.body["type"] == "/problems/encoder-secret-missing"
                assert "hidden" not in json.dumps(caught.value.body)
            assert raw_zk.exists("/config/brokers/0") is None
            await client.put("configs", "broker=0", {"log.retention.ms": "5", "plugin.x": "hidden-2"})
            assert await fingerprint(client, 0, "plugin.x") is None
            # One that is there already stays, whatever is done beside it.
            encoded = PasswordEncoder("somebody's").encode("hidden-1")
            raw_zk.set("/config/brokers/0", json.dumps({"version": 1, "config": {KEY: encoded}}).encode())
            raw_zk.create("/config/changes/config_change_", b'{"version":2,"entity_path":"brokers/0"}', sequence=True)
            assert (await client.get("configs", "broker=0", strong=True)).body["configs"] == {KEY: None}
            await client.put("configs", "broker=0", {KEY: None, "log.retention.ms": "7"})
            assert stored(raw_zk, 0) == {KEY: encoded, "log.retention.ms": "7"}
            body = (await client.effective("configs", "broker=0")).body
            item = next(item for item in body["configs"] if item["key"] == KEY)
            assert (item["value"], item["source"]) == (None, "DYNAMIC_BROKER_CONFIG")
            await client.delete("configs", "broker=0")
            assert stored(raw_zk, 0) == {}


async def test_a_create_of_the_same_password_changes_nothing(client: ConfplaneClient, zk: KazooClient) -> None:
    assert (await client.create("configs", "broker=77", {KEY: "once"})).status == 201
    before = zk.get("/config/brokers/77")
    assert (await client.create("configs", "broker=77", {KEY: "once"})).status == 200
    assert zk.get("/config/brokers/77") == before
    with pytest.raises(ProblemError) as caught:
        await client.create("configs", "broker=77", {KEY: "twice"})
    assert caught.value.status == 409
    assert zk.get("/config/brokers/77") == before
