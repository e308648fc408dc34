"""Ownership: the owners of keys, as manifests claim them.

A key has one owner at most. An owner gets a key by the apply of a manifest, and keeps it while the key exists: other
writes change its value, but not its owner.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final

from confplane.domain.errors import InvalidRequestError
from confplane.domain.texts import shown

if TYPE_CHECKING:
    from collections.abc import Container, Mapping

OWNER_PATTERN: Final = "^[A-Za-z0-9][A-Za-z0-9._/-]{0,99}$"
LABEL_PATTERN: Final = "^[A-Za-z0-9][A-Za-z0-9._/-]{0,62}$"
MOST_LABELS: Final = 32
LONGEST_LABEL: Final = 200
"""The greatest length of the value of a label."""


@dataclass(frozen=True, slots=True)
class OwnershipClaim:
    """The keys of an entity that a change gives to an owner."""

    owner: str
    keys: tuple[str, ...]
    labels: Mapping[str, str] = field(default_factory=dict)
    """The labels of the owner's manifest, which replace those that the owner gave the entity before."""

    @classmethod
    def from_json(cls, stored: Mapping[str, Any]) -> OwnershipClaim:
        """Return a stored claim."""
        return cls(stored["owner"], tuple(stored["keys"]), stored["labels"])

    def as_json(self) -> dict[str, Any]:
        """Return the form that is stored."""
        return {"owner": self.owner, "keys": list(self.keys), "labels": dict(self.labels)}


@dataclass(frozen=True, slots=True)
class Ownership:
    """The owners of the keys of one znode."""

    owners: Mapping[str, str] = field(default_factory=dict)
    """By key; keys without an owner are absent."""
    labels: Mapping[str, Mapping[str, str]] = field(default_factory=dict)
    """The labels of each owner, by owner."""

    def keeping(self, keys: Container[str]) -> Ownership:
        """Return the ownership once only these keys are left."""
        owners = {key: owner for key, owner in self.owners.items() if key in keys}
        return self if len(owners) == len(self.owners) else _of(owners, self.labels)

    def claimed(self, claim: OwnershipClaim) -> Ownership:
        """Return the ownership after a claim."""
        owners = {**self.owners, **dict.fromkeys(claim.keys, claim.owner)}
        return _of(owners, {**self.labels, claim.owner: claim.labels})

    def has(self, claim: OwnershipClaim) -> bool:
        """Return True if a claim would change nothing."""
        if any(self.owners.get(key) != claim.owner for key in claim.keys):
            return False
        return not claim.keys or self.labels.get(claim.owner) == claim.labels


NO_OWNERS: Final = Ownership()


@dataclass(frozen=True, slots=True)
class OwnershipFilter:
    """A filter of entities: of one owner, with a label, or both; None means any."""

    owner: str | None = None
    label: tuple[str, str] | None = None

    @classmethod
    def parse(cls, owner: str | None, label: str | None) -> OwnershipFilter | None:
        """Read the parameters of a list; None: all entities are selected.

        Raises:
            InvalidRequestError: The owner is not a valid name, or the label is not a name, ``=`` and a value.
        """
        if owner is None and label is None:
            return None
        if owner is not None and not re.fullmatch(OWNER_PATTERN, owner):
            raise InvalidRequestError(f"{shown(owner)} is not the name of an owner", pointer="owner")
        if label is None:
            return cls(owner)
        name, equals, value = label.partition("=")
        if not equals or not re.fullmatch(LABEL_PATTERN, name):
            raise InvalidRequestError(
                f"{shown(label)} is not a label. Use its name and its value, for example team=payments", pointer="label"
            )
        return cls(owner, (name, value))

    def selects(self, ownership: Ownership, keys: Container[str]) -> bool:
        """Return True if an owner that is selected owns one of these keys."""
        owners = {owner for key, owner in ownership.owners.items() if key in keys}
        if self.owner is not None:
            owners &= {self.owner}
        if self.label is None:
            return bool(owners)
        name, value = self.label
        return any(ownership.labels.get(owner, {}).get(name) == value for owner in owners)


def _of(owners: Mapping[str, str], labels: Mapping[str, Mapping[str, str]]) -> Ownership:
    named = set(owners.values())
    return Ownership(owners, {owner: labels.get(owner, {}) for owner in sorted(named)})
