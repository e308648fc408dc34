"""Every error of the domain has its row, and its rendering is what the specification calls a problem."""

from __future__ import annotations

import inspect
import json
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any
from uuid import UUID

import jsonschema_rs
import pytest
from starlette.requests import Request

from confplane.api import problems
from confplane.api.request_context import REQUEST_CONTEXT, RequestContext
from confplane.api.responses import CLUSTER
from confplane.domain import errors
from confplane.domain.errors import ConfplaneError, KafkaCode
from tests.unit.client.generate import specification

if TYPE_CHECKING:
    from collections.abc import Iterator

SPEC = specification()
STATUSES: dict[KafkaCode, set[int]] = {
    KafkaCode.UNKNOWN_SERVER_ERROR: {409},
    KafkaCode.INVALID_REQUEST: {400, 409, 413, 414, 415, 431},
    KafkaCode.INVALID_TOPIC_EXCEPTION: {400},
    KafkaCode.UNSUPPORTED_VERSION: {400},
    KafkaCode.CLUSTER_AUTHORIZATION_FAILED: {401, 403},
    KafkaCode.TOPIC_AUTHORIZATION_FAILED: {403},
    KafkaCode.GROUP_AUTHORIZATION_FAILED: {403},
    KafkaCode.UNKNOWN_TOPIC_OR_PARTITION: {404},
    KafkaCode.RESOURCE_NOT_FOUND: {404},
    KafkaCode.STALE_CONTROLLER_EPOCH: {409},
    KafkaCode.DUPLICATE_RESOURCE: {409},
    KafkaCode.OPERATION_NOT_ATTEMPTED: {409},
    KafkaCode.INVALID_UPDATE_VERSION: {409, 412},
    KafkaCode.INVALID_CONFIG: {422},
    KafkaCode.POLICY_VIOLATION: {422},
    KafkaCode.THROTTLING_QUOTA_EXCEEDED: {429},
    KafkaCode.NETWORK_EXCEPTION: {503},
    KafkaCode.REQUEST_TIMED_OUT: {408, 504},
}
"""The statuses with which an error of a Kafka code may be answered."""


def _tree(root: type[ConfplaneError]) -> Iterator[type[ConfplaneError]]:
    for child in root.__subclasses__():
        if child.__module__ == errors.__name__:
            yield child
        yield from _tree(child)


CLASSES = sorted(set(_tree(ConfplaneError)), key=lambda cls: cls.__name__)


def _example(cls: type[ConfplaneError]) -> ConfplaneError:
    """Make an error of a class, with text for nearly all that it takes."""
    given: dict[str, Any] = {}
    for name, parameter in inspect.signature(cls).parameters.items():
        if parameter.default is inspect.Parameter.empty:
            given[name] = '"5f2a9c0d1e3b4a6c7d8e9f00"' if name == "etag" else f"some {name}"
    if cls is errors.OutcomeUnknownError:
        given["change_id"] = "019a9c5e-7b2c-7d11-8a52-5d0c6f7e9b10"
    if cls is errors.LimitExceededError:
        given["throttle_ms"] = 1500
    if cls is errors.RevertConflictError:
        seen = errors.ConflictingChange(None, None, None, 8589934635, 1769860800000, ("producer_byte_rate",))
        known = UUID("019a9c5e-7b2c-7d11-8a52-5d0c6f7e9b10"), "change", "User:olga"
        given["later"] = seen, errors.ConflictingChange(*known, *seen[3:])
    return cls(**given)


def test_the_tree_is_found() -> None:
    assert len(CLASSES) >= 18


@pytest.mark.parametrize("cls", CLASSES)
def test_every_error_has_a_row_of_its_own(cls: type[ConfplaneError]) -> None:
    assert cls in problems.TABLE, (
        f"{cls.__name__} would be answered as {problems.problem_type_of(_example(cls)).title!r}"
    )


@pytest.mark.parametrize("cls", CLASSES)
def test_the_status_fits_the_kafka_code(cls: type[ConfplaneError]) -> None:
    error = _example(cls)
    row = problems.problem_type_of(error)
    special = {
        "encoder-secret-missing": {422},
        "idempotency-key-reused": {422},
        "result-gone": {410},
        "before-history": {410},
        "store-replaced": {410},
    }
    allowed = STATUSES[error.code] | special.get(row.slug, set())
    assert row.status in allowed


def test_slugs_distinguish_errors() -> None:
    slugs = [row.slug for row in problems.TABLE.values()]
    assert len(slugs) == len(set(slugs))


@pytest.mark.parametrize("cls", CLASSES)
def test_every_problem_is_as_the_specification_says(cls: type[ConfplaneError]) -> None:
    error = _example(cls)
    error.pointer = "/entries/0"
    body = problems.problem(error, request_id="r", instance="/v1/clusters/default")
    schema = {"$ref": "#/components/schemas/Problem", "components": SPEC["components"]}
    jsonschema_rs.validate(schema, body)
    assert body["status"] == problems.problem_type_of(error).status
    assert body["errors"] == [{"pointer": "/entries/0", "detail": error.detail}]


def test_a_subclass_without_a_row_takes_its_parents() -> None:
    class NarrowError(errors.NotFoundError):
        """Not in the table."""

    assert problems.problem_type_of(NarrowError("x")) is problems.TABLE[errors.NotFoundError]


@pytest.mark.parametrize(
    ("error", "header", "value"),
    [
        (errors.UnavailableError("away", retry_after_s=7), "retry-after", "7"),
        (errors.UnauthenticatedError("who"), "www-authenticate", 'Bearer realm="confplane"'),
        (errors.OutcomeUnknownError("lost", change_id="c-1"), "confplane-change-id", "c-1"),
    ],
)
def test_headers_of_problems(error: ConfplaneError, header: str, value: str) -> None:
    request = _request("GET")
    assert problems.respond(request, error).headers[header] == value


@pytest.mark.parametrize(("confirmed_at", "written_at", "found"), [(9, None, "9"), (9, 10, "10"), (None, None, "7")])
def test_a_refused_write_has_the_revision_of_the_state_that_it_rests_on(
    confirmed_at: int | None, written_at: int | None, found: str
) -> None:
    request, error = _request("PUT"), errors.PreconditionFailedError("another ETag", etag=None)
    store = SimpleNamespace(freshness=lambda: (7, None), restored=False, applied_revision=lambda: None)
    request.scope[CLUSTER] = SimpleNamespace(store=store)
    error.revision = confirmed_at
    assert problems.respond(request, error, written_at=written_at).headers["confplane-revision"] == found


def test_findings_of_the_parser_name_their_place() -> None:
    request = _request("POST")
    found = [
        {"type": "missing", "loc": ("body", "entries", 0, "a/b~c"), "msg": "Field required"},
        {"type": "string_type", "loc": ("body", "entries", 0, "x/y", "str"), "msg": "no text"},
        {"type": "int_type", "loc": ("body", "entries", 0, "x/y", "int"), "msg": "no number"},
        {"type": "string_type", "loc": ("body", "entries", 0, "str"), "msg": "no text"},
        {"type": "model_type", "loc": ("body", "entries", 1), "msg": "no instance of Entry"},
        {"type": "int_parsing", "loc": ("query", "pageSize"), "msg": "not a number"},
    ]
    sent = {"entries": [{"x/y": None, "str": 1}, 7]}
    body = json.loads(bytes(problems.respond(request, problems.FindingsError(found, sent)).body))
    assert body["errors"] == [
        {"pointer": "/entries/0/a~1b~0c", "detail": "this member is required"},
        {"pointer": "/entries/0/x~1y", "detail": "no text; or: no number"},
        {"pointer": "/entries/0/str", "detail": "no text"},
        {"pointer": "/entries/1", "detail": "this must be a JSON object"},
        {"pointer": "pageSize", "detail": "not a number"},
    ]
    assert body["detail"] == "/entries/0/a~1b~0c: this member is required"


def _request(method: str) -> Request:
    scope = {"type": "http", "method": method, "path": "/", "query_string": b"", "headers": []}
    return Request({**scope, REQUEST_CONTEXT: RequestContext({}, "r", 0.0)})
