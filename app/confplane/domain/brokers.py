"""Broker configs that a cluster accepts: checks of one level alone, and of its result on each broker.

:func:`validate` is the check of a write. Errors have the code of Kafka's RPC, 42 for almost everything about brokers,
and never a value of a secret. A value that only a running broker could check (a keystore to load, a class to find) is
accepted; a value that depends on an unknown file is accepted with a warning.

Source: core/src/main/scala/kafka/server/DynamicBrokerConfig.scala (``validate`` and the reconfigurables).
"""

from __future__ import annotations

from dataclasses import replace
from types import MappingProxyType
from typing import TYPE_CHECKING, Final

from confplane.domain.broker_consistency import check_merged
from confplane.domain.broker_keys import JAAS, definition_of, is_password, listener_key
from confplane.domain.broker_levels import PROVIDERS, ConfigLevels, DynamicLevel, is_per_broker, left_out, read_level
from confplane.domain.definitions import ConfigKind, ConfigType, ConfigValueError, Prefix, parse
from confplane.domain.errors import ErrorList, InvalidConfigError, InvalidRequestError
from confplane.domain.jaas import JaasError, check_jaas
from confplane.domain.suggestions import suggestion
from confplane.domain.texts import clipped

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping

    from confplane.domain.broker_keys import ListenerKey
    from confplane.domain.definitions import Catalog

_NO_POINTERS: Final[Mapping[str, str]] = MappingProxyType({})
_POSITIVE: Final = frozenset({"max.connections", "max.connection.creation.rate"})
"""Configs that accept zero by their definitions, although the listeners that use them reject it."""
_REPORTERS: Final = "metric.reporters"
_OF_ZOOKEEPER: Final = "zookeeper.connect"
"""A config that brokers have as long as they use ZooKeeper."""


def validate(
    after: Mapping[str, str],
    *,
    level: DynamicLevel,
    levels: ConfigLevels,
    pointers: Mapping[str, str] = _NO_POINTERS,
) -> list[str]:
    """Check the whole map that a change would leave at one level.

    Stored entries that brokers ignore are not this change's fault: they remain, have no effect, and produce warnings.

    Args:
        after: Everything that would be stored at ``level``, secrets in plain text.
        level: The level of the change.
        levels: The current levels; ``after`` replaces the map of ``level``. For a change of the default, the levels of
            one broker: call the function for each, or for the default alone if no broker is known.
        pointers: Key -> JSON pointer, for errors.

    Returns:
        Warnings, each a sentence.

    Raises:
        InvalidRequestError: Kafka would refuse the map (42), or no listener could use it.
        InvalidConfigError: A custom secret as a default of all brokers (40).
    """
    before = levels.broker if level is DynamicLevel.BROKER else levels.default
    warnings = check_level(levels.catalog, after, level=level, stored=before, pointers=pointers)
    kept_before = _readable(levels)
    kept, _ = read_level(levels.catalog, after, level)
    kept_after = (
        replace(kept_before, broker=kept) if level is DynamicLevel.BROKER else replace(kept_before, default=kept)
    )
    return list(dict.fromkeys([*warnings, *check_merged(kept_before, kept_after, pointers=pointers)]))


def _readable(levels: ConfigLevels) -> ConfigLevels:
    return ConfigLevels(
        levels.catalog,
        static=levels.static,
        default=read_level(levels.catalog, levels.default, DynamicLevel.DEFAULT)[0],
        broker=read_level(levels.catalog, levels.broker, DynamicLevel.BROKER)[0],
    )


def check_level(
    catalog: Catalog,
    config: Mapping[str, str],
    *,
    level: DynamicLevel,
    stored: Mapping[str, str] = _NO_POINTERS,
    pointers: Mapping[str, str] = _NO_POINTERS,
) -> list[str]:
    """Check one level alone: names, scopes, types, ranges.

    Args:
        catalog: The definitions of the cluster's release.
        config: Everything at the level, secrets in plain text.
        level: The level.
        stored: The current map of the level; unchanged entries are not refused.
        pointers: Key -> JSON pointer, for errors.

    Returns:
        Warnings, each a sentence.

    Raises:
        InvalidRequestError: A key can't be set at this level, or its value is not valid.
        InvalidConfigError: A custom secret as a default of all brokers.
    """
    resolvable = PROVIDERS in config
    warnings: list[str] = []
    new: dict[str, str] = {}
    for name in sorted(config):
        if stored.get(name) != config[name]:
            new[name] = config[name]
        elif (reason := left_out(catalog, name, config[name], level, resolvable=resolvable)) is not None:
            warnings.append(f"Brokers leave out the stored {clipped(name)}: {reason}")
    errors = ErrorList()
    refused = _check_names(catalog, new, level, pointers, errors)
    for name, value in new.items():
        if resolvable and "${" in value and definition_of(catalog, name) is not None:
            warnings.append(f"{name} refers to a config provider: brokers resolve and check it, not this service")
        elif name not in refused:
            try:
                _check_value(catalog, name, value, pointers.get(name))
            except InvalidRequestError as error:
                errors.add(error)
        warnings += _remarks(catalog, name)
    errors.raise_all()
    return warnings


def _check_names(
    catalog: Catalog, new: Iterable[str], level: DynamicLevel, pointers: Mapping[str, str], errors: ErrorList
) -> set[str]:
    """Check which keys can be set at a level at all, and return those that can't. Each is refused once."""
    refused: set[str] = set()

    def refuse(what: str, rule: Callable[[str], bool]) -> None:
        if names := [name for name in new if name not in refused and rule(name)]:
            listed = ", ".join(clipped(name) for name in names[:20])
            errors.add(InvalidRequestError(f"{what}: Set({listed})", pointer=pointers.get(names[0])))
            refused.update(names)

    known = catalog.broker
    refuse("Cannot update these configs dynamically", lambda name: name in known and not known[name].dynamic)
    refuse(
        "These security configs can be dynamically updated only per-listener using the listener prefix",
        lambda name: name in known and known[name].prefix_only,
    )
    if level is DynamicLevel.DEFAULT:
        refuse(
            "Cannot update these configs at default cluster level, broker id must be specified",
            lambda name: is_per_broker(catalog, name),
        )
        for name in new:
            if is_password(name) and name not in refused:
                text = f"{clipped(name)} is a secret, and secrets can be set for one broker at a time only"
                errors.add(InvalidConfigError(text, pointer=pointers.get(name)))
                refused.add(name)
    return refused


def _check_value(catalog: Catalog, name: str, value: str, pointer: str | None) -> None:
    definition = definition_of(catalog, name)
    if definition is None:
        return
    shown = name if name == definition.name else f"{clipped(name)}: {definition.name}"
    try:
        parsed = parse(definition, value)
    except ConfigValueError as error:
        text = str(error)
        raise InvalidRequestError(
            text if name == definition.name else f"{clipped(name)}: {text}", pointer=pointer
        ) from None
    if definition.name in _POSITIVE and parsed == 0:
        raise InvalidRequestError(f"{shown} must be at least 1", pointer=pointer)
    if definition.name == JAAS:
        _check_jaas(catalog, name, value, pointer)


def _check_jaas(catalog: Catalog, name: str, value: str, pointer: str | None) -> None:
    parts = listener_key(catalog, name)
    if parts is not None and parts.mechanism is not None and parts.mechanism != parts.mechanism.lower():
        raise InvalidRequestError(
            f"{clipped(name)}: the mechanism before {JAAS} must be written in lower case", pointer=pointer
        )
    try:
        check_jaas(value)
    except JaasError as error:
        raise InvalidRequestError(str(error), pointer=pointer) from None


def _unknown(catalog: Catalog, name: str, parts: ListenerKey | None) -> str:
    """Return the warning about a key that brokers accept as a custom config, which is rarely what is meant."""
    end = suggestion(catalog, ConfigKind.BROKER, name if parts is None else parts.base)
    return (
        f"No broker config of Kafka {catalog.release} has the name {clipped(name)}{end.removesuffix('?')}"
        f"{'?' if end.endswith('?') else '.'} It is stored as a custom config, and its value is never shown"
    )


def _of_replaced_files(catalog: Catalog) -> str:
    """Return what a remark says about a file that is replaced under its old name."""
    if _OF_ZOOKEEPER in catalog.broker:
        return "a file replaced under its old name is not noticed, so give new files new names"
    return "set its location again after a file was replaced under its old name"


def _remarks(catalog: Catalog, name: str) -> list[str]:
    """Return remarks on a config that is accepted but does not have the effect that it appears to have."""
    definition = definition_of(catalog, name)
    parts = listener_key(catalog, name)
    if definition is None:
        return [] if name == PROVIDERS or name.startswith(f"{PROVIDERS}.") else [_unknown(catalog, name, parts)]
    if parts is None:
        if name == JAAS:
            return [f"{JAAS} without a listener and mechanism before it is not read by any listener"]
        if name == _REPORTERS:
            return [f"{name}: a broker that does not find one of these classes when it starts does not start"]
        if definition.type is ConfigType.CLASS:
            return [f"{name}: a broker that does not find the class leaves this out"]
        return []
    found = []
    if parts.listener != parts.listener.lower():
        found.append(f"{clipped(name)} is never read: listeners look for their names in lower case")
    if definition.prefix is None:
        found.append(f"{clipped(name)} is never read: {definition.name} has no form for one listener")
    elif definition.prefix is Prefix.MECHANISM and parts.mechanism is None:
        found.append(f"{clipped(name)} is never read: the mechanism is missing before {definition.name}")
    elif definition.prefix_only:
        found.append(
            f"{clipped(name)}: a broker loads the store when it is told of the change, and keeps the old one when it "
            f"can't, but then does not start again; {_of_replaced_files(catalog)}"
        )
    return found
