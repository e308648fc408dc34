"""The feed: changes of Confplane exactly once, in order, with their values; external states in the end."""

from __future__ import annotations

from collections import Counter, defaultdict
from dataclasses import dataclass, field
from itertools import pairwise
from typing import TYPE_CHECKING, Any, Final

from confplane.domain.entities import Entity
from tests.faults.checks.timeline import is_entity, parse, plain, shown

if TYPE_CHECKING:
    from collections.abc import Sequence

    from tests.faults.checks.facts import Change, Facts
    from tests.faults.history import FeedEvent

MISSED: Final = "the feed lacks a change"
TWICE: Final = "the feed has a change twice"
OTHER_ORDER: Final = "the feed has changes in another order"
OTHER_VALUES: Final = "the feed has other values than the trail"
OTHER_END: Final = "the feed ends in another state of an entity"
REFUSED: Final = "a position of the feed was refused"
_VALUELESS: Final = {"MOVE", "DISCARD", "REENCODE"}


def check(facts: Facts) -> None:
    """Hold the events that a consumer received against the trail, and their end against what is stored."""
    run = facts.run
    if run.feed is None:
        return
    for refusal in run.feed_refusals:
        facts.add(REFUSED, refusal, "the consumer began with a position of the same run")
    _own(facts, [event for event in run.feed if event.source == "confplane" and event.type == "change"])
    _end(facts)


def _own(facts: Facts, own: Sequence[FeedEvent]) -> None:
    expected = {change.id: change for change in facts.changes.values() if _is_shown(change)}
    counts = Counter(event.change_id for event in own)
    for change_id, change in expected.items():
        if not counts[change_id]:
            facts.add(MISSED, f"change {change_id}", *change.lines())
    for change_id, count in counts.items():
        if count > 1 and change_id in facts.changes:
            facts.add(TWICE, f"change {change_id}: {count} times", *facts.changes[change_id].lines())
    first = list({event.change_id: event for event in own}.values())
    for event, following in pairwise(first):
        if (event.revision, event.change_id) > (following.revision, following.change_id):
            facts.add(OTHER_ORDER, f"change {event.change_id} before {following.change_id}", str(event), str(following))
            break
    for event in first:
        if event.change_id in expected:
            _compare(facts, event, expected[event.change_id])


def _is_shown(change: Change) -> bool:
    """Return True for a committed change of ours that gave a key of an entity another value."""
    return (
        change.committed
        and not change.external
        and any(entity.keys and is_entity(entity.path) and not _is_valueless(entity.ops) for entity in change.entities)
    )


def _is_valueless(ops: tuple[dict[str, Any], ...]) -> bool:
    return bool(ops) and ops[0].get("op") in _VALUELESS


def _compare(facts: Facts, event: FeedEvent, change: Change) -> None:
    """Hold the values of an event against those of the trail."""
    shown = {(each.id, key): (before, after) for each in event.entities for key, before, after in each.keys}
    for entity in change.entities:
        for key in entity.keys:
            wanted = tuple(_plain(side.get(key)) for side in (entity.before, entity.after))
            found = shown.get((entity.entity_id, key))
            if found is None or tuple(map(_plain, found)) != wanted:
                facts.add(OTHER_VALUES, f"{key} of {entity.entity_id}: {found}", str(event), *change.lines())


@dataclass(slots=True)
class _Copy:
    """A consumer's copy of an entity in a facet."""

    revision: int = 0
    values: dict[str, Any] = field(default_factory=dict)
    complete: bool = False


def _end(facts: Facts) -> None:
    """Keep a copy by the rules of docs/feed.md, and compare its end with what is stored."""
    copies: dict[tuple[str, str], _Copy] = defaultdict(_Copy)
    for event in facts.run.feed or ():
        if event.type == "reset":
            copies.clear()  # the consumer lists again
        for each in event.entities:
            copy = copies[each.facet, each.id]
            if each.revision < copy.revision:
                continue
            values = {key: after for key, _, after in each.keys}
            copy.revision, copy.complete = each.revision, copy.complete or each.complete
            copy.values = values if each.complete else copy.values | values
    for (facet, entity_id), copy in copies.items():
        path = f"/config/{Entity.from_id(entity_id).path}"
        node = facts.run.znodes.get(path)
        stored = dict(shown(facet, path, None if node is None else parse(node.data)))
        for key in copy.values.keys() | (stored.keys() if copy.complete else ()):
            if _plain(stored.get(key)) != _plain(copy.values.get(key)):
                what = f"{key} of {entity_id}: {copy.values.get(key)} at {copy.revision}"
                facts.add(OTHER_END, what, f"stored: {stored.get(key)}")


def _plain(value: Any) -> str | None:
    if value is None:
        return None
    return str(value).lower() if isinstance(value, bool) else plain(value)
