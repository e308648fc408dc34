"""Idempotency-Key: a request that is sent again is answered as before and not done again."""

from __future__ import annotations

import asyncio
import json
import uuid
from typing import TYPE_CHECKING, Any

import httpx
import pytest
import pytest_asyncio

from tests.audit.rows import fetch
from tests.support.service import Service

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Iterator

    from kazoo.client import KazooClient

    from tests.support.servers import Database

BASE = "/v1/clusters/default"


@pytest.fixture(scope="module")
def service_options() -> dict[str, Any]:
    """Requests have time for all that the tests do."""
    return {"settings": {"CONFPLANE_HTTP__REQUEST_DEADLINE_MS": "60000"}}


@pytest_asyncio.fixture
async def http(service: Service) -> AsyncIterator[httpx.AsyncClient]:
    async with opened(service) as client:
        yield client


def opened(service: Service) -> httpx.AsyncClient:
    return httpx.AsyncClient(
        base_url=f"{service.url}{BASE}/",
        headers={"Authorization": f"Bearer {service.token}"},
        trust_env=False,
        timeout=120,
    )


def new_key() -> dict[str, str]:
    return {"Idempotency-Key": str(uuid.uuid4())}


def same(first: httpx.Response, again: httpx.Response) -> None:
    """The second is the first one's answer once more."""
    assert (again.status_code, again.content) == (first.status_code, first.content)
    for name in ("Content-Type", "ETag", "Location", "Confplane-Change-Id"):
        assert again.headers.get(name) == first.headers.get(name), name
    assert again.headers["Confplane-Revision"] == first.headers["Confplane-Revision"]
    assert "Idempotency-Replayed" not in first.headers
    assert again.headers["Idempotency-Replayed"] == "true"
    assert again.headers["X-Request-Id"] != first.headers["X-Request-Id"]


def quota(value: float) -> dict[str, Any]:
    return {"quotas": {"producer_byte_rate": value}}


def entry(user: str, value: float) -> dict[str, Any]:
    return {
        "entity": [{"entityType": "user", "entityName": user}],
        "ops": [{"key": "producer_byte_rate", "value": value}],
    }


WAYS: dict[str, tuple[str, str, Any, str]] = {
    "put": ("PUT", "/client-quotas/user=put", quota(1), "users/put"),
    "create": ("POST", "/client-quotas", {"id": "user=create", **quota(1)}, "users/create"),
    "alter": ("POST", "/client-quotas:alter", {"entries": [entry("alter", 1)]}, "users/alter"),
    "client-configs": (
        "POST",
        "/client-configs:alter",
        {
            "entries": [
                {
                    "entity": [{"entityType": "user", "entityName": "cc"}],
                    "ops": [{"key": "acks", "value": "1"}, {"key": "session.timeout.ms", "value": "20000"}],
                }
            ]
        },
        "users/cc",
    ),
    "clients": (
        "POST",
        "/clients:alter",
        {
            "entries": [
                {
                    "entity": [{"entityType": "user", "entityName": "both"}],
                    "quotas": [{"key": "producer_byte_rate", "value": 1}],
                    "configs": [{"key": "acks", "value": "1"}],
                }
            ]
        },
        "users/both",
    ),
    "incremental": (
        "POST",
        "/configs:incrementalAlter",
        {
            "resources": [
                {
                    "resourceType": "BROKER",
                    "resourceName": "7",
                    "configs": [{"name": "background.threads", "configOperation": "SET", "value": "12"}],
                }
            ]
        },
        "brokers/7",
    ),
    "kip-21": (
        "POST",
        "/entity-configs:alter",
        {
            "entities": [
                {
                    "entityType": "user",
                    "entityName": "kip21",
                    "addedConfigs": [{"configKey": "producer_byte_rate", "configValue": "5"}],
                }
            ]
        },
        "users/kip21",
    ),
    "kip-5": (
        "POST",
        "/global-config:change",
        {"configData": [{"configKey": "log.retention.ms", "configValue": "604800000"}]},
        "brokers/<default>",
    ),
}
"""Writes of every kind: method, path, body, and the node that they write."""


@pytest.mark.parametrize("way", WAYS)
async def test_sent_again_it_is_answered_as_before(http: httpx.AsyncClient, zk: KazooClient, way: str) -> None:
    method, path, body, node = WAYS[way]
    key = new_key()
    first = await http.request(method, path, json=body, headers=key)
    assert first.status_code in {200, 201}, first.text
    assert first.headers["Confplane-Change-Id"]
    stat = zk.exists(f"/config/{node}")
    # However it is written down, with whichever reason, on the short way and on the long one.
    same(first, await http.request(method, path, json=body, headers=key))
    text = json.dumps(dict(reversed(body.items())), indent=2)
    headers = {**key, "Content-Type": "application/json"}
    same(first, await http.request(method, path, content=text, headers=headers, params={"reason": "again"}))
    assert zk.exists(f"/config/{node}") == stat
    # Under another key it is a request of its own; here one that changes nothing.
    other = await http.request(method, path, json=body, headers=new_key())
    assert "Confplane-Change-Id" not in other.headers
    assert "Idempotency-Replayed" not in other.headers


async def test_a_delete_is_answered_as_before_though_there_is_something_again(http: httpx.AsyncClient) -> None:
    path = "/client-quotas/user=deleted"
    await http.put(path, json=quota(1))
    key = new_key()
    first = await http.delete(path, headers=key)
    await http.put(path, json=quota(2))
    same(first, await http.delete(path, headers=key))
    assert (await http.get(path)).json()["quotas"] == {"producer_byte_rate": 2}


async def test_a_replay_does_not_undo_later_changes(http: httpx.AsyncClient) -> None:
    path, key = "/client-quotas/user=since", new_key()
    first = await http.put(path, json=quota(1), headers={**key, "If-None-Match": "*"})
    await http.put(path, json=quota(2))
    same(first, await http.put(path, json=quota(1), headers={**key, "If-None-Match": "*"}))
    assert (await http.get(path)).json()["quotas"] == {"producer_byte_rate": 2}


async def test_a_key_is_one_of_its_method_and_path(http: httpx.AsyncClient) -> None:
    key = new_key()
    for user in ("one", "two"):
        answer = await http.put(f"/client-quotas/user={user}", json=quota(1), headers=key)
        assert (answer.status_code, answer.json()["id"]) == (200, f"user={user}")
    gone = await http.delete("/client-quotas/user=two", headers=key)
    assert gone.headers["Confplane-Change-Id"]


@pytest.mark.parametrize("value", ["", "é".encode(), b"a\tb", b"x" * 256], ids=["empty", "not-ascii", "tab", "long"])
async def test_a_malformed_key_is_refused(http: httpx.AsyncClient, value: bytes | str) -> None:
    headers = {"Idempotency-Key": value}
    refused = await http.put("/client-quotas/user=malformed", json=quota(1), headers=headers)  # type: ignore[arg-type]
    assert refused.status_code == 400
    assert "Idempotency-Key" in refused.json()["detail"]
    assert (await http.get("/client-quotas/user=malformed")).status_code == 404


async def test_two_keys_at_once_are_refused(http: httpx.AsyncClient) -> None:
    headers = [("Idempotency-Key", "a"), ("Idempotency-Key", "b")]
    assert (await http.put("/client-quotas/user=twice", json=quota(1), headers=headers)).status_code == 400


async def test_the_longest_key_is_taken(http: httpx.AsyncClient) -> None:
    headers = {"Idempotency-Key": "k" * 255}
    first = await http.put("/client-quotas/user=longest", json=quota(1), headers=headers)
    same(first, await http.put("/client-quotas/user=longest", json=quota(1), headers=headers))


async def test_it_is_without_effect_where_nothing_is_written(http: httpx.AsyncClient) -> None:
    key, path = {"Idempotency-Key": "reused for all"}, "/client-quotas/user=unwritten"
    for value in (1, 2):
        for body in ({"entries": [entry("unwritten", value)], "validateOnly": True},):
            tried = await http.post("/client-quotas:alter", json=body, headers=key)
            assert tried.json()["entries"][0]["diff"][0]["after"] == value
        assert (await http.put(path, json=quota(value), headers=key, params={"validateOnly": "true"})).is_success
    for strict in (True, False):
        described = await http.post("/client-quotas:describe", json={"components": [], "strict": strict}, headers=key)
        assert described.status_code == 200
        assert "Idempotency-Replayed" not in described.headers
    assert (await http.get(path, headers=key)).status_code == 404


async def test_where_it_is_not_honoured_it_is_refused(http: httpx.AsyncClient) -> None:
    refused = await http.delete("/registrations", params={"all": "true"}, headers=new_key())
    assert refused.status_code == 400
    assert refused.json()["type"] == "/problems/idempotency-unsupported"


async def test_a_refused_request_leaves_its_key_free(http: httpx.AsyncClient) -> None:
    path, key = "/client-quotas/user=refused", new_key()
    refused = await http.put(path, json=quota(-1), headers=key)
    assert refused.status_code == 400
    failed = await http.put(path, json=quota(1), headers={**key, "If-Match": '"none"'})
    assert failed.status_code == 412
    done = await http.put(path, json=quota(1), headers=key)
    assert (done.status_code, "Idempotency-Replayed" in done.headers) == (200, False)
    same(done, await http.put(path, json=quota(1), headers=key))


async def test_a_batch_of_which_some_failed_is_answered_as_before(http: httpx.AsyncClient) -> None:
    body = {"entries": [entry("b1", 1), entry("b2", -1), entry("b3", 3)]}
    key = new_key()
    first = await http.post("/client-quotas:alter", json=body, headers=key)
    assert first.status_code == 207
    await http.delete("/client-quotas/user=b3")
    same(first, await http.post("/client-quotas:alter", json=body, headers=key))
    assert (await http.get("/client-quotas/user=b3")).status_code == 404


async def test_nothing_of_key_and_body_is_kept_but_digests(http: httpx.AsyncClient, module_database: Database) -> None:
    key = new_key()
    answer = await http.put("/client-quotas/user=digested", json=quota(1), headers=key)
    rows = fetch(module_database.owner_dsn, "SELECT * FROM request_keys")
    assert answer.headers["Confplane-Change-Id"] in str(rows)
    assert key["Idempotency-Key"] not in str(rows)


# ---------------------------------------------------------------- several processes


@pytest.fixture(scope="module")
def other(
    service_options: dict[str, Any],
    module_chroot: str,
    module_database: Database,
    tmp_path_factory: pytest.TempPathFactory,
) -> Iterator[Service]:
    """A second service beside the module's."""
    directory = tmp_path_factory.mktemp("other")
    with Service(directory, connect=module_chroot, dsn=module_database.service_dsn, **service_options) as running:
        yield running


async def test_it_is_answered_by_another_process_which_refuses_another_body(
    http: httpx.AsyncClient, other: Service
) -> None:
    path, key = "/client-quotas/user=elsewhere", new_key()
    first = await http.put(path, json=quota(1), headers=key)
    async with opened(other) as there:
        same(first, await there.put(path, json=quota(1), headers=key))
        refused = await there.put(path, json=quota(2), headers=key)
    problem = refused.json()
    assert (refused.status_code, problem["type"]) == (422, "/problems/idempotency-key-reused")
    assert (problem["kafkaErrorCode"], problem["errors"][0]["pointer"]) == (42, "Idempotency-Key")
    assert (await http.get(path)).json()["quotas"] == {"producer_byte_rate": 1}


@pytest.mark.parametrize("way", ["put", "alter", "append", "batch", "atomic"])
async def test_twenty_at_once_over_two_processes_make_one_change(
    http: httpx.AsyncClient, other: Service, module_database: Database, way: str
) -> None:
    users = [f"crowd-{way}-{number}" for number in range(1 if way in {"put", "alter"} else 10)]
    body: dict[str, Any] = {"entries": [entry(user, 1) for user in users], "atomic": way == "atomic"}
    method, path = "POST", "/client-quotas:alter"
    if way == "put":
        method, path, body = "PUT", f"/client-quotas/user={users[0]}", quota(1)
    if way == "append":
        op = {"name": "cleanup.policy", "configOperation": "APPEND", "value": "compact"}
        resources = [{"resourceType": "TOPIC", "resourceName": user, "configs": [op]} for user in users]
        method, path, body = "POST", "/configs:incrementalAlter", {"resources": resources}
    key = new_key()
    async with opened(other) as there:
        answers = await asyncio.gather(
            *((http, there)[number % 2].request(method, path, json=body, headers=key) for number in range(20))
        )
    assert {answer.status_code for answer in answers} == {200}, [answer.text for answer in answers]
    assert len({answer.content for answer in answers}) == 1
    first = [answer for answer in answers if "Idempotency-Replayed" not in answer.headers]
    assert len(first) == 1
    committed = fetch(
        module_database.owner_dsn,
        "SELECT entity_id, count(*) FROM intent_entities JOIN outcomes USING (change_id)"
        " WHERE committed AND entity_id LIKE '%%=' || %s || '%%' GROUP BY entity_id",
        f"crowd-{way}-",
    )
    assert [count for _, count in committed] == [1] * len(users)
