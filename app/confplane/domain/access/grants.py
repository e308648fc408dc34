"""Grants, and the rules that result from the grants of one caller."""

from __future__ import annotations

from dataclasses import dataclass, field
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


@dataclass(frozen=True, slots=True)
class GrantRules:
    """The ranges that grants allow, by operation, in one cluster; made once and searched often."""

    allowed: dict[Operation, NameRanges] = field(default_factory=dict)

    @classmethod
    def of(cls, grants: Iterable[Grant], cluster: str | None) -> GrantRules:
        """Make the rules of a caller's grants.

        Args:
            grants: The caller's.
            cluster: The cluster; None: all clusters together. There grants of single clusters allow nothing, and deny.
        """
        parts: dict[bool, dict[Operation, list[tuple[str, str]]]] = {True: {}, False: {}}
        for grant in grants:
            if counts(grant, cluster):
                for operation, part in grant.rights():
                    parts[grant.allows].setdefault(operation, []).append(part)
        named, denied = ({each: NameRanges.of(found) for each, found in parts[allows].items()} for allows in parts)
        allowed = {}
        for operation in Operation:
            found = NOTHING
            for granted, ranges in named.items():
                if gives(granted, operation):
                    follows = (each for each in denied if gives(granted, each) and operation in follows_of(each))
                    found |= ranges - _union(denied[each] for each in follows)
            if found:
                allowed[operation] = found - _union(denied[each] for each in denied if denies(each, operation))
        return cls(allowed)

    def __getitem__(self, operation: Operation) -> NameRanges:
        return self.allowed.get(operation, NOTHING)


def _union(ranges: Iterable[NameRanges]) -> NameRanges:
    return NameRanges.of(part for each in ranges for part in each)


def narrowed(narrowing: CredentialNarrowing, cluster: str | None) -> GrantRules:
    """Return the rules that a credential's own limits make."""
    if narrowing.clusters is not None and cluster not in narrowing.clusters:
        return GrantRules()
    operations = frozenset(Operation) if narrowing.operations is None else _included(narrowing.operations)
    if narrowing.read_only:
        operations &= _ONLY_READ
    return GrantRules(dict.fromkeys(operations, EVERYTHING))


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
