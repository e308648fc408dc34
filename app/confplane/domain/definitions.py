"""Kafka's definitions of configs: type, default, valid values, scope; and the check of a string against them.

The data come from Kafka's own classes: ``python -m tests.catalog.generate`` writes them, and a test compares them.
Internal configs are included and marked. The descriptions of configs are ours; every config also has a link to Kafka's
own documentation.

Source: clients/src/main/java/org/apache/kafka/common/config/ConfigDef.java (``parseType`` and the validators).
"""

from __future__ import annotations

import json
import math
import re
from dataclasses import dataclass
from functools import cache, lru_cache
from importlib import resources
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from confplane.domain.config_rules import (
    DistinctElements,
    KafkaVersion,
    NonEmpty,
    OffsetReset,
    OneOf,
    Range,
    ThrottledReplicas,
)
from confplane.domain.enums import StrEnum
from confplane.domain.numbers import java_double, java_trim, parse_java_double
from confplane.domain.releases import nearest, releases

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from confplane.domain.config_rules import ConfigValue, Rule


class ConfigType(StrEnum):
    """Kafka's config types."""

    BOOLEAN = "BOOLEAN"
    STRING = "STRING"
    INT = "INT"
    SHORT = "SHORT"
    LONG = "LONG"
    DOUBLE = "DOUBLE"
    LIST = "LIST"
    CLASS = "CLASS"
    PASSWORD = "PASSWORD"  # noqa: S105 - the name of a type


class ConfigKind(StrEnum):
    """The components whose configs a catalog defines."""

    TOPIC = "topic"
    BROKER = "broker"
    PRODUCER = "producer"
    CONSUMER = "consumer"
    GROUP = "group"
    CLIENT_METRICS = "client-metrics"


class Scope(StrEnum):
    """The reach of a config's changes while the cluster runs (KIP-226's update modes)."""

    READ_ONLY = "read-only"
    """Only in a file that is read at startup. Client configs have this scope, unless a cluster makes them dynamic."""
    PER_BROKER = "per-broker"
    """For one broker, never for all at once."""
    CLUSTER_WIDE = "cluster-wide"
    """For one broker, or as the default of all."""
    PER_TOPIC = "per-topic"
    """For one topic."""
    PER_GROUP = "per-group"
    """For one group (KIP-848, KIP-932, KIP-1071)."""
    PER_SUBSCRIPTION = "per-subscription"
    """For one subscription to the metrics of clients (KIP-714)."""


class Prefix(StrEnum):
    """The form of a broker config for one listener."""

    LISTENER = "listener.name.<listener>."
    MECHANISM = "listener.name.<listener>.<mechanism>."


class ServerSynonym(NamedTuple):
    """A broker config that a topic's or a group's config falls back on."""

    name: str
    factor: int
    """The factor from the broker config's value to the topic config's: 3600000 from hours to milliseconds."""


class ConfigValueError(ValueError):
    """A value that is not valid by its definition. The message names the key and the rule, never the value."""


@dataclass(frozen=True, slots=True)
class ConfigDef:
    """One config of a topic, a broker, a client, a group or a subscription to the metrics of clients."""

    name: str
    type: ConfigType
    default: str | None
    """The default in Kafka's spelling; None is null, or no default at all when ``required``."""
    required: bool
    importance: str
    valid: Rule | None
    internal: bool
    scope: Scope = Scope.READ_ONLY
    synonyms: tuple[ServerSynonym, ...] = ()
    """Topics, groups: the broker configs that the config falls back on, highest precedence first."""
    group: tuple[str, ...] = ()
    """Brokers: the synonyms of the config, including itself, highest precedence first."""
    prefix: Prefix | None = None
    """Brokers: the form of the config for one listener; None if there is none."""
    prefix_only: bool = False
    """Brokers: dynamic only in the form with a listener's prefix."""
    cluster_level_prefix: bool = False
    """Brokers: the form with a prefix can be set for all brokers too."""
    dynamic_only: bool = False
    """Brokers: has no form in server.properties."""
    secret: bool = False
    """Values are secrets, whatever the type is."""
    extra: bool = False
    """Declared by the settings of a cluster (:mod:`confplane.domain.extra_keys`); no release of Kafka defines it."""
    description: str | None = None
    """The settings' description of a declared key; :func:`description` has those of Kafka's keys."""

    @property
    def sensitive(self) -> bool:
        """True if values are secrets."""
        return self.secret or self.type is ConfigType.PASSWORD

    @property
    def dynamic(self) -> bool:
        """True if the config can be changed while the cluster runs."""
        return self.scope is not Scope.READ_ONLY


@dataclass(frozen=True, eq=False, slots=True)
class Catalog:
    """Every config that one release of Kafka defines, by name. Compared by identity: one object per release."""

    release: str
    """The release, for example "4.4"."""
    topic: Mapping[str, ConfigDef]
    broker: Mapping[str, ConfigDef]
    """The configs of brokers, including those without a static form."""
    producer: Mapping[str, ConfigDef]
    """The configs of the Java producer."""
    consumer: Mapping[str, ConfigDef]
    """The configs of the Java consumer."""
    group: Mapping[str, ConfigDef]
    """The configs of groups; empty before 4.0."""
    client_metrics: Mapping[str, ConfigDef]
    """The configs of subscriptions to the metrics of clients; empty before 4.0."""
    by_mechanism: tuple[str, ...]
    """The broker configs whose form for one listener names a SASL mechanism too."""
    prefixes: tuple[tuple[ConfigKind, ConfigDef], ...] = ()
    """The definitions of all keys below a prefix, which the settings of the cluster declare: each name ends with
    ``.*``."""

    def of(self, kind: ConfigKind) -> Mapping[str, ConfigDef]:
        """Return the configs of a kind."""
        found: Mapping[str, ConfigDef] = getattr(self, kind.name.lower())
        return found

    def find(self, name: str) -> tuple[ConfigDef, ...]:
        """Return a client config's definitions: the producer's, the consumer's, both or none."""
        return tuple(configs[name] for configs in (self.producer, self.consumer) if name in configs)


@cache
def _catalog(release: str) -> Catalog:
    broker = _load(ConfigKind.BROKER, release)
    return Catalog(
        release=release,
        topic=_load(ConfigKind.TOPIC, release),
        broker=broker,
        producer=_load(ConfigKind.PRODUCER, release),
        consumer=_load(ConfigKind.CONSUMER, release),
        group=_load(ConfigKind.GROUP, release),
        client_metrics=_load(ConfigKind.CLIENT_METRICS, release),
        by_mechanism=tuple(name for name, found in broker.items() if found.prefix is Prefix.MECHANISM),
    )


@lru_cache(maxsize=64)
def catalog_of(release: str) -> Catalog:
    """Return the catalog of a release; see :func:`confplane.domain.releases.nearest`.

    The catalog of a cluster also has the keys of its settings: :class:`confplane.domain.extra_keys.Catalogs`.

    Raises:
        ValueError: The text is not a release of Kafka.
    """
    return _catalog(nearest(release))


def releases_with(kind: ConfigKind, name: str) -> tuple[str, ...]:
    """Return the releases that define a config, ascending; empty for an unknown config."""
    return _releases_with(kind).get(name, ())


def defined_names(kind: ConfigKind) -> Iterable[str]:
    """Return the names of all configs of a kind, of any release."""
    return _releases_with(kind)


@cache
def _releases_with(kind: ConfigKind) -> Mapping[str, tuple[str, ...]]:
    found: dict[str, list[str]] = {}
    for entry in _entries(kind):
        found.setdefault(entry["name"], []).extend(_run(entry))
    return MappingProxyType({name: tuple(run) for name, run in found.items()})


def description(kind: ConfigKind, name: str) -> str | None:
    """Return Confplane's description of a config. Every topic, broker and dynamic client config has one."""
    return _descriptions()[kind].get(name)


def quota_description(name: str) -> str:
    """Return Confplane's description of a quota key."""
    return _descriptions()["quota"][name]


def documentation_link(kind: ConfigKind, name: str, release: str) -> str:
    """Return the link to Kafka's documentation of a config, in a release that defines it."""
    if kind is ConfigKind.CLIENT_METRICS:
        return _CLIENT_METRICS_LINK
    return f"https://kafka.apache.org/{release.replace('.', '')}/documentation.html#{kind}configs_{name}"


@cache
def _descriptions() -> Mapping[str, Mapping[str, str]]:
    loaded: dict[str, dict[str, str]] = json.loads(_read("descriptions.json"))
    return MappingProxyType({kind: MappingProxyType(sentences) for kind, sentences in loaded.items()})


def _read(file: str) -> str:
    return resources.files("confplane.domain.catalog").joinpath(file).read_text("utf-8")


@cache
def _entries(kind: ConfigKind) -> tuple[dict[str, Any], ...]:
    """Return the definitions of all releases, by name, and for each name by release."""
    return tuple(json.loads(_read(f"{kind}.json"))["configs"])


def _run(entry: dict[str, Any]) -> tuple[str, ...]:
    """Return the consecutive releases with exactly this definition."""
    known = releases()
    return known[known.index(entry.get("from", known[0])) : known.index(entry.get("to", known[-1])) + 1]


def _load(kind: ConfigKind, release: str) -> Mapping[str, ConfigDef]:
    return MappingProxyType(
        {entry["name"]: _definition(kind, entry) for entry in _entries(kind) if release in _run(entry)}
    )


def _definition(kind: ConfigKind, entry: dict[str, Any]) -> ConfigDef:
    prefix = entry.get("prefix")
    return ConfigDef(
        name=entry["name"],
        type=ConfigType(entry["type"]),
        default=entry.get("default"),
        required=entry.get("required", False),
        importance=entry["importance"],
        valid=_valid(entry.get("valid")),
        internal=entry.get("internal", False),
        scope=SCOPES.get(kind) or Scope(entry.get("scope", Scope.READ_ONLY)),
        synonyms=tuple(ServerSynonym(name, factor) for name, factor in entry.get("synonyms", ())),
        group=tuple(entry.get("group", ())),
        prefix=None if prefix is None else Prefix[prefix.upper()],
        prefix_only=entry.get("prefixOnly", False),
        cluster_level_prefix=entry.get("clusterLevel", False),
        dynamic_only=entry.get("dynamicOnly", False),
    )


def _valid(rule: dict[str, Any] | None) -> Rule | None:
    found: Rule | None = None
    match rule:
        case None:
            pass
        case {"distinct": True}:
            found = DistinctElements(tuple(rule.get("oneOf", ())), non_empty=rule.get("nonEmpty", False))
        case {"offsetReset": strategies}:
            found = OffsetReset(tuple(strategies))
        case {"range": [minimum, maximum]}:
            found = Range(minimum, maximum, also=tuple(rule.get("also", ())))
        case {"oneOf": values}:
            found = OneOf(tuple(values), ignore_case=rule.get("ignoreCase", False))
        case {"version": values}:
            found = KafkaVersion(tuple(values))
        case {"throttledReplicas": True}:
            found = ThrottledReplicas()
        case {"nonEmpty": True}:
            found = NonEmpty()
        case _:
            raise ValueError(f"The catalog holds an unknown rule: {rule}")
    return found


SCOPES: Final = {
    ConfigKind.TOPIC: Scope.PER_TOPIC,
    ConfigKind.GROUP: Scope.PER_GROUP,
    ConfigKind.CLIENT_METRICS: Scope.PER_SUBSCRIPTION,
}
"""The scope of all configs of a kind."""
_CLIENT_METRICS_LINK: Final = (
    "https://cwiki.apache.org/confluence/display/KAFKA/KIP-714%3A+Client+metrics+and+observability"
)
"""Kafka's documentation has no separate page for these."""
_INTEGER: Final = re.compile(r"[+-]?[0-9]+")
_MOST_DIGITS: Final = 40
"""The maximum number of digits that are parsed. Longer numbers are out of every range, and ``int`` raises its own error
for them."""
_LIMITS: Final = {ConfigType.SHORT: 2**15, ConfigType.INT: 2**31, ConfigType.LONG: 2**63}
_LIST_SEPARATOR: Final = re.compile(r"[ \t\n\x0b\f\r]*,[ \t\n\x0b\f\r]*")


def parse(definition: ConfigDef, value: str) -> ConfigValue:
    """Validate a string as Kafka's ConfigDef does, and return the parsed value.

    Blanks around a value do not count, except for the rates that exist only as dynamic configs: Kafka accepts blanks
    there, but a broker that reads them fails to start (core/src/main/scala/kafka/server/ConfigHandler.scala). For a
    CLASS only the form is checked, because its existence is not known here.

    Raises:
        ConfigValueError: The value is not of the type, or breaks the rule.
    """
    trimmed = java_trim(value)
    parsed = _of_type(definition, trimmed)
    if definition.dynamic_only and trimmed != value:
        raise ConfigValueError(f"{definition.name} must have no blanks around it: brokers would not start with them")
    rule = definition.valid
    if isinstance(rule, DistinctElements) and isinstance(parsed, list):
        parsed = list(dict.fromkeys(parsed))
    fault = None if rule is None else rule.fault(trimmed if isinstance(rule, ThrottledReplicas) else parsed)
    if fault is not None:
        raise ConfigValueError(f"{definition.name} {fault}")
    return parsed


def list_elements(value: str) -> list[str]:
    """Return the elements of a LIST as Kafka parses it; blanks around an element do not belong to it."""
    trimmed = java_trim(value)
    return _LIST_SEPARATOR.split(trimmed) if trimmed else []


def canonical(definition: ConfigDef, value: str) -> str:
    """Return a value as Kafka's describe prints it: parsed, then written in the one form of its type.

    Raises:
        ConfigValueError: As :func:`parse`.
    """
    match parse(definition, value):
        case bool(flag):
            return "true" if flag else "false"
        case float(number) if math.isnan(number):
            return "NaN"
        case float(number) if math.isinf(number):
            return "Infinity" if number > 0 else "-Infinity"
        case float(number):
            return java_double(number)
        case list(elements):
            return ",".join(elements)
        case parsed:
            return str(parsed)


def _of_type(definition: ConfigDef, text: str) -> ConfigValue:
    match definition.type:
        case ConfigType.BOOLEAN:
            if text.lower() not in {"true", "false"}:
                raise ConfigValueError(f"{definition.name} must be one of true, false")
            return text.lower() == "true"
        case ConfigType.SHORT | ConfigType.INT | ConfigType.LONG:
            return _integer(definition, text)
        case ConfigType.DOUBLE:
            try:
                return parse_java_double(text)
            except ValueError:
                raise ConfigValueError(f"{definition.name} must be a number (DOUBLE)") from None
        case ConfigType.LIST:
            return list_elements(text)
        case ConfigType.CLASS:
            if not all(part.replace("$", "_").isidentifier() for part in text.split(".")):
                raise ConfigValueError(f"{definition.name} must be the name of a Java class")
            return text
        case ConfigType.STRING | ConfigType.PASSWORD:
            return text


def _integer(definition: ConfigDef, text: str) -> int:
    limit = _LIMITS[definition.type]
    if not _INTEGER.fullmatch(text):
        raise ConfigValueError(f"{definition.name} must be a whole number ({definition.type})")
    digits = text.lstrip("+-").lstrip("0") or "0"
    number = int(digits[:_MOST_DIGITS]) * (-1 if text.startswith("-") else 1)
    if len(digits) > _MOST_DIGITS or not -limit <= number < limit:
        raise ConfigValueError(
            f"{definition.name} must be at least {-limit} and at most {limit - 1} ({definition.type})"
        )
    return number
