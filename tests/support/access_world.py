"""Tokens and grants, with the services on them and callers of every kind."""

from __future__ import annotations

import time
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from confplane.domain.access.identities import ADMIN, Authentication, Identity
from confplane.domain.access.operations import Operation, Permission, ResourceType, Role
from confplane.security import api_tokens
from confplane.security.token_cache import TokenCache
from confplane.services.access import AccessControl
from confplane.services.access_admin.grants import GrantService, NewGrant
from confplane.services.access_admin.history import change_of
from confplane.services.access_admin.overview import OverviewService
from confplane.services.access_admin.tokens import KnownNames, Lifetimes, TokenService
from confplane.services.changes.callers import Caller
from confplane.services.ports.access import AccessQuery

if TYPE_CHECKING:
    from confplane.services.ports.access import AccessChange, AccessStore, StoredGrant

CLUSTERS = ("one", "two")
ADMINISTRATOR = Identity(ADMIN, Authentication.ADMIN_TOKEN)


@dataclass
class Denials:
    """Records refusals."""

    noted: list[tuple[str, str, str]] = field(default_factory=list)
    """Principal, operation and resource of each."""

    def denied(self, identity: Identity, source: str, request_id: str, operation: Operation, resource: str) -> None:
        del source, request_id
        self.noted.append((identity.principal, operation.value, resource))

    def unauthenticated(self, kind: str, source: str, request_id: str) -> None:
        del kind, source, request_id

    def admitted_admin(self, source: str, request_id: str) -> None:
        del source, request_id

    def broke_glass(self, identity: Identity, source: str, request_id: str, cluster: str, change_request: str) -> None:
        del identity, source, request_id, cluster, change_request


class World:
    """The services on a store, with a token cache."""

    def __init__(self, store: AccessStore) -> None:
        self.store = store
        self.book = TokenCache(self.store, 60.0)
        self.denials = Denials()
        self.control = AccessControl(self.book, self.denials)
        self.tokens = TokenService(
            self.store, self.control, api_tokens.mint, KnownNames(CLUSTERS, ["github:"]), Lifetimes()
        )
        self.grants = GrantService(self.store, CLUSTERS)
        self.overview = OverviewService(self.store)

    def caller(self, identity: Identity = ADMINISTRATOR, **more: Any) -> Caller:
        """Return a caller with half a minute of time."""
        access = self.control.access(identity, "127.0.0.1", "request-1")
        return Caller(access, time.monotonic() + 30, **more)

    async def history(self) -> list[AccessChange]:
        """Return the history, oldest first."""
        return (await self.store.search(AccessQuery(page_size=1_000)))[0][::-1]

    async def add(self, grant: StoredGrant) -> StoredGrant:
        """Store a grant that the service would refuse or change."""
        return await self.store.create_grant(grant, change_of(self.caller(), "grant-created", "grants/1"))

    async def user(self, name: str, *rights: NewGrant | Role, **more: Any) -> Identity:
        """Return a user, with grants given by the administrator; ``more`` are members of the identity."""
        principal = f"User:{name}"
        for right in rights:
            await self.give(NewGrant(principal, role=right) if isinstance(right, Role) else right)
        await self.book.refresh()
        return Identity(principal, Authentication.TOKEN, **more)

    async def give(self, wanted: NewGrant) -> StoredGrant:
        """Create a grant, and load it into the token cache."""
        made, _ = await self.grants.create(wanted, self.caller())
        await self.book.refresh()
        return made


def allow(principal: str, operation: Operation, resource: ResourceType, name: str = "*", **more: Any) -> NewGrant:
    """Return the content of an allowing grant."""
    return NewGrant(principal, operation=operation, resource=resource, name=name, **more)


def deny(principal: str, operation: Operation, resource: ResourceType, name: str = "*", **more: Any) -> NewGrant:
    """Return the content of a denying grant."""
    return NewGrant(principal, operation=operation, resource=resource, name=name, permission=Permission.DENY, **more)
