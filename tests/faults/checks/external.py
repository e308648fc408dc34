"""External changes: each is in the trail once, from the state before it to the state that it left.

An external row is about a run of writes: it covers the states from the one after what it read to the one that it names.
A run that left the content as it was needs no row.
"""

from __future__ import annotations

from collections import defaultdict
from itertools import groupby
from typing import TYPE_CHECKING, Final

from confplane.domain.entities import Entity
from tests.faults.checks.timeline import Timeline, certain_writes, is_parent, shown

if TYPE_CHECKING:
    from tests.faults.checks.facts import Change, Facts

NO_TRAIL: Final = "an external change is not in the trail"
TWICE: Final = "an external change is in the trail twice"
OURS: Final = "a change by Confplane is in the trail as an external one"
NEVER_WAS: Final = "the trail has an external change that never happened"
OTHER_CONTENT: Final = "the trail has other content of an external change"
OTHER_COUNT: Final = "the trail has another number of external writes"
OTHER_STATE: Final = "the recorder has another state than ZooKeeper"


def check(facts: Facts) -> None:
    """Check the external rows, where the run recorded."""
    if not facts.recording:
        return
    rows: dict[str, list[Change]] = defaultdict(list)
    for change in facts.changes.values():
        if change.external and change.committed:
            for entity in change.entities:
                rows[entity.path].append(change)
    for path in facts.log.timelines.keys() | rows.keys():
        if path not in facts.blamed:
            _path(facts, facts.log.of_path(path), sorted(rows[path], key=lambda row: row.revision))
    _states(facts)


def _path(facts: Facts, timeline: Timeline, rows: list[Change]) -> None:
    path = timeline.path
    theirs = [index for index, state in enumerate(timeline.states) if index and facts.is_external(path, state)]
    covered: dict[int, Change] = {}
    free = set(theirs)
    for row in rows:
        span = _span(timeline, row, free)
        if span is None:
            facts.add(NEVER_WAS, f"change {row.id} of {path}", *row.lines(), *map(str, timeline.states))
            return
        for index in span:
            other = covered.setdefault(index, row)
            if other is not row:
                lines = (*other.lines(), *row.lines(), str(timeline.states[index]))
                facts.add(TWICE, f"{path}: changes {other.id} and {row.id}", *lines)
                return
            if not facts.is_external(path, timeline.states[index]) and not is_parent(timeline.states[index]):
                facts.add(OURS, f"change {row.id} of {path}", *row.lines(), str(timeline.states[index]))
                return
        free -= set(span)
        _count(facts, timeline, row, span)
        _compare(facts, timeline, row, span, alone=len(theirs) == len(timeline.states) - 1)
    _uncovered(facts, timeline, sorted(free))


def _span(timeline: Timeline, row: Change, free: set[int]) -> range | None:
    """Return the indices of the states of a row; None if there are no such states."""
    entity = row.entity(timeline.path)
    assert entity is not None
    assert row.outcome is not None
    version = row.outcome.versions.get(timeline.path)
    last = next(
        (index for index in range(timeline.index_at(row.revision), 0, -1) if timeline.states[index].version == version),
        None,
    )
    if last is None:
        return None
    if entity.version_read is not None:
        read = (entity.czxid_read, entity.version_read)
        for index in range(last - 1, -1, -1):
            state = timeline.states[index]
            if state.present and (state.czxid, state.version) == read:
                return range(index + 1, last + 1)
        return None
    # It read an absence: the one that the unbroken run of external writes begins with, maybe on a parent that we made.
    first = last
    while first > 1 and (first - 1 in free or is_parent(timeline.states[first - 1])):
        first -= 1
    for index in range(first - 1, last):
        if not timeline.states[index].present:
            return range(index + 1, last + 1)
    return None


def _count(facts: Facts, timeline: Timeline, row: Change, span: range) -> None:
    """Compare a row's number of writes with the states at both of its ends."""
    states = timeline.states
    certain = certain_writes(states[span[0] - 1], states[span[-1]])
    # What came as a parent of ours need not be counted.
    lent = sum(is_parent(states[index]) and not facts.is_external(timeline.path, states[index]) for index in span)
    if any(not certain - lent <= (intent.writes or 0) <= certain for intent in row.intents):
        what = f"change {row.id} of {timeline.path} counts {row.intents[0].writes} writes, there were {certain}"
        facts.add(OTHER_COUNT, what, *row.lines(), *(str(states[index]) for index in (span[0] - 1, *span)))


def _compare(facts: Facts, timeline: Timeline, row: Change, span: range, *, alone: bool) -> None:
    """Compare the keys of a row's contents with the states, and the values where no change of ours may have lent one."""
    entity = row.entity(timeline.path)
    assert entity is not None
    ends = [(entity.before, timeline.states[span[0] - 1])]
    # Of a znode that was recreated under a change of ours nobody saw the content before that change.
    if (timeline.path, row.revision + 1) not in facts.recreated:
        ends.append((entity.after, timeline.states[span[-1]]))
    for content, state in ends:
        known = {key: value for key, value in content.items() if value is not None} if alone else {}
        config = state.config or {}
        found = {key: value for key, value in config.items() if key in known}
        if content.keys() != config.keys() or found != known:
            facts.add(OTHER_CONTENT, f"change {row.id} of {timeline.path}", *row.lines(), str(state))
            return


def _uncovered(facts: Facts, timeline: Timeline, left: list[int]) -> None:
    """Find runs of external writes that changed something and have no row."""
    path = timeline.path
    for _, run in groupby(enumerate(left), key=lambda item: item[1] - item[0]):
        span = [index for _, index in run if timeline.zxids[index] > facts.run.baseline_zxid]
        if not span:
            continue
        before, after = timeline.states[span[0] - 1], timeline.states[span[-1]]
        if shown("node", path, before.config) != shown("node", path, after.config):
            facts.add(NO_TRAIL, path, str(before), *(str(timeline.states[index]) for index in span))


def _states(facts: Facts) -> None:
    for row in facts.run.states:
        path = f"{row.tree}/{Entity.from_id(row.entity_id).path}"
        node = facts.run.znodes.get(path)
        stored = None if node is None else (node.czxid, node.version)
        if stored != ((row.czxid, row.version) if row.present else None) and path not in facts.blamed:
            facts.add(OTHER_STATE, path, f"explained: {row}", f"stored: {node}")
