"""One way to a handler: what it is given, how it fails, and that the lookup matches the router."""

from __future__ import annotations

import ast
import inspect
import json
from collections import defaultdict
from itertools import product
from pathlib import Path
from types import SimpleNamespace
from typing import Annotated, Any

import pytest
from fastapi import Body, Depends, Header, Query
from starlette.requests import ClientDisconnect, Request
from starlette.routing import Match

from confplane import api
from confplane.api import resource
from confplane.api.app import FAMILIES, _routed
from confplane.api.models import RequestModel
from confplane.api.request_context import REQUEST_CONTEXT, RequestContext
from confplane.api.responses import PreparedResponse
from confplane.api.routing.operations import read
from confplane.api.routing.paths import Lookup
from confplane.api.routing.routes import StrictRoute
from confplane.domain.errors import NotFoundError
from confplane.domain.rollups import ROLLUPS
from confplane.services.limits import LimitClass

API = Path(api.__file__).parent
SEEN: list[Any] = []
Tags = Annotated[str | None, Header(alias="If-Match")]


def _part(request: Request, size: Annotated[int, Query(alias="pageSize", ge=1)] = 7, tags: Tags = None) -> Any:
    assert request.method
    return size, tags


async def _checked(kind: Annotated[str, Query(max_length=3)] = "any") -> None:
    SEEN.append(kind)
    if kind == "bad":
        raise NotFoundError("there is none")
    if kind == "off":
        raise ClientDisconnect
    if kind == "bug":
        raise KeyError(kind)


class Item(RequestModel):
    """A body."""

    name: str


async def _handler(
    part: Annotated[Any, Depends(_part)],
    name: str,
    body: Annotated[Item, Body()],
    flag: Annotated[bool | None, Query()] = None,
    depth: Annotated[int | None, Header(alias="X-Depth")] = None,
) -> PreparedResponse:
    SEEN.append((part, name, body.name, flag if depth is None else depth))
    return PreparedResponse(b"done", [])


def _late_request(name: str, request: Request) -> Any:
    return request, name


def _two_texts(request: Request, name: str, kind: str) -> Any:
    return request, name, kind


async def _given_a_late_request(part: Annotated[Any, Depends(_late_request)]) -> PreparedResponse:
    return PreparedResponse(str(part).encode(), [])


async def _given_two_texts(part: Annotated[Any, Depends(_two_texts)]) -> PreparedResponse:
    return PreparedResponse(str(part).encode(), [])


FACTS = read("Put a thing", Item, limit=LimitClass.READ, tagged=False, problems=())
ROUTE = StrictRoute("PUT", "/things/{name}", _handler, FACTS, checks=[Depends(_checked)])


async def _answer(
    query: str = "", *headers: tuple[str, str], body: bytes = b'{"name":"n"}'
) -> tuple[int, dict[str, Any], list[Any]]:
    sent = [("content-type", "application/json"), *headers]
    raw = [(name.lower().encode(), value.encode("latin-1")) for name, value in sent]
    scope = {
        "type": "http",
        "method": "PUT",
        "path": "/things/t",
        "path_params": {"name": "t"},
        "query_string": query.encode(),
        "headers": raw,
        REQUEST_CONTEXT: RequestContext(dict(raw), "r", 0.0),
        "app": SimpleNamespace(max_body_bytes=1000),
    }

    async def receive() -> dict[str, Any]:
        return {"type": "http.request", "body": body, "more_body": False}

    SEEN.clear()
    response = await ROUTE.answer(Request(scope, receive))
    content = bytes(response.body)
    return response.status_code, json.loads(content) if content.startswith(b"{") else {}, [*SEEN]


async def test_without_a_query_defaults_are_taken_and_nothing_is_checked() -> None:
    assert await _answer() == (200, {}, [((7, None), "t", "n", None)])


@pytest.mark.parametrize("handler", [_given_a_late_request, _given_two_texts])
def test_a_dependency_takes_the_request_first_and_then_one_text_of_the_path(handler: Any) -> None:
    with pytest.raises(TypeError, match="must take the request"):
        StrictRoute("GET", "/things/{name}/{kind}", handler, FACTS)


async def test_values_are_validated_and_passed_to_the_operation_that_declares_them() -> None:
    status, _, seen = await _answer("kind=x&pageSize=12&flag=true")
    assert (status, seen) == (200, ["x", ((12, None), "t", "n", True)])


@pytest.mark.parametrize("others", [(), (("If-Match", "a"),)])
async def test_a_header_of_the_handler_is_validated(others: tuple[tuple[str, str], ...]) -> None:
    tags = others[0][1] if others else None
    status, _, seen = await _answer("", ("X-Depth", "4"), *others)
    assert (status, seen) == (200, [((7, tags), "t", "n", 4)])
    status, problem, seen = await _answer("", ("X-Depth", "far"), *others)
    assert (status, [part["pointer"] for part in problem["errors"]], seen) == (400, ["X-Depth"], [])


async def test_a_header_of_several_lines_is_one_list() -> None:
    _, _, seen = await _answer("", ("If-Match", '"a"'), ("X-Other", "b"), ("if-match", '"c"'))
    assert seen == [((7, '"a", "c"'), "t", "n", None)]


@pytest.mark.parametrize("text", ["disks full \N{EN DASH} now", "caf\N{LATIN SMALL LETTER E WITH ACUTE}"])
@pytest.mark.parametrize("encoding", ["utf-8", "latin-1"])
async def test_a_header_is_utf_8_or_else_latin_1(text: str, encoding: str) -> None:
    sent = text.encode(encoding, "replace")
    _, _, seen = await _answer("", ("If-Match", sent.decode("latin-1")))
    assert seen == [((7, sent.decode(encoding)), "t", "n", None)]


async def test_all_that_is_wrong_with_parameters_is_answered_at_once_and_nothing_is_done() -> None:
    status, problem, seen = await _answer("pageSize=0&kind=long", body=b"[")
    assert (status, seen) == (400, [])
    assert {part["pointer"] for part in problem["errors"]} == {"pageSize", "kind"}


@pytest.mark.parametrize(
    ("query", "pointer", "words"),
    [
        ("size=1", "size", "Unknown query parameter 'size'; there are: flag, kind, pageSize"),
        ("flag=1&flag=1", "flag", "given twice"),
        ("kind=%00", "kind", "not UTF-8 text without NUL"),
        ("kind=%FF", "kind", "not UTF-8 text without NUL"),
    ],
)
async def test_what_is_no_query_is_refused(query: str, pointer: str, words: str) -> None:
    status, problem, seen = await _answer(query)
    assert (status, [part["pointer"] for part in problem["errors"]], seen) == (400, [pointer], [])
    assert words in problem["detail"]


@pytest.mark.parametrize(
    ("query", "body", "status"),
    [
        ("", b'{"name":1}', 400),
        ("", b"[", 400),
        ("", b"x" * 2000, 413),
        ("kind=bad", b"[", 404),
        ("kind=off", b"[", 499),
        ("kind=bug", b"[", 500),
    ],
)
async def test_errors_of_every_kind_become_answers(query: str, body: bytes, status: int) -> None:
    found, problem, seen = await _answer(query, body=body)
    assert found == status
    assert problem.get("status", status) == status
    assert not any(isinstance(item, tuple) for item in seen), "the handler was called"


async def test_a_body_of_another_type_is_no_json() -> None:
    status, problem, _ = await _answer("", ("content-type", "text/plain"))
    assert (status, problem["type"]) == (415, "/problems/media-type")


APP = _routed(None)
LOOKUP = Lookup(APP)
IDS = ("user=a", "user=a,client-id=b", "", "effective", "user=a/effective", "a/b", "/effective", "user=a/effective/")


def _paths() -> set[str]:
    found = {"/", "/v1/clusters/", "/v1/clusters//client-quotas", "/v1/nothing", "/v1/clusters/c/client-quotas:x"}
    for route in APP.routes:
        assert isinstance(route, StrictRoute)
        for cluster, entity_id in product(("default", "a b", ""), IDS):
            path = route.path.replace("{cluster}", cluster).replace("{id:path}", entity_id)
            found |= {path, f"{path}/", path.replace("{changeId}", "1").replace("{name}", "one")}
    return found


@pytest.mark.parametrize("root", ["", "/behind"])
@pytest.mark.parametrize("method", ["GET", "HEAD", "POST", "PUT", "DELETE", "PATCH"])
def test_the_lookup_matches_the_router(method: str, root: str) -> None:
    left_to_the_router: set[str] = set()
    for path in _paths():
        scope: dict[str, Any] = {"type": "http", "method": method, "path": root + path, "root_path": root}
        routed = dict(scope)
        expected = next((route for route in APP.routes if route.matches(routed)[0] is Match.FULL), None)
        found = LOOKUP.find(scope)
        if found is None:
            assert "path_params" not in scope
            if expected is not None:
                assert isinstance(expected, StrictRoute)
                left_to_the_router.add(expected.path)
        else:
            assert expected is found, path
            assert scope["path_params"] == expected.matches(routed)[1]["path_params"]
            # The next request has parameters of its own, whatever became of these.
            scope["path_params"].clear()
            assert LOOKUP.find(scope) is found
            assert scope["path_params"] == expected.matches(routed)[1]["path_params"]
    base = "/v1/clusters/{cluster}"
    some = {f"{base}/{facet}/{{id:path}}" for facet in ("client-quotas", "client-configs", "configs")}
    token, grant = "/v1/tokens/{tokenId}", "/v1/grants/{grantId}"
    webhook, request = f"{base}/webhooks/{{name}}", f"{base}/change-requests/{{requestId}}"
    verbs = ("apply", "approve", "cancel", "comment", "reject", "revert", "revise")
    allowed = {
        # What would be effective values, or a revert, is an entity of this id to other methods.
        "GET": {
            *some,
            f"{base}/audit/{{changeId}}",
            f"{base}/rollups/{{name}}",
            token,
            grant,
            webhook,
            request,
            f"{webhook}/deliveries",
        },
        "POST": {
            f"{token}:rotate",
            f"{base}/schedules/{{changeId}}:end",
            *(f"{request}:{verb}" for verb in verbs),
            *(f"{webhook}:{verb}" for verb in ("assign", "resume", "rotate", "test")),
        },
        "PUT": {*some, grant, webhook},
        "DELETE": {*some, token, grant, webhook},
    }
    assert left_to_the_router <= allowed.get(method, set())


def test_the_path_of_each_route_is_written_at_its_handler_and_in_no_other_file() -> None:
    """Somebody who searches for a path finds the handler. The paths of rollups are made from their names."""
    written: defaultdict[str, set[Path]] = defaultdict(set)
    for file in API.rglob("*.py"):
        for node in ast.walk(ast.parse(file.read_text())):
            if isinstance(node, ast.AsyncFunctionDef):
                firsts = [each.args[0] for each in node.decorator_list if isinstance(each, ast.Call) and each.args]
                for first in firsts:
                    if isinstance(first, ast.Constant) and isinstance(first.value, str):
                        written[first.value].add(file)
    routes = [each for family in FAMILIES for each in family if each.operation.listed]
    of_rollups = [each for each in routes if "/rollups/" in each.path]
    assert len(of_rollups) == len(ROLLUPS)
    for route in routes:
        if route not in of_rollups and route.path != resource.PATH:
            assert written[route.path] == {Path(inspect.unwrap(route.endpoint).__code__.co_filename)}, route.path


def test_what_is_bound_is_the_signature_of_the_handler() -> None:
    """No route rewrites it. The handlers of rollups are one function, which declares a filter for each column."""
    rewritten = [each.path for family in FAMILIES for each in family if hasattr(each.endpoint, "__signature__")]
    assert len(rewritten) == len(ROLLUPS)
    assert all("/rollups/" in path for path in rewritten)


def test_a_family_is_a_file_of_at_most_400_lines_or_a_folder_of_at_most_three_files() -> None:
    for family in FAMILIES:
        file = Path(inspect.getfile(next(iter(family)).endpoint))
        if file.parent == API:
            assert len(file.read_text().splitlines()) <= 400, file.name
        else:
            files = {each.name for each in file.parent.glob("*.py")} - {"__init__.py"}
            assert len(files) <= 3, f"{file.parent.name}: {files}"
