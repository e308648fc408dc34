"""The parts of change requests, wired for the service."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

from confplane.audit import PostgresChangeRequests, PostgresManifestRuns
from confplane.services.plans.apply import ApplyService
from confplane.services.requests.applier import RequestApplier
from confplane.services.requests.participants import Participants
from confplane.services.requests.proposals import RequestProposals
from confplane.services.requests.reader import RequestReader
from confplane.services.requests.requested import RequestedChanges
from confplane.services.requests.reversals import RequestReversals
from confplane.services.requests.reviews import RequestReviews
from confplane.services.requests.scheduler import RequestScheduler
from confplane.services.requests.service import ChangeRequestService
from confplane.services.requests.transitions import RequestTransitions
from confplane.services.ticks import Ticks

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Sequence

    from confplane.services.access import AccessControl
    from confplane.services.plans.plan import PlanService
    from confplane.services.ports.access import AccessStore
    from confplane.services.reverts.service import RevertService
    from confplane.wiring import ServiceParts


def _now() -> datetime:
    return datetime.now(UTC)


@dataclass(frozen=True, slots=True)
class RequestWiring:
    """The change requests of a process."""

    service: ChangeRequestService
    schedulers: Sequence[RequestScheduler]
    """One for each cluster."""
    applies: ApplyService
    """Applies manifests, those of requests too."""

    @classmethod
    def of(
        cls,
        parts: ServiceParts,
        control: AccessControl,
        tokens: AccessStore,
        refresh: Callable[[], Awaitable[None]],
        reverts: RevertService,
        plans: PlanService,
        *,
        now: Callable[[], datetime] = _now,
    ) -> RequestWiring:
        """Build them.

        Args:
            parts: The parts below the API.
            control: The rights of credentials.
            tokens: The tokens.
            refresh: As in :class:`confplane.services.requests.participants.Participants`.
            reverts: Decides reverts.
            plans: Plans manifests.
            now: The clock.
        """
        store = PostgresChangeRequests(parts.database)
        reader, participants = RequestReader(store), Participants(control, tokens, refresh, now)
        transitions = RequestTransitions(store, now)
        applies = ApplyService(plans, parts.alter, PostgresManifestRuns(parts.database))
        changes = RequestedChanges(parts.alter, plans, applies, participants, parts.fingerprints)
        rest: dict[str, Any] = {"changes": changes, "now": now}
        applier = RequestApplier(store, transitions, participants, control=control, **rest)
        proposals = RequestProposals(reader, transitions, participants, **rest)
        service = ChangeRequestService(
            reader,
            proposals,
            RequestReversals(reader, transitions, proposals, audit=parts.audit, reverts=reverts, alter=parts.alter),
            RequestReviews(reader, transitions, participants, applier=applier, **rest),
            applier=applier,
            transitions=transitions,
            participants=participants,
            now=now,
        )
        ticks = Ticks()
        schedulers = [
            RequestScheduler(cluster, store, transitions, applier, refresh, now=now, ticks=ticks)
            for cluster in parts.clusters
        ]
        return cls(service, schedulers, applies)
