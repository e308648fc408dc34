"""Grants in memory, for tests of single parts; whole services have theirs in Postgres (tests/support/inside.py)."""

from __future__ import annotations

import uuid
from typing import TYPE_CHECKING, Any

from confplane.domain.access.grants import Grant
from confplane.domain.access.identities import Authentication, Identity
from confplane.services.access import Access, AccessControl

if TYPE_CHECKING:
    from collections.abc import Sequence


class Grants:
    """Grants in memory; every change takes effect immediately.

    Implements :class:`confplane.services.ports.access.AccessCopy`.
    """

    def __init__(self, *grants: Grant) -> None:
        self.version = 0
        self._grants = list(grants)

    def give(self, principal: str, **members: Any) -> Grant:
        """Give a grant; members as those of :class:`Grant`."""
        made = Grant(uuid.uuid4(), principal, **members)
        self._grants.append(made)
        self.version += 1
        return made

    def take(self, *grants: Grant) -> None:
        """Remove grants."""
        for each in grants:
            self._grants.remove(each)
        self.version += 1

    def grants_of(self, identity: Identity) -> Sequence[Grant]:
        return [
            each
            for each in self._grants
            if each.principal in identity.grantees or (each.principal in identity.denying_groups and not each.allows)
        ]

    def check(self, identity: Identity) -> None:
        """Accept every credential."""


def access_of(principal: str, grants: Grants) -> Access:
    """Return the access of a caller."""
    return AccessControl(grants).access(Identity(principal, Authentication.TOKEN), "127.0.0.1", "r")
