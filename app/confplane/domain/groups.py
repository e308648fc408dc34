"""Configs of groups: those that a cluster accepts, and the effective ones of a group (KIP-848, KIP-932, KIP-1071).

A group without a config of its own inherits the brokers' config ``group.<config>``. The brokers also bound what a group
may set: bounds such as ``group.consumer.min.session.timeout.ms`` are in their own files.

Source: group-coordinator/src/main/java/org/apache/kafka/coordinator/group/GroupConfig.java (``validate``, as of 4.4),
core/src/main/scala/kafka/server/ConfigHelper.scala (``createGroupConfigEntry``).
"""

from __future__ import annotations

import re
from types import MappingProxyType
from typing import TYPE_CHECKING, Final

from confplane.domain.broker_levels import ConfigSource, EffectiveConfigEntry, SynonymValue, printed, synonyms_for
from confplane.domain.definitions import ConfigKind, ConfigValueError, parse
from confplane.domain.errors import ErrorList, InvalidConfigError
from confplane.domain.suggestions import suggestion
from confplane.domain.texts import clipped

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from confplane.domain.broker_levels import ConfigLevels
    from confplane.domain.config_rules import ConfigValue
    from confplane.domain.definitions import Catalog, ConfigDef

_NO_POINTERS: Final[Mapping[str, str]] = MappingProxyType({})
_PROTOCOLS: Final = ("consumer", "share", "streams")
_DEAD_LETTERS: Final = "errors.deadletterqueue.topic.name"
_INTERNAL_TOPICS: Final = "__"
_ASSIGNOR: Final = "streams.assignor.name"
_ASSIGNORS: Final = "group.streams.assignors"
_TAGS: Final = "streams.rack.aware.assignment.tags"
_COMMA: Final = re.compile(r"\s*,\s*", re.ASCII)
_NAMED_OTHERWISE: Final = {"num.standby.replicas": "standby.replicas", "num.warmup.replicas": "warmup.replicas"}
"""Configs whose bounds have a shorter name."""


def check_group(
    after: Mapping[str, str],
    *,
    levels: ConfigLevels,
    stored: Mapping[str, str] = _NO_POINTERS,
    pointers: Mapping[str, str] = _NO_POINTERS,
) -> list[str]:
    """Check the whole map that a change would leave on a group.

    Args:
        after: Everything that would be stored.
        levels: The levels of any broker, which bound the values.
        stored: The current map. Its invalid entries remain, with a warning.
        pointers: Key -> JSON pointer, for errors.

    Returns:
        Warnings, each a sentence.

    Raises:
        InvalidConfigError: An unknown key, an invalid value, a value outside the brokers' bounds, or a session timeout
            that is not above the heartbeat interval (40).
    """
    warnings: list[str] = []
    values: dict[str, ConfigValue] = {}
    errors = ErrorList()
    for name in sorted(after):
        try:
            values[name] = _parsed(levels.catalog, name, after[name])
        except ConfigValueError as error:
            if stored.get(name) != after[name]:
                errors.add(InvalidConfigError(str(error), pointer=pointers.get(name)))
            else:
                warnings.append(f"Brokers don't use the stored {clipped(name)}: {error}")
    errors.raise_all()
    check = _GroupCheck(values, levels, pointers)
    check.bounds()
    check.errors.raise_all()  # values outside their bounds often contradict others too
    check.assignor()
    check.sessions()
    check.dead_letters()
    check.errors.raise_all()
    return warnings + check.warnings


def _parsed(catalog: Catalog, name: str, value: str) -> ConfigValue:
    definition = catalog.group.get(name)
    if definition is None:
        raise ConfigValueError(
            f"Unknown group config name: {clipped(name)}{suggestion(catalog, ConfigKind.GROUP, name)}"
        )
    parsed = parse(definition, value)
    if name == _TAGS and isinstance(parsed, list) and value.strip() and len(_COMMA.split(value.strip())) != len(parsed):
        # Repetitions in other lists do not matter, but this list is also parsed in another way.
        raise ConfigValueError(f"{name} must not have an element twice")
    return parsed


class _GroupCheck:
    """The rules about brokers' values, and about several configs of one group."""

    def __init__(self, values: Mapping[str, ConfigValue], levels: ConfigLevels, pointers: Mapping[str, str]) -> None:
        self._values = values
        self._levels = levels
        self._merged = levels.merged()
        self._pointers = pointers
        self.warnings: list[str] = []
        self.errors = ErrorList()

    def bounds(self) -> None:
        """Check each number against the least and the greatest that the brokers allow."""
        for name, value in self._values.items():
            protocol, _, rest = name.partition(".")
            if protocol not in _PROTOCOLS or not isinstance(value, int):
                continue
            rest = _NAMED_OTHERWISE.get(rest, rest)
            least_key, most_key = f"group.{protocol}.min.{rest}", f"group.{protocol}.max.{rest}"
            least, most = self._broker_integer(least_key), self._broker_integer(most_key)
            if least is not None and value < least:
                self._refuse(f"{name} must be at least {least}, the brokers' {least_key}", least_key, name)
            if most is not None and value > most:
                self._refuse(f"{name} must be at most {most}, the brokers' {most_key}", most_key, name)

    def assignor(self) -> None:
        """Check the assignor against the brokers' built-in ones; the name of a class is known only to brokers."""
        name, known = self._values.get(_ASSIGNOR), self._broker(_ASSIGNORS)
        if name is None or not isinstance(known, list) or name in known:
            return
        if any("." in each for each in known):
            self.warnings.append(f"{_ASSIGNOR}: the names of the brokers' {_ASSIGNORS} that are classes are not known")
        else:
            self._refuse(f"{_ASSIGNOR} must be one of {', '.join(known)}, the brokers' {_ASSIGNORS}", _ASSIGNORS)

    def sessions(self) -> None:
        """Check that the session timeout is longer than the heartbeat interval."""
        for protocol in _PROTOCOLS:
            session_key, heartbeat_key = f"{protocol}.session.timeout.ms", f"{protocol}.heartbeat.interval.ms"
            if session_key not in self._values and heartbeat_key not in self._values:
                continue
            session, heartbeat = self._effective(session_key), self._effective(heartbeat_key)
            if session is None or heartbeat is None or session > heartbeat:
                continue
            inherited = [f"group.{key}" for key in (session_key, heartbeat_key) if key not in self._values]
            text = f"{session_key} ({session}) must be above {heartbeat_key} ({heartbeat})"
            self._refuse(text, inherited[0] if inherited else None, session_key, heartbeat_key)

    def dead_letters(self) -> None:
        """Check that the dead letter topic is not one of Kafka's own topics."""
        if str(self._values.get(_DEAD_LETTERS, "")).startswith(_INTERNAL_TOPICS):
            self._refuse(f"{_DEAD_LETTERS} must not begin with {_INTERNAL_TOPICS}", None, _DEAD_LETTERS)

    def _effective(self, key: str) -> int | None:
        found = self._values.get(key)
        return found if isinstance(found, int) else self._broker_integer(f"group.{key}")

    def _broker(self, key: str) -> ConfigValue | None:
        definition = self._levels.catalog.broker.get(key)
        text = None if definition is None else self._merged.get(key, definition.default)
        if definition is None or text is None:
            return None
        try:
            return parse(definition, text)
        except ConfigValueError:
            return None

    def _broker_integer(self, key: str) -> int | None:
        found = self._broker(key)
        return found if isinstance(found, int) else None

    def _refuse(self, text: str, broker_key: str | None, *names: str) -> None:
        """Refuse with the pointer of the first of these names that was given; only warn if the file decides."""
        if broker_key is not None and self._levels.is_assumed(broker_key):
            self.warnings.append(f"{text}, if the brokers' own files leave Kafka's defaults; they are not known here")
            return
        pointer = next((self._pointers[name] for name in names or (_ASSIGNOR,) if name in self._pointers), None)
        self.errors.add(InvalidConfigError(text, pointer=pointer))


def effective_group(name: str, config: Mapping[str, str], levels: ConfigLevels) -> EffectiveConfigEntry:
    """Return the effective value of one config of a group.

    Args:
        name: A group config, or a stored key that is unknown.
        config: The configs that the group sets.
        levels: The levels of any broker.
    """
    definition = levels.catalog.group.get(name)
    stored = config.get(name)
    own = None if stored is None else printed(definition, stored)
    sensitive = definition is None or definition.sensitive
    inherited = () if definition is None else tuple(_inherited(definition, levels))
    synonyms = inherited
    if own is not None:
        synonyms = (SynonymValue(name, None if sensitive else own, ConfigSource.DYNAMIC_GROUP_CONFIG), *inherited)
    default = None if definition is None else definition.default
    value = own if own is not None else inherited[0].value if inherited else default
    broker_key = None if definition is None or not definition.synonyms else definition.synonyms[0].name
    return EffectiveConfigEntry(
        name=name,
        value=None if sensitive else value,
        source=synonyms[0].source if synonyms else ConfigSource.DEFAULT_CONFIG,
        synonyms=synonyms,
        read_only=False,
        sensitive=sensitive,
        type=None if definition is None else definition.type,
        assumed=own is None and broker_key is not None and levels.is_assumed(broker_key),
    )


def _inherited(definition: ConfigDef, levels: ConfigLevels) -> Iterator[SynonymValue]:
    """List the inherited values: those of the broker, or the default of the group config."""
    if definition.synonyms:
        yield from synonyms_for(definition.synonyms[0].name, levels)
    elif definition.default is not None:
        yield SynonymValue(definition.name, definition.default, ConfigSource.DEFAULT_CONFIG)


def describe_group(config: Mapping[str, str], levels: ConfigLevels) -> list[EffectiveConfigEntry]:
    """Return all configs of a group, by name: those that Kafka documents, and all stored configs."""
    documented = {name for name, found in levels.catalog.group.items() if not found.internal and not found.extra}
    return [effective_group(name, config, levels) for name in sorted(documented | config.keys())]
