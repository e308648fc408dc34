"""The intended differences of decisions: each names its row of docs/kafka-compatibility.md, and when it applies.

A difference that none of these explains is a failure. So is, in the first long run, one of these that is never met.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from tests.interop.differential import vocabulary as words
from tests.kraft.decisions.cases import GROUPS, METRICS, TOPICS

if TYPE_CHECKING:
    from collections.abc import Callable

    from tests.kraft.decisions.cases import Case

_NAMED: Final = {*TOPICS, *GROUPS, *METRICS, *words.NAMES, "1"}
_DELETE, _APPEND, _SUBTRACT = 1, 2, 3
_DOUBLES: Final = {"request_percentage", "controller_mutation_rate"}


@dataclass(frozen=True, slots=True)
class Difference:
    """A row of the page, and when it applies."""

    row: str
    applies: Callable[[Case], bool]
    codes: frozenset[tuple[int, int]]
    """Kafka's error code and ours."""


def _codes(*pairs: tuple[int, int]) -> frozenset[tuple[int, int]]:
    return frozenset(pairs)


def _names(case: Case) -> list[str | None]:
    if case.quotas:
        return [item["entityName"] for item in case.part["entity"]]
    return [case.part["resourceName"]]


def _no_znode(case: Case) -> bool:
    return case.kind in {0, 16, 32} and any(name in {".", ".."} for name in _names(case))


def _unsound(case: Case) -> bool:
    return any("\0" in (name or "") or "\ud800" in (name or "") for name in _names(case))


def _ip_names(case: Case) -> bool:
    return case.quotas and any(
        item["entityType"] == "ip" and item["entityName"] in words.BAD_IPS for item in case.part["entity"]
    )


def _list_ops(case: Case) -> bool:
    return case.kind in {16, 32} and any(operation in {_APPEND, _SUBTRACT} for _, operation in case.operations)


def _unknown_operation(case: Case) -> bool:
    return any(operation not in {0, 1, 2, 3} for _, operation in case.operations)


def _no_topic_name(case: Case) -> bool:
    return case.kind == 2 and case.part["resourceName"] not in {*TOPICS, "nowhere"}


def _other_digits(case: Case) -> bool:
    return not case.quotas and any(value == "\u0665" for _, value in case.given)


def _jaas(case: Case) -> bool:
    return case.kind == 4 and any(key.endswith("sasl.jaas.config") for key, _ in case.given)


def _without_effect(case: Case) -> bool:
    if case.kind == 2:
        return case.part["resourceName"] == "nowhere" and all(operation == 1 for _, operation in case.operations)
    return case.kind == 4 and case.part["resourceName"] == "1" and ("min.insync.replicas", 1) in case.operations


def _scram_removed(case: Case) -> bool:
    return case.quotas and any(op["key"] == words.SCRAM and op["remove"] for op in case.part["ops"])


def _nearly_whole(case: Case) -> bool:
    return case.quotas and any(0 < value % 1 <= 1e-6 for key, value in case.given if key not in _DOUBLES)


def _beyond_long(case: Case) -> bool:
    return case.quotas and any(2**63 <= value < 2**63 + 1024 for _, value in case.given)


def _replicas(case: Case) -> bool:
    """Blanks around an element that is appended are between the elements of the list."""
    replicas = [op for op in case.part["configs"] if "throttled" in op["name"]] if case.kind == 2 else []
    return any(
        op["value"] in {"0:0, 1:0", "*,", "0:2147483648", "0:0,,1:0", ""}
        or (op["configOperation"] == _APPEND and op["value"] != op["value"].strip())
        for op in replicas
        if op["configOperation"] != _DELETE and op["value"] is not None
    )


def _padded_rates(case: Case) -> bool:
    return case.kind == 4 and any(
        ("throttled.rate" in key or "io.max.bytes" in key) and value != value.strip()
        for key, value in case.given
        if value
    )


def _not_a_number(case: Case) -> bool:
    return not case.quotas and any(value == "NaN" for _, value in case.given)


def _other_spelling(case: Case) -> bool:
    return case.kind == 4 and case.part["resourceName"] == "01"


def _repeated(case: Case) -> bool:
    """An element is named twice, or by Kafka's APPEND not found in the list because of a blank before it."""
    elements = [(value or "").split(",") for _, value in case.given]
    return case.kind == 4 and any(
        len({each.strip() for each in of_key}) < len(of_key) or any(each != each.strip() for each in of_key)
        for of_key in elements
    )


def _several(case: Case) -> bool:
    """More than one part of the alter may be at fault."""
    ops = len(case.part["ops" if case.quotas else "configs"])
    return ops + sum(name is not None and name not in _NAMED for name in _names(case)) > 1


SEVERAL: Final = "several faults in one alter"
_REFUSED: Final = _codes((0, 42))

MEANT: Final = (
    Difference("names `.` and `..`", _no_znode, _REFUSED),
    Difference("NUL and lone surrogates in names", _unsound, _REFUSED),
    Difference("IPv6 addresses and host names as ips", _ip_names, _REFUSED),
    Difference("APPEND and SUBTRACT on lists of groups and client metrics", _list_ops, _codes((40, 0))),
    Difference("an unknown operation", _unknown_operation, _codes((-1, 42))),
    Difference("a name that no topic can have", _no_topic_name, _codes((17, 3))),
    Difference("digits of other scripts in whole numbers", _other_digits, _codes((0, 40), (42, 40), (0, 42))),
    Difference("`sasl.jaas.config`", _jaas, _REFUSED),
    Difference("alters without an effect", _without_effect, _codes((40, 0), (3, 0))),
    Difference("removal of a SCRAM key through quotas", _scram_removed, _REFUSED),
    Difference("whole quotas with a rest below 1e-6", _nearly_whole, _REFUSED),
    Difference("a quota of 2^63", _beyond_long, _REFUSED),
    Difference("throttled replicas with blanks between them, `*,`, numbers above INT", _replicas, _codes((0, 40))),
    Difference("replication rates with blanks around them", _padded_rates, _REFUSED),
    Difference("elements that a broker's list repeats", _repeated, _codes((42, 0))),
    Difference("NaN where a range applies", _not_a_number, _codes((0, 40), (0, 42))),
    Difference("other spellings of a broker's number", _other_spelling, _REFUSED),
    Difference(
        SEVERAL,
        _several,
        _codes(*((one, other) for one in (-1, 3, 17, 40, 42) for other in (3, 40, 42) if one != other)),
    ),
)
"""Differences of decisions, whether the cluster is asked or not."""


def _absent_topic(case: Case) -> bool:
    return case.kind == 2 and case.part["resourceName"] == "nowhere"


def _not_loaded(case: Case) -> bool:
    return case.kind == 4 and any("class" in key or "reporters" in key or "location" in key for key, _ in case.given)


def _eligible_replicas(case: Case) -> bool:
    return case.kind == 4 and any(key == "min.insync.replicas" for key, _ in case.operations)


UNASKED: Final = (
    Difference("a broker's own `min.insync.replicas`", _eligible_replicas, _codes((40, 0))),
    Difference("topics that are not there", _absent_topic, _codes((3, 0), (3, 40))),
    Difference("classes, reporters and stores", _not_loaded, _codes((42, 0))),
)
"""Refusals that Confplane's own rules leave to the cluster."""

ROWS: Final = {each.row for each in (*MEANT, *UNASKED)}
