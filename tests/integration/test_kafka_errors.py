"""Kafka's error rows for client quotas, one case each, and what is refused on purpose where Kafka is lenient."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import httpx
import pytest
import pytest_asyncio
from kazoo.security import make_digest_acl

from confplane.client import ProblemError
from confplane.domain.entities import Entity

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from kazoo.client import KazooClient

    from tests.support.facets import ConfplaneClient
    from tests.support.service import Service

USER = {"entityType": "user", "entityName": "erin"}
CLIENT = {"entityType": "client-id", "entityName": "app"}
IP = {"entityType": "ip", "entityName": "10.0.0.9"}


def entry(entity: list[dict[str, Any]], *ops: dict[str, Any]) -> dict[str, Any]:
    return {"entity": entity, "ops": list(ops)}


def put(key: str, value: Any) -> dict[str, Any]:
    return {"key": key, "value": value}


RATE = put("producer_byte_rate", 1)

ALTER_CASES = [
    ("empty entity", entry([], RATE), 42, "Invalid empty client quota entity"),
    ("unknown type", entry([{"entityType": "group", "entityName": "g"}], RATE), 42, "Unhandled client quota entity"),
    ("empty type", entry([{"entityType": "", "entityName": "g"}], RATE), 42, "Unhandled client quota entity"),
    ("topic", entry([{"entityType": "topic", "entityName": "g"}], RATE), 42, "Unhandled client quota entity"),
    ("empty name", entry([{"entityType": "user", "entityName": ""}], RATE), 42, "Empty user not supported"),
    ("ip with user", entry([IP, USER], RATE), 42, "Invalid quota entity combination"),
    ("ip with client-id", entry([IP, CLIENT], RATE), 42, "Invalid quota entity combination"),
    ("ip that is none", entry([{"entityType": "ip", "entityName": "nohost"}], RATE), 42, ""),
    ("IPv6", entry([{"entityType": "ip", "entityName": "::1"}], put("connection_creation_rate", 1)), 42, "IPv4"),
    ("dot", entry([{"entityType": "user", "entityName": "."}], RATE), 42, ""),
    ("dots", entry([{"entityType": "user", "entityName": ".."}], RATE), 42, ""),
    ("unknown key", entry([USER], put("no_such_rate", 1)), 42, "Invalid configuration key no_such_rate"),
    ("ip key on a user", entry([USER], put("connection_creation_rate", 1)), 42, "Invalid configuration key"),
    ("user key on an ip", entry([IP], RATE), 42, "Invalid configuration key producer_byte_rate"),
    ("not integral", entry([USER], put("producer_byte_rate", 10000.5)), 42, ""),
    ("beyond LONG", entry([USER], put("producer_byte_rate", 9.3e18)), 42, ""),
    ("beyond INT", entry([IP], put("connection_creation_rate", 3e9)), 42, ""),
    ("negative LONG", entry([USER], put("producer_byte_rate", -1)), 42, ""),
    ("negative DOUBLE", entry([USER], put("request_percentage", -0.5)), 42, ""),
    ("negative INT", entry([IP], put("connection_creation_rate", -1)), 42, ""),
    ("huge integer", entry([USER], put("request_percentage", 10**399)), 42, ""),
    ("a string", entry([USER], put("producer_byte_rate", "1024")), 42, "number"),
    ("a boolean", entry([USER], put("producer_byte_rate", True)), 42, "number"),  # noqa: FBT003 - JSON
    ("neither value nor remove", entry([USER], {"key": "producer_byte_rate"}), 42, ""),
    ("set of SCRAM", entry([USER], put("SCRAM-SHA-256", 1)), 42, ""),
    ("set of SCRAM on a client-id", entry([CLIENT], put("SCRAM-SHA-256", 1)), 42, ""),
    ("removal of SCRAM", entry([USER], {"key": "SCRAM-SHA-512", "remove": True}), 42, ""),
]


@pytest.mark.parametrize(
    ("request_entry", "code", "text"), [case[1:] for case in ALTER_CASES], ids=[c[0] for c in ALTER_CASES]
)
@pytest.mark.parametrize("validate_only", [False, True], ids=["alter", "validateOnly"])
async def test_alter_is_refused_as_kafka_does(
    client: ConfplaneClient, zk: KazooClient, *, request_entry: Any, code: int, text: str, validate_only: bool
) -> None:
    changes = len(zk.get_children("/config/changes"))
    good = entry([{"entityType": "user", "entityName": "good"}], RATE)
    with pytest.raises(ProblemError) as caught:
        await client.request(
            "POST", "client-quotas:alter", json={"entries": [request_entry], "validateOnly": validate_only}
        )
    assert caught.value.status == 400
    result = caught.value.body["entries"][0]
    assert result["errorCode"] == code
    assert text in result["errorMessage"]
    assert result["entity"] == request_entry["entity"]
    assert caught.value.kafka_error_code == code
    assert caught.value.body["errors"][0]["pointer"].startswith("/entries/0")
    assert len(zk.get_children("/config/changes")) == changes
    # Beside a good entry the answer is 207, and the good one is applied.
    mixed = await client.request(
        "POST",
        "client-quotas:alter",
        json={"entries": [request_entry, good], "validateOnly": validate_only},
    )
    assert mixed.status == 207
    assert mixed.body["failed"] == 1
    assert [item["errorCode"] for item in mixed.body["entries"]] == [code, 0]


DESCRIBE_CASES: list[tuple[str, list[dict[str, Any]], int]] = [
    ("unknown match type", [{"entityType": "user", "matchType": 7, "match": "a"}], 42),
    ("unknown match name", [{"entityType": "user", "matchType": "like", "match": "a"}], 42),
    ("exact without a match", [{"entityType": "user", "matchType": "exact"}], 42),
    ("repeated type", [{"entityType": "user", "matchType": 2}, {"entityType": "user", "matchType": 1}], 42),
    ("empty type", [{"entityType": "", "matchType": 2}], 42),
    ("unknown type", [{"entityType": "group", "matchType": 2}], 35),
    ("ip with user", [{"entityType": "ip", "matchType": 2}, {"entityType": "user", "matchType": 2}], 42),
    ("ip with client-id", [{"entityType": "client-id", "matchType": 2}, {"entityType": "ip", "matchType": 2}], 42),
]


@pytest.mark.parametrize(
    ("components", "code"), [case[1:] for case in DESCRIBE_CASES], ids=[case[0] for case in DESCRIBE_CASES]
)
async def test_describe_is_refused_as_kafka_does(client: ConfplaneClient, components: Any, code: int) -> None:
    with pytest.raises(ProblemError) as caught:
        await client.describe("client-quotas", components)
    assert caught.value.status == 400
    assert caught.value.kafka_error_code == code


async def test_an_entity_named_twice_is_refused_in_every_place(client: ConfplaneClient) -> None:
    body = {"entries": [entry([USER], RATE), entry([CLIENT], RATE), entry([USER], put("consumer_byte_rate", 1))]}
    answer = await client.request("POST", "client-quotas:alter", json=body)
    assert answer.status == 207
    assert [item["errorCode"] for item in answer.body["entries"]] == [42, 0, 42]


async def test_a_removal_of_nothing_is_fine_and_writes_nothing(client: ConfplaneClient, zk: KazooClient) -> None:
    before = len(zk.get_children("/config/changes"))
    answer = await client.alter("client-quotas", [(Entity.of(user="idle"), {"producer_byte_rate": None, "junk": None})])
    assert answer.body["entries"][0]["errorCode"] == 0
    assert answer.body["entries"][0]["changeId"] is None
    assert len(zk.get_children("/config/changes")) == before


async def test_an_alter_without_effect_writes_nothing(client: ConfplaneClient, zk: KazooClient) -> None:
    entity = Entity.of(user="same")
    first = await client.alter("client-quotas", [(entity, {"producer_byte_rate": 1000.0000005})])
    version = zk.get("/config/users/same")[1].version
    again = await client.alter("client-quotas", [(entity, {"producer_byte_rate": 1000})])
    assert again.body["entries"][0]["revision"] == first.body["entries"][0]["revision"]
    assert again.body["entries"][0]["diff"] == []
    assert zk.get("/config/users/same")[1].version == version


async def test_a_key_named_twice_ends_at_its_last_op(client: ConfplaneClient) -> None:
    body = {"entries": [entry([{"entityType": "user", "entityName": "twice"}], RATE, put("producer_byte_rate", 9))]}
    await client.request("POST", "client-quotas:alter", json=body)
    assert (await client.get("client-quotas", "user=twice")).body["quotas"] == {"producer_byte_rate": 9}


async def test_an_atomic_batch_is_all_or_nothing(client: ConfplaneClient, zk: KazooClient) -> None:
    one, two = Entity.of(user="atom-1"), Entity.of(user="atom-2", client_id="x")
    with pytest.raises(ProblemError) as caught:
        await client.alter(
            "client-quotas", [(one, {"producer_byte_rate": 1}), (two, {"producer_byte_rate": -1})], atomic=True
        )
    assert caught.value.status == 400
    assert [item["errorCode"] for item in caught.value.body["entries"]] == [55, 42]
    assert zk.exists("/config/users/atom-1") is None
    answer = await client.alter(
        "client-quotas", [(one, {"producer_byte_rate": 1}), (two, {"producer_byte_rate": 2})], atomic=True
    )
    assert len({item["revision"] for item in answer.body["entries"]}) == 1
    assert len({item["changeId"] for item in answer.body["entries"]}) == 1
    assert zk.get("/config/users/atom-1")[1].mzxid == zk.get("/config/users/atom-2/clients/x")[1].mzxid
    trail = [item async for item in client.items("audit", entity=two.id)]
    assert [entity["id"] for entity in trail[0]["entities"]] == [one.id, two.id]


async def test_an_entry_of_an_atomic_batch_that_may_not_be_read_has_an_error_of_its_own(
    client: ConfplaneClient, zk: KazooClient
) -> None:
    """The mirror knows nothing of the znode: its creation is a conflict, after which all entries are read again."""
    users = [Entity.of(user=f"closed-{number}") for number in range(3)]
    zk.create("/config/users/closed-1", b"", acl=[make_digest_acl("somebody", "else", all=True)])
    with pytest.raises(ProblemError) as caught:
        await client.alter("client-quotas", [(user, {"producer_byte_rate": 1}) for user in users], atomic=True)
    assert caught.value.status == 503
    first, closed, last = caught.value.body["entries"]
    assert first["errorCode"] == last["errorCode"] == 55
    assert "NoAuthError" in str(closed)
    assert zk.exists("/config/users/closed-0") is None
    zk.delete("/config/users/closed-1")


@pytest.mark.parametrize("asked", [{"json": {"validateOnly": True}}, {"params": {"validateOnly": "true"}}], ids=list)
async def test_an_atomic_batch_that_is_only_validated_writes_nothing(
    client: ConfplaneClient, zk: KazooClient, asked: dict[str, Any]
) -> None:
    names = ("validated-1", "validated-2")
    users = [[{"entityType": "user", "entityName": name}] for name in names]
    retention = {"name": "retention.ms", "configOperation": "SET", "value": "3600000"}
    topics = [{"resourceType": "TOPIC", "resourceName": name, "configs": [retention]} for name in names]
    for method, member, answered, entries in (
        ("client-quotas:alter", "entries", "entries", [entry(user, RATE) for user in users]),
        ("client-configs:alter", "entries", "entries", [entry(user, put("acks", "all")) for user in users]),
        ("configs:incrementalAlter", "resources", "responses", topics),
    ):
        body = {member: entries, "atomic": True, **asked.get("json", {})}
        answer = await client.request("POST", method, json=body, params=asked.get("params"))
        told = answer.body[answered]
        assert [(each["errorCode"], each["changeId"], len(each["diff"])) for each in told] == [(0, None, 1)] * 2
    for kind, path in (("user", "users"), ("topic", "topics")):
        for name in names:
            assert zk.exists(f"/config/{path}/{name}") is None
            assert [item async for item in client.items("audit", entity=f"{kind}={name}")] == []


async def test_an_atomic_batch_above_the_packet_limit_is_refused_whole(client: ConfplaneClient) -> None:
    entries = [(Entity.of(user=f"{index}-{'x' * 900}"), {"producer_byte_rate": 1}) for index in range(500)]
    with pytest.raises(ProblemError) as caught:
        await client.alter("client-quotas", entries, atomic=True)
    assert caught.value.status == 413
    assert caught.value.outcome == "not_applied"


CONFIG_CASES: list[tuple[str, list[dict[str, Any]], dict[str, Any], str]] = [
    ("not dynamic", [USER], put("linger.ms", "5"), "acks"),
    ("unknown", [USER], put("no.such.key", "5"), "acks"),
    ("a number", [USER], put("session.timeout.ms", 30000), '"30000"'),
    ("acks", [USER], put("acks", "2"), "all"),
    ("acks in capitals", [USER], put("acks", "ALL"), "all"),
    ("session too short", [USER], put("session.timeout.ms", "5999"), "6000"),
    ("session too long", [USER], put("session.timeout.ms", "1800001"), "1800000"),
    ("heartbeat no number", [USER], put("heartbeat.interval.ms", "often"), ""),
    ("supported.configs", [USER], put("supported.configs", "acks"), "registrations"),
    ("removal of supported.configs", [USER], {"key": "supported.configs", "remove": True}, "registrations"),
    ("client-id alone", [CLIENT], put("acks", "1"), "user"),
    ("ip", [IP], put("acks", "1"), ""),
    ("quota key", [USER], put("producer_byte_rate", "5"), ""),
]


@pytest.mark.parametrize(
    ("entity", "op", "text"), [case[1:] for case in CONFIG_CASES], ids=[case[0] for case in CONFIG_CASES]
)
async def test_client_configs_are_refused(client: ConfplaneClient, entity: Any, op: Any, text: str) -> None:
    with pytest.raises(ProblemError) as caught:
        await client.request("POST", "client-configs:alter", json={"entries": [entry(entity, op)]})
    assert caught.value.status == 400
    assert caught.value.kafka_error_code == 42
    assert text in caught.value.body["detail"]


async def test_heartbeat_stays_below_the_session_in_the_resolved_pair(client: ConfplaneClient) -> None:
    user, pair = Entity.of(user="beat"), Entity.of(user="beat", client_id="x")
    await client.put("client-configs", user, {"session.timeout.ms": "10000", "heartbeat.interval.ms": "3000"})
    for entity, values in (
        (user, {"heartbeat.interval.ms": "10000"}),
        (pair, {"heartbeat.interval.ms": "10000"}),
        (pair, {"session.timeout.ms": "6000", "heartbeat.interval.ms": "6000"}),
    ):
        with pytest.raises(ProblemError) as caught:
            await client.alter("client-configs", [(entity, values)])
        assert caught.value.kafka_error_code == 42
    await client.put("client-configs", pair, {"heartbeat.interval.ms": "9999"})


async def test_defaults_of_client_configs_are_kept_with_a_warning(client: ConfplaneClient) -> None:
    answer = await client.alter("client-configs", [(Entity.of(user=None), {"acks": "0"})])
    assert answer.body["entries"][0]["errorCode"] == 0
    assert answer.body["entries"][0]["warnings"]
    described = await client.describe("client-configs", [{"entityType": "user", "matchType": "default"}], strict=True)
    assert described.body["entries"][0]["entity"] == [{"entityType": "user", "entityName": None}]


@pytest.mark.parametrize(
    "components",
    [
        [],
        [{"entityType": "user", "matchType": "any"}],
        [{"entityType": "user", "matchType": "default"}],
        [{"entityType": "client-id", "matchType": "exact", "match": "c"}],
        [
            {"entityType": "user", "matchType": "exact", "match": "u"},
            {"entityType": "client-id", "matchType": "default"},
        ],
    ],
)
@pytest.mark.parametrize(
    "members",
    [
        {"resolveEntity": True},
        {"supportedConfigs": ["acks"], "clientInformation": {"softwareName": "n", "softwareVersion": "1"}},
    ],
    ids=["resolve", "register"],
)
async def test_resolving_and_registering_need_an_exact_user(
    client: ConfplaneClient, components: Any, members: Any
) -> None:
    with pytest.raises(ProblemError) as caught:
        await client.describe("client-configs", components, **members)
    assert caught.value.status == 400
    assert caught.value.kafka_error_code == 42


@pytest_asyncio.fixture
async def http(service: Service) -> AsyncIterator[httpx.AsyncClient]:
    """Requests that no client library would make, with the token."""
    headers = {"Authorization": f"Bearer {service.token}"}
    async with httpx.AsyncClient(base_url=service.url, headers=headers, trust_env=False) as connected:
        yield connected


RAW_BODIES = [
    ("unknown field", b'{"entries":[],"valdiateOnly":true}', "/valdiateOnly"),
    ("duplicate key", b'{"entries":[],"entries":[]}', "twice"),
    ("NaN", b'{"entries":[{"entity":[{"entityType":"user","entityName":"a"}],"ops":[{"key":"request_percentage","value":NaN}]}]}', "NaN"),
    ("Infinity", b'{"entries":[{"entity":[],"ops":[{"key":"request_percentage","value":-Infinity}]}]}', "Infinity"),
    ("beyond doubles", b'{"entries":[{"entity":[],"ops":[{"key":"request_percentage","value":1e400}]}]}', "1e400"),
    ("lone surrogate", b'{"entries":[{"entity":[{"entityType":"user","entityName":"\\ud800"}],"ops":[]}]}', "surrogate"),
    ("NUL", b'{"entries":[{"entity":[{"entityType":"user","entityName":"a\\u0000"}],"ops":[]}]}', "NUL"),
    ("too deep", b'{"entries":' + b"[" * 40 + b"]" * 40 + b"}", "deeper"),
    ("far too deep", b'{"entries":' + b"[" * 100_000 + b"]" * 100_000 + b"}", "deeper"),
    ("no UTF-8", b'{"entries":["\xff"]}', "UTF-8"),
    ("no JSON", b"{entries}", "JSON"),
    ("nothing", b"", ""),
    ("an array", b"[]", ""),
    ("missing name", b'{"entries":[{"entity":[{"entityType":"user"}],"ops":[]}]}', "/entries/0/entity/0/entityName"),
    ("string for bool", b'{"entries":[],"atomic":"yes"}', "/atomic"),
]  # fmt: skip


@pytest.mark.parametrize(("body", "text"), [case[1:] for case in RAW_BODIES], ids=[case[0] for case in RAW_BODIES])
async def test_json_is_strict(http: httpx.AsyncClient, body: bytes, text: str) -> None:
    response = await http.post(
        "/v1/clusters/default/client-quotas:alter", content=body, headers={"Content-Type": "application/json"}
    )
    assert response.status_code == 400, response.text
    assert response.headers["Content-Type"] == "application/problem+json"
    assert text in response.text
    assert response.json()["requestId"]


async def test_bodies_are_bounded(http: httpx.AsyncClient) -> None:
    body = json.dumps({"entries": [], "pad": "x" * (9 * 1024 * 1024)}).encode()
    response = await http.post(
        "/v1/clusters/default/client-quotas:alter", content=body, headers={"Content-Type": "application/json"}
    )
    assert response.status_code == 413


@pytest.mark.parametrize(
    ("method", "path", "status"),
    [
        ("GET", "/v1/clusters/nowhere/client-quotas", 404),
        ("GET", "/v1/nothing", 404),
        ("PATCH", "/v1/clusters", 405),
        ("GET", "/v1/clusters/default/client-quotas?usr=a", 400),
        ("GET", "/v1/clusters/default/client-quotas?user=a&user=b", 400),
        ("GET", "/v1/clusters/default/client-quotas/user=a?views=full", 400),
        ("GET", "/v1/clusters/default/client-quotas?pageSize=0", 400),
        ("GET", "/v1/clusters/default/client-quotas?pageSize=many", 400),
        ("GET", "/v1/clusters/default/client-quotas/", 400),
        ("GET", "/v1/clusters/default/audit/nothing", 400),
        ("GET", "/v1/clusters/default/audit/01980000-0000-7000-8000-000000000000", 404),
        ("DELETE", "/v1/clusters/default/registrations", 400),
        ("PUT", "/v1/clusters/default/client-quotas/user=a", 415),
    ],
)
async def test_whatever_is_wrong_is_a_problem(http: httpx.AsyncClient, method: str, path: str, status: int) -> None:
    response = await http.request(method, path)
    assert response.status_code == status, response.text
    assert response.headers["Content-Type"] == "application/problem+json"
    body = response.json()
    assert body["status"] == status
    assert body["requestId"] == response.headers["X-Request-Id"]


async def test_every_route_but_the_open_ones_wants_the_token(http: httpx.AsyncClient) -> None:
    spec = (await http.get("/openapi.json")).json()
    del http.headers["Authorization"]
    for path, item in spec["paths"].items():
        for method in item:
            url = path.replace("{cluster}", "default").replace("{id}", "user=a").replace("{changeId}", "x")
            for token in (None, "Bearer wrong", "Basic abc", "Bearer"):
                headers = {} if token is None else {"Authorization": token}
                response = await http.request(method, url, headers=headers)
                if path == "/.well-known/oauth-protected-resource":
                    assert response.status_code == 404  # the settings name no address of the service
                elif path in {"/livez", "/metrics", "/readyz"}:
                    assert response.status_code == 200
                else:
                    assert response.status_code == 401
                    assert response.headers["WWW-Authenticate"].startswith("Bearer")
