"""Warnings about children of ``/config/changes``: names of other nodes, and notifications without an entity.

A child that is not a notification stops brokers. A notification that names no entity is ignored by brokers and by this
service, and purged with its neighbours; no process has noticed the change of its writer.
"""

from __future__ import annotations

import time
from typing import Any

from confplane.store import znodes


class Anomalies:
    """The known anomalies.

    Attributes:
        strays: Names that are not notifications', as of the last list.
        relist_s: Seconds between two lists of all children while there are anomalies and children come and go: there
            may be 37,000.
    """

    def __init__(self) -> None:
        self.relist_s = 5.0
        self.strays: tuple[str, ...] = ()
        self._nameless: dict[int, None] = {}
        self._listed = 0.0
        self._pzxid = 0

    @property
    def nameless(self) -> list[str]:
        """Names of notifications that were read and name no entity."""
        return [znodes.change_name(number) for number in self._nameless]

    def record_nameless(self, number: int) -> None:
        """Record a notification that names no entity."""
        self._nameless[number] = None

    def record_listing(self, names: list[str], stat: Any) -> None:
        """Record the names of all children and their parent's Stat."""
        self._listed, self._pzxid = time.monotonic(), stat.pzxid
        numbers = {name: znodes.sequence_of(name) for name in names}
        self.strays = tuple(sorted(name for name, number in numbers.items() if number is None))
        if self._nameless:
            there = set(numbers.values())
            self._nameless = {number: None for number in self._nameless if number in there}

    def needs_relisting(self, stat: Any) -> bool:
        """Return True if the children must be listed again: by their parent's Stat, anomalies may be gone."""
        return (
            bool(self.strays or self._nameless)
            and stat.pzxid != self._pzxid
            and time.monotonic() - self._listed >= self.relist_s
        )
