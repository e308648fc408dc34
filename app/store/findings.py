"""What an operator should know of a cluster's znodes: strays, what can't be read, what is spelled otherwise."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from app.store import znodes

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from app.store.follower import Follower

_NAMED: Final = 5
"""Findings named one by one; the rest is a number."""


def of(follower: Follower) -> Iterator[str]:
    """Return the findings in what a follower has seen, a sentence each."""
    if follower.strays:
        yield (
            f"{znodes.CHANGES} has children that are no notifications, which stops brokers from reading config"
            f" changes: {some(follower.strays)}"
        )
    mirror = follower.mirror
    if mirror is None:
        return
    for tree, copy in mirror.trees.items():
        for node in copy.defects(_NAMED):
            yield f"A znode below {tree.value}, of {node.id}, {node.defect}"
        if copy.defective > _NAMED:
            yield f"{copy.defective - _NAMED} more znodes below {tree.value} can't be read or written back"
    if mirror.forbidden:
        yield f"Znodes that may not be read with this identity are not shown: {some(mirror.forbidden)}"
    if mirror.unaddressed:
        yield f"Znodes whose names are not spelled as Kafka spells them are not shown: {some(mirror.unaddressed)}"


def some(names: Iterable[str]) -> str:
    """Return the first few names, quoted, and how many there are besides."""
    every = list(names)
    listed = ", ".join(repr(name) for name in every[:_NAMED])
    return listed if len(every) <= _NAMED else f"{listed} and {len(every) - _NAMED} more"
