"""Every version that there ever was is explained in the trail: once, in order, and by whom it was written.

Stricter than the other checks, and it asks nobody but ZooKeeper's own log. Entity by entity it walks the states that the
log tells, and the changes of the trail by revision. A change of ours is one state, written by a session of ours. One of
others is a run of states that no session of ours wrote, from the one behind what it read to the one that stood at its
revision. What lies between two changes needs no row only where it left the content as it was.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from tests.faults.checks.facts import Change
from tests.faults.checks.timeline import Log, certain_writes, is_parent, plain

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence

    from tests.faults.checks.timeline import State, Timeline
    from tests.faults.history import NodeEvent, TrailEntity, TrailIntent, TrailOutcome


def unexplained(
    events: Iterable[NodeEvent],
    intents: Sequence[TrailIntent],
    outcomes: Sequence[TrailOutcome],
    *,
    since: int,
) -> list[str]:
    """Return what is wrong, some lines each; nothing where each version is explained.

    Args:
        events: ZooKeeper's log.
        intents: The trail's.
        outcomes: The trail's.
        since: The revision from which others' writes are recorded.
    """
    log = Log.of(events)
    changes: dict[str, Change] = {}
    for intent in intents:
        changes.setdefault(intent.change_id, Change(intent.change_id)).intents.append(intent)
    problems = []
    for outcome in outcomes:
        change = changes.setdefault(outcome.change_id, Change(outcome.change_id))
        change.outcome = outcome
        if not change.intents:
            problems.append(f"{outcome.change_id} has an outcome and no intent")
    problems += [f"{change.id} has no outcome" for change in changes.values() if change.outcome is None]
    by_path: dict[str, list[Change]] = {path: [] for path in log.timelines}
    for change in changes.values():
        if change.committed:
            for entity in change.entities:
                by_path.setdefault(entity.path, []).append(change)
    for path, found in by_path.items():
        # What stood just before these is what nobody saw.
        unseen = {change.revision - 1 for change in found if change.outcome and path in change.outcome.remade}
        walk = _Walk(log, log.of_path(path), since, unseen)
        for change in sorted(found, key=lambda each: (each.revision, not each.external)):
            if not walk.take(change):
                break
        else:
            walk.rest()
        problems += walk.problems
    return problems


class _WrongError(Exception):
    """A fault of a change, named by the message."""


class _Walk:
    """The walk over one entity's states."""

    def __init__(self, log: Log, timeline: Timeline, since: int, unseen: set[int]) -> None:
        self._log = log
        self._unseen = unseen
        self._timeline = timeline
        # What was there at first contact was taken as it was.
        self._at = timeline.index_at(since)
        self._since = since
        self.problems: list[str] = []

    def take(self, change: Change) -> bool:
        """Explain a change's states; return whether that worked."""
        try:
            self._take(change)
        except _WrongError as error:
            self.problems.append("\n    ".join([f"{self._timeline.path}: {change.id} {error}", *change.lines()]))
            return False
        return True

    def _take(self, change: Change) -> None:
        states = self._timeline.states
        entity = change.entity(self._timeline.path)
        assert entity is not None
        assert change.outcome is not None
        last = self._timeline.index_at(change.revision)
        if last <= self._at:
            if change.revision > self._since:
                raise _WrongError("tells of states that another change tells of")
            return
        if change.outcome.versions.get(self._timeline.path) != states[last].version:
            raise _WrongError(f"tells of a version that was not there: {states[last]}")
        first = self._first(change, entity, last)
        on_unseen = change.revision - 1 in self._unseen
        self._skip(first, unseen=on_unseen)
        if change.external:
            _check_run(change, states[first : last + 1], self._ours)
        known = [] if on_unseen else [(entity.before, states[first])]
        known += [] if change.revision in self._unseen else [(entity.after, states[last])]
        for told, there in known:
            if told.keys() != (there.config or {}).keys():
                raise _WrongError(f"tells other keys than there were: {there}")
        if not change.external and not _tells(entity.after, states[last]):
            raise _WrongError(f"tells another content: {states[last]}")
        self._at = last

    def _first(self, change: Change, entity: TrailEntity, last: int) -> int:
        """Return the index of the state that a change was made on."""
        states = self._timeline.states
        if not change.external:
            made_on = change.made_on(entity)
            if states[last].zxid != change.revision or not _read(entity.version_read, made_on, states[last - 1]):
                raise _WrongError(f"is not the transaction that it says: {states[last - 1]}, {states[last]}")
            return last - 1
        for index in range(self._at, last):
            if _read(entity.version_read, entity.czxid_read, states[index]):
                return index
        raise _WrongError("was not made on a state that there was since")

    def rest(self) -> None:
        """Explain the states behind the last change."""
        try:
            self._skip(len(self._timeline.states) - 1)
        except _WrongError as error:
            self.problems.append(f"{self._timeline.path}: behind the last change {error}")

    def _skip(self, until: int, *, unseen: bool = False) -> None:
        """Pass over states that need no row; where nobody saw what they held, any content."""
        states = self._timeline.states
        for state in states[self._at + 1 : until + 1]:
            if self._ours(state) and not is_parent(state):
                raise _WrongError(f"comes after a version of ours that has no change: {state}")
        if not unseen and (states[self._at].config or {}) != (states[until].config or {}):
            lines = "\n    ".join(map(str, states[self._at : until + 1]))
            raise _WrongError(f"comes after external writes that have no change:\n    {lines}")
        self._at = until

    def _ours(self, state: State) -> bool:
        return state.session in self._log.ours


def _check_run(change: Change, states: Sequence[State], ours: Callable[[State], bool]) -> None:
    """Check a run of external writes: the state before it, and its own."""
    for index, state in enumerate(states[1:], 1):
        # Of a parent that came with a change of ours, and was gone again before anybody looked, nobody can know.
        gone = any(not later.present for later in states[index:])
        if ours(state) and not (gone and is_parent(state)):
            raise _WrongError(f"tells of a version of ours: {state}")
    writes, certain = change.intents[0].writes, certain_writes(states[0], states[-1])
    if writes != certain:
        raise _WrongError(f"tells of {writes} writes, and there were {certain} at least")


def _read(version: int | None, czxid: int | None, state: State) -> bool:
    return not state.present if version is None else (state.czxid, state.version) == (czxid, version)


def _tells(content: Mapping[str, str | None], state: State) -> bool:
    config = state.config or {}
    return all(value is None or plain(value) == plain(config[key]) for key, value in content.items())
