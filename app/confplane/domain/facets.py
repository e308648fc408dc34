"""Facets: a facet is the set of keys of an entity's znode that one collection shows and changes.

``client-quotas`` and ``client-configs`` share the znodes below ``/config/users``; each shows its own keys only, and a
write through one leaves all other keys (SCRAM credentials, the other facet's, unknown ones) as they are. Topics and
brokers have the one facet ``configs``.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal, NamedTuple, Protocol

from confplane.domain.enums import StrEnum

if TYPE_CHECKING:
    from collections.abc import Mapping

    from confplane.domain.entities import Entity, EntityType

JsonValue = str | int | float | bool | None
"""A scalar from a JSON body. ``int`` and ``float`` are distinct, so that LONGs remain exact."""


class FacetName(StrEnum):
    """The collections of the API."""

    CLIENT_QUOTAS = "client-quotas"
    CLIENT_CONFIGS = "client-configs"
    CONFIGS = "configs"
    """The collection of topics and brokers."""


FacetNameText = Literal["client-quotas", "client-configs", "configs"]
"""The names of :class:`FacetName`, for schemas and options."""


class Tree(StrEnum):
    """The root of an entity's znode. The paths below the two roots are the same."""

    CONFIG = "/config"
    CLIENT_CONFIGS = "/confplane/client-configs"

    @property
    def layout(self) -> str:
        """The name of the layout with the client configs in this tree (docs/kafka-compatibility.md)."""
        return "shared" if self is Tree.CONFIG else "separate"

    @property
    def other(self) -> Tree:
        """The other tree that may contain client configs."""
        return Tree.CLIENT_CONFIGS if self is Tree.CONFIG else Tree.CONFIG


class ClientConfigsLayout(StrEnum):
    """The tree that stores client configs (docs/kafka-compatibility.md)."""

    SHARED = "shared"
    """In the quota nodes below /config/users, as specified in KIP-649."""
    SEPARATE = "separate"
    """In the same tree below /confplane/client-configs, so that Kafka's own tools can still alter those entities."""

    @property
    def tree(self) -> Tree:
        """The tree with the client configs."""
        return Tree.CONFIG if self is ClientConfigsLayout.SHARED else Tree.CLIENT_CONFIGS


def full_path(tree: Tree, entity: Entity) -> str:
    """Return the znode's path below the chroot."""
    return f"{tree}/{entity.path}"


class Rank(NamedTuple):
    """An entity's place among those that its facet's checks compare with each other.

    Entities with the same scope and different ranks are levels of the same configs: the check of one reads the others.
    All other entities are checked separately.
    """

    scope: str
    name: str


class Facet(Protocol):
    """One collection's rules for its keys. Stateless; settings that some rules depend on are passed once.

    Facets inherit what most of them have in common: no ranks, no secrets and no remarks.
    """

    name: FacetName
    member: str
    """The member that holds the map in the default view: ``quotas`` or ``configs``."""
    entity_types: frozenset[EntityType]
    """Types that a describe may name. For any other type it fails with UNSUPPORTED_VERSION."""
    has_secrets: bool
    """True if any key can be a secret."""

    def check_entity(self, entity: Entity, *, pointer: str | None = None) -> None:
        """Refuse an entity that this facet can't have.

        Raises:
            InvalidRequestError: The entity is not one of the facet; the text is Kafka's if Kafka has one.
            InvalidTopicError: A name that no topic can have.
        """

    def rank(self, entity: Entity) -> Rank | None:
        """Return an entity's rank, or None if no check reads another entity."""
        del entity
        return None

    def owns(self, entity: Entity, key: str) -> bool:
        """Return True if a stored key of this entity belongs to this facet."""

    def is_secret(self, entity: Entity, key: str) -> bool:
        """Return True if a key's value is never shown or logged."""
        del entity, key
        return False

    def decode(self, entity: Entity, key: str, stored: str) -> JsonValue:
        """Return a stored value as it appears in JSON.

        This is a number for quotas, a string for configs, and None for a secret.

        Raises:
            ValueError: The stored string is not a value of this key; the caller reports the znode's path.
        """

    def remarks(self, entity: Entity) -> list[str]:
        """Return remarks for readers of this entity, each a sentence."""
        del entity
        return []


def shown_value(facet: Facet, entity: Entity, key: str, stored: str | None) -> JsonValue:
    """Return a stored value as JSON answers it; one that is not valid for its key as it was stored."""
    if stored is None:
        return None
    try:
        return facet.decode(entity, key, stored)
    except ValueError:
        return stored


class ClientFacet(Facet, Protocol):
    """A facet of client entities: each value is checked on its own, then an entity's own map as a whole."""

    def encode(self, entity: Entity, key: str, value: JsonValue, *, exact: bool, pointer: str | None = None) -> str:
        """Validate one value and return the string that is stored.

        Args:
            entity: The entity of the key.
            key: The config key.
            value: The value from the JSON body; a value of the wrong kind is refused with the right form shown.
            exact: True for PUT and POST, where LONG and INT must be integral; False for ``:alter``, which has Kafka's
                tolerance of 1e-6.
            pointer: JSON pointer for errors.

        Raises:
            InvalidRequestError: The key is unknown for this entity, or the value is of the wrong kind or out of range.
        """

    def check_remove(self, entity: Entity, key: str, *, pointer: str | None = None) -> None:
        """Refuse the removal of a key that this facet must not touch (a SCRAM credential, ``supported.configs``).

        Raises:
            InvalidRequestError: The removal is refused; the text names the right place instead.
        """

    def check_whole(
        self,
        entity: Entity,
        after: Mapping[str, str],
        *,
        inherited: Mapping[str, str],
        pointers: Mapping[str, str],
    ) -> list[str]:
        """Validate the whole resulting map of one entity.

        Args:
            entity: The entity of the map.
            after: This facet's keys as they would be stored.
            inherited: This facet's keys of the level below (``<user>`` for a ``<user, client-id>``), else empty.
            pointers: Key -> JSON pointer, for errors.

        Returns:
            Warnings for the caller, each a sentence.

        Raises:
            InvalidRequestError: The map contradicts itself.
        """
