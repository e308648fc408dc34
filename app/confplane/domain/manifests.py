"""Manifests: configs of entities as documents, which a plan compares with what is stored."""

from __future__ import annotations

from dataclasses import dataclass
from types import MappingProxyType
from typing import TYPE_CHECKING, Final

from confplane.domain.entities import Entity, EntityType, sanitize
from confplane.domain.errors import InvalidRequestError
from confplane.domain.facets import FacetName
from confplane.domain.texts import shown

if TYPE_CHECKING:
    from collections.abc import Mapping

API_VERSION: Final = "confplane/v1"
KIND: Final = "Configs"
FACETS: Final[Mapping[str, FacetName]] = MappingProxyType(
    {"quotas": FacetName.CLIENT_QUOTAS, "clientConfigs": FacetName.CLIENT_CONFIGS, "configs": FacetName.CONFIGS}
)
"""The facets by the member of an entity that has their keys."""
MEMBERS: Final[Mapping[FacetName, str]] = MappingProxyType({facet: member for member, facet in FACETS.items()})
MOST_ENTITIES: Final = 100_000
"""The greatest number of entities in a manifest."""
MOST_BYTES: Final = 64 * 1024 * 1024
"""The greatest size of a manifest as JSON."""


def forced_key(text: str) -> tuple[str, str]:
    """Return the entity id and the key of a text such as ``topic=orders/retention.ms``; ids have no slash.

    Raises:
        InvalidRequestError: The text has no slash.
    """
    entity_id, slash, key = text.partition("/")
    if not slash:
        raise InvalidRequestError(
            f"{shown(text)} is not an entity and a key. Use for example topic=orders/retention.ms."
        )
    return entity_id, key


@dataclass(frozen=True, slots=True)
class ManifestScope:
    """The entities of one type whose names have a prefix; of users, their client-ids as well."""

    kind: EntityType
    prefix: str

    @classmethod
    def parse(cls, text: str, *, pointer: str | None = None) -> ManifestScope:
        """Read a scope such as ``topic:orders.``.

        Raises:
            InvalidRequestError: The text is not a type, a colon and the beginning of names.
        """
        kind, colon, prefix = text.partition(":")
        if not colon or kind not in set(EntityType):
            raise InvalidRequestError(
                f"{shown(text)} is not a scope. Use a type and the beginning of names, for example topic:orders.; the"
                f" types are {', '.join(EntityType)}. Without a beginning, as in topic:, all entities of the type are"
                " in the scope",
                pointer=pointer,
            )
        return cls(EntityType(kind), prefix)

    @property
    def id_prefix(self) -> str:
        """The beginning of the ids of all entities in the scope; ids of other entities may begin so, too."""
        return f"{self.kind}={sanitize(self.prefix).replace('%', '~')}" if self.prefix else self.kind

    def has(self, entity: Entity) -> bool:
        """Return True if an entity is in the scope."""
        kind, name = entity.components[0]
        return kind is self.kind and (not self.prefix or (name is not None and name.startswith(self.prefix)))

    def __str__(self) -> str:
        return f"{self.kind}:{self.prefix}"
