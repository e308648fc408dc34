"""The admin token: one bearer token, kept in a file."""

from __future__ import annotations

import hashlib
import hmac
from typing import TYPE_CHECKING, Final

from app.domain.errors import UnauthenticatedError
from app.security.principals import Principal

if TYPE_CHECKING:
    from pathlib import Path

MIN_LENGTH: Final = 16


class AdminToken:
    """Authenticates exactly one principal, ``User:admin``. Holds the token's digest only."""

    def __init__(self, token: str) -> None:
        if len(token) < MIN_LENGTH:
            raise ValueError(f"The admin token has fewer than {MIN_LENGTH} characters")
        self._digest = _digest(token.encode())
        self._principal = Principal("User:admin", "admin-token")

    @classmethod
    def from_file(cls, path: Path) -> AdminToken:
        """Read the token from the first line of a file.

        Raises:
            OSError: The file can't be read.
            ValueError: The token is too short.
        """
        lines = path.read_text().splitlines()
        return cls(lines[0].strip() if lines else "")

    def authenticate(self, authorization: bytes | None) -> Principal:
        """Return ``User:admin`` for the right token; compared in constant time.

        Raises:
            UnauthenticatedError: No token, or not the right one.
        """
        if authorization is None:
            raise UnauthenticatedError("No bearer token was given; send the header Authorization: Bearer <token>")
        scheme, _, token = authorization.partition(b" ")
        if scheme.lower() != b"bearer" or not hmac.compare_digest(_digest(token.strip()), self._digest):
            raise UnauthenticatedError("The bearer token is not valid")
        return self._principal


def _digest(token: bytes) -> bytes:
    return hashlib.sha256(token).digest()
