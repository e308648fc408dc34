"""Passwords of brokers, with Kafka's password encoder and the keyring of a cluster."""

from __future__ import annotations

from typing import TYPE_CHECKING

from typing_extensions import override

from confplane.crypto.fingerprints import constant_time_equal
from confplane.domain.errors import UndecodablePasswordError
from confplane.domain.texts import clipped
from confplane.services.ports.crypto import Cipher

if TYPE_CHECKING:
    from confplane.crypto.keyring import Keyring


class KafkaCipher(Cipher):
    """Encodes under a broker's current secret; decodes under the current secret or, while there is one, the old one."""

    def __init__(self, keyring: Keyring) -> None:
        self._keyring = keyring

    @override
    def encode(self, broker_id: int, key: str, plain: str) -> str:
        del key
        return self._keyring.secret_for(broker_id).current.encode(plain)

    @override
    def decode(self, broker_id: int, key: str, stored: str) -> str:
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

    @override
    def matches(self, broker_id: int, key: str, stored: str, plain: str) -> bool:
        return constant_time_equal(self.decode(broker_id, key, stored), plain)

    @override
    def fingerprint(self, broker_id: int | None, key: str, plain: str) -> str | None:
        if not self._keyring.knows(broker_id):
            return None
        return self._keyring.secret_for(broker_id).fingerprint(key, plain)


if TYPE_CHECKING:
    # Only for the type checker.
    _: type[Cipher] = KafkaCipher
