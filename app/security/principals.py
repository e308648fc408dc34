"""Principals and the port through which they are known."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol


@dataclass(frozen=True, slots=True)
class Principal:
    """Who is calling, in Kafka's form ``User:name``."""

    name: str
    kind: str
    """How the principal is known: ``admin-token``."""


class Authenticator(Protocol):
    """Turns credentials into a principal. More ways to authenticate are more implementations."""

    def authenticate(self, authorization: bytes | None) -> Principal:
        """Return the principal of an ``Authorization`` header.

        Raises:
            UnauthenticatedError: None given, or not valid. The text never repeats what was given.
        """
