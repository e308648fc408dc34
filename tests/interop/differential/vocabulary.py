"""The vocabulary of requests: names, keys and values, sound and not."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any, Final

from confplane.domain.definitions import ConfigDef, ConfigType
from tests.interop.values import AS_DEFAULT, ON_BROKER
from tests.support.catalogs import ZOOKEEPER
from tests.unit.domain.test_brokers_table import ROWS as BROKER_ROWS
from tests.unit.domain.test_topics import ROWS as TOPIC_ROWS

if TYPE_CHECKING:
    import random

TOPICS: Final = ("orders", "pay.ments_1", "Z-9")
"""The topics that the broker has."""

NAMES: Final = (
    "alice",
    "bob.b_-1",
    "CN=Some O=Acme, x/y*",
    "<default>",
    "~\u00fc%2F+",
    "\U0001f511 \u5bc6",
    "0",
    "default",
    "a" * 300,
    "User:alice",
    "\u007f\u00a0tab\tnewline\n",
)
BAD_NAMES: Final = ("", ".", "..", "\ud800", "nul\0")
"""Names that no znode can have."""
IPS: Final = ("10.0.0.1", "10.0.0.2", "192.168.255.255", "0.0.0.0")  # noqa: S104 - a name, not bound to
BAD_IPS: Final = ("::1", "127.1", "localhost", "", "10.0.0.256")

QUOTA_KEYS: Final = ("producer_byte_rate", "consumer_byte_rate", "request_percentage", "controller_mutation_rate")
IP_KEY: Final = "connection_creation_rate"
SCRAM: Final = "SCRAM-SHA-256"
CREDENTIAL: Final = (
    "salt=MXNqNW10aGNqOHlkM2xlYnk2OWtkZ2o0ZXM=,stored_key=7CQKAmZYvQ0BlB8NRzvYpVPYbJzrnyVd0MuIcaWYJpU=,"
    "server_key=NhVqoxLRT+6KLfnhjH5FKPE3GkyYpZ8gCqBqhxVUHFI=,iterations=4096"
)
UNKNOWN_KEYS: Final = ("no_such_rate", "Producer_byte_rate", "", "acks")

WHOLE: Final[tuple[Any, ...]] = (
    0, 1, 1024.0, 1048576, 50000.0, 2147483647, 2147483648, 4294967296.0, 2**53, 1000.0000005, 999.9999995, -0.0,
)  # fmt: skip
NOT_WHOLE: Final[tuple[Any, ...]] = (1000.000002, 0.5, -1, -1e-7, 9.3e18, 1e300, 3e9, 2**53 + 1, 2**63 - 1, 2**63)
FRACTIONS: Final[tuple[Any, ...]] = (
    0, 0.5, 12.3, 100, 200.0, 1e7, 9999999.5, 0.001, 0.00099, 1e-7, 1e21, 1e300, 5e-324, math.inf, -0.5, -0.0,
    1.7976931348623157e308,
)  # fmt: skip
NEVER_FINITE: Final = (math.nan, math.inf, -math.inf)

_NUMBERS: Final = (
    "0", "1", "2", "5", "1024", "-1", "-2", " 7 ", "+5", "0005", "2147483647", "2147483648", "9223372036854775807",
    "9223372036854775808", "5.0", "5e3", "", " ", "abc", "\u0665", "1_000", "5L", "0x5", "86400000", "14",
)  # fmt: skip
_DOUBLES: Final = (
    "0.5", ".5", "5.", "5e-1", "0.5f", "0.5d", "0x1p-1", "-0.0", "0,5", "Infinity", "NaN", "inf", "", "1", "0", "2", "1e400",
)  # fmt: skip
_BOOLEANS: Final = ("true", "false", "TRUE", " False ", "yes", "", "1", "truee")
_TEXTS: Final = ("", " ", "x", "a,b", "\u00fc=\"'\\", "gzip", "GZIP", " zstd ", "none", "required", "\U0001f511\u0001")
_LISTS: Final = (
    "delete", "compact", "delete,compact", "compact , delete", "", ",", "delete,", "keep", "compact,,delete",
    "compact,compact", "Delete",
)  # fmt: skip
_REPLICAS: Final = ("*", "0:0", "0:0,1:0", "0:0,", "", " 0:0 ", "0:0, 1:0", "*,", "0:2147483648", "a:0", "0", "0:0:0")

TOPIC_KEYS: Final = tuple(row[0] for row in TOPIC_ROWS)
TOPIC_LISTS: Final = (
    "cleanup.policy",
    "leader.replication.throttled.replicas",
    "follower.replication.throttled.replicas",
)
# What a broker that serves the tests can be given: no keys that would close its connections.
_NOT_APPLIED: Final = ("max.connection", "metric.reporters", "num.network", "max.connections")
APPLIED_KEYS: Final = tuple(
    sorted(
        {key for key in AS_DEFAULT | ON_BROKER if not any(part in key for part in _NOT_APPLIED)}
        | {
            "num.io.threads",
            "log.retention.ms",
            "min.insync.replicas",
            "log.cleanup.policy",
            "acme.plain",
            "acme.other",
        }
        | {"listener.name.none.ssl.client.auth", "listener.name.plaintext.log.retention.ms", "acme.ssl.key.password"}
    )
)
"""Broker configs that are altered in earnest; the others under ``validateOnly``."""
STATIC_KEYS: Final = ("broker.id", "log.dirs", "zookeeper.connect", "log.retention.hours", "inter.broker.listener.name")
PREFIXED_KEYS: Final = (
    "listener.name.plaintext.max.connections",
    "listener.name.plaintext.num.network.threads",
    "listener.name.sasl_plaintext.plain.sasl.jaas.config",
    "listener.name.sasl_plaintext.PLAIN.sasl.jaas.config",
    "listener.name.plaintext.connections.max.reauth.ms",
    "listener.name.ssl.ssl.keystore.location",
    "listener.name.ssl.ssl.client.auth",
    "listener.name.plaintext.log.dirs",
)
VALIDATED_KEYS: Final = tuple(row[0] for row in BROKER_ROWS) + STATIC_KEYS + PREFIXED_KEYS
OTHER_KEYS: Final = ("no.such.config", "", "Flush.ms", "retention.ms ", "log.retention.ms", "\u00fc.key")

_ROWS: Final = {row[0]: (row[1], row[2]) for row in TOPIC_ROWS} | {row[0]: (row[2], row[3]) for row in BROKER_ROWS}


def quota_value(dice: random.Random, key: str) -> Any:
    """Return a value for a quota: mostly one that it can have."""
    chance = dice.random()
    if chance < 0.02:
        return dice.choice(NEVER_FINITE)
    if key in {"request_percentage", "controller_mutation_rate"}:
        if chance < 0.3:
            return dice.random() * 10 ** dice.randint(-9, 12)
        return dice.choice(FRACTIONS[:13] if chance < 0.9 else FRACTIONS)
    if chance < 0.4:
        return dice.randint(0, 2 ** dice.randint(1, 53))
    return dice.choice(WHOLE if chance < 0.85 else NOT_WHOLE)


def config_value(dice: random.Random, key: str) -> str:
    """Return a value for a topic's or broker's config: one that it can have, or not."""
    if key in _ROWS and dice.random() < 0.5:
        good, bad = _ROWS[key]
        value = good if dice.random() < 0.75 else bad
        if value != "any":
            return value
    return typed_value(dice, key, definition_of(key))


def typed_value(dice: random.Random, key: str, definition: ConfigDef | None) -> str:
    """Return a value for a config by its type alone; any text where there is no definition."""
    if definition is None:
        return dice.choice(_TEXTS)
    if "throttled.replicas" in key:
        return dice.choice(_REPLICAS)
    values = {
        ConfigType.DOUBLE: _DOUBLES,
        ConfigType.BOOLEAN: _BOOLEANS,
        ConfigType.LIST: _LISTS,
        ConfigType.INT: _NUMBERS,
        ConfigType.SHORT: _NUMBERS,
        ConfigType.LONG: _NUMBERS,
    }.get(definition.type, _TEXTS)
    if values is _NUMBERS and dice.random() < 0.3:
        return str(dice.randint(0, 2 ** dice.randint(1, 40)))
    return dice.choice(values)


def definition_of(key: str) -> ConfigDef | None:
    """Return a topic's or broker's definition of a key, a listener's prefix left off."""
    if key.startswith("listener.name."):
        rest = key.removeprefix("listener.name.").partition(".")[2]
        return ZOOKEEPER.broker.get(rest) or ZOOKEEPER.broker.get(rest.partition(".")[2])
    return ZOOKEEPER.topic.get(key) or ZOOKEEPER.broker.get(key)
