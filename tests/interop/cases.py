"""Alters that Kafka and Confplane are both sent, and the differences between their error codes that are meant.

Names of entities have a ``{}``, so that each side has its own. A difference names the row of
docs/kafka-compatibility.md that says why.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from tests.unit.domain.test_brokers_table import ROWS as BROKER_ROWS
from tests.unit.domain.test_topics import ROWS as TOPIC_ROWS

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tests.interop.entities import Names

TOPIC: Final = "codes-{}"


@dataclass(frozen=True, slots=True)
class Difference:
    """The answers of Kafka and Confplane, and the row that explains their difference."""

    theirs: int
    ours: int
    row: str


@dataclass(frozen=True, slots=True)
class QuotaCase:
    """An entity and its ops: key and value, None to remove."""

    name: str
    entity: Names
    ops: tuple[tuple[str, Any], ...]


@dataclass(frozen=True, slots=True)
class ConfigCase:
    """A resource and its ops."""

    name: str
    kind: str
    resource: str
    ops: tuple[tuple[str, str, str | None], ...]


SCRAM: Final = "SCRAM-SHA-256"
USER: Final[Names] = {"user": "codes {}"}


def quota_cases() -> list[QuotaCase]:
    """Return the cases of client quotas."""
    client: Names = {"client-id": "codes {}"}
    ip: Names = {"ip": "10.77.0.1"}
    rate = ("producer_byte_rate", 1024)
    creation = ("connection_creation_rate", 10)
    return [
        QuotaCase("a rate", USER, (rate,)),
        QuotaCase("of a client-id", client, (rate,)),
        QuotaCase("of a pair", USER | client, (rate,)),
        QuotaCase("all of a pair", USER | client, (rate, ("consumer_byte_rate", 0), ("request_percentage", 0.5))),
        QuotaCase(
            "of the default user's default client", {"user": None, "client-id": None}, (("request_percentage", 9),)
        ),
        QuotaCase("of an ip", ip, (creation,)),
        QuotaCase("none at all", USER, (("consumer_byte_rate", 0), ("controller_mutation_rate", 0))),
        QuotaCase("rounded", USER, (("producer_byte_rate", 1000.0000005),)),
        QuotaCase("rounded down", USER, (("producer_byte_rate", 999.9999995),)),
        QuotaCase("just not rounded", USER, (("producer_byte_rate", 1000.000002),)),
        QuotaCase("a fraction", USER, (("producer_byte_rate", 10000.5),)),
        QuotaCase("a fraction of a percentage", USER, (("request_percentage", 1e-7),)),
        QuotaCase("the largest LONG", USER, (("producer_byte_rate", 9223372036854775807),)),
        QuotaCase("beyond LONG", USER, (("producer_byte_rate", 9.3e18),)),
        QuotaCase("beyond INT", ip, (("connection_creation_rate", 3e9),)),
        QuotaCase("a negative LONG", USER, (("producer_byte_rate", -1),)),
        QuotaCase("a negative INT", ip, (("connection_creation_rate", -1),)),
        QuotaCase("a negative DOUBLE", USER, (("request_percentage", -0.5),)),
        QuotaCase("a tiny negative LONG", USER, (("producer_byte_rate", -1e-7),)),
        QuotaCase("an unknown key", USER, (("no_such_rate", 1),)),
        QuotaCase("another case", USER, (("Producer_byte_rate", 1),)),
        QuotaCase("an empty key", USER, (("", 1),)),
        QuotaCase("an ip's key", USER, (creation,)),
        QuotaCase("a user's key on an ip", ip, (rate,)),
        QuotaCase("a key twice", USER, (("producer_byte_rate", 5), rate)),
        QuotaCase("a key twice, the first one refused", USER, (("producer_byte_rate", -5), rate)),
        QuotaCase("a good and a bad key", USER, (rate, ("no_such_rate", 1))),
        QuotaCase("no ops", USER, ()),
        QuotaCase("no ops on what is not there", {"user": "idle {}"}, ()),
        QuotaCase("removal of what is not there", {"user": "idle {}"}, (("producer_byte_rate", None),)),
        QuotaCase("removal of an unknown key", USER, (("no_such_rate", None),)),
        QuotaCase("removal of all", USER, tuple((key, None) for key in ("producer_byte_rate", "consumer_byte_rate"))),
        QuotaCase("a credential", USER, ((SCRAM, 1),)),
        QuotaCase("a credential of a client-id", client, ((SCRAM, 1),)),
        QuotaCase("a credential of a pair", USER | client, ((SCRAM, 1),)),
        QuotaCase("removal of a credential", USER, ((SCRAM, None),)),
        QuotaCase("an empty entity", {}, (rate,)),
        QuotaCase("an unknown type", {"group": "codes {}"}, (rate,)),
        QuotaCase("a type in capitals", {"User": "codes {}"}, (rate,)),
        QuotaCase("a topic", {"topic": "codes-{}"}, (rate,)),
        QuotaCase("an empty name", {"user": ""}, (rate,)),
        QuotaCase("an empty client-id", {"user": "codes {}", "client-id": ""}, (rate,)),
        QuotaCase("an empty ip", {"ip": ""}, (creation,)),
        QuotaCase("an ip with a user", ip | USER, (creation,)),
        QuotaCase("an ip with a client-id", ip | client, (rate,)),
        QuotaCase("IPv6", {"ip": "::1"}, (creation,)),
        QuotaCase("no ip", {"ip": "not an ip"}, (creation,)),
        QuotaCase("an ip out of range", {"ip": "10.0.0.256"}, (creation,)),
        QuotaCase("a host", {"ip": "localhost"}, (creation,)),
        QuotaCase("a short ip", {"ip": "127.1"}, (creation,)),
        QuotaCase("the name <default>", {"user": "<default>", "client-id": "codes {}"}, (rate,)),
        QuotaCase("a name of 1,900 letters", {"user": "{}" + "x" * 1900}, (rate,)),
        QuotaCase("a dot", {"user": "."}, (rate,)),
        QuotaCase("two dots", {"client-id": ".."}, (rate,)),
    ]


def topic_cases() -> Iterator[ConfigCase]:
    """Return the cases of topics: a good and a bad value of every config, and whatever else can be wrong."""
    for key, taken, refused, _ in TOPIC_ROWS:
        yield ConfigCase(f"{key} taken", "TOPIC", TOPIC, ((key, "SET", taken),))
        yield ConfigCase(f"{key} refused", "TOPIC", TOPIC, ((key, "SET", refused),))
        # A bad value would be in the way of all later ones if it were taken.
        yield ConfigCase(f"{key} deleted", "TOPIC", TOPIC, ((key, "DELETE", None),))
    for name, value in (
        ("empty", ""),
        ("blank", " "),
        ("with blanks", "\t5 \n"),
        ("with a plus", "+5"),
        ("with zeros", "0005"),
        ("a decimal", "5.0"),
        ("an exponent", "5e3"),
        ("hexadecimal", "0x5"),
        ("with underscores", "5_000"),
        ("a Java literal", "5L"),
        ("the largest LONG", "9223372036854775807"),
        ("beyond LONG", "9223372036854775808"),
        ("Arabic digits", "\u0665"),
    ):
        yield ConfigCase(f"a LONG {name}", "TOPIC", TOPIC, (("retention.ms", "SET", value),))
    for value in (
        "0.5",
        ".5",
        "5.",
        "5e-1",
        "0.5f",
        "0.5d",
        "0x1p-1",
        "+0.5",
        "-0.0",
        "0,5",
        "Infinity",
        "inf",
        "1_0",
        "",
    ):
        yield ConfigCase(f"a DOUBLE {value!r}", "TOPIC", TOPIC, (("min.cleanable.dirty.ratio", "SET", value),))
    for value in ("True", " false ", "", "1", "yes", "truee"):
        yield ConfigCase(f"a BOOLEAN {value!r}", "TOPIC", TOPIC, (("preallocate", "SET", value),))
    for value in (
        "",
        "compact",
        "delete , compact",
        "compact,,delete",
        "delete,",
        ",",
        "Delete",
        "compact;delete",
        "compact,compact",
    ):
        yield ConfigCase(f"a LIST {value!r}", "TOPIC", TOPIC, (("cleanup.policy", "SET", value),))
    for value in ("zstd", " gzip ", "GZIP", "none", ""):
        yield ConfigCase(f"one of some {value!r}", "TOPIC", TOPIC, (("compression.type", "SET", value),))
    for value in (
        "*",
        "",
        "0:0",
        "0:0,1:0,",
        " 0:0 ",
        "0:0, 1:0",
        "0:0,,1:0",
        "*,",
        "0:2147483648",
        "0:0:0",
        "a:0",
        "0",
    ):
        yield ConfigCase(
            f"throttled replicas {value!r}", "TOPIC", TOPIC, (("leader.replication.throttled.replicas", "SET", value),)
        )
    policy, lags = "cleanup.policy", ("min.compaction.lag.ms", "max.compaction.lag.ms")
    yield from (
        ConfigCase("restored", "TOPIC", TOPIC, tuple((row[0], "DELETE", None) for row in TOPIC_ROWS)),
        ConfigCase("an unknown config", "TOPIC", TOPIC, (("no.such.config", "SET", "1"),)),
        ConfigCase("a broker's config", "TOPIC", TOPIC, (("log.retention.ms", "SET", "1"),)),
        ConfigCase("a good and an unknown config", "TOPIC", TOPIC, (("flush.ms", "SET", "5"), ("x", "SET", "1"))),
        ConfigCase("deletion of an unknown config", "TOPIC", TOPIC, (("no.such.config", "DELETE", None),)),
        ConfigCase("deletion with a value", "TOPIC", TOPIC, (("flush.ms", "DELETE", "no number"),)),
        ConfigCase("null", "TOPIC", TOPIC, (("flush.ms", "SET", None),)),
        ConfigCase("null appended", "TOPIC", TOPIC, ((policy, "APPEND", None),)),
        ConfigCase("a config twice", "TOPIC", TOPIC, (("flush.ms", "SET", "1"), ("flush.ms", "SET", "2"))),
        ConfigCase("set and deleted", "TOPIC", TOPIC, (("flush.ms", "SET", "1"), ("flush.ms", "DELETE", None))),
        ConfigCase("no ops on a topic", "TOPIC", TOPIC, ()),
        ConfigCase("appended", "TOPIC", TOPIC, ((policy, "APPEND", "compact"),)),
        ConfigCase("appended again", "TOPIC", TOPIC, ((policy, "APPEND", "compact"),)),
        ConfigCase("a bad element appended", "TOPIC", TOPIC, ((policy, "APPEND", "keep"),)),
        ConfigCase("subtracted", "TOPIC", TOPIC, ((policy, "SUBTRACT", "compact"),)),
        ConfigCase("subtracted what is not there", "TOPIC", TOPIC, ((policy, "SUBTRACT", "keep"),)),
        ConfigCase("all subtracted", "TOPIC", TOPIC, ((policy, "SUBTRACT", "delete"),)),
        ConfigCase("appended to a number", "TOPIC", TOPIC, (("flush.ms", "APPEND", "1"),)),
        ConfigCase("subtracted from a string", "TOPIC", TOPIC, (("compression.type", "SUBTRACT", "gzip"),)),
        ConfigCase("appended to an unknown config", "TOPIC", TOPIC, (("no.such.config", "APPEND", "1"),)),
        ConfigCase("subtracted from an unknown config", "TOPIC", TOPIC, (("no.such.config", "SUBTRACT", "1"),)),
        ConfigCase("lags that contradict", "TOPIC", TOPIC, ((lags[0], "SET", "9"), (lags[1], "SET", "8"))),
        ConfigCase("a topic that is not there", "TOPIC", "nowhere-{}", (("flush.ms", "SET", "5"),)),
        ConfigCase("a bad config of a topic that is not there", "TOPIC", "nowhere-{}", (("flush.ms", "SET", "x"),)),
        ConfigCase("an illegal topic", "TOPIC", "a b {}", (("flush.ms", "SET", "5"),)),
        ConfigCase("no topic", "TOPIC", "", (("flush.ms", "SET", "5"),)),
        ConfigCase("a dot for a topic", "TOPIC", ".", (("flush.ms", "SET", "5"),)),
    )


def broker_cases() -> Iterator[ConfigCase]:
    """Return the cases of brokers: a good and a bad value of every dynamic config at both levels, and the rest."""
    for level, where in (("0", "of the broker"), ("", "as the default")):
        for key, scope, accepted, refused, _ in BROKER_ROWS:
            names = [key, f"listener.name.ssl.{key}"] if scope == "prefix only" else [key]
            for name in names:
                for what, value in (("taken", accepted), ("refused", refused)):
                    if value != "any":
                        yield ConfigCase(f"{name} {what} {where}", "BROKER", level, ((name, "SET", value),))
                yield ConfigCase(f"{name} deleted {where}", "BROKER", level, ((name, "DELETE", None),))
        for key in ("log.retention.hours", "broker.id", "zookeeper.connect", "node.id", "inter.broker.listener.name"):
            yield ConfigCase(f"{key} {where}", "BROKER", level, ((key, "SET", "1"),))
        for name, ops in (
            ("a custom config", (("acme.codes", "SET", "1"),)),
            ("no value", (("log.retention.ms", "SET", None),)),
            ("a config twice", (("log.retention.ms", "SET", "1"), ("log.retention.ms", "DELETE", None))),
            ("no ops", ()),
            ("appended", (("log.cleanup.policy", "APPEND", "compact"),)),
            ("subtracted", (("log.cleanup.policy", "SUBTRACT", "delete"),)),
            ("appended to a number", (("log.retention.ms", "APPEND", "1"),)),
            ("appended to a custom config", (("acme.codes", "APPEND", "1"),)),
            ("deletion of a static config", (("broker.id", "DELETE", None),)),
            ("a rate with blanks", (("leader.replication.throttled.rate", "SET", " 5"),)),
            ("a listener's connections", (("listener.name.plaintext.max.connections", "SET", "100"),)),
            ("a listener's bad connections", (("listener.name.plaintext.max.connections", "SET", "-1"),)),
            ("a listener's threads", (("listener.name.plaintext.num.network.threads", "SET", "3"),)),
            ("too many threads of a listener", (("listener.name.plaintext.num.network.threads", "SET", "5"),)),
            ("too many threads", (("num.io.threads", "SET", "5"),)),
            ("as many threads as can be", (("num.io.threads", "SET", "4"),)),
            ("fewest threads", (("num.io.threads", "SET", "1"),)),
            ("JAAS", (("listener.name.sasl_plaintext.plain.sasl.jaas.config", "SET", "a.B required;"),)),
            ("a password of nobody", (("acme.ssl.key.password", "SET", "x"),)),
            ("a store that is not there", (("listener.name.ssl.ssl.keystore.location", "SET", "/no/such.jks"),)),
            ("a listener's client authentication", (("listener.name.ssl.ssl.client.auth", "SET", "required"),)),
            ("a prefixed config of no listener", (("listener.name.none.ssl.client.auth", "SET", "required"),)),
            ("a prefixed static config", (("listener.name.plaintext.log.dirs", "SET", "/x"),)),
        ):
            yield ConfigCase(f"{name} {where}", "BROKER", level, ops)


_NEGATIVE: Final = Difference(0, 42, "NaN, infinite or negative quotas")
_SCRAM_SET: Final = Difference(-1, 42, "set of a SCRAM key through quotas")
_IP_NAMES: Final = Difference(0, 42, "ip names")
_DOTS: Final = Difference(-1, 42, "names `.` and `..`, lone surrogates, NUL")
_REPLICAS: Final = Difference(
    0, 40, "throttled replicas with blanks or empty elements between them, `*,`, numbers above INT"
)
_RATE: Final = Difference(0, 42, "replication rates with blanks around them")
_UNKNOWN_LIST: Final = Difference(-1, 40, "APPEND, SUBTRACT on an unknown key")
_NOT_LOADED: Final = Difference(42, 0, "stores, classes, reporters")

DIFFERENCES: Final = {
    "a negative DOUBLE": _NEGATIVE,
    "a tiny negative LONG": _NEGATIVE,
    "a credential": _SCRAM_SET,
    "a credential of a pair": _SCRAM_SET,
    "removal of a credential": Difference(0, 42, "remove of a SCRAM key through quotas"),
    "a host": _IP_NAMES,
    "a short ip": _IP_NAMES,
    "a dot": _DOTS,
    "two dots": _DOTS,
    "min.cleanable.dirty.ratio refused": Difference(0, 40, "NaN where a range applies"),
    "a LONG Arabic digits": Difference(0, 40, "digits of other scripts in whole numbers"),
    "throttled replicas '0:0, 1:0'": _REPLICAS,
    "throttled replicas '0:0,,1:0'": _REPLICAS,
    "throttled replicas '*,'": _REPLICAS,
    "throttled replicas '0:2147483648'": _REPLICAS,
    "appended to an unknown config": _UNKNOWN_LIST,
    "subtracted from an unknown config": _UNKNOWN_LIST,
    "a dot for a topic": Difference(40, 3, "alter of a topic named `.` or `..`"),
    "principal.builder.class taken of the broker": _NOT_LOADED,
    "ssl.engine.factory.class taken of the broker": _NOT_LOADED,
    "a store that is not there of the broker": _NOT_LOADED,
    "sasl.jaas.config refused of the broker": Difference(0, 42, "`sasl.jaas.config`"),
    "appended to a custom config of the broker": _UNKNOWN_LIST,
    "appended to a custom config as the default": _UNKNOWN_LIST,
    "a rate with blanks of the broker": _RATE,
    "a rate with blanks as the default": _RATE,
    "a password of nobody as the default": Difference(
        0, 40, "custom keys named like a password, as a default of all brokers"
    ),
}
"""The cases in which Kafka and Confplane differ, by name."""
