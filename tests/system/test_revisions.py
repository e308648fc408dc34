"""Revisions of answers: stated by every operation, and waited for by all reads of configs."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Final

import httpx
import pytest

from confplane.domain.rollups import ROLLUPS
from tests.support.published import publish_all
from tests.support.stores import kafka_writes
from tests.support.world import World
from tests.unit.client.generate import specification

if TYPE_CHECKING:
    from collections.abc import AsyncIterator
    from pathlib import Path

    from kazoo.client import KazooClient

    from tests.support.proxy import Proxy
    from tests.support.servers import Database

PREFIX: Final = "/v1/clusters/{cluster}"
BASE: Final = "/v1/clusters/default"
ALICE: Final = [{"entityType": "user", "entityName": "alice"}]
RATE: Final = {"producer_byte_rate": 1}


ENTITIES: Final = (
    ("ClientQuotas", "client-quotas", "user=alice"),
    ("ClientConfigs", "client-configs", "user=alice"),
    ("Configs", "configs", "topic=orders"),
)


@dataclass(frozen=True)
class Call:
    """One good request of an operation."""

    method: str
    path: str
    body: Any = None
    params: tuple[tuple[str, str], ...] = ()
    headers: tuple[tuple[str, str], ...] = ()


APART: Final = {
    *("planManifest", "applyManifest", "endSchedule", "getChangeRequest"),
    *(f"{verb}ChangeRequest" for verb in ("revise", "approve", "reject", "cancel", "comment", "apply", "revert")),
}
"""An apply needs the id of a plan, an end that of a change, and a review that of a request:
tests/contract/test_answers.py."""
CALLS: Final[dict[str, Call]] = {
    # Writes, in an order in which each finds what it needs.
    "putClientQuotas": Call("PUT", "/client-quotas/user=alice", {"quotas": RATE}),
    "createClientQuotas": Call("POST", "/client-quotas", {"id": "user=new", "quotas": RATE}),
    "deleteClientQuotas": Call("DELETE", "/client-quotas/user=new"),
    "alterClientQuotas": Call(
        "POST",
        "/client-quotas:alter",
        {"entries": [{"entity": ALICE, "ops": [{"key": "consumer_byte_rate", "value": 2}]}]},
    ),
    "putClientConfigs": Call("PUT", "/client-configs/user=alice", {"configs": {"acks": "all"}}),
    "createClientConfigs": Call("POST", "/client-configs", {"id": "user=new", "configs": {"acks": "1"}}),
    "deleteClientConfigs": Call("DELETE", "/client-configs/user=new"),
    "alterClientConfigs": Call(
        "POST", "/client-configs:alter", {"entries": [{"entity": ALICE, "ops": [{"key": "acks", "value": "1"}]}]}
    ),
    "alterClients": Call(
        "POST",
        "/clients:alter",
        {
            "entries": [
                {
                    "entity": ALICE,
                    "quotas": [{"key": "consumer_byte_rate", "value": 3}],
                    "configs": [{"key": "acks", "value": "0"}],
                }
            ]
        },
    ),
    "putConfigs": Call("PUT", "/configs/topic=orders", {"configs": {"retention.ms": "1"}}),
    "createConfigs": Call("POST", "/configs", {"id": "topic=new", "configs": {"retention.ms": "1"}}),
    "deleteConfigs": Call("DELETE", "/configs/topic=new"),
    "incrementalAlterConfigs": Call(
        "POST",
        "/configs:incrementalAlter",
        {
            "resources": [
                {
                    "resourceType": "TOPIC",
                    "resourceName": "orders",
                    "configs": [{"name": "retention.ms", "configOperation": "SET", "value": "2"}],
                }
            ]
        },
    ),
    "alterEntityConfigs": Call(
        "POST",
        "/entity-configs:alter",
        {
            "entities": [
                {
                    "entityType": "topic",
                    "entityName": "orders",
                    "addedConfigs": [{"configKey": "retention.ms", "configValue": "3"}],
                    "deletedConfigs": [],
                }
            ]
        },
    ),
    "changeGlobalConfig": Call(
        "POST", "/global-config:change", {"configData": [{"configKey": "log.retention.ms", "configValue": "9"}]}
    ),
    **{
        f"revert{noun}": Call("POST", f"/{facet}/{entity}:revert", {"to": "9999-01-01T00:00:00Z"})
        for noun, facet, entity in ENTITIES
    },
    "revertChanges": Call(
        "POST",
        "/audit:revert",
        {"principal": "User:admin", "since": "2020-01-01T00:00:00Z", "validateOnly": True},
    ),
    "reportClientConfigs": Call(
        "PUT",
        "/client-configs/user=alice/instances/one",
        {"softwareName": "kafka-python", "softwareVersion": "2.2", "appliedRevision": "1"},
    ),
    "adoptDrift": Call("POST", "/drift:adopt", {"entities": [{"id": "user=alice"}]}),
    "reapplyDrift": Call("POST", "/drift:reapply", {"entities": [{"id": "user=alice"}]}),
    "clearRegistrations": Call("DELETE", "/registrations", params=(("all", "true"),)),
    "putWebhook": Call("PUT", "/webhooks/w", {"url": "https://hooks.example.invalid/"}),
    "rotateWebhookSecret": Call("POST", "/webhooks/w:rotate", {"overlapSeconds": 60}),
    "assignWebhook": Call("POST", "/webhooks/w:assign", {"owner": "User:admin"}),
    "resumeWebhook": Call("POST", "/webhooks/w:resume"),
    "testWebhook": Call("POST", "/webhooks/w:test", params=(("validateOnly", "true"),)),
    "getWebhook": Call("GET", "/webhooks/w"),
    "listWebhooks": Call("GET", "/webhooks"),
    "listWebhookDeliveries": Call("GET", "/webhooks/w/deliveries"),
    "deleteWebhook": Call("DELETE", "/webhooks/w", params=(("validateOnly", "true"),)),
    "followChanges": Call("GET", "/changes"),
    "createChangeRequest": Call(
        "POST",
        "/change-requests",
        {
            "edits": [
                {"facet": "client-quotas", "id": "user=proposed", "ops": [{"key": "producer_byte_rate", "value": 9}]}
            ]
        },
    ),
    "listChangeRequests": Call("GET", "/change-requests"),
    "pauseSchedules": Call("POST", "/schedules:pause", {"reason": "a test"}),
    "resumeSchedules": Call("POST", "/schedules:resume"),
    "listSchedules": Call("GET", "/schedules"),
    "freezeCluster": Call("POST", ":freeze", {"reason": "an upgrade"}),
    "thawCluster": Call("POST", ":thaw", {"reason": "upgraded"}),
    # Reads.
    "getCluster": Call("GET", ""),
    "getClientQuotas": Call("GET", "/client-quotas/user=alice"),
    **{
        f"{verb}{noun}": Call("GET", f"/{facet}/{entity}/{verb}", params=params)
        for noun, facet, entity in ENTITIES
        for verb, params in (("history", ()), ("diff", (("from", "9999-01-01T00:00:00Z"),)))
    },
    "effectiveClientQuotas": Call("GET", "/client-quotas/user=alice,client-id=app/effective"),
    "listClientQuotas": Call("GET", "/client-quotas"),
    "describeClientQuotas": Call("POST", "/client-quotas:describe", {"components": []}),
    "getClientConfigs": Call("GET", "/client-configs/user=alice"),
    "effectiveClientConfigs": Call("GET", "/client-configs/user=alice,client-id=app/effective"),
    "statusClientConfigs": Call("GET", "/client-configs/user=alice/status"),
    "listClientConfigs": Call("GET", "/client-configs"),
    "describeClientConfigs": Call("POST", "/client-configs:describe", {"components": []}),
    "getConfigs": Call("GET", "/configs/topic=orders"),
    "effectiveConfigs": Call("GET", "/configs/topic=orders/effective"),
    "listConfigs": Call("GET", "/configs"),
    "describeConfigs": Call(
        "POST", "/configs:describe", {"resources": [{"resourceType": "TOPIC", "resourceName": "orders"}]}
    ),
    "describeEntityConfigs": Call(
        "POST", "/entity-configs:describe", {"entities": [{"entityType": "topic", "entityName": "orders"}]}
    ),
    "getGlobalConfig": Call("GET", "/global-config"),
    "exportManifest": Call("GET", "/manifests:export"),
    "listConfigDefinitions": Call("GET", "/config-definitions"),
    "listRegistrations": Call("GET", "/registrations"),
    "listDrift": Call("GET", "/drift"),
    "searchAudit": Call("GET", "/audit"),
    "getAccess": Call("GET", "/access", params=(("principal", "User:alice"),)),
    "checkAccess": Call("POST", "/access:check", {"checks": [{"operation": "FREEZE", "resourceType": "cluster"}]}),
    "getAuditedChange": Call("GET", "/audit/{changeId}"),
    "listRollups": Call("GET", "/rollups"),
    **{f"getRollup{job.capitalize()}": Call("GET", f"/rollups/{job}") for job in ROLLUPS},
}
NOT_OF_CONFIGS: Final = {
    *(
        "listConfigDefinitions",
        "listRegistrations",
        "listDrift",
        "listChangeRequests",
        "listSchedules",
        "searchAudit",
        "getAuditedChange",
        "listRollups",
        "getAccess",
        "getWebhook",
        "listWebhooks",
        "listWebhookDeliveries",
        "followChanges",
    ),
    *(f"getRollup{job.capitalize()}" for job in ROLLUPS),
    *(f"{verb}{noun}" for noun, _, _ in ENTITIES for verb in ("history", "diff")),
}
"""Reads of what is in no mirror: they tell the revision, and wait for none."""
OPERATIONS: Final = {
    found["operationId"]: (method.upper(), found)
    for path, methods in specification()["paths"].items()
    if path.startswith(PREFIX)
    for method, found in methods.items()
}
READS: Final = {
    name: call
    for name, call in CALLS.items()
    if (call.method == "GET" or call.path.endswith(":describe")) and name not in NOT_OF_CONFIGS
}


@pytest.fixture
async def served(
    zk_proxy: Proxy, module_chroot: str, module_database: Database, zk: KazooClient, tmp_path: Path
) -> AsyncIterator[httpx.AsyncClient]:
    """A service at the end of that line, which takes its time where it waits for a revision."""
    await asyncio.to_thread(publish_all, module_database.service_dsn)
    world, cluster = World(tmp_path, module_chroot, module_database, zk), {"session_timeout_ms": 60_000}
    key_file = tmp_path / "webhooks-key"
    key_file.write_text("a key of webhooks for tests, of no other use")
    settings = {"CONFPLANE_WEBHOOKS__KEY_FILE": str(key_file)}
    async with world.service(through=zk_proxy, cluster=cluster, settings=settings, deadline_ms=300_000) as service:
        try:
            async with httpx.AsyncClient(
                base_url=service.url,
                headers={"Authorization": f"Bearer {service.token}"},
                trust_env=False,
                timeout=300,
                limits=httpx.Limits(max_connections=200),
            ) as client:
                end = asyncio.get_running_loop().time() + 60
                while ((await client.get(BASE)).json()["recorded"] or {}).get("since") is None:
                    assert asyncio.get_running_loop().time() < end, "the past is not known"
                    await asyncio.sleep(0.1)
                yield client
        finally:
            zk_proxy.replies.set()


async def send(client: httpx.AsyncClient, call: Call) -> httpx.Response:
    return await client.request(
        call.method,
        BASE + call.path,
        json=call.body,
        params=dict(call.params) or None,
        headers=dict(call.headers),
    )


def at_least(call: Call, revision: int | str) -> Call:
    return replace(call, headers=(("Confplane-Min-Revision", str(revision)),))


def strong(call: Call) -> Call:
    return replace(call, params=(("consistency", "strong"),))


def revision_of(answer: httpx.Response) -> int:
    return int(answer.headers["Confplane-Revision"])


def test_the_table_has_every_operation_of_a_cluster() -> None:
    assert {name: call.method for name, call in CALLS.items()} == {
        name: method for name, (method, _) in OPERATIONS.items() if name not in APART
    }


def test_the_specification_says_what_reads_wait_for() -> None:
    waiting = {
        name
        for name, (_, found) in OPERATIONS.items()
        if {"minRevision", "consistency"}
        <= {parameter.get("$ref", "").rpartition("/")[2] for parameter in found.get("parameters", [])}
    }
    assert waiting - APART == set(READS)


async def test_every_answer_of_a_cluster_says_its_revision(served: httpx.AsyncClient) -> None:
    last, written = 0, None
    for name, call in CALLS.items():
        path = call.path.format(changeId=written)
        answer = await send(served, replace(call, path=path))
        assert answer.status_code < 300, (name, answer.text)
        assert revision_of(answer) >= last, name
        assert "Confplane-Stale-Ms" not in answer.headers, name
        last = revision_of(answer)
        written = answer.headers.get("Confplane-Change-Id", written)
        errors = [
            await send(served, replace(call, path=path, params=(("unknown", "1"),))),
            await served.request("TRACE", BASE + path),
            await served.request(call.method, f"{BASE}{path}/no/such/thing", json=call.body),
        ]
        if call.body is not None:
            errors += [
                await served.request(call.method, BASE + path, content=b"{", headers={"Content-Type": kind})
                for kind in ("application/json", "text/plain")
            ]
            errors.append(await served.request(call.method, BASE + path, json={"unknown": 1}))
        for error in errors:
            assert 400 <= error.status_code < 500, (name, error.text)
            assert revision_of(error) >= last, (name, error.request.url)
    unchanged = await send(served, CALLS["getClientQuotas"])
    again = replace(CALLS["getClientQuotas"], headers=(("If-None-Match", unchanged.headers["ETag"]),))
    not_modified = await send(served, again)
    assert (not_modified.status_code, revision_of(not_modified)) == (304, last)
    elsewhere = await served.get("/v1/clusters/nowhere/client-quotas")
    assert (elsewhere.status_code, elsewhere.headers.get("Confplane-Revision")) == (404, None)
    nobody = await served.get(f"{BASE}/client-quotas", headers={"Authorization": "Bearer wrong"})
    assert (nobody.status_code, nobody.headers.get("Confplane-Revision")) == (401, None)


async def test_every_read_of_configs_knows_a_revision_when_it_sees_one(served: httpx.AsyncClient) -> None:
    for name, call in READS.items():
        answer = await send(served, at_least(call, "soon"))
        assert answer.status_code == 400, name
        assert answer.json()["errors"][0]["pointer"] == "Confplane-Min-Revision", name
        refused = await send(served, replace(call, params=(("consistency", "perfect"),)))
        assert refused.status_code == 400, name
    for name in NOT_OF_CONFIGS:
        answer = await send(served, replace(CALLS[name], params=(("consistency", "strong"),)))
        assert answer.status_code == 400, name


async def test_every_read_of_configs_waits_for_what_it_asks_for(
    served: httpx.AsyncClient, zk_proxy: Proxy, zk: KazooClient
) -> None:
    """ZooKeeper's replies are kept back while others write: reads that ask for it wait, and the others don't."""
    for name in ("putClientQuotas", "putClientConfigs", "putConfigs", "changeGlobalConfig"):
        assert (await send(served, CALLS[name])).status_code < 300
    before = revision_of(await send(served, strong(READS["listClientQuotas"])))
    zk_proxy.replies.clear()
    kafka_writes(
        zk, "users/alice", b'{"version":1,"config":{"producer_byte_rate":"70077","session.timeout.ms":"70077"}}'
    )
    kafka_writes(zk, "brokers/<default>", b'{"version":1,"config":{"log.retention.ms":"70077"}}')
    last = kafka_writes(zk, "topics/orders", b'{"version":1,"config":{"retention.ms":"70077"}}')
    written = zk.exists(last).czxid
    waiting = {
        (name, asked.headers or asked.params): asyncio.create_task(send(served, asked))
        for name, call in READS.items()
        for asked in (at_least(call, written), strong(call))
    }
    for name, call in READS.items():
        answer = await send(served, call)
        assert revision_of(answer) == before, name
        assert "70077" not in answer.text, name
    assert not [name for name, task in waiting.items() if task.done()]
    zk_proxy.replies.set()
    for (name, asked), task in waiting.items():
        answer = await task
        assert answer.status_code == 200, (name, asked, answer.text)
        assert revision_of(answer) >= written, (name, asked)
        assert "Confplane-Stale-Ms" not in answer.headers, (name, asked)
        assert "70077" in answer.text or name in {"getCluster", "statusClientConfigs"}, (name, asked)


async def test_a_copy_that_is_not_kept_up_says_so_on_every_answer(served: httpx.AsyncClient, zk_proxy: Proxy) -> None:
    zk_proxy.replies.clear()
    staleness: list[int] = []

    async def stale() -> bool:
        answer = await send(served, READS["getClientQuotas"])
        staleness.append(int(answer.headers.get("Confplane-Stale-Ms", -1)))
        return staleness[-1] >= 0

    deadline = asyncio.get_running_loop().time() + 120
    while not await stale():
        assert asyncio.get_running_loop().time() < deadline
        await asyncio.sleep(0.05)
    for name, call in READS.items():
        answer = await send(served, call)
        assert int(answer.headers["Confplane-Stale-Ms"]) >= staleness[-1], name
        error = await send(served, replace(call, params=(("unknown", "1"),)))
        assert int(error.headers["Confplane-Stale-Ms"]) >= staleness[-1], name
    zk_proxy.replies.set()
    caught_up = await send(served, strong(READS["getClientQuotas"]))
    assert "Confplane-Stale-Ms" not in caught_up.headers
