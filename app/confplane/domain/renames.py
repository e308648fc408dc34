"""Configs that Kafka renamed, and the new names that a stored map lacks.

KIP-226: the new name is written with the value of the old one. The old name remains until a person deletes it, so that
brokers of both versions find the name they know. The table is ``catalog/renames.json``: for each kind, from old name to
new. Kafka 3.9 has not renamed any of its dynamic configs.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from functools import cache
from importlib import resources
from types import MappingProxyType
from typing import TYPE_CHECKING

from confplane.domain.broker_keys import is_password, listener_key
from confplane.domain.definitions import ConfigKind
from confplane.domain.entities import EntityType

if TYPE_CHECKING:
    from collections.abc import Mapping

    from confplane.domain.definitions import Catalog
    from confplane.domain.entities import Entity


@dataclass(frozen=True, slots=True)
class RenamedConfig:
    """A stored config that is not yet stored under its new name."""

    old: str
    new: str
    value: str
    """The value as stored."""
    secret: bool
    """True if brokers store the value encoded."""


@cache
def renames() -> Mapping[ConfigKind, Mapping[str, str]]:
    """Return the table of the catalog."""
    text = resources.files("confplane.domain.catalog").joinpath("renames.json").read_text("utf-8")
    return MappingProxyType({ConfigKind(kind): MappingProxyType(names) for kind, names in json.loads(text).items()})


def missing(
    catalog: Catalog, entity: Entity, config: Mapping[str, str], table: Mapping[ConfigKind, Mapping[str, str]]
) -> list[RenamedConfig]:
    """Return a topic's or broker's configs that are stored only under old names, ordered by the old name.

    Forms with a listener's prefix are renamed with their base.

    Args:
        catalog: The definitions of the cluster's release.
        entity: The topic or broker.
        config: Its stored map.
        table: The table of :func:`renames`.
    """
    is_topic = entity.types == (EntityType.TOPIC,)
    names = table.get(ConfigKind.TOPIC if is_topic else ConfigKind.BROKER, {})
    found = []
    for old in sorted(config):
        new = names.get(old) if is_topic else _renamed(catalog, old, names)
        if new is not None and new not in config:
            found.append(RenamedConfig(old, new, config[old], not is_topic and is_password(old)))
    return found


def _renamed(catalog: Catalog, name: str, names: Mapping[str, str]) -> str | None:
    if name in names:
        return names[name]
    parts = listener_key(catalog, name)
    if parts is None or parts.base not in names:
        return None
    return name.removesuffix(parts.base) + names[parts.base]
