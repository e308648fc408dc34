"""The specification's examples do what they show: each is sent to a real service, in an order in which all succeed."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any
from urllib.parse import quote

import httpx
import jsonschema_rs
import pytest
import schemathesis

from tests.contract.api import FILE
from tests.support import reviewers
from tests.support.operations import OPERATIONS, SPEC, resolve
from tests.support.waiting import wait_for

if TYPE_CHECKING:
    from collections.abc import Iterator

    from schemathesis.specs.openapi.schemas import OpenApiSchema

    from tests.support.service import Service

ORDER = (
    "describeClientQuotas",
    "createClientQuotas",
    "putClientQuotas",
    "alterClientQuotas",
    "createClientConfigs",
    "putClientConfigs",
    "alterClientConfigs",
    "alterClients",
    "describeClientConfigs",
    "reportClientConfigs",
    "createConfigs",
    "putConfigs",
    "incrementalAlterConfigs",
    "describeConfigs",
    "planManifest",
    "applyManifest",
    "changeGlobalConfig",
    "alterEntityConfigs",
    "describeEntityConfigs",
    "revertClientQuotas",
    "revertClientConfigs",
    "revertConfigs",
    "revertChanges",
    "adoptDrift",
    "reapplyDrift",
    "createChangeRequest",
    "reviseChangeRequest",
    "commentChangeRequest",
    "rejectChangeRequest",
    "pauseSchedules",
    "freezeCluster",
    "thawCluster",
    "createToken",
    "rotateToken",
    "createGrant",
    "putGrant",
    "checkAccess",
    "putWebhook",
    "rotateWebhookSecret",
    "assignWebhook",
)
"""Operations with bodies, in the order in which all examples of them succeed on an empty cluster."""
BY_TWO_PEOPLE = ("approveChangeRequest", "applyChangeRequest", "cancelChangeRequest", "revertChangeRequest")
"""Operations with bodies that need a request of another person, or another request."""


@pytest.fixture(scope="module")
def schema() -> OpenApiSchema:
    """The committed file."""
    return schemathesis.openapi.from_path(FILE)


@pytest.fixture(scope="module")
def http(service: Service) -> Iterator[httpx.Client]:
    """A client that is logged in."""
    with httpx.Client(
        base_url=service.url, headers={"Authorization": f"Bearer {service.token}"}, trust_env=False, timeout=30
    ) as client:
        yield client


def _examples(name: str) -> dict[str, Any]:
    found: dict[str, Any] = OPERATIONS[name]["requestBody"]["content"]["application/json"]["examples"]
    return found


def _url(operation: dict[str, Any], made: str | None) -> str:
    """Fill the path with the examples of its parameters, or with the id of what was made last."""
    path: str = operation["path"]
    for parameter in map(resolve, operation.get("parameters", [])):
        if parameter["in"] == "path":
            path = path.replace(f"{{{parameter['name']}}}", quote(str(parameter.get("example", made)), safe="=,~"))
    return path


def _send(
    http: httpx.Client, schema: OpenApiSchema, name: str, body: Any = None, made: str | None = None
) -> httpx.Response:
    operation = OPERATIONS[name]
    response = http.request(operation["method"].upper(), _url(operation, made), json=body)
    assert response.is_success, (name, response.status_code, response.text)
    schema[operation["path"]][operation["method"].upper()].validate_response(response)
    return response


def _known(http: httpx.Client, body: dict[str, Any]) -> dict[str, Any]:
    """Name the latest change, the present moment, and the current plan in the place of made-up ones."""
    if "planId" in body:
        manifest = {name: value for name, value in body.items() if name not in {"planId", "revision"}}
        planned = http.post("/v1/clusters/default/manifests:plan", json=manifest).json()
        return {**body, "planId": planned["planId"]}
    if not body.keys() & {"changeId", "requestId", "since", "to"}:
        return body
    wait_for(lambda: (http.get("/v1/clusters/default").json()["recorded"] or {}).get("since"))
    [last] = http.get("/v1/clusters/default/audit", params={"pageSize": 1}).json()["items"]
    known = {
        **{name: last[name] for name in ("changeId", "requestId", "principal")},
        "since": last["createdAt"],
        "to": "9999-01-01T00:00:00Z",
    }
    return {**body, **{name: known[name] for name in body.keys() & known.keys()}}


def test_every_example_of_a_body_is_sent_here() -> None:
    assert {*ORDER, *BY_TWO_PEOPLE} == {name for name, operation in OPERATIONS.items() if "requestBody" in operation}


def test_all_examples_succeed_in_their_order(http: httpx.Client, schema: OpenApiSchema) -> None:
    made: str | None = None
    for name in ORDER:
        shown = _examples(name)
        assert shown, name
        for example in shown.values():
            answer = _send(http, schema, name, _known(http, example["value"]), made)
            made = answer.json().get("id")
            assert answer.status_code != httpx.codes.MULTI_STATUS, (name, answer.text)
    for noun, entity in (("ClientQuotas", "user=alice"), ("ClientConfigs", "user=alice"), ("Configs", "topic=orders")):
        for name in (f"get{noun}", f"effective{noun}"):
            assert _send(http, schema, name).json()["id"] == entity


def test_the_examples_of_change_requests_succeed_with_two_people(service: Service, schema: OpenApiSchema) -> None:
    def client(name: str, operations: tuple[str, ...]) -> httpx.Client:
        headers = {"Authorization": f"Bearer {reviewers.token_of(service, name, operations)}"}
        return httpx.Client(base_url=service.url, headers=headers, trust_env=False, timeout=30)

    with client("dev", reviewers.PROPOSES) as dev, client("ops", reviewers.REVIEWS) as ops:
        [proposed] = [each["value"] for each in _examples("createChangeRequest").values()]
        made, other = [_send(dev, schema, "createChangeRequest", proposed).json() for _ in range(2)]
        for http, name in ((ops, "approveChangeRequest"), (dev, "applyChangeRequest")):
            [body] = [each["value"] for each in _examples(name).values()]
            body = {**body, "digest": made["digest"]} if "digest" in body else body
            answer = _send(http, schema, name, body, made["id"]).json()
        assert answer["state"] == "applied"
        [body] = [each["value"] for each in _examples("revertChangeRequest").values()]
        assert _send(dev, schema, "revertChangeRequest", body, made["id"]).json()["reverts"] == made["id"]
        [body] = [each["value"] for each in _examples("cancelChangeRequest").values()]
        assert _send(dev, schema, "cancelChangeRequest", body, other["id"]).json()["state"] == "cancelled"


def test_the_worked_example_resolves_as_shown(http: httpx.Client, schema: OpenApiSchema) -> None:
    _send(http, schema, "alterClientConfigs", _examples("alterClientConfigs")["kip-649"]["value"])
    body = _examples("describeClientConfigs")["resolve"]["value"]
    (entry,) = _send(http, schema, "describeClientConfigs", body).json()["entries"]
    assert {item["key"]: item["value"] for item in entry["values"]} == {
        "acks": "all",
        "heartbeat.interval.ms": "5000",
        "session.timeout.ms": "11000",
    }


def test_examples_of_parameters_and_members_are_what_their_schemas_describe() -> None:
    checked = 0
    for operation in OPERATIONS.values():
        for parameter in map(resolve, operation.get("parameters", [])):
            for example in [
                *parameter["schema"].get("examples", []),
                *([parameter["example"]] if "example" in parameter else []),
            ]:
                assert jsonschema_rs.is_valid(parameter["schema"], example), (parameter["name"], example)
                checked += 1
    for name, model in SPEC["components"]["schemas"].items():
        for member, part in model.get("properties", {}).items():
            for example in part.get("examples", []):
                # References reach back into the components, so a part that has some is judged within the whole.
                schema = {**part, "components": SPEC["components"]} if "$ref" in str(part) else part
                assert jsonschema_rs.is_valid(schema, example), (name, member, example)
                checked += 1
    assert checked > 50
