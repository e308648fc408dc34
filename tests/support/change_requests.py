"""Change requests of one process, on a clock of the test, and the people who make and approve them."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any

from confplane.audit import PostgresAccessStore, PostgresChangeRequests
from confplane.domain.facets import FacetName
from confplane.domain.ops import Op, OpType
from confplane.request_wiring import RequestWiring
from confplane.services.changes.callers import Caller
from confplane.services.changes.edits import Edit
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
    from tests.support.replicas import Replica


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
            self.access.book.refresh,
            reverts_of(replica.parts),
            self.now,
        )
        self.service = wiring.service
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
