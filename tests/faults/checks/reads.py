"""Reads: each response shows a state that existed at some moment, no earlier than the reader was promised."""

from __future__ import annotations

from collections import defaultdict
from typing import TYPE_CHECKING, Final

from confplane.domain.entities import Entity
from tests.faults import kinds
from tests.faults.checks.facts import evidence_of
from tests.faults.checks.timeline import is_entity, latest_before, parse, shown
from tests.faults.history import Kind

if TYPE_CHECKING:
    from tests.faults.checks.facts import Facts
    from tests.faults.history import Call, InjectedFault, Part

NEVER_WAS: Final = "a read shows a value that never existed"
OLDER_THAN_TOLD: Final = "a read shows a state before its revision"
OLDER_THAN_ASKED: Final = "a read shows a state before the requested revision"
STALE: Final = "a strong read shows a value that was overwritten before"
UNMARKED: Final = "a stale read is not marked as stale"
OTHER_MIRROR: Final = "a process shows another value than ZooKeeper"

_KINDS: Final = {
    "client-quotas": ("users", "clients", "ips"),
    "client-configs": ("users",),
    "configs": ("topics", "brokers"),
}


_OVERDUE_S: Final = 3.0
"""A copy is reported as stale once it was not confirmed for so long (docs/reads-design.md, "Reads")."""
_ON_ITS_WAY_S: Final = 0.5
"""Seconds within which bytes sent before a fault began have arrived."""
_LONGEST_S: Final = 15.0
"""Seconds that a copy can be stale without a report: overdue, confirmed by a server that was itself behind, which ends
within its limit of four seconds, or on a session that had ended."""


def check(facts: Facts) -> None:
    """Check each read, and what all processes show at the end."""
    down = _Down(facts)
    for call in facts.run.calls:
        if call.kind is Kind.READ and call.content is not None and call.end is not None:
            _read(facts, call, call.parts[0])
            down.check(call)
    _mirrors(facts)


def _read(facts: Facts, call: Call, part: Part) -> None:
    timeline = facts.log.of_path(part.path)
    content = shown(part.facet, part.path, call.content)
    assert call.end is not None
    index = latest_before(timeline, timeline.with_content(part.facet, content), facts.not_before(call.end))
    if index is None:
        facts.add(NEVER_WAS, part.path, evidence_of(call), *map(str, timeline.states[-10:]))
        return
    until = timeline.until(index)
    following = [str(state) for state in timeline.states[index : index + 3]]
    # Of consecutive states with the same content the last one counts.
    if call.min_revision is not None and until <= call.min_revision:
        facts.add(OLDER_THAN_ASKED, part.path, evidence_of(call), *following)
    elif call.revision is not None and until <= call.revision:
        facts.add(OLDER_THAN_TOLD, part.path, evidence_of(call), *following)
    elif call.strong and until <= (known := facts.known_by(call.start)):
        facts.add(STALE, part.path, f"{known} had been answered before it began", evidence_of(call), *following)
    elif call.stale_ms is None and until <= (known := facts.known_by(call.start - _LONGEST_S)):
        what = f"{known} had been answered {_LONGEST_S:g} s before it began"
        facts.add(UNMARKED, part.path, what, evidence_of(call), *following)


class _Down:
    """The times in which processes received nothing from ZooKeeper."""

    def __init__(self, facts: Facts) -> None:
        self._facts = facts
        self._faults: dict[int, list[InjectedFault]] = defaultdict(list)
        for fault in facts.run.faults:
            if fault.kind in kinds.SILENT:
                [target] = fault.targets
                self._faults[int(target.split()[1])].append(fault)

    def check(self, call: Call) -> None:
        """Check that a read during such a time was answered with the age of the copy."""
        assert call.end is not None
        assert call.process is not None
        for fault in self._faults.get(call.process, ()):
            silent_s = call.start - fault.began - _ON_ITS_WAY_S
            if silent_s > _OVERDUE_S and call.end < fault.ended and (call.stale_ms or 0) < 1000 * silent_s:
                what = f"process {call.process}: {fault.kind} from {fault.began:.3f} to {fault.ended:.3f}"
                self._facts.add(UNMARKED, what, f"it reports {call.stale_ms} ms", evidence_of(call))


def _mirrors(facts: Facts) -> None:
    nodes = {path: node for path, node in facts.run.znodes.items() if is_entity(path)}
    for mirror in facts.run.mirrors:
        for facet, entities in mirror.facets.items():
            tree = _tree(facts, facet)
            answered = {f"{tree}/{Entity.from_id(entity).path}": content for entity, content in entities.items()}
            for path in answered.keys() | nodes.keys():
                if not path.startswith(tuple(f"{tree}/{kind}/" for kind in _KINDS[facet])):
                    continue
                found = shown(facet, path, answered.get(path))
                stored = shown(facet, path, parse(nodes[path].data) if path in nodes else None)
                if found != stored:
                    what = f"process {mirror.process}, {facet}, {path}"
                    facts.add(OTHER_MIRROR, what, f"answered: {found}", f"stored: {stored}")


def _tree(facts: Facts, facet: str) -> str:
    """Return where the workload has a facet's znodes."""
    paths = (part.path for call in facts.run.calls for part in call.parts if part.facet == facet)
    return "/confplane/client-configs" if next(paths, "").startswith("/confplane/") else "/config"
