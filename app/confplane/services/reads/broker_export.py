"""A broker's dynamic configs in the form of its server.properties, to replace them."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from confplane.domain.broker_keys import definition_of, is_sensitive
from confplane.domain.broker_levels import PROVIDERS, ConfigSource, DynamicLevel, left_out

if TYPE_CHECKING:
    from collections.abc import Mapping

    from confplane.domain.definitions import Catalog
    from confplane.services.reads.config_describe import ConfigReader


@dataclass(frozen=True, slots=True)
class ExportedConfig:
    """One config of the dynamic levels."""

    key: str
    source: ConfigSource
    value: str | None
    """The value; None if it is unknown or must not stand in the file; ``note`` says why."""
    note: str | None = None
    secret: bool = False
    """True for an effective secret, which must be set by hand."""


async def export_broker(configs: ConfigReader, broker_id: int) -> list[ExportedConfig]:
    """Return the dynamic configs of a broker, merged as the broker merges them, by key; from the mirror.

    A value of the broker's own replaces the default of all brokers, under any of the config's names. Entries that
    brokers ignore have a reason.

    Raises:
        CorruptZnodeError: The znode of a level can't be read.
        UnavailableError: The mirror was never loaded.
    """
    levels, undecodable = await configs.stored_levels(broker_id)
    default, dropped = _split(levels.catalog, levels.default, DynamicLevel.DEFAULT, {})
    broker, dropped_own = _split(levels.catalog, levels.broker, DynamicLevel.BROKER, undecodable)
    found = [
        _exported(levels.catalog, key, value, _source(DynamicLevel.BROKER if key in broker else DynamicLevel.DEFAULT))
        for key, value in replace(levels, static=None, default=default, broker=broker).merged().items()
    ]
    return sorted([*found, *dropped, *dropped_own], key=lambda item: (item.key, item.note or ""))


def _split(
    catalog: Catalog, config: Mapping[str, str], level: DynamicLevel, undecodable: Mapping[str, str]
) -> tuple[dict[str, str], list[ExportedConfig]]:
    kept: dict[str, str] = {}
    dropped: list[ExportedConfig] = []
    for key, value in config.items():
        reason = left_out(catalog, key, value, level, resolvable=PROVIDERS in config)
        if key in undecodable:
            reason = "none of the encoder secrets in the settings opens it"
        if reason is None:
            kept[key] = value
        else:
            dropped.append(ExportedConfig(key, _source(level), None, f"brokers leave it out: {reason}"))
    return kept, dropped


def _exported(catalog: Catalog, key: str, value: str, source: ConfigSource) -> ExportedConfig:
    if is_sensitive(catalog, key):
        return ExportedConfig(key, source, None, "a secret, or a custom config that may be one", secret=True)
    definition = definition_of(catalog, key)
    if definition is not None and definition.dynamic_only:
        return ExportedConfig(key, source, None, f"it is dynamic only, server.properties has no form of it: {value}")
    return ExportedConfig(key, source, value)


def _source(level: DynamicLevel) -> ConfigSource:
    return (
        ConfigSource.DYNAMIC_BROKER_CONFIG
        if level is DynamicLevel.BROKER
        else ConfigSource.DYNAMIC_DEFAULT_BROKER_CONFIG
    )
