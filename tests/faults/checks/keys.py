"""Idempotency-Keys: a request that was sent several times is applied once, and answered alike."""

from __future__ import annotations

from collections import defaultdict
from typing import TYPE_CHECKING, Final

from tests.faults.checks.facts import told

if TYPE_CHECKING:
    from tests.faults.checks.facts import Change, Facts
    from tests.faults.history import Call, PartResult

TWICE: Final = "an Idempotency-Key was applied twice"
UNEQUAL: Final = "an Idempotency-Key has unequal answers"


def check(facts: Facts) -> None:
    """Check the calls of each key together."""
    by_key: dict[str, list[Call]] = defaultdict(list)
    for call in facts.writes:
        if call.key is not None:
            by_key[call.key].append(call)
    for key, calls in by_key.items():
        _applied_once(facts, key, calls)
        if len(calls) > 1:
            _answered_alike(facts, key, calls)


def _applied_once(facts: Facts, key: str, calls: list[Call]) -> None:
    applied: dict[str, Change] = {}
    by = {change.id: (call, change) for call in calls for change in facts.changes_of(call) if change.committed}
    for call, change in by.values():
        for entity in change.entities:
            other = applied.setdefault(entity.path, change)
            # Twice by one call is told as that.
            if other is not change and by[other.id][0] is not call:
                lines = (told(by[other.id][0]), *other.lines(), told(call), *change.lines())
                facts.add(TWICE, f"{key} at {entity.path}: changes {other.id} and {change.id}", *lines)


def _answered_alike(facts: Facts, key: str, calls: list[Call]) -> None:
    """Hold the answers against each other that tell of something applied. What changed nothing is not remembered."""
    first: dict[int, tuple[Call, PartResult]] = {}
    whole: dict[str, Call] = {}
    for call in sorted(calls, key=lambda each: each.end or 0.0):
        if not call.acknowledged:
            continue
        for position, result in enumerate(call.results):
            if result.error_code == 0:
                earlier, known = first.setdefault(position, (call, result))
                if known.change_id is None and result.change_id is not None:
                    first[position] = (call, result)  # now there is something to remember
                elif (known.change_id, known.revision) != (result.change_id, result.revision):
                    facts.add(UNEQUAL, f"{key}, part {position}", told(earlier), told(call))
        if not call.results and call.change_id is not None:
            earlier = whole.setdefault(key, call)
            if _of(earlier) != _of(call):
                facts.add(UNEQUAL, key, told(earlier), told(call))


def _of(call: Call) -> tuple[object, ...]:
    """Return what of an answer about a single entity is the same whenever it is given."""
    return call.status, call.change_id, call.etag, call.content
