"""Topic configs: those that a cluster accepts, and the effective ones of a topic.

A topic without a config of its own inherits the brokers', under another name and sometimes in another unit: without
``retention.ms``, ``log.retention.ms`` applies, else ``log.retention.minutes``, else ``log.retention.hours``.

Source: storage/src/main/java/org/apache/kafka/storage/internals/log/LogConfig.java,
core/src/main/scala/kafka/server/{ConfigHelper,ControllerConfigurationValidator,KafkaConfig}.scala
(``extractLogConfigMap``).
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from types import MappingProxyType
from typing import TYPE_CHECKING, Final

from confplane.domain.broker_levels import ConfigSource, EffectiveConfigEntry, SynonymValue, printed, synonyms_for
from confplane.domain.definitions import ConfigKind, ConfigValueError, parse
from confplane.domain.errors import ErrorList, InvalidConfigError, InvalidTopicError
from confplane.domain.releases import ON_ZOOKEEPER
from confplane.domain.suggestions import suggestion
from confplane.domain.texts import clipped, shown

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Mapping

    from confplane.domain.broker_levels import ConfigLevels
    from confplane.domain.config_rules import ConfigValue
    from confplane.domain.definitions import Catalog, ConfigDef

MAX_NAME: Final = 249
"""The greatest number of characters in a topic's name."""

_NO_POINTERS: Final[Mapping[str, str]] = MappingProxyType({})
_NAME: Final = re.compile(r"[a-zA-Z0-9._-]+")
_NO_LIMIT: Final = -1
_LIKE_TOTAL: Final = -2
_LONG_MAX: Final = str(2**63 - 1)
_REMOTE: Final = "remote.storage.enable"
_REMOTE_OF_BROKERS: Final = "remote.log.storage.system.enable"
_COPY_DISABLE: Final = "remote.log.copy.disable"
_DELETE_ON_DISABLE: Final = "remote.log.delete.on.disable"
_KRAFT_ONLY: Final = (_COPY_DISABLE, _DELETE_ON_DISABLE)
_RETENTIONS: Final = (
    ("local.retention.ms", "retention.ms", "remote.copy.lag.ms"),
    ("local.retention.bytes", "retention.bytes", "remote.copy.lag.bytes"),
)
"""The local and the total retention of a topic with tiered storage, and the delay of its copies."""
_MIN_LAG: Final = "min.compaction.lag.ms"
_MAX_LAG: Final = "max.compaction.lag.ms"
_DIFFERENCE: Final = "message.timestamp.difference.max.ms"
_FORMAT: Final = "message.format.version"
_PROTOCOL: Final = "inter.broker.protocol.version"
_BEFORE_3: Final = re.compile(r"[0-2]\.")


def check_topic_name(name: str, *, pointer: str | None = None) -> None:
    """Refuse invalid names of topics, as a describe does; an alter treats such a topic as absent.

    Raises:
        InvalidTopicError: The name is empty, ``.`` or ``..``, too long, or has characters other than ``a-z A-Z 0-9 . _
            -``.
    """
    if not name:
        raise InvalidTopicError("A topic's name is not empty", pointer=pointer)
    if name in {".", ".."}:
        raise InvalidTopicError(f"A topic can't be named {name!r}", pointer=pointer)
    if len(name) > MAX_NAME:
        raise InvalidTopicError(f"A topic's name has at most {MAX_NAME} characters, not {len(name)}", pointer=pointer)
    if not _NAME.fullmatch(name):
        raise InvalidTopicError(f"A topic's name is made of a-z A-Z 0-9 . _ -, unlike {shown(name)}", pointer=pointer)


@dataclass(frozen=True, slots=True)
class TopicValue:
    """The effective value of a config of a topic."""

    value: str | None
    assumed: bool
    """True if the brokers' files are unknown and could change the value."""


def check_topic(
    after: Mapping[str, str],
    *,
    levels: ConfigLevels,
    stored: Mapping[str, str] = _NO_POINTERS,
    pending: Collection[str] = (),
    pointers: Mapping[str, str] = _NO_POINTERS,
) -> list[str]:
    """Check the whole map that a change would leave on a topic.

    Args:
        after: Everything that would be stored.
        levels: The levels of any broker, for configs that the topic does not set.
        stored: The current map. Its invalid entries remain, with a warning.
        pending: The keys of the current map that a Kafka cluster may not have taken.
        pointers: Key -> JSON pointer, for errors.

    Returns:
        Warnings, each a sentence.

    Raises:
        InvalidConfigError: An unknown key, an invalid value, or values that contradict each other (40).
    """
    warnings: list[str] = []
    values: dict[str, str] = {}
    errors = ErrorList()
    for name in sorted(after):
        try:
            _check_value(levels.catalog, name, after[name])
        except ConfigValueError as error:
            if stored.get(name) != after[name]:
                errors.add(InvalidConfigError(str(error), pointer=pointers.get(name)))
            else:
                warnings.append(f"Brokers don't use the stored {clipped(name)}: {error}")
        else:
            values[name] = after[name]
    errors.raise_all()
    taken = {key: value for key, value in stored.items() if key not in pending}
    check = _TopicCheck(values, _Defaults(levels), pointers, taken)
    check.compaction()
    check.remote()
    check.errors.raise_all()
    return warnings + check.warnings


def _check_value(catalog: Catalog, name: str, value: str) -> None:
    definition = catalog.topic.get(name)
    if definition is None:
        raise ConfigValueError(
            f"Unknown topic config name: {clipped(name)}{suggestion(catalog, ConfigKind.TOPIC, name)}"
        )
    parse(definition, value)


class _Defaults:
    """The values that a topic inherits from brokers, as far as their levels are known."""

    def __init__(self, levels: ConfigLevels) -> None:
        self._levels = levels
        self.catalog = levels.catalog
        self._merged = levels.merged()

    def of(self, definition: ConfigDef) -> TopicValue:
        """Return the value of a topic that does not set this config."""
        found = self._converted(definition)
        value = found.value
        if definition.name == "retention.ms" and value is not None and value.startswith("-"):
            value = str(_NO_LIMIT)
        elif definition.name in {"message.timestamp.before.max.ms", "message.timestamp.after.max.ms"}:
            # The older config applies while the newer one has its default.
            if value == _LONG_MAX and _DIFFERENCE in self.catalog.topic:
                older = self._converted(self.catalog.topic[_DIFFERENCE])
                return TopicValue(older.value, found.assumed or older.assumed)
        elif definition.name == _FORMAT and not _BEFORE_3.match(self._broker(_PROTOCOL) or ""):
            value = definition.default
        return TopicValue(value, found.assumed)

    def broker_flag(self, name: str) -> bool | None:
        """Return a boolean broker config, or None if the brokers' unknown files decide."""
        if self._levels.is_assumed(name):
            return None
        return (self._broker(name) or "").strip().lower() == "true"

    def _broker(self, name: str) -> str | None:
        return self._merged.get(name, self.catalog.broker[name].default)

    def _converted(self, definition: ConfigDef) -> TopicValue:
        """Find the first broker config that is set, else the first with a default, in the unit of the topic's."""
        if not definition.synonyms:
            return TopicValue(definition.default, assumed=False)
        candidates = [(synonym, self._merged.get(synonym.name)) for synonym in definition.synonyms]
        candidates += [(synonym, self.catalog.broker[synonym.name].default) for synonym in definition.synonyms]
        set_somewhere = any(synonym.name in self._merged for synonym in definition.synonyms)
        for synonym, value in candidates:
            if value is None:
                continue
            try:
                parsed = parse(self.catalog.broker[synonym.name], value)
            except ConfigValueError:
                continue
            converted = str(parsed * synonym.factor) if synonym.factor != 1 and isinstance(parsed, int) else value
            assumed = not set_somewhere and self._levels.is_assumed(definition.synonyms[0].name)
            return TopicValue(printed(definition, converted), assumed)
        return TopicValue(definition.default, assumed=False)


class _TopicCheck:
    """The rules about several configs of one topic."""

    def __init__(
        self, values: Mapping[str, str], defaults: _Defaults, pointers: Mapping[str, str], stored: Mapping[str, str]
    ) -> None:
        self._values = values
        self._stored = stored
        self._defaults = defaults
        self._catalog = defaults.catalog
        self._pointers = pointers
        self.warnings: list[str] = []
        self.errors = ErrorList()

    def compaction(self) -> None:
        """Check that a record's minimum compaction lag is not above the maximum."""
        least, most = self._integer(_MIN_LAG), self._integer(_MAX_LAG)
        if least is not None and most is not None and least > most:
            self._refuse(f"{_MIN_LAG} ({least}) must be at most {_MAX_LAG} ({most})", _MIN_LAG, _MAX_LAG)

    def remote(self) -> None:
        """Check tiered storage: its requirements, and the configs that it excludes."""
        for name in _KRAFT_ONLY:
            if self._catalog.release == ON_ZOOKEEPER and self._value(name) is True:
                self._refuse(f"{name} is not supported in a cluster that runs on ZooKeeper", name)
        if self._value(_REMOTE) is not True:
            self._turned_off()
            return
        enabled = self._defaults.broker_flag(_REMOTE_OF_BROKERS)
        if enabled is None:
            self.warnings.append(
                f"{_REMOTE} needs brokers with {_REMOTE_OF_BROKERS}=true; their own files are not known here"
            )
        elif not enabled:
            self._refuse(f"{_REMOTE} needs brokers with {_REMOTE_OF_BROKERS}=true", _REMOTE)
        policy = self._value("cleanup.policy")
        if isinstance(policy, list) and "compact" in policy:
            self._refuse(f"{_REMOTE} is not supported for a topic that is compacted", _REMOTE, "cleanup.policy")
        for local, total, lag in _RETENTIONS:
            self._local(local, total)
            self._copy_lag(lag, local, total)
            self._read_only(local, total)

    def _turned_off(self) -> None:
        """Check that tiered storage is turned off only together with the deletion of the remote data."""
        was_on = self._stored.get(_REMOTE, "").lower() == "true"
        if was_on and self._catalog.release != ON_ZOOKEEPER and self._value(_DELETE_ON_DISABLE) is not True:
            self._refuse(
                f"{_REMOTE} can be turned off only with {_DELETE_ON_DISABLE}=true, which deletes the remote data. To"
                f" keep this data and copy no more, leave {_REMOTE}=true and set {_COPY_DISABLE}=true",
                _REMOTE,
                _DELETE_ON_DISABLE,
            )

    def _read_only(self, name: str, total_name: str) -> None:
        """Check that a topic that copies no more keeps all of its data locally."""
        local, total = self._integer(name), self._integer(total_name)
        if self._value(_COPY_DISABLE) is True and local not in {None, _LIKE_TOTAL, total}:
            self._refuse(
                f"{name} ({local}) must be {total_name} ({total}), or -2, while {_COPY_DISABLE} is true",
                name,
                total_name,
                _COPY_DISABLE,
            )

    def _copy_lag(self, name: str, local_name: str, total_name: str) -> None:
        """Check that data is copied before it is removed locally."""
        lag = self._integer(name) if name in self._catalog.topic else None
        local = self._integer(local_name)
        if local == _LIKE_TOTAL:
            local_name, local = total_name, self._integer(total_name)
        if lag is not None and local is not None and 0 <= local < lag:
            self._refuse(f"{name} ({lag}) must be at most {local_name} ({local})", name, local_name)

    def _local(self, name: str, total_name: str) -> None:
        local, total = self._integer(name), self._integer(total_name)
        if local is None or total is None or total < 0 or local == _LIKE_TOTAL:
            return
        if local == _NO_LIMIT:
            self._refuse(f"{name} must not be -1 while {total_name} is limited", name, total_name)
        elif local > total:
            self._refuse(f"{name} ({local}) must be at most {total_name} ({total})", name, total_name)

    def _value(self, name: str) -> ConfigValue | None:
        definition = self._catalog.topic[name]
        text = self._values.get(name, self._defaults.of(definition).value)
        try:
            return None if text is None else parse(definition, text)
        except ConfigValueError:
            # The value comes from the brokers' levels; no change of the topic can fix it.
            return None

    def _integer(self, name: str) -> int | None:
        found = self._value(name)
        return found if isinstance(found, int) else None

    def _refuse(self, text: str, *names: str) -> None:
        """Refuse with the pointer of the first of these names that was given; only warn if any of them is not known."""
        for name in names:
            if name not in self._values and self._defaults.of(self._catalog.topic[name]).assumed:
                self.warnings.append(
                    f"{text}, if the brokers' own files leave Kafka's defaults; they are not known here"
                )
                return
        pointer = next((self._pointers[name] for name in names if name in self._pointers), None)
        self.errors.add(InvalidConfigError(text, pointer=pointer))


def effective_topic(name: str, config: Mapping[str, str], levels: ConfigLevels) -> EffectiveConfigEntry:
    """Return the effective value of one config of a topic.

    Args:
        name: A topic config, or a stored key that is unknown.
        config: The configs that the topic sets.
        levels: The levels of any broker.
    """
    return _effective(name, config, levels, _Defaults(levels))


def values_of(names: Iterable[str], config: Mapping[str, str], levels: ConfigLevels) -> dict[str, TopicValue]:
    """Return the effective values of some configs of a topic, by name; see :func:`effective_topic`."""
    defaults = _Defaults(levels)
    return {
        name: TopicValue(config[name], assumed=False) if name in config else defaults.of(levels.catalog.topic[name])
        for name in names
    }


def describe_topic(config: Mapping[str, str], levels: ConfigLevels) -> list[EffectiveConfigEntry]:
    """Return all configs of a topic, by name: every known config, and stored configs that are unknown."""
    defaults = _Defaults(levels)
    names = config.keys() | {name for name, found in levels.catalog.topic.items() if not found.extra}
    return [_effective(name, config, levels, defaults) for name in sorted(names)]


def _effective(name: str, config: Mapping[str, str], levels: ConfigLevels, defaults: _Defaults) -> EffectiveConfigEntry:
    definition = levels.catalog.topic.get(name)
    sensitive = definition is None or definition.sensitive
    stored = config.get(name)
    own = None if stored is None else printed(definition, stored)
    synonyms: tuple[SynonymValue, ...] = ()
    default = TopicValue(None, assumed=False)
    if own is not None:
        # A topic's own value is in the form of its type. A broker's value, in the synonyms below, is unchanged.
        synonyms = (SynonymValue(name, None if sensitive else own, ConfigSource.DYNAMIC_TOPIC_CONFIG),)
    if definition is not None:
        default = defaults.of(definition)
        if definition.synonyms:
            synonyms += synonyms_for(definition.synonyms[0].name, levels)
    value = default.value if own is None else own
    return EffectiveConfigEntry(
        name=name,
        value=None if sensitive else value,
        source=synonyms[0].source if synonyms else ConfigSource.DEFAULT_CONFIG,
        synonyms=synonyms,
        read_only=False,
        sensitive=sensitive,
        type=None if definition is None else definition.type,
        assumed=own is None and default.assumed,
    )
