"""Effective configs over all levels, with the source of each value (KIP-226)."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from confplane.domain.access.operations import Operation
from confplane.domain.broker_keys import is_password, is_sensitive
from confplane.domain.broker_levels import (
    ConfigLevels,
    DynamicLevel,
    EffectiveConfigEntry,
    describe_broker,
    describe_default,
    effective_broker,
    read_level,
)
from confplane.domain.changes import stored
from confplane.domain.client_metrics import describe_client_metrics, effective_client_metrics
from confplane.domain.configs import check_release
from confplane.domain.entities import Entity, EntityType
from confplane.domain.errors import (
    EncoderSecretMissingError,
    UndecodablePasswordError,
    UnknownTopicError,
)
from confplane.domain.etags import digest
from confplane.domain.groups import describe_group, effective_group
from confplane.domain.texts import clipped
from confplane.domain.topics import describe_topic, effective_topic
from confplane.services.reads.config_levels import DEFAULT_BROKER, NOTHING_PLANNED

if TYPE_CHECKING:
    from collections.abc import Collection as Some
    from collections.abc import Iterable, Mapping

    from confplane.domain.facets import JsonValue
    from confplane.services.access import Access
    from confplane.services.cluster_facet import ClusterFacet
    from confplane.services.ports.crypto import Cipher
    from confplane.services.reads.config_levels import BrokerLevels


@dataclass(frozen=True, slots=True)
class ConfigsDescription:
    """The effective configs of one entity, ordered by name."""

    entity: Entity
    configs: list[EffectiveConfigEntry]
    warnings: list[str]
    etag: str


class ConfigReader:
    """Describes the entities with configs of one cluster.

    Args:
        cluster_facet: The cluster's facet ``configs``.
        levels: The levels of its brokers.
        cipher: Finds the stored passwords that brokers can't decode.
    """

    def __init__(self, cluster_facet: ClusterFacet, levels: BrokerLevels, cipher: Cipher) -> None:
        self._cluster_facet = cluster_facet
        self._levels = levels
        self._cipher = cipher

    async def effective(
        self, access: Access, entity: Entity, keys: Some[str] | None = None, *, pointer: str | None = None
    ) -> ConfigsDescription:
        """Return the effective configs of an entity, over all levels; the caller needs only the right to the entity.

        Args:
            access: The access of the caller.
            entity: A topic, a broker, a group, a subscription, or the default broker, which has only the values set as
                default.
            keys: Only these; None or no keys at all means every config. Unknown keys are left out.
            pointer: JSON pointer for errors.

        Raises:
            InvalidRequestError: Another entity, or one that the cluster's release can't have.
            InvalidTopicError: A name that no topic can have.
            ForbiddenError: The caller may not describe the entity.
            UnknownTopicError: The cluster's metadata have no such topic.
            CorruptZnodeError: The znode of a level can't be read, so the result can't be known.
        """
        self._cluster_facet.facet.check_entity(entity, pointer=pointer)
        cluster = self._cluster_facet.store.name
        access.require(cluster, Operation.DESCRIBE_CONFIGS, entity.id, pointer=pointer)
        check_release(self._cluster_facet.catalog, entity, pointer=pointer)
        if entity.types == (EntityType.BROKER,):
            own = {}
            found, levels, warnings = await self._broker(entity, keys or None, pointer)
        else:
            found, levels, warnings = self._named(entity, pointer)
            own = stored(self._cluster_facet.get(entity.id))
        if keys:
            found = [item for item in found if item.name in keys]
        # The parts of the answer, besides Kafka's own definitions. A secret contributes only that it is set.
        is_secret = self._cluster_facet.facet.is_secret
        state: dict[str, JsonValue] = {
            f"{level.value} {key}": None if is_sensitive(levels.catalog, key) else value
            for level, values in levels.by_source().items()
            for key, value in sorted(values.items())
        }
        state |= {
            f"{entity.types[0]} {key}": None if is_secret(entity, key) else value for key, value in sorted(own.items())
        }
        state |= {
            "release": levels.catalog.release,
            "static": levels.static is not None,
            "warnings": "\n".join(warnings),
        }
        return ConfigsDescription(entity, found, warnings, digest(state))

    def effective_of(
        self, entity: Entity, keys: Iterable[str], planned: Mapping[str, Mapping[str, str]] = NOTHING_PLANNED
    ) -> list[EffectiveConfigEntry]:
        """Return the effective values of single configs of an entity, set at any level or at none.

        The default broker has the values of a broker without configs of its own.

        Args:
            entity: An entity of the facet; not checked.
            keys: The names of the configs.
            planned: Maps that are about to replace stored maps, by entity id.
        """
        [(kind, name)] = entity.components
        if kind is not EntityType.BROKER:
            levels, _ = self._counting(self._levels.of_any(planned))
            own = planned.get(entity.id)
            if own is None:
                own = stored(self._cluster_facet.get(entity.id))
            match kind:
                case EntityType.TOPIC:
                    return [effective_topic(key, own, levels) for key in keys]
                case EntityType.GROUP:
                    return [effective_group(key, own, levels) for key in keys]
            return [effective_client_metrics(levels.catalog, key, own) for key in keys]
        levels, _ = self._counting(
            self._levels.of_unknown(planned) if name is None else self._levels.of(int(name), planned)
        )
        return [effective_broker(key, levels) for key in keys]

    async def stored_levels(self, broker_id: int) -> tuple[ConfigLevels, dict[str, str]]:
        """Return the levels of one broker as stored, with the entries that brokers ignore.

        Returns:
            The levels, and the broker's own passwords that it can't decode, each with a sentence that says so.

        Raises:
            CorruptZnodeError: The znode of a level can't be read.
        """
        self._check_readable(DEFAULT_BROKER)
        self._check_readable(Entity.of(broker=str(broker_id)))
        levels = self._levels.of(broker_id)
        return levels, await self._undecodable(broker_id, levels.broker)

    def _named(self, entity: Entity, pointer: str | None) -> tuple[list[EffectiveConfigEntry], ConfigLevels, list[str]]:
        """Describe a topic, a group or a subscription."""
        [(kind, name)] = entity.components
        if kind is EntityType.TOPIC and self._cluster_facet.store.topic_exists(name or "") is False:
            raise UnknownTopicError(f"The topic {name} does not exist in the cluster's metadata", pointer=pointer)
        self._check_readable(entity, pointer)
        levels, warnings = self._counting(self._levels.of_any())
        own = stored(self._cluster_facet.get(entity.id))
        match kind:
            case EntityType.TOPIC:
                return describe_topic(own, levels), levels, warnings
            case EntityType.GROUP:
                return describe_group(own, levels), levels, warnings
        alone = ConfigLevels(levels.catalog)  # no broker's value counts
        return describe_client_metrics(levels.catalog, own), alone, []

    async def _broker(
        self, entity: Entity, keys: Some[str] | None, pointer: str | None
    ) -> tuple[list[EffectiveConfigEntry], ConfigLevels, list[str]]:
        name = entity.get(EntityType.BROKER)
        self._check_readable(DEFAULT_BROKER, pointer)
        if name is None:
            levels, warnings = self._counting(replace(self._levels.of_unknown(), static=None))
            return describe_default(levels.catalog, levels.default), levels, warnings
        self._check_readable(entity, pointer)
        levels, warnings = self._counting(self._levels.of(int(name)))
        dropped = await self._undecodable(int(name), levels.broker)
        if dropped:
            kept = {key: value for key, value in levels.broker.items() if key not in dropped}
            levels = replace(levels, broker=kept)
        return describe_broker(levels, keys), levels, [*warnings, *filter(None, dropped.values())]

    def _counting(self, levels: ConfigLevels) -> tuple[ConfigLevels, list[str]]:
        """Return levels without the entries that brokers ignore, and a sentence about each of those."""
        default, of_default = read_level(levels.catalog, levels.default, DynamicLevel.DEFAULT)
        broker, of_broker = read_level(levels.catalog, levels.broker, DynamicLevel.BROKER)
        return replace(levels, default=default, broker=broker), of_default + of_broker

    async def _undecodable(self, broker_id: int, config: Mapping[str, str]) -> dict[str, str]:
        """Return the passwords that a broker would ignore, each with an explanation."""
        encoded = {key: value for key, value in config.items() if is_password(key)}
        return await asyncio.to_thread(self._try_decoding, broker_id, encoded) if encoded else {}

    def _try_decoding(self, broker_id: int, encoded: Mapping[str, str]) -> dict[str, str]:
        failed: dict[str, str] = {}
        for key, value in encoded.items():
            try:
                self._cipher.decode(broker_id, key, value)
            except UndecodablePasswordError:
                failed[key] = (
                    f"Brokers leave out the stored {clipped(key)}: none of the encoder secrets in the settings opens it"
                )
            except EncoderSecretMissingError:
                break  # without a secret none can be decoded, so all are taken to be readable
        return failed

    def _check_readable(self, entity: Entity, pointer: str | None = None) -> None:
        self._cluster_facet.check_readable(entity, self._cluster_facet.get(entity.id), pointer)
