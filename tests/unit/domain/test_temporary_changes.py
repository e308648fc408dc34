"""Temporary changes of one key, begun, ended, covered and overwritten in any order."""

from __future__ import annotations

import random
from uuid import UUID

from confplane.domain.temporary_changes import KeyEnd, LayerChange, key_end


class Key:
    """A key of an entity, its changes, and the temporary ones among them."""

    def __init__(self) -> None:
        self.value: str | None = "before"
        self.changes: list[LayerChange] = []
        self.fallbacks: dict[UUID, str | None] = {}
        self.ended: set[UUID] = set()
        self.kept: set[UUID] = set()

    def write(self, value: str | None, *, temporary: bool = False, reverts: tuple[UUID, ...] = ()) -> None:
        """Change the key; a change to the same value changes nothing, and is in no trail."""
        if value == self.value:
            return
        change_id = UUID(int=len(self.changes) + 1)
        self.changes.append(LayerChange(change_id, temporary, reverts))
        if temporary:
            self.fallbacks[change_id] = self.value
        self.value = value

    def end(self, change_id: UUID) -> KeyEnd:
        """End a temporary change."""
        place = next(place for place, change in enumerate(self.changes) if change.change_id == change_id)
        doing, above = key_end(change_id, self.changes[place + 1 :], self.ended)
        if doing is KeyEnd.RESTORE:
            self.write(self.fallbacks[change_id], reverts=(change_id,))
        elif doing is KeyEnd.KEEP:
            self.kept.add(change_id)
        elif above is not None:
            self.fallbacks[above] = self.fallbacks[change_id]
        self.ended.add(change_id)
        return doing

    @property
    def active(self) -> list[UUID]:
        """The temporary changes that have not ended."""
        return [each for each in self.fallbacks if each not in self.ended]


def test_any_nesting_ends_in_the_value_before_the_first_or_in_that_of_the_last_other_change() -> None:
    for seed in range(300):
        chosen, key = random.Random(seed), Key()  # noqa: S311 - no secret
        expected = key.value
        for _ in range(chosen.randrange(2, 25)):
            step = chosen.random()
            value = chosen.choice(["1", "2", "3", None])
            if step < 0.5:
                key.write(value, temporary=True)
            elif step < 0.9 and key.active:
                key.end(chosen.choice(key.active))
            elif seed % 2 and value != key.value:
                key.write(value)
                expected = value
        while key.active:
            key.end(chosen.choice(key.active))
        assert key.value == expected, seed
        assert not key.kept or seed % 2, seed


def test_a_lower_change_that_ends_first_passes_its_fallback_on() -> None:
    key = Key()
    key.write("lower", temporary=True)
    key.write("upper", temporary=True)
    lower, upper = key.active
    assert key.end(lower) is KeyEnd.PASS
    assert key.value == "upper"
    assert key.end(upper) is KeyEnd.RESTORE
    assert key.value == "before"


def test_a_value_of_another_change_is_kept_also_if_a_temporary_change_covers_it() -> None:
    key = Key()
    key.write("lower", temporary=True)
    key.write("lasting")
    key.write("upper", temporary=True)
    lower, upper = key.active
    assert (key.end(lower), key.end(upper)) == (KeyEnd.KEEP, KeyEnd.RESTORE)
    assert key.value == "lasting"


def test_a_change_that_was_reverted_has_nothing_to_restore() -> None:
    key = Key()
    key.write("lower", temporary=True)
    [change] = key.active
    key.write("before", reverts=(change,))
    assert key.end(change) is KeyEnd.RESTORED
