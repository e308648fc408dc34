"""One real answer of every documented status of every operation that can be brought about, held against the schema."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import httpx
import pytest
import schemathesis
import yaml

from confplane.domain.rollups import ROLLUPS
from tests.contract.api import FILE, PROBLEM_MEMBERS
from tests.support import reviewers
from tests.support.entry_points import ROWS
from tests.support.operations import OPERATIONS
from tests.support.waiting import wait_for

if TYPE_CHECKING:
    from collections.abc import Iterator

    from schemathesis.specs.openapi.schemas import OpenApiSchema

    from tests.support.service import Service

BASE = "/v1/clusters/default"
FACETS = (
    ("ClientQuotas", "client-quotas", "quotas", {"producer_byte_rate": 1024}, {"producer_byte_rate": 2048}),
    ("ClientConfigs", "client-configs", "configs", {"acks": "1"}, {"acks": "all"}),
)

MADE_UP = "019a9c5e-7b2c-7d11-8a52-5d0c6f7e9b10"
WRITES = {name: rows[0] for name, rows in ROWS.items() if rows and not name.startswith(("revert", "apply"))}
"""A write of each operation that takes an Idempotency-Key for the changes of its own body."""
FACTS = ("ETag", "Location", "Confplane-Change-Id", "Idempotency-Replayed")


class Recorder:
    """Sends requests by operation id, and holds each answer against the committed specification."""

    def __init__(self, http: httpx.Client, schema: OpenApiSchema) -> None:
        self._http = http
        self._operations = {
            operation["operationId"]: schema[path][method.upper()]
            for path, item in schema.raw_schema["paths"].items()
            for method, operation in item.items()
        }
        self.seen: set[tuple[str, int]] = set()
        self.facts: set[tuple[str, str]] = set()
        """Operations and the headers of theirs by which an answer says what was done."""

    def send(self, operation_id: str, status: int, url: str, **options: Any) -> httpx.Response:
        """Send one request, without a token for ``token=False``, and check its status, and that it is as described."""
        operation = self._operations[operation_id]
        token = options.pop("token", True)
        request = self._http.build_request(operation.method.upper(), url, **options)
        if not token:
            del request.headers["Authorization"]
        response = self._http.send(request)
        assert response.status_code == status, (operation_id, response.status_code, response.text)
        assert str(status) in operation.definition.raw["responses"], f"{operation_id} does not document {status}"
        operation.validate_response(response)
        documented = operation.definition.raw["responses"][str(status)].get("headers", {})
        for header in FACTS:
            if header in response.headers and status < 400:
                assert header in documented, f"{operation_id} does not document {header}"
                self.facts.add((operation_id, header))
        assert response.headers["x-content-type-options"] == "nosniff"
        if "Authorization" in request.headers:
            secret = operation_id in {"createToken", "rotateToken"} and status == 201
            secret = secret or (operation_id.endswith(("Webhook", "WebhookSecret")) and '"secret"' in response.text)
            stored = "no-store" if secret or (operation_id == "followChanges" and status == 200) else "private"
            assert response.headers["cache-control"] == stored, operation_id
        if operation.definition.raw["security"] or (operation_id == "readyz" and status == 200):
            assert "Authorization" in response.headers["vary"]
        if status >= 400 and operation_id != "readyz":
            assert response.headers["content-type"] == "application/problem+json"
            assert response.json().keys() >= PROBLEM_MEMBERS
            assert response.json()["requestId"] == response.headers["x-request-id"]
        self.seen.add((operation_id, status))
        return response


@pytest.fixture(scope="module")
def recorder(service: Service) -> Iterator[Recorder]:
    """The one recorder of this module."""
    with httpx.Client(
        base_url=service.url, headers={"Authorization": f"Bearer {service.token}"}, trust_env=False, timeout=30
    ) as http:
        yield Recorder(http, schemathesis.openapi.from_path(FILE))


@pytest.mark.parametrize(("noun", "facet", "member", "first", "second"), FACETS)
def test_resources(
    recorder: Recorder, noun: str, facet: str, member: str, first: dict[str, Any], second: dict[str, Any]
) -> None:
    collection = f"{BASE}/{facet}"
    one = f"{collection}/user=res-{facet}"
    body = {"id": f"user=res-{facet}", member: first}
    created = recorder.send(f"create{noun}", 201, collection, json=body)
    assert created.headers["location"] == one
    assert created.headers["confplane-change-id"]
    recorder.send(f"create{noun}", 200, collection, json=body)
    recorder.send(f"create{noun}", 409, collection, json={**body, member: second})
    recorder.send(f"create{noun}", 400, collection, json={member: first})
    recorder.send(f"create{noun}", 412, collection, json=body, headers={"If-None-Match": "*"})
    recorder.send(f"create{noun}", 201, collection, json={"entity": {"user": f"res2-{facet}"}, member: first})
    full = recorder.send(f"get{noun}", 200, one, params={"view": "full"}).json()
    etag = recorder.send(f"get{noun}", 200, one).headers["etag"]
    assert full["status"]["etag"] == etag == created.headers["etag"]
    recorder.send(f"get{noun}", 304, one, headers={"If-None-Match": etag})
    recorder.send(f"get{noun}", 404, f"{collection}/user=nobody")
    recorder.send(f"get{noun}", 400, f"{collection}/user%3Dx=y")
    recorder.send(f"put{noun}", 200, one, json=full)
    recorder.send(f"put{noun}", 200, one, json={member: second}, headers={"If-Match": etag})
    failed = recorder.send(f"put{noun}", 412, one, json={member: first}, headers={"If-Match": etag}).json()
    recorder.send(f"put{noun}", 200, one, json={member: first, "etag": failed["etag"]}, params={"view": "full"})
    recorder.send(f"put{noun}", 200, one, json={member: second}, params={"validateOnly": "true"})
    recorder.send(f"put{noun}", 400, one, json={member: {}})
    found = recorder.send(f"effective{noun}", 200, f"{one}/effective")
    recorder.send(f"effective{noun}", 304, f"{one}/effective", headers={"If-None-Match": found.headers["etag"]})
    recorder.send(f"effective{noun}", 400, f"{collection}/topic=t/effective")
    page = recorder.send(f"list{noun}", 200, collection, params={"pageSize": 1, "view": "full"}).json()
    assert page["nextPageToken"]
    recorder.send(f"list{noun}", 200, collection, params={"pageToken": page["nextPageToken"]})
    recorder.send(f"list{noun}", 400, collection, params={"pageSize": 0})
    recorder.send(f"delete{noun}", 412, one, headers={"If-Match": '"other"'})
    recorder.send(f"delete{noun}", 200, one)
    recorder.send(f"delete{noun}", 200, one)
    recorder.send(f"delete{noun}", 400, f"{collection}/USER")


@pytest.mark.parametrize(("noun", "facet", "member", "first", "second"), FACETS)
def test_rpcs(
    recorder: Recorder, noun: str, facet: str, member: str, first: dict[str, Any], second: dict[str, Any]
) -> None:
    del member
    url = f"{BASE}/{facet}:alter"
    good = {
        "entity": [{"entityType": "user", "entityName": f"rpc-{facet}"}],
        "ops": [{"key": key, "value": value} for key, value in first.items()],
    }
    bad = {**good, "entity": [{"entityType": "user", "entityName": ".."}]}
    recorder.send(f"alter{noun}", 200, url, json={"entries": [good]})
    recorder.send(f"alter{noun}", 200, url, json={"entries": [good]})
    recorder.send(f"alter{noun}", 200, url, json={"entries": []})
    assert recorder.send(f"alter{noun}", 207, url, json={"entries": [good, bad]}).json()["failed"] == 1
    none = recorder.send(f"alter{noun}", 400, url, json={"entries": [bad, good], "atomic": True}).json()
    assert none["failed"] == len(none["entries"]) == 2
    recorder.send(f"alter{noun}", 412, url, json={"entries": [{**good, "etag": '"other"'}]})
    recorder.send(f"alter{noun}", 400, url, json={"entries": [good], "more": 1})
    changed = {**good, "ops": [{"key": key, "value": value} for key, value in second.items()]}
    answer = recorder.send(f"alter{noun}", 200, url, json={"entries": [changed]})
    assert answer.headers["confplane-change-id"] == answer.json()["entries"][0]["changeId"]
    url = f"{BASE}/{facet}:describe"
    recorder.send(f"describe{noun}", 200, url, json={"components": []})
    recorder.send(f"describe{noun}", 400, url, json={"components": [{"entityType": "group", "matchType": 1}]})


def test_resources_of_topics_and_brokers(recorder: Recorder) -> None:
    collection = f"{BASE}/configs"
    one, hour, day = f"{collection}/topic=res-configs", {"retention.ms": "3600000"}, {"retention.ms": "86400000"}
    created = recorder.send("createConfigs", 201, collection, json={"id": "topic=res-configs", "configs": hour})
    recorder.send("createConfigs", 200, collection, json={"entity": {"topic": "res-configs"}, "configs": hour})
    recorder.send("createConfigs", 409, collection, json={"id": "topic=res-configs", "configs": day})
    recorder.send("createConfigs", 422, collection, json={"id": "topic=res-c", "configs": {"nonsense": "1"}})
    recorder.send("createConfigs", 400, collection, json={"id": "broker=700", "configs": {"broker.id": "1"}})
    recorder.send("createConfigs", 412, collection, json={"id": "topic=c", "configs": hour, "etag": "*"})
    full = recorder.send("getConfigs", 200, one, params={"view": "full"}).json()
    etag = recorder.send("getConfigs", 200, one).headers["etag"]
    assert full["status"]["etag"] == etag == created.headers["etag"]
    recorder.send("getConfigs", 304, one, headers={"If-None-Match": etag})
    recorder.send("getConfigs", 404, f"{collection}/broker=701")
    recorder.send("getConfigs", 400, f"{collection}/topic")
    recorder.send("putConfigs", 200, one, json=full)
    recorder.send("putConfigs", 200, one, json={"configs": day}, headers={"If-Match": etag})
    recorder.send("putConfigs", 412, one, json={"configs": hour}, headers={"If-Match": etag})
    recorder.send("putConfigs", 422, one, json={"configs": {"retention.ms": "soon"}})
    recorder.send("putConfigs", 400, one, json={"configs": {"retention.ms": 5}})
    secret = {"configs": {"listener.name.x.ssl.key.password": "hidden-1"}}
    assert (
        "password_encoder" in recorder.send("putConfigs", 422, f"{collection}/broker=700", json=secret).json()["detail"]
    )
    custom = {"configs": {"plugin.key": "hidden-2", "log.retention.ms": "1000"}}
    shown = recorder.send("putConfigs", 200, f"{collection}/broker=700", json=custom, params={"view": "full"})
    assert shown.json()["status"]["fingerprints"] == {"plugin.key": None}
    assert "hidden" not in shown.text
    for entity in ("topic=res-configs", "broker=700", "broker"):
        found = recorder.send("effectiveConfigs", 200, f"{collection}/{entity}/effective")
        url = f"{collection}/{entity}/effective"
        recorder.send("effectiveConfigs", 304, url, headers={"If-None-Match": found.headers["etag"]})
    recorder.send("effectiveConfigs", 400, f"{collection}/user=a/effective")
    page = recorder.send("listConfigs", 200, collection, params={"pageSize": 1, "view": "full"}).json()
    assert page["nextPageToken"]
    recorder.send("listConfigs", 200, collection, params={"pageToken": page["nextPageToken"]})
    recorder.send("listConfigs", 400, collection, params={"kind": "user,topic"})
    change = recorder.send("deleteConfigs", 200, f"{collection}/broker=700").headers["confplane-change-id"]
    recorder.send("deleteConfigs", 200, f"{collection}/broker=700")
    recorder.send("deleteConfigs", 412, one, headers={"If-Match": etag})
    recorder.send("deleteConfigs", 400, f"{collection}/user=a")
    assert "hidden" not in recorder.send("getAuditedChange", 200, f"{BASE}/audit/{change}").text


def test_rpcs_of_topics_and_brokers(recorder: Recorder) -> None:
    url = f"{BASE}/configs:incrementalAlter"
    good = _alteration("TOPIC", "rpc-configs", ("retention.ms", "SET", "3600000"))
    bad = _alteration("TOPIC", "rpc-configs-2", ("retention.ms", "SET", "soon"))
    secret = _alteration("BROKER", "702", ("plugin.key", "SET", "hidden-3"), ("ssl.protocol", "DELETE", None))
    answer = recorder.send("incrementalAlterConfigs", 200, url, json={"resources": [secret, good]})
    assert [item["key"] for item in answer.json()["responses"][0]["diff"]] == ["plugin.key"]
    assert "hidden" not in answer.text
    recorder.send("incrementalAlterConfigs", 200, url, json={"resources": []})
    recorder.send("incrementalAlterConfigs", 207, url, json={"resources": [bad, good]})
    none = recorder.send("incrementalAlterConfigs", 422, url, json={"resources": [good, bad], "atomic": True}).json()
    assert [item["errorName"] for item in none["responses"]] == ["OPERATION_NOT_ATTEMPTED", "INVALID_CONFIG"]
    recorder.send("incrementalAlterConfigs", 400, url, json={"resources": [good, good]})
    recorder.send("incrementalAlterConfigs", 400, url, json={"resources": [{**good, "resourceType": "GROUP"}]})
    recorder.send("incrementalAlterConfigs", 404, url, json={"resources": [{**good, "resourceName": "a/b"}]})
    recorder.send("incrementalAlterConfigs", 412, url, json={"resources": [{**good, "etag": '"other"'}]})
    url = f"{BASE}/configs:describe"
    topic, broker = (
        {"resourceType": kind, "resourceName": name} for kind, name in (("TOPIC", "rpc-configs"), (4, "702"))
    )
    for options in ({}, {"includeSynonyms": True, "includeDocumentation": True}):
        answer = recorder.send("describeConfigs", 200, url, json={"resources": [topic, broker, topic], **options})
        assert "hidden" not in answer.text
    default = {**topic, "resourceName": ""}
    recorder.send("describeConfigs", 207, url, json={"resources": [topic, default]})
    recorder.send("describeConfigs", 400, url, json={"resources": [default]})
    recorder.send("describeConfigs", 400, url, json={"resources": [topic, {**topic, "resourceType": 3}]})


def _alteration(kind: str, name: str, *ops: tuple[str, str, str | None]) -> dict[str, Any]:
    configs = [{"name": key, "configOperation": op, "value": value} for key, op, value in ops]
    return {"resourceType": kind, "resourceName": name, "configs": configs}


def test_the_global_config(recorder: Recorder) -> None:
    url = f"{BASE}/global-config:change"
    plugin = {"configKey": "plugin.key", "configValue": "hidden-4"}
    good = {"configData": [{"configKey": "log.preallocate", "configValue": "true"}, plugin]}
    tried = recorder.send("changeGlobalConfig", 200, url, json={**good, "validateOnly": True}).json()
    assert (tried["changeId"], len(tried["diff"])) == (None, 2)
    made = recorder.send("changeGlobalConfig", 200, url, json=good)
    assert made.headers["confplane-change-id"] == made.json()["changeId"]
    recorder.send("changeGlobalConfig", 200, url, json={"configData": []})
    listener = {"configKey": "listeners", "configValue": "PLAINTEXT://:1"}
    refused = recorder.send("changeGlobalConfig", 400, url, json={"configData": [listener]}).json()
    assert (refused["errorCode"], refused["errorName"], refused["diff"]) == (42, "INVALID_REQUEST", [])
    recorder.send("changeGlobalConfig", 400, url, json={"configData": [{"configKey": "log.preallocate"}]})
    secret = {"configKey": "listener.name.x.ssl.key.password", "configValue": None}
    recorder.send("changeGlobalConfig", 200, url, json={"configData": [secret]})
    found = recorder.send("getGlobalConfig", 200, f"{BASE}/global-config")
    assert {"configKey": "plugin.key", "configValue": None} in found.json()["configData"]
    assert "hidden" not in found.text + made.text
    recorder.send("getGlobalConfig", 400, f"{BASE}/global-config?x=1")


def test_both_facets_of_clients(recorder: Recorder) -> None:
    url = f"{BASE}/clients:alter"
    good = {
        "entity": [{"entityType": "user", "entityName": "both"}],
        "quotas": [{"key": "producer_byte_rate", "value": 10}],
        "configs": [{"key": "acks", "value": "1"}],
    }
    bad = {"entity": [{"entityType": "user", "entityName": "bad"}], "configs": [{"key": "acks", "value": "2"}]}
    answer = recorder.send("alterClients", 200, url, json={"entries": [good]})
    [entry] = answer.json()["entries"]
    assert answer.headers["confplane-change-id"] == entry["changeId"]
    assert entry["diff"] == {
        "quotas": [{"key": "producer_byte_rate", "before": None, "after": 10}],
        "configs": [{"key": "acks", "before": None, "after": "1"}],
    }
    recorder.send("alterClients", 200, url, json={"entries": []})
    recorder.send("alterClients", 207, url, json={"entries": [bad, good]})
    recorder.send("alterClients", 400, url, json={"entries": [bad]})
    stale = {**good, "quotas": [], "configsEtag": '"another"'}
    refused = recorder.send("alterClients", 412, url, json={"entries": [stale]}).json()
    assert refused["errors"][0]["pointer"] == "/entries/0/configsEtag"


def test_entities_of_every_type(recorder: Recorder) -> None:
    url = f"{BASE}/entity-configs:alter"
    good = {
        "entityType": "ips",
        "entityName": "10.9.8.7",
        "addedConfigs": [{"configKey": "connection_creation_rate", "configValue": "10"}],
    }
    bad = {**good, "entityType": "group"}
    answer = recorder.send("alterEntityConfigs", 200, url, json={"entities": [good]})
    assert answer.headers["confplane-change-id"] == answer.json()["entities"][0]["changeId"]
    recorder.send("alterEntityConfigs", 200, url, json={"entities": []})
    mixed = recorder.send("alterEntityConfigs", 207, url, json={"entities": [bad, good]}).json()
    assert [item["errorName"] for item in mixed["entities"]] == ["INVALID_ENTITY", "NONE"]
    recorder.send("alterEntityConfigs", 400, url, json={"entities": [bad]})
    unknown = {"entityType": "ip", "entityName": "10.9.8.7", "deletedConfigs": ["producer_byte_rate"]}
    recorder.send("alterEntityConfigs", 422, url, json={"entities": [unknown]})
    deleted = {"entityType": "ip", "entityName": "10.9.8.7", "deletedConfigs": ["connection_creation_rate"]}
    [entity] = recorder.send("alterEntityConfigs", 200, url, json={"entities": [deleted]}).json()["entities"]
    assert entity["fallbacks"] == [
        {"configKey": "connection_creation_rate", "configValue": None, "source": "DEFAULT_CONFIG"}
    ]
    url = f"{BASE}/entity-configs:describe"
    names = [{"entityType": kind, "entityName": None} for kind in ("user", "broker", "topic")]
    recorder.send("describeEntityConfigs", 200, url, json={"entities": names[:2]})
    assert recorder.send("describeEntityConfigs", 207, url, json={"entities": names}).json()["failed"] == 1
    recorder.send("describeEntityConfigs", 400, url, json={"entities": names[2:]})


@pytest.mark.parametrize("operation_id", ["alterClientQuotas", "createClientConfigs", "describeClientConfigs"])
def test_bodies(recorder: Recorder, operation_id: str) -> None:
    url = {
        "alterClientQuotas": f"{BASE}/client-quotas:alter",
        "createClientConfigs": f"{BASE}/client-configs",
        "describeClientConfigs": f"{BASE}/client-configs:describe",
    }[operation_id]
    recorder.send(operation_id, 415, url, content=b"{}", headers={"Content-Type": "text/plain"})
    recorder.send(operation_id, 415, url, content=b"{}")
    recorder.send(operation_id, 400, url, content=b"", headers={"Content-Type": "application/json"})
    large = b'{"components":"' + b"x" * (8 * 1024 * 1024) + b'"}'
    recorder.send(operation_id, 413, url, content=large, headers={"Content-Type": "application/json"})


def test_registrations(recorder: Recorder) -> None:
    body = {
        "components": [{"entityType": "user", "matchType": "exact", "match": "registered"}],
        "resolveEntity": True,
        "supportedConfigs": ["acks"],
        "clientInformation": {"softwareName": "librdkafka", "softwareVersion": "2.8.0"},
    }
    recorder.send("describeClientConfigs", 200, f"{BASE}/client-configs:describe", json=body)
    described = recorder.send(
        "describeClientConfigs", 200, f"{BASE}/client-configs:describe", json={"components": body["components"]}
    ).json()
    assert described["entries"][0]["entityCompatibility"][0]["supportedConfigs"] == ["acks"]
    url = f"{BASE}/registrations"
    items = wait_for(
        lambda: recorder.send("listRegistrations", 200, url, params={"id": "user=registered"}).json()["items"]
    )
    assert items[0]["clientInformation"] == {"softwareName": "librdkafka", "softwareVersion": "2.8.0"}
    recorder.send("listRegistrations", 400, url, params={"id": "nobody"})
    recorder.send("clearRegistrations", 400, url)
    assert recorder.send("clearRegistrations", 200, url, params={"id": "user=registered"}).json() == {"cleared": 1}


def test_drift(recorder: Recorder) -> None:
    assert recorder.send("listDrift", 200, f"{BASE}/drift").json() == {"items": [], "nextPageToken": None}
    recorder.send("listDrift", 400, f"{BASE}/drift", params={"pageSize": 0})
    body = {"entities": [{"id": "user=alice", "keys": ["producer_byte_rate"]}]}
    # Of a cluster without a target nothing differs.
    assert recorder.send("adoptDrift", 200, f"{BASE}/drift:adopt", json=body).json()["results"] == []
    assert recorder.send("reapplyDrift", 200, f"{BASE}/drift:reapply", json=body).json() == {
        "results": [{"id": "user=alice", "keys": []}]
    }
    for operation_id in ("adoptDrift", "reapplyDrift"):
        url = f"{BASE}/drift:{operation_id.removesuffix('Drift')}"
        for entities in ([{"id": "nobody"}], [{"id": "user=a"}, {"id": "user=a"}], [{"id": "user=a", "keys": []}]):
            refused = recorder.send(operation_id, 400, url, json={"entities": entities}).json()
            assert refused["errors"][0]["pointer"].startswith("/entities/")


def test_applied_status(recorder: Recorder) -> None:
    body = {
        "softwareName": "kafka-python",
        "softwareVersion": "2.2",
        "appliedRevision": "1",
        "refused": [{"key": "acks", "reason": "enable.idempotence is set"}],
    }
    url = f"{BASE}/client-configs/user=reporting/instances/one"
    recorder.send("reportClientConfigs", 200, url, json=body)
    recorder.send("reportClientConfigs", 200, url, json=body, params={"validateOnly": "true"})
    recorder.send("reportClientConfigs", 400, url, json={**body, "appliedRevision": "x"})
    recorder.send("reportClientConfigs", 400, url, json=body, headers={"Idempotency-Key": "k"})
    recorder.send("reportClientConfigs", 404, url.replace("default", "absent"), json=body)
    recorder.send("reportClientConfigs", 415, url, content=b"{}")
    status = f"{BASE}/client-configs/user=reporting/status"
    found = recorder.send("statusClientConfigs", 200, status, params={"consistency": "strong"}).json()
    assert (found["instances"], len(found["appliedBy"]), len(found["refused"])) == (1, 1, 1)
    recorder.send("statusClientConfigs", 400, f"{BASE}/client-configs/user/status")
    recorder.send("putClientConfigs", 200, f"{BASE}/client-configs/user=reporting", json={"configs": {"acks": "1"}})
    late = {"applied": "false", "user": "reporting"}
    [item] = recorder.send("listClientConfigs", 200, f"{BASE}/client-configs", params=late).json()["items"]
    assert item["id"] == "user=reporting"
    recorder.send("listClientConfigs", 400, f"{BASE}/client-configs", params={"applied": "maybe"})
    recorder.send("statusClientConfigs", 404, status.replace("default", "absent"))


def test_audit(recorder: Recorder) -> None:
    one = f"{BASE}/client-quotas/user=audited"
    change = recorder.send(
        "putClientQuotas",
        200,
        one,
        json={"quotas": {"request_percentage": 12.5}},
        params={"reason": "to see it", "ticket": "T-1"},
    ).headers["confplane-change-id"]
    recorder.send("deleteClientQuotas", 200, one)
    found = recorder.send("getAuditedChange", 200, f"{BASE}/audit/{change}").json()
    assert found["reason"] == "to see it"
    assert found["outcome"] == "committed"
    page = recorder.send("searchAudit", 200, f"{BASE}/audit", params={"entity": "user=audited", "pageSize": 1}).json()
    assert [item["entities"][0]["after"] for item in page["items"]] == [{}]
    recorder.send(
        "searchAudit",
        200,
        f"{BASE}/audit",
        params={"pageToken": page["nextPageToken"], "since": "2020-01-01T00:00:00Z"},
    )
    recorder.send("searchAudit", 400, f"{BASE}/audit", params={"since": "yesterday"})
    recorder.send("getAuditedChange", 404, f"{BASE}/audit/019a9c5e-7b2c-7d11-8a52-5d0c6f7e9b10")
    recorder.send("getAuditedChange", 400, f"{BASE}/audit/1")


def test_the_feed(recorder: Recorder) -> None:
    url = f"{BASE}/changes"
    position = recorder.send("followChanges", 200, url).json()["position"]
    recorder.send("putClientQuotas", 200, f"{BASE}/client-quotas/user=fed", json={"quotas": {"request_percentage": 5}})
    query = {"after": position, "wait": "30", "entity": "user=fed"}
    [event] = recorder.send("followChanges", 200, url, params=query).json()["events"]
    assert event["entities"][0]["keys"] == [
        {"key": "request_percentage", "before": None, "after": 5, "sensitive": False}
    ]
    page = recorder.send("followChanges", 200, url, params={"snapshot": "true", "entity": "user=fed"}).json()
    assert [state["entities"][0]["id"] for state in page["snapshot"]["states"]] == ["user=fed"]
    assert page["snapshot"]["bookmark"]["revision"] == page["revision"]
    asked = {"requests": "only", "entity": "user=fed"}
    position = recorder.send("followChanges", 200, url, params=asked).json()["position"]
    edit = {"facet": "client-quotas", "id": "user=fed", "ops": [{"key": "request_percentage", "value": 6}]}
    request = recorder.send("createChangeRequest", 201, f"{BASE}/change-requests", json={"edits": [edit]}).json()
    asked |= {"after": position, "wait": "30"}
    [event] = recorder.send("followChanges", 200, url, params=asked).json()["events"]
    assert (event["type"], event["request"]["id"], event["request"]["event"]) == ("request", request["id"], "proposed")
    recorder.send("followChanges", 400, url, params={"snapshot": "true", "requests": "only"})
    recorder.send("followChanges", 400, url, params={"after": "x"})
    recorder.send("followChanges", 400, url, params={"wait": "61"})


def test_manifests(recorder: Recorder) -> None:
    plan, apply = f"{BASE}/manifests:plan", f"{BASE}/manifests:apply"
    document = {
        "apiVersion": "confplane/v1",
        "kind": "Configs",
        "entities": [{"id": "user=planned", "quotas": {"request_percentage": 5}}],
    }
    planned = recorder.send("planManifest", 200, plan, json=document).json()
    recorder.send("planManifest", 400, plan, json={**document, "kind": "Secrets"})
    told = {**document, "planId": planned["planId"]}
    recorder.send("applyManifest", 400, apply, json=document)
    key = {"Idempotency-Key": "manifest"}
    for _ in range(2):
        applied = recorder.send("applyManifest", 200, apply, json=told, headers=key)
    assert applied.headers["idempotency-replayed"] == "true"
    assert applied.json()["planId"] == planned["planId"]
    assert recorder.send("planManifest", 200, plan, json=document).json()["planId"] != planned["planId"]
    export, planned_alone = f"{BASE}/manifests:export", {"user": "planned"}
    assert recorder.send("exportManifest", 200, export, params=planned_alone).json() == document
    text = recorder.send("exportManifest", 200, export, params=planned_alone, headers={"Accept": "application/yaml"})
    assert (text.headers["content-type"], yaml.safe_load(text.text)) == ("application/yaml", document)
    recorder.send("exportManifest", 400, export, params={"kind": "users"})


@pytest.mark.parametrize(
    ("noun", "facet", "content"),
    [
        ("ClientQuotas", "client-quotas/user=past", {"quotas": {"producer_byte_rate": 1}}),
        ("ClientConfigs", "client-configs/user=past", {"configs": {"acks": "1"}}),
        ("Configs", "configs/broker=800", {"configs": {"plugin.key": "hidden-5", "log.retention.ms": "1000"}}),
    ],
)
def test_the_past(recorder: Recorder, noun: str, facet: str, content: dict[str, Any]) -> None:
    collection, one = f"{BASE}/{facet.partition('/')[0]}", f"{BASE}/{facet}"
    wait_for(lambda: (recorder.send("getCluster", 200, BASE).json()["recorded"] or {}).get("since"))
    absent = recorder.send("getCluster", 200, BASE).headers["confplane-revision"]
    put = recorder.send(f"put{noun}", 200, one, json=content).headers["confplane-revision"]
    recorder.send(f"delete{noun}", 200, one)
    found = recorder.send(f"get{noun}", 200, one, params={"at": put, "view": "full"})
    assert (found.json()["at"]["revision"], found.json()["at"]["exact"]) == (put, True)
    assert found.json()["at"]["notKept"] == (["plugin.key"] if noun == "Configs" else [])
    assert "hidden" not in found.text
    etag = {"If-None-Match": found.headers["etag"]}
    recorder.send(f"get{noun}", 304, one, params={"at": put}, headers=etag)
    recorder.send(f"get{noun}", 404, one, params={"at": absent})
    recorder.send(f"get{noun}", 404, one, params={"at": "9999-01-01T00:00:00Z"})
    for moment in ("1", "2020-01-01T00:00:00Z"):
        for operation_id, url in ((f"get{noun}", one), (f"list{noun}", collection)):
            gone = recorder.send(operation_id, 410, url, params={"at": moment}).json()
            assert gone["since"].isdecimal()
            assert gone["sinceTime"] > "2020"
    for moment in ("yesterday", "2026-01-31", str(2**63), str(2**62), ""):
        for operation_id, url in ((f"get{noun}", one), (f"list{noun}", collection)):
            refused = recorder.send(operation_id, 400, url, params={"at": moment}).json()
            assert refused["errors"][0]["pointer"] == "at"
    page = recorder.send(f"list{noun}", 200, collection, params={"at": put, "pageSize": 1}).json()
    ids = [item["id"] for item in page["items"]]
    while page["nextPageToken"] is not None:
        params = {"at": "9999-01-01T00:00:00Z", "pageToken": page["nextPageToken"]}
        page = recorder.send(f"list{noun}", 200, collection, params=params).json()
        assert page["revision"] == put
        ids += [item["id"] for item in page["items"]]
    assert facet.partition("/")[2] in ids
    recorder.send(f"list{noun}", 400, collection, params={"at": put, "pageToken": "x"})
    history = recorder.send(f"history{noun}", 200, f"{one}/history", params={"pageSize": 1, "reason": "a look"}).json()
    [removed] = history["items"]
    assert [change["after"] for change in removed["changes"]] == [None] * len(removed["changes"])
    token = {"pageToken": history["nextPageToken"]}
    older = recorder.send(f"history{noun}", 200, f"{one}/history", params=token)
    assert [item["revision"] for item in older.json()["items"]][:1] == [put]
    assert "hidden" not in older.text
    recorder.send(f"history{noun}", 400, f"{one}/history", params={"pageToken": "x"})
    recorder.send(f"history{noun}", 400, f"{collection}/planet=x/history")
    differs = recorder.send(f"diff{noun}", 200, f"{one}/diff", params={"from": absent, "to": put}).json()
    assert [change["key"] for change in differs["changes"]] == sorted(next(iter(content.values())))
    recorder.send(f"diff{noun}", 200, f"{one}/diff", params={"from": put})
    recorder.send(f"diff{noun}", 400, f"{one}/diff")
    recorder.send(f"diff{noun}", 400, f"{one}/diff", params={"from": "x"})
    recorder.send(f"diff{noun}", 410, f"{one}/diff", params={"from": "1"})
    _check_return(recorder, noun, f"{one}:revert", put, removed)


def _check_return(recorder: Recorder, noun: str, url: str, put: str, removed: dict[str, Any]) -> None:
    """Return an entity to the revision at which its content was put; it was removed behind that."""
    operation_id, one = f"revert{noun}", url.removesuffix(":revert")
    recorder.send(operation_id, 410, url, json={"to": "1"})
    recorder.send(operation_id, 400, url, json={"to": "yesterday"})
    recorder.send(operation_id, 412, url, json={"to": "9999-01-01T00:00:00Z"}, headers={"If-Match": '"none"'})
    if noun == "Configs":
        refused = recorder.send(operation_id, 409, url, json={"to": put}).json()
        assert (refused["type"], refused["kafkaErrorCode"]) == ("/problems/not-revertible", 42)
        assert "plugin.key" in refused["detail"]
        return
    shown = recorder.send(operation_id, 200, url, json={"to": put, "validateOnly": True}).json()
    for _ in "12":
        done = recorder.send(operation_id, 200, url, json={"to": put}, headers={"Idempotency-Key": "to"}).json()
        assert (done["diff"], done["reverts"]) == (shown["diff"], [removed["changeId"]])
    content = {change["key"]: change["before"] for change in removed["changes"]}
    assert recorder.send(f"get{noun}", 200, one).json()["quotas" if noun == "ClientQuotas" else "configs"] == content
    newest = recorder.send(f"history{noun}", 200, f"{one}/history").json()["items"][0]
    assert (newest["changeId"], newest["reverts"]) == (done["changeId"], [removed["changeId"]])


def test_the_return_of_broker_configs(recorder: Recorder) -> None:
    one = f"{BASE}/configs/broker=801"
    before = recorder.send("putConfigs", 200, one, json={"configs": {"log.retention.ms": "1000"}})
    recorder.send("putConfigs", 200, one, json={"configs": {"log.retention.ms": "2000"}})
    body = {"to": before.headers["confplane-revision"]}
    for _ in "12":
        recorder.send("revertConfigs", 200, f"{one}:revert", json=body, headers={"Idempotency-Key": "to"})
    assert recorder.send("getConfigs", 200, one).json()["configs"] == {"log.retention.ms": "1000"}


def test_reverts(recorder: Recorder) -> None:
    url, quotas = f"{BASE}/audit:revert", f"{BASE}/client-quotas"
    named = [{"entity": [{"entityType": "user", "entityName": f"revert-{each}"}]} for each in "ab"]
    entries = [{**each, "ops": [{"key": "producer_byte_rate", "value": 7}]} for each in named]
    request = {"X-Request-Id": "reverted-request"}
    recorder.send("alterClientQuotas", 200, f"{quotas}:alter", json={"entries": entries}, headers=request)
    one = recorder.send("putClientQuotas", 200, f"{quotas}/user=revert-a", json={"quotas": {"producer_byte_rate": 8}})
    partly = recorder.send(
        "revertChanges", 207, url, json={"requestId": "reverted-request", "validateOnly": True}
    ).json()
    assert partly["failed"] == 1
    results = {each["id"]: each for each in partly["results"]}
    refused = results["user=revert-a"]
    assert (refused["errorCode"], refused["outcome"], refused["facet"]) == (95, "not_applied", "client-quotas")
    [later] = refused["laterChanges"]
    assert (later["changeId"], later["keys"]) == (one.headers["confplane-change-id"], ["producer_byte_rate"])
    assert results["user=revert-b"]["diff"] == [{"key": "producer_byte_rate", "before": 7, "after": None}]
    body = {"changeId": one.headers["confplane-change-id"]}
    for _ in "12":
        done = recorder.send("revertChanges", 200, url, json=body, headers={"Idempotency-Key": "revert"})
        assert done.json()["results"][0]["reverts"] == [body["changeId"]]
    again = recorder.send("revertChanges", 200, url, json=body).json()["results"][0]
    assert (again["diff"], again["changeId"]) == ([], None)
    assert "already" in again["warnings"][0]
    recorder.send("putClientQuotas", 200, f"{quotas}/user=revert-a", json={"quotas": {"producer_byte_rate": 9}})
    problem = recorder.send("revertChanges", 409, url, json=body).json()
    assert (problem["type"], problem["kafkaErrorCode"]) == ("/problems/revert-conflict", 95)
    assert problem["laterChanges"] == problem["results"][0]["laterChanges"]
    recorder.send("revertChanges", 200, url, json={**body, "force": True, "keys": ["producer_byte_rate"]})
    found = recorder.send("searchAudit", 200, f"{BASE}/audit", params={"requestId": "reverted-request"}).json()
    assert {each["requestId"] for each in found["items"]} == {"reverted-request"}
    recorder.send("revertChanges", 404, url, json={"changeId": MADE_UP})
    recorder.send("revertChanges", 404, url, json={"requestId": "none"})
    recorder.send("revertChanges", 409, url, json={**body, "keys": ["none"]})
    moment = "2026-01-31T12:00:00Z"
    for wrong in (
        {},
        {"changeId": "x"},
        {**body, "requestId": "r"},
        {**body, "since": moment},
        {"principal": "User:x"},
        {"principal": "User:x", "since": "today"},
        {"principal": "User:x", "since": moment, "until": ""},
        {"requestId": None},
        {**body, "keys": []},
    ):
        recorder.send("revertChanges", 400, url, json=wrong)


@pytest.mark.parametrize("operation_id", WRITES)
def test_a_request_that_is_sent_again(recorder: Recorder, operation_id: str) -> None:
    # A user of its own for each operation, except that what was put is deleted.
    user = f"again-{operation_id.removeprefix('put').removeprefix('delete')}"
    _, path, first = json.loads(json.dumps(WRITES[operation_id]).replace("alice", user))
    url, key = f"{BASE}/{path}", {"Idempotency-Key": "sent twice"}
    body = {} if first is None else {"json": first}
    status = 201 if operation_id.startswith("create") else 200
    answer = recorder.send(operation_id, status, url, headers=key, **body)
    again = recorder.send(operation_id, status, url, headers=key, **body)
    assert (again.content, again.headers["idempotency-replayed"]) == (answer.content, "true")
    if first is not None:
        other: dict[str, Any] = {"etag": None} if ":" not in path else {member: [] for member in first}
        reused = recorder.send(operation_id, 422, url, headers=key, json={**first, **other}).json()
        assert (reused["type"], reused["retriable"]) == ("/problems/idempotency-key-reused", False)
    recorder.send(operation_id, 400, url, headers={"Idempotency-Key": "k" * 256}, **body)


def test_rollups(recorder: Recorder) -> None:
    recorder.send("listRollups", 200, f"{BASE}/rollups")
    recorder.send("listRollups", 400, f"{BASE}/rollups?x=1")
    for job in ROLLUPS:
        url, operation_id = f"{BASE}/rollups/{job}", f"getRollup{job.capitalize()}"
        answer = recorder.send(operation_id, 200, url)
        assert len(answer.json()["items"]) == 1
        recorder.send(operation_id, 304, url, headers={"If-None-Match": answer.headers["etag"]})
        recorder.send(operation_id, 400, f"{url}?x=1")
        recorder.send(operation_id, 404, f"/v1/clusters/none/rollups/{job}")


def test_tokens(recorder: Recorder) -> None:
    url = "/v1/tokens"
    body = {"principal": "User:payments-portal", "groups": ["Group:payments"], "note": "portal"}
    made = recorder.send("createToken", 201, url, json=body, params={"reason": "new", "ticket": "CHG-1"})
    one, secret = made.headers["location"], made.json()["token"]
    assert one == f"{url}/{made.json()['id']}"
    assert made.headers["cache-control"] == "no-store"
    assert "token" not in recorder.send("createToken", 200, url, json=body, params={"validateOnly": "true"}).json()
    whoami = recorder.send("whoami", 200, "/v1/whoami", headers={"Authorization": f"Bearer {secret}"}).json()
    assert (whoami["principal"], whoami["groups"], whoami["tokenId"]) == (
        "User:payments-portal",
        ["Group:payments"],
        made.json()["id"],
    )
    for wrong, pointer in (
        ({}, "/principal"),
        ({"principal": "User:admin"}, "/principal"),
        ({"principal": "User:a", "expiresAt": "tomorrow"}, "/expiresAt"),
        ({"principal": "User:a", "expiresAt": "2020-01-01T00:00:00Z"}, "/expiresAt"),
        ({"principal": "User:a", "groups": ["payments"]}, "/groups/0"),
        ({"principal": "User:a", "narrowing": {"operations": ["READ"]}}, "/narrowing/operations/0"),
        ({"principal": "User:a", "narrowing": {"clusters": ["none"]}}, "/narrowing/clusters"),
        ({"principal": "User:a", "narrowing": {"clusters": []}}, "/narrowing/clusters"),
        ({"principal": "User:a", "token": "mine"}, "/token"),
    ):
        problem = recorder.send("createToken", 400, url, json=wrong).json()
        assert [part["pointer"] for part in problem["errors"]] == [pointer], problem
    key = {"Idempotency-Key": "k"}
    problem = recorder.send("createToken", 400, url, json=body, headers=key).json()
    assert problem["type"] == "/problems/idempotency-unsupported"
    recorder.send("getToken", 200, one)
    recorder.send("getToken", 400, f"{url}/ABC")
    recorder.send("getToken", 404, f"{url}/{MADE_UP}")
    page = recorder.send("listTokens", 200, url, params={"principal": "User:payments-portal", "pageSize": 1}).json()
    assert page["items"][0]["note"] == "portal"
    recorder.send("listTokens", 400, url, params={"principal": "alice"})
    recorder.send("listTokens", 400, url, params={"pageToken": "x"})
    rotated = recorder.send("rotateToken", 201, f"{one}:rotate", json={"overlapSeconds": 60})
    assert rotated.json()["replaces"] == made.json()["id"]
    announced = recorder.send("getToken", 200, one, headers={"Authorization": f"Bearer {secret}"})
    assert announced.headers["confplane-token-expires"] == announced.json()["expiresAt"]
    recorder.send("rotateToken", 200, f"{one}:rotate", json={"overlapSeconds": 0}, params={"validateOnly": "true"})
    recorder.send("rotateToken", 400, f"{one}:rotate", json={"overlapSeconds": -1})
    recorder.send("revokeToken", 200, one)
    assert recorder.send("revokeToken", 200, one).json()["status"] == "revoked"
    recorder.send("whoami", 401, "/v1/whoami", headers={"Authorization": f"Bearer {secret}"})
    recorder.send("revokeToken", 400, one, headers=key)
    recorder.send("revokeToken", 404, f"{url}/{MADE_UP}")
    recorder.send("rotateToken", 400, f"{one}:rotate", json={"overlapSeconds": 0})


def test_grants(recorder: Recorder) -> None:
    url = "/v1/grants"
    body = {"principal": "Group:payments", "operation": "ALTER_CONFIGS", "resourceType": "user", "name": "payments-app"}
    made = recorder.send("createGrant", 201, url, json=body)
    one, etag = made.headers["location"], made.headers["etag"]
    again = recorder.send("createGrant", 200, url, json=body)
    assert (again.json(), again.headers["etag"], again.headers["location"]) == (made.json(), etag, one)
    recorder.send("createGrant", 200, url, json={**body, "name": "x"}, params={"validateOnly": "true"})
    for wrong, pointer in (
        ({**body, "role": "viewer"}, "/operation"),
        ({**body, "operation": "READ"}, "/operation"),
        ({**body, "operation": "FREEZE"}, "/operation"),
        ({**body, "cluster": "none"}, "/cluster"),
        ({**body, "patternType": "prefixed", "name": "*"}, "/name"),
        ({**body, "resourceType": "cluster"}, "/name"),
        ({**body, "note": "\x00"}, "/note"),
        ({**body, "principal": "User:"}, "/principal"),
    ):
        problem = recorder.send("createGrant", 400, url, json=wrong).json()
        assert [part["pointer"] for part in problem["errors"]] == [pointer], problem
    recorder.send("getGrant", 200, one)
    recorder.send("getGrant", 304, one, headers={"If-None-Match": etag})
    recorder.send("getGrant", 400, f"{url}/ABC")
    recorder.send("getGrant", 404, f"{url}/{MADE_UP}")
    other = {**body, "name": "payments-", "patternType": "prefixed"}
    replaced = recorder.send("putGrant", 200, one, json=other, headers={"If-Match": etag})
    failed = recorder.send("putGrant", 412, one, json=body, headers={"If-Match": etag}).json()
    assert failed["etag"] == replaced.headers["etag"]
    recorder.send("putGrant", 200, one, json=body, params={"validateOnly": "true"})
    recorder.send("putGrant", 400, one, json={})
    recorder.send("putGrant", 400, one, json=other, headers={"If-Match": "x"})
    twin = recorder.send("createGrant", 201, url, json=body).headers["location"]
    recorder.send("putGrant", 409, twin, json=other)
    assert len(recorder.send("listGrants", 200, url, params={"principal": "Group:payments"}).json()["items"]) >= 2
    recorder.send("listGrants", 400, url, params={"cluster": "none"})
    recorder.send("deleteGrant", 412, one, headers={"If-Match": etag})
    recorder.send("deleteGrant", 200, one, headers={"If-Match": replaced.headers["etag"]})
    recorder.send("deleteGrant", 404, one)
    recorder.send("deleteGrant", 200, twin)
    recorder.send("deleteGrant", 400, one, headers={"Idempotency-Key": "k"})


def test_schedules(recorder: Recorder) -> None:
    url, user = f"{BASE}/schedules", f"{BASE}/client-quotas/user=for-a-while"
    body, hour = {"quotas": {"producer_byte_rate": 5}}, {"expiresIn": "3600"}
    for wrong in ({"expiresIn": "1"}, {"expiresIn": "x"}, {"revertAt": "2020-01-01T00:00:00Z"}, {"revertAt": "soon"}):
        problem = recorder.send("putClientQuotas", 400, user, json=body, params=wrong).json()
        assert [part["pointer"] for part in problem["errors"]] == list(wrong)
    both = {**hour, "revertAt": "2020-01-01T00:00:00Z"}
    recorder.send("putClientQuotas", 400, user, json=body, params=both)
    recorder.send("freezeCluster", 400, f"{BASE}:freeze", json={"reason": "x"}, params=hour)
    made = recorder.send("putClientQuotas", 200, user, json=body, params=hour).headers["confplane-change-id"]
    [item] = recorder.send("listSchedules", 200, url, params={"entity": "user=for-a-while"}).json()["items"]
    assert (item["changeId"], item["state"], item["entities"]) == (made, "active", ["user=for-a-while"])
    recorder.send("listSchedules", 400, url, params={"entity": "nobody"})
    assert recorder.send("pauseSchedules", 200, f"{url}:pause", json={"reason": "a test"}).json()["pause"]["reason"]
    recorder.send("pauseSchedules", 400, f"{url}:pause", json={"reason": " "})
    assert recorder.send("resumeSchedules", 200, f"{url}:resume").json() == {"pause": None}
    recorder.send("resumeSchedules", 400, f"{url}:resume", headers={"Idempotency-Key": "k"})
    recorder.send("endSchedule", 200, f"{url}/{made}:end", params={"validateOnly": "true"})
    for replayed in (None, "true"):
        ended = recorder.send("endSchedule", 200, f"{url}/{made}:end", headers={"Idempotency-Key": "end"})
        assert (ended.json()["state"], ended.headers.get("idempotency-replayed")) == ("ended", replayed)
    assert ended.json()["endChangeId"] == ended.headers["confplane-change-id"]
    recorder.send("endSchedule", 404, f"{url}/01900000-0000-7000-8000-000000000000:end")
    recorder.send("endSchedule", 400, f"{url}/x:end")
    assert recorder.send("listSchedules", 200, url, params={"ended": "true"}).json()["items"][0]["changeId"] == made


def test_change_requests(recorder: Recorder, service: Service) -> None:
    url, alice = f"{BASE}/change-requests", "user=proposed"
    edit = {"facet": "client-quotas", "id": alice, "ops": [{"key": "producer_byte_rate", "value": 5}]}
    people_of = {
        name: {"Authorization": f"Bearer {reviewers.token_of(service, name, operations)}"}
        for name, operations in (("proposer", reviewers.PROPOSES), ("reviewer", reviewers.REVIEWS))
    }
    dev, ops = people_of["proposer"], people_of["reviewer"]
    recorder.send("createChangeRequest", 200, url, json={"edits": [edit]}, params={"validateOnly": "true"})
    made = recorder.send("createChangeRequest", 201, url, json={"edits": [edit]}, headers=dev)
    one, digest = made.headers["location"], made.json()["digest"]
    for wrong, pointer in (
        ({}, "/edits"),
        ({"edits": [edit], "revert": MADE_UP}, "/edits"),
        ({"edits": [edit, edit]}, "/edits/1/id"),
        ({"edits": [{**edit, "ops": []}]}, "/edits/0/ops"),
        ({"edits": [{**edit, "id": "nobody"}]}, "/edits/0/id"),
        ({"edits": [{**edit, "facet": "quotas"}]}, "/edits/0/facet"),
        ({"edits": [{**edit, "ops": [{"key": "producer_byte_rate", "value": "x"}]}]}, "/edits/0/ops/0/value"),
        ({"edits": [edit], "expiresAt": "2020-01-01T00:00:00Z"}, "/expiresAt"),
        ({"edits": [edit], "applyAt": "2020-01-01T00:00:00Z"}, "/applyAt"),
        ({"edits": [edit], "applyAt": "soon"}, "/applyAt"),
    ):
        problem = recorder.send("createChangeRequest", 400, url, json=wrong).json()
        assert [part["pointer"] for part in problem["errors"]] == [pointer], problem
    recorder.send("createChangeRequest", 403, url, json={"edits": [edit]}, headers=ops)
    recorder.send("createChangeRequest", 404, url, json={"revert": MADE_UP})
    recorder.send("createChangeRequest", 400, url, json={"edits": [edit]}, headers={"Idempotency-Key": "k" * 256})
    [item] = recorder.send("listChangeRequests", 200, url, params={"entity": alice, "state": "open"}).json()["items"]
    assert (item["id"], item["author"]["principal"]) == (made.json()["id"], "User:proposer")
    recorder.send("listChangeRequests", 400, url, params={"state": "closed"})
    shown = recorder.send("getChangeRequest", 200, one)
    assert shown.json()["changes"][0]["diff"] == [{"key": "producer_byte_rate", "before": None, "after": 5}]
    recorder.send("getChangeRequest", 304, one, headers={"If-None-Match": shown.headers["etag"]})
    recorder.send("getChangeRequest", 404, f"{url}/{MADE_UP}")
    recorder.send("getChangeRequest", 400, f"{url}/x")
    recorder.send("reviseChangeRequest", 412, f"{one}:revise", json={}, headers={**dev, "If-Match": '"x"'})
    problem = recorder.send("reviseChangeRequest", 400, f"{one}:revise", json={"applyAt": "soon"}, headers=dev).json()
    assert problem["errors"][0]["pointer"] == "/applyAt"
    recorder.send("applyChangeRequest", 409, f"{one}:apply", json={}, headers=dev)
    recorder.send("approveChangeRequest", 400, f"{one}:approve", json={})
    recorder.send("approveChangeRequest", 403, f"{one}:approve", json={"digest": digest})
    recorder.send("approveChangeRequest", 403, f"{one}:approve", json={"digest": digest}, headers=dev)
    recorder.send("approveChangeRequest", 409, f"{one}:approve", json={"digest": "0" * 40}, headers=ops)
    recorder.send("commentChangeRequest", 400, f"{one}:comment", json={"comment": "\x00"}, headers=dev)
    recorder.send("commentChangeRequest", 200, f"{one}:comment", json={"comment": "please"}, headers=dev)
    recorder.send("approveChangeRequest", 200, f"{one}:approve", json={"digest": digest}, headers=ops)
    recorder.send("applyChangeRequest", 200, f"{one}:apply", json={}, headers=dev, params={"validateOnly": "true"})
    applied = recorder.send("applyChangeRequest", 200, f"{one}:apply", json={}, headers=dev).json()
    assert [event["action"] for event in applied["events"]] == ["open", "comment", "approve", "begin", "finish"]
    [change] = recorder.send("searchAudit", 200, f"{BASE}/audit", params={"entity": alice}).json()["items"]
    assert (change["changeId"], change["applies"]) == (applied["changeId"], applied["id"])
    again = recorder.send("createChangeRequest", 201, url, json={"revert": applied["changeId"]}, headers=dev).json()
    assert again["changes"][0]["diff"] == [{"key": "producer_byte_rate", "before": 5, "after": None}]
    other = f"{url}/{again['id']}"
    times = {"applyAt": "2026-01-31T12:00:00Z", "expiresAt": None}
    recorder.send("reviseChangeRequest", 400, f"{other}:revise", json=times, headers=dev)
    recorder.send("reviseChangeRequest", 200, f"{other}:revise", json={"applyAt": None}, headers=dev)
    recorder.send("rejectChangeRequest", 403, f"{other}:reject", json={}, headers=dev)
    recorder.send("cancelChangeRequest", 403, f"{other}:cancel", json={}, headers=ops)
    recorder.send("cancelChangeRequest", 200, f"{other}:cancel", json={}, headers=dev, params={"validateOnly": "true"})
    recorder.send("rejectChangeRequest", 200, f"{other}:reject", json={"comment": "no"}, headers=ops)
    for name in ("revise", "cancel", "reject", "apply"):
        recorder.send(f"{name}ChangeRequest", 409, f"{other}:{name}", json={})
        recorder.send(f"{name}ChangeRequest", 400, f"{other}:{name}", json={"x": 1})


def test_a_change_request_that_is_sent_twice(recorder: Recorder, service: Service) -> None:
    url = f"{BASE}/change-requests"
    token = reviewers.token_of(service, "sender", reviewers.PROPOSES)
    keyed = {"Authorization": f"Bearer {token}", "Idempotency-Key": "sent twice"}
    edit = {"facet": "client-quotas", "id": "user=twice", "ops": [{"key": "producer_byte_rate", "value": 5}]}
    sent = [recorder.send("createChangeRequest", 201, url, json={"edits": [edit]}, headers=keyed) for _ in range(2)]
    assert (sent[1].json(), sent[1].headers["idempotency-replayed"]) == (sent[0].json(), "true")
    reused = recorder.send("createChangeRequest", 422, url, json={"edits": [edit, edit]}, headers=keyed).json()
    assert reused["type"] == "/problems/idempotency-key-reused"


def test_reverts_of_change_requests(recorder: Recorder, service: Service) -> None:
    url, edit = f"{BASE}/change-requests", {"facet": "client-quotas", "id": "user=regretted"}
    people_of = {
        name: {"Authorization": f"Bearer {reviewers.token_of(service, name, operations)}"}
        for name, operations in (("regretful", reviewers.PROPOSES), ("reviser", reviewers.REVIEWS))
    }
    dev, ops = people_of["regretful"], people_of["reviser"]
    edits = {"edits": [{**edit, "ops": [{"key": "producer_byte_rate", "value": 5}]}]}
    made = recorder.send("createChangeRequest", 201, url, json=edits, headers=dev)
    one, digest = made.headers["location"], made.json()["digest"]
    recorder.send("revertChangeRequest", 409, f"{one}:revert", json={}, headers=dev)
    recorder.send("approveChangeRequest", 200, f"{one}:approve", json={"digest": digest}, headers=ops)
    applied = recorder.send("applyChangeRequest", 200, f"{one}:apply", json={}, headers=dev).json()
    assert (applied["reverts"], applied["revertedBy"]) == (None, None)
    for wrong in ({"applyAt": "soon"}, {"partly": "yes"}):
        problem = recorder.send("revertChangeRequest", 400, f"{one}:revert", json=wrong, headers=dev).json()
        assert [part["pointer"] for part in problem["errors"]] == [f"/{name}" for name in wrong]
    recorder.send("revertChangeRequest", 403, f"{one}:revert", json={}, headers=ops)
    recorder.send("revertChangeRequest", 404, f"{url}/{MADE_UP}:revert", json={}, headers=dev)
    recorder.send("revertChangeRequest", 200, f"{one}:revert", json={}, headers=dev, params={"validateOnly": "true"})
    keyed = {**dev, "Idempotency-Key": "regretted twice"}
    reverting, replayed = (
        recorder.send("revertChangeRequest", 201, f"{one}:revert", json={"partly": True}, headers=keyed)
        for _ in range(2)
    )
    assert (replayed.json(), replayed.headers["idempotency-replayed"]) == (reverting.json(), "true")
    recorder.send("revertChangeRequest", 422, f"{one}:revert", json={}, headers=keyed)
    again = recorder.send("getChangeRequest", 200, reverting.headers["location"]).json()
    assert (again["reverts"], again["changes"][0]["diff"][0]["after"]) == (applied["id"], None)
    shown = recorder.send("getChangeRequest", 200, one).json()
    assert (shown["state"], shown["revertedBy"]) == ("reverting", again["id"])
    recorder.send("revertChangeRequest", 409, f"{one}:revert", json={}, headers=dev)


def test_webhooks(recorder: Recorder) -> None:
    url = f"{BASE}/webhooks"
    one = f"{url}/contract"
    body = {"url": "https://hooks.example.invalid/a", "filter": {"facet": "client-quotas", "entityType": "user"}}
    recorder.send("putWebhook", 200, one, json=body, params={"validateOnly": "true"})
    made = recorder.send("putWebhook", 201, one, json=body, headers={"If-None-Match": "*"})
    assert made.json()["url"] == "https://hooks.example.invalid/..."
    for wrong, pointer in (
        ({**body, "url": "http://hooks.example.invalid/"}, "/url"),
        ({**body, "url": "https://10.0.0.1/"}, "/url"),
        ({**body, "format": "discord"}, "/format"),
        ({**body, "filter": {"entity": "nobody"}}, "/filter/entity"),
        ({**body, "filter": {"facet": "quotas"}}, "/filter/facet"),
        ({**body, "filter": {"user": "a\x00"}}, "/filter/user"),
        ({**body, "filter": {"prefix": ""}}, "/filter/prefix"),
        ({**body, "filter": {"topic": "orders"}}, "/filter/topic"),
        ({**body, "note": "\x00"}, "/note"),
    ):
        problem = recorder.send("putWebhook", 400, one, json=wrong).json()
        assert [part["pointer"] for part in problem["errors"]] == [pointer], problem
    recorder.send("putWebhook", 400, f"{url}/new", json={})
    recorder.send("putWebhook", 400, f"{url}/Upper", json=body)
    recorder.send("putWebhook", 412, one, json=body, headers={"If-None-Match": "*"})
    recorder.send("getWebhook", 200, one)
    recorder.send("getWebhook", 304, one, headers={"If-None-Match": made.headers["etag"]})
    recorder.send("getWebhook", 400, f"{one}?x=1")
    recorder.send("getWebhook", 404, f"{url}/none")
    recorder.send("listWebhooks", 200, url)
    recorder.send("listWebhooks", 400, f"{url}?x=1")
    recorder.send("rotateWebhookSecret", 200, f"{one}:rotate", json={"overlapSeconds": 60})
    recorder.send("rotateWebhookSecret", 400, f"{one}:rotate", json={"overlapSeconds": -1})
    recorder.send("assignWebhook", 200, f"{one}:assign", json={"owner": "User:admin"})
    recorder.send("assignWebhook", 400, f"{one}:assign", json={"owner": "Group:a"})
    recorder.send("assignWebhook", 409, f"{one}:assign", json={"owner": "User:without-grants"})
    recorder.send("resumeWebhook", 200, f"{one}:resume")
    recorder.send("resumeWebhook", 400, f"{one}:resume?x=1")
    result = recorder.send("testWebhook", 200, f"{one}:test").json()["delivery"]
    assert result["status"] is None
    assert result["error"]
    assert recorder.send("testWebhook", 200, f"{one}:test?validateOnly=true").json() == {"delivery": None}
    recorder.send("testWebhook", 400, f"{one}:test", headers={"Idempotency-Key": "k"})
    [delivery] = recorder.send("listWebhookDeliveries", 200, f"{one}/deliveries").json()["items"]
    assert delivery == result
    recorder.send("listWebhookDeliveries", 400, f"{one}/deliveries?x=1")
    recorder.send("deleteWebhook", 412, one, headers={"If-Match": '"x"'})
    recorder.send("deleteWebhook", 400, one, headers={"If-Match": "x"})
    recorder.send("deleteWebhook", 200, one)
    recorder.send("deleteWebhook", 404, one)


def test_who_may_what(recorder: Recorder) -> None:
    grant = {"principal": "User:reader", "operation": "DESCRIBE_CONFIGS", "resourceType": "topic", "name": "orders"}
    made = recorder.send("createGrant", 201, "/v1/grants", json=grant, params={"reason": "asked"})
    url = f"{BASE}/access"
    items = recorder.send("getAccess", 200, url, params={"principal": "User:reader"}).json()["items"]
    assert made.json() in [item["grant"] for item in items]
    assert items[-1] == {
        "principal": "User:reader",
        "allowed": True,
        "grant": None,
        "rights": [{"operation": "RESOLVE", "resourceType": "user", "patternType": "literal", "name": "reader"}],
    }
    asked = {"resource": "topic:orders", "operation": "DESCRIBE_CONFIGS"}
    items = recorder.send("getAccess", 200, url, params=asked).json()["items"]
    assert ("User:reader", True) in [(item["principal"], item["allowed"]) for item in items]
    for wrong in (
        {},
        {"resource": "topic:orders"},
        {**asked, "principal": "User:a"},
        {**asked, "operation": "READ"},
        {**asked, "resource": "queue:a"},
        {**asked, "resource": "topic:a/b"},
        {**asked, "resource": "cluster:a"},
        {"principal": "Group:a"},
        {"group": "User:a"},
    ):
        recorder.send("getAccess", 400, url, params=wrong)
    secret = recorder.send("createToken", 201, "/v1/tokens", json={"principal": "User:reader"}).json()["token"]
    own = {"Authorization": f"Bearer {secret}"}
    pairs = [
        ("DESCRIBE_CONFIGS", "topic", "orders", True),
        ("ALTER_CONFIGS", "topic", "orders", False),
        ("RESOLVE", "user", "reader", True),
        ("DESCRIBE_CONFIGS", "user", None, False),
        ("FREEZE", "cluster", None, False),
        ("ALTER", "tokens", "User:reader", False),
    ]
    checks = [{"operation": operation, "resourceType": kind, "name": name} for operation, kind, name, _ in pairs]
    results = recorder.send("checkAccess", 200, f"{url}:check", json={"checks": checks}, headers=own).json()["results"]
    assert [(each["operation"], each["resourceType"], each["name"], each["allowed"]) for each in results] == pairs
    for wrong_check in ([], checks * 17, [{**checks[0], "operation": "FREEZE"}], [{**checks[4], "name": "default"}]):
        recorder.send("checkAccess", 400, f"{url}:check", json={"checks": wrong_check}, headers=own)
    assert recorder.send("getAccess", 200, url, params={"principal": "User:reader"}, headers=own).json()["items"]
    for operation_id, target, options in (
        ("getAccess", url, {"params": {"principal": "User:other"}}),
        ("getAccess", url, {"params": asked}),
        ("searchAccessAudit", "/v1/audit", {}),
        ("listTokens", "/v1/tokens", {"params": {"principal": "User:other"}}),
        ("getToken", f"/v1/tokens/{MADE_UP}", {}),
        ("revokeToken", f"/v1/tokens/{MADE_UP}", {}),
        ("rotateToken", f"/v1/tokens/{MADE_UP}:rotate", {"json": {"overlapSeconds": 0}}),
        ("createToken", "/v1/tokens", {"json": {"principal": "User:reader"}}),
        ("listGrants", "/v1/grants", {"params": {"principal": "User:other"}}),
        ("createGrant", "/v1/grants", {"json": grant}),
        ("getGrant", f"/v1/grants/{MADE_UP}", {}),
        ("putGrant", made.headers["location"], {"json": grant}),
        ("deleteGrant", made.headers["location"], {}),
    ):
        refused = recorder.send(operation_id, 403, target, headers=own, **options).json()
        assert refused["kafkaErrorCode"] == 31
        assert "User:reader lacks the grant" in refused["detail"]
    assert recorder.send("getGrant", 200, made.headers["location"], headers=own).json() == made.json()
    assert len(recorder.send("listTokens", 200, "/v1/tokens", headers=own).json()["items"]) == 1


def test_the_history_of_tokens_and_grants(recorder: Recorder) -> None:
    grant = {"principal": "User:history", "role": "viewer", "cluster": "default"}
    made = recorder.send("createGrant", 201, "/v1/grants", json=grant, params={"reason": "r", "ticket": "t"}).json()
    subject = f"grants/{made['id']}"
    recorder.send("deleteGrant", 200, f"/v1/{subject}")
    first = recorder.send("searchAccessAudit", 200, "/v1/audit", params={"subject": subject, "pageSize": 1}).json()
    second = recorder.send(
        "searchAccessAudit", 200, "/v1/audit", params={"subject": subject, "pageToken": first["nextPageToken"]}
    ).json()
    removed, created = first["items"][0], second["items"][0]
    assert (removed["kind"], removed["before"], removed["after"]) == ("grant-removed", made, None)
    assert (created["kind"], created["before"], created["after"]) == ("grant-created", None, made)
    assert (created["principal"], created["reason"], created["ticket"]) == ("User:admin", "r", "t")
    assert second["nextPageToken"] is None
    for wrong in ({"since": "today"}, {"pageToken": "x"}, {"kind": "k" * 101}):
        recorder.send("searchAccessAudit", 400, "/v1/audit", params=wrong)


def test_freezes(recorder: Recorder) -> None:
    for verb in ("freeze", "thaw"):
        url, body, operation_id = f"{BASE}:{verb}", {"reason": "a test"}, f"{verb}Cluster"
        for query, more in ({"validateOnly": "true"}, {}), ({}, {"validateOnly": True}):
            tried = recorder.send(operation_id, 200, url, json={**body, **more}, params=query).json()
            assert (tried["changeId"], tried["before"] is None) == (None, verb == "freeze")
        key = {"Idempotency-Key": verb}
        done = recorder.send(operation_id, 200, url, json=body, headers=key)
        assert done.headers["confplane-change-id"] == done.json()["changeId"]
        assert recorder.send(operation_id, 200, url, json=body, headers=key).json() == done.json()
        for wrong in ({}, {"reason": ""}, {"reason": 1}, {**body, "until": "tomorrow"}):
            [error] = recorder.send(operation_id, 400, url, json=wrong).json()["errors"]
            assert error["pointer"] == ("/until" if "until" in wrong else "/reason")
        recorder.send(operation_id, 400, url, json=body, headers={"If-Match": '"a"'})
        # A freeze is no config that a mirror shows: no read waits for its revision.
        seen = {"Confplane-Min-Revision": done.headers["confplane-revision"]}
        recorder.send("listClientQuotas", 200, f"{BASE}/client-quotas", headers=seen)
        if verb == "freeze":
            recorder.send(operation_id, 409, url, json={"reason": "another"})


@pytest.mark.parametrize(
    ("method", "path", "status"),
    [
        ("POST", f"{BASE}:melt", 405),
        ("POST", "/v1/clusters/none:freeze", 404),
        ("POST", "/v1/clusters/:freeze", 405),
        ("GET", f"{BASE}:freeze", 404),
        ("GET", f"{BASE}:freeze/client-quotas", 404),
        ("GET", f"{BASE}:/client-quotas", 404),
        ("GET", f"{BASE}:x/client-quotas/user=alice", 404),
        ("POST", f"{BASE}:x/client-quotas:alter", 404),
    ],
)
def test_other_words_behind_the_name_of_a_cluster(recorder: Recorder, method: str, path: str, status: int) -> None:
    answer = recorder._http.request(method, path, json={"reason": "x"} if method == "POST" else None)
    assert answer.status_code == status


def test_the_service_itself(recorder: Recorder) -> None:
    recorder.send("protectedResource", 200, "/.well-known/oauth-protected-resource")
    recorder.send("protectedResource", 400, "/.well-known/oauth-protected-resource?x=1")
    recorder.send("livez", 200, "/livez")
    recorder.send("livez", 400, "/livez?x=1")
    recorder.send("readyz", 200, "/readyz")
    recorder.send("readyz", 400, "/readyz?x=1")
    metrics = recorder.send("metrics", 200, "/metrics").text
    assert "confplane_http_requests_in_flight 1.0\n" in metrics, "the one that asks"
    recorder.send("metrics", 200, "/metrics", headers={"Accept": "application/openmetrics-text"})
    recorder.send("metrics", 400, "/metrics?x=1")
    recorder.send("whoami", 200, "/v1/whoami")
    recorder.send("whoami", 400, "/v1/whoami?x=1")
    recorder.send("listClusters", 200, "/v1/clusters")
    recorder.send("listClusters", 400, "/v1/clusters?x=1")
    recorder.send("getCluster", 200, BASE)
    recorder.send("getCluster", 400, f"{BASE}?x=1")
    recorder.send("getCluster", 404, "/v1/clusters/none")
    recorder.send("listConfigDefinitions", 200, f"{BASE}/config-definitions")
    page = recorder.send("listConfigDefinitions", 200, f"{BASE}/config-definitions", headers={"Accept": "text/html"})
    assert page.headers["content-type"].startswith("text/html")
    recorder.send("listConfigDefinitions", 400, f"{BASE}/config-definitions?x=1")


def test_a_revision_that_is_not_reached_in_time(recorder: Recorder) -> None:
    waited = recorder.send(
        "getClientQuotas",
        503,
        f"{BASE}/client-quotas/user=alice",
        headers={"Confplane-Min-Revision": "9000000000000000000"},
    )
    assert int(waited.headers["retry-after"]) >= 1
    assert waited.json()["retriable"] is True


@pytest.mark.parametrize(
    "operation_id", sorted(OPERATIONS.keys() - {"livez", "metrics", "protectedResource", "readyz"})
)
def test_without_a_token_or_with_a_wrong_one(recorder: Recorder, operation_id: str) -> None:
    operation = recorder._operations[operation_id]
    url = operation.path.format(
        cluster="default",
        id="user=alice",
        changeId=MADE_UP,
        tokenId=MADE_UP,
        grantId=MADE_UP,
        requestId=MADE_UP,
        instanceId="one",
        name="w",
    )
    cases: tuple[dict[str, Any], ...] = ({"headers": {"Authorization": "Bearer wrong"}}, {"token": False})
    for wrong in cases:
        refused = recorder.send(operation_id, 401, url, **wrong)
        assert refused.headers["www-authenticate"].startswith("Bearer")


def test_every_operation_was_answered_with_success_and_with_a_problem(recorder: Recorder) -> None:
    if len(recorder.seen) < 30:
        pytest.skip("only with the tests above")
    for operation_id in OPERATIONS:
        statuses = {status for name, status in recorder.seen if name == operation_id}
        assert any(status < 300 for status in statuses), operation_id
        assert any(status == 400 for status in statuses), (operation_id, json.dumps(sorted(statuses)))


def test_every_header_that_says_what_was_done_was_met(recorder: Recorder) -> None:
    if len(recorder.seen) < 30:
        pytest.skip("only with the tests above")
    documented = {
        (operation_id, header)
        for operation_id, operation in recorder._operations.items()
        for status, response in operation.definition.raw["responses"].items()
        for header in FACTS
        if status.startswith("2")
        and header in response.get("headers", {})
        # Drift needs a Kafka 4 cluster: tests/integration/test_drift.py.
        and operation_id != "adoptDrift"
    }
    assert documented == recorder.facts
