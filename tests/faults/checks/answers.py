"""Answers to writes, compared with the trail and with ZooKeeper's log."""

from __future__ import annotations

from collections import defaultdict
from typing import TYPE_CHECKING, Final

from tests.faults.checks.facts import evidence_of
from tests.faults.checks.timeline import plain, shown
from tests.faults.history import Kind, Mode, PartResult

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tests.faults.checks.facts import Change, Facts
    from tests.faults.checks.timeline import Shown, Timeline
    from tests.faults.history import Call, Part

LOST: Final = "an acknowledged change is lost"
OTHER_REVISION: Final = "a change was answered with another revision"
OTHER_EFFECT: Final = "a change has another effect than requested"
NOT_SO: Final = "a write was answered as done although the entity was not as requested"
NOT_APPLIED: Final = "a change was answered as not applied and was applied"
TWICE: Final = "a call was applied twice"
IN_PARTS: Final = "an atomic call was applied in part"
LOST_UPDATE: Final = "a conditional write was applied to another state"
TWO_CONTENTS: Final = "one ETag has two contents"
VALIDATED: Final = "a request for validation only made a change"
EXTERNAL_LOST: Final = "a confirmed external write does not exist"
KEY_TWICE: Final = "an Idempotency-Key was applied twice"
KEY_UNEQUAL: Final = "an Idempotency-Key has unequal answers"


def check(facts: Facts, tags: Tags) -> None:
    """Check each write by itself."""
    for call in facts.writes:
        changes = [change for change in facts.changes_of(call) if change.committed]
        _once(facts, call, changes)
        if call.validate_only:
            for change in facts.changes_of(call):
                facts.add(VALIDATED, f"change {change.id}", evidence_of(call), *change.lines())
        _effects(facts, call, changes, tags)
        _answered(facts, call, changes)
        if call.atomic:
            _whole(facts, call, changes)
    _keys(facts)
    for call in facts.run.calls:
        if call.kind is Kind.EXTERNAL and call.acknowledged and call.revision is not None:
            for part in call.parts:
                timeline = facts.log.of_path(part.path)
                if timeline.index_of(call.revision) is None:
                    facts.add(EXTERNAL_LOST, part.path, evidence_of(call), *map(str, timeline.states[-3:]))


def _once(facts: Facts, call: Call, changes: list[Change]) -> None:
    """Check that of each part one change was applied at most: a lost reply is not followed by another try."""
    seen: dict[str, Change] = {}
    for change in changes:
        for entity in change.entities:
            other = seen.setdefault(entity.path, change)
            if other is not change:
                facts.add(TWICE, entity.path, evidence_of(call), *other.lines(), *change.lines())


def _effects(facts: Facts, call: Call, changes: list[Change], tags: Tags) -> None:
    """Check the effects of a call's changes, whatever its response: as requested, and on a state that it allowed."""
    for change in changes:
        for part in call.parts:
            timeline = facts.log.of_path(part.path)
            index = timeline.index_of(change.revision) if change.entity(part.path) else None
            if index is None:
                continue
            before, after = timeline.shown(part.facet, index - 1), timeline.shown(part.facet, index)
            states = (str(timeline.states[index - 1]), str(timeline.states[index]))
            if not _as_asked(part, before, after):
                facts.add(OTHER_EFFECT, f"change {change.id} of {part.path}", evidence_of(call), *states)
            if not allowed(part, before, tags):
                facts.add(LOST_UPDATE, f"change {change.id} of {part.path}", evidence_of(call), *states)


def _as_asked(part: Part, before: Shown, after: Shown) -> bool:
    given = {key: plain(value) for key, value in part.set.items()}
    if part.mode is Mode.ALTER:
        wanted = {key: value for key, value in before if key not in part.remove} | given
    else:
        wanted = {} if part.mode is Mode.DELETE else given
    return dict(after) == wanted


def allowed(part: Part, before: Shown, tags: Tags) -> bool:
    """Say whether the state before a write was one on which it was to be applied."""
    if part.if_none_match or part.mode is Mode.CREATE:
        return not before
    if part.if_match is None:
        return True
    if part.if_match == "*":
        return bool(before)
    return tags.may_have(part, before)


class Tags:
    """The contents of ETags, by the responses that had them."""

    def __init__(self, facts: Facts) -> None:
        self._contents: dict[tuple[str, str], Shown] = {}
        for call in facts.run.calls:
            if call.etag is None or call.content is None or len(call.parts) != 1 or not call.acknowledged:
                continue
            [part] = call.parts
            content = shown(part.facet, part.path, call.content)
            known = self._contents.setdefault((part.facet, call.etag), content)
            if known != content:
                facts.add(TWO_CONTENTS, f"{call.etag} of {part.facet}", evidence_of(call), str(known))

    def may_have(self, part: Part, content: Shown) -> bool:
        """Return True if a part's ETag may have a content, as far as is known."""
        return self._contents.get((part.facet, part.if_match or ""), content) == content


def _answered(facts: Facts, call: Call, changes: list[Change]) -> None:
    """Check what the call was answered."""
    if call.acknowledged:
        for part, result in _results(call):
            if result.error_code == 0:
                _acknowledged(facts, call, part, result)
    # With a key, a response may be about another call's change; app/confplane/services/changes/idempotency.py settles what is its own.
    for change in changes:
        for part, answer in _failures(call):
            if change.entity(part.path) is not None:
                facts.add(
                    NOT_APPLIED, f"change {change.id} of {part.path}: {answer}", evidence_of(call), *change.lines()
                )


def _results(call: Call) -> Iterator[tuple[Part, PartResult]]:
    """Yield what was answered about each part of an acknowledged call."""
    if call.results:
        yield from zip(call.parts, call.results, strict=True)
    else:
        for part in call.parts:
            yield part, PartResult(change_id=call.change_id)


def _failures(call: Call) -> Iterator[tuple[Part, str]]:
    """Yield the parts that were answered as not applied."""
    if call.status is None:
        return
    if call.results:
        for part, result in zip(call.parts, call.results, strict=True):
            if result.error_code != 0 and result.outcome != "unknown":
                yield part, f"{result.error_name}, {result.outcome}"
    elif not call.acknowledged and not call.unknown:
        for part in call.parts:
            yield part, f"{call.status}, {call.outcome}"


def _acknowledged(facts: Facts, call: Call, part: Part, result: PartResult) -> None:
    if result.change_id is None:
        _no_effect(facts, call, part)
        return
    change = facts.changes.get(result.change_id)
    if change is None or not change.committed:
        facts.add(
            LOST, f"change {result.change_id} of {part.path}", evidence_of(call), *(change.lines() if change else ())
        )
        return
    entity = change.entity(part.path)
    if entity is None:
        facts.add(LOST, f"change {change.id} has nothing of {part.path}", evidence_of(call), *change.lines())
        return
    # The answer's own revision may be that of a later change of the same call, or of the mirror.
    if result.revision is not None:
        wrong = result.revision != change.revision
    else:
        wrong = call.revision is not None and call.revision < change.revision
    if wrong:
        facts.add(OTHER_REVISION, f"change {change.id} of {part.path}", evidence_of(call), *change.lines())


def _no_effect(facts: Facts, call: Call, part: Part) -> None:
    """Check a write that was answered as done without a change: at some moment of the call it was as asked."""
    if call.validate_only or call.replayed or call.resend_of is not None:
        return  # it need not be so yet, or it may be about an earlier call
    timeline = facts.log.of_path(part.path)
    indices = facts.during(call, timeline)
    if not any(_was_so(part, timeline, index) for index in indices):
        facts.add(NOT_SO, part.path, evidence_of(call), *(str(timeline.states[index]) for index in indices))


def _was_so(part: Part, timeline: Timeline, index: int) -> bool:
    content = dict(timeline.shown(part.facet, index))
    given = {key: plain(value) for key, value in part.set.items()}
    if part.mode is Mode.ALTER:
        return given.items() <= content.items() and not content.keys() & set(part.remove)
    return content == ({} if part.mode is Mode.DELETE else given)


def _whole(facts: Facts, call: Call, changes: list[Change]) -> None:
    """Check that an atomic call is one change with one revision, and that all of its parts hold at it."""
    ids = {change.id for change in changes} | {
        result.change_id for result in call.results if result.error_code == 0 and result.change_id is not None
    }
    failed = [result for result in call.results if result.error_code != 0]
    revisions = {result.revision for result in call.results if result.change_id is not None}
    if len(ids) > 1 or len(revisions) > 1 or (failed and len(failed) < len(call.results)):
        lines = [line for change in changes for line in change.lines()]
        facts.add(
            IN_PARTS, f"changes {sorted(ids)}, revisions {sorted(map(str, revisions))}", evidence_of(call), *lines
        )
        return
    for change in changes:
        for part in call.parts:
            timeline = facts.log.of_path(part.path)
            if part.path not in facts.blamed and not _was_so(part, timeline, timeline.index_at(change.revision)):
                state = timeline.states[timeline.index_at(change.revision)]
                facts.add(
                    IN_PARTS, f"change {change.id} without {part.path}", evidence_of(call), *change.lines(), str(state)
                )


def _keys(facts: Facts) -> None:
    """Check the calls of each Idempotency-Key together: they are applied once, and answered alike."""
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
            # Twice by one call is reported as that.
            if other is not change and by[other.id][0] is not call:
                lines = (evidence_of(by[other.id][0]), *other.lines(), evidence_of(call), *change.lines())
                facts.add(KEY_TWICE, f"{key} at {entity.path}: changes {other.id} and {change.id}", *lines)


def _answered_alike(facts: Facts, key: str, calls: list[Call]) -> None:
    """Compare the responses about something that was applied. What changed nothing is not remembered."""
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
                    facts.add(KEY_UNEQUAL, f"{key}, part {position}", evidence_of(earlier), evidence_of(call))
        if not call.results and call.change_id is not None:
            earlier = whole.setdefault(key, call)
            if _of(earlier) != _of(call):
                facts.add(KEY_UNEQUAL, key, evidence_of(earlier), evidence_of(call))


def _of(call: Call) -> tuple[object, ...]:
    """Return what of an answer about a single entity is the same whenever it is given."""
    return call.status, call.change_id, call.etag, call.content
