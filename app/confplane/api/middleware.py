"""The outermost middleware: request ids, authentication, the cluster of a request, and errors before routing.

It is pure ASGI because every poll passes through it.
"""

from __future__ import annotations

import re
import time
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import lru_cache
from typing import TYPE_CHECKING, Final, Literal

from starlette.requests import Request
from uuid_utils import uuid7

from confplane.api import problems
from confplane.api.request_context import REQUEST_CONTEXT, RequestContext
from confplane.api.responses import CHALLENGE, CLUSTER, NOSNIFF, Headers, PreparedResponse
from confplane.api.routing.paths import Lookup
from confplane.domain.errors import ConfplaneError, InvalidRequestError, UnauthenticatedError, UnknownRouteError
from confplane.domain.texts import rfc3339
from confplane.security.authenticator import BEHALF_OF, CERTIFICATE, Credentials
from confplane.services.metrics import REQUEST_ID

if TYPE_CHECKING:
    from collections.abc import Awaitable, Collection

    from fastapi import FastAPI
    from starlette.responses import Response
    from starlette.types import Message, Receive, Scope, Send

    from confplane.api.cors import Cors
    from confplane.api.request_context import Traffic
    from confplane.api.resource import ProtectedResource
    from confplane.security.authenticator import Authenticator
    from confplane.services.access import Access
    from confplane.services.clusters import ClusterRegistry
    from confplane.services.limits import Limiter
    from confplane.services.ports.access import SecurityEvents
    from confplane.services.upkeep.readiness import Readiness

_AUTHORIZATION: Final = b"authorization"
_BEHALF_OF: Final = BEHALF_OF.lower().encode()
_ACCEPTED_ID: Final = re.compile(rb"[A-Za-z0-9._:-]{1,128}")
_CLUSTERS: Final = "/v1/clusters/"
_PARTS: Final = 5
"""Parts of a path up to the facet in ``/v1/clusters/{cluster}/{facet}``: they identify the operation."""
_ANNOUNCED_S: Final = 14 * 86_400
"""Seconds before the expiry of an API token at which responses begin to announce it."""
_VARY: Final = (b"vary", f"Authorization, {BEHALF_OF}".encode())
"""The responses of all paths that need a token depend on it, and on the user for whom it acts."""
_PRIVATE: Final = (b"cache-control", b"private")


@dataclass(frozen=True, slots=True)
class MiddlewareOptions:
    """The optional parts of the middleware, as the settings enable them."""

    limiter: Limiter | None = None
    """The limits of callers. None if they are off."""
    cors: Cors | None = None
    """The origins whose pages are served. None if there are no such origins."""
    resource: ProtectedResource | None = None
    """The OAuth description of this service for clients without a token. None without a public URL."""
    events: SecurityEvents | None = None
    """Records refused credentials and uses of the admin token."""


class RequestMiddleware:
    """Wraps the application. The request id is that of ``X-Request-Id`` if it is valid, otherwise a new one.

    Requests whose route is found by their path go directly to it, and all others through the application's router.

    Args:
        app: The application that has the routes.
        authenticator: Authenticates requests.
        clusters: All clusters: every response for a cluster, including errors, has its consistency headers.
        deadline_ms: Time limit of a request in milliseconds.
        open_paths: Paths that need no token.
        readiness: Once the process is stopping, every response asks the client to close its connection, so that no
            request is in progress on a connection when the process closes it.
        traffic: Counts the requests.
        options: Limits, origins and other optional parts.
    """

    def __init__(
        self,
        app: FastAPI,
        *,
        authenticator: Authenticator[Access],
        clusters: ClusterRegistry,
        deadline_ms: int,
        open_paths: Collection[str],
        readiness: Readiness,
        traffic: Traffic,
        options: MiddlewareOptions,
    ) -> None:
        self._app = app
        self._lookup = Lookup(app)
        self._traffic = traffic
        self._limiter = options.limiter
        self._cors = options.cors
        self._events = options.events
        self._challenge = None if options.resource is None else options.resource.challenge
        self._clusters = clusters
        self._readiness = readiness
        self._authenticator = authenticator
        self._open_paths = open_paths
        self._deadline_s = deadline_ms / 1000

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Handle one ASGI connection."""
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        began, traffic = time.monotonic(), self._traffic
        headers = dict(scope["headers"])
        given = headers.get(b"x-request-id")
        request_id = given.decode() if given is not None and _ACCEPTED_ID.fullmatch(given) else str(uuid7())
        scope[REQUEST_CONTEXT] = context = RequestContext(headers, request_id, began + self._deadline_s)
        REQUEST_ID.set(request_id)
        if self._challenge is not None:
            scope[CHALLENGE] = self._challenge
        traffic.in_flight += 1
        try:
            response = self._early_response(scope, context)
            if response is None and (route := self._lookup.find(scope)) is not None:
                response = await route.answer(Request(scope, receive))
            if response is None:
                await self._route(scope, context, receive, send)
            else:
                context.status = response.status_code
                self._add_headers(scope, context, response.raw_headers)
                await response(scope, receive, send)
        finally:
            if context.lease is not None:
                context.lease.release()
            traffic.in_flight -= 1
            traffic.count(scope["method"], scope.get("route"), context.status, time.monotonic() - began)

    async def _route(self, scope: Scope, context: RequestContext, receive: Receive, send: Send) -> None:
        """Pass a request to the router, which finds its route or refuses it."""

        def send_with_headers(message: Message) -> Awaitable[None]:
            if message["type"] == "http.response.start":
                context.status = message["status"]
                self._add_headers(scope, context, message["headers"])
            return send(message)

        await self._app(scope, receive, send_with_headers)

    def _add_headers(self, scope: Scope, context: RequestContext, headers: Headers) -> None:
        """Add the headers that depend on the credential, and those of every response."""
        headers.append((b"x-request-id", context.request_id.encode()))
        headers.append(NOSNIFF)
        needs_token = scope["path"] not in self._open_paths and scope["method"] != "OPTIONS"  # a preflight has none
        access = context.access
        if needs_token:
            headers.append(_VARY)
        if (needs_token or access is not None) and b"cache-control" not in dict(headers):
            headers.append(_PRIVATE)
        if access is not None and (ends_at := access.identity.ends_at) - time.time() <= _ANNOUNCED_S:
            headers.append(_expiry(ends_at))
        if self._cors is not None:
            headers += self._cors.headers(context.headers.get(b"origin"))
        if self._readiness.stopping:
            headers.append((b"connection", b"close"))

    def _early_response(self, scope: Scope, context: RequestContext) -> Response | None:
        """Authenticate a request. Return None to pass it on, or the response if it must not reach a route."""
        if self._cors is not None:
            preflight = self._cors.preflight(scope["method"], context.headers)
            if preflight is not None:
                return PreparedResponse(b"", preflight[1], status=preflight[0])
        try:
            if len(context.headers) < len(scope["headers"]):
                self._check_repeated(scope)
            self._admit(scope, context)
        except ConfplaneError as error:
            return problems.respond(Request(scope), error)
        return None

    def _check_repeated(self, scope: Scope) -> None:
        """Refuse a second Authorization header, and a second user to act for, instead of choosing one of two.

        Raises:
            InvalidRequestError: A header appears twice.
        """
        names = [name for name, _ in scope["headers"]]
        if names.count(_AUTHORIZATION) > 1:
            self._unauthenticated(scope, "repeated")
            raise InvalidRequestError(
                "The header Authorization is given more than once; send one token", pointer="Authorization"
            )
        if names.count(_BEHALF_OF) > 1:
            raise InvalidRequestError(
                f"The header {BEHALF_OF} is given more than once; send one user", pointer=BEHALF_OF
            )

    def _admit(self, scope: Scope, context: RequestContext) -> None:
        """Set the caller and the cluster of a request. Refuse requests that must not reach a route."""
        path: str = scope["path"].removeprefix(scope.get("root_path", ""))
        cluster = None
        if path.startswith(_CLUSTERS):
            cluster = self._clusters.find(path[len(_CLUSTERS) :].partition("/")[0].partition(":")[0])
        is_open = scope["path"] in self._open_paths
        presents = _AUTHORIZATION in context.headers or CERTIFICATE in scope
        if not is_open or presents:
            try:
                credentials = Credentials(
                    context.headers.get(_AUTHORIZATION), scope.get(CERTIFICATE), context.headers.get(_BEHALF_OF)
                )
                access = context.access = self._authenticator.authenticate(
                    credentials, None if cluster is None else cluster.name, _source(scope), context.request_id
                )
                if self._events is not None and access.identity.is_admin:
                    self._events.admitted_admin(access.source, access.request_id)
                if self._limiter is not None:
                    context.allowance = self._limiter.of(access.identity)
            except UnauthenticatedError:
                if not is_open:  # on open paths the access only adds details to the response
                    self._unauthenticated(scope, "invalid" if presents else "missing")
                    raise
            except ConfplaneError:
                if not is_open:
                    scope[CLUSTER] = cluster
                    raise
        scope[CLUSTER] = cluster
        if b"%2" in (scope.get("raw_path") or b""):
            _check_path(scope)

    def _unauthenticated(self, scope: Scope, reason: Literal["missing", "invalid", "repeated"]) -> None:
        """Count and record a request that was refused for its credentials."""
        self._traffic.unauthenticated(reason)
        if self._events is not None:
            self._events.unauthenticated(reason, _source(scope), scope[REQUEST_CONTEXT].request_id)


def _source(scope: Scope) -> str:
    """Return the address of the caller."""
    client = scope.get("client")
    return client[0] if client else ""


@lru_cache(maxsize=4096)
def _expiry(ends_at: float) -> tuple[bytes, bytes]:
    """Return the header that announces the expiry of an API token, which is given in Unix seconds."""
    return b"confplane-token-expires", rfc3339(datetime.fromtimestamp(ends_at, UTC)).encode()


def _check_path(scope: Scope) -> None:
    """Refuse an encoded slash: decoded, it would make the path of another operation.

    Raises:
        UnknownRouteError: The path has one before the entity id.
    """
    raw: bytes = scope["raw_path"]
    parts = raw.removeprefix(scope.get("root_path", "").encode()).split(b"/", _PARTS)[:_PARTS]
    if any(b"%2f" in part.lower() for part in parts):
        raise UnknownRouteError(
            f"There is no operation at {raw[:200].decode('latin-1')!a}: before the entity id, %2F is not a "
            "separator or part of a name. /openapi.json lists all operations."
        )
