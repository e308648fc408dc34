"""Change requests for callers: read, proposed, reviewed, applied, and opened for changes past the rules."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import TYPE_CHECKING

from uuid_utils.compat import uuid7

from confplane.domain.access.operations import Operation
from confplane.domain.change_requests import WRITTEN, RequestAction, RequestKind, RequestState
from confplane.services.ports.change_requests import ChangeRequest
from confplane.services.requests.applier import application_of
from confplane.services.requests.contents import digest_of
from confplane.services.requests.reader import check_may_supply

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence
    from uuid import UUID

    from confplane.domain.facets import JsonValue
    from confplane.services.changes.callers import Caller
    from confplane.services.clusters import Cluster
    from confplane.services.requests.applier import RequestApplier
    from confplane.services.requests.participants import Participants
    from confplane.services.requests.proposals import RequestProposals
    from confplane.services.requests.reader import RequestReader
    from confplane.services.requests.reversals import RequestReversals
    from confplane.services.requests.reviews import RequestReviews
    from confplane.services.requests.transitions import RequestTransitions


class ChangeRequestService:
    """Applies requests, and opens those of changes past the rules. One instance serves all clusters of a process.

    Args:
        reader: Reads requests.
        proposals: Creates and revises requests.
        reversals: Proposes reverts.
        reviews: Reviews requests.
        applier: Applies requests.
        transitions: Writes requests.
        participants: The people of requests.
        now: The clock.
    """

    def __init__(
        self,
        reader: RequestReader,
        proposals: RequestProposals,
        reversals: RequestReversals,
        reviews: RequestReviews,
        *,
        applier: RequestApplier,
        transitions: RequestTransitions,
        participants: Participants,
        now: Callable[[], datetime] = lambda: datetime.now(UTC),
    ) -> None:
        self.reader = reader
        self.proposals = proposals
        self.reversals = reversals
        self.reviews = reviews
        self._applier = applier
        self._transitions = transitions
        self._participants = participants
        self._now = now

    async def apply(
        self,
        cluster: Cluster,
        request_id: UUID,
        supplied: Mapping[tuple[str, str], JsonValue],
        caller: Caller,
        *,
        validate_only: bool = False,
    ) -> ChangeRequest:
        """Apply an approved request now. Nothing is done to one that is applied.

        Args:
            cluster: The cluster.
            request_id: The request.
            supplied: The sensitive values, by entity id and key.
            caller: The caller, who needs to propose or to alter each entity.
            validate_only: Check everything, and write nothing.

        Raises:
            ForbiddenError: The caller may neither propose nor alter a change of an entity, or is not the author and may
                not alter an entity whose password is set.
            ConfplaneError: As of :meth:`confplane.services.requests.applier.RequestApplier.apply`.
        """
        request = await self.reader.find(cluster.name, request_id, caller.access)
        for each in request.entity_ids:
            if not caller.access.allows(cluster.name, Operation.ALTER_CONFIGS, each):
                caller.require(cluster.name, Operation.PROPOSE, each)
        if request.state in WRITTEN:
            return request
        check_may_supply(caller, request)
        if validate_only:
            await self._applier.check(cluster, request, caller, supplied)
            return request
        by = await self._participants.of(caller.access.identity)
        return await self._applier.apply(cluster, request, caller, by, supplied)

    async def open_break_glass(self, cluster: Cluster, entity_ids: Sequence[str], caller: Caller) -> ChangeRequest:
        """Open the request that another person has to acknowledge, before a change past the rules is made.

        The change names the request: ``replace(caller, applies=request.id)``. It never expires.

        Args:
            cluster: The cluster.
            entity_ids: The entities that are changed.
            caller: The author, with the reason of the change past the rules.

        Raises:
            UnavailableError: A store is unavailable, so that nothing may be written.
        """
        author = await self._participants.of(caller.access.identity)
        request = ChangeRequest(
            uuid7(),
            cluster.name,
            RequestState.OPEN,
            1,
            1,
            digest_of(cluster.name, {"edits": sorted(entity_ids)}, None, None),
            tuple(sorted(set(entity_ids))),
            self._now(),
            (author,),
            RequestKind.BREAK_GLASS,
            caller.break_glass or caller.reason,
            caller.ticket,
            application=application_of(cluster, caller, self._now()),
            draft={"edits": []},
        )
        await self._transitions.create(request, author)
        return request

    async def drop_break_glass(self, request: ChangeRequest) -> None:
        """Cancel the request of a change past the rules of which nothing was written."""
        await self._transitions.move(
            request, RequestAction.CANCEL, RequestState.CANCELLED, text="Nothing was written past the rules"
        )
