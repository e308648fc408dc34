"""The OpenAPI specification: FastAPI's, made exact.

FastAPI describes optional parameters as nullable, has its own form of validation errors, and describes neither problems
nor response headers. Parts that many operations share are defined once, in the components.
"""

from __future__ import annotations

import json
from functools import cache
from http import HTTPStatus
from importlib.resources import files
from typing import TYPE_CHECKING, Any, Final

from fastapi.openapi.utils import get_openapi
from pydantic.json_schema import models_json_schema

from confplane.api import formats
from confplane.api.dependencies import EMBEDDED
from confplane.api.models import Problem
from confplane.api.problems import MEDIA_TYPE
from confplane.api.routing.operations import Effect
from confplane.api.routing.routes import StrictRoute

if TYPE_CHECKING:
    from collections.abc import Iterator

    from fastapi import FastAPI

TAGS: Final = {
    "service": "The process, its stores, its clusters, and the caller",
    "client-quotas": "Quotas of users, client-ids and ips (KIP-546, KIP-55, KIP-612, KIP-599)",
    "client-configs": "Dynamic configs of producers and consumers, by user and client-id (KIP-649)",
    "clients": "Client quotas and client configs in one change",
    "configs": "Configs of topics, brokers, groups and client metrics, level by level (KIP-226, KIP-339)",
    "manifests": "Configs of a cluster as documents: exports, plans, and their applies",
    "schedules": "Temporary changes, and their ends",
    "change-requests": "Changes that two people agree on: proposals, reviews and applications",
    "entity-configs": "Entities of every type in one request (KIP-21)",
    "global-config": "The config that all brokers share (KIP-5)",
    "drift": "Differences between a Kafka cluster without ZooKeeper and what callers wrote here",
    "freezes": "Refusing all writes to a cluster's configs for a while",
    "tokens": "API tokens: credentials of users, portals, pipelines and applications",
    "grants": "Grants: who may do what",
    "access": "Answers to who may do what, and the history of tokens and grants",
    "audit": "Changes with their principals, values before and after, and reasons",
    "feed": "Changes as they happen, in order, from any position on",
    "webhooks": "Subscriptions to the feed whose events are sent to URLs",
    "config-definitions": "Definitions of configs: types, defaults, ranges, dynamic or not (KIP-21)",
    "rollups": "Questions about the whole cluster and all of its history, answered by Spark (`confplane rollups run`)",
    "registrations": "The dynamic configs that client software supports (KIP-649)",
}
_REF: Final = "#/components/{}/{}"
_PROBLEMS: Final = {
    400: ("InvalidRequest", "The request breaks a rule; `errors` names the place"),
    401: ("Unauthenticated", "No valid bearer token"),
    403: ("Forbidden", "A grant is missing, or the caller may not act for the user that it names; the text says which"),
    404: ("NotFound", "No such cluster, entity or change"),
    409: ("Conflict", "The stored state does not allow it"),
    410: (
        "Gone",
        (
            "The result that `pageToken` names is not kept any more; or the history begins later, with `since`; or the"
            " position in the feed is too old, and `oldest` is the oldest one"
        ),
    ),
    412: ("PreconditionFailed", "A precondition failed; `etag` is the current one"),
    413: ("TooLarge", "The body, or the transaction that it would make, is too large"),
    415: ("NotJson", "The body is not declared to be JSON"),
    422: (
        "Refused",
        (
            "A config is refused by its definition, by other configs of the entity, or by the cluster's policy; or"
            " the Idempotency-Key belongs to another request"
        ),
    ),
    429: (
        "Throttled",
        "The caller's limit is used up, or too many changes are waiting for the brokers; see Retry-After",
    ),
    503: ("Unavailable", "ZooKeeper or Postgres is away, or not caught up; see Retry-After"),
    504: ("OutcomeUnknown", "The write was sent and its reply was lost; its outcome is unknown"),
}
"""Problems by status: their names in the components, and their meaning."""
_VALUES: Final = frozenset({"examples", "default", "enum", "const"})
"""Keywords of JSON Schema that hold values, not schemas."""
_PARAMETERS: Final = {
    **{name: name for name in ("cluster", "view", "consistency", "validateOnly", "reason", "ticket", "pageSize")},
    "Confplane-Break-Glass": "breakGlass",
    "Confplane-Min-Revision": "minRevision",
    "Confplane-Reason": "reasonHeader",
    "Confplane-Wait-Applied": "waitApplied",
    "Idempotency-Key": "idempotencyKey",
    "If-Match": "ifMatch",
}
"""Parameters that operations have in common, and their names in the components."""
_UNUSED_MODELS: Final = frozenset(
    {
        *("HTTPValidationError", "ValidationError"),
        # Their values are where they are used.
        *("Operation", "PatternType", "Permission", "ResourceType", "Role", "WebhookFormat"),
    }
)


def _header(pattern: str | None, description: str, **schema: Any) -> dict[str, Any]:
    kind = {"type": "string"} if pattern is None else {"type": "string", "pattern": pattern}
    return {"description": description, "schema": {**kind, **schema}}


HEADERS: Final[dict[str, dict[str, Any]]] = {
    "X-Request-Id": {
        **_header(formats.REQUEST_ID, "The request's own X-Request-Id where it is one, else a new one"),
        "required": True,
    },
    "Confplane-Revision": _header(
        formats.REVISION,
        "The revision of the cluster's configs at which the answer was made. Absent before they were loaded, and "
        "where no cluster is asked for",
    ),
    "Confplane-Stale-Ms": _header(
        None,
        "Milliseconds since this copy of the cluster's configs could last be current; absent while it is current",
        type="integer",
        minimum=0,
    ),
    "Confplane-Store-Restored": _header(
        "^true$",
        "Present while ZooKeeper is in a restored, earlier state that was not accepted yet: reads show this state,"
        " and writes are refused",
    ),
    "Confplane-Applied-Revision": _header(
        formats.REVISION,
        "For a Kafka 4 cluster to which changes are applied: no change up to this revision is pending. Each was"
        " applied, was refused, had nothing to deliver, or is listed as held. Absent for other clusters",
    ),
    "Confplane-Change-Id": _header(formats.CHANGE_ID, "The change that the write made; absent when nothing changed"),
    "Confplane-Registration": _header(
        None, "The caller may not register software for the client (REPORT); absent otherwise", enum=["ignored"]
    ),
    "Confplane-Next-Page-Token": _header(
        formats.ROW_TOKEN, "Of a page as CSV: the pageToken of the next page; absent from the last one"
    ),
    "Idempotency-Replayed": _header(
        None,
        "The answer to an earlier request with this Idempotency-Key; absent if there was no earlier request",
        enum=["true"],
    ),
    "ETag": _header(formats.ETAG, "A strong ETag of the content of the default view; for a rollup, of its run"),
    "Location": _header(None, "The path of the resource", format="uri-reference"),
    "Retry-After": _header(None, "Seconds after which a retry makes sense", type="integer", minimum=0),
    "RateLimit-Policy": _header(
        None, "The caller's limit for the operation's class: units at once, and the seconds in which they come again"
    ),
    "RateLimit": _header(None, "The units of that limit that are left, and the seconds until all of them are"),
    "Confplane-Token-Expires": _header(
        None, "The end of the caller's API token, RFC 3339; absent until 14 days before", format="date-time"
    ),
    "WWW-Authenticate": _header(None, "The scheme: Bearer"),
}
_CLUSTER_PATH: Final = "/v1/clusters/{cluster}"
_OF_CHANGES: Final = (409, 422, 429, 503, 504)
_RETRY_STATUSES: Final = frozenset({409, 429, 503})


def build(api: FastAPI) -> dict[str, Any]:
    """Return the specification of an application."""
    order = list(TAGS)
    # Ordered by subject; the application has its routes in another order, the busiest first.
    routes = sorted(
        (route for route in api.routes if isinstance(route, StrictRoute) and route.operation.listed),
        key=lambda route: order.index(str(route.tags[0])),
    )
    spec = get_openapi(title=api.title, version=api.version, description=api.description, routes=routes)
    spec["tags"] = [{"name": name, "description": description} for name, description in TAGS.items()]
    components = spec["components"]
    models = components["schemas"] | _problem_models({Problem, *(route.operation.problem for route in routes)})
    components["schemas"] = {name: _plain(models[name]) for name in sorted(models) if name not in _UNUSED_MODELS}
    components["responses"], components["parameters"] = {}, {}
    components["headers"] = HEADERS
    components["securitySchemes"] = {
        "bearer": {"type": "http", "scheme": "bearer", "description": "`Authorization: Bearer <token>`"}
    }
    for route in routes:
        for method in route.methods or ():
            _complete(spec["paths"][route.path_format][method.lower()], route, components)
    for kind in ("parameters", "responses"):
        components[kind] = dict(sorted(components[kind].items()))
    plain: dict[str, Any] = json.loads(json.dumps(spec))  # no object appears twice, so that YAML needs no anchors
    return plain


@cache
def _examples() -> dict[str, dict[str, Any]]:
    """Return examples of bodies by operation id. A test sends each of them."""
    found: dict[str, dict[str, Any]] = json.loads(files("confplane.api").joinpath("examples.json").read_text("utf-8"))
    return found


def _problem_models(models: set[type[Problem]]) -> dict[str, Any]:
    found = models_json_schema(
        [(model, "serialization") for model in models], ref_template="#/components/schemas/{model}"
    )[1]["$defs"]
    return dict(found)


def _complete(described: dict[str, Any], route: StrictRoute, components: dict[str, Any]) -> None:
    """Make FastAPI's description of an operation exact, and move its shared parts into the components."""
    order = {"path": 0, "query": 1, "header": 2}
    parameters = sorted(described.pop("parameters", []), key=lambda parameter: order[parameter["in"]])
    body = described.pop("requestBody", None)
    responses = {int(status): response for status, response in described.pop("responses").items()}
    responses = {status: responses[status] for status in route.operation.answers}  # FastAPI adds a 422 of its own
    if route.operation.tagged and "GET" in (route.methods or ()):
        responses[HTTPStatus.NOT_MODIFIED] = {"description": "Not modified"}
    responses |= {status: _problem(route, status) for status in _problems(route, parameters, body)}
    if parameters:
        described["parameters"] = [_shared(_parameter(each), route, components["parameters"]) for each in parameters]
    if body is not None:
        # FastAPI drops nulls on the way, and in these examples a null is the default entity.
        body["content"]["application/json"]["examples"] = _examples()[described["operationId"]]
        described["requestBody"] = body
    described["responses"] = {}
    for status, response in sorted(responses.items()):
        names = ["X-Request-Id", *_headers(route, status)]
        response["headers"] = {name: {"$ref": _REF.format("headers", name)} for name in names}
        schema = response.get("content", {}).get(MEDIA_TYPE, {}).get("schema", {})
        if schema.get("$ref", "").endswith("/Problem"):
            name, _ = _PROBLEMS[status]
            components["responses"].setdefault(name, response)
            response = {"$ref": _REF.format("responses", name)}  # noqa: PLW2901 - kept once, in the components
        described["responses"][str(int(status))] = response
    described["security"] = [] if route.operation.is_open else [{"bearer": []}]


def _problems(route: StrictRoute, parameters: list[dict[str, Any]], body: Any) -> set[int]:
    """Return the statuses of the problems that an operation may return."""
    names = {parameter["name"] for parameter in parameters}
    found = {400, *route.operation.problems}
    if not route.operation.is_open:
        found |= {401, 403}  # each request may name a user for whom its caller may not act
    if route.operation.limit is not None:
        found.add(429)
    if "cluster" in names:
        found.add(404)
    if "If-Match" in names:
        found.add(412)
    if body is not None:
        found |= {413, 415}
    if "consistency" in names:
        found.add(503)
    if route.operation.effect is Effect.CHANGE:
        found.update(_OF_CHANGES)
    if route.operation.effect is Effect.MANAGING:
        found.add(503)  # all of it is in Postgres
    if route.operation.effect is Effect.PROPOSING:
        found.add(504)  # the outcome of an earlier request with the Idempotency-Key may not be known in time
    return found


def _problem(route: StrictRoute, status: int) -> dict[str, Any]:
    model = Problem if status == HTTPStatus.UNAUTHORIZED else route.operation.problem
    schema = {"$ref": _REF.format("schemas", model.__name__)}
    return {"description": _PROBLEMS[status][1], "content": {MEDIA_TYPE: {"schema": schema}}}


def _headers(route: StrictRoute, status: int) -> list[str]:
    """Return the names of the headers that a response may have in addition to the request id."""
    if status == HTTPStatus.UNAUTHORIZED:
        return ["WWW-Authenticate"]
    operation, names = route.operation, list[str]()
    if status >= HTTPStatus.BAD_REQUEST or route.path.startswith(_CLUSTER_PATH):
        names += ["Confplane-Revision", "Confplane-Stale-Ms", "Confplane-Applied-Revision"]
        names.append("Confplane-Store-Restored")
    if status >= HTTPStatus.BAD_REQUEST or operation.limit is not None:
        names += ["RateLimit-Policy", "RateLimit"]
    if not operation.is_open:
        names.append("Confplane-Token-Expires")
    if status in _RETRY_STATUSES:
        names.append("Retry-After")
    changed = operation.effect is Effect.CHANGE and status < HTTPStatus.MULTIPLE_CHOICES
    if changed or status == HTTPStatus.GATEWAY_TIMEOUT:
        names.append("Confplane-Change-Id")
    if changed or (operation.effect is Effect.PROPOSING and status < HTTPStatus.MULTIPLE_CHOICES):
        names.append("Idempotency-Replayed")
    return names if status >= HTTPStatus.BAD_REQUEST else [*names, *_success_headers(route)]


def _success_headers(route: StrictRoute) -> Iterator[str]:
    """Yield the names of the headers that only successful responses may have."""
    if route.operation_id == "describeClientConfigs":
        yield "Confplane-Registration"
    if route.operation.tagged:
        yield "ETag"
    if HTTPStatus.CREATED in route.operation.answers:
        yield "Location"
    if HTTPStatus.OK in route.operation.answers:
        yield from route.operation.answers[HTTPStatus.OK].headers


def _parameter(parameter: dict[str, Any]) -> dict[str, Any]:
    """Return a parameter whose schema is that of the sent text; an absent parameter sends nothing."""
    schema = _plain(parameter["schema"])
    schema.pop("description", None)
    options = [option for option in schema.pop("anyOf", []) if option != {"type": "null"}]
    if len(options) == 1:
        schema = options[0] | schema
    found = {**parameter, "schema": schema}
    if "examples" in found:
        found["example"] = found.pop("examples")[EMBEDDED]["value"]
    return found


def _shared(parameter: dict[str, Any], route: StrictRoute, shared: dict[str, Any]) -> dict[str, Any]:
    """Return a reference to a common parameter; any other parameter unchanged."""
    name = _PARAMETERS.get(parameter["name"])
    if parameter["name"] == "If-None-Match":
        name = "ifNoneMatchRead" if route.operation.effect is Effect.NOTHING else "ifNoneMatchWrite"
    if name is None or shared.setdefault(name, parameter) != parameter:
        return parameter
    return {"$ref": _REF.format("parameters", name)}


def _plain(schema: Any) -> Any:
    """Return a schema without pydantic's titles for names, and without defaults that represent an absent member."""
    if isinstance(schema, list):
        return [_plain(item) for item in schema]
    if not isinstance(schema, dict):
        return schema
    return {
        key: value if key in _VALUES else _plain(value)
        for key, value in schema.items()
        if not (key == "title" and isinstance(value, str)) and not (key == "default" and _absent(value, schema))
    }


def _absent(default: Any, schema: dict[str, Any]) -> bool:
    """Return True if a default represents an absent member: null, empty text, or fewer items than may be sent."""
    return default is None or default == "" or (default == [] and schema.get("minItems", 0) > 0)
