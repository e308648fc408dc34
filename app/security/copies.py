"""The copy of tokens and grants in memory."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Sequence

    from app.domain.access.grants import Grant
    from app.domain.access.identities import Identity


class MemoryCopy:
    """Tokens and grants of one moment."""

    def __init__(self) -> None:
        self.version = 0

    def grants_of(self, identity: Identity) -> Sequence[Grant]:
        """Return the grants to a caller's principal, to its groups and to everybody."""
        del identity
        return ()

    def check(self, identity: Identity) -> None:
        """Refuse a credential that is no longer valid."""
