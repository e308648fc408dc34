"""The entries that decide a client's effective values, in order of precedence, key by key.

Quotas of a client come from up to eight entries (KIP-55), client configs from up to two (KIP-649), the limit of an ip
from two (KIP-612). All levels are listed, with or without values, each with the reason why it applies. If an entry is
missing or does not have the key, the next level decides.

Source: core/src/main/scala/kafka/server/ClientQuotaManager.scala.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache
from typing import TYPE_CHECKING, Final, NamedTuple

from confplane.domain.entities import CACHED_LENGTH, Entity, EntityType, split_id
from confplane.domain.facets import FacetName
from confplane.domain.quotas import QUOTA_KEYS

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from functools import _lru_cache_wrapper


@dataclass(frozen=True, slots=True)
class ResolutionLevel:
    """One candidate entry."""

    level: int
    """The number of the level: 1 to 8 as KIP-55 counts those of quotas; else 1 and 2."""
    entity_id: str
    reason: str
    """The reason why this entry applies to the entity, and the levels that take precedence over it; a sentence."""
    shared_by: str | None = None
    """The clients that share one budget on each broker; None for client configs."""


_REMEMBERED: Final = 4096


class Synonym(NamedTuple):
    """A value of a key at one level, effective or overridden."""

    level: ResolutionLevel
    value: str
    """The value as stored."""


@dataclass(frozen=True, slots=True)
class KeyResolution:
    """The resolution of a key."""

    key: str
    synonyms: tuple[Synonym, ...]
    """Every level that sets the key, highest precedence first; never empty."""

    @property
    def value(self) -> str:
        """The effective value, as stored."""
        return self.synonyms[0].value

    @property
    def source(self) -> ResolutionLevel:
        """The level of the effective value."""
        return self.synonyms[0].level


_PER_PAIR: Final = "all connections of this user with this client-id"
_PER_USER: Final = "all clients of this user together"
_PER_CLIENT: Final = "all connections with this client-id, whatever their user"


def quota_levels(entity: Entity) -> tuple[ResolutionLevel, ...]:
    """List the entries that can decide the quotas of an entity, highest precedence first.

    An absent or default user, client-id or ip means any name without an entry of its own: levels that would need the
    name are omitted, and the default levels remain.

    Returns:
        The levels that apply, numbered as KIP-55 numbers all eight; empty for topics and brokers.
    """
    return _remembered(_quota_levels, entity)


@lru_cache(_REMEMBERED)
def _quota_levels(entity: Entity) -> tuple[ResolutionLevel, ...]:
    kinds = set(entity.types)
    if kinds == {EntityType.IP}:
        return _ip_levels(entity.get(EntityType.IP))
    if not kinds or not kinds <= {EntityType.USER, EntityType.CLIENT_ID}:
        return ()
    user, client = entity.get(EntityType.USER), entity.get(EntityType.CLIENT_ID)
    levels = []
    for level, (user_part, client_part, shared_by) in enumerate(_LEVELS, start=1):
        if (user_part == _NAMED and user is None) or (client_part == _NAMED and client is None):
            continue
        components = []
        if user_part != _ABSENT:
            components.append((EntityType.USER, user if user_part == _NAMED else None))
        if client_part != _ABSENT:
            components.append((EntityType.CLIENT_ID, client if client_part == _NAMED else None))
        levels.append(
            ResolutionLevel(level, Entity(tuple(components)).id, _reason(level, user_part, client_part), shared_by)
        )
    return tuple(levels)


_NAMED: Final = "named"
_DEFAULT: Final = "default"
_ABSENT: Final = "absent"
_LEVELS: Final = (
    (_NAMED, _NAMED, _PER_PAIR),
    (_NAMED, _DEFAULT, _PER_PAIR),
    (_NAMED, _ABSENT, _PER_USER),
    (_DEFAULT, _NAMED, _PER_PAIR),
    (_DEFAULT, _DEFAULT, _PER_PAIR),
    (_DEFAULT, _ABSENT, _PER_USER),
    (_ABSENT, _NAMED, _PER_CLIENT),
    (_ABSENT, _DEFAULT, _PER_CLIENT),
)


def _reason(level: int, user_part: str, client_part: str) -> str:
    whom = {
        (_NAMED, _NAMED): "exactly this user with this client-id",
        (_NAMED, _DEFAULT): "this user with any client-id that has no entry of its own under this user",
        (_NAMED, _ABSENT): "this user, whatever the client-id",
        (_DEFAULT, _NAMED): "this client-id under any user that has no entry of its own for the key",
        (_DEFAULT, _DEFAULT): "any client-id of any user that have no entries of their own for the key",
        (_DEFAULT, _ABSENT): "any user that has no entry of its own for the key",
        (_ABSENT, _NAMED): "this client-id, whatever the user",
        (_ABSENT, _DEFAULT): "any client-id, whatever the user",
    }[user_part, client_part]
    return f"Level {level} of 8: it applies to {whom}; entries of levels with a lower number come first."


def _ip_levels(address: str | None) -> tuple[ResolutionLevel, ...]:
    shared_by = "all connections from one address, each address by itself"
    levels = [
        ResolutionLevel(
            2,
            Entity(((EntityType.IP, None),)).id,
            "Level 2 of 2: it applies to every address that has no entry of its own.",
            shared_by,
        )
    ]
    if address is not None:
        named = Entity(((EntityType.IP, address),)).id
        levels.insert(0, ResolutionLevel(1, named, "Level 1 of 2: it applies to exactly this address.", shared_by))
    return tuple(levels)


def resolve_quotas(
    levels: Sequence[ResolutionLevel], configs_by_id: Mapping[str, Mapping[str, str]]
) -> dict[str, KeyResolution]:
    """Resolve quotas key by key; keys that are not quotas of such entities, such as SCRAM credentials, are omitted.

    Args:
        levels: The levels of :func:`quota_levels`.
        configs_by_id: Entity id -> stored map; a missing id has no entry.

    Returns:
        Key -> its resolution, ordered by key. A key that is not set anywhere is unlimited and absent.
    """
    if not levels:
        return {}
    # All levels belong to one space, of ips or of users and client-ids, and all entity types of a space have the same
    # keys.
    space = tuple(EntityType(kind) for kind, _ in split_id(levels[0].entity_id))
    known = {name for name, key in QUOTA_KEYS.items() if space in key.kinds}
    return {key: found for key, found in resolve_client_configs(levels, configs_by_id).items() if key in known}


def client_config_levels(entity: Entity) -> tuple[ResolutionLevel, ...]:
    """List the entries that can decide the client configs of an entity: ``<user, client-id>``, then ``<user>``.

    Default entities are never consulted (KIP-649): a default client-id counts as one without an entry of its own. For
    the default user, or without a user, there are no levels.
    """
    return _remembered(_client_config_levels, entity)


@lru_cache(_REMEMBERED)
def _client_config_levels(entity: Entity) -> tuple[ResolutionLevel, ...]:
    user, client = entity.get(EntityType.USER), entity.get(EntityType.CLIENT_ID)
    if user is None or not set(entity.types) <= {EntityType.USER, EntityType.CLIENT_ID}:
        return ()
    levels = [
        ResolutionLevel(
            2,
            Entity(((EntityType.USER, user),)).id,
            "Level 2 of 2: it applies to every client of this user, key by key, where the client-id's own entry does "
            "not set the key. Default users and default client-ids are not consulted for client configs.",
        )
    ]
    if client is not None:
        levels.insert(
            0,
            ResolutionLevel(
                1,
                Entity(((EntityType.USER, user), (EntityType.CLIENT_ID, client))).id,
                "Level 1 of 2: it applies to exactly this user with this client-id.",
            ),
        )
    return tuple(levels)


def _remembered(levels: _lru_cache_wrapper[tuple[ResolutionLevel, ...]], entity: Entity) -> tuple[ResolutionLevel, ...]:
    """Return the levels of an entity from a cache: clients poll those of the same few thousand entities."""
    return levels(entity) if len(entity.id) <= CACHED_LENGTH else levels.__wrapped__(entity)


def resolve_client_configs(
    levels: Sequence[ResolutionLevel], configs_by_id: Mapping[str, Mapping[str, str]]
) -> dict[str, KeyResolution]:
    """Resolve client configs key by key.

    Args:
        levels: The levels of :func:`client_config_levels`.
        configs_by_id: Entity id -> the stored keys of the facet ``client-configs`` alone.

    Returns:
        Key -> its resolution, ordered by key.
    """
    found: dict[str, list[Synonym]] = {}
    for level in levels:
        for key, value in configs_by_id.get(level.entity_id, {}).items():
            found.setdefault(key, []).append(Synonym(level, value))
    return {key: KeyResolution(key, tuple(found[key])) for key in sorted(found)}


def levels_of(facet: FacetName, entity: Entity) -> tuple[ResolutionLevel, ...]:
    """List the entries that can decide an entity's quotas or client configs, highest precedence first."""
    return quota_levels(entity) if facet is FacetName.CLIENT_QUOTAS else client_config_levels(entity)


def resolve(
    facet: FacetName, levels: Sequence[ResolutionLevel], configs_by_id: Mapping[str, Mapping[str, str]]
) -> dict[str, KeyResolution]:
    """Resolve quotas or client configs by the levels of :func:`levels_of`."""
    by_facet = resolve_quotas if facet is FacetName.CLIENT_QUOTAS else resolve_client_configs
    return by_facet(levels, configs_by_id)
