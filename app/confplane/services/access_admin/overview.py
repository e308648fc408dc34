"""Answers to who may do what, and by which grants."""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING

from confplane.domain.access.grants import Grant, GrantRules, counts
from confplane.domain.access.identities import EVERYBODY, GROUP, Authentication, Identity
from confplane.domain.access.operations import (
    ROLES,
    Operation,
    PatternType,
    ResourceType,
    denies,
    follows_of,
    gives,
)
from confplane.domain.access.ranges import spell
from confplane.domain.errors import InvalidRequestError
from confplane.domain.texts import shown
from confplane.services.access import own_grants
from confplane.services.access_admin import rules
from confplane.services.access_admin.grants import is_own
from confplane.services.access_admin.pagination import read_all

if TYPE_CHECKING:
    from confplane.services.access import Access
    from confplane.services.ports.access import AccessStore, StoredGrant


@dataclass(frozen=True, slots=True)
class Right:
    """An operation on the resources that match a pattern."""

    operation: Operation
    resource: ResourceType
    pattern: PatternType
    name: str


@dataclass(frozen=True, slots=True)
class DecidingGrant:
    """A grant, and a principal for which the grant decides one question."""

    principal: str
    grant: StoredGrant


class OverviewService:
    """Shows who may do what in a cluster, from the current tables.

    Every coroutine raises ``UnavailableError`` if Postgres is unavailable.

    Args:
        store: The tables.
    """

    def __init__(self, store: AccessStore) -> None:
        self._store = store

    async def grants_of(
        self, principal: str | None, group: str | None, cluster: str | None, access: Access
    ) -> list[StoredGrant]:
        """Return the grants that count for a user, for the members of a group, or for a user who is a member.

        Denies come first, as they are decided first.

        Args:
            principal: The user; None: the group alone.
            group: The group; None: no group.
            cluster: The cluster; None: all clusters together, where denies of single clusters count and allows do not.
            access: The caller, who needs no grant to ask about its own.

        Raises:
            InvalidRequestError: Neither is given, or one is not valid.
            ForbiddenError: The caller may not see the grants of the user or of the group.
        """
        if principal is None and group is None:
            raise InvalidRequestError("Give a principal, a group, or both", pointer="principal")
        if principal is not None:
            rules.check_grantee(principal, "principal")
            if principal.startswith(GROUP):
                raise InvalidRequestError(f"{shown(principal)} is a group; ask with group=", pointer="principal")
        if group is not None:
            rules.check_group(group, "group")
        for each, pointer in ((principal, "principal"), (group, "group")):
            if each is not None and not is_own(access, each):
                access.require(None, Operation.DESCRIBE, spell(ResourceType.GRANTS, each), pointer=pointer)
        asked = {each for each in (principal, group, EVERYBODY) if each is not None}
        found = [stored for each in sorted(asked) for stored in await self._all(each)]
        return sorted(
            (stored for stored in found if counts(stored.grant, cluster)), key=lambda stored: stored.grant.allows
        )

    async def who(self, cluster: str, operation: Operation, spelling: str, access: Access) -> list[DecidingGrant]:
        """Return the principals and groups with a grant that decides about an operation on a resource.

        For each there is one grant: the deny that refuses, or else an allow. Grants to everybody count for each.

        Args:
            cluster: The cluster.
            operation: The operation.
            spelling: The resource, as :func:`confplane.domain.access.ranges.spell` spells it.
            access: The caller.

        Raises:
            ForbiddenError: The caller may not see all grants.
        """
        access.require(None, Operation.DESCRIBE, ResourceType.GRANTS)
        by_principal: dict[str, list[StoredGrant]] = {}
        for stored in await self._all(None):
            if counts(stored.grant, cluster) and _touches(stored.grant, operation, spelling):
                by_principal.setdefault(stored.grant.principal, []).append(stored)
        for_all = by_principal.get(EVERYBODY, [])
        found = []
        for principal, own in sorted(by_principal.items()):
            deciding = _deciding(own, for_all if principal != EVERYBODY else [], cluster, operation, spelling)
            if deciding is not None:
                found.append(DecidingGrant(principal, deciding))
        return found

    async def _all(self, principal: str | None) -> list[StoredGrant]:
        return await read_all(partial(self._store.list_grants, principal=principal, cluster=None))


def _touches(grant: Grant, operation: Operation, spelling: str) -> bool:
    """Return True if a grant may decide about an operation on a resource."""
    return any(
        (gives(each, operation) if grant.allows else denies(each, operation) or operation in follows_of(each))
        and start <= spelling < end
        for each, (start, end) in grant.rights()
    )


def _deciding(
    own: list[StoredGrant], for_all: list[StoredGrant], cluster: str, operation: Operation, spelling: str
) -> StoredGrant | None:
    """Return the grant that decides for a principal; None if the principal is allowed by a grant to everybody alone."""
    denying = [stored for stored in (*for_all, *own) if not stored.grant.allows]

    def allowed(allowing: list[StoredGrant]) -> bool:
        rules = GrantRules((stored.grant for stored in (*allowing, *denying)), cluster)
        return spelling in rules[operation]

    allowing = next((stored for stored in own if stored.grant.allows and allowed([stored])), None)
    if allowing is not None:
        return allowing
    return None if not denying or allowed([stored for stored in for_all if stored.grant.allows]) else denying[0]


def own_rights(principal: str) -> list[Right]:
    """Return the rights that a user of Kafka's has without a grant."""
    identity = Identity(principal, Authentication.TOKEN)
    return [right for grant in own_grants(identity) for right in rights_of(grant)]


def rights_of(grant: Grant) -> list[Right]:
    """Return the rights that a grant gives or denies, its role expanded; implied operations are not repeated."""
    if grant.operation is not None and grant.resource is not None:
        return [Right(grant.operation, grant.resource, grant.pattern, grant.name)]
    bundle = {} if grant.role is None else ROLES[grant.role]
    return [
        Right(operation, kind, grant.pattern, grant.name)
        for kind, operations in bundle.items()
        if grant.resource in {None, kind}
        for operation in sorted(operations)
    ]
