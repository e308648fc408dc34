"""Change requests as callers may see them."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Final

from confplane.domain.access.operations import Operation, ResourceType
from confplane.domain.access.ranges import spell
from confplane.domain.errors import InvalidRequestError, NotFoundError
from confplane.domain.etags import digest
from confplane.domain.texts import storable
from confplane.services.changes.stored_draft import to_supply

if TYPE_CHECKING:
    from collections.abc import Iterable
    from uuid import UUID

    from confplane.domain.change_requests import RequestState
    from confplane.services.access import Access
    from confplane.services.changes.callers import Caller
    from confplane.services.ports.change_requests import ChangeRequest, ChangeRequestStore, RequestEvent

LONGEST_COMMENT: Final = 4_000
_EVENTS: Final = 200
"""The last events of a request that are shown."""


@dataclass(frozen=True, slots=True)
class RequestPage:
    """A page of requests."""

    requests: list[ChangeRequest]
    cursor: UUID | None


def etag_of(request: ChangeRequest) -> str:
    """Return the ETag of a request. Comments do not change it."""
    return digest({"id": str(request.id), "version": request.version})


class RequestReader:
    """Reads requests.

    Every coroutine raises ``UnavailableError`` if Postgres is unavailable.

    Args:
        store: The requests.
    """

    def __init__(self, store: ChangeRequestStore) -> None:
        self._store = store

    async def page(
        self,
        cluster: str,
        access: Access,
        *,
        state: RequestState | None,
        before: UUID | None,
        size: int,
        entity_id: str | None = None,
    ) -> RequestPage:
        """Return a page of the requests that the caller may see, the newest first. Hidden requests are left out."""
        found = await self._store.search(cluster, state=state, before=before, most=size + 1, entity_id=entity_id)
        cursor = found[size - 1].id if len(found) > size else None
        return RequestPage([each for each in found[:size] if _is_visible(access, each)], cursor)

    async def find(self, cluster: str, request_id: UUID, access: Access) -> ChangeRequest:
        """Return a request.

        Raises:
            NotFoundError: The cluster has no such request that the caller may see.
        """
        found = await self._store.find(cluster, request_id)
        if found is None or not _is_visible(access, found):
            raise NotFoundError(f"Cluster {cluster} has no change request {request_id}")
        return found

    async def made_under(self, cluster: str, key_id: UUID) -> ChangeRequest | None:
        """Return the request that was made under an Idempotency-Key, whose id it has; None if there is none."""
        return await self._store.find(cluster, key_id)

    async def reverted(self, request: ChangeRequest) -> ChangeRequest | None:
        """Return the request whose change a request reverts, with its content."""
        return None if request.reverts is None else await self._store.find(request.cluster, request.reverts)

    async def events(self, request: ChangeRequest) -> list[RequestEvent]:
        """Return what happened to a request, and its comments, the oldest first."""
        return await self._store.events(request.id, _EVENTS)

    async def visible_events(self, request: ChangeRequest, access: Access) -> list[RequestEvent]:
        """Return the events of a request without texts about earlier contents that the caller may not see."""
        events = await self.events(request)
        earlier = {each.revision for each in events if each.text is not None and each.revision < request.revision}
        found = await self._store.entities_of(request.id, earlier)
        author = request.authors[0].identity.principal
        hidden = {revision for revision, ids in found.items() if not may_see(access, request.cluster, author, ids)}
        return [replace(each, text=None) if each.revision in hidden else each for each in events]


def check_some(caller: Caller, request: ChangeRequest, *operations: Operation) -> None:
    """Refuse a caller who may run none of the operations on any entity of a request, and does not manage it.

    Raises:
        ForbiddenError: A grant is missing; the text names the first.
    """
    if not manages(caller.access, request) and not any(
        caller.access.allows(request.cluster, operation, each)
        for operation in operations
        for each in request.entity_ids
    ):
        caller.require(request.cluster, operations[0], request.entity_ids[0])


def is_author(caller: Caller, request: ChangeRequest) -> bool:
    """Return True if a caller is an author of a request. A portal that acts for another user is not."""
    return any(caller.author in each.person.principals for each in request.authors)


def check_may_supply(caller: Caller, request: ChangeRequest) -> None:
    """Refuse a caller who could compare guesses with the proposed passwords.

    The author of the present content was allowed to set them; authors of earlier contents were perhaps not.

    Raises:
        ForbiddenError: The caller is another one, and may not alter an entity whose password is set.
    """
    if caller.author in request.authors[-1].person.principals:
        return
    for entity_id, _ in to_supply(request.draft):
        caller.require(request.cluster, Operation.ALTER_CONFIGS, entity_id)


def check_manages(caller: Caller, request: ChangeRequest) -> None:
    """Refuse a caller who does not manage the requests of the author.

    Raises:
        ForbiddenError: The grant ALTER on ``change-requests`` is missing.
    """
    caller.require(request.cluster, Operation.ALTER, _spelled(request))


def _spelled(request: ChangeRequest) -> str:
    return spell(ResourceType.CHANGE_REQUESTS, request.authors[0].identity.principal)


def manages(access: Access, request: ChangeRequest) -> bool:
    """Return True if a caller may reject and cancel a request without being its author or a possible approver."""
    return access.allows(request.cluster, Operation.ALTER, _spelled(request))


def _is_visible(access: Access, request: ChangeRequest) -> bool:
    return may_see(access, request.cluster, request.authors[0].identity.principal, request.entity_ids)


def may_see(access: Access, cluster: str, author: str, entity_ids: Iterable[str]) -> bool:
    """Return True if a caller may see the requests of a first author about some entities."""
    if access.allows(cluster, Operation.DESCRIBE, spell(ResourceType.CHANGE_REQUESTS, author)):
        return True
    visible = access.allowed(cluster, Operation.DESCRIBE_CONFIGS)
    return all(each in visible for each in entity_ids)


def visible_differences(access: Access, request: ChangeRequest) -> tuple[dict[str, Any], ...]:
    """Return the differences of a request, without those of hidden entities that its manifest leaves as they are."""
    if not request.differences:
        return ()
    visible = access.allowed(request.cluster, Operation.DESCRIBE_CONFIGS)
    return tuple(
        each for each in request.differences if each["entity"] in request.entity_ids or each["entity"] in visible
    )


def check_text(text: str | None, name: str = "comment") -> None:
    """Refuse a text that can't be stored.

    Raises:
        InvalidRequestError: It is empty or too long, or Postgres can't store it.
    """
    if text is None:
        return
    if not text.strip() or len(text) > LONGEST_COMMENT or not storable(text):
        raise InvalidRequestError(
            f"{name} has from 1 to {LONGEST_COMMENT} characters, which can all be stored", pointer=f"/{name}"
        )
