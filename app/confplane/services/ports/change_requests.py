"""Change requests: as they are stored. Implemented by ``confplane.audit``."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol

from confplane.domain.change_requests import Person, RequestKind, RequestState

if TYPE_CHECKING:
    from collections import Counter
    from collections.abc import Collection, Mapping, Sequence
    from datetime import datetime
    from uuid import UUID

    from confplane.domain.access.identities import Identity
    from confplane.domain.approvals import Requirement
    from confplane.services.ports.trail import Claim


@dataclass(frozen=True, slots=True)
class Participant:
    """An author or approver: the credential as it was, and the names behind it."""

    identity: Identity
    related: frozenset[str] = frozenset()
    """As of :class:`~confplane.domain.change_requests.Person`."""

    @property
    def person(self) -> Person:
        """The names behind the credential."""
        names = {self.identity.principal, self.identity.acts_for} - {None}
        return Person(frozenset(name for name in names if name is not None), self.related)


@dataclass(frozen=True, slots=True)
class GivenApproval:
    """An approval of the present revision of a request."""

    approver: Participant
    at: datetime
    entities: frozenset[str]
    """The ids of the request's entities that the approver may alter, and the owners of a manifest."""


@dataclass(frozen=True, slots=True)
class RequestApplication:
    """The process that applies a request."""

    writer: str
    """Its writer node: without it, the process can commit nothing any more."""
    until: datetime
    """The latest end of the attempt."""


@dataclass(frozen=True, slots=True)
class ChangeRequest:
    """A change request as it is now."""

    id: UUID
    cluster: str
    state: RequestState
    version: int
    """The number of writes of the request; its ETag."""
    revision: int
    """The number of contents that it had."""
    digest: str
    """The digest of all that is approved: content, versions and times."""
    entity_ids: tuple[str, ...]
    created_at: datetime
    authors: tuple[Participant, ...]
    """The authors of all revisions, the first one first."""
    kind: RequestKind = RequestKind.CHANGE
    reason: str | None = None
    ticket: str | None = None
    expires_at: datetime | None = None
    apply_at: datetime | None = None
    """The time from which the leader applies it once it is approved, until it expires."""
    warnings: tuple[str, ...] = ()
    approvals: tuple[GivenApproval, ...] = ()
    requirements: Mapping[str, tuple[Requirement, ...]] = field(default_factory=dict)
    """The approvals that rules ask for, by entity id, as decided last."""
    application: RequestApplication | None = None
    """The attempt to make its change; None if it has ended, and of an open request past the rules after an approval."""
    change_id: UUID | None = None
    """The change that applied it."""
    error: str | None = None
    """The reason why the last attempt to apply it failed, or why it was opened again."""
    differences: tuple[dict[str, Any], ...] = ()
    """The changes since it was decided, without secrets."""
    reverts: UUID | None = None
    """The request whose change this one reverts."""
    reverts_partly: bool = False
    """True if it leaves keys of that change as they are."""
    reverted_by: UUID | None = None
    """The request that reverts, or reverted, the change of this one."""
    draft: dict[str, Any] = field(default_factory=dict, repr=False)
    """The edits as :mod:`confplane.services.changes.stored_draft` stores them; empty in lists."""


@dataclass(frozen=True, slots=True)
class RequestEvent:
    """One event of a request."""

    id: UUID
    action: str
    """An action of the domain, ``open`` or ``comment``."""
    at: datetime
    principal: str | None = None
    """None: it followed from the time, or from what was found when the request was applied."""
    behalf_of: str | None = None
    text: str | None = None
    revision: int = 0
    state: RequestState = RequestState.OPEN
    """The state after it."""


class RequestAttempts(NamedTuple):
    """The changes that were made to apply a request."""

    committed: UUID | None
    """The first one that is committed."""
    open: bool
    """True if one of them has no outcome yet."""
    places: frozenset[tuple[str, str]] = frozenset()
    """The facets and the ids of the entities that the committed ones altered."""


@dataclass(frozen=True, slots=True)
class RequestStatus:
    """The requests of a cluster that have not ended."""

    due: Sequence[UUID] = ()
    """The requests that are expired, whose time to be applied has come, or whose application has begun."""
    states: dict[RequestState, int] = field(default_factory=dict)
    """The number of requests by state."""
    oldest: dict[RequestKind, datetime] = field(default_factory=dict)
    """The creation of the oldest open request by kind."""


class RequestClaim(NamedTuple):
    """The Idempotency-Key under which a change request is made."""

    claim: Claim
    writer: str
    """The writer node of the process."""


class ChangeRequestStore(Protocol):
    """The change requests of all clusters. Every call raises ``UnavailableError`` if Postgres is unavailable."""

    unknown: Counter[str]
    """Number of times that a request was left out because a newer release wrote it, by cluster."""

    async def create(self, request: ChangeRequest, event: RequestEvent, claim: RequestClaim | None = None) -> None:
        """Add a request with its first revision.

        Args:
            request: The request.
            event: Its first event.
            claim: The Idempotency-Key under which it is made.

        Raises:
            IdempotencyKeyBusyError: Another request holds the key, or made the change request under it; nothing was
                written.
        """

    async def write(self, request: ChangeRequest, event: RequestEvent) -> bool:
        """Replace a request whose version is still one below the given one, and add an event.

        A higher revision is added with its draft.

        Returns:
            False if the request was written in the meantime.
        """

    async def add_event(self, request_id: UUID, event: RequestEvent) -> None:
        """Add an event that changes nothing else."""

    async def find(self, cluster: str, request_id: UUID) -> ChangeRequest | None:
        """Return a request with the draft of its present revision.

        Raises:
            UnavailableError: A newer release wrote it, and this one can't read it.
        """

    async def search(
        self, cluster: str, *, state: RequestState | None, before: UUID | None, most: int, entity_id: str | None
    ) -> list[ChangeRequest]:
        """Return requests without their drafts, the newest first. Those that a newer release wrote are left out.

        Args:
            cluster: The cluster.
            state: Only requests in this state; None: any.
            before: Only requests with lower ids.
            most: Maximum number.
            entity_id: Only requests of this entity.
        """

    async def events(self, request_id: UUID, most: int) -> list[RequestEvent]:
        """Return the last events of a request, the oldest first."""

    async def entities_of(self, request_id: UUID, revisions: Collection[int]) -> dict[int, frozenset[str]]:
        """Return the entities of contents that a request had, by revision."""

    async def attempts(self, request_id: UUID) -> RequestAttempts:
        """Return the attempts to apply a request."""

    async def late(self, cluster: str, most: int) -> list[UUID]:
        """Return the requests whose change was committed after they were given back, and that are not applied yet.

        Those of changes past the rules are included if they are cancelled.
        """

    async def unwritten(self, cluster: str, until: datetime, most: int) -> list[UUID]:
        """Return the open requests of changes past the rules whose attempts ended before a time, and wrote nothing."""

    async def ended_reverts(self, cluster: str, most: int) -> list[tuple[UUID, UUID]]:
        """Return the requests that revert others and have ended, each with the other one, whose state is not up to
        date.
        """  # noqa: D205 - one sentence

    async def status(self, cluster: str, now: datetime, most: int) -> RequestStatus:
        """Return the requests that have not ended, with so many due ones at most."""
