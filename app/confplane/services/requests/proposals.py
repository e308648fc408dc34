"""Proposals: new change requests, and new contents of those that exist."""

from __future__ import annotations

from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, Final

from uuid_utils.compat import uuid7

from confplane.domain.access.operations import Operation
from confplane.domain.change_requests import RequestAction, RequestState, check_action
from confplane.domain.errors import IdempotencyKeyBusyError, InvalidRequestError, UnavailableError
from confplane.services.changes.stored_draft import to_supply
from confplane.services.ports.change_requests import ChangeRequest, RequestClaim
from confplane.services.requests.contents import digest_of, partly_warning, related, restores
from confplane.services.requests.reader import check_may_supply, check_text, etag_of, is_author, manages

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from uuid import UUID

    from confplane.domain.etags import Precondition
    from confplane.services.changes.callers import Caller
    from confplane.services.changes.idempotency import RequestRun
    from confplane.services.clusters import Cluster
    from confplane.services.ports.change_requests import Participant
    from confplane.services.requests.contents import RequestContent
    from confplane.services.requests.participants import Participants
    from confplane.services.requests.reader import RequestReader
    from confplane.services.requests.requested import Proposal, RequestedChanges
    from confplane.services.requests.transitions import RequestTransitions

SHORTEST_S: Final = 60
DEFAULT_S: Final = 7 * 86_400
LONGEST_S: Final = 90 * 86_400
"""Seconds after which a request expires."""


def _revert_members(cluster: Cluster, reverted: ChangeRequest | None, content: RequestContent) -> dict[str, Any]:
    """Return the warnings of a request, and what it reverts."""
    if reverted is None:
        return {"warnings": content.warnings}
    if not related(reverted.draft, content.draft):
        text = f"The request {reverted.id} is not reverted: none of its keys is changed"
        return {"warnings": (*content.warnings, text), "reverts": reverted.id}
    partly = not restores(cluster, reverted.draft, content.draft)
    warnings = (*content.warnings, partly_warning(reverted.id)) if partly else content.warnings
    return {"warnings": warnings, "reverts": reverted.id, "reverts_partly": partly}


@dataclass(frozen=True, slots=True)
class RequestTerms:
    """The times of a request as they are asked for."""

    expires_at: datetime | None = None
    """None for a week."""
    apply_at: datetime | None = None
    """None to apply it when somebody asks for it."""


class RequestProposals:
    """Creates and revises requests.

    Args:
        reader: Reads requests.
        transitions: Writes requests.
        participants: The people of requests.
        changes: Decides what is proposed.
        now: The clock.
    """

    def __init__(
        self,
        reader: RequestReader,
        transitions: RequestTransitions,
        participants: Participants,
        *,
        changes: RequestedChanges,
        now: Callable[[], datetime] = lambda: datetime.now(UTC),
    ) -> None:
        self._reader = reader
        self._transitions = transitions
        self._participants = participants
        self._changes = changes
        self._now = now

    async def create(
        self,
        cluster: Cluster,
        proposed: Proposal,
        terms: RequestTerms,
        caller: Caller,
        *,
        reverted: ChangeRequest | None = None,
        draft: bool = False,
        validate_only: bool = False,
    ) -> ChangeRequest:
        """Propose a change, or make a draft of it.

        Args:
            cluster: The cluster.
            proposed: The edits or the manifest.
            terms: The times of the request.
            caller: The author, with the reason and the ticket of the change, and the run of an Idempotency-Key.
            reverted: The request whose change this one reverts.
            draft: Nobody is asked to approve it yet, and it does not expire.
            validate_only: Check everything, and write nothing.

        Raises:
            IdempotencyKeyBusyError: Another request holds the key.
            ForbiddenError: The caller may not propose a change of an entity, or not describe it.
            InvalidRequestError: A time is not valid, or nothing would change.
            ConfplaneError: The change would be refused.
        """
        check_text(caller.reason, "reason")
        run = None if validate_only else caller.run
        if run is not None and run.claimed and (made := await self._reader.made_under(cluster.name, run.id)):
            run.wrote = True
            return made
        self._check_future(terms.apply_at)
        content = await self._changes.decide(cluster, proposed, caller)
        expires_at = self._expiry(terms, content, draft=draft)
        author = await self._participants.of(caller.access.identity)
        request = ChangeRequest(
            uuid7() if run is None else run.id,
            cluster.name,
            RequestState.DRAFT if draft else RequestState.OPEN,
            1,
            1,
            digest_of(cluster.name, content.draft, terms.apply_at, expires_at),
            content.entity_ids,
            self._now(),
            (author,),
            reason=caller.reason,
            ticket=caller.ticket,
            expires_at=expires_at,
            apply_at=terms.apply_at,
            requirements=content.requirements,
            draft=content.draft,
            **_revert_members(cluster, reverted, content),
        )
        if run is not None:
            await self._create_once(cluster, request, author, run, caller.deadline)
        elif not validate_only:
            await self._transitions.create(request, author)
        return request

    async def _create_once(
        self, cluster: Cluster, request: ChangeRequest, author: Participant, run: RequestRun, deadline: float
    ) -> None:
        """Add a request under an Idempotency-Key. Its id is that of the key, so another run finds it."""
        claim = RequestClaim(run.claim([], deadline), cluster.store.writer())
        try:
            await self._transitions.create(request, author, claim)
        except IdempotencyKeyBusyError:
            run.lost = True
            raise
        except UnavailableError:
            run.unknown = True
            raise
        run.wrote = True

    async def revise(
        self,
        cluster: Cluster,
        request_id: UUID,
        proposed: Proposal | None,
        caller: Caller,
        precondition: Precondition,
        *,
        times: Mapping[str, datetime | None] = MappingProxyType({}),
        draft: bool = False,
        validate_only: bool = False,
    ) -> ChangeRequest:
        """Replace the content of a request, or decide it again on the present state. Its approvals are dropped.

        Args:
            cluster: The cluster.
            request_id: The request.
            proposed: The new content; None for the same one.
            caller: The caller, who becomes an author.
            precondition: The precondition on the request.
            times: The times that change, by their names in :class:`RequestTerms`.
            draft: Leave a draft a draft. Otherwise it is proposed.
            validate_only: Check everything, and write nothing.

        Raises:
            ForbiddenError: The caller is not an author, does not manage change requests, and may not propose a change
                of an entity of the content before; or may not set a password that stays; or as of :meth:`create`.
            RequestStateError: The state does not allow it.
            ConfplaneError: As of :meth:`create`.
        """
        check_text(caller.reason, "reason")
        request = await self._reader.find(cluster.name, request_id, caller.access)
        precondition.check(etag_of(request))
        action, state = RequestAction.REVISE, RequestState.OPEN
        if draft:
            action, state = RequestAction.REDRAFT, RequestState.DRAFT
        elif request.state is RequestState.DRAFT:
            action = RequestAction.SUBMIT
        check_action(request.kind, request.state, action)
        if not is_author(caller, request) and not manages(caller.access, request):
            for each in request.entity_ids:
                caller.require(cluster.name, Operation.PROPOSE, each)
        if proposed is None and not to_supply(request.draft):
            proposed = await self._changes.proposal_of(cluster, request.draft)
        self._check_future(times.get("apply_at"))
        if proposed is None:
            check_may_supply(caller, request)  # the caller becomes the author of the content
            content = await self._changes.keep(cluster, request, caller)
        else:
            content = await self._changes.decide(cluster, proposed, caller)
        terms = replace(RequestTerms(request.expires_at, request.apply_at), **times)
        expires_at = self._expiry(terms, content, draft=draft)
        author = await self._participants.of(caller.access.identity)
        authors = (*(each for each in request.authors if each != author), author)
        changes: dict[str, Any] = {
            "revision": request.revision + 1,
            "digest": digest_of(cluster.name, content.draft, terms.apply_at, expires_at),
            "expires_at": expires_at,
            "apply_at": terms.apply_at,
            "entity_ids": content.entity_ids,
            "requirements": content.requirements,
            "draft": content.draft,
            "authors": authors,
            "approvals": (),
            "error": None,
            "differences": (),
            **_revert_members(cluster, await self._reader.reverted(request), content),
        }
        if validate_only:
            return replace(request, state=state, **changes)
        return await self._transitions.move(request, action, state, author, caller.reason, **changes)

    def _check_future(self, apply_at: datetime | None) -> None:
        """Refuse a new time that has passed. A time that was given earlier may have passed.

        Raises:
            InvalidRequestError: The time is not in the future.
        """
        if apply_at is not None and apply_at <= self._now():
            raise InvalidRequestError("applyAt is not in the future", pointer="/applyAt")

    def _expiry(self, terms: RequestTerms, content: RequestContent, *, draft: bool) -> datetime | None:
        """Return the time at which a request expires; None for a draft without one.

        Raises:
            InvalidRequestError: A time is not valid, or the leader would need a sensitive value.
        """
        now = self._now()
        expires_at = terms.expires_at or max(now, terms.apply_at or now) + timedelta(seconds=DEFAULT_S)
        if not timedelta(seconds=SHORTEST_S) <= expires_at - now <= timedelta(seconds=LONGEST_S):
            raise InvalidRequestError(
                f"expiresAt is not from {SHORTEST_S} seconds to {LONGEST_S // 86_400} days in the future",
                pointer="/expiresAt",
            )
        shown = terms.expires_at if draft else expires_at
        if terms.apply_at is None:
            return shown
        if to_supply(content.draft):
            raise InvalidRequestError(
                "The request sets a sensitive value, which is not stored and has to be supplied when it is applied;"
                " leave applyAt out",
                pointer="/applyAt",
            )
        if not terms.apply_at < expires_at:
            raise InvalidRequestError("applyAt is not before expiresAt", pointer="/applyAt")
        return shown
