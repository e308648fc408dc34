"""Implementation of the port ``Cipher`` with Kafka's password encoder and the keyring of a cluster."""

from __future__ import annotations

from typing import TYPE_CHECKING

from confplane.crypto.fingerprints import constant_time_equal
from confplane.domain.errors import UndecodablePasswordError
from confplane.domain.texts import clipped

if TYPE_CHECKING:
    from confplane.crypto.keyring import Keyring
    from confplane.services.ports.crypto import Cipher


class KafkaCipher:
    """Encodes under a broker's current secret; decodes under the current secret or, while there is one, the old one."""

    def __init__(self, keyring: Keyring) -> None:
        self._keyring = keyring

    def encode(self, broker_id: int, key: str, plain: str) -> str:
        """Encode a value."""
        del key
        return self._keyring.secret_for(broker_id).current.encode(plain)

    def decode(self, broker_id: int, key: str, stored: str) -> str:
        """Decode a value."""
        secrets = self._keyring.secret_for(broker_id)
        encoders = [secrets.current] if secrets.old is None else [secrets.current, secrets.old]
        for encoder in encoders:
            try:
                return encoder.decode(stored)
            except UndecodablePasswordError:
                continue
        tried = "its encoder secret does not open" if secrets.old is None else "neither of its encoder secrets opens"
        raise UndecodablePasswordError(
            f"The stored value of {clipped(key)} of broker {broker_id} can't be decoded: {tried} it, or it was altered"
        )

    def matches(self, broker_id: int, key: str, stored: str, plain: str) -> bool:
        """Compare a stored value with a plain one."""
        return constant_time_equal(self.decode(broker_id, key, stored), plain)

    def fingerprint(self, broker_id: int | None, key: str, plain: str) -> str | None:
        """Return a fingerprint."""
        if not self._keyring.knows(broker_id):
            return None
        return self._keyring.secret_for(broker_id).fingerprint(key, plain)


if TYPE_CHECKING:
    # Only for the type checker.
    _: type[Cipher] = KafkaCipher
