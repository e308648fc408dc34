"""The admin token: one bearer token, kept in a file."""

from __future__ import annotations

import hashlib
import hmac
from typing import TYPE_CHECKING, Final

from confplane.domain.access.identities import ADMIN, Authentication, Identity

if TYPE_CHECKING:
    from pathlib import Path

MIN_LENGTH: Final = 16


class AdminToken:
    """Authenticates exactly one principal, ``User:admin``. Holds the token's digest only."""

    def __init__(self, token: str) -> None:
        self._digest = _checked(token)
        self._identity = Identity(ADMIN, Authentication.ADMIN_TOKEN)

    @classmethod
    def from_file(cls, path: Path) -> AdminToken:
        """Read the token from the first line of a file.

        Raises:
            OSError: The file can't be read.
            ValueError: The token is too short.
        """
        return cls(_first_line(path))

    def reload(self, path: Path) -> None:
        """Read the token from the file again. The earlier token is no longer valid.

        Raises:
            OSError: The file can't be read; the earlier token remains valid.
            ValueError: The token is too short; the earlier token remains valid.
        """
        self._digest = _checked(_first_line(path))

    def authenticate(self, given: bytes) -> Identity | None:
        """Return ``User:admin`` for the right token; compared in constant time."""
        return self._identity if hmac.compare_digest(_digest(given), self._digest) else None

    def groups_of(self, principal: str) -> frozenset[str]:
        """Return no groups: the administrator has none."""
        del principal
        return frozenset()


def _digest(token: bytes) -> bytes:
    return hashlib.sha256(token).digest()


def _checked(token: str) -> bytes:
    """Return the digest of a token that is long enough."""
    if len(token) < MIN_LENGTH:
        raise ValueError(f"The admin token has fewer than {MIN_LENGTH} characters")
    return _digest(token.encode())


def _first_line(path: Path) -> str:
    lines = path.read_text().splitlines()
    return lines[0].strip() if lines else ""
