"""Approvals: how many a rule asks for and from whom, and which of them are missing."""

from __future__ import annotations

import fnmatch
import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from confplane.domain.texts import clipped

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence


PAST_RULES: Final = "Past the rules: "
"""The beginning of the warning of a write that names a rule which was bypassed."""
_SPECIAL: Final = frozenset("*?[")


class Globs:
    """Patterns of names in the style of a shell (``*``, ``?``, ``[...]``), case-sensitive, matched as a whole."""

    __slots__ = ("_exact", "_patterns", "texts")

    def __init__(self, texts: Iterable[str]) -> None:
        self.texts = tuple(texts)
        self._exact = frozenset(text for text in self.texts if _SPECIAL.isdisjoint(text))
        self._patterns = tuple(
            re.compile(fnmatch.translate(text)) for text in self.texts if not _SPECIAL.isdisjoint(text)
        )

    def match(self, name: str) -> bool:
        """Return True if any of the patterns matches a name."""
        return name in self._exact or any(pattern.match(name) for pattern in self._patterns)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Globs) and other.texts == self.texts

    def __hash__(self) -> int:
        return hash(self.texts)

    def __str__(self) -> str:
        return clipped(", ".join(self.texts), 300)


@dataclass(frozen=True, slots=True)
class Requirement:
    """The approvals that a rule asks for."""

    rule: str
    """The name of the rule."""
    count: int
    """The number of different principals that must approve."""
    approvers: Globs = Globs(("*",))  # noqa: RUF009 - it never changes
    """Patterns of the principals that may approve, as ``User:name``, and of their groups, as ``Group:name``."""

    def takes(self, approval: Approval) -> bool:
        """Return True if the principal of an approval, or one of its groups, may approve."""
        match = self.approvers.match
        return match(approval.principal) or any(map(match, approval.groups))

    def __str__(self) -> str:
        number = "an approval" if self.count == 1 else f"{self.count} approvals"
        return f"rule {self.rule!r} asks for {number}" + (
            "" if self.approvers.texts == ("*",) else f" of {self.approvers}"
        )


@dataclass(frozen=True, slots=True)
class ApprovalDemand:
    """A rule's demand for approvals, and the changes that need them."""

    count: int
    approvers: Globs = Globs(("*",))  # noqa: RUF009 - as above
    keys: Globs = Globs(("*",))  # noqa: RUF009 - as above
    """Changes of none of these keys need no approval."""
    min_entities: int = 1
    """The size from which changes need approval: the number of entities that the rule applies to and that the author
    alters with the request, or altered in the last hour."""


@dataclass(frozen=True, slots=True)
class Approval:
    """An approval of a change."""

    principal: str
    """The principal that approved, as ``User:name``."""
    groups: frozenset[str] = frozenset()
    """The groups of its credential at that time, as ``Group:name``."""
    entities: frozenset[str] = frozenset()
    """The ids of the entities for which it counts: those that the approver may alter."""


def missing(
    entity_id: str, requirements: Iterable[Requirement], approvals: Iterable[Approval]
) -> tuple[Requirement, ...]:
    """Return the requirements for a change of an entity that approvals do not meet.

    One approval counts for every rule whose patterns match, and for no entity that the approver may not alter.
    """
    counting = [each for each in approvals if entity_id in each.entities]
    return tuple([each for each in requirements if _met(each, counting) < each.count])


def _met(requirement: Requirement, approvals: Sequence[Approval]) -> int:
    """Return the number of principals whose approval counts. A principal that approved repeatedly counts once."""
    return len({each.principal for each in approvals if requirement.takes(each)})
