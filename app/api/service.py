"""The service itself: liveness, readiness, clusters, and who is asking."""

from typing import Any, Final

from fastapi import APIRouter
from starlette.requests import Request
from starlette.responses import Response

import app
from app.api import edge, schemas, views
from app.api.context import ClusterDep, Fresh, ServicesDep, ViewDep
from app.api.docs import problems_of
from app.api.responses import PreparedResponse, json_response
from app.api.routes import StrictRoute
from app.domain.errors import UnauthenticatedError
from app.security.principals import Authenticator
from app.services.ports.store import StoreStatus
from app.services.recorder.recorded import Watermark
from app.services.upkeep.readiness import Report

router = APIRouter(tags=["service"], route_class=StrictRoute)

AUTHENTICATOR: Final = "authenticator"
"""Attribute of ``app.state`` with what knows tokens, for operations that are open and tell more to those with one."""
_OPENMETRICS: Final = "application/openmetrics-text"


@router.get(
    "/livez",
    operation_id="livez",
    summary="Is the process alive",
    response_model=schemas.Liveness,
    responses=problems_of(400),
)
async def livez(request: Request) -> Response:
    """200 as long as the process makes progress, whatever its stores do."""
    return json_response(request, {"status": "alive", "version": app.__version__})


@router.get(
    "/readyz",
    operation_id="readyz",
    summary="Can the process do its work",
    response_model=schemas.ReadinessReport,
    responses={
        503: {"model": schemas.ReadinessReport, "description": "Still starting, or about to stop"},
        **problems_of(400),
    },
)
async def readyz(request: Request, services: ServicesDep) -> Response:
    """503 until every cluster's mirror was loaded and Postgres has answered; `degraded` when one of them is away.

    503 again, with `stopping`, once the process was told to stop: it serves for a while yet. Names of entities, topics,
    znodes and people are told to those alone who send a valid token; any other is passed over, so that no probe fails.
    """
    report = await services.readiness.report()
    named = _has_token(request)
    body = {
        "status": _word(report),
        "clusters": {name: _status(found, named=named) for name, found in report.clusters.items()},
        "postgres": report.postgres or "ok",
        "warnings": [notice.text(named=named) for notice in report.warnings],
    }
    headers = None if report.ready else {"Retry-After": "1"}
    return json_response(request, body, status=200 if report.ready else 503, headers=headers)


@router.get(
    edge.METRICS,
    operation_id="metrics",
    summary="The metrics of the process, for Prometheus",
    response_class=Response,
    responses={
        200: {
            "content": {
                "text/plain": {"schema": {"type": "string"}},
                _OPENMETRICS: {"schema": {"type": "string"}},
            },
            "description": f"Prometheus' text format, or OpenMetrics by `Accept: {_OPENMETRICS}`",
        },
        **problems_of(400),
    },
)
async def metrics(request: Request, services: ServicesDep) -> Response:
    """Counts of this process, and the states of its sessions and mirrors (docs/operations.md), a second old at most.

    No store is asked for anything.
    """
    accepted = {each.partition(";")[0].strip().lower() for each in request.headers.get("accept", "").split(",")}
    body, media_type = services.metrics.render(openmetrics=_OPENMETRICS in accepted)
    return PreparedResponse(body, {"content-type": media_type})


@router.get(
    "/v1/whoami",
    operation_id="whoami",
    summary="The principal of the token that is used",
    response_model=schemas.WhoAmI,
    responses=problems_of(400),
)
async def whoami(request: Request, _: ViewDep) -> Response:
    """Kafka's form of a principal."""
    principal = request.scope[edge.PRINCIPAL]
    return json_response(request, {"principal": principal.name, "authenticatedBy": principal.kind})


@router.get(
    "/v1/clusters",
    operation_id="listClusters",
    summary="The clusters that this service serves",
    response_model=schemas.ClusterList,
    responses=problems_of(400),
)
async def clusters(request: Request, services: ServicesDep, _: ViewDep) -> Response:
    """Ordered by name."""
    items = [{"name": cluster.name, **_status(cluster.store.status())} for cluster in services.clusters]
    return json_response(request, {"items": items, "nextPageToken": None})


@router.get(
    "/v1/clusters/{cluster}",
    operation_id="getCluster",
    summary="One cluster",
    response_model=schemas.ClusterDetails,
    dependencies=[Fresh],
    responses=problems_of(400, 404, 503),
)
async def get_cluster(request: Request, services: ServicesDep, cluster: ClusterDep, _: ViewDep) -> Response:
    """Its state as this process sees it, and what its trail has of others' writes."""
    recorder = services.recorders.get(cluster.name)
    recorded = _recorded(None if recorder is None else recorder.watermark)
    return json_response(request, {"name": cluster.name, **_status(cluster.store.status()), "recorded": recorded})


def _word(report: Report) -> str:
    if report.stopping:
        return "stopping"
    if not report.ready:
        return "starting"
    return "degraded" if report.degraded else "ready"


def _recorded(watermark: Watermark | None) -> dict[str, Any] | None:
    if watermark is None:
        return None
    return {
        "since": None if watermark.since is None else str(watermark.since),
        "sinceAt": None if watermark.since_at is None else views.rfc3339(watermark.since_at),
        "until": str(watermark.revision),
    }


def _has_token(request: Request) -> bool:
    """Say whether a request that needs no token has a valid one."""
    given = request.scope[edge.HEADERS].get(b"authorization")
    if given is None:
        return False
    authenticator: Authenticator = getattr(request.app.state, AUTHENTICATOR)
    try:
        authenticator.authenticate(given)
    except UnauthenticatedError:
        return False
    return True


def _status(status: StoreStatus, *, named: bool = True) -> dict[str, Any]:
    return {
        "connected": status.connected,
        "session": status.session.value,
        "sessionMs": status.session_ms,
        "loaded": status.loaded,
        "mirror": status.mirror.value,
        "revision": str(status.revision),
        "staleMs": status.stale_ms,
        "brokersRegistered": status.brokers_registered,
        "notifications": status.notifications,
        "frozen": None if status.frozen is None else status.frozen.text(named=named),
        "warnings": [notice.text(named=named) for notice in status.warnings],
    }
