"""Sensitive configs: their cipher, fingerprints and the rotation of secrets. Implemented by ``confplane.crypto``."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from collections.abc import Mapping


class Cipher(Protocol):
    """Sensitive broker configs of one cluster, as its brokers store them.

    The calls take milliseconds of CPU, in proportion to the iterations of a value's encoding: call them in a worker
    thread, never on the event loop. No error holds a value.
    """

    def encode(self, broker_id: int, key: str, plain: str) -> str:
        """Return the encoded form of a plain value, under the broker's current secret; a different text at each call.

        Raises:
            EncoderSecretMissingError: The broker has no secret; the message names the setting.
            InvalidRequestError: The value is not Unicode text.
        """

    def decode(self, broker_id: int, key: str, stored: str) -> str:
        """Return the plain value, encoded under either of the broker's secrets (current, old).

        Raises:
            EncoderSecretMissingError: The broker has no secret.
            UndecodablePasswordError: Neither secret opens the value. Brokers ignore such a value.
        """

    def matches(self, broker_id: int, key: str, stored: str, plain: str) -> bool:
        """Return True if a stored value encodes the plain one, compared in constant time; raises as ``decode``."""

    def fingerprint(self, broker_id: int | None, key: str, plain: str) -> str | None:
        """Return a keyed fingerprint of a plain value: equal for all encodings of the value under a secret.

        Args:
            broker_id: The broker whose secret is the key; None for the cluster-wide default, with the cluster's secret.
            key: The config key, an input of the fingerprint.
            plain: The value.

        Returns:
            16 hex digits, or None if there is no secret.
        """


class Fingerprinter(Protocol):
    """Fingerprints of broker configs. No result holds a sensitive value or its stored form."""

    def fingerprints(self, broker_id: int | None, config: Mapping[str, str]) -> dict[str, str | None]:
        """Return the fingerprint of each sensitive key of a stored map; None for an unknown fingerprint.

        The call decodes values: call it in a worker thread.
        """


@dataclass(frozen=True, slots=True)
class Rotation:
    """The result of a new encoder secret for one broker's stored map. Its representation shows keys, never values."""

    config: dict[str, str] = field(repr=False)
    """The whole map to store; keys that are not re-encoded keep their values and their order."""
    reencoded: tuple[str, ...] = ()
    """Keys whose values were under the old secret, or in a cipher that a broker with these parameters can't read."""
    current: tuple[str, ...] = ()
    """Keys whose values were under the current secret already; unchanged."""
    undecodable: tuple[str, ...] = ()
    """Keys whose values no secret opens; unchanged. Brokers ignore them too: they must be set again."""
    old_known: bool = True
    """True if the broker has an old secret, so that its values can be distinguished from undecodable ones."""

    @property
    def needed(self) -> bool:
        """True if the map must be written."""
        return bool(self.reencoded)


class Rotator(Protocol):
    """Re-encodes the stored values of a broker under its current secret."""

    def rotate(self, broker_id: int, stored: Mapping[str, str]) -> Rotation:
        """Re-encode all values that are not under the broker's current secret yet; call it in a worker thread.

        Raises:
            EncoderSecretMissingError: The map has passwords, and the broker has no secret.
        """
