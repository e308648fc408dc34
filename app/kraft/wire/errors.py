"""Errors of the wire: each says what happened, and none of them holds a secret."""

from __future__ import annotations


class KraftError(Exception):
    """The root of all errors of this package."""


class WireError(KraftError):
    """Bytes that are no message, or a message that has no bytes.

    Args:
        name: The message, as Kafka spells it.
        at: The offset in bytes at which reading ended; None where a message was written.
        why: The broken rule.
    """

    def __init__(self, name: str, at: int | None, why: str) -> None:
        super().__init__(f"{name}: {why}" if at is None else f"{name} at byte {at}: {why}")
        self.name = name
        self.at = at
