"""Trail and ZooKeeper: each version has its one change, and each change its versions.

Each state in ZooKeeper's log is claimed by one committed change with its revision, version and content, and what is
stored is what the log ends in. So the trail, folded up, is what is stored. A transaction may be that of several changes:
each of them has its marker in it.
"""

from __future__ import annotations

from collections import defaultdict
from itertools import pairwise
from typing import TYPE_CHECKING, Final

from tests.faults.checks.timeline import ancestors, is_entity, plain

if TYPE_CHECKING:
    from collections.abc import Mapping

    from tests.faults.checks.facts import Change, Facts
    from tests.faults.checks.timeline import State, Timeline
    from tests.faults.history import TrailEntity

UNSETTLED: Final = "an intent has no outcome"
NO_INTENT: Final = "an outcome has no intent"
NEVER_WAS: Final = "the trail has a change that never happened"
IN_PART: Final = "a batch was applied in part"
TWO_CLAIM: Final = "two changes of the trail claim one version"
UNMARKED: Final = "a change has no marker in its transaction"
OTHER_ORDER: Final = "changes of one transaction are in another order than their notifications"
NO_TRAIL: Final = "a version is not in the trail"
REJECTED_APPLIED: Final = "a change was applied that the trail has as rejected"
OTHER_VERSION: Final = "the trail has another version"
OTHER_CONTENT: Final = "the trail has other content"
UNSEEN: Final = "a write was made to a state that it had not read"
NOT_INCREASING: Final = "versions do not increase with revisions"
NOT_NOTIFIED: Final = "a change has no notification"
NOT_AS_LOGGED: Final = "ZooKeeper's data differ from the end of its log"


def check(facts: Facts) -> None:
    """Hold the trail against ZooKeeper's log, and both against what is stored."""
    for path, before, state in facts.log.gaps:
        facts.add(NOT_INCREASING, path, str(before), str(state), path=path)
    _outcomes(facts)
    claimed = _claims(facts)
    _unexplained(facts, claimed)
    _stored(facts)


def _outcomes(facts: Facts) -> None:
    for change in facts.changes.values():
        if change.outcome is None:
            facts.add(UNSETTLED, f"change {change.id}", *change.lines())
        elif all(intent.attempt != change.outcome.attempt for intent in change.intents):
            facts.add(NO_INTENT, f"change {change.id}, attempt {change.outcome.attempt}", *change.lines())


def _claims(facts: Facts) -> set[tuple[int, str]]:
    """Look for what each committed change of ours claims; return the states that are claimed, as zxid and path."""
    claimed: dict[tuple[int, str], Change] = {}
    for revision, changes in sorted(facts.at_revision.items()):
        changes.sort(key=lambda change: change.id)
        for change in changes:
            _claim(facts, change, claimed)
        _in_order(facts, revision, changes)
    return set(claimed)


def _claim(facts: Facts, change: Change, claimed: dict[tuple[int, str], Change]) -> None:
    revision = change.revision
    entities = [entity for entity in change.entities if is_entity(entity.path)]
    there = [facts.log.of_path(entity.path).index_of(revision) for entity in entities]
    if None not in there and (revision, change.id) not in facts.log.marked:
        facts.add(UNMARKED, f"change {change.id} at {revision}", *change.lines())
        for entity in entities:
            claimed.setdefault((revision, entity.path), change)
        return
    for entity, index in zip(entities, there, strict=True):
        timeline = facts.log.of_path(entity.path)
        other = claimed.setdefault((revision, entity.path), change)
        if index is None:
            rule = IN_PART if any(each is not None for each in there) else NEVER_WAS
            what = f"change {change.id} of {entity.path}"
            facts.add(rule, what, *change.lines(), *_around(timeline, revision), path=entity.path)
        elif other is not change:
            what = f"{entity.path} at {revision}: changes {other.id} and {change.id}"
            facts.add(TWO_CLAIM, what, *other.lines(), *change.lines())
        else:
            _compare(facts, change, entity, timeline, index)


def _in_order(facts: Facts, revision: int, changes: list[Change]) -> None:
    """Hold the order of one transaction's changes, which is that of their ids, against that of its notifications."""
    notified = facts.log.notifications.get(revision, [])
    places = [
        (place, change)
        for change in changes
        for place, paths in enumerate(notified)
        if any(entity.path in paths for entity in change.entities[:1])
    ]
    for (place, change), (following, later) in pairwise(places):
        if place > following:
            what = f"{revision}: changes {change.id} and {later.id}"
            facts.add(OTHER_ORDER, what, *change.lines(), *later.lines(), *(str(paths) for paths in notified))
            return


def _compare(facts: Facts, change: Change, entity: TrailEntity, timeline: Timeline, index: int) -> None:
    """Hold what a change claims of one state against that state and the one before it."""
    before, state = timeline.states[index - 1], timeline.states[index]
    evidence = (*change.lines(), str(before), str(state))
    assert change.outcome is not None
    if change.outcome.versions.get(entity.path) != state.version:
        facts.add(OTHER_VERSION, f"change {change.id} of {entity.path}", *evidence, path=entity.path)
    # Of a node that was recreated externally only the new czxid is known: Confplane did not read its content.
    made_on = change.made_on(entity)
    read = (entity.version_read, None if entity.version_read is None else made_on)
    found = (before.version, before.czxid if before.present else None)
    if read != found:
        facts.add(UNSEEN, f"change {change.id} of {entity.path}", *evidence, path=entity.path)
    elif made_on == entity.czxid_read and not _tells(entity.before, before):
        facts.add(OTHER_CONTENT, f"before change {change.id} of {entity.path}", *evidence, path=entity.path)
    if state.zxid not in timeline.notified:
        facts.add(NOT_NOTIFIED, f"change {change.id} of {entity.path}", *evidence, path=entity.path)
    if not _tells(entity.after, state):
        facts.add(OTHER_CONTENT, f"after change {change.id} of {entity.path}", *evidence, path=entity.path)


def _tells(content: Mapping[str, str | None], state: State) -> bool:
    """Return True if a content of the trail is that of a state, as far as it is known."""
    config = state.config or {}
    if content.keys() != config.keys():
        return False
    return all(value is None or plain(value) == plain(config[key]) for key, value in content.items())


def _unexplained(facts: Facts, claimed: set[tuple[int, str]]) -> None:
    """Find what no committed change claims, and what no external writer was to write either."""
    parents = {
        (revision, entity.path)
        for revision, changes in facts.at_revision.items()
        for change in changes
        for entity in change.entities
    }
    created = {(revision, parent) for revision, path in parents for parent in ancestors(path)}
    rejected: dict[str, list[Change]] = defaultdict(list)
    for change in facts.changes.values():
        if change.outcome is not None and not change.committed:
            for path in {entity.path for intent in change.intents for entity in intent.entities}:
                rejected[path].append(change)
    for path, timeline in facts.log.timelines.items():
        for index, state in enumerate(timeline.states[1:], 1):
            if state.zxid <= facts.run.baseline_zxid or (state.zxid, path) in claimed or facts.is_external(path, state):
                continue
            if (state.zxid, path) in created and state.version == 0 and not state.config:
                continue
            before = timeline.states[index - 1]
            culprit = next((change for change in rejected[path] if _meant(change, path, before, state)), None)
            if culprit is not None:
                what = f"change {culprit.id} of {path}"
                facts.add(REJECTED_APPLIED, what, *culprit.lines(), str(before), str(state), path=path)
            elif path not in facts.blamed:
                facts.add(NO_TRAIL, path, *_around(timeline, state.zxid), path=path)


def _meant(change: Change, path: str, before: State, state: State) -> bool:
    """Say whether a change meant to make this state of the one before it."""
    return any(
        entity.path == path and entity.version_read == before.version and _tells(entity.after, state)
        for intent in change.intents
        for entity in intent.entities
    )


def _around(timeline: Timeline, zxid: int) -> list[str]:
    index = timeline.index_at(zxid)
    return [str(state) for state in timeline.states[max(0, index - 1) : index + 3]]


def _stored(facts: Facts) -> None:
    """Hold the znodes against the log: if these differ, the log was not read whole."""
    nodes = {path: node for path, node in facts.run.znodes.items() if is_entity(path)}
    for path in nodes.keys() | facts.log.timelines.keys():
        last, node = facts.log.of_path(path).states[-1], nodes.get(path)
        found = None if node is None else (node.version, node.czxid, node.mzxid, node.data)
        logged = (last.version, last.czxid, last.zxid, last.data) if last.present else None
        if found != logged:
            facts.add(NOT_AS_LOGGED, path, f"stored: {node}", f"log: {last}", path=path)
