"""The FastAPI application, put together from its routers."""

from __future__ import annotations

import functools
from typing import TYPE_CHECKING, Any, Final

from fastapi import FastAPI
from fastapi.telemetry import TelemetryConfig

import confplane
from confplane.api import (
    access,
    applied,
    audit,
    client_configs,
    client_quotas,
    definitions,
    docs_page,
    drift,
    entity_configs,
    freezes,
    global_config,
    grants,
    problems,
    registrations,
    reverts,
    rollups,
    schedules,
    tokens,
    webhooks,
)
from confplane.api.change_requests import routes as change_requests
from confplane.api.clients import rpc as clients
from confplane.api.configs import routes as configs
from confplane.api.feed import routes as feed
from confplane.api.manifests import routes as manifests
from confplane.api.middleware import RequestMiddleware
from confplane.api.service import routes as service
from confplane.api.services import CLUSTERS, READINESS, missing
from confplane.api.specification import build

if TYPE_CHECKING:
    from collections.abc import Mapping

    from starlette.types import ASGIApp

    from confplane.api.middleware import MiddlewareOptions
    from confplane.api.request_context import Traffic
    from confplane.api.services import ServiceDependency
    from confplane.security.authenticator import Authenticator
    from confplane.services.access import Access

DESCRIPTION = (
    "Describe and alter the dynamic configuration of Apache Kafka clusters: validated, versioned, notified to every "
    "watcher, audited. Every answer of a cluster carries `Confplane-Revision`; send it back as "
    "`Confplane-Min-Revision` to another replica and its answer will include what you saw. A portal that may act for a "
    "user names that user in `Confplane-On-Behalf-Of: User:<name>`; allowed is what both may. Every error, also of "
    "paths and methods that do not exist (404, 405), is `application/problem+json` with Kafka's error code."
)
_NO_TELEMETRY: Final[TelemetryConfig] = {"tracing": False, "metrics": False, "logs": False, "auto_configure": False}
"""FastAPI's own telemetry sends URLs and texts of errors as they are, and misses the requests that pass by its
middleware (routing/paths.py). Traces are those of tracing.py."""
FAMILIES: Final = (
    applied.routes,
    client_configs.routes,
    client_quotas.routes,
    configs.routes,
    clients.routes,
    entity_configs.routes,
    global_config.routes,
    freezes.routes,
    audit.routes,
    feed.routes,
    webhooks.routes,
    reverts.routes,
    manifests.routes,
    schedules.routes,
    change_requests.routes,
    registrations.routes,
    drift.routes,
    rollups.routes,
    definitions.routes,
    tokens.routes,
    grants.routes,
    access.routes,
    service.routes,
    docs_page.routes,
)
"""The routes of all families, the busiest first, because the router tries them in order."""


def create_api(
    services: Mapping[ServiceDependency[Any], Any],
    *,
    authenticator: Authenticator[Access],
    max_body_bytes: int,
    deadline_ms: int,
    traffic: Traffic,
    options: MiddlewareOptions,
    lifespan: Any = None,
) -> ASGIApp:
    """Build the application.

    Args:
        services: The services that handlers may take, by their dependencies.
        authenticator: Authenticates requests.
        max_body_bytes: Largest request body.
        deadline_ms: Time limit of a request in milliseconds. A request that reaches it is answered with the known
            state.
        traffic: Counts the requests.
        options: Optional parts of the middleware.
        lifespan: Starts and stops the stores.

    Raises:
        ValueError: The services are not complete.
    """
    if absent := missing(services):
        raise ValueError(f"The application has no service for {', '.join(absent)}")
    api = _routed(lifespan)
    api.services = services
    api.max_body_bytes = max_body_bytes
    api.deadline_s = deadline_ms / 1000
    problems.install(api)
    return RequestMiddleware(
        api,
        authenticator=authenticator,
        clusters=services[CLUSTERS],
        deadline_ms=deadline_ms,
        open_paths={route.path for family in FAMILIES for route in family if route.operation.is_open},
        readiness=services[READINESS],
        traffic=traffic,
        options=options,
    )


@functools.cache
def specification() -> dict[str, Any]:
    """Return the OpenAPI specification, made once in a process. It depends on no settings."""
    return _routed(None).openapi()


class _Api(FastAPI):
    """FastAPI's application with the parts that requests need as attributes: ``state`` costs several times as much."""

    services: Mapping[ServiceDependency[Any], Any]
    max_body_bytes: int
    deadline_s: float


def _routed(lifespan: Any) -> _Api:
    api = _Api(
        title="Confplane",
        version=confplane.__version__,
        description=DESCRIPTION,
        lifespan=lifespan,
        openapi_url=None,
        docs_url=None,
        redoc_url=None,
        redirect_slashes=False,
        telemetry=_NO_TELEMETRY,
    )
    # Added as they are: including a FastAPI router would copy each route and match twice.
    api.router.routes += [route for family in FAMILIES for route in family]
    api.openapi = lambda: _openapi(api)  # type: ignore[method-assign]  # FastAPI's documented way to extend it
    return api


def _openapi(api: FastAPI) -> dict[str, Any]:
    if api.openapi_schema is None:
        api.openapi_schema = build(api)
    return api.openapi_schema
