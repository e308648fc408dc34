"""What a handler needs to know of its request: the service's parts, the cluster, the caller, the common parameters."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Annotated, Any, Literal, Protocol

from fastapi import Depends, Header, Path, Query
from starlette.requests import Request

from app.api import edge
from app.api.entries import Entries
from app.domain.errors import InvalidRequestError
from app.security.principals import Principal
from app.services.changes.alter import AlterService
from app.services.changes.callers import Caller
from app.services.changes.idempotency import IdempotencyService
from app.services.clusters import Cluster, Clusters
from app.services.ports.registrations import RegistrationLog
from app.services.ports.rollups import RollupResults
from app.services.ports.trail import AuditLog
from app.services.reads.describe import DescribeService
from app.services.recorder.record import Recorder
from app.services.upkeep.readiness import Readiness

MAX_REASON = 1024
_REVISION_DIGITS = 19


class Metrics(Protocol):
    """The metrics of this process, in a form that is scraped."""

    def render(self, *, openmetrics: bool) -> tuple[bytes, str]:
        """Return them and their content type, in OpenMetrics or in Prometheus' text format."""


@dataclass(frozen=True, slots=True)
class Services:
    """Everything that the API stands on; built by the wiring, kept in ``app.state.services``."""

    clusters: Clusters
    alter: AlterService
    idempotency: IdempotencyService
    describe: DescribeService
    entries: Entries
    audit: AuditLog
    registrations: RegistrationLog
    rollups: RollupResults
    readiness: Readiness
    metrics: Metrics
    recorders: Mapping[str, Recorder]
    """By cluster; of those whose settings ask for it."""


def services_of(request: Request) -> Services:
    """Return the services of the application that handles a request."""
    found: Services = request.app.state.services
    return found


async def _services(request: Request) -> Services:
    return services_of(request)


async def _cluster(
    request: Request,
    cluster: Annotated[
        str, Path(description="As /v1/clusters lists it", openapi_examples={"embedded": {"value": "default"}})
    ],
) -> Cluster:
    del cluster  # declared for the specification; polled reads have no dependencies and look it up in the same way
    return cluster_of(request)


def cluster_of(request: Request) -> Cluster:
    """Return the cluster that the path names.

    Raises:
        NotFoundError: No such cluster.
    """
    return services_of(request).clusters.get(request.path_params["cluster"])


@dataclass(frozen=True, slots=True)
class Common:
    """Parameters that every verb takes."""

    caller: Caller
    validate_only: bool
    view: Literal["default", "full"]


async def _common(
    request: Request,
    *,
    validate_only: Annotated[
        bool, Query(alias="validateOnly", description="Go the whole way up to the write, and write nothing")
    ] = False,
    reason: Annotated[str | None, Query(max_length=MAX_REASON, description="Why; kept in the audit trail")] = None,
    ticket: Annotated[str | None, Query(max_length=MAX_REASON, description="A ticket's id; kept in the trail")] = None,
    view: Annotated[
        Literal["default", "full"], Query(description="full adds entity and status to a resource")
    ] = "default",
    reason_header: Annotated[
        str | None, Header(alias="Confplane-Reason", max_length=MAX_REASON, description="As reason")
    ] = None,
) -> Common:
    for name, text in (("reason", reason), ("ticket", ticket), ("Confplane-Reason", reason_header)):
        if text is not None and "\0" in text:
            raise InvalidRequestError(f"{name} holds a NUL character", pointer=name)
    return Common(caller_of(request, reason=reason or reason_header, ticket=ticket), validate_only, view)


def caller_of(request: Request, *, reason: str | None = None, ticket: str | None = None) -> Caller:
    """Return who is calling."""
    principal: Principal = request.scope[edge.PRINCIPAL]
    client = request.client
    return Caller(
        principal=principal.name,
        source=client.host if client else "",
        request_id=request.scope[edge.REQUEST_ID],
        deadline=request.scope[edge.DEADLINE],
        reason=reason,
        ticket=ticket,
    )


async def _fresh(
    request: Request,
    consistency: Annotated[
        Literal["mirror", "strong"],
        Query(description="strong: behind every write committed before the request, for one round trip to ZooKeeper"),
    ] = "mirror",
    min_revision: Annotated[
        str | None,
        Header(alias="Confplane-Min-Revision", description="Wait until the answer is at least at this revision"),
    ] = None,
) -> None:
    await make_fresh(request, consistency=consistency, min_revision=min_revision)


async def make_fresh(request: Request, *, consistency: str, min_revision: str | None) -> None:
    """Wait for the consistency that a read asks for; most ask for none and wait for nothing.

    Raises:
        UnavailableError: It was not reached by the request's deadline.
        InvalidRequestError: The revision is not a decimal number.
    """
    store = cluster_of(request).store
    if min_revision is not None:
        if not (min_revision.isascii() and min_revision.isdigit() and len(min_revision) <= _REVISION_DIGITS):
            raise InvalidRequestError(
                "Confplane-Min-Revision is not a revision: a decimal number as Confplane-Revision gives it",
                pointer="Confplane-Min-Revision",
            )
        await store.wait_for(int(min_revision), request.scope[edge.DEADLINE])
    if consistency == "strong":
        await store.catch_up(request.scope[edge.DEADLINE])


ServicesDep = Annotated[Services, Depends(_services)]
ClusterDep = Annotated[Cluster, Depends(_cluster)]
CommonDep = Annotated[Common, Depends(_common)]
Fresh: Any = Depends(_fresh)
