"""Change requests of one process, on a clock of the test, and the people who make and approve them."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any

from confplane.audit import PostgresAccessStore, PostgresChangeRequests, PostgresOwnerships, PostgresTrailHistory
from confplane.domain.facets import FacetName
from confplane.domain.ops import Op, OpType
from confplane.request_wiring import RequestWiring
from confplane.services.changes.callers import Caller
from confplane.services.changes.edits import Edit, Mode
from confplane.services.plans.owners import OwnershipReader
from confplane.services.plans.plan import PlanService
from confplane.services.plans.planned import PlanOptions
from confplane.services.requests.manifests import ProposedManifest
from confplane.services.requests.proposals import RequestTerms
from tests.support.access_world import World as AccessWorld
from tests.support.reverting import reverts_of
from tests.support.stores import soon

if TYPE_CHECKING:
    from confplane.domain.access.identities import Identity
    from confplane.domain.change_requests import RequestState
    from confplane.domain.entities import Entity
    from confplane.services.changes.alter import Entry
    from confplane.services.ports.change_requests import ChangeRequest
    from confplane.services.ports.trail import AuditRecord
    from confplane.wiring import ServiceParts
    from tests.support.replicas import Replica


def plans_of(parts: ServiceParts) -> PlanService:
    """The plans of a process that records the external changes of all of its clusters."""
    trail = PostgresTrailHistory(parts.database)
    return PlanService(
        parts.alter, OwnershipReader(PostgresOwnerships(parts.database), trail, [each.name for each in parts.clusters])
    )


class Requests:
    """The change requests of a replica."""

    def __init__(self, replica: Replica) -> None:
        self.replica = replica
        self.ahead = timedelta()
        self.cluster = replica.parts.clusters.get("default")
        self.access = AccessWorld(PostgresAccessStore(replica.parts.database))
        self.store = PostgresChangeRequests(replica.parts.database)
        wiring = RequestWiring.of(
            replica.parts,
            self.access.control,
            self.access.store,
            self.access.book.refresh_confirmed,
            reverts_of(replica.parts),
            plans_of(replica.parts),
            now=self.now,
        )
        self.service = wiring.service
        self.applies = wiring.applies
        [self.scheduler] = wiring.schedulers

    def now(self) -> datetime:
        return datetime.now(UTC) + self.ahead

    def caller(self, identity: Identity, **more: Any) -> Caller:
        return Caller(self.access.control.access(identity, "127.0.0.1", "request-1"), soon(30), **more)

    def entry(self, entity: Entity, facet: FacetName = FacetName.CLIENT_QUOTAS, **values: Any) -> Entry:
        """The edit of an entity; None removes a key."""
        ops = tuple(
            Op(key, OpType.DELETE) if value is None else Op(key, OpType.SET, value) for key, value in values.items()
        )
        return {self.cluster.facets[facet]: Edit(entity, ops)}

    async def propose(self, author: Identity, *entries: Entry, **terms: datetime) -> ChangeRequest:
        caller = self.caller(author, reason="more load", ticket="CHG-1")
        return await self.service.proposals.create(self.cluster, entries, RequestTerms(**terms), caller)

    def manifest(self, *entries: Entry, **options: Any) -> ProposedManifest:
        """A manifest."""
        mode = Mode.MERGE if options.get("merge") else Mode.REPLACE
        document = [
            {facet: replace(edit, mode=mode) for facet, edit in entry.items() if isinstance(edit, Edit)}
            for entry in entries
        ]
        return ProposedManifest(document, PlanOptions(**options))

    async def propose_manifest(
        self, author: Identity, manifest: ProposedManifest, *, validate_only: bool = False, **terms: datetime | None
    ) -> ChangeRequest:
        caller = self.caller(author, reason="more load", ticket="CHG-1")
        return await self.service.proposals.create(
            self.cluster, manifest, RequestTerms(**terms), caller, validate_only=validate_only
        )

    async def approve(self, request: ChangeRequest, *approvers: Identity) -> ChangeRequest:
        """Approve the content of a request as read."""
        for each in approvers:
            approved = await self.service.reviews.approve(
                self.cluster, request.id, request.digest, self.caller(each), comment="fine"
            )
        return approved

    async def apply(self, request: ChangeRequest, by: Identity, **supplied: Any) -> ChangeRequest:
        values = {(request.entity_ids[0], key): value for key, value in supplied.items()}
        return await self.service.apply(self.cluster, request.id, values, self.caller(by))

    async def found(self, request: ChangeRequest) -> ChangeRequest:
        found = await self.store.find("default", request.id)
        assert found is not None
        return found

    async def state(self, request: ChangeRequest) -> RequestState:
        return (await self.found(request)).state

    async def actions(self, request: ChangeRequest) -> list[str]:
        """The events of a request."""
        return [each.action for each in await self.service.reader.events(request)]

    async def changes(self, request: ChangeRequest) -> list[AuditRecord]:
        """The committed changes that applied a request."""
        return [each for each in await self.replica.trail(outcome="committed") if each.intent.applies == request.id]

    async def pass_(self, by: timedelta) -> None:
        """Let time pass, and run a round."""
        self.ahead += by
        await self.scheduler.round()
