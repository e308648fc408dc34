"""The OpenAPI specification: FastAPI's, made exact.

FastAPI describes optional parameters as nullable, has its own form of validation errors, and knows nothing of problems
and of the headers of answers. What many operations share is kept once, in the components.
"""

from __future__ import annotations

import json
from http import HTTPStatus
from typing import TYPE_CHECKING, Any, Final

from fastapi.openapi.utils import get_openapi
from pydantic.json_schema import models_json_schema

from app.api import config_schemas, examples, kip_schemas, patterns, schemas
from app.api.context import EMBEDDED
from app.api.edge import OPEN_PATHS
from app.api.problems import MEDIA_TYPE

if TYPE_CHECKING:
    from fastapi import FastAPI

TAGS: Final = {
    "service": "The process, its stores, its clusters, and who is asking",
    "client-quotas": "Quotas of users, client-ids and ips (KIP-546, KIP-55, KIP-612, KIP-599)",
    "client-configs": "Dynamic configs of producers and consumers, by user and client-id (KIP-649)",
    "configs": "Configs of topics and brokers, level by level (KIP-226, KIP-339)",
    "entity-configs": "Entities of every type in one request (KIP-21)",
    "global-config": "What all brokers share (KIP-5)",
    "audit": "Who changed what, from which value to which, and why",
    "config-definitions": "What may be set where: types, defaults, ranges, dynamic or not (KIP-21)",
    "rollups": "Questions about the whole cluster and all of its history, answered by Spark (`confplane rollups run`)",
    "registrations": "Which client software supports which dynamic configs (KIP-649)",
}
_REF: Final = "#/components/{}/{}"
_PROBLEM_NAMES: Final = {
    400: "InvalidRequest",
    401: "Unauthenticated",
    404: "NotFound",
    409: "Conflict",
    410: "Gone",
    412: "PreconditionFailed",
    413: "TooLarge",
    415: "NotJson",
    422: "Refused",
    429: "Throttled",
    503: "Unavailable",
    504: "OutcomeUnknown",
}
_VALUES: Final = frozenset({"examples", "default", "enum", "const"})
"""Keywords of JSON Schema that hold values, not schemas."""
_PARAMETERS: Final = {
    **{name: name for name in ("cluster", "view", "consistency", "validateOnly", "reason", "ticket", "pageSize")},
    "Confplane-Min-Revision": "minRevision",
    "Confplane-Reason": "reasonHeader",
    "Idempotency-Key": "idempotencyKey",
    "If-Match": "ifMatch",
}
"""Parameters that operations have in common, and their names in the components."""
_UNUSED_MODELS: Final = ("HTTPValidationError", "ValidationError")


def _header(pattern: str | None, description: str, **schema: Any) -> dict[str, Any]:
    kind = {"type": "string"} if pattern is None else {"type": "string", "pattern": pattern}
    return {"description": description, "schema": {**kind, **schema}}


HEADERS: Final[dict[str, dict[str, Any]]] = {
    "X-Request-Id": {
        **_header(patterns.REQUEST_ID, "The request's own X-Request-Id where it is one, else a new one"),
        "required": True,
    },
    "Confplane-Revision": _header(
        patterns.REVISION,
        "The revision of the cluster's configs at which the answer was made. Absent before they were loaded, and "
        "where no cluster is asked for",
    ),
    "Confplane-Stale-Ms": _header(
        None,
        "How long ago this copy of the cluster's configs could last be current, in ms; absent while it is current",
        type="integer",
        minimum=0,
    ),
    "Confplane-Change-Id": _header(patterns.CHANGE_ID, "The change that the write made; absent when nothing changed"),
    "Idempotency-Replayed": _header(
        None, "The answer to an earlier request with this Idempotency-Key; absent when there was none", enum=["true"]
    ),
    "ETag": _header(patterns.ETAG, "Strong, of the default view's content alone; of a rollup, of its run"),
    "Location": _header(None, "The path of the resource", format="uri-reference"),
    "Retry-After": _header(None, "Seconds after which a retry makes sense", type="integer", minimum=0),
    "WWW-Authenticate": _header(None, "The scheme: Bearer"),
}
_CLUSTER_PATH: Final = "/v1/clusters/{cluster}"
_CLUSTER_HEADERS: Final = ("Confplane-Revision", "Confplane-Stale-Ms")
_WRITES: Final = ("alter", "change", "incrementalAlter", "create", "put", "delete")
_TAGGED: Final = ("create", "put", "getClient", "getConfigs", "getRollup", "effective")
_RETRY_STATUSES: Final = frozenset({409, 429, 503})


def build(api: FastAPI) -> dict[str, Any]:
    """Return the specification of an application."""
    spec = get_openapi(title=api.title, version=api.version, description=api.description, routes=api.routes)
    spec["tags"] = [{"name": name, "description": description} for name, description in TAGS.items()]
    components = spec["components"]
    models = components["schemas"] | _problem_models()
    components["schemas"] = {name: _plain(models[name]) for name in sorted(models) if name not in _UNUSED_MODELS}
    components["responses"] = {}
    components["parameters"] = {}
    components["headers"] = HEADERS
    components["securitySchemes"] = {
        "bearer": {"type": "http", "scheme": "bearer", "description": "`Authorization: Bearer <token>`"}
    }
    order = list(TAGS)
    # By what they are about; the application has its routes in another order, the busiest first.
    paths = sorted(spec["paths"].items(), key=lambda path: order.index(next(iter(path[1].values()))["tags"][0]))
    spec["paths"] = dict(paths)
    for path, item in paths:
        for operation in item.values():
            _operation(path, operation, components)
    for kind in ("parameters", "responses"):
        components[kind] = dict(sorted(components[kind].items()))
    plain: dict[str, Any] = json.loads(
        json.dumps(spec)
    )  # no object stands in two places, so that YAML needs no anchors
    return plain


def _problem_models() -> dict[str, Any]:
    found = models_json_schema(
        [
            (model, "serialization")
            for model in (
                schemas.Problem,
                schemas.AlterQuotasProblem,
                schemas.AlterConfigsProblem,
                config_schemas.DescribeConfigsProblem,
                config_schemas.IncrementalAlterProblem,
                kip_schemas.GlobalConfigProblem,
                kip_schemas.DescribeEntityConfigsProblem,
                kip_schemas.AlterEntityConfigsProblem,
            )
        ],
        ref_template="#/components/schemas/{model}",
    )[1]["$defs"]
    return dict(found)


def _operation(path: str, operation: dict[str, Any], components: dict[str, Any]) -> None:
    """Make one operation exact, and move what it shares with others into the components."""
    parameters = [_parameter(parameter) for parameter in operation.pop("parameters", [])]
    if parameters:
        order = {"path": 0, "query": 1, "header": 2}
        parameters.sort(key=lambda parameter: order[parameter["in"]])
        operation["parameters"] = [_shared(parameter, operation, components["parameters"]) for parameter in parameters]
    if (shown := examples.BODIES.get(operation["operationId"])) is not None:
        # FastAPI drops nulls on its way through here, and in these a null is the default entity.
        operation["requestBody"]["content"]["application/json"]["examples"] = shown
    responses = operation["responses"]
    if MEDIA_TYPE not in responses.get("422", {}).get("content", {}):
        responses.pop("422", None)  # FastAPI's own, of a form that is never answered
    if path in OPEN_PATHS:
        responses.pop("401", None)
        operation["security"] = []
    else:
        operation["security"] = [{"bearer": []}]
    for status, response in sorted(responses.items()):
        names = ["X-Request-Id", *_headers(path, operation["operationId"], int(status))]
        response["headers"] = {name: {"$ref": _REF.format("headers", name)} for name in names}
        schema = response.get("content", {}).get(MEDIA_TYPE, {}).get("schema", {})
        if schema.get("$ref", "").endswith("/Problem"):
            name = _PROBLEM_NAMES[int(status)]
            components["responses"].setdefault(name, response)
            response = {"$ref": _REF.format("responses", name)}  # noqa: PLW2901 - kept once, in the components
        responses[status] = response
    operation["responses"] = dict(sorted(responses.items()))
    for key in ("parameters", "requestBody", "responses", "security"):  # in the order of reading
        if key in operation:
            operation[key] = operation.pop(key)


def _headers(path: str, operation_id: str, status: int) -> list[str]:
    """Return the names of the headers that an answer may carry besides the request id."""
    if status == HTTPStatus.UNAUTHORIZED:
        return ["WWW-Authenticate"]
    of_cluster = status >= HTTPStatus.BAD_REQUEST or path.startswith(_CLUSTER_PATH)
    names = [*_CLUSTER_HEADERS] if of_cluster else []
    if status in _RETRY_STATUSES:
        names.append("Retry-After")
    writes = operation_id.startswith(_WRITES)
    if status == HTTPStatus.GATEWAY_TIMEOUT or (writes and status < HTTPStatus.MULTIPLE_CHOICES):
        names.append("Confplane-Change-Id")
    if writes and status < HTTPStatus.MULTIPLE_CHOICES:
        names.append("Idempotency-Replayed")
    if status < HTTPStatus.BAD_REQUEST and operation_id.startswith(_TAGGED):
        names.append("ETag")
    if status < HTTPStatus.BAD_REQUEST and operation_id.startswith("create"):
        names.append("Location")
    return names


def _parameter(parameter: dict[str, Any]) -> dict[str, Any]:
    """Return a parameter whose schema says what is sent: text that is there, or nothing at all."""
    schema = _plain(parameter["schema"])
    schema.pop("description", None)
    options = [option for option in schema.pop("anyOf", []) if option != {"type": "null"}]
    if len(options) == 1:
        schema = options[0] | schema
    found = {**parameter, "schema": schema}
    if "examples" in found:
        found["example"] = found.pop("examples")[EMBEDDED]["value"]
    return found


def _shared(parameter: dict[str, Any], operation: dict[str, Any], shared: dict[str, Any]) -> dict[str, Any]:
    """Return a reference to a parameter that operations have in common; any other as it is."""
    name = _PARAMETERS.get(parameter["name"])
    if parameter["name"] == "If-None-Match":
        name = "ifNoneMatchRead" if "304" in operation["responses"] else "ifNoneMatchWrite"
    if name is None or shared.setdefault(name, parameter) != parameter:
        return parameter
    return {"$ref": _REF.format("parameters", name)}


def _plain(schema: Any) -> Any:
    """Return a schema without the titles that pydantic makes of names, and without nulls as defaults."""
    if isinstance(schema, list):
        return [_plain(item) for item in schema]
    if not isinstance(schema, dict):
        return schema
    return {
        key: value if key in _VALUES else _plain(value)
        for key, value in schema.items()
        if not (key == "title" and isinstance(value, str)) and not (key == "default" and value is None)
    }
