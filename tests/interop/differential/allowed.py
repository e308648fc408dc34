"""The differences that are meant: each names its row of docs/kafka-compatibility.md, and says exactly when it applies.

A difference that none of these explains is a failure. So is, in a long run, one of these that is never met.
"""

from __future__ import annotations

import math
import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from confplane.domain.broker_keys import is_password
from confplane.domain.definitions import list_elements
from tests.interop.differential import vocabulary as words
from tests.interop.differential.steps import Method
from tests.interop.differential.stored import config_of
from tests.support.catalogs import ZOOKEEPER

if TYPE_CHECKING:
    from collections.abc import Callable

    from tests.interop.differential.steps import Tree


@dataclass(frozen=True, slots=True)
class AlterPair:
    """One part of an alter, and what became of it on both sides."""

    method: Method
    part: dict[str, Any]
    path: str | None
    """Of its znode; None where no such entity can be."""
    validate_only: bool
    repeated: bool
    """The request names the entity more than once."""
    before: bytes | None
    """Its znode, the same on both sides."""
    theirs: int
    ours: int
    their_data: bytes | None
    our_data: bytes | None
    brokers: Tree
    """The znodes of the broker and of the default of all, before the request and the same on both sides."""

    @property
    def quotas(self) -> bool:
        return self.method is Method.ALTER_QUOTAS

    @property
    def topic(self) -> bool:
        return not self.quotas and self.part["resourceType"] == 2

    @property
    def broker(self) -> bool:
        return not self.quotas and self.part["resourceType"] == 4

    @property
    def sets(self) -> dict[str, Any]:
        """The keys that are set, each with its last value."""
        if self.quotas:
            return {op["key"]: op["value"] for op in self.part["ops"] if not op["remove"]}
        return {op["name"]: op["value"] for op in self.part["configs"] if op["configOperation"] == 0}

    @property
    def given(self) -> list[tuple[str, Any]]:
        """All keys with the values that are set on them, or appended to them."""
        if self.quotas:
            return [(op["key"], op["value"]) for op in self.part["ops"] if not op["remove"]]
        return [(op["name"], op["value"]) for op in self.part["configs"] if op["configOperation"] in {0, 2}]

    @property
    def removes(self) -> set[str]:
        """The keys that are removed."""
        if self.quotas:
            return {op["key"] for op in self.part["ops"] if op["remove"]}
        return {op["name"] for op in self.part["configs"] if op["configOperation"] == 1}

    @property
    def names(self) -> list[tuple[str, str | None]]:
        """The types and names of a quota entity."""
        return [(item["entityType"], item["entityName"]) for item in self.part["entity"]] if self.quotas else []


@dataclass(frozen=True, slots=True)
class Difference:
    """A row of the page, and when it applies."""

    row: str
    applies: Callable[[AlterPair], bool]
    codes: frozenset[tuple[int, int]] = frozenset()
    """Kafka's error code and ours."""


def _codes(*pairs: tuple[int, int]) -> frozenset[tuple[int, int]]:
    return frozenset(pairs)


# ---------------------------------------------------------------- quotas


def _never_finite(altered: AlterPair) -> bool:
    return altered.quotas and any(not math.isfinite(value) or value < 0 for _, value in altered.given)


def _above_2_53(altered: AlterPair) -> bool:
    return altered.quotas and any(isinstance(value, int) and value > 2**53 for _, value in altered.given)


def _no_names(altered: AlterPair) -> bool:
    return any(name in {".", ".."} or unsound(name) for _, name in altered.names)


def unsound(name: str | None) -> bool:
    """Say whether no JSON body may hold this."""
    return name is not None and ("\0" in name or any("\ud800" <= letter <= "\udfff" for letter in name))


def _ip_names(altered: AlterPair) -> bool:
    return any(kind == "ip" and name in {"::1", "127.1", "localhost"} for kind, name in altered.names)


def _scram_set(altered: AlterPair) -> bool:
    return altered.quotas and words.SCRAM in altered.sets


def _scram_removed(altered: AlterPair) -> bool:
    return altered.quotas and words.SCRAM in altered.removes


def poisoned(tree: Tree) -> bool:
    """Say whether any node holds a quota that Kafka can't read as a number, so that it describes none."""
    values: list[Any] = [value for data in tree.values() for value in (config_of(data) or {}).values()]
    return any(not isinstance(value, str) or value == "abc" for value in values)


def _unparsable(altered: AlterPair) -> bool:
    config: dict[str, Any] | None = config_of(altered.before)
    return config is None or any(not isinstance(value, str) for value in config.values()) or _trails(altered.before)


def _trails(data: bytes | None) -> bool:
    return data is not None and not data.rstrip().endswith(b"}")


def _foreign_quota(altered: AlterPair) -> bool:
    """The node holds keys that are no quotas of its kind, and the ops do not remove them."""
    known = {words.IP_KEY} if (altered.path or "").startswith("ips/") else {*words.QUOTA_KEYS, words.SCRAM}
    return altered.quotas and bool((config_of(altered.before) or {}).keys() - known - altered.removes)


def _bad_quota(altered: AlterPair) -> bool:
    """The node holds a quota that is none, and the ops leave it."""
    if not altered.quotas:
        return False
    left = (config_of(altered.before) or {}).items()
    return any(value in _BAD_QUOTAS for key, value in left if key not in altered.removes | altered.sets.keys())


def _wrong(altered: AlterPair) -> bool:
    """The request itself sets a quota that is none, whatever the node holds: both refuse, each by what it finds first."""
    known = {words.IP_KEY} if (altered.path or "").startswith("ips/") else words.QUOTA_KEYS
    return altered.quotas and any(
        key not in known
        or not math.isfinite(value)
        or value < 0
        or (key in _WHOLE and abs(value - round(value)) > 1e-6)
        for key, value in altered.given
    )


_WHOLE: Final = {"producer_byte_rate", "consumer_byte_rate", words.IP_KEY}
_BAD_QUOTAS: Final = {"abc", "50000.0", "5.0", "-5", "NaN"}


# ---------------------------------------------------------------- topics and brokers


def _op_of(altered: AlterPair, *operations: int) -> list[str]:
    return [op["name"] for op in altered.part["configs"] if op["configOperation"] in operations]


def _list_op_on_unknown(altered: AlterPair) -> bool:
    if altered.quotas:
        return False
    known = words.TOPIC_KEYS if altered.topic else None
    return any(
        # Kafka looks only where the configs of server.properties are.
        name not in known if known is not None else name not in ZOOKEEPER.broker or ZOOKEEPER.broker[name].dynamic_only
        for name in _op_of(altered, 2, 3)
    )


def _unknown_operation(altered: AlterPair) -> bool:
    return altered.topic and bool(_op_of(altered, 4, -1, 127))


def _ops_before_unknown_one(altered: AlterPair) -> bool:
    """Kafka runs a topic's ops in turn, so that one that is refused comes before one that is none."""
    if not _unknown_operation(altered):
        return False
    operations = [op["configOperation"] for op in altered.part["configs"]]
    first = next(index for index, operation in enumerate(operations) if operation not in {0, 1, 2, 3})
    return any(
        op["configOperation"] in {2, 3} and op["name"] not in words.TOPIC_LISTS
        for op in altered.part["configs"][:first]
    )


def _dotted_topic(altered: AlterPair) -> bool:
    return altered.topic and altered.part["resourceName"] in {".", ".."}


def _not_in_zookeeper(altered: AlterPair) -> bool:
    return not altered.quotas and altered.part["resourceType"] in {8, 16}


def _other_broker(altered: AlterPair) -> bool:
    return altered.broker and altered.part["resourceName"] not in {"", "0"}


def _other_spelling(altered: AlterPair) -> bool:
    return altered.broker and altered.part["resourceName"] in {"00", "+0"}


def _beyond_long(altered: AlterPair) -> bool:
    return altered.quotas and any(
        isinstance(value, int) and 2**63 <= value < 2**63 + 1024 for _, value in altered.given
    )


def _minus_zero(altered: AlterPair) -> bool:
    return altered.quotas and any(value == 0 and math.copysign(1, value) < 0 for _, value in altered.given)


def _set_value(altered: AlterPair, *values: str) -> bool:
    return not altered.quotas and any(value in values for _, value in altered.given)


def _foreign_config(altered: AlterPair) -> bool:
    """The node of a topic holds what can't be set on one, and the ops leave it."""
    if not altered.topic:
        return False
    left = (config_of(altered.before) or {}).items()
    touched = altered.removes | altered.sets.keys()
    return any(key not in words.TOPIC_KEYS or value == "planted" for key, value in left if key not in touched)


def _never_flushed(altered: AlterPair) -> bool:
    """No broker can read what the topic's flush.ms comes to, and the ops leave that to the broker."""
    own = ((config_of(altered.before) or {}).keys() - altered.removes) | altered.sets.keys()
    return altered.topic and "flush.ms" not in own and flush_below_zero(altered.brokers)


def flush_below_zero(tree: Tree) -> bool:
    """Say whether a broker has a time between flushes that it takes and no topic can have."""
    stored = (config_of(tree.get(path)) or {} for path in BROKERS)
    value = next((config[_FLUSH] for config in stored if _FLUSH in config), "")
    return re.fullmatch(r"\s*-0*[1-9][0-9]*\s*", value) is not None


BROKERS: Final = ("brokers/0", "brokers/<default>")
"""The znodes of the broker's dynamic configs, the level that counts first."""
_FLUSH: Final = "log.flush.interval.ms"


def _replicas(altered: AlterPair) -> bool:
    return altered.topic and any(
        value in {"0:0, 1:0", "*,", "0:2147483648"} for key, value in altered.given if "throttled" in key
    )


def _rates(altered: AlterPair) -> bool:
    return altered.broker and any(
        value is not None and value != value.strip() for key, value in altered.given if key in _RATES
    )


_RATES: Final = {name for name, config in ZOOKEEPER.broker.items() if config.dynamic_only}


def _not_loaded(altered: AlterPair) -> bool:
    return altered.broker and any("class" in key or "reporters" in key or "location" in key for key, _ in altered.given)


def _jaas(altered: AlterPair) -> bool:
    return altered.broker and any(key.endswith("sasl.jaas.config") for key in altered.sets)


def _secret_as_default(altered: AlterPair) -> bool:
    return altered.broker and altered.part["resourceName"] == "" and any(map(is_password, altered.sets))


_REFUSED: Final = _codes((0, 42))
NEVER_FLUSHED: Final = "`log.flush.interval.ms` below 0 on a broker"

CODES: Final = (
    Difference("same entity twice in a request", lambda altered: altered.quotas and altered.repeated,
               _codes((0, 42), (-1, 42))),
    Difference("NaN, infinite or negative quotas", _never_finite, _REFUSED),
    Difference("names `.` and `..`, lone surrogates, NUL", _no_names, _codes((-1, 42), (0, 42))),
    Difference("ip names", _ip_names, _REFUSED),
    Difference("set of a SCRAM key through quotas", _scram_set, _codes((-1, 42))),
    Difference("remove of a SCRAM key through quotas", _scram_removed, _REFUSED),
    Difference("alter of a topic named `.` or `..`", _dotted_topic, _codes((40, 3))),
    Difference("alter of a topic named `.` or `..`",
               lambda altered: _dotted_topic(altered) and _unknown_operation(altered), _codes((40, 42))),
    Difference("BROKER_LOGGER, CLIENT_METRICS", _not_in_zookeeper, _codes((0, 42), (40, 42), (-1, 42))),
    Difference("unknown operation on a topic", _unknown_operation, _codes((-1, 42))),
    Difference("unknown operation on a topic", _ops_before_unknown_one, _codes((40, 42))),
    Difference("APPEND, SUBTRACT on an unknown key", _list_op_on_unknown, _codes((-1, 40))),
    Difference("BROKER resource", _other_spelling, _codes((0, 42), (40, 42), (-1, 42))),
    Difference("LONG quotas above 2^53", _beyond_long, _REFUSED),
    Difference("BROKER resource", _other_broker, _codes((42, 0), (42, 40))),
    Difference("NaN where a range applies", lambda altered: _set_value(altered, "NaN"), _codes((0, 40), (0, 42))),
    Difference("digits of other scripts in whole numbers", lambda altered: _set_value(altered, "\u0665"),
               _codes((0, 40), (0, 42))),
    Difference("throttled replicas with blanks or empty elements between them, `*,`, numbers above INT", _replicas,
               _codes((0, 40))),
    Difference("replication rates with blanks around them", _rates, _REFUSED),
    Difference("stores, classes, reporters", _not_loaded, _codes((42, 0))),
    Difference("`sasl.jaas.config`", _jaas, _REFUSED),
    Difference("custom keys named like a password, as a default of all brokers", _secret_as_default, _codes((0, 40))),
    Difference("a node that can't be parsed", _unparsable, _codes((0, -1), (42, -1))),
    Difference("a node that can't be parsed", lambda altered: _wrong(altered) and _unparsable(altered),
               _codes((-1, 42))),
    Difference("foreign content next to what is altered", _foreign_quota, _codes((-1, 0))),
    Difference("foreign content next to what is altered", lambda altered: _wrong(altered) and _foreign_quota(altered),
               _codes((-1, 42))),
    Difference("a stored value that is none of its key", _bad_quota, _codes((-1, 0), (0, -1))),
    Difference("a stored value that is none of its key", lambda altered: _wrong(altered) and _bad_quota(altered),
               _codes((-1, 42))),
    Difference("foreign or bad entries stored on a topic", _foreign_config, _codes((40, 0))),
    Difference(NEVER_FLUSHED, _never_flushed, _codes((40, 0))),
)  # fmt: skip
"""Differences in error codes. The state is then that of the side that refused."""


def _dropped(altered: AlterPair) -> bool:
    """Kafka has left out what the broker can't use, and nothing else differs."""
    theirs, ours = config_of(altered.their_data), config_of(altered.our_data)
    if not altered.broker or theirs is None or ours is None:
        return False
    gone = ours.keys() - theirs.keys()
    return bool(gone) and gone <= _PLANTED_ON_BROKERS and all(ours[key] == value for key, value in theirs.items())


def _rewritten(altered: AlterPair) -> bool:
    """Kafka has written what was there in its own form."""
    return altered.our_data == altered.before and config_of(altered.their_data) == config_of(altered.before)


def _members_lost(altered: AlterPair) -> bool:
    """Kafka has left out what was there beside the config."""
    return b'"owner"' in (altered.our_data or b"") and config_of(altered.their_data) == config_of(altered.our_data)


def _foreign_removed(altered: AlterPair) -> bool:
    """Kafka has removed keys that are no quotas, as it was told to, and nothing else differs."""
    theirs, ours = config_of(altered.their_data), config_of(altered.our_data)
    if not altered.quotas or theirs is None or ours is None:
        return False
    gone = ours.keys() - theirs.keys()
    known = {words.IP_KEY} if (altered.path or "").startswith("ips/") else {*words.QUOTA_KEYS, words.SCRAM}
    return bool(gone) and gone <= altered.removes - known and all(ours[key] == value for key, value in theirs.items())


def _repeated(altered: AlterPair) -> bool:
    """Kafka has stored elements of a list as often as they were given, and nothing else differs."""
    theirs, ours = config_of(altered.their_data), config_of(altered.our_data)
    if altered.quotas or theirs is None or ours is None or theirs.keys() != ours.keys():
        return False
    other = {key for key, value in theirs.items() if ours[key] != value}
    return bool(other) and all(ours[key] == ",".join(dict.fromkeys(list_elements(theirs[key]))) for key in other)


_PLANTED_ON_BROKERS: Final = {"log.retention.ms", "broker.id", "log.cleaner.min.cleanable.ratio"}

STORED: Final = (
    Difference("foreign or bad entries stored on a broker", _dropped),
    Difference("alter without effect", _rewritten),
    Difference("repeated elements of lists, such as `cleanup.policy=delete,delete`", _repeated),
    Difference("foreign content next to what is altered", _members_lost),
    Difference("remove of a key of another facet, or of none", _foreign_removed),
    Difference("LONG quotas above 2^53", _above_2_53),
    Difference("NaN, infinite or negative quotas", _minus_zero),
)  # fmt: skip
"""Differences in the state after both sides took the request."""

EMPTIED: Final = "emptied quota entity"
WITHOUT_EFFECT: Final = "alter without effect"
OTHER_BROKERS: Final = "BROKER resource"
OTHER_RESOURCES: Final = "BROKER_LOGGER, CLIENT_METRICS"
BAD_ON_TOPIC: Final = "describe of such an entry"
UNPARSABLE: Final = "a node that can't be parsed"
NO_NUMBER: Final = "a stored value that is none of its key"
NOT_FINITE: Final = "stored quotas that are NaN or infinite"
INCOMPLETE: Final = "exact match without a value, unknown match type"
IMPOSSIBLE: Final = "exact match of a name that no node can have"
UNSOUND: Final = "names `.` and `..`, lone surrogates, NUL"

ROWS: Final = frozenset(
    {difference.row for difference in CODES + STORED}
    | {EMPTIED, WITHOUT_EFFECT, OTHER_BROKERS, OTHER_RESOURCES, BAD_ON_TOPIC, UNPARSABLE, NO_NUMBER, NOT_FINITE}
    | {INCOMPLETE, IMPOSSIBLE, UNSOUND, NEVER_FLUSHED}
)
"""All rows that explain a difference."""
