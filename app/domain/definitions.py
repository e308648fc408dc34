"""Kafka's definitions of configs: type, default, valid values, scope; and the check of a string against them.

The data are those of Kafka's own classes: ``python -m tests.catalog.generate`` writes them, and a test compares.
Internal configs are included and marked. The descriptions of configs are ours; every config also has a link to Kafka's
own documentation.

Source: clients/src/main/java/org/apache/kafka/common/config/ConfigDef.java (``parseType`` and the validators).
"""

from __future__ import annotations

import json
import math
import re
from dataclasses import dataclass
from enum import StrEnum
from functools import cache
from importlib import resources
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from app.domain.config_rules import KafkaVersion, NonEmpty, OneOf, Range, ThrottledReplicas
from app.domain.numbers import java_double, java_trim, parse_java_double

if TYPE_CHECKING:
    from collections.abc import Mapping

    from app.domain.config_rules import ConfigValue, Rule

KAFKA_VERSION: Final = "3.9"
"""The version of Kafka whose definitions are used unless another version is named."""


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


class Kind(StrEnum):
    """The components whose configs a catalog defines."""

    TOPIC = "topic"
    BROKER = "broker"
    PRODUCER = "producer"
    CONSUMER = "consumer"


class Scope(StrEnum):
    """The reach of a config's changes while the cluster runs (KIP-226's update modes)."""

    READ_ONLY = "read-only"
    """Only in a file that is read at start. Client configs have this scope, unless a cluster makes them dynamic."""
    PER_BROKER = "per-broker"
    """For one broker, never for all at once."""
    CLUSTER_WIDE = "cluster-wide"
    """For one broker, or as the default of all."""
    PER_TOPIC = "per-topic"
    """For one topic."""


class Prefix(StrEnum):
    """The form of a broker config for one listener."""

    LISTENER = "listener.name.<listener>."
    MECHANISM = "listener.name.<listener>.<mechanism>."


class ServerSynonym(NamedTuple):
    """A broker config that a topic config falls back on."""

    name: str
    factor: int
    """The factor from the broker config's value to the topic config's: 3600000 from hours to milliseconds."""


class ConfigValueError(ValueError):
    """A value that its definition refuses. The message names the key and the rule, never the value."""


@dataclass(frozen=True, slots=True)
class ConfigDef:
    """One config of a topic, a broker or a client."""

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
    """Topics: the broker configs that the config falls back on, highest precedence first."""
    group: tuple[str, ...] = ()
    """Brokers: the synonyms of the config, itself included, highest precedence first."""
    prefix: Prefix | None = None
    """Brokers: the form of the config for one listener; None where there is none."""
    prefix_only: bool = False
    """Brokers: dynamic only in the form with a listener's prefix."""
    cluster_level_prefix: bool = False
    """Brokers: the form with a prefix can be set for all brokers too."""
    dynamic_only: bool = False
    """Brokers: has no form in server.properties."""

    @property
    def sensitive(self) -> bool:
        """True where values are secrets."""
        return self.type is ConfigType.PASSWORD

    @property
    def dynamic(self) -> bool:
        """True where the config can be changed while the cluster runs."""
        return self.scope is not Scope.READ_ONLY


def configs_of(kind: Kind, version: str = KAFKA_VERSION) -> Mapping[str, ConfigDef]:
    """Return every config of a kind, by name.

    Raises:
        LookupError: There is no catalog of that version of Kafka.
    """
    return _load(kind, version)


def topic_configs() -> Mapping[str, ConfigDef]:
    """Return every topic config, by name."""
    return _load(Kind.TOPIC, KAFKA_VERSION)


def broker_configs() -> Mapping[str, ConfigDef]:
    """Return every broker config, by name, including those without a static form."""
    return _load(Kind.BROKER, KAFKA_VERSION)


def producer_configs() -> Mapping[str, ConfigDef]:
    """Return every config of the Java producer, by name."""
    return _load(Kind.PRODUCER, KAFKA_VERSION)


def consumer_configs() -> Mapping[str, ConfigDef]:
    """Return every config of the Java consumer, by name."""
    return _load(Kind.CONSUMER, KAFKA_VERSION)


def find(name: str) -> tuple[ConfigDef, ...]:
    """Return a client config's definitions: the producer's, the consumer's, both or none."""
    return tuple(catalog[name] for catalog in (producer_configs(), consumer_configs()) if name in catalog)


def description(kind: Kind, name: str) -> str | None:
    """Return our description of a config: every topic and broker config and every dynamic client config has one."""
    return _descriptions()[kind].get(name)


def quota_description(name: str) -> str:
    """Return our description of a quota key."""
    return _descriptions()["quota"][name]


def documentation_link(kind: Kind, name: str, version: str = KAFKA_VERSION) -> str:
    """Return the link to Kafka's documentation of a config."""
    return f"https://kafka.apache.org/{version.replace('.', '')}/documentation.html#{kind}configs_{name}"


@cache
def _descriptions() -> Mapping[str, Mapping[str, str]]:
    loaded: dict[str, dict[str, str]] = json.loads(_read("descriptions.json"))
    return MappingProxyType({kind: MappingProxyType(sentences) for kind, sentences in loaded.items()})


def _read(file: str) -> str:
    return resources.files("app.domain.catalog").joinpath(file).read_text("utf-8")


@cache
def _load(kind: Kind, version: str) -> Mapping[str, ConfigDef]:
    try:
        text = _read(f"{kind}-{version}.json")
    except FileNotFoundError:
        raise LookupError(f"There are no definitions of Kafka {version}") from None
    return MappingProxyType({entry["name"]: _definition(kind, entry) for entry in json.loads(text)["configs"]})


def _definition(kind: Kind, entry: dict[str, Any]) -> ConfigDef:
    prefix = entry.get("prefix")
    return ConfigDef(
        name=entry["name"],
        type=ConfigType(entry["type"]),
        default=entry.get("default"),
        required=entry.get("required", False),
        importance=entry["importance"],
        valid=_valid(entry.get("valid")),
        internal=entry.get("internal", False),
        scope=Scope.PER_TOPIC if kind is Kind.TOPIC else Scope(entry.get("scope", Scope.READ_ONLY)),
        synonyms=tuple(ServerSynonym(name, factor) for name, factor in entry.get("synonyms", ())),
        group=tuple(entry.get("group", ())),
        prefix=None if prefix is None else Prefix[prefix.upper()],
        prefix_only=entry.get("prefixOnly", False),
        cluster_level_prefix=entry.get("clusterLevel", False),
        dynamic_only=entry.get("dynamicOnly", False),
    )


def _valid(rule: dict[str, Any] | None) -> Rule | None:
    match rule:
        case None:
            return None
        case {"range": [minimum, maximum]}:
            return Range(minimum, maximum, also=tuple(rule.get("also", ())))
        case {"oneOf": values}:
            return OneOf(tuple(values), ignore_case=rule.get("ignoreCase", False))
        case {"version": values}:
            return KafkaVersion(tuple(values))
        case {"throttledReplicas": True}:
            return ThrottledReplicas()
        case {"nonEmpty": True}:
            return NonEmpty()
        case _:
            raise ValueError(f"The catalog holds an unknown rule: {rule}")


_INTEGER: Final = re.compile(r"[+-]?[0-9]+")
_MOST_DIGITS: Final = 40
"""Digits of the longest number parsed. Longer numbers are out of every range, and ``int`` raises its own error for
them."""
_LIMITS: Final = {ConfigType.SHORT: 2**15, ConfigType.INT: 2**31, ConfigType.LONG: 2**63}
_LIST_SEPARATOR: Final = re.compile(r"[ \t\n\x0b\f\r]*,[ \t\n\x0b\f\r]*")


def parse(definition: ConfigDef, value: str) -> ConfigValue:
    """Validate a string as Kafka's ConfigDef does, and return the parsed value.

    Blanks around a value do not count, except for the rates that exist only as dynamic configs: Kafka accepts blanks
    there, and the broker that reads them then does not start (core/src/main/scala/kafka/server/ConfigHandler.scala). Of
    a CLASS only the form is checked; its existence is not known here.

    Raises:
        ConfigValueError: Not of the type, or against the rule.
    """
    trimmed = java_trim(value)
    parsed = _of_type(definition, trimmed)
    if definition.dynamic_only and trimmed != value:
        raise ConfigValueError(f"{definition.name} must have no blanks around it: brokers would not start with them")
    rule = definition.valid
    fault = None if rule is None else rule.fault(trimmed if isinstance(rule, ThrottledReplicas) else parsed)
    if fault is not None:
        raise ConfigValueError(f"{definition.name} {fault}")
    return parsed


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
            return _LIST_SEPARATOR.split(text) if text else []
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
