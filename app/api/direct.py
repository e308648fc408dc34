"""A short way to the busiest handlers, ahead of the router.

Thousands of applications poll one entity every few minutes, and automation writes single entities; nothing else is
asked nearly as often. Matching routes and injecting dependencies costs several times as much as these answers
themselves, so requests in their plain form (no query, where the handler leaves the query to FastAPI) reach the same
handlers from here. So do requests of what is open to all, since nobody keeps strangers from asking all the time. Any
other request passes on and finds the same handler through the router.
"""

from __future__ import annotations

import inspect
from functools import lru_cache, partial
from typing import TYPE_CHECKING, Any, Final, get_args
from urllib.parse import unquote

from fastapi.routing import APIRoute
from starlette.requests import ClientDisconnect, Request

from app.api import problems
from app.api.context import Common, caller_of, cluster_of, make_fresh, services_of
from app.api.edge import HEADERS, OPEN_PATHS
from app.api.routes import InvalidBodyError, MediaTypeError, model_of, parse_json, parsed, read_body, read_model
from app.api.schemas import DescribeRequest
from app.domain.errors import ConfplaneError
from app.domain.facets import FacetName

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Iterable

    from fastapi import APIRouter, FastAPI
    from pydantic import BaseModel
    from starlette.responses import Response
    from starlette.types import Receive, Scope, Send

    Handler = Callable[[Request], Awaitable[Response]]

_PREFIX: Final = b"/v1/clusters/"
_ROUTES: Final = "/v1/clusters/{cluster}/"
_FACETS: Final = frozenset(name.value.encode() for name in FacetName)
_PARTS: Final = 3
"""``{cluster}/{facet}/{id...}`` behind the prefix."""
_EFFECTIVE: Final = b"/effective"
_BODIES: Final = 8_192
_SHORT: Final = 512
"""Bytes of a body that is worth keeping: one that names a client or two."""


class Direct:
    """Answers reads and writes of single entities, the RPC-style methods and what is open; passes all else on.

    Args:
        app: The application that has the routes.
        routers: The routers whose handlers are reached directly.
    """

    def __init__(self, app: FastAPI, routers: Iterable[APIRouter]) -> None:
        self._app = app
        self._handlers: dict[tuple[str, bytes], tuple[Handler, APIRoute]] = {}
        self._open: dict[tuple[str, bytes], tuple[Handler, APIRoute]] = {}
        for route in (route for router in routers for route in router.routes if isinstance(route, APIRoute)):
            for method in route.methods or ():
                if route.path in OPEN_PATHS:
                    self._open[method, route.path.encode()] = _handler(route), route
                elif route.path.startswith(_ROUTES):
                    key = route.path.removeprefix(_ROUTES).replace("{id:path}", "{id}").encode()
                    self._handlers[method, key] = _handler(route), route

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Handle one ASGI connection."""
        handler = self._find(scope) if scope["type"] == "http" else None
        if handler is None:
            await self._app(scope, receive, send)
            return
        scope["app"] = self._app
        request = Request(scope, receive)
        try:
            response = await handler(request)
        except ConfplaneError as error:
            response = problems.respond(request, error)
        except ClientDisconnect:
            return  # nobody waits for an answer
        except Exception as error:  # noqa: BLE001 - the last resort, as Starlette's for all other routes
            response = problems.internal(request, error)
        await response(scope, receive, send)

    def _find(self, scope: Scope) -> Handler | None:
        raw: bytes = scope.get("raw_path") or b""
        method: str = scope["method"]
        if scope["root_path"] or not raw.startswith(_PREFIX):
            return self._find_open(scope)
        if method != "GET" and (scope["query_string"] or b"confplane-reason" in scope[HEADERS]):
            return None
        cluster, *rest = raw[len(_PREFIX) :].split(b"/", _PARTS - 1)
        if len(rest) == 1 and b":" in rest[0]:
            key = rest[0]
        elif len(rest) == _PARTS - 1 and rest[0] in _FACETS and rest[1]:
            effective = method == "GET" and rest[1].endswith(_EFFECTIVE)
            key = rest[0] + (b"/{id}/effective" if effective else b"/{id}")
        else:
            return None
        found = self._handlers.get((method, key))
        if found is None:
            return None
        scope["path_params"] = {"cluster": unquote(cluster.decode("latin-1"))}
        scope["route"] = found[1]
        return found[0]

    def _find_open(self, scope: Scope) -> Handler | None:
        plain = not (scope["root_path"] or scope["query_string"])
        found = self._open.get((scope["method"], scope.get("raw_path") or b"")) if plain else None
        if found is None:
            return None
        scope["route"] = found[1]
        return found[0]


class _Bodies:
    """Bodies of describes, kept as they were parsed: who polls sends the same bytes each time."""

    def __init__(self, model: type[DescribeRequest]) -> None:
        self._model = model
        self._kept = lru_cache(maxsize=_BODIES)(self._parse)

    async def __call__(self, request: Request) -> BaseModel:
        raw = await read_body(request)
        if len(raw) <= _SHORT:
            return self._kept(raw)
        value, _ = await parsed(request, raw)
        return model_of(self._model, value)

    def _parse(self, raw: bytes) -> BaseModel:
        return model_of(self._model, parse_json(raw))


def _handler(route: APIRoute) -> Handler:
    """Return a route's endpoint with its arguments found by hand instead of by injection."""
    endpoint = route.endpoint
    parameters = inspect.signature(endpoint).parameters
    model = get_args(parameters["body"].annotation)[0] if "body" in parameters else None
    common = next((name for name in ("common", "_") if name in parameters), None)
    fresh = bool(route.dependencies)
    bodies = _Bodies(model) if model is not None and issubclass(model, DescribeRequest) else None

    async def call(request: Request) -> Response:
        arguments: dict[str, Any] = {"request": request} if "request" in parameters else {}
        if "cluster" in parameters:
            arguments["cluster"] = cluster_of(request)
        if "services" in parameters:
            arguments["services"] = services_of(request)
        if common is not None:
            arguments[common] = Common(caller_of(request), validate_only=False, view="default")
        min_revision: bytes | None = request.scope[HEADERS].get(b"confplane-min-revision")
        if fresh and min_revision is not None:
            await make_fresh(request, consistency="mirror", min_revision=min_revision.decode("latin-1"))
        if model is not None:
            try:
                arguments["body"] = await (bodies or partial(read_model, model=model))(request)
            except MediaTypeError as error:
                return problems.not_json(request, error)
            except InvalidBodyError as error:
                return problems.validation_problem(request, error.found, error.sent)
        response: Response = await endpoint(**arguments)
        return response

    return call
