"""Reads: what was answered stood at some moment, and no earlier than the reader was promised."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from app.domain.entities import Entity
from tests.faults.checks.facts import told
from tests.faults.checks.timeline import is_entity, latest_before, parse, shown
from tests.faults.history import Kind

if TYPE_CHECKING:
    from tests.faults.checks.facts import Facts
    from tests.faults.history import Call, Part

NEVER_WAS: Final = "a read shows what never was"
OLDER_THAN_TOLD: Final = "a read shows less than the revision that it tells"
OLDER_THAN_ASKED: Final = "a read shows less than the revision that was asked for"
STALE: Final = "a strong read shows what was overwritten before"
OTHER_MIRROR: Final = "a process does not show what is stored"

_KINDS: Final = {
    "client-quotas": ("users", "clients", "ips"),
    "client-configs": ("users",),
    "configs": ("topics", "brokers"),
}


def check(facts: Facts) -> None:
    """Check each read, and what all processes show at the end."""
    for call in facts.run.calls:
        if call.kind is Kind.READ and call.content is not None and call.end is not None:
            _read(facts, call, call.parts[0])
    _mirrors(facts)


def _read(facts: Facts, call: Call, part: Part) -> None:
    timeline = facts.log.of_path(part.path)
    content = shown(part.facet, part.path, call.content)
    assert call.end is not None
    index = latest_before(timeline, timeline.with_content(part.facet, content), facts.not_before(call.end))
    if index is None:
        facts.add(NEVER_WAS, part.path, told(call), *map(str, timeline.states[-10:]))
        return
    until = timeline.until(index)
    following = [str(state) for state in timeline.states[index : index + 3]]
    # A state that is followed by one with the same content stands for both, so the last of them was looked for.
    if call.min_revision is not None and until <= call.min_revision:
        facts.add(OLDER_THAN_ASKED, part.path, told(call), *following)
    elif call.revision is not None and until <= call.revision:
        facts.add(OLDER_THAN_TOLD, part.path, told(call), *following)
    elif call.strong and until <= (known := facts.known_by(call.start)):
        facts.add(STALE, part.path, f"{known} had been answered before it began", told(call), *following)


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
