"""Principals, and the port that authenticates them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol


@dataclass(frozen=True, slots=True)
class Principal:
    """The caller of a request, in Kafka's form ``User:name``."""

    name: str
    kind: str
    """The kind of authentication: ``admin-token``."""


class Authenticator(Protocol):
    """Turns credentials into a principal. More ways to authenticate are more implementations."""

    def authenticate(self, authorization: bytes | None) -> Principal:
        """Return the principal of an ``Authorization`` header.

        Raises:
            UnauthenticatedError: No credentials, or not valid ones. The text never repeats them.
        """
