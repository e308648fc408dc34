"""The caller of a change, and its bypass of the rules."""

from __future__ import annotations

import asyncio
import time
from contextlib import contextmanager
from typing import TYPE_CHECKING

from confplane.domain.access.identities import Authentication
from confplane.domain.errors import UnavailableError, WriteOutcome
from confplane.domain.fast_dataclass import fast_dataclass
from confplane.services.access import of_operator

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Iterable, Iterator, Sequence
    from contextlib import AbstractContextManager
    from datetime import datetime
    from uuid import UUID

    from confplane.domain.access.operations import Operation
    from confplane.domain.approvals import Approval
    from confplane.domain.entities import Entity
    from confplane.services.access import Access
    from confplane.services.changes.edits import EditResult
    from confplane.services.changes.idempotency import RequestRun
    from confplane.services.ports.change_requests import ChangeRequest
    from confplane.services.ports.refusals import RefusedEdit


class RuleBypass:
    """The bypass of the rules by a request that breaks the glass.

    It opens the change request that another person has to acknowledge, once, before the first write past the rules.

    Args:
        opens: Opens it, with the ids of the entities.

    Attributes:
        request: The change request; None while nothing was decided past the rules.
        wrote: True if the request wrote something, or may have.
    """

    def __init__(self, opens: Callable[[Sequence[str]], Awaitable[ChangeRequest]]) -> None:
        self.request: ChangeRequest | None = None
        self.wrote = False
        self._opens = opens
        self._entity_ids: set[str] = set()
        self._opening = asyncio.Lock()

    def include(self, entity_ids: Iterable[str]) -> None:
        """Name entities that the request alters; none that the caller may not alter."""
        self._entity_ids.update(entity_ids)

    async def open(self) -> None:
        """Open the change request, unless it is open.

        Raises:
            UnavailableError: Postgres is unavailable, so nothing may be written.
        """
        async with self._opening:
            if self.request is None:
                self.request = await self._opens(sorted(self._entity_ids))

    def record(self, result: EditResult) -> None:
        """Take note of the result of an edit."""
        unknown = result.error is not None and result.error.outcome is WriteOutcome.UNKNOWN
        self.wrote = self.wrote or unknown or result.change_id is not None


@contextmanager
def unavailable_with(outcome: WriteOutcome) -> Iterator[None]:
    """Give the errors of unavailable stores in a block an outcome, if they have none."""
    try:
        yield
    except UnavailableError as error:
        error.outcome = error.outcome or outcome
        raise


@fast_dataclass(frozen=True, slots=True)
class Caller:
    """The caller of a change: the access of the request, and the deadline of its answer."""

    access: Access
    deadline: float
    """The deadline on the clock of ``time.monotonic()``."""
    reason: str | None = None
    ticket: str | None = None
    run: RequestRun | None = None
    """The run of a request with an Idempotency-Key."""
    refused: list[RefusedEdit] | None = None
    """Collects the refused edits of the request. None if they are not recorded, as those of a command."""
    revert_at: datetime | None = None
    """The time at which the changes of the request end; None for changes that stay."""
    ends: UUID | None = None
    """The temporary change that the changes of this caller end."""
    applies: UUID | None = None
    """The change request that the changes of this caller apply."""
    approvals: tuple[Approval, ...] | None = None
    """The approvals of the changes; None for changes that nobody was asked to approve."""
    altered: frozenset[tuple[str, Entity]] = frozenset()
    """The facets and entities that the request alters, where it takes several calls of the alter service; see
    :class:`~confplane.domain.policy_rules.PolicyRequest`."""
    break_glass: str | None = None
    """The reason to write past the rules of the policies and their approvals; None for changes within them."""
    bypass: RuleBypass | None = None
    """Opens the change request of a write past the rules. None if ``break_glass`` is, and where nothing is written."""
    validate_only: bool = False
    """True if changes end before their intents, so that nothing is written."""

    @classmethod
    def operator(
        cls,
        principal: str,
        source: str,
        request_id: str,
        deadline: float,
        *,
        reason: str | None = None,
        ticket: str | None = None,
    ) -> Caller:
        """Return a caller with the service's settings, who needs no grant: a command's."""
        return cls(of_operator(principal, source, request_id), deadline, reason, ticket)

    @property
    def principal(self) -> str:
        """The principal of the caller's credential."""
        return self.access.identity.principal

    @property
    def behalf_of(self) -> str | None:
        """The user for whom the caller acts; None if it acts for itself."""
        return self.access.identity.acts_for

    @property
    def author(self) -> str:
        """The principal whose changes count together: the user for whom the caller acts, or the caller itself."""
        return self.behalf_of or self.principal

    @property
    def is_exempt(self) -> bool:
        """True if no rule asks for approvals.

        So it is for commands with the service's settings, for work of the service itself, and for ends of temporary
        changes.
        """
        return self.ends is not None or self.access.identity.kind is Authentication.COMMAND

    @property
    def source(self) -> str:
        """The caller's address."""
        return self.access.source

    @property
    def request_id(self) -> str:
        """The id of the request."""
        return self.access.request_id

    @property
    def request_applied(self) -> UUID | None:
        """The change request that the changes apply, or in which a write past the rules is acknowledged."""
        if self.bypass is None or self.bypass.request is None:
            return self.applies
        return self.bypass.request.id

    def require(self, cluster: str, operation: Operation, spelling: str, *, pointer: str | None = None) -> None:
        """Refuse what the caller may not do (:meth:`confplane.services.access.Access.require`).

        An answer that is kept for an Idempotency-Key is given again only to a caller who still has the grant.

        Raises:
            ForbiddenError: The grant is missing.
        """
        self.access.require(cluster, operation, spelling, pointer=pointer)
        if self.run is not None:
            self.run.needs(operation, spelling)

    def preparing(self) -> AbstractContextManager[None]:
        """Give the errors of unavailable stores in a block of reads the outcome that nothing was written.

        Under an Idempotency-Key an earlier run may have written: then the outcome is unknown.
        """
        return unavailable_with(WriteOutcome.NOT_APPLIED if self.run is None else WriteOutcome.UNKNOWN)

    def check_in_time(self) -> None:
        """Refuse to begin after the deadline.

        Raises:
            UnavailableError: The deadline has passed.
        """
        if time.monotonic() >= self.deadline:
            raise UnavailableError(
                "The request's deadline passed before this entry was begun; nothing of it was applied. Send it again,"
                " in a request of fewer entries",
                outcome=WriteOutcome.NOT_APPLIED,
                retry_after_s=1,
            )
