"""Grants: created, listed, found, replaced and removed."""

from __future__ import annotations

from dataclasses import dataclass, replace
from datetime import UTC, datetime
from functools import partial
from operator import attrgetter
from typing import TYPE_CHECKING, Final

from uuid_utils.compat import uuid7

from confplane.domain.access.grants import ANY, Grant
from confplane.domain.access.operations import OF_SERVICE, Operation, PatternType, Permission, ResourceType, Role
from confplane.domain.errors import ConcurrentChangeError, InvalidRequestError, WriteOutcome
from confplane.services.access_admin import rules
from confplane.services.access_admin.effective_grants import check_gift, check_return
from confplane.services.access_admin.history import change_of
from confplane.services.access_admin.repository import AccessRecordKind, AccessRepository
from confplane.services.access_admin.views import etag_of, grant_view
from confplane.services.ports.access import StoredGrant

if TYPE_CHECKING:
    from collections.abc import Collection
    from uuid import UUID

    from confplane.domain.etags import Precondition
    from confplane.services.access import Access
    from confplane.services.changes.callers import Caller
    from confplane.services.ports.access import AccessStore

_TRIES: Final = 5
"""Number of tries of an unconditional replacement or removal if there are concurrent ones."""


@dataclass(frozen=True, slots=True)
class NewGrant:
    """The content of a grant as it is asked for."""

    principal: str
    permission: Permission = Permission.ALLOW
    cluster: str | None = None
    operation: Operation | None = None
    role: Role | None = None
    resource: ResourceType | None = None
    pattern: PatternType = PatternType.LITERAL
    name: str = ANY
    note: str | None = None


class GrantService:
    """Manages grants.

    Every coroutine raises ``UnavailableError`` if Postgres is unavailable.

    Args:
        store: The tables.
        clusters: The clusters of the settings.
    """

    def __init__(self, store: AccessStore, clusters: Collection[str]) -> None:
        self._store = store
        self._clusters = clusters
        self._repository = AccessRepository(_KIND, store.find_grant)

    async def create(
        self, wanted: NewGrant, caller: Caller, *, validate_only: bool = False
    ) -> tuple[StoredGrant, bool]:
        """Create a grant, or find the grant that has this content already.

        Returns:
            The grant, and True if it is new.

        Raises:
            InvalidRequestError: A part of the grant is not valid.
            ForbiddenError: The caller may give this principal no grants, or does not hold what the grant gives.
        """
        self._check(wanted)
        made = StoredGrant(_grant(wanted, uuid7()), datetime.now(UTC), caller.principal, wanted.note)
        self._repository.require(caller.access, Operation.ALTER, wanted.principal, "/principal")
        check_gift(caller.access, made.grant)
        if validate_only:
            return made, True
        change = change_of(caller, "grant-created", _subject(made), after=grant_view(made))
        found = await self._store.create_grant(made, change)
        return found, found.grant.id == made.grant.id

    async def page(
        self, principal: str | None, cluster: str | None, access: Access, *, page_size: int, after: UUID | None
    ) -> tuple[list[StoredGrant], UUID | None]:
        """Return a page of the grants that a caller may see, oldest first, and the cursor of the next.

        Raises:
            InvalidRequestError: The principal is not valid, or there is no such cluster.
            ForbiddenError: A principal is named, and the caller may not see its grants.
        """
        rules.check_cluster(cluster, self._clusters, "cluster")
        read = partial(self._store.list_grants, principal=principal, cluster=cluster)
        return await self._repository.page(read, principal, access, page_size=page_size, after=after)

    async def find(self, grant_id: UUID, access: Access) -> StoredGrant:
        """Return a grant.

        Raises:
            NotFoundError: The grant does not exist, and the caller may see all.
            ForbiddenError: There is no such grant that the caller may see.
        """
        return await self._repository.find(grant_id, access)

    async def replace(
        self,
        grant_id: UUID,
        wanted: NewGrant,
        precondition: Precondition,
        caller: Caller,
        *,
        validate_only: bool = False,
    ) -> StoredGrant:
        """Replace the content of a grant; the same content changes nothing.

        Raises:
            InvalidRequestError: A part of the grant is not valid.
            NotFoundError: The grant does not exist, and the caller may alter all.
            ForbiddenError: The caller may alter no such grant, or does not hold what the replacement
                gives: by the new content, or by the end of a deny.
            PreconditionFailedError: The grant has another ETag.
            AlreadyExistsError: Another grant has this content.
            ConcurrentChangeError: Other writers kept replacing the grant.
        """
        self._check(wanted)
        for _ in range(_TRIES):
            old = await self._repository.find_alterable(grant_id, caller.access)
            self._repository.require(caller.access, Operation.ALTER, wanted.principal, "/principal")
            precondition.check(etag_of(old))
            made = replace(old, grant=_grant(wanted, grant_id), note=wanted.note)
            if made == old:
                return old
            check_return(caller.access, old.grant)
            check_gift(caller.access, made.grant)
            if validate_only:
                return made
            change = change_of(caller, "grant-replaced", _subject(old), before=grant_view(old), after=grant_view(made))
            found = await self._store.replace_grant(made, change)
            if found is not None:
                return found
        raise _changing(grant_id)

    async def remove(
        self, grant_id: UUID, precondition: Precondition, caller: Caller, *, validate_only: bool = False
    ) -> StoredGrant:
        """Remove a grant, and return its last content.

        Raises:
            NotFoundError: The grant does not exist, and the caller may alter all.
            ForbiddenError: The caller may alter no such grant, or the end of a deny gives back what the caller
                does not hold.
            PreconditionFailedError: The grant has another ETag.
            ConcurrentChangeError: Other writers kept replacing the grant.
        """
        for _ in range(_TRIES):
            old = await self._repository.find_alterable(grant_id, caller.access)
            precondition.check(etag_of(old))
            check_return(caller.access, old.grant)
            if validate_only:
                return old
            change = change_of(caller, "grant-removed", _subject(old), before=grant_view(old))
            if await self._store.remove_grant(grant_id, old.revision, change):
                return old
        raise _changing(grant_id)

    def _check(self, wanted: NewGrant) -> None:
        rules.check_grantee(wanted.principal, "/principal")
        rules.check_new_principal(wanted.principal, "/principal")
        if wanted.resource in {ResourceType.TOKENS, ResourceType.GRANTS}:
            rules.check_new_principal(wanted.name, "/name")
        rules.check_cluster(wanted.cluster, self._clusters, "/cluster")
        if wanted.cluster is not None and wanted.resource in OF_SERVICE:
            raise InvalidRequestError(
                f"A grant on {wanted.resource} can't be limited to a cluster. Omit cluster.", pointer="/cluster"
            )
        rules.check_right(wanted.operation, wanted.role, wanted.resource)
        rules.check_pattern(wanted.resource, wanted.pattern, wanted.name)
        rules.check_text(wanted.note, "note", "/note")


def is_own(access: Access, principal: str) -> bool:
    """Return True if grants to a principal are a caller's own."""
    identity = access.identity
    return identity.behalf_of is None and principal in identity.grantees


_KIND: Final[AccessRecordKind[StoredGrant]] = AccessRecordKind(
    ResourceType.GRANTS, "grant", attrgetter("grant.id"), attrgetter("grant.principal"), is_own
)


def _grant(wanted: NewGrant, grant_id: UUID) -> Grant:
    return Grant(
        grant_id,
        wanted.principal,
        wanted.permission,
        wanted.cluster,
        wanted.operation,
        wanted.role,
        wanted.resource,
        wanted.pattern,
        wanted.name,
    )


def _subject(stored: StoredGrant) -> str:
    return f"grants/{stored.grant.id}"


def _changing(grant_id: UUID) -> ConcurrentChangeError:
    return ConcurrentChangeError(
        f"Other writers kept changing the grant {grant_id}; nothing was applied, send the request again",
        outcome=WriteOutcome.NOT_APPLIED,
    )
