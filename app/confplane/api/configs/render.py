"""Effective configs as JSON."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from confplane.domain.broker_keys import definition_of
from confplane.domain.configs import KINDS
from confplane.domain.definitions import ConfigKind, description

if TYPE_CHECKING:
    from confplane.domain.broker_levels import EffectiveConfigEntry
    from confplane.domain.definitions import Catalog
    from confplane.domain.entities import Entity
    from confplane.services.reads.config_describe import ConfigsDescription


def effective_configs(found: ConfigsDescription) -> dict[str, Any]:
    """Return the effective configs of an entity."""
    return {
        "id": found.entity.id,
        "entity": found.entity.as_dict(),
        "configs": [
            {
                "key": item.name,
                "value": item.value,
                "source": item.source.value,
                **_config_members(item),
                "synonyms": _synonyms(item),
            }
            for item in found.configs
        ],
        "warnings": found.warnings,
    }


def described_config(
    catalog: Catalog, entity: Entity, item: EffectiveConfigEntry, *, synonyms: bool, documentation: bool
) -> dict[str, Any]:
    """Return one config in the form of DescribeConfigs, documented from the catalog of the cluster's release."""
    return {
        "name": item.name,
        "value": item.value,
        "configSource": item.source.value,
        **_config_members(item),
        "synonyms": _synonyms(item) if synonyms else [],
        "documentation": _documentation(catalog, entity, item.name) if documentation else None,
    }


def _config_members(item: EffectiveConfigEntry) -> dict[str, Any]:
    return {
        "readOnly": item.read_only,
        "isSensitive": item.sensitive,
        "configType": "UNKNOWN" if item.type is None else item.type.value,
        "assumed": item.assumed,
    }


def _synonyms(item: EffectiveConfigEntry) -> list[dict[str, Any]]:
    return [{"name": name, "value": value, "source": source.value} for name, value, source in item.synonyms]


def _documentation(catalog: Catalog, entity: Entity, name: str) -> str | None:
    kind = KINDS[entity.types]
    definition = definition_of(catalog, name) if kind is ConfigKind.BROKER else catalog.of(kind).get(name)
    return None if definition is None else definition.description or description(kind, definition.name)
