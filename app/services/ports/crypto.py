"""Sensitive configs: their cipher, fingerprints and the rotation of secrets. Implemented by ``app.crypto``."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from collections.abc import Mapping


class Cipher(Protocol):
    """Sensitive broker configs of one cluster, as its brokers store them.

    All of it takes milliseconds of CPU, in proportion to the iterations that a value was encoded with: call it in a
    worker thread, never on the event loop. No error that it raises holds a value.
    """

    def encode(self, broker_id: int, key: str, plain: str) -> str:
        """Return what is stored for a plain value, under the broker's current secret; another text at each call.

        Raises:
            EncoderSecretMissingError: The broker has no secret; the message says which setting to set.
            InvalidRequestError: The value is not Unicode text.
        """

    def decode(self, broker_id: int, key: str, stored: str) -> str:
        """Return the plain value, whichever of the broker's secrets (current, old) it is under.

        Raises:
            EncoderSecretMissingError: The broker has no secret.
            UndecodablePasswordError: Neither secret opens it. Brokers ignore such a value.
        """

    def matches(self, broker_id: int, key: str, stored: str, plain: str) -> bool:
        """Say whether a stored value is this plain one, compared in constant time; raises what ``decode`` does."""

    def fingerprint(self, broker_id: int | None, key: str, plain: str) -> str | None:
        """Return a keyed fingerprint of a plain value: the same however often it is encoded anew under a secret.

        Args:
            broker_id: Whose secret is the key; None for the cluster-wide default, which has the cluster's.
            key: The config key, which goes into it.
            plain: The value.

        Returns:
            16 hex digits, or None where there is no secret.
        """


class Fingerprinter(Protocol):
    """Fingerprints of broker configs. No result holds a sensitive value or its stored form."""

    def fingerprints(self, broker_id: int | None, config: Mapping[str, str]) -> dict[str, str | None]:
        """Return the fingerprint of each sensitive key of a stored map, None where it can't be known.

        It decodes: call it in a worker thread.
        """


@dataclass(frozen=True, slots=True)
class Rotation:
    """What a new encoder secret makes of one broker's stored map. Its representation shows keys, never values."""

    config: dict[str, str] = field(repr=False)
    """The whole map to store: all other keys as they were, in their order."""
    reencoded: tuple[str, ...] = ()
    """Keys that were under the old secret, or of a cipher that a broker with these parameters can't read."""
    current: tuple[str, ...] = ()
    """Keys that already were under the current secret, untouched."""
    undecodable: tuple[str, ...] = ()
    """Keys that no secret opens, untouched. Brokers ignore them too: they must be set anew."""
    old_known: bool = True
    """Whether the broker has an old secret, so that keys under it can be told from those that nothing opens."""

    @property
    def needed(self) -> bool:
        """Whether there is anything to write."""
        return bool(self.reencoded)


class Rotator(Protocol):
    """Brings what brokers have stored under their current secrets."""

    def rotate(self, broker_id: int, stored: Mapping[str, str]) -> Rotation:
        """Encode anew what is not under the broker's current secret yet; call it in a worker thread.

        Raises:
            EncoderSecretMissingError: There are passwords, and the broker has no secret.
        """
