"""The delivery of one entity to a Kafka cluster: which keys of its znode are sent, and with which values.

Secrets are in clear for the cluster, and keyed fingerprints in everything that is stored.
"""

from __future__ import annotations

import asyncio
import hmac
from dataclasses import replace
from secrets import token_bytes
from typing import TYPE_CHECKING, Final, NamedTuple

from confplane.domain.broker_keys import is_password
from confplane.domain.entities import Entity, EntityType
from confplane.services.ports.applying import (
    FINGERPRINT,
    AlterApplied,
    Alteration,
    AlterRefused,
    AlterRetriable,
    AlterUnknown,
    Delivery,
)

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Mapping

    from confplane.domain.observed import ObservedRules
    from confplane.services.ports.applying import (
        AlterOutcome,
        RefusedValue,
        TargetState,
        TargetStates,
        WritableKafkaCluster,
    )
    from confplane.services.ports.crypto import Cipher

_HEX_DIGITS: Final = 16
HIDDEN: Final = "[hidden]"


class Secret(NamedTuple):
    """The value of one secret key."""

    plain: str
    fingerprint: str
    """Equal for equal values. Without an encoder secret this holds only within one process."""


class SecretOpener:
    """Opens the secrets of one cluster, each with its fingerprint."""

    def __init__(self, rules: ObservedRules, cipher: Cipher) -> None:
        self._rules = rules
        self._cipher = cipher
        # Retries of a delivery have equal fingerprints, so that the number of those without an outcome has a bound.
        self._key = token_bytes()

    async def of(self, entity: Entity, config: Mapping[str, str], keys: Iterable[str]) -> dict[str, Secret]:
        """Return the secrets among some keys of a stored map, and the values with a NUL, which Postgres can't store.

        Raises:
            EncoderSecretMissingError: This process has no secret that opens a broker's passwords.
            UndecodablePasswordError: No secret opens a password.
        """
        is_secret = self._rules.facet_of(entity).is_secret
        found = {
            key: value
            for key in keys
            if (value := config.get(key)) is not None and (is_secret(entity, key) or "\0" in value)
        }
        return await asyncio.to_thread(self._opened, entity, found) if found else {}

    def _opened(self, entity: Entity, stored: Mapping[str, str]) -> dict[str, Secret]:
        name = entity.get(EntityType.BROKER)
        broker_id = None if name is None else int(name)
        opened = {}
        for key, value in stored.items():
            encoded = broker_id is not None and is_password(key)
            plain = self._cipher.decode(broker_id, key, value) if broker_id is not None and encoded else value
            fingerprint = self._cipher.fingerprint(broker_id, key, plain) or self._fingerprint(name, key, plain)
            opened[key] = Secret(plain, f"{FINGERPRINT}{fingerprint}")
        return opened

    def _fingerprint(self, name: str | None, key: str, plain: str) -> str:
        """Return a fingerprint under the key of this process, which is stored nowhere."""
        message = "\0".join((name or "", key, plain)).encode(errors="surrogatepass")
        return hmac.digest(self._key, message, "sha256").hex()[:_HEX_DIGITS]


def redact(text: str, found: Iterable[Secret]) -> str:
    """Return a message of the cluster without the secrets that it may repeat."""
    for each in found:
        if each.plain:
            text = text.replace(each.plain, HIDDEN)
    return text


class EntityDelivery(NamedTuple):
    """One entity with its delivery, about to be sent."""

    entity: Entity
    delivery: Delivery
    secrets: Mapping[str, Secret]
    refused: Mapping[str, RefusedValue]
    """The keys that the cluster refused earlier, and that are not sent again."""
    absent: frozenset[str] = frozenset()
    """The removed keys of the delivery that the cluster never had, according to the trail."""

    @property
    def alteration(self) -> Alteration:
        """The keys with their values in clear."""
        return Alteration(self.entity, self.delivery.values | {key: each.plain for key, each in self.secrets.items()})

    def excluding(self, keys: Collection[str]) -> EntityDelivery:
        """Return the delivery without some keys."""
        values = {key: value for key, value in self.delivery.values.items() if key not in keys}
        secrets = {key: each for key, each in self.secrets.items() if key in values}
        refused = {key: each for key, each in self.refused.items() if key not in values}
        return EntityDelivery(self.entity, replace(self.delivery, values=values), secrets, refused)

    def to_outcome(self, answer: AlterOutcome) -> AlterOutcome:
        """Return the outcome of the delivery: the cluster's answer without secrets, and with absent keys as removed."""
        only_absent = self.delivery.values.keys() <= self.absent
        match answer:
            case AlterRefused() | AlterRetriable(unregistered=True) if only_absent:
                return AlterApplied()
            case AlterRefused():
                return self._redacted(answer)
            case AlterApplied(refused):
                return AlterApplied(
                    {key: self._redacted(each) for key, each in refused.items() if key not in self.absent}
                )
            case AlterUnknown() | AlterRetriable():
                return replace(answer, reason=redact(answer.reason, self.secrets.values()))

    def _redacted(self, refused: AlterRefused) -> AlterRefused:
        return replace(refused, text=redact(refused.text, self.secrets.values()))


async def topic_ids_of(
    cluster: WritableKafkaCluster, entities: Iterable[Entity], deadline: float
) -> dict[str, str | None]:
    """Return the present ids of the topics among entities, by entity id; None: the cluster does not show the topic."""
    names = {each.id: name for each in entities if (name := each.get(EntityType.TOPIC)) is not None}
    ids = await cluster.topic_ids(list(names.values()), deadline) if names else {}
    return {entity_id: ids.get(name) for entity_id, name in names.items()}


async def find_absent_keys(
    states: TargetStates, cluster: str, removed: Mapping[str, tuple[TargetState, Collection[str]]]
) -> dict[str, set[str]]:
    """Return the absent keys among removed ones, by entity id: keys that the Kafka cluster never had.

    The trail shows that, by the value before the first change that the cluster has not taken. Another tool may have set
    the keys since, so their removal is sent like any other. It counts as applied also if the cluster refuses it, or if
    the broker is not registered.
    """
    found: dict[str, set[str]] = {}
    unknown: dict[str, set[str]] = {}
    for entity_id, (state, keys) in removed.items():
        for key in keys:
            if _may_be_there(state, key):
                continue
            if key in state.absent:
                found.setdefault(entity_id, set()).add(key)
            elif key not in state.refused_keys:
                unknown.setdefault(entity_id, set()).add(key)
    befores = await states.values_before(cluster, unknown) if unknown else {}
    for (entity_id, key), before in befores.items():
        if before is None:
            found.setdefault(entity_id, set()).add(key)
    return found


def _may_be_there(state: TargetState, key: str) -> bool:
    """Return True if the cluster took a value of a key, may still take one, or was seen with one.

    A delivery of the removal without a known outcome can't have set the key, and neither can one of a value that the
    cluster refused later: a first request is often lost while the cluster comes back.
    """
    base = state.base.get(key)
    seen = base is not None and base.value is not None
    without_effect = {None, *state.refused_later.get(key, ())}
    uncertain = not without_effect.issuperset(state.uncertain.get(key, ()))
    # A key to put back may be there, but not one that a client reapplies after a refusal.
    put_back = key in state.reapply - state.absent
    return seen or state.applied.get(key) is not None or uncertain or put_back
