"""Secrets among altered configs: in clear for the cluster, and as keyed fingerprints for everything that is stored."""

from __future__ import annotations

import asyncio
import secrets
from typing import TYPE_CHECKING, Final, NamedTuple

from confplane.domain.broker_keys import is_password
from confplane.domain.entities import Entity, EntityType
from confplane.services.ports.applying import FINGERPRINT

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from confplane.domain.observed import ObservedRules
    from confplane.services.ports.crypto import Cipher

_RANDOM_BYTES: Final = 8
HIDDEN: Final = "[hidden]"


class Secret(NamedTuple):
    """The value of one secret key."""

    plain: str
    fingerprint: str
    """Equal for equal values. Without a fingerprint key it is random, so that each read returns another value."""


class SecretOpener:
    """Opens the secrets of one cluster, each with its fingerprint."""

    def __init__(self, rules: ObservedRules, cipher: Cipher) -> None:
        self._rules = rules
        self._cipher = cipher

    async def of(self, entity: Entity, config: Mapping[str, str], keys: Iterable[str]) -> dict[str, Secret]:
        """Return the secrets among some keys of a stored map.

        Raises:
            EncoderSecretMissingError: This process has no secret that opens a broker's passwords.
            UndecodablePasswordError: No secret opens a password.
        """
        is_secret = self._rules.facet_of(entity).is_secret
        found = {key: config[key] for key in keys if key in config and is_secret(entity, key)}
        return await asyncio.to_thread(self._opened, entity, found) if found else {}

    def _opened(self, entity: Entity, stored: Mapping[str, str]) -> dict[str, Secret]:
        name = entity.get(EntityType.BROKER)
        broker_id = None if name is None else int(name)
        opened = {}
        for key, value in stored.items():
            encoded = broker_id is not None and is_password(key)
            plain = self._cipher.decode(broker_id, key, value) if broker_id is not None and encoded else value
            fingerprint = self._cipher.fingerprint(broker_id, key, plain) or secrets.token_hex(_RANDOM_BYTES)
            opened[key] = Secret(plain, f"{FINGERPRINT}{fingerprint}")
        return opened


def redact(text: str, found: Iterable[Secret]) -> str:
    """Return a message of the cluster without the secrets that it may repeat."""
    for each in found:
        if each.plain:
            text = text.replace(each.plain, HIDDEN)
    return text
