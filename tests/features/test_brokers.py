"""A store with registered brokers: the controller guard, the layout of client configs, the length of names."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any
from uuid import uuid4

import pytest

from confplane.client import ProblemError
from confplane.domain.entities import Entity
from tests.support.service import Service, ServiceInThread
from tests.support.waiting import until_warned

if TYPE_CHECKING:
    from pathlib import Path

    from kazoo.client import KazooClient

    from tests.support.facets import ConfplaneClient
    from tests.support.servers import Database

ALICE = Entity.of(user="alice")


@pytest.fixture
def dsn(migrated: Database) -> str:
    return migrated.service_dsn


def register_broker(zk: KazooClient, *, controller: dict[str, Any] | None) -> None:
    """Leave what a broker leaves."""
    for path in ("/brokers/ids", "/config/changes", "/config/users", "/config/clients", "/config/ips"):
        zk.ensure_path(path)
    zk.create("/brokers/ids/0", b'{"host":"b"}', ephemeral=True)
    if controller is not None:
        zk.create("/controller_epoch", b"1")
        zk.create("/controller", json.dumps(controller).encode(), ephemeral=True)


ZOOKEEPER_CONTROLLER = {"version": 2, "brokerid": 0, "timestamp": "1", "kraftControllerEpoch": -1}


@pytest.mark.parametrize(
    "controller",
    [None, {"version": 2, "brokerid": 3000, "timestamp": "1", "kraftControllerEpoch": 5}],
    ids=["no controller", "KRaft controller"],
)
async def test_no_write_without_a_zookeeper_controller(
    tmp_path: Path, chroot: str, raw_zk: KazooClient, dsn: str, controller: Any
) -> None:
    register_broker(raw_zk, controller=controller)
    with ServiceInThread(tmp_path, connect=chroot, dsn=dsn) as service:
        async with service.client() as client:
            with pytest.raises(ProblemError) as caught:
                await client.put("client-quotas", ALICE, {"producer_byte_rate": 1})
            assert caught.value.status == 409
            assert caught.value.kafka_error_code == 11
            assert caught.value.outcome == "not_applied"
            assert raw_zk.exists("/config/users/alice") is None
            # A controller that shows up is found without a restart.
            if controller is not None:
                raw_zk.delete("/controller")
            else:
                raw_zk.create("/controller_epoch", b"1")
            raw_zk.create("/controller", json.dumps(ZOOKEEPER_CONTROLLER).encode(), ephemeral=True)
            await client.put("client-quotas", ALICE, {"producer_byte_rate": 1})


async def test_the_layout_must_be_chosen_where_brokers_are(
    tmp_path: Path, chroot: str, raw_zk: KazooClient, dsn: str
) -> None:
    register_broker(raw_zk, controller=ZOOKEEPER_CONTROLLER)
    with ServiceInThread(tmp_path, connect=chroot, dsn=dsn) as service:
        async with service.client() as client:
            with pytest.raises(ProblemError) as caught:
                await client.put("client-configs", ALICE, {"acks": "1"})
            assert caught.value.status == 409
            assert "client_configs_layout" in caught.value.body["detail"]
            assert (await client.describe("client-configs")).body["entries"] == []
            await client.put("client-quotas", ALICE, {"producer_byte_rate": 1})


async def test_a_stray_child_is_reported(tmp_path: Path, chroot: str, raw_zk: KazooClient, dsn: str) -> None:
    raw_zk.ensure_path("/config/changes/a-lock")
    with ServiceInThread(tmp_path, connect=chroot, dsn=dsn) as service:
        async with service.client() as client:
            ready = await client.request("GET", "/readyz")
            assert any("a-lock" in warning for warning in ready.body["warnings"])
            await client.put("client-quotas", ALICE, {"producer_byte_rate": 1})
            assert raw_zk.exists("/config/changes/a-lock") is not None


async def test_credentials_appear_nowhere(tmp_path: Path, chroot: str, raw_zk: KazooClient, dsn: str) -> None:
    secret = "c3RvcmVkLWtleS1vZi1hbGljZQ"
    raw_zk.ensure_path("/config/users")
    raw_zk.create(
        "/config/users/alice",
        json.dumps({"version": 1, "config": {"SCRAM-SHA-512": f"salt=a,stored_key={secret},iterations=4096"}}).encode(),
    )
    settings = {"CONFPLANE_LOG_LEVEL": "debug"}
    with Service(tmp_path, connect=chroot, dsn=dsn, settings=settings) as service:
        async with service.client() as client:
            answers = [
                await client.put("client-quotas", ALICE, {"producer_byte_rate": 1}),
                await client.get("client-quotas", ALICE, full=True),
                await client.effective("client-quotas", ALICE),
                await client.describe("client-quotas"),
                await client.put("client-configs", ALICE, {"acks": "1"}),
                await client.request("GET", "audit"),
                await client.request("GET", "/readyz"),
                await client.delete("client-quotas", ALICE),
            ]
            seen = [json.dumps(answer.body) for answer in answers]
            with pytest.raises(ProblemError) as caught:
                await client.alter("client-quotas", [(ALICE, {"SCRAM-SHA-512": None})])
            seen.append(json.dumps(caught.value.body))
        assert service.token not in service.log.read_text()
        assert secret not in service.log.read_text()
        assert not any(secret in text or service.token in text for text in seen)
    assert secret.encode() in raw_zk.get("/config/users/alice")[0]


async def test_new_names_are_bounded_and_those_that_are_there_are_not(
    tmp_path: Path, chroot: str, raw_zk: KazooClient, dsn: str
) -> None:
    register_broker(raw_zk, controller=ZOOKEEPER_CONTROLLER)
    stored, longest = Entity.of(user="s" * 5_000), Entity.of(user="é" * 332 + "abc")
    assert len(longest.id) == 2_000
    raw_zk.create(f"/config/{stored.path}", b'{"version":1,"config":{"producer_byte_rate":"1"}}')
    cluster = {"jute_maxbuffer": 100_000, "client_configs_layout": "shared"}
    with ServiceInThread(tmp_path, connect=chroot, dsn=dsn, cluster=cluster) as service:
        async with service.client() as client:

            async def refused(entity: Entity) -> dict[str, Any]:
                with pytest.raises(ProblemError) as caught:
                    await client.put("client-quotas", entity, {"producer_byte_rate": 1})
                assert caught.value.outcome == "not_applied"
                body: dict[str, Any] = caught.value.body
                return body

            await client.put("client-quotas", longest, {"producer_byte_rate": 1})
            for entity in (Entity.of(user="é" * 333), Entity.of(user="a", client_id="c" * 2_000)):
                problem = await refused(entity)
                assert (problem["status"], problem["kafkaErrorCode"]) == (400, 42)
                assert "2000" in problem["detail"]
                with pytest.raises(ProblemError) as caught:
                    await client.alter("client-quotas", [(entity, {"producer_byte_rate": 1})], validate_only=True)
                assert caught.value.kafka_error_code == 42
                assert "/entries/0" in json.dumps(caught.value.body)
            assert raw_zk.exists("/config/users/a") is None
            # Whatever is there is read, altered and removed.
            assert (await client.get("client-quotas", stored)).body["quotas"] == {"producer_byte_rate": 1}
            await client.put("client-quotas", stored, {"producer_byte_rate": 2})
            await client.delete("client-quotas", stored)
            while (full := await next_user(client)) is None:
                pass
            assert (full["status"], full["kafkaErrorCode"]) == (422, 44)
            assert full["type"] == "/problems/list-full"
            assert 40 < len(raw_zk.get_children("/config/users")) < 56
            await client.put("client-quotas", longest, {"producer_byte_rate": 2})
            assert (await client.alter("client-quotas", [(longest, {"producer_byte_rate": None})])).status == 200
            await until_warned(client, "jute.maxbuffer")


async def next_user(client: ConfplaneClient) -> dict[str, Any] | None:
    """Create users of long names, one at a call; return the problem in which that ends."""
    try:
        await client.put("client-quotas", Entity.of(user=f"{uuid4()}{'x' * 1_900}"), {"producer_byte_rate": 1})
    except ProblemError as error:
        body: dict[str, Any] = error.body
        return body
    return None
