"""Temporary changes: each ends, once, and leads its keys back to the values before it.

The values are those of ZooKeeper's log. A temporary change of a key is a layer over the value that it found, and
another temporary change may cover it. Any other change of the key takes it away from all layers. Where that was an
external write, the service may not have seen the value in between, so nothing is said about the layers below it.
"""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass
from datetime import datetime
from itertools import pairwise
from typing import TYPE_CHECKING, Final

from tests.faults.checks.facts import evidence_of
from tests.faults.checks.timeline import plain

if TYPE_CHECKING:
    from tests.faults.checks.facts import Change, Facts
    from tests.faults.checks.timeline import Config, State

NOT_ENDED: Final = "a temporary change has no end"
TWICE: Final = "a temporary change ended twice"
NOT_RESTORED: Final = "a key kept the value of a temporary change"
OVERWRITTEN: Final = "an end changed a key that was changed otherwise since"
COVERED: Final = "an end changed a key that another temporary change covers"
OTHER_VALUE: Final = "an end restored another value"
NOT_APPLIED: Final = "an end was answered as not applied and was applied"


@dataclass(slots=True)
class _Layer:
    """A temporary change of one key."""

    change: Change
    before: str | None
    reverted: bool = False
    """True if a revert led back to the value before it, which was that of the layer below."""


def check(facts: Facts) -> None:
    """Check the ends, and the values that they left."""
    begun = [change for change in facts.changes.values() if change.temporary and change.committed]
    ended = {each.change_id: each.ended_at for each in facts.run.schedules if each.ended_at is not None}
    ends: dict[str, list[Change]] = defaultdict(list)
    for change in facts.changes.values():
        if change.ends is not None and change.committed:
            ends[change.ends].append(change)
    for change in begun:
        if change.id not in ended and facts.run.quiet_s is not None:
            facts.add(NOT_ENDED, f"change {change.id}", *change.lines())
        if len(ends[change.id]) > 1:
            facts.add(TWICE, f"change {change.id}", *(line for each in ends[change.id] for line in each.lines()))
            facts.blamed.update(entity.path for each in ends[change.id] for entity in each.entities)
    for call in facts.writes:
        refused = call.ends is not None and call.status is not None and not call.acknowledged and not call.unknown
        for change in facts.changes_of(call) if refused else ():
            if change.committed:
                facts.add(NOT_APPLIED, f"change {change.id}", evidence_of(call), *change.lines())
    moments = {change_id: datetime.fromisoformat(moment) for change_id, moment in ended.items()}
    for path in {entity.path for change in begun for entity in change.entities} - facts.blamed:
        _Path(facts, path, moments).check()


class _Path:
    """The layers of the keys of one znode."""

    def __init__(self, facts: Facts, path: str, ended: dict[str, datetime]) -> None:
        self._facts = facts
        self._path = path
        self._ended = ended
        self._early = {call.ends for call in facts.writes if call.ends is not None}
        """The changes whose early end was requested."""
        self._layers: dict[str, list[_Layer]] = defaultdict(list)
        self._unsure: set[str] = set()
        """Keys that were written externally while there were layers."""

    def check(self) -> None:
        """Follow the states."""
        states = self._facts.log.of_path(self._path).states
        for before, after in pairwise(states):
            change = self._facts.by_place.get((after.zxid, self._path))
            old, new = _values(before.config), _values(after.config)
            for key in sorted(old.keys() | new.keys()):
                if old.get(key) != new.get(key):
                    self._changed(key, old.get(key), new.get(key), change, (before, after))
        last = _values(states[-1].config)
        for key, layers in self._layers.items():
            over = all(layer.change.id in self._ended for layer in layers)
            if layers and over and key not in self._unsure and last.get(key) != layers[0].before:
                what = f"{key} of {self._path} was {layers[0].before}"
                lines = [line for layer in layers for line in layer.change.lines()]
                self._facts.add(NOT_RESTORED, what, *lines, str(states[-1]))

    def _changed(
        self, key: str, before: str | None, after: str | None, change: Change | None, states: tuple[State, State]
    ) -> None:
        layers = self._layers[key]
        if change is None:
            if layers:
                self._unsure.add(key)
        elif change.ends is not None:
            self._end(key, after, change, states)
        elif change.temporary:
            layers.append(_Layer(change, before))
        elif at := next((place for place, layer in enumerate(layers) if layer.change.id in change.reverts), None):
            # Of the lowest layer nothing is left, as after any other change.
            layers[at].reverted = True
            del layers[at + 1 :]
        else:
            layers.clear()
            self._unsure.discard(key)

    def _end(self, key: str, after: str | None, end: Change, states: tuple[State, State]) -> None:
        """Take the layers away that an end led back over."""
        layers = self._layers[key]
        if key in self._unsure:
            return
        at = next((place for place, layer in enumerate(layers) if layer.change.id == end.ends), None)
        what = f"{key} of {self._path} by change {end.id}"
        evidence = (*end.lines(), *map(str, states), *(line for layer in layers for line in layer.change.lines()))
        if at is None:
            self._facts.add(OVERWRITTEN, what, *evidence)
            return
        decided = datetime.fromisoformat(end.intents[0].recorded_at)
        if any(not layer.reverted and self._is_in_force(layer, decided) for layer in layers[at + 1 :]):
            self._facts.add(COVERED, what, *evidence)
            return
        # Layers below whose ends have begun passed on what they would have restored.
        lowest = at
        while layers[lowest].before != after and lowest and self._may_end(layers[lowest - 1], decided):
            lowest -= 1
        if layers[lowest].before != after:
            self._facts.add(OTHER_VALUE, f"{what}: {after}", *evidence)
        del layers[lowest:]

    def _is_in_force(self, layer: _Layer, moment: datetime) -> bool:
        ended = self._ended.get(layer.change.id)
        return ended is None or ended > moment

    def _may_end(self, layer: _Layer, moment: datetime) -> bool:
        """Return True if the end of a layer may have begun by a moment; that it is over is recorded later."""
        due = layer.change.revert_at
        is_due = due is not None and datetime.fromisoformat(due) <= moment
        return is_due or layer.change.id in self._early or not self._is_in_force(layer, moment)


def _values(config: Config | None) -> Config:
    return {key: plain(value) for key, value in (config or {}).items()}
