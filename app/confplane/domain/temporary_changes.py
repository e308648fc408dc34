"""Temporary changes that cover each other: what the end of one does with a key.

A temporary change of a key is a layer over the value that it found, its fallback. Another temporary change of the same
key covers it::

    alice   retention 1 h, until 18:00    ◄─ the current value; her fallback is bob's value
    bob     retention 1 d, until 12:00    ◄─ his fallback is the value before both
    (before both)

The end of the uppermost layer restores its fallback. The end of a covered layer writes nothing: its fallback becomes
the fallback of the layer above it. So any nesting of temporary changes leads back to the value before the first of
them. Any other change of the key is kept, and takes the key away from all layers below it.
"""

from __future__ import annotations

from enum import Enum
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable
    from uuid import UUID


class LayerChange(NamedTuple):
    """A change of a key that has a temporary change."""

    change_id: UUID
    is_temporary: bool
    reverts: Collection[UUID]
    """The changes that it ends or reverts."""


class KeyEnd(Enum):
    """The effect of the end of a temporary change on a key."""

    RESTORE = "restore"
    """The change is the uppermost layer: its fallback is restored."""
    PASS = "pass"  # noqa: S105 - not a password
    """Another temporary change covers it, and takes over its fallback."""
    RESTORED = "restored"
    """A later change ended or reverted the change already."""
    KEEP = "keep"
    """A later change that is not temporary gave the key another value."""


def key_end(change_id: UUID, later: Iterable[LayerChange], ended: Collection[UUID]) -> tuple[KeyEnd, UUID | None]:
    """Return the effect of a temporary change's end on a key, and the change above that takes over the fallback.

    Args:
        change_id: The temporary change.
        later: The later changes of the key, in the order of their revisions.
        ended: The temporary changes that have ended.
    """
    layers = [change_id]
    for change in later:
        if change.is_temporary:
            layers.append(change.change_id)
            continue
        left = _without_reverted(layers, change.reverts, ended)
        if not left:
            return KeyEnd.RESTORED, None
        if len(left) == len(layers):
            return KeyEnd.KEEP, None
        layers = left
    above = next((each for each in layers[1:] if each not in ended), None)
    return (KeyEnd.RESTORE, None) if above is None else (KeyEnd.PASS, above)


def _without_reverted(layers: list[UUID], reverted: Collection[UUID], ended: Collection[UUID]) -> list[UUID]:
    """Return the layers below the reverted ones on top. Layers that ended while they were covered do not count."""
    left = len(layers)
    for place in range(len(layers) - 1, -1, -1):
        if layers[place] in reverted:
            left = place
        elif layers[place] not in ended:
            break
    return layers[:left]
