"""Entity filters of the describes: the selection of entities by a list of components (KIP-546, KIP-649).

Source: core/src/main/scala/kafka/server/ZkAdminManager.scala (describeClientQuotas),
clients/src/main/java/org/apache/kafka/common/requests/DescribeClientQuotasRequest.java.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import IntEnum
from functools import cached_property
from typing import TYPE_CHECKING, Final

from confplane.domain.entities import Entity, EntityType, check_name
from confplane.domain.errors import InvalidRequestError, UnsupportedVersionError
from confplane.domain.texts import clipped, shown

if TYPE_CHECKING:
    from collections.abc import Sequence


class MatchType(IntEnum):
    """The kinds of match between a component and a name, under Kafka's numbers."""

    EXACT = 0
    """A name equal to the given one."""
    DEFAULT = 1
    """The default entity."""
    SPECIFIED = 2
    """Any name, the default entity included."""

    @classmethod
    def parse(cls, value: object, *, pointer: str | None = None) -> MatchType:
        """Read Kafka's number or its name in any case; ``any`` is another name for ``specified``.

        Raises:
            InvalidRequestError: The value is neither a number nor a name of a match type.
        """
        if isinstance(value, str) and (found := _MATCH_NAMES.get(value.lower())) is not None:
            return found
        if isinstance(value, int) and not isinstance(value, bool) and value in _MATCH_NUMBERS:
            return cls(value)
        given = f" {shown(value)}" if isinstance(value, str) else ""
        raise InvalidRequestError(
            f"Unknown match type{given}; it must be exact (0), default (1) or specified (2, also named any)",
            pointer=pointer,
        )


_MATCH_NAMES: Final = {**{kind.name.lower(): kind for kind in MatchType}, "any": MatchType.SPECIFIED}
_MATCH_NUMBERS: Final = frozenset(kind.value for kind in MatchType)


@dataclass(frozen=True, slots=True)
class FilterComponent:
    """One component as given in a request; :meth:`EntityFilter.build` checks it. ``match`` is used only for exact."""

    entity_type: str
    match_type: MatchType | int | str
    match: str | None = None


@dataclass(frozen=True)
class EntityFilter:
    """A checked filter. ``components`` holds one (match type, name) per filtered entity type.

    The hints narrow a search; :meth:`matches` alone decides the result.
    """

    components: dict[EntityType, tuple[MatchType, str | None]]
    strict: bool
    allowed: frozenset[EntityType]

    @classmethod
    def build(
        cls, components: Sequence[FilterComponent], *, strict: bool, allowed: frozenset[EntityType]
    ) -> EntityFilter:
        """Check components in Kafka's order. Pointers of errors are relative to a body with ``components``.

        Args:
            components: As given.
            strict: Omit entities with a type that the filter does not name.
            allowed: The entity types of the facet.

        Raises:
            InvalidRequestError: An unknown match type, exact without a match, a type given twice or empty, or ip
                together with user or client-id.
            UnsupportedVersionError: A type that this facet does not have.
        """
        match_types = []
        for index, component in enumerate(components):
            match_type = MatchType.parse(component.match_type, pointer=f"/components/{index}/matchType")
            if match_type is MatchType.EXACT and component.match is None:
                raise InvalidRequestError(
                    "A component with match type exact needs a match; the default entity has match type default",
                    pointer=f"/components/{index}/match",
                )
            match_types.append(match_type)
        checked: dict[EntityType, tuple[MatchType, str | None]] = {}
        for index, (component, match_type) in enumerate(zip(components, match_types, strict=True)):
            kind = _checked_type(component.entity_type, checked, allowed, pointer=f"/components/{index}/entityType")
            checked[kind] = match_type, component.match if match_type is MatchType.EXACT else None
        if EntityType.IP in checked and len(checked) > 1:
            raise InvalidRequestError(
                "Invalid entity filter component combination, ip goes with neither user nor client-id",
                pointer="/components",
            )
        return cls(checked, strict, allowed)

    def matches(self, entity: Entity) -> bool:
        """Return True if an entity belongs to the result."""
        names = dict(entity.components)
        if not self.allowed.issuperset(names) or (self.strict and len(names) != len(self.components)):
            return False
        for kind, (match_type, match) in self.components.items():
            if kind not in names:
                return False
            if match_type is not MatchType.SPECIFIED and names[kind] != match:
                return False
        return True

    @cached_property
    def impossible(self) -> bool:
        """True if no entity can match: strict without components, or an exact name that no znode can have."""
        if not self.components:
            return self.strict
        for kind, (match_type, match) in self.components.items():
            if match_type is MatchType.EXACT and match is not None:
                try:
                    check_name(kind, match)
                except InvalidRequestError:
                    return True
        return False

    @property
    def everything(self) -> bool:
        """True if every entity of the facet matches."""
        return not self.components and not self.strict

    @cached_property
    def exact_entity(self) -> Entity | None:
        """The only entity that the result can contain if the filter excludes all other entities; otherwise None."""
        if self.impossible or not self.components:
            return None
        if any(match_type is MatchType.SPECIFIED for match_type, _ in self.components.values()):
            return None
        kinds = frozenset(self.components)
        # An ip can't be combined with other types, and no entity has more types than user and client-id: strict makes
        # no difference here.
        if not (self.strict or len(kinds) > 1 or EntityType.IP in kinds):
            return None
        return Entity(tuple((kind, self.components[kind][1]) for kind in EntityType if kind in kinds))

    @cached_property
    def exact_client(self) -> Entity | None:
        """The client that the filter names: an exact user, and an exact client-id or none. None for other filters."""
        kinds = [kind for kind in EntityType if kind in self.components]
        if kinds not in ([EntityType.USER], [EntityType.USER, EntityType.CLIENT_ID]) or self.impossible:
            return None
        if any(match_type is not MatchType.EXACT for match_type, _ in self.components.values()):
            return None
        return Entity(tuple((kind, self.components[kind][1]) for kind in kinds))

    @cached_property
    def user_prefix(self) -> str | None:
        """The prefix of the ids of a user's client-ids (``user=alice,`` or ``user,``), or None without a user.

        The only other match is the id without the comma: the user alone.
        """
        user = self.components.get(EntityType.USER)
        if user is None or user[0] is MatchType.SPECIFIED or self.impossible:
            return None
        return f"{Entity(((EntityType.USER, user[1]),)).id},"

    @cached_property
    def client_id(self) -> tuple[str | None] | None:
        """The name (None: the default) of the client-id in a one-tuple if the filter names one; otherwise None."""
        client = self.components.get(EntityType.CLIENT_ID)
        if client is None or client[0] is MatchType.SPECIFIED or self.impossible:
            return None
        return (client[1],)


def _checked_type(
    name: str, seen: dict[EntityType, tuple[MatchType, str | None]], allowed: frozenset[EntityType], *, pointer: str
) -> EntityType:
    if not name:
        raise InvalidRequestError("Unexpected empty entity type in a filter component", pointer=pointer)
    kind = next((known for known in allowed if known.value == name), None)
    if kind is None:
        raise UnsupportedVersionError(
            f"The entity type {clipped(name)} can't be described here; known are {', '.join(sorted(allowed))}",
            pointer=pointer,
        )
    if kind in seen:
        raise InvalidRequestError(f"The entity type {kind} is given by more than one filter component", pointer=pointer)
    return kind
