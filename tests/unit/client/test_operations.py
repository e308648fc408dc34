"""Both clients have a method for each operation of the specification, with its parameters, body and answer."""

from __future__ import annotations

import json
import re
from typing import Any, Final, TypeVar, get_args

import httpx
import jsonschema_rs
import pytest

from confplane.client import Change, ClientChange, Confplane
from confplane.client.core.operations import Family, listing, operation, procedure, tagged
from tests.support.both_clients import KINDS, Kind, connected, done, items
from tests.support.operations import OPERATIONS, SPEC, resolve
from tests.unit.client.generate import bodies

CLIENT: Final = Confplane("http://confplane.test", token=None)
GENERAL: Final = frozenset(
    {"reason", "ticket", "validateOnly", "view", "consistency"}
    | {"Confplane-Break-Glass", "Confplane-Reason", "Confplane-Wait-Applied"}
)
"""Parameters of every operation, or of every read of a cluster."""
_OF_ROWS: Final = frozenset({"filter", "orderBy", "format"})
"""Parameters of the rows of rollups that are not columns. The library takes no CSV."""
HEADERS: Final = {"Idempotency-Key", "If-Match", "If-None-Match", "Confplane-Min-Revision"}

_FILTERS: Final = dict.fromkeys(
    ("user", "client_id", "ip", "topic", "broker", "group", "client_metrics", "key", "kind", "prefix"), "x"
)
_OF_LISTS: Final = {"owner": "x", "label": "x"}
_PAGE: Final = {"page_size": 7, "page_token": "t"}
_TERMS: Final = {"validate_only": True, "reason": "r", "ticket": "t"}
_CONDITIONS: Final = {**_TERMS, "if_match": '"a"', "if_none_match": "*"}
_TEMPORARY: Final = {"expires_in": 60, "revert_at": "2026-01-01T00:00:00Z"}
_EDIT: Final = {
    "facet": "client-quotas",
    "id": "user=alice",
    "mode": "alter",
    "ops": [{"key": "producer_byte_rate", "op": "SET", "value": 1}],
}
_FRESH: Final = {"min_revision": 5, "strong": True}
_MANIFEST: Final = {
    "apiVersion": "confplane/v1",
    "kind": "Configs",
    "entities": [{"id": "user=alice", "quotas": {"producer_byte_rate": 1}, "clientConfigs": {"acks": "all"}}],
}
_GRANT: Final = {"principal": "User:alice", "operation": "ALTER_CONFIGS", "resourceType": "user"}

Row = tuple[str, tuple[Any, ...], dict[str, Any]]
"""A method, and its arguments: all that it takes."""


def _resources(family: str, facet: str, entity: str, values: dict[str, Any]) -> dict[str, Row]:
    """Return the rows of the operations that the resources of every facet have."""
    return {
        f"list{facet}": (
            f"{family}.list",
            (),
            {"entity": entity, **_FILTERS, **_OF_LISTS, "at": 3, "full": True, **_PAGE, **_FRESH},
        ),
        f"create{facet}": (f"{family}.create", (entity, values), {**_CONDITIONS, **_TEMPORARY}),
        f"get{facet}": (f"{family}.get.if_none_match", ('"a"', entity), {"at": 3, "full": True, **_FRESH}),
        f"put{facet}": (f"{family}.put", (entity, values), {**_CONDITIONS, **_TEMPORARY}),
        f"delete{facet}": (f"{family}.delete", (entity,), {**_CONDITIONS, **_TEMPORARY}),
        f"effective{facet}": (f"{family}.effective.if_none_match", ('"a"', entity), _FRESH),
        f"history{facet}": (f"{family}.history", (entity,), _PAGE),
        f"diff{facet}": (f"{family}.diff", (entity,), {"before": 3, "after": 4}),
        f"revert{facet}": (f"{family}.revert", (entity, 3), {"force": True, **_CONDITIONS}),
    }


def _rollup(name: str) -> Row:
    """Return the row of a rollup, with each of its columns as a filter."""
    parameters = [resolve(each) for each in OPERATIONS[f"getRollup{name}"]["parameters"]]
    columns = {
        each["name"]: 1
        for each in parameters
        if each["in"] == "query" and each["name"] not in {*GENERAL, *_OF_ROWS, "pageSize", "pageToken"}
    }
    reading = {"filter": "version > 1", "order_by": "version desc", "if_none_match": '"a"'}
    return f"rollups.{name.lower()}", (columns,), {**_PAGE, **reading}


CALLS: Final[dict[str, Row]] = {
    **_resources("client_quotas", "ClientQuotas", "user=alice", {"producer_byte_rate": 1}),
    **_resources("client_configs", "ClientConfigs", "user=alice", {"acks": "all"}),
    **_resources("configs", "Configs", "topic=orders", {"retention.ms": "1"}),
    **{
        f"getRollup{name}": _rollup(name)
        for name in ("Compatibility", "Drift", "Impact", "Quotas", "Activity", "Integrity", "Compare", "Usage")
    },
    "listClientConfigs": (
        "client_configs.list",
        (),
        {"entity": "user=alice", **_FILTERS, **_OF_LISTS, "applied": False, "at": 3, "full": True, **_PAGE, **_FRESH},
    ),
    "livez": ("service.livez", (), {}),
    "readyz": ("service.readyz", (), {}),
    "metrics": ("service.metrics", (), {}),
    "protectedResource": ("service.protected_resource", (), {}),
    "whoami": ("service.whoami", (), {}),
    "listClusters": ("clusters.list", (), {}),
    "getCluster": ("clusters.get", (), _FRESH),
    "freezeCluster": ("clusters.freeze", ("r",), {"validate_only": True, "ticket": "t"}),
    "thawCluster": ("clusters.thaw", ("r",), {"validate_only": True, "ticket": "t"}),
    "describeClientQuotas": (
        "client_quotas.describe",
        ([{"entityType": "user", "matchType": "exact", "match": "alice"}],),
        {"strict": True, **_FRESH},
    ),
    "alterClientQuotas": (
        "client_quotas.alter",
        ([Change("user=alice", {"producer_byte_rate": 1, "consumer_byte_rate": None}, '"a"')],),
        {"atomic": True, **_TERMS, **_TEMPORARY},
    ),
    "describeClientConfigs": (
        "client_configs.describe",
        ([{"entityType": "user", "matchType": "exact", "match": "alice"}],),
        {
            "strict": True,
            "resolve_entity": True,
            "supported_configs": ["acks"],
            "client_information": {"softwareName": "n", "softwareVersion": "1"},
            **_FRESH,
        },
    ),
    "alterClientConfigs": (
        "client_configs.alter",
        ([Change("user=alice,client-id", {"acks": "all"}, '"a"')],),
        {"atomic": True, **_TERMS, **_TEMPORARY},
    ),
    "reportClientConfigs": (
        "client_configs.report",
        ("user=alice", "one", {"softwareName": "n", "softwareVersion": "1", "appliedRevision": "1"}),
        {},
    ),
    "statusClientConfigs": ("client_configs.status", ("user=alice",), _FRESH),
    "alterClients": (
        "clients.alter",
        ([ClientChange("user=alice", {"producer_byte_rate": None}, {"acks": "all"}, '"a"', '"b"')],),
        {"atomic": True, **_TERMS, **_TEMPORARY},
    ),
    "planManifest": (
        "manifests.plan",
        ({**_MANIFEST, "cluster": "default"},),
        {"atomic": True, "scope": "topic:orders.", "max_deletes": 1, **_FRESH},
    ),
    "applyManifest": (
        "manifests.apply",
        (_MANIFEST, "7d2f9c0d1e3b4a6c7d8e9f00112233445566abcd"),
        {"revision": 3, "atomic": True, "scope": "topic:orders.", "max_deletes": 1, **_TERMS, **_TEMPORARY},
    ),
    "exportManifest": ("manifests.export", (), {**_FILTERS, "owner": "payments", **_FRESH}),
    "describeConfigs": (
        "configs.describe",
        ([{"resourceType": "TOPIC", "resourceName": "orders"}],),
        {"include_synonyms": True, "include_documentation": True, **_FRESH},
    ),
    "incrementalAlterConfigs": (
        "configs.alter",
        ([Change("topic=orders", {"retention.ms": "1", "flush.ms": None}, '"a"'), Change("broker", {"a.b": "c"})],),
        {"atomic": True, **_TERMS, **_TEMPORARY},
    ),
    "describeEntityConfigs": (
        "entity_configs.describe",
        ([{"entityType": "topic", "entityName": "orders"}],),
        _FRESH,
    ),
    "alterEntityConfigs": (
        "entity_configs.alter",
        ([{"entityType": "topic", "entityName": "orders", "deletedConfigs": ["retention.ms"]}],),
        {**_TERMS, **_TEMPORARY},
    ),
    "getGlobalConfig": ("global_config.get", (), _FRESH),
    "changeGlobalConfig": (
        "global_config.change",
        ([{"configKey": "background.threads", "configValue": "10"}],),
        {**_TERMS, **_TEMPORARY},
    ),
    "followChanges": (
        "feed.poll",
        (),
        {
            "after": "p",
            "snapshot": True,
            "wait_s": 5,
            "requests": "include",
            "facet": "configs",
            "entity_type": "user",
            "entity": "user=alice",
            **dict.fromkeys(("user", "prefix", "key", "principal"), "x"),
        },
    ),
    "listTokens": ("tokens.list", (), {"principal": "User:alice", **_PAGE}),
    "createToken": ("tokens.create", ({"principal": "User:alice"},), _TERMS),
    "getToken": ("tokens.get", ("t",), {}),
    "revokeToken": ("tokens.revoke", ("t",), {"with_created": True, **_TERMS}),
    "rotateToken": ("tokens.rotate", ("t",), {"overlap_s": 60, "expires_at": "2026-01-01T00:00:00Z", **_TERMS}),
    "listGrants": ("grants.list", (), {"principal": "User:alice", "cluster": "default", **_PAGE}),
    "createGrant": ("grants.create", (_GRANT,), _TERMS),
    "getGrant": ("grants.get.if_none_match", ('"a"', "g"), {}),
    "putGrant": ("grants.put", ("g", _GRANT), {"if_match": '"a"', **_TERMS}),
    "deleteGrant": ("grants.delete", ("g",), {"if_match": '"a"', **_TERMS}),
    "listWebhooks": ("webhooks.list", (), {}),
    "getWebhook": ("webhooks.get.if_none_match", ('"a"', "w"), {}),
    "putWebhook": ("webhooks.put", ("w", {"url": "https://a.example.com/"}), {"if_match": '"a"', **_TERMS}),
    "deleteWebhook": ("webhooks.delete", ("w",), {"if_match": '"a"', **_TERMS}),
    "assignWebhook": ("webhooks.assign", ("w", "User:alice"), _TERMS),
    "resumeWebhook": ("webhooks.resume", ("w",), _TERMS),
    "rotateWebhookSecret": ("webhooks.rotate", ("w",), {"overlap_s": 60, **_TERMS}),
    "testWebhook": ("webhooks.test", ("w",), _TERMS),
    "listWebhookDeliveries": ("webhooks.deliveries", ("w",), {}),
    "listSchedules": ("schedules.list", (), {"ended": True, "entity": "user=alice", **_PAGE}),
    "listChangeRequests": ("change_requests.list", (), {"state": "open", "entity": "user=alice", **_PAGE}),
    "getChangeRequest": ("change_requests.get.if_none_match", ('"a"', "c"), {}),
    "createChangeRequest": (
        "change_requests.propose",
        ([_EDIT],),
        {
            "revert": "019a9c5e-7b2c-7d11-8a52-5d0c6f7e9b10",
            "expires_at": "2026-01-02T00:00:00Z",
            "apply_at": "2026-01-01T00:00:00Z",
            **_TERMS,
        },
    ),
    "reviseChangeRequest": (
        "change_requests.revise",
        ("c", [_EDIT]),
        {
            "revert": "019a9c5e-7b2c-7d11-8a52-5d0c6f7e9b10",
            "times": {"expiresAt": "2026-01-02T00:00:00Z", "applyAt": None},
            "if_match": '"a"',
            **_TERMS,
        },
    ),
    "approveChangeRequest": (
        "change_requests.approve",
        ("c", "7d2f9c0d1e3b4a6c7d8e9f00112233445566abcd"),
        {"comment": "x", **_TERMS},
    ),
    "rejectChangeRequest": ("change_requests.reject", ("c", "x"), _TERMS),
    "cancelChangeRequest": ("change_requests.cancel", ("c", "x"), _TERMS),
    "commentChangeRequest": ("change_requests.comment", ("c", "x"), _TERMS),
    "revertChangeRequest": (
        "change_requests.revert",
        ("c",),
        {"partly": True, "expires_at": "2026-01-02T00:00:00Z", "apply_at": "2026-01-01T00:00:00Z", **_TERMS},
    ),
    "applyChangeRequest": (
        "change_requests.apply",
        ("c", [{"id": "broker=1", "key": "ssl.key.password", "value": "v"}]),
        _TERMS,
    ),
    "endSchedule": ("schedules.end", ("c",), _TERMS),
    "pauseSchedules": ("schedules.pause", ("r",), {"validate_only": True, "ticket": "t"}),
    "resumeSchedules": ("schedules.resume", (), _TERMS),
    "searchAccessAudit": (
        "access.changes",
        (),
        {"kind": "denied", "principal": "User:alice", "subject": "tokens/t", "since": "s", "until": "u", **_PAGE},
    ),
    "getAccess": (
        "access.get",
        (),
        {"principal": "User:alice", "group": "Group:g", "resource": "topic:orders", "operation": "ALTER_CONFIGS"},
    ),
    "checkAccess": ("access.check", ([{"operation": "ALTER_CONFIGS", "resourceType": "user", "name": "alice"}],), {}),
    "searchAudit": (
        "audit.search",
        (),
        {
            "entity": "user=alice",
            "key": "acks",
            "principal": "User:alice",
            "request_id": "r",
            "since": "s",
            "until": "u",
            "outcome": "open",
            **_PAGE,
        },
    ),
    "getAuditedChange": ("audit.get", ("c",), {}),
    "revertChanges": (
        "audit.revert",
        ({"changeId": "019a9c5e-7b2c-7d11-8a52-5d0c6f7e9b10"},),
        {"keys": ["acks"], "force": True, **_TERMS},
    ),
    "listConfigDefinitions": (
        "config_definitions.list",
        (),
        {"entity_type": "topic", "search": "retention", "dynamic": True, "release": "4.4"},
    ),
    "listRollups": ("rollups.list", (), {}),
    "listDrift": ("drift.list", (), {"entity": "user=alice", **_PAGE}),
    "adoptDrift": ("drift.adopt", (["user=alice"],), {"keys": ["producer_byte_rate"], **_TERMS}),
    "reapplyDrift": ("drift.reapply", (["user=alice"],), {"keys": ["producer_byte_rate"], **_TERMS}),
    "listRegistrations": ("registrations.list", (), {"entity": "user=alice", **_PAGE}),
    "clearRegistrations": ("registrations.clear", (None,), _TERMS),
}
FURTHER: Final = {
    "audit.refused",
    "client_quotas.update",
    "client_configs.update",
    "configs.update",
    "configs.incremental_alter",
}
"""Methods beside those of :data:`CALLS`, for the same operations."""


class Recorded:
    """A service that answers everything, and keeps the requests."""

    def __init__(self) -> None:
        self.requests: list[httpx.Request] = []

    def __call__(self, request: httpx.Request) -> httpx.Response:
        self.requests.append(request)
        return httpx.Response(200, json={"items": [], "nextPageToken": None})


def _method(client: Any, name: str) -> Any:
    for part in name.split("."):
        client = getattr(client, part)
    return client


def _described(name: str) -> tuple[type, Any]:
    """Return the family of a method, and the method that describes its request."""
    family, method = name.removesuffix(".if_none_match").split(".")
    kind = type(vars(CLIENT)[family])
    return kind, getattr(kind, method)


def test_every_operation_has_a_method() -> None:
    assert set(CALLS) == set(OPERATIONS), (
        "each operation has a method in app/confplane/client/families, and a row above"
    )


def test_every_method_is_tried() -> None:
    families = {name: each for name, each in vars(CLIENT).items() if isinstance(each, Family)}
    methods = {
        f"{name}.{method}"
        for name, family in families.items()
        for kind in type(family).__mro__
        for method, each in vars(kind).items()
        if isinstance(each, operation | tagged | listing | procedure)
    }
    assert methods == FURTHER | {name.removesuffix(".if_none_match") for name, _, _ in CALLS.values()}


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("name", sorted(CALLS))
async def test_a_method_sends_the_request_of_its_operation(name: str, kind: Kind) -> None:
    expected, (method, args, members) = OPERATIONS[name], CALLS[name]
    service = Recorded()
    async with connected(kind, transport=httpx.MockTransport(service)) as client:
        result = _method(client, method)(*args, **members)
        await (items(result) if hasattr(result, "pages") else done(result))
    [request] = service.requests
    template = re.sub(r"\\\{\w+\\\}", "[^/:]+", re.escape(expected["path"]))
    assert request.method == expected["method"].upper()
    assert re.fullmatch(template, request.url.raw_path.decode().partition("?")[0])
    parameters = [resolve(each) for each in expected.get("parameters", ())]
    _sends_all(request, parameters)
    if "requestBody" in expected:
        [schema] = bodies({"requestBody": expected["requestBody"], "responses": {}})
        jsonschema_rs.validator_for({**schema, "components": SPEC["components"]}).validate(json.loads(request.content))
    else:
        assert request.content == b""


def _sends_all(request: httpx.Request, parameters: list[dict[str, Any]]) -> None:
    """Check that a request has the operation's own parameters, each in its place, and none besides."""
    places = {place: {each["name"] for each in parameters if each["in"] == place} for place in ("query", "header")}
    sent = {"query": set(request.url.params), "header": {name for name in HEADERS if name in request.headers}}
    assert sent["query"] <= places["query"]
    own = places["query"] - GENERAL
    # `absent` is for tools that cannot read a 404; the library raises NothingSetError. `audit.refused` sends `result`.
    assert own - sent["query"] <= {"id", "format", "absent", "result"}, (
        "the method in app/confplane/client/families lacks a parameter"
    )
    assert sent["header"] <= places["header"]
    assert places["header"] - GENERAL - sent["header"] <= {"If-None-Match", "Last-Event-ID"}


@pytest.mark.parametrize("name", sorted(CALLS))
def test_the_type_of_an_answer_is_that_of_the_specification(name: str) -> None:
    family, method = _described(CALLS[name][0])
    answers = bodies({"responses": OPERATIONS[name]["responses"]})
    names = {schema["$ref"].rpartition("/")[2] for schema in answers}
    page, *item = _types(family, method.describe.__annotations__["return"])
    assert {page} == (names or {"str"})
    if item:
        listed = SPEC["components"]["schemas"][page]["properties"]["items"]["items"]
        assert item[0] in [each["$ref"].rpartition("/")[2] for each in listed.get("anyOf", [listed])]


def _types(family: type, annotation: str) -> list[str]:
    """Return the names of the types in an annotation such as ``Call[T]``, with the family's own types for variables."""
    known: dict[str, str] = {}
    for base in getattr(family, "__orig_bases__", ()):
        variables = getattr(base.__origin__, "__parameters__", ())
        for variable, value in zip(variables, get_args(base), strict=True):
            if not isinstance(value, TypeVar):
                known[variable.__name__] = getattr(value, "__forward_arg__", value)
    inner = annotation.partition("[")[2].removesuffix("]")
    return [known.get(each, each) for each in inner.split(", ")]
