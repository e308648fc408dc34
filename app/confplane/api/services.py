"""The services of the application as FastAPI dependencies: a handler takes those that it declares, and no others."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Annotated, Any, Generic, TypeVar

from fastapi import Depends
from starlette.requests import Request

from confplane.api.rendering import EffectiveValueRenderer, EntryRenderer
from confplane.api.resource import ProtectedResource
from confplane.services.access_admin.services import AccessServices
from confplane.services.changes.alter import AlterService
from confplane.services.changes.freeze import FreezeService
from confplane.services.changes.idempotency import IdempotencyService
from confplane.services.clusters import ClusterRegistry
from confplane.services.feed.hub import FeedHub
from confplane.services.metrics import MetricsRenderer
from confplane.services.plans.apply import ApplyService
from confplane.services.plans.plan import PlanService
from confplane.services.ports.applied import AppliedReports
from confplane.services.ports.observed_topics import ObservedTopics
from confplane.services.ports.refusals import RefusedAttempts
from confplane.services.ports.registrations import RegistrationLog
from confplane.services.ports.rollups import RollupResults
from confplane.services.ports.trail import AuditLog
from confplane.services.reads.describe import DescribeService
from confplane.services.reads.history import HistoryService
from confplane.services.reads.owners import OwnerViews
from confplane.services.recorder.record import Recorder
from confplane.services.requests.service import ChangeRequestService
from confplane.services.response_budget import ResponseBudget
from confplane.services.reverts.service import RevertService
from confplane.services.schedules.service import ScheduleService
from confplane.services.upkeep.readiness import Readiness
from confplane.services.webhooks.subscriptions import WebhookService

T = TypeVar("T")


class ServiceDependency(Generic[T]):
    """A dependency on a service of the application that handles the request."""

    def __call__(self, request: Request) -> T:
        """Return the service."""
        found: T = request.app.services[self]
        return found

    def entry(self, service: T) -> "tuple[ServiceDependency[Any], Any]":
        """Return the entry for a service in the application's services by their dependencies."""
        return self, service


@dataclass(frozen=True, slots=True)
class ResourceReads:
    """The services of the reads of resources: now, in the past, and with their owners."""

    describe: DescribeService
    history: HistoryService
    owners: OwnerViews


ACCESS_ADMIN = ServiceDependency[AccessServices]()
ALTER = ServiceDependency[AlterService]()
APPLIED = ServiceDependency[AppliedReports]()
APPLIES = ServiceDependency[ApplyService]()
AUDIT = ServiceDependency[AuditLog]()
CHANGE_REQUESTS = ServiceDependency[ChangeRequestService]()
CLUSTERS = ServiceDependency[ClusterRegistry]()
DESCRIBE = ServiceDependency[DescribeService]()
EFFECTIVE_VALUES = ServiceDependency[EffectiveValueRenderer]()
ENTRY_RENDERER = ServiceDependency[EntryRenderer]()
FEEDS = ServiceDependency[FeedHub]()
FREEZES = ServiceDependency[FreezeService]()
HISTORY = ServiceDependency[HistoryService]()
IDEMPOTENCY = ServiceDependency[IdempotencyService]()
METRICS = ServiceDependency[MetricsRenderer]()
OBSERVED_TOPICS = ServiceDependency[ObservedTopics]()
PLANS = ServiceDependency[PlanService]()
READINESS = ServiceDependency[Readiness]()
RECORDERS = ServiceDependency[Mapping[str, Recorder]]()
"""The recorders by cluster, for clusters whose settings enable them."""
REFUSALS = ServiceDependency[RefusedAttempts]()
REGISTRATIONS = ServiceDependency[RegistrationLog]()
RESOURCE = ServiceDependency[ProtectedResource | None]()
"""The OAuth description of this service for clients without a token. None without a public URL."""
RESOURCE_READS = ServiceDependency[ResourceReads]()
RESPONSE_BUDGET = ServiceDependency[ResponseBudget]()
REVERTS = ServiceDependency[RevertService]()
ROLLUPS = ServiceDependency[RollupResults]()
SCHEDULES = ServiceDependency[ScheduleService]()
WEBHOOKS = ServiceDependency[WebhookService]()

AccessAdminDep = Annotated[AccessServices, Depends(ACCESS_ADMIN)]
AlterDep = Annotated[AlterService, Depends(ALTER)]
AppliedDep = Annotated[AppliedReports, Depends(APPLIED)]
AppliesDep = Annotated[ApplyService, Depends(APPLIES)]
AuditDep = Annotated[AuditLog, Depends(AUDIT)]
ChangeRequestsDep = Annotated[ChangeRequestService, Depends(CHANGE_REQUESTS)]
ClustersDep = Annotated[ClusterRegistry, Depends(CLUSTERS)]
DescribeDep = Annotated[DescribeService, Depends(DESCRIBE)]
EffectiveValuesDep = Annotated[EffectiveValueRenderer, Depends(EFFECTIVE_VALUES)]
EntryRendererDep = Annotated[EntryRenderer, Depends(ENTRY_RENDERER)]
FeedsDep = Annotated[FeedHub, Depends(FEEDS)]
FreezesDep = Annotated[FreezeService, Depends(FREEZES)]
HistoryDep = Annotated[HistoryService, Depends(HISTORY)]
MetricsDep = Annotated[MetricsRenderer, Depends(METRICS)]
ObservedTopicsDep = Annotated[ObservedTopics, Depends(OBSERVED_TOPICS)]
PlansDep = Annotated[PlanService, Depends(PLANS)]
ReadinessDep = Annotated[Readiness, Depends(READINESS)]
RecordersDep = Annotated[Mapping[str, Recorder], Depends(RECORDERS)]
RefusalsDep = Annotated[RefusedAttempts, Depends(REFUSALS)]
RegistrationsDep = Annotated[RegistrationLog, Depends(REGISTRATIONS)]
ResourceDep = Annotated[ProtectedResource | None, Depends(RESOURCE)]
ResourceReadsDep = Annotated[ResourceReads, Depends(RESOURCE_READS)]
RevertsDep = Annotated[RevertService, Depends(REVERTS)]
RollupsDep = Annotated[RollupResults, Depends(ROLLUPS)]
SchedulesDep = Annotated[ScheduleService, Depends(SCHEDULES)]
WebhooksDep = Annotated[WebhookService, Depends(WEBHOOKS)]


def missing(services: Mapping[ServiceDependency[Any], Any]) -> list[str]:
    """Return the names of the dependencies of this module without a service."""
    return [name for name, each in globals().items() if isinstance(each, ServiceDependency) and each not in services]
