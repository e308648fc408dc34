"""The admin token: one bearer token, kept in a file."""

from __future__ import annotations

import hashlib
import hmac
from typing import TYPE_CHECKING, Final

from app.domain.access.identities import ADMIN, Authentication, Identity

if TYPE_CHECKING:
    from pathlib import Path

MIN_LENGTH: Final = 16


class AdminToken:
    """Authenticates exactly one principal, ``User:admin``. Holds the token's digest only."""

    def __init__(self, token: str) -> None:
        if len(token) < MIN_LENGTH:
            raise ValueError(f"The admin token has fewer than {MIN_LENGTH} characters")
        self._digest = _digest(token.encode())
        self._identity = Identity(ADMIN, Authentication.ADMIN_TOKEN)

    @classmethod
    def from_file(cls, path: Path) -> AdminToken:
        """Read the token from the first line of a file.

        Raises:
            OSError: The file can't be read.
            ValueError: The token is too short.
        """
        lines = path.read_text().splitlines()
        return cls(lines[0].strip() if lines else "")

    def authenticate(self, given: bytes) -> Identity | None:
        """Return ``User:admin`` for the right token; compared in constant time."""
        return self._identity if hmac.compare_digest(_digest(given), self._digest) else None


def _digest(token: bytes) -> bytes:
    return hashlib.sha256(token).digest()
