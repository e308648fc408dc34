"""Grants, and the rules that result from the grants of one caller."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from confplane.domain.access.identities import CredentialNarrowing
from confplane.domain.access.operations import (
    IMPLIES,
    OF_CLUSTER,
    OPERATIONS,
    OWN,
    ROLES,
    Operation,
    PatternType,
    Permission,
    ResourceType,
    denies,
    follows_of,
    gives,
)
from confplane.domain.access.ranges import EVERYTHING, NOTHING, NameRanges, named, whole

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator
    from uuid import UUID

    from confplane.domain.access.operations import Role

_ONLY_READ: Final = frozenset({Operation.DESCRIBE_CONFIGS, Operation.DESCRIBE, Operation.RESOLVE, Operation.REPORT})
"""With REPORT: the token of an application, which polls, registers and reports, may be read-only."""
ANY: Final = "*"


@dataclass(frozen=True, slots=True)
class Grant:
    """One grant: to a principal or group, of an operation or a role, on a resource or on all of the role's."""

    id: UUID
    principal: str
    """``User:alice``, ``Group:payments``, or ``User:*`` for every caller."""
    permission: Permission = Permission.ALLOW
    cluster: str | None = None
    """None: all clusters."""
    operation: Operation | None = None
    """Exactly one of operation and role is set."""
    role: Role | None = None
    resource: ResourceType | None = None
    """None with a role alone: all resources of the role."""
    pattern: PatternType = PatternType.LITERAL
    name: str = ANY
    """The name or prefix; ``*`` for ``cluster``, which has no names."""

    @property
    def allows(self) -> bool:
        """True for an allowing grant, False for a denying one."""
        return self.permission is Permission.ALLOW

    def rights(self) -> Iterator[tuple[Operation, tuple[str, str]]]:
        """Yield the operations that the grant names, each with a range of resources."""
        bundle = {} if self.role is None else ROLES[self.role]
        if self.role is not None and self.resource is None:
            for kind, operations in bundle.items():
                for part in _ranges(kind, PatternType.LITERAL, ANY):
                    yield from ((operation, part) for operation in operations)
        elif self.resource is not None:
            of_role = bundle.get(self.resource, frozenset())
            operations = of_role if self.operation is None else frozenset({self.operation})
            for part in _ranges(self.resource, self.pattern, self.name):
                yield from ((operation, part) for operation in operations)

    def also_denies(self) -> frozenset[Operation]:
        """Return the operations that a deny takes away from callers who have no separate grant of them.

        A deny of RESOLVE has none: it has always taken registrations and reports away.
        """
        return frozenset(
            each
            for operation, (start, _) in self.rights()
            if not self.allows and operation is not Operation.RESOLVE
            for each in follows_of(operation) & OPERATIONS[ResourceType(start.partition("=")[0])]
        )


def _ranges(kind: ResourceType, pattern: PatternType, name: str) -> list[tuple[str, str]]:
    if kind is ResourceType.CLUSTER:
        return [whole(kind), *map(whole, OF_CLUSTER)]
    if kind in OWN and pattern is PatternType.LITERAL and name == ANY:
        return [whole(kind)]  # such types have no default entity; the type alone is spelled where no name is meant
    return [named(kind, pattern, name)]


def counts(grant: Grant, cluster: str | None) -> bool:
    """Return True where a grant has an effect in a cluster; in all clusters together (None) each deny has one."""
    return grant.cluster in {None, cluster} or (cluster is None and not grant.allows)


class GrantRules:
    """The ranges that grants allow in one cluster, by operation.

    Args:
        grants: The caller's grants.
        cluster: The cluster; None: all clusters together. There grants of single clusters allow nothing, and deny.
    """

    def __init__(self, grants: Iterable[Grant], cluster: str | None) -> None:
        self._named: dict[Operation, list[tuple[str, str]]] = {}
        self._denied: dict[Operation, list[tuple[str, str]]] = {}
        for grant in grants:
            if counts(grant, cluster):
                for operation, part in grant.rights():
                    (self._named if grant.allows else self._denied).setdefault(operation, []).append(part)

    def __getitem__(self, operation: Operation) -> NameRanges:
        """Return the ranges of one operation. It walks over all grants: callers keep the result."""
        parts: list[tuple[str, str]] = []
        for granted, own in self._named.items():
            if gives(granted, operation):
                follows = [each for each in self._denied if gives(granted, each) and operation in follows_of(each)]
                parts += NameRanges.of(own) - self._denied_by(follows) if follows else own
        always = [each for each in self._denied if denies(each, operation)]
        found = NameRanges.of(parts)
        return found - self._denied_by(always) if always else found

    def _denied_by(self, operations: list[Operation]) -> NameRanges:
        return NameRanges.of(part for operation in operations for part in self._denied[operation])


def narrowed(narrowing: CredentialNarrowing, cluster: str | None, operation: Operation) -> NameRanges:
    """Return what a credential's own limits leave of an operation: everything or nothing."""
    within = (
        (narrowing.clusters is None or cluster in narrowing.clusters)
        and (narrowing.operations is None or operation in _included(narrowing.operations))
        and (not narrowing.read_only or operation in _ONLY_READ)
    )
    return EVERYTHING if within else NOTHING


def passed_on(own: CredentialNarrowing | None, wanted: CredentialNarrowing | None) -> CredentialNarrowing | None:
    """Return the limits of a credential that another one creates: what is not asked for is as in the creating one.

    Raises:
        ValueError: More is asked for; the text is the name of the limit, ``clusters`` or ``operations``.
    """
    if own is None:
        return wanted
    asked = wanted or CredentialNarrowing()
    clusters, operations = asked.clusters, asked.operations
    if own.clusters is not None and not (clusters := own.clusters if clusters is None else clusters) <= own.clusters:
        raise ValueError("clusters")
    if own.operations is not None:
        operations = own.operations if operations is None else operations
        if not _included(operations) <= _included(own.operations):
            raise ValueError("operations")
    found = CredentialNarrowing(own.read_only or asked.read_only, clusters, operations)
    return wanted if found == asked else found


def _included(operations: Iterable[Operation]) -> frozenset[Operation]:
    return frozenset(each for given in operations for each in (given, *IMPLIES.get(given, ())))
