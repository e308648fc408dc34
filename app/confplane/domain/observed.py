"""Configs of an observed Kafka cluster: the keys that the cluster governs, and their comparison with a stored map.

A cluster governs the quotas of client entities, and the configs of topics, brokers, groups and client metrics. All
other keys of a znode are foreign, and remain unchanged: SCRAM credentials, client configs, passwords, unknown keys.

Values are compared as their types parse them, because a describe may return a spelling that differs from the one that
was set (``0100`` becomes ``100``, ``delete , compact`` becomes ``delete,compact``). So values never differ only in
their spelling.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Final, NamedTuple

from confplane.domain.broker_keys import definition_of as broker_definition
from confplane.domain.definitions import ConfigKind, ConfigValueError, parse
from confplane.domain.entities import Entity, EntityType
from confplane.domain.errors import InvalidRequestError, InvalidTopicError
from confplane.domain.numbers import java_trim, parse_java_double
from confplane.domain.quotas import QUOTA_KEYS

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterable, Mapping

    from confplane.domain.definitions import Catalog, ConfigDef
    from confplane.domain.facets import Facet


# Reassignments of partitions: the throttles that their tools set, and those that no reassignment uses.
#
# ``kafka-reassign-partitions.sh --execute --throttle`` sets them before the reassignment begins, and ``--verify``
# removes them after its end. If nobody runs it, they stay, and slow down replicas that catch up later.
#
# Source: tools/src/main/java/org/apache/kafka/tools/reassign/ReassignPartitionsCommand.java (4.4).

_LOG_DIRS: Final = "replica.alter.log.dirs.io.max.bytes.per.second"
THROTTLES: Final = {
    EntityType.TOPIC: frozenset({"leader.replication.throttled.replicas", "follower.replication.throttled.replicas"}),
    EntityType.BROKER: frozenset(
        {"leader.replication.throttled.rate", "follower.replication.throttled.rate", _LOG_DIRS}
    ),
}
"""The keys that tools set for the time of a reassignment."""


def throttles_of(entity: Entity, keys: Iterable[str]) -> list[str]:
    """Return the throttles among the keys of a topic or broker that a reassignment between brokers may use.

    Moves between the disks of a broker are not among the reassignments that clusters list, so their throttle does not
    count. Neither does the default of all brokers, which tools do not set.
    """
    [(kind, name)] = entity.components
    if name is None:
        return []
    known = THROTTLES.get(kind, frozenset())
    return sorted(key for key in keys if key in known and key != _LOG_DIRS)


def unused_throttles(
    throttles: Mapping[Entity, Collection[str]], reassigned: Collection[str]
) -> list[tuple[Entity, str]]:
    """Return the throttles that no reassignment uses, each with its entity.

    Args:
        throttles: The throttles by entity.
        reassigned: The topics with a reassignment in progress, which may use the rates of all brokers.
    """
    return [
        (entity, key)
        for entity, keys in throttles.items()
        if (not reassigned if entity.types[0] is EntityType.BROKER else entity.get(EntityType.TOPIC) not in reassigned)
        for key in keys
    ]


REFERENCE: Final = "${"
"""The start of a reference to a config provider. Describes resolve references (KAFKA-21012), the log does not."""


_CACHED: Final = 10_000
_MANAGED: Final = "min.insync.replicas"
"""Source: ConfigurationControlManager of Kafka 4.4, and KIP-966."""


_DEFAULT_BROKER: Final = Entity.of(broker=None)
_MANAGED_KEYS: Final = frozenset({_MANAGED})


def managed_keys(entity: Entity) -> frozenset[str]:
    """Return the keys of an entity that a cluster with eligible leader replicas sets, and that no client can remove.

    Clients may set them. Of a single broker the cluster refuses both, so no broker has them.
    """
    return _MANAGED_KEYS if entity == _DEFAULT_BROKER else frozenset()


class Observation(NamedTuple):
    """One entity's declared configs, as observed in the cluster."""

    config: Mapping[str, str]
    hidden: frozenset[str]
    """Declared keys whose values the cluster does not show."""


class ObservedRules:
    """The rules of one cluster.

    Args:
        quotas: The facet of client quotas.
        configs: The facet of all other configs.
        catalog: Returns the cluster's definitions, as they currently are.
        keeps_eligible_replicas: Returns whether the cluster currently keeps eligible leader replicas (KIP-966).
    """

    def __init__(
        self,
        quotas: Facet,
        configs: Facet,
        catalog: Callable[[], Catalog],
        keeps_eligible_replicas: Callable[[], bool],
    ) -> None:
        self._quotas = quotas
        self._configs = configs
        self._catalog = catalog
        self._keeps_eligible_replicas = keeps_eligible_replicas
        self._governed: dict[tuple[tuple[EntityType, ...], str], bool] = {}
        self._governed_by: Catalog | None = None

    def facet_of(self, entity: Entity) -> Facet:
        """Return the facet of an entity's governed keys."""
        return self._quotas if entity.types[0] in self._quotas.entity_types else self._configs

    def governs(self, entity: Entity, key: str) -> bool:
        """Return True if the cluster's value of a key is followed."""
        catalog = self._catalog()
        if catalog is not self._governed_by or len(self._governed) > _CACHED:
            self._governed, self._governed_by = {}, catalog
        # It depends on the types of an entity, not on its names.
        kind = entity.types, key
        found = self._governed.get(kind)
        if found is None:
            facet = self.facet_of(entity)
            found = self._governed[kind] = facet.owns(entity, key) and not facet.is_secret(entity, key)
        return found

    def manages(self, entity: Entity, key: str) -> bool:
        """Return True if the cluster itself sets a key, and may refuse to let clients set or remove it.

        With eligible leader replicas the cluster sets ``min.insync.replicas`` in the default of all brokers. Without
        them it is a key like any other.
        """
        return entity.types[0] is EntityType.BROKER and key == _MANAGED and self._keeps_eligible_replicas()

    def follows(self, entity: Entity, key: str) -> bool:
        """Return True if external changes of a key are followed in every mode.

        These are the keys that the cluster manages, and the throttles of reassignments, whose tools also remove them.
        """
        return self.manages(entity, key) or key in THROTTLES.get(entity.types[0], ())

    def entity_of(self, components: Iterable[tuple[str, str | None]]) -> Entity | str:
        """Return the entity for a cluster's own names, or the reason why ZooKeeper has no place for it.

        Args:
            components: Entity types and names. None means the default entity.
        """
        try:
            entity = Entity.from_components(components)
            entity.check_new()
            self.facet_of(entity).check_entity(entity)
        except (InvalidRequestError, InvalidTopicError) as error:
            return error.detail
        return entity

    def may_exist(self, entity: Entity) -> bool:
        """Return True if the cluster can have an entity of this name, for example a broker whose name is a number."""
        try:
            self.facet_of(entity).check_entity(entity)
        except (InvalidRequestError, InvalidTopicError):
            return False
        return True

    def reconcile(self, entity: Entity, stored: Mapping[str, str], observation: Observation) -> dict[str, str]:
        """Return a stored map with the observed configs of the cluster. The result is equal if nothing differs.

        A value that differs only in its spelling keeps the stored spelling. For references to config providers only
        their presence is compared.
        """
        after = {
            key: value
            for key, value in stored.items()
            if key in observation.config or key in observation.hidden or not self.governs(entity, key)
        }
        for key, value in observation.config.items():
            old = after.get(key)
            if old != value and self.governs(entity, key) and not self.same(entity, key, old, value):
                after[key] = value
        return after

    def same(self, entity: Entity, key: str, one: str | None, other: str | None) -> bool:
        """Return True if two values of a governed key mean the same, or can't be compared. None means absent."""
        if one is None or other is None:
            return one is other
        if one == other or REFERENCE in one or REFERENCE in other:
            return True
        if entity.types[0] in _CLIENTS:
            return _quota(one) == _quota(other)
        definition = _definition_of(self._catalog(), entity, key)
        return definition is not None and _parsed(definition, one) == _parsed(definition, other)

    def _hidden_reason(self, entity: Entity, key: str) -> str:
        definition = _definition_of(self._catalog(), entity, key)
        if definition is not None:
            return _NOT_SHOWN if definition.sensitive else _NOT_DEFINED
        return _BLOCKING if entity.types[0] is EntityType.TOPIC else _UNKNOWN

    def uncompared(self, entity: Entity, observation: Observation) -> dict[str, str]:
        """Return the declared keys that are not followed, each with the reason."""
        found = {key: self._hidden_reason(entity, key) for key in observation.hidden}
        for key, value in observation.config.items():
            if not self.governs(entity, key):
                secret = self.facet_of(entity).owns(entity, key)
                found[key] = (
                    "Its type is unknown here, so its value may be a secret" if secret else "No catalog has this key"
                )
            elif REFERENCE in value:
                found[key] = "A reference to a config provider is not compared"
        return found


_NOT_SHOWN: Final = "The cluster does not show the value of a password"
_NOT_DEFINED: Final = "The cluster does not show the value of a key that Kafka does not define"
_UNKNOWN: Final = "No catalog has this key, and the cluster does not show its value"
_BLOCKING: Final = (
    f"{_UNKNOWN}. Kafka refuses every alter of the topic that leaves the key, for example one of Kafka 3;"
    " `confplane delete` removes it, and while the cluster is only observed `kafka-configs.sh --alter --delete-config`"
)


def _definition_of(catalog: Catalog, entity: Entity, key: str) -> ConfigDef | None:
    kind = entity.types[0]
    return broker_definition(catalog, key) if kind is EntityType.BROKER else catalog.of(ConfigKind(kind.value)).get(key)


_CLIENTS: Final = frozenset(kind for quota in QUOTA_KEYS.values() for kinds in quota.kinds for kind in kinds)


def _quota(stored: str) -> float | str:
    # Quotas are doubles in the cluster's protocol and log, including LONGs.
    try:
        value = parse_java_double(stored)
    except ValueError:
        return stored
    return "NaN" if math.isnan(value) else value


def _parsed(definition: ConfigDef, stored: str) -> tuple[bool, object]:
    try:
        value = parse(definition, stored)
    except ConfigValueError:
        # The rules are those of another release: the cluster keeps its spelling, and so does the tree once the value
        # was written.
        return False, java_trim(stored)
    return True, "NaN" if isinstance(value, float) and math.isnan(value) else value
