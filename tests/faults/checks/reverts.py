"""Reverts: each leads all keys of its change from the values that it set to those before it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from tests.faults.checks.facts import evidence_of
from tests.faults.checks.timeline import plain

if TYPE_CHECKING:
    from tests.faults.checks.facts import Change, Facts

LOST: Final = "an acknowledged revert is lost"
OVERWRITTEN: Final = "a revert changed a key that was changed otherwise since"
OTHER_VALUE: Final = "a revert left a key with another value than before its change"


def check(facts: Facts) -> None:
    """Check the reverts of single changes, and what was answered about them."""
    for call in facts.writes:
        if call.reverts is not None and call.acknowledged and call.change_id is not None:
            made = facts.changes.get(call.change_id)
            if made is None or not made.committed:
                facts.add(LOST, f"change {call.change_id}", evidence_of(call), *(made.lines() if made else ()))
    for change in facts.changes.values():
        if change.committed and change.reverts and change.ends is None:
            for change_id in facts.changes.keys() & change.reverts:
                _compare(facts, change, facts.changes[change_id])


def _compare(facts: Facts, revert: Change, reverted: Change) -> None:
    for entity in reverted.entities:
        timeline = facts.log.of_path(entity.path)
        at = timeline.index_at(revert.revision)
        before, after = timeline.states[at - 1].config or {}, timeline.states[at].config or {}
        written = timeline.index_of(revert.revision) is not None
        for key in entity.keys:
            what = f"{key} of {entity.path} by change {revert.id}"
            evidence = (*revert.lines(), *reverted.lines(), *map(str, timeline.states[at - 1 : at + 1]))
            if _plain(after.get(key)) != _plain(entity.before.get(key)):
                facts.add(OTHER_VALUE, what, *evidence)
            elif written and _plain(before.get(key)) not in {_plain(after.get(key)), _plain(entity.after.get(key))}:
                facts.add(OVERWRITTEN, what, *evidence)


def _plain(value: object) -> str | None:
    return None if value is None else plain(value)
