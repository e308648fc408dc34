"""Conversion of a cluster's responses and records into the entities and the declared configs of this service.

In a describe the declared configs have one source for each type of resource (``ConfigSource`` in
clients/src/main/java/org/apache/kafka/common/requests/DescribeConfigsResponse.java). A broker's own configs are among
the synonyms, after the value that is effective for the broker.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Final

from confplane.domain.config_resources import RESOURCE_ENTITY_TYPES
from confplane.domain.entities import Entity, EntityType
from confplane.domain.errors import InvalidRequestError
from confplane.domain.numbers import java_double
from confplane.domain.quotas import ClientQuotasFacet
from confplane.kraft.views import ConfigResourceType, KafkaConfigSource, Resource
from confplane.services.ports.kafka import KraftEntityType, ObservedEntity, Unmanaged, kraft_type_of_entity_type

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from confplane.domain.observed import ObservedRules
    from confplane.kraft.wire.messages.configs import DescribeConfigsResourceResult


_SOURCES: Final = {
    EntityType.TOPIC: KafkaConfigSource.TOPIC,
    EntityType.CLIENT_METRICS: KafkaConfigSource.CLIENT_METRICS,
    EntityType.GROUP: KafkaConfigSource.GROUP,
}
"""The source of declared configs by entity type; those of brokers depend on the name."""
_RESOURCE_TYPES: Final = {kind: code for code, kind in RESOURCE_ENTITY_TYPES.items()}
_LEVELS: Final[Mapping[int, str]] = {
    KafkaConfigSource.BROKER: "for the broker",
    KafkaConfigSource.DEFAULT_BROKER: "as the default of all brokers",
}
"""The dynamic levels of a broker's configs."""
_BELOW: Final = frozenset({KafkaConfigSource.STATIC_BROKER, KafkaConfigSource.DEFAULT})
"""The levels below them."""
_QUOTAS: Final = ClientQuotasFacet()


class EntityConverter:
    """The conversion for one cluster. Stateless.

    Args:
        rules: The rules of the cluster's configs.
    """

    def __init__(self, rules: ObservedRules) -> None:
        self._rules = rules

    def quota_entity(self, components: Sequence[tuple[str, str | None]]) -> Entity | Unmanaged:
        """Return an entity of client quotas by its types and names; None names the default entity."""
        found = self._rules.entity_of(components)
        if isinstance(found, Entity):
            return found
        name = ",".join(kind if value is None else f"{kind}={value}" for kind, value in components)
        return Unmanaged(KraftEntityType.QUOTAS, name, found)

    def quotas(
        self, components: Sequence[tuple[str, str | None]], values: Iterable[tuple[str, float]]
    ) -> ObservedEntity | Unmanaged:
        """Return the quotas of an entity."""
        entity = self.quota_entity(components)
        if isinstance(entity, Unmanaged):
            return entity
        return ObservedEntity(entity, {key: spelled(entity, key, value) for key, value in values})

    def entity(self, resource: Resource) -> Entity | Unmanaged:
        """Return the entity of a config resource; a broker without a name is the default of all brokers."""
        kind, name = resource.type, resource.name
        default = kind is ConfigResourceType.BROKER and not name
        entity_type = RESOURCE_ENTITY_TYPES[kind]
        found = self._rules.entity_of([(entity_type.value, None if default else name)])
        return found if isinstance(found, Entity) else Unmanaged(kraft_type_of_entity_type(entity_type), name, found)

    def configs(
        self, entity: Entity, described: Iterable[DescribeConfigsResourceResult], topic_id: str | None = None
    ) -> ObservedEntity:
        """Return the declared configs in a describe."""
        config: dict[str, str] = {}
        hidden: set[str] = set()
        for key, value in _declared(entity, described):
            if value is None:
                hidden.add(key)
            else:
                config[key] = value
        return ObservedEntity(entity, config, frozenset(hidden), topic_id, self._ineffective(entity, described))

    def _ineffective(self, entity: Entity, described: Iterable[DescribeConfigsResourceResult]) -> dict[str, str]:
        """Return the keys that are set for a broker and that it does not use, each with the reason."""
        if entity.components[0][0] is not EntityType.BROKER or entity.components[0][1] is None:
            return {}
        found: dict[str, str] = {}
        for each in described:
            first = each.synonyms[0] if each.synonyms else None
            level = None if first is None else _LEVELS.get(first.source)
            if first is None or level is None or first.name != each.name or each.is_sensitive:
                continue
            if first.value is None or each.value is None or not self._rules.governs(entity, each.name):
                continue
            if not self._rules.same(entity, each.name, first.value, each.value):
                found[each.name] = f"{first.value} is set {level}, and the broker uses {each.value}"
        return found

    @staticmethod
    def static_values(described: Iterable[DescribeConfigsResourceResult]) -> dict[str, str]:
        """Return the values below the dynamic levels in a describe of a broker with synonyms."""
        found: dict[str, str] = {}
        for each in described:
            for level in each.synonyms:
                if level.source in _BELOW and level.name == each.name and level.value is not None:
                    found.setdefault(each.name, level.value)
        return found


def resource_of(entity: Entity) -> Resource:
    """Return the config resource of an entity."""
    kind, name = entity.components[0]
    return Resource(_RESOURCE_TYPES[kind], name or "")


def spelled(entity: Entity, key: str, value: float) -> str:
    """Return a quota as this service stores it. The protocol uses doubles, also for LONGs.

    A value that this service would refuse (NaN in Kafka 4.0, a key of a later release) has Java's spelling of a double.
    """
    try:
        return _QUOTAS.encode(entity, key, value, exact=False)
    except InvalidRequestError:
        if math.isnan(value):
            return "NaN"
        return java_double(value) if math.isfinite(value) else f"{'-' if value < 0 else ''}Infinity"


def _declared(entity: Entity, described: Iterable[DescribeConfigsResourceResult]) -> Iterable[tuple[str, str | None]]:
    kind, name = entity.components[0]
    if kind is not EntityType.BROKER:
        return [(each.name, each.value) for each in described if each.config_source == _SOURCES[kind]]
    if name is None:
        return [(each.name, each.value) for each in described if each.config_source == KafkaConfigSource.DEFAULT_BROKER]
    # The names are compared, because the config of a listener has the broker's general one among its synonyms.
    return [
        (each.name, level.value)
        for each in described
        for level in each.synonyms
        if level.source == KafkaConfigSource.BROKER and level.name == each.name
    ]
