"""A run with the indexes that the checks share: changes by id and by call, and bounds on what was when."""

from __future__ import annotations

import math
from bisect import bisect_left
from collections import defaultdict
from dataclasses import dataclass, field
from functools import cached_property
from typing import TYPE_CHECKING

from confplane.services.ports.trail import PUT_BACK
from tests.faults.checks.timeline import NEVER, Log, ancestors, latest_before, shown
from tests.faults.history import Kind, Violation

if TYPE_CHECKING:
    from collections.abc import Iterable

    from tests.faults.checks.timeline import Shown, State, Timeline
    from tests.faults.history import Call, Part, Run, TrailEntity, TrailIntent, TrailOutcome

EXTERNAL = "external"
_EVIDENCE = 20
"""Lines of evidence that a violation has at most."""


@dataclass(slots=True)
class Change:
    """A change as the trail has it."""

    id: str
    intents: list[TrailIntent] = field(default_factory=list)
    outcome: TrailOutcome | None = None

    @property
    def external(self) -> bool:
        """True for an external change."""
        return any(intent.kind == EXTERNAL for intent in self.intents)

    @property
    def put_back(self) -> bool:
        """True for an external value that was replaced in a Kafka cluster and was never in ZooKeeper."""
        return any(intent.kind == PUT_BACK for intent in self.intents) and not self.committed

    @property
    def committed(self) -> bool:
        """True for a change that is committed by the trail."""
        return self.outcome is not None and self.outcome.committed

    @property
    def temporary(self) -> bool:
        """True for a change with an end."""
        return any(intent.temporary for intent in self.intents)

    @property
    def revert_at(self) -> str | None:
        """The time of a temporary change's end."""
        return next((intent.revert_at for intent in self.intents if intent.revert_at is not None), None)

    @property
    def ends(self) -> str | None:
        """The temporary change that this one ends."""
        return next((intent.ends for intent in self.intents if intent.ends is not None), None)

    @property
    def reverts(self) -> tuple[str, ...]:
        """The changes that this one ends or reverts."""
        return self.intents[-1].reverts if self.intents else ()

    @property
    def revision(self) -> int:
        """The revision of a committed one."""
        if self.outcome is None or self.outcome.revision is None:
            raise ValueError(f"change {self.id} was not committed")
        return self.outcome.revision

    @property
    def entities(self) -> tuple[TrailEntity, ...]:
        """The entities of the attempt that the outcome names; of an open change those of the last attempt."""
        if not self.intents:
            return ()
        if self.outcome is not None:
            for intent in self.intents:
                if intent.attempt == self.outcome.attempt:
                    return intent.entities
        return self.intents[-1].entities

    def made_on(self, entity: TrailEntity) -> int | None:
        """Return the czxid of the znode that one was made on: the one that was read, or that was recreated externally since."""
        assert self.outcome is not None
        return self.outcome.remade.get(entity.path, entity.czxid_read)

    def entity(self, path: str) -> TrailEntity | None:
        """Return what it meant to do to one znode."""
        return next((entity for entity in self.entities if entity.path == path), None)

    def lines(self) -> list[str]:
        """Return it as evidence."""
        found = [
            f"intent {intent.attempt} of {intent.request_id}, recorded {intent.recorded_at}: "
            + "; ".join(
                f"{entity.path} read at {entity.version_read} (czxid {entity.czxid_read}), "
                f"{entity.before} -> {entity.after}"
                for entity in intent.entities
            )
            for intent in self.intents
        ]
        outcome = self.outcome
        if outcome is None:
            return [*found, "no outcome"]
        ended = f"committed at {outcome.revision} as {outcome.versions}" if outcome.committed else "rejected"
        return [*found, f"outcome of attempt {outcome.attempt}, recorded {outcome.recorded_at}: {ended}"]


class Facts:
    """The facts of a run, indexed for the checks, and the list of their findings."""

    def __init__(self, run: Run) -> None:
        self.run = run
        self.log = Log.of(run.events)
        self.changes: dict[str, Change] = {}
        for intent in run.intents:
            self.changes.setdefault(intent.change_id, Change(intent.change_id)).intents.append(intent)
        for outcome in run.outcomes:
            self.changes.setdefault(outcome.change_id, Change(outcome.change_id)).outcome = outcome
        self.violations: list[Violation] = []
        self.blamed: set[str] = set()
        """Paths of which something was found: consequences are not reported again."""

    def add(self, rule: str, what: str, *evidence: str, path: str | None = None) -> None:
        """Note a violation: a sentence, and lines that prove it."""
        if path is not None:
            self.blamed.add(path)
        if len(evidence) > _EVIDENCE:
            evidence = (*evidence[:_EVIDENCE], f"... and {len(evidence) - _EVIDENCE} more")
        self.violations.append(Violation(rule, "\n    ".join([what, *evidence])))

    @property
    def recording(self) -> bool:
        """True in a run in which external changes were recorded."""
        return self.run.watermark is not None

    # -- calls and their changes

    @cached_property
    def writes(self) -> list[Call]:
        """Requests to Confplane that meant to change something."""
        return [call for call in self.run.calls if call.kind is Kind.WRITE]

    @cached_property
    def by_request(self) -> dict[str, list[Change]]:
        """Request id -> the changes that were begun for it."""
        found: dict[str, list[Change]] = defaultdict(list)
        for change in self.changes.values():
            for request_id in {intent.request_id for intent in change.intents}:
                found[request_id].append(change)
        return dict(found)

    def changes_of(self, call: Call) -> list[Change]:
        """Return the changes that were begun for a call itself, not for one that it repeats."""
        return self.by_request.get(call.request_id, [])

    @cached_property
    def at_revision(self) -> dict[int, list[Change]]:
        """Revision -> the committed changes of ours that have it."""
        found: dict[int, list[Change]] = defaultdict(list)
        for change in self.changes.values():
            if change.committed and not change.external:
                found[change.revision].append(change)
        return dict(found)

    @cached_property
    def by_place(self) -> dict[tuple[int, str], Change]:
        """Revision and path -> the committed change of ours that wrote there."""
        return {
            (revision, entity.path): change
            for revision, changes in self.at_revision.items()
            for change in changes
            for entity in change.entities
        }

    @cached_property
    def recreated(self) -> set[tuple[str, int]]:
        """Paths and revisions of the changes of ours under which a znode was recreated externally."""
        outcomes = [change.outcome for change in self.changes.values() if change.committed]
        return {(path, each.revision) for each in outcomes if each and each.revision for path in each.remade}

    # -- what was written past Confplane

    @cached_property
    def _external(self) -> tuple[dict[str, set[Shown]], frozenset[str]]:
        """By path, the contents that external writes meant to leave; and the ancestors of these paths."""
        found: dict[str, set[Shown]] = defaultdict(set)
        above: set[str] = set()
        for call in self.run.calls:
            if call.kind is Kind.EXTERNAL:
                for part in call.parts:
                    found[part.path].add(shown("node", part.path, part.set))
                    above.update(ancestors(part.path))
        return dict(found), frozenset(above)

    def is_external(self, path: str, state: State) -> bool:
        """Say whether a state is one that an external write was to bring about, and no session of ours did."""
        if state.session in self.log.ours:
            return False
        contents, above = self._external
        content = shown("node", path, state.config)
        if content in contents.get(path, ()):
            return True
        # Kafka's tools create what is missing above a node.
        return path in above and state.version == 0 and not content

    # -- what was when

    @cached_property
    def _answered(self) -> tuple[list[float], list[int]]:
        """Ends of calls, and the highest revision that had been answered by each."""
        ended = sorted((call.end, call.revision) for call in self.run.calls if call.end and call.revision)
        return [end for end, _ in ended], _running_max(revision for _, revision in ended)

    def known_by(self, moment: float) -> int:
        """Return a zxid that ZooKeeper certainly had reached by then: the highest of any response."""
        ends, revisions = self._answered
        at = bisect_left(ends, moment)
        return revisions[at - 1] if at else 0

    @cached_property
    def _begun(self) -> tuple[list[float], list[int]]:
        """Starts of calls, latest first and negated, and the lowest revision of changes begun then or later."""
        begun: list[tuple[float, int]] = []
        for call in self.run.calls:
            revisions = [change.revision for change in self.changes_of(call) if change.committed]
            if call.kind is Kind.EXTERNAL and call.revision is not None:
                revisions.append(call.revision)
            begun += [(-call.start, revision) for revision in revisions]
        begun.sort()
        lowest = [-value for value in _running_max(-revision for _, revision in begun)]
        return [start for start, _ in begun], lowest

    def not_before(self, moment: float) -> int:
        """Return a zxid that ZooKeeper certainly had not reached by then: the lowest of what was begun later."""
        starts, revisions = self._begun
        at = bisect_left(starts, -moment)
        return revisions[at - 1] if at else NEVER

    def during(self, call: Call, timeline: Timeline) -> range:
        """Return the indices of the states that may have existed at some moment of a call that has ended."""
        assert call.end is not None
        last = latest_before(timeline, range(len(timeline.states)), self.not_before(call.end))
        return range(timeline.index_at(self.known_by(call.start)), (0 if last is None else last) + 1)


def _running_max(values: Iterable[int]) -> list[int]:
    found: list[int] = []
    highest = -math.inf
    for value in values:
        highest = max(highest, value)
        found.append(int(highest))
    return found


def evidence_of(call: Call) -> str:
    """Return a call as evidence."""
    end = "never" if call.end is None else f"{call.end:.6f}"
    asked = "; ".join(map(_asked, call.parts))
    head = f"call {call.id} of client {call.client} to process {call.process}, {call.start:.6f} to {end}:"
    if call.kind is not Kind.READ:
        answer = f"{call.status or call.failure}, change {call.change_id}, revision {call.revision}, {call.outcome}"
        return f"{head} {call.method} {call.path} [{asked}] -> {answer}"
    wanted = f"min_revision {call.min_revision}{', strong' if call.strong else ''}"
    return f"{head} {call.method} {call.path} ({wanted}) -> {call.status}, revision {call.revision}, {call.content}"


def _asked(part: Part) -> str:
    return f"{part.mode} {part.path} {part.set} {part.remove or ''} {part.if_match or ''}".rstrip()
