"""The dependencies of handlers on the request: the cluster, the caller, and the common parameters."""

import asyncio
import time
from collections.abc import Coroutine
from contextlib import nullcontext
from dataclasses import dataclass
from typing import Annotated, Any, Literal, TypeVar

from fastapi import Depends, Header, Path, Query
from starlette.requests import Request

from confplane.api import formats
from confplane.api.request_context import REQUEST_CONTEXT, RequestContext
from confplane.api.responses import CLUSTER
from confplane.api.services import CLUSTERS
from confplane.domain.errors import InvalidRequestError
from confplane.domain.facets import FacetName
from confplane.services.access import Access
from confplane.services.changes.callers import Caller, RuleBypass
from confplane.services.changes.idempotency import RequestRun
from confplane.services.cluster_facet import ClusterFacet
from confplane.services.clusters import Cluster
from confplane.services.limits import Allowance, LimitClass
from confplane.services.ports.store import ClusterStore

T = TypeVar("T")

EMBEDDED = "embedded"
"""The name of an example that the specification shows as the only one."""
MAX_REASON = 1024
_REVISION_DIGITS = 19
_STRONG = "confplane.strong"
"""Scope key that marks a read with strong consistency."""
REVERT_AT = "confplane.revert-at"
"""Scope key of the time at which the changes of a request end."""
BREAK_GLASS = "confplane.break-glass"
"""Scope key of the reason for which a request writes past the rules."""
_RECHECK_S = 0.5
"""Seconds between two checks of the credential of a waiting request."""


_Cluster = Annotated[
    str,
    Path(
        alias="cluster",
        description="As /v1/clusters lists it",
        json_schema_extra={"pattern": formats.CLUSTER},
        openapi_examples={EMBEDDED: {"value": "default"}},
    ),
]
_View = Annotated[Literal["default", "full"], Query(description="full adds entity and status to a resource")]
_ValidateOnly = Annotated[
    bool,
    Query(
        alias="validateOnly",
        description="Check everything, and write nothing. Accepted for every method; no effect on reads",
    ),
]
_Reason = Annotated[
    str | None,
    Query(
        max_length=MAX_REASON, description="Why; kept in the audit trail. Taken on every verb, without effect on reads"
    ),
]
_ReasonHeader = Annotated[
    str | None,
    Header(
        alias="Confplane-Reason",
        max_length=MAX_REASON,
        description="The same as the query parameter `reason`, which takes precedence",
    ),
]
_Ticket = Annotated[
    str | None,
    Query(
        max_length=MAX_REASON,
        description="A ticket's id; kept in the audit trail. Taken on every verb, without effect on reads",
    ),
]
_WaitApplied = Annotated[
    str | None,
    Header(
        alias=formats.WAIT_APPLIED,
        description="For a Kafka 4 cluster to which changes are applied: the maximum wait in ms, up to 60000 and the"
        " request's deadline. A write waits until each entity of its response is applied or refused, and"
        " reports it in `applied`; its status does not change. A read waits until no change that it shows"
        " is pending",
        json_schema_extra={"pattern": formats.WAIT_MS},
    ),
]


@dataclass(slots=True)
class ServiceCall:
    """A request to the service itself, with the parameters of every verb."""

    request: Request
    validate_only: bool
    reason: str | None
    ticket: str | None

    @property
    def access(self) -> Access:
        """The access of the request."""
        access: Access = self.request.scope[REQUEST_CONTEXT].access
        return access

    @property
    def caller(self) -> Caller:
        """The caller, in the form that changes store."""
        return Caller(self.access, self.request.scope[REQUEST_CONTEXT].deadline, self.reason, self.ticket)

    def charge(self, kind: LimitClass, units: int) -> None:
        """Charge the caller's limit for work beyond the request itself: entries of an alter, items of a response."""
        allowance: Allowance | None = self.request.scope[REQUEST_CONTEXT].allowance
        if allowance is not None:
            allowance.charge(kind, units)


@dataclass(slots=True)
class Call(ServiceCall):
    """A request to a cluster, with the parameters of every verb."""

    cluster: Cluster
    view: Literal["default", "full"]
    wait_applied_s: float | None = None
    """Seconds to wait until a write is applied. None if the request does not ask for it."""
    run: RequestRun | None = None
    """The run of a request with an Idempotency-Key."""
    bypass: RuleBypass | None = None
    """Opens the change request of a write past the rules."""
    observed_at: int | None = None
    """Time of this request's own refresh of an observed Kafka cluster, in milliseconds since the epoch."""

    @property
    def caller(self) -> Caller:
        """The caller, in the form that changes store."""
        context: RequestContext = self.request.scope[REQUEST_CONTEXT]
        scope = self.request.scope
        terms = self.reason, self.ticket, self.run, context.refused, scope.get(REVERT_AT)
        glass = scope.get(BREAK_GLASS)
        return Caller(self.access, context.deadline, *terms, break_glass=glass, bypass=self.bypass)

    def take(self, kind: LimitClass) -> None:
        """Count the request against one more class of limits, in addition to that of its operation.

        Raises:
            LimitExceededError: The caller's limit is used up.
        """
        allowance: Allowance | None = self.request.scope[REQUEST_CONTEXT].allowance
        if allowance is not None:
            allowance.take(kind)

    def throttle_ms(self, kind: LimitClass) -> int:
        """Return the milliseconds that the caller should wait before the next request of a class."""
        allowance: Allowance | None = self.request.scope[REQUEST_CONTEXT].allowance
        return 0 if allowance is None else allowance.throttle_ms(kind)

    @property
    def strong(self) -> bool:
        """True if the read asks for strong consistency."""
        return _STRONG in self.request.scope

    def cluster_facet(self, name: FacetName) -> ClusterFacet:
        """Return a facet of the cluster, limited to the entities that the caller may read."""
        return self.cluster.facets[name].visible_to(self.request.scope[REQUEST_CONTEXT].access)


def _cluster_of(request: Request, name: str) -> Cluster:
    found: Cluster | None = request.scope.get(CLUSTER)
    # The middleware takes the cluster from the beginning of any path. Here the whole name must match.
    return found if found is not None and found.name == name else CLUSTERS(request).get(name)


def _call(
    request: Request,
    name: _Cluster,
    *,
    validate_only: _ValidateOnly = False,
    reason: _Reason = None,
    ticket: _Ticket = None,
    view: _View = "default",
    reason_header: _ReasonHeader = None,
    wait_applied: _WaitApplied = None,
) -> Call:
    cluster = _cluster_of(request, name)
    waited = None if wait_applied is None else formats.parse_wait_applied(wait_applied)
    return Call(request, validate_only, reason or reason_header, ticket, cluster, view, waited)


def _service_call(
    request: Request,
    *,
    validate_only: _ValidateOnly = False,
    reason: _Reason = None,
    ticket: _Ticket = None,
    view: _View = "default",
    reason_header: _ReasonHeader = None,
) -> ServiceCall:
    del view
    return ServiceCall(request, validate_only, reason or reason_header, ticket)


async def _await_consistency(
    request: Request,
    consistency: Annotated[
        Literal["mirror", "strong"],
        Query(
            description="strong: includes every write that was committed before the request, at the cost of one round"
            " trip to ZooKeeper. Quotas and configs of an observed Kafka cluster are first read from the"
            " cluster"
        ),
    ] = "mirror",
    min_revision: Annotated[
        str | None,
        Header(
            alias="Confplane-Min-Revision",
            description="Wait until the answer is at least at this revision",
            json_schema_extra={"pattern": formats.REVISION},
        ),
    ] = None,
    wait_applied: _WaitApplied = None,
) -> None:
    """Wait for the consistency that a read asks for. Most reads ask for none and do not wait.

    Raises:
        UnavailableError: The mirror did not reach the revision by the request's deadline.
        InvalidRequestError: The revision is not a decimal number, or the wait is not a number of milliseconds.
        LimitExceededError: Too many requests of the caller are waiting.
        UnauthenticatedError: The caller's token was revoked during the wait.
    """
    if min_revision is None and wait_applied is None and consistency == "mirror":
        return
    waited_s = None if wait_applied is None else formats.parse_wait_applied(wait_applied)
    if consistency == "strong":
        request.scope[_STRONG] = True
    cluster = _cluster_of(request, request.path_params["cluster"])
    context: RequestContext = request.scope[REQUEST_CONTEXT]
    allowance = context.allowance
    with nullcontext() if allowance is None else allowance.wait():
        caught_up = _caught_up(cluster.store, context.deadline, min_revision, strong=consistency == "strong")
        await while_valid(request.scope[REQUEST_CONTEXT].access, caught_up)
        waiter = cluster.apply_waiter
        if waited_s is not None and waiter.applies:
            applied = waiter.wait_for_revision(
                cluster.store.journal.latest, min(time.monotonic() + waited_s, context.deadline)
            )
            await while_valid(request.scope[REQUEST_CONTEXT].access, applied)


async def while_valid(access: Access, work: Coroutine[Any, Any, T]) -> T:
    """Wait for work, and cancel it once the caller's credential is no longer valid."""
    task = asyncio.ensure_future(work)
    try:
        while not (await asyncio.wait({task}, timeout=_RECHECK_S))[0]:
            access.check()
    except BaseException:
        task.cancel()
        raise
    return await task


async def _caught_up(store: ClusterStore, deadline: float, min_revision: str | None, *, strong: bool) -> None:
    if min_revision is not None:
        if not (min_revision.isascii() and min_revision.isdigit() and len(min_revision) <= _REVISION_DIGITS):
            raise InvalidRequestError(
                "Confplane-Min-Revision is not a revision: a decimal number as Confplane-Revision gives it",
                pointer="Confplane-Min-Revision",
            )
        await store.wait_for(int(min_revision), deadline)
    if strong:
        await store.catch_up(deadline)


CallDep = Annotated[Call, Depends(_call)]
ServiceCallDep = Annotated[ServiceCall, Depends(_service_call)]
PageSize = Annotated[
    int,
    Query(
        alias="pageSize",
        ge=1,
        le=1000,
        description="Maximum number of items on a page. A page may have fewer items, or none, and still have a"
        " nextPageToken",
    ),
]
PageToken = Annotated[
    str | None,
    Query(
        alias="pageToken",
        description="nextPageToken of the page before",
        json_schema_extra={"pattern": formats.UUID},
    ),
]
"""The cursor of a list ordered by UUIDs; :func:`confplane.api.formats.parse_page_token` reads it."""
OpaquePageToken = Annotated[
    str | None, Query(alias="pageToken", description="nextPageToken of the page before", max_length=8192)
]
"""The cursor of any other list."""
IfNoneMatch = Annotated[
    str | None,
    Header(
        alias="If-None-Match",
        description="Answer 304 when the ETag is one of these",
        json_schema_extra={"pattern": formats.ETAGS},
    ),
]
Consistency: Any = Depends(_await_consistency)
