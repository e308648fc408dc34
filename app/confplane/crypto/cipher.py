"""Passwords of brokers, with Kafka's password encoder and the keyring of a cluster, and a new secret for them."""

from __future__ import annotations

from typing import TYPE_CHECKING

from typing_extensions import override

from confplane.crypto.fingerprints import constant_time_equal
from confplane.domain.errors import UndecodablePasswordError
from confplane.domain.texts import clipped
from confplane.services.ports.crypto import Cipher, Rotation, Rotator

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from confplane.crypto.keyring import BrokerSecrets, Keyring
    from confplane.crypto.password_encoder import PasswordEncoder


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


# Replacement of an encoder secret: the values of a broker's stored map to encode again, and the resulting map.
#
# This is a pure function of the stored map. Values under the current secret are not changed, so another run resumes a
# rotation that was killed, and has no effect after a complete one. A broker does the same to its own node when it
# starts with ``password.encoder.old.secret`` (DynamicBrokerConfig.scala), except that the broker always writes.


class KafkaRotator(Rotator):
    """Rotates with the keyring of a cluster."""

    def __init__(self, keyring: Keyring, *, encoded: Callable[[str], bool]) -> None:
        """Initialize with the secrets, and the rule that decides whether a key's value is stored encoded."""
        self._keyring = keyring
        self._encoded = encoded

    @override
    def rotate(self, broker_id: int, stored: Mapping[str, str]) -> Rotation:
        if not any(map(self._encoded, stored)):
            return Rotation(dict(stored))
        return plan_rotation(stored, self._encoded, self._keyring.secret_for(broker_id))


def plan_rotation(stored: Mapping[str, str], encoded: Callable[[str], bool], secrets: BrokerSecrets) -> Rotation:
    """Encode the values that are not under the current secret yet.

    Args:
        stored: A broker's stored map.
        encoded: Returns, for a key, whether its value is stored encoded.
        secrets: The broker's secrets; without an old secret only values in unreadable ciphers are encoded again.
    """
    config = dict(stored)
    reencoded, current, undecodable = [], [], []
    for key in sorted(filter(encoded, stored)):
        value = stored[key]
        plain = _plain(secrets.current, value)
        if plain is not None and secrets.current.readable(value):
            current.append(key)
            continue
        if plain is None and secrets.old is not None:
            plain = _plain(secrets.old, value)
        if plain is None:
            undecodable.append(key)
            continue
        config[key] = secrets.current.encode(plain)
        reencoded.append(key)
    return Rotation(config, tuple(reencoded), tuple(current), tuple(undecodable), old_known=secrets.old is not None)


def _plain(encoder: PasswordEncoder, stored: str) -> str | None:
    try:
        return encoder.decode(stored)
    except UndecodablePasswordError:
        return None


if TYPE_CHECKING:
    # Only for the type checker.
    _: tuple[type[Cipher], type[Rotator]] = (KafkaCipher, KafkaRotator)
