"""Operations, principals and reasons in the trail, compared with the requests themselves."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from confplane.services.ports import trail
from tests.faults.checks.facts import evidence_of
from tests.faults.checks.timeline import plain
from tests.faults.history import Kind, Mode

if TYPE_CHECKING:
    from collections.abc import Mapping

    from tests.faults.checks.facts import Change, Facts
    from tests.faults.history import Call, Part, TrailEntity, TrailIntent

NOBODYS: Final = "the trail has a change that was not requested"
OTHER_CALLER: Final = "the trail names another caller"
OTHER_REASON: Final = "the trail has another reason"
OTHER_REQUEST: Final = "the trail has another request"
OTHER_KEYS: Final = "the trail has other keys than were altered"

_ALL: Final = {"removeAll": None}
"""The stand-in for the ops of a DELETE; no key has this name."""


def check(facts: Facts) -> None:
    """Check every intent, however its change ended."""
    calls = {call.request_id: call for call in facts.run.calls if call.kind is Kind.WRITE}
    for change in facts.changes.values():
        for intent in change.intents:
            for entity in filter(_names_other_keys, intent.entities):
                facts.add(OTHER_KEYS, f"change {change.id} of {entity.path}: {entity.keys}", *change.lines())
            call = calls.get(intent.request_id)
            if change.external or change.put_back:
                if (intent.principal, intent.request_id) != (trail.EXTERNAL_PRINCIPAL, ""):
                    facts.add(OTHER_CALLER, f"change {change.id} is external: {intent.principal}", *change.lines())
                if change.external and any(entity.ops for entity in intent.entities):
                    facts.add(OTHER_REQUEST, f"change {change.id} is external and has ops", *change.lines())
            elif intent.ends is not None:
                _compare_end(facts, change, intent, call)
            elif call is not None:
                _compare(facts, change, intent, call)
            elif not _removes(change):
                facts.add(NOBODYS, f"change {change.id} of request {intent.request_id!r}", *change.lines())


def _removes(change: Change) -> bool:
    """Say whether a change removed its znodes, as compaction alone does, which is no request."""
    return change.committed and change.outcome is not None and not change.outcome.versions


def _compare_end(facts: Facts, change: Change, intent: TrailIntent, call: Call | None) -> None:
    """Compare the end of a temporary change with its begin, or with the request for an early end."""
    begin = facts.changes.get(intent.ends or "")
    if begin is None or not begin.temporary or (call is None and intent.request_id != f"end-{intent.ends}"):
        facts.add(NOBODYS, f"change {change.id} of request {intent.request_id!r}", *change.lines())
    elif call is None:
        if intent.principal != begin.intents[0].principal:
            facts.add(OTHER_CALLER, f"change {change.id}: {intent.principal}", *change.lines(), *begin.lines())
    elif call.ends != intent.ends:
        facts.add(OTHER_REQUEST, f"change {change.id} ends {intent.ends}", evidence_of(call), *change.lines())
    elif call.principal not in {None, intent.principal}:
        what = f"change {change.id}: {intent.principal}, not {call.principal}"
        facts.add(OTHER_CALLER, what, evidence_of(call), *change.lines())


def _compare(facts: Facts, change: Change, intent: TrailIntent, call: Call) -> None:
    evidence = (evidence_of(call), *change.lines())
    if intent.reverts != (() if call.reverts is None else (call.reverts,)):
        facts.add(OTHER_REQUEST, f"change {change.id} reverts {intent.reverts}", *evidence)
    if call.principal is not None:
        if intent.principal != call.principal:
            facts.add(OTHER_CALLER, f"change {change.id}: {intent.principal}, not {call.principal}", *evidence)
        if (intent.reason, intent.ticket) != (call.reason, call.ticket):
            what = f"{intent.reason!r} and {intent.ticket!r}, not {call.reason!r} and {call.ticket!r}"
            facts.add(OTHER_REASON, f"change {change.id}: {what}", *evidence)
    if intent.temporary != call.temporary:
        facts.add(OTHER_REQUEST, f"change {change.id}: temporary is {intent.temporary}", *evidence)
    parts = {(part.facet, part.entity, part.path): part for part in call.parts}
    # The keys of a revert follow from its change (reverts.py).
    for entity in () if call.reverts is not None else intent.entities:
        part = parts.get((entity.facet, entity.entity_id, entity.path))
        if part is None or _recorded(entity) != _asked(part):
            facts.add(OTHER_REQUEST, f"change {change.id} of {entity.path}: {entity.ops}", *evidence)


def _asked(part: Part) -> dict[str, str | None]:
    """Return the ops of a part: key -> value, None to remove it."""
    if part.mode is Mode.DELETE:
        return dict(_ALL)
    return {key: plain(value) for key, value in part.set.items()} | dict.fromkeys(part.remove)


def _recorded(entity: TrailEntity) -> dict[str, str | None]:
    """Return the ops of a row in the same form; anything else is an op of its own."""
    found: dict[str, str | None] = {}
    for op in entity.ops:
        key, value = _op(op)
        found[key if key not in found else f"{key} again"] = value
    return found


def _op(op: Mapping[str, Any]) -> tuple[str, str | None]:
    match dict(op):
        case {"removeAll": True}:
            return next(iter(_ALL)), None
        case {"key": str(key), "op": "DELETE", "value": None}:
            return key, None
        case {"key": str(key), "op": "SET", "value": value}:
            return key, plain(value)
    return str(dict(op)), None


def _names_other_keys(entity: TrailEntity) -> bool:
    """Return True if a row's keys are not those whose values differ in it; keys of unknown values are optional."""
    before, after = entity.before, entity.after
    shared = {key for key in before.keys() & after.keys() if before[key] == after[key]}
    unseen = {key for key in before.keys() & after.keys() if None in (before[key], after[key])}
    differing = (before.keys() | after.keys()) - shared - unseen
    return not differing <= set(entity.keys) <= differing | unseen
