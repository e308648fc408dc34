"""The registrations that each user may add in a day, so that no client fills the memory or the tables of a service."""

from __future__ import annotations

from collections import OrderedDict
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from confplane.audit.registration_view import SoftwareVersion

_MOST_USERS: Final = 10_000
"""Users whose registrations of the day are counted; beyond it, those that registered least recently are forgotten."""


@dataclass(slots=True)
class _DailyUsage:
    """The registrations that a user added in a day."""

    day: int
    registrations: int = 0
    versions: set[int] = field(default_factory=set)
    """The hashes of the software versions."""
    size: int = 0
    """The bytes of the software versions."""


class RegistrationBudget:
    """Counts the new registrations of users in a process.

    Args:
        registrations: Maximum number of a user's new registrations in a day, over all of its client-ids.
        versions: Maximum number of their different software versions.
        size: Maximum number of bytes of these software versions.
    """

    def __init__(self, *, registrations: int = 50_000, versions: int = 256, size: int = 1024 * 1024) -> None:
        self._registrations = registrations
        self._versions = versions
        self._size = size
        self._users: OrderedDict[tuple[str, str], _DailyUsage] = OrderedDict()

    def take(self, cluster: str, entity_id: str, software: SoftwareVersion, day: int) -> bool:
        """Count a new registration. Return False, without counting it, if the user's budget of the day is used up."""
        user = cluster, entity_id.partition(",")[0]
        usage = self._users.get(user)
        if usage is None or usage.day != day:
            usage = self._users[user] = _DailyUsage(day)
            if len(self._users) > _MOST_USERS:
                self._users.popitem(last=False)
        self._users.move_to_end(user)
        version = hash(software)
        grown = 0 if version in usage.versions else software.size
        is_full = usage.registrations >= self._registrations or (
            grown and (len(usage.versions) >= self._versions or usage.size + grown > self._size)
        )
        if is_full:
            return False
        usage.registrations += 1
        usage.versions.add(version)
        usage.size += grown
        return True
