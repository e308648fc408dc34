"""Children of ``/config/changes`` that an operator should know: what is no notification, and what names no entity.

A child that is no notification stops brokers. A notification that names no entity is passed over by brokers and by
this service, and purged with its neighbours; whatever its writer changed, nobody heard of.
"""

from __future__ import annotations

import time
from typing import Any, Final

from app.store import znodes

_RELIST_SECONDS: Final = 5.0
"""While there are oddities and children come and go, all of them are listed so often, and there may be 37,000."""


class Oddities:
    """What is known of them.

    Attributes:
        strays: Names that are no notifications', as of the last listing.
    """

    def __init__(self) -> None:
        self.strays: tuple[str, ...] = ()
        self._nameless: dict[int, None] = {}
        self._listed = 0.0
        self._pzxid = 0

    @property
    def nameless(self) -> list[str]:
        """Names of notifications that were read and name no entity."""
        return [znodes.change_name(number) for number in self._nameless]

    def names_nothing(self, number: int) -> None:
        """Take note of a notification that names no entity."""
        self._nameless[number] = None

    def listed(self, names: list[str], stat: Any) -> None:
        """Take note of all children, and of their parent's Stat."""
        self._listed, self._pzxid = time.monotonic(), stat.pzxid
        numbers = {name: znodes.sequence_of(name) for name in names}
        self.strays = tuple(sorted(name for name, number in numbers.items() if number is None))
        if self._nameless:
            there = set(numbers.values())
            self._nameless = {number: None for number in self._nameless if number in there}

    def outdated(self, stat: Any) -> bool:
        """Say whether the children are to be listed again: oddities may be gone, by their parent's Stat."""
        return (
            bool(self.strays or self._nameless)
            and stat.pzxid != self._pzxid
            and time.monotonic() - self._listed >= _RELIST_SECONDS
        )
