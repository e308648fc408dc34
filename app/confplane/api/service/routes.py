"""The service itself: liveness, readiness, clusters, and the caller."""

from typing import Any, Final

from starlette.requests import Request
from starlette.responses import Response

import confplane
from confplane.api import resource
from confplane.api.dependencies import CallDep, Consistency, ServiceCallDep
from confplane.api.kraft import target_data
from confplane.api.request_context import REQUEST_CONTEXT
from confplane.api.responses import PreparedResponse, encoded, json_response, page_response
from confplane.api.routing.operations import ResponseSpec, read
from confplane.api.routing.routes import Routes
from confplane.api.service import models
from confplane.api.services import ClustersDep, MetricsDep, ObservedTopicsDep, ReadinessDep, RecordersDep, ResourceDep
from confplane.domain.access.identities import narrowing_view
from confplane.domain.access.operations import Operation, ResourceType
from confplane.domain.errors import NotFoundError
from confplane.domain.texts import rfc3339
from confplane.services.access import Access
from confplane.services.access_admin.views import grant_content_view
from confplane.services.clusters import Cluster
from confplane.services.limits import LimitClass
from confplane.services.ports.recording import Watermark
from confplane.services.ports.store import StoreStatus
from confplane.services.upkeep.readiness import ReadinessState

routes = Routes(tag="service")

_OPENMETRICS: Final = "application/openmetrics-text"


@routes.get("/livez", read("Is the process alive", models.Liveness, limit=None, is_open=True))
async def livez(request: Request) -> Response:
    """200 as long as the process makes progress, in any state of its stores."""
    return json_response(request, {"status": "alive", "version": confplane.__version__})


@routes.get(
    "/readyz",
    read(
        "Readiness of the process",
        {200: models.ReadinessReport, 503: ResponseSpec(models.ReadinessReport, "Still starting, or about to stop")},
        limit=None,
        is_open=True,
    ),
)
async def readyz(request: Request, readiness: ReadinessDep) -> Response:
    """503 until every cluster's mirror was loaded and Postgres has answered; `degraded` when any of them is away.

    503 again, with `stopping`, once the process is stopping: it still serves for a while. Only callers who may describe
    a whole cluster see its names of entities, topics, znodes and people; any other token is ignored, so that no probe
    fails.
    """
    report = await readiness.report()
    access = request.scope[REQUEST_CONTEXT].access
    named = _names(access, None)
    body = {
        "status": _word(report),
        "clusters": {name: _status(found, named=_names(access, name)) for name, found in report.clusters.items()},
        "postgres": report.postgres or "ok",
        "warnings": [notice.text(named=named) for notice in report.warnings],
    }
    headers = {"Vary": "Authorization"} | ({} if report.ready else {"Retry-After": "1"})
    return json_response(request, body, status=200 if report.ready else 503, headers=headers)


@routes.get(
    "/metrics",
    read(
        "The metrics of the process, for Prometheus",
        {
            200: ResponseSpec.text(
                f"Prometheus' text format, or OpenMetrics by `Accept: {_OPENMETRICS}`", "text/plain", _OPENMETRICS
            )
        },
        limit=None,
        is_open=True,
    ),
)
async def metrics(request: Request, renderer: MetricsDep) -> Response:
    """Counts of this process, and the states of its sessions and mirrors (docs/operations.md), a second old at most.

    No store is queried.
    """
    accepted = {each.partition(";")[0].strip().lower() for each in request.headers.get("accept", "").split(",")}
    body, media_type = renderer.render(openmetrics=_OPENMETRICS in accepted)
    return PreparedResponse(body, encoded({"content-type": media_type}))


@routes.get(
    resource.PATH,
    read(
        "The issuers of access tokens for this service (RFC 9728)",
        models.ResourceMetadata,
        limit=None,
        problems=(404,),
        is_open=True,
    ),
)
async def protected_resource(request: Request, described: ResourceDep) -> Response:
    """The place at which a client without a token learns who gives one; 404 where `http.public_url` is not set."""
    if described is None:
        raise NotFoundError(
            "This service does not describe itself to clients: the setting http.public_url is missing. Its tokens are"
            " sent as Authorization: Bearer <token>"
        )
    return json_response(request, described.metadata())


@routes.get(
    "/v1/whoami",
    read("The principal of the token that is used", models.WhoAmI, limit=LimitClass.READ),
)
async def whoami(call: ServiceCallDep) -> Response:
    """The principal in Kafka's form, its groups, the limits of its credential, and the grants that count for it."""
    identity = call.access.identity
    body = {
        "principal": identity.principal,
        "authenticatedBy": identity.kind.value,
        "onBehalfOf": identity.acts_for,
        "groups": sorted(identity.groups),
        "owner": identity.owner,
        "tokenId": None if identity.token_id is None else str(identity.token_id),
        "expiresAt": None if identity.expires_at is None else rfc3339(identity.expires_at),
        "narrowing": narrowing_view(identity.narrowing),
        "grants": [{"id": str(grant.id), **grant_content_view(grant)} for grant in call.access.rights.grants],
    }
    return json_response(call.request, body)


@routes.get(
    "/v1/clusters",
    read("The clusters that this service serves", models.ClusterList, limit=LimitClass.READ),
)
async def list_clusters(call: ServiceCallDep, clusters: ClustersDep) -> Response:
    """All clusters, ordered by name. The state of a cluster needs DESCRIBE_CONFIGS on anything in it."""
    items = [_cluster(call.access, cluster) for cluster in clusters]
    return page_response(call.request, items, None)


@routes.get(
    "/v1/clusters/{cluster}",
    read("One cluster", models.ClusterDetails, limit=LimitClass.READ),
    checks=[Consistency],
)
async def get_cluster(call: CallDep, recorders: RecordersDep, observed_topics: ObservedTopicsDep) -> Response:
    """The state of one cluster as this process sees it, the span of its trail with external changes, and its target.

    The target of a Kafka cluster without ZooKeeper says how fresh each part is, by the leader's report.

    All but the name needs DESCRIBE_CONFIGS on anything in the cluster.
    """
    shown = _cluster(call.access, call.cluster)
    if not _describes_some(call.access, call.cluster.name):
        return json_response(call.request, shown)
    recorder = recorders.get(call.cluster.name)
    recorded = _recorded(None if recorder is None else recorder.watermark)
    named = _names(call.access, call.cluster.name)
    target = await target_data(call.cluster.store, observed_topics, named=named)
    return json_response(call.request, {**shown, "recorded": recorded, "target": target})


def _cluster(access: Access, cluster: Cluster) -> dict[str, Any]:
    """Return the name of a cluster, with its state if the caller may describe anything in it."""
    if not _describes_some(access, cluster.name):
        return {"name": cluster.name}
    return {"name": cluster.name, **_status(cluster.store.status(), named=_names(access, cluster.name))}


def _describes_some(access: Access, cluster: str) -> bool:
    return bool(access.allowed(cluster, Operation.DESCRIBE_CONFIGS))


def _word(report: ReadinessState) -> str:
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
        "sinceAt": None if watermark.since_at is None else rfc3339(watermark.since_at),
        "until": str(watermark.revision),
    }


def _names(access: Access | None, cluster: str | None) -> bool:
    """Return True if a caller may see the names in warnings about a cluster (None: about the service)."""
    return access is not None and access.allows(cluster, Operation.DESCRIBE_CONFIGS, ResourceType.CLUSTER)


def _status(status: StoreStatus, *, named: bool) -> dict[str, Any]:
    return {
        "connected": status.connected,
        "session": status.session.value,
        "sessionMs": status.session_ms,
        "loaded": status.loaded,
        "mirror": status.mirror.value,
        "load": None
        if status.load is None
        else {"read": status.load.read, "listed": status.load.listed, "ms": status.load.ms},
        "revision": str(status.revision),
        "staleMs": status.stale_ms,
        "brokersRegistered": status.brokers_registered,
        "notifications": status.notifications,
        "frozen": None if status.frozen is None else status.frozen.text(named=named),
        "warnings": [notice.text(named=named) for notice in status.warnings],
    }
