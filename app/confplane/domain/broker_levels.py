"""Effective configs of a broker: dynamic values for it, dynamic defaults for all, its file, Kafka's defaults.

A value of a higher level replaces the same config below it, under any of its names: a dynamic ``log.retention.ms``
hides a ``log.retention.hours`` in the file. A broker's file is often unknown here; a value that the file could decide
is then assumed to be Kafka's default, and marked.

Source: core/src/main/scala/kafka/server/{DynamicBrokerConfig,ConfigHelper}.scala, KIP-226.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from types import MappingProxyType
from typing import TYPE_CHECKING, Final, NamedTuple

from confplane.domain.broker_keys import definition_of, is_read_only, is_sensitive, listener_key, synonyms_of
from confplane.domain.definitions import ConfigType, ConfigValueError, Scope, canonical, parse
from confplane.domain.enums import StrEnum
from confplane.domain.texts import clipped

if TYPE_CHECKING:
    from collections.abc import Container, Mapping

    from confplane.domain.definitions import Catalog, ConfigDef

_NOTHING: Final[Mapping[str, str]] = MappingProxyType({})
_REFERENCE: Final = "${"
PROVIDERS: Final = "config.providers"
"""The config that names plug-ins, which resolve references in the other values of the map."""


_LAST_BEFORE_LOGGERS: Final = 5


class ConfigSource(StrEnum):
    """The source of a value, under Kafka's names; :attr:`number` is that of the RPC."""

    DYNAMIC_TOPIC_CONFIG = "DYNAMIC_TOPIC_CONFIG"
    DYNAMIC_BROKER_CONFIG = "DYNAMIC_BROKER_CONFIG"
    DYNAMIC_DEFAULT_BROKER_CONFIG = "DYNAMIC_DEFAULT_BROKER_CONFIG"
    STATIC_BROKER_CONFIG = "STATIC_BROKER_CONFIG"
    DEFAULT_CONFIG = "DEFAULT_CONFIG"
    DYNAMIC_CLIENT_METRICS_CONFIG = "DYNAMIC_CLIENT_METRICS_CONFIG"
    DYNAMIC_GROUP_CONFIG = "DYNAMIC_GROUP_CONFIG"

    @property
    def number(self) -> int:
        """Kafka's number; 6 is the number of loggers, which are not supported here."""
        place = list(ConfigSource).index(self) + 1
        return place if place <= _LAST_BEFORE_LOGGERS else place + 1


class DynamicLevel(StrEnum):
    """The two dynamic levels of broker configs."""

    BROKER = "broker"
    """One broker's level: ``/config/brokers/<id>``."""
    DEFAULT = "default"
    """The level of all brokers: ``/config/brokers/<default>``."""


@dataclass(frozen=True, slots=True)
class ConfigLevels:
    """The configs set for one broker, level by level. Secrets are in plain text; undecodable ones are absent."""

    catalog: Catalog
    """The definitions of the cluster's release."""
    static: Mapping[str, str] | None = None
    """The broker's server.properties, or None if it is not known."""
    default: Mapping[str, str] = field(default_factory=lambda: _NOTHING)
    broker: Mapping[str, str] = field(default_factory=lambda: _NOTHING)

    def merged(self) -> dict[str, str]:
        """Return the configs set at any level, each with the value of its highest level."""
        found = dict(self.static or {})
        for overlay in (self.default, self.broker):
            for name, value in overlay.items():
                for synonym in synonyms_of(self.catalog, name, listener_bases=False):
                    found.pop(synonym, None)
                found[name] = value
        return found

    def by_source(self) -> dict[ConfigSource, Mapping[str, str]]:
        """Return the levels in order of precedence, without Kafka's defaults."""
        return {
            ConfigSource.DYNAMIC_BROKER_CONFIG: self.broker,
            ConfigSource.DYNAMIC_DEFAULT_BROKER_CONFIG: self.default,
            ConfigSource.STATIC_BROKER_CONFIG: self.static or _NOTHING,
        }

    def is_assumed(self, name: str) -> bool:
        """Return True if the file is unknown and could decide a config."""
        if self.static is not None:
            return False
        return not any(
            name == key or name in synonyms_of(self.catalog, key, listener_bases=False)
            for key in (*self.default, *self.broker)
        )


class SynonymValue(NamedTuple):
    """A value of a config, or of a config that it falls back on, effective or overridden. None for a secret."""

    name: str
    value: str | None
    source: ConfigSource


@dataclass(frozen=True, slots=True)
class EffectiveConfigEntry:
    """One effective config, with all parts of a describe's response."""

    name: str
    value: str | None
    """The value in the canonical form of its type, if Kafka parses it for this response. None for a secret, and if
    there is no value."""
    source: ConfigSource
    synonyms: tuple[SynonymValue, ...]
    """The synonyms in order of precedence; the source of the first is the source of the config."""
    read_only: bool
    sensitive: bool
    type: ConfigType | None
    """The config's type; None for a custom config."""
    assumed: bool = False
    """True if the broker's file is unknown and could change the value."""


def effective_broker(name: str, levels: ConfigLevels) -> EffectiveConfigEntry:
    """Return the effective value of one broker config, whether or not any level sets it.

    Args:
        name: Any broker config, with or without a listener's prefix, or a custom config.
        levels: The levels of the broker, without dropped entries (:func:`read_level`).
    """
    return _effective(name, levels, levels.merged())


def _effective(name: str, levels: ConfigLevels, merged: Mapping[str, str]) -> EffectiveConfigEntry:
    catalog = levels.catalog
    definition = definition_of(catalog, name)
    exact = catalog.broker.get(name)
    sensitive = is_sensitive(catalog, name)
    synonyms = synonyms_for(name, levels)
    stored = merged.get(name)
    if stored is not None:
        # Values parsed by the broker itself are in the form of their type; prefixed forms are not parsed.
        value: str | None = printed(None if exact is None or exact.dynamic_only or exact.internal else exact, stored)
    else:
        value = None if exact is None else exact.default
    return EffectiveConfigEntry(
        name=name,
        value=None if sensitive else value,
        source=synonyms[0].source if synonyms else ConfigSource.DEFAULT_CONFIG,
        synonyms=synonyms,
        read_only=is_read_only(catalog, name),
        sensitive=sensitive,
        type=None if definition is None else definition.type,
        assumed=stored is None and levels.is_assumed(name),
    )


def describe_broker(levels: ConfigLevels, keys: Container[str] | None = None) -> list[EffectiveConfigEntry]:
    """Return the configs of one broker, by name: every config that Kafka documents, and all that any level sets.

    Args:
        levels: The levels of the broker, without dropped entries (:func:`read_level`).
        keys: Only these; None means all.
    """
    names = {
        name
        for name, found in levels.catalog.broker.items()
        if not found.internal and not found.dynamic_only and not found.extra
    }
    for values in levels.by_source().values():
        names.update(values)
    merged = levels.merged()
    return [_effective(name, levels, merged) for name in sorted(names) if keys is None or name in keys]


def describe_default(catalog: Catalog, default: Mapping[str, str]) -> list[EffectiveConfigEntry]:
    """Return the configs set as the default of all brokers, by name; no other level is used here."""
    found = []
    for name in sorted(default):
        definition = definition_of(catalog, name)
        sensitive = is_sensitive(catalog, name)
        synonyms = tuple(
            SynonymValue(synonym, None if is_sensitive(catalog, synonym) else default[synonym], source)
            for source in (ConfigSource.DYNAMIC_DEFAULT_BROKER_CONFIG,)
            for synonym in _from(catalog, name)
            if synonym in default
        )
        found.append(
            EffectiveConfigEntry(
                name=name,
                value=None if sensitive else default[name],  # as given: no broker has parsed it
                source=ConfigSource.DYNAMIC_DEFAULT_BROKER_CONFIG,
                synonyms=synonyms,
                read_only=is_read_only(catalog, name),
                sensitive=sensitive,
                type=None if definition is None else definition.type,
            )
        )
    return found


def synonyms_for(name: str, levels: ConfigLevels) -> tuple[SynonymValue, ...]:
    """List the values of a broker config and its synonyms over all levels, starting with its own name."""
    listed: list[SynonymValue] = []
    catalog = levels.catalog
    group = synonyms_of(catalog, name)
    sources: list[tuple[ConfigSource, Mapping[str, str]]] = list(levels.by_source().items())
    definitions = [catalog.broker[synonym] for synonym in group if synonym in catalog.broker]
    # The rates that exist only as dynamic configs have no part in Kafka's defaults.
    defaults = {found.name: found.default for found in definitions if not found.dynamic_only}
    sources.append(
        (ConfigSource.DEFAULT_CONFIG, {synonym: value for synonym, value in defaults.items() if value is not None})
    )
    for source, values in sources:
        listed += [
            SynonymValue(synonym, None if is_sensitive(catalog, synonym) else values[synonym], source)
            for synonym in group
            if synonym in values
        ]
    while listed and listed[0].name != name:
        del listed[0]
    return tuple(listed)


def _from(catalog: Catalog, name: str) -> tuple[str, ...]:
    """Return the names of a config's group, starting with its own.

    Earlier names never come first among its synonyms.
    """
    group = synonyms_of(catalog, name)
    return group[group.index(name) :]


def printed(definition: ConfigDef | None, stored: str) -> str:
    """Return a stored value in canonical form. Custom and unparsable values are returned unchanged."""
    if definition is None:
        return stored
    try:
        return canonical(definition, stored)
    except ConfigValueError:
        return stored


def read_level(catalog: Catalog, config: Mapping[str, str], level: DynamicLevel) -> tuple[dict[str, str], list[str]]:
    """Read a stored level as brokers do, without the entries that they ignore.

    Returns:
        The entries that take effect, and a warning for each ignored one, without its value.
    """
    kept: dict[str, str] = {}
    warnings: list[str] = []
    for name, value in config.items():
        reason = left_out(catalog, name, value, level, resolvable=PROVIDERS in config)
        if reason is None:
            kept[name] = value
        else:
            warnings.append(f"Brokers leave out the stored {clipped(name)}: {reason}")
    return kept, warnings


def left_out(catalog: Catalog, name: str, value: str, level: DynamicLevel, *, resolvable: bool = False) -> str | None:
    """Return the reason why brokers ignore an entry of a level; None if they use it.

    Args:
        catalog: The definitions of the cluster's release.
        name: The name of the entry.
        value: The value of the entry, never repeated in the reason.
        level: The level that has the entry.
        resolvable: Whether the level names config providers: ``${...}`` is then a reference to a value elsewhere.
    """
    exact = catalog.broker.get(name)
    if exact is not None and not exact.dynamic:
        return "it is not dynamic"
    if exact is not None and exact.prefix_only:
        return "it is dynamic only with a listener's prefix"
    if level is DynamicLevel.DEFAULT and is_per_broker(catalog, name):
        return "it can't be a default of all brokers"
    definition = definition_of(catalog, name)
    if definition is not None and definition.dynamic and not (resolvable and _REFERENCE in value):
        try:
            parse(definition, value)
        except ConfigValueError as error:
            return str(error)
    return None


def is_per_broker(catalog: Catalog, name: str) -> bool:
    """Return True if a config can't be a default of all brokers.

    These are per-broker configs and most forms with a prefix.
    """
    exact = catalog.broker.get(name)
    if exact is not None:
        return exact.scope is Scope.PER_BROKER
    parts = listener_key(catalog, name)
    if parts is None:
        return False
    base = catalog.broker.get(parts.base)
    return base is None or not base.cluster_level_prefix
