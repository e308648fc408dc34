"""Configs set on a cluster's brokers, by level: their files, the default of all brokers, and each broker's own."""

from __future__ import annotations

from dataclasses import dataclass, field
from types import MappingProxyType
from typing import TYPE_CHECKING, Final

from confplane.domain.broker_levels import ConfigLevels
from confplane.domain.changes import stored
from confplane.domain.entities import Entity
from confplane.domain.facets import FacetName, Tree

if TYPE_CHECKING:
    from collections.abc import Mapping

    from confplane.services.ports.store import ClusterStore

NOTHING_PLANNED: Final[Mapping[str, Mapping[str, str]]] = MappingProxyType({})
DEFAULT_BROKER: Final = Entity.of(broker=None)
_BROKER: Final = "broker="


@dataclass(frozen=True, slots=True)
class ServerProperties:
    """The brokers' own files that the settings name."""

    by_broker: Mapping[int, Mapping[str, str]] = field(default_factory=dict, repr=False)
    others: Mapping[str, str] | None = field(default=None, repr=False)
    """The file of every broker that is not named; None: not known."""

    def of(self, broker_id: int) -> Mapping[str, str] | None:
        """Return a broker's file, None if it is not known.

        Kafka takes ``node.id`` for ``broker.id``, and the reverse, where the file has only one of them
        (core/src/main/scala/kafka/server/KafkaConfig.scala, populateSynonyms).
        """
        file = self.by_broker.get(broker_id, self.others)
        if file is None or ("broker.id" in file) == ("node.id" in file):
            return file
        return {"broker.id": file.get("node.id", ""), "node.id": file.get("broker.id", ""), **file}

    def super_users(self) -> frozenset[str]:
        """Return the principals in ``super.users`` of the known files, which brokers usually are among."""
        files = [*self.by_broker.values(), self.others or {}]
        named = (name.strip() for file in files for name in file.get("super.users", "").split(";"))
        return frozenset(name for name in named if name.startswith("User:"))


class BrokerLevels:
    """Reads the levels of a cluster's brokers: dynamic levels from the mirror, static ones from the settings' files.

    Maps are as stored, encoded passwords included; ``planned`` has the maps that a batch is about to write, by entity
    id.

    Attributes:
        super_users: The principals in ``super.users`` of the known files.
    """

    def __init__(self, store: ClusterStore, static: ServerProperties) -> None:
        self._store = store
        self._static = static
        self.super_users = static.super_users()

    def of(self, broker_id: int, planned: Mapping[str, Mapping[str, str]] = NOTHING_PLANNED) -> ConfigLevels:
        """Return the levels of one broker, known or not."""
        return ConfigLevels(
            self._store.catalog(),
            static=self._static.of(broker_id),
            default=self._at(DEFAULT_BROKER, planned),
            broker=self._at(Entity.of(broker=str(broker_id)), planned),
        )

    def of_any(self, planned: Mapping[str, Mapping[str, str]] = NOTHING_PLANNED) -> ConfigLevels:
        """Return the levels of the known broker with the lowest id, or of any unknown broker if no broker is known.

        Topics inherit from the brokers, and Kafka answers with the levels of whichever broker is asked.
        """
        known = self.known(planned)
        return self.of(known[0], planned) if known else self.of_unknown(planned)

    def of_unknown(self, planned: Mapping[str, Mapping[str, str]] = NOTHING_PLANNED) -> ConfigLevels:
        """Return the levels of a broker without configs of its own."""
        return ConfigLevels(
            self._store.catalog(), static=self._static.others, default=self._at(DEFAULT_BROKER, planned)
        )

    def known(self, planned: Mapping[str, Mapping[str, str]] = NOTHING_PLANNED) -> list[int]:
        """Return the ids of the brokers with configs of their own, stored or in a file of the settings; sorted."""
        nodes = self._store.with_keys(Tree.CONFIG, FacetName.CONFIGS.value, prefix=_BROKER)
        named = {node.id for node in nodes} | {entity_id for entity_id in planned if entity_id.startswith(_BROKER)}
        return sorted({int(entity_id.removeprefix(_BROKER)) for entity_id in named} | self._static.by_broker.keys())

    def _at(self, entity: Entity, planned: Mapping[str, Mapping[str, str]]) -> Mapping[str, str]:
        if entity.id in planned:
            return planned[entity.id]
        return stored(self._store.get(Tree.CONFIG, entity.id))
