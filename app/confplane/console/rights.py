"""The rights of a caller by the grants that `/v1/whoami` lists, for links and forms. The API decides each request."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any
from uuid import UUID

from confplane.domain.access.grants import ANY, Grant, GrantRules
from confplane.domain.access.identities import Authentication
from confplane.domain.access.operations import Operation, PatternType, Permission, ResourceType, Role
from confplane.domain.access.ranges import EVERYTHING, NameRanges

if TYPE_CHECKING:
    from collections.abc import Mapping


def allowed(caller: Mapping[str, Any], cluster: str, operation: Operation) -> NameRanges:
    """Return the resources of a cluster on which the grants of a caller allow an operation.

    Args:
        caller: The answer of `/v1/whoami`.
        cluster: The cluster.
        operation: The operation.
    """
    if caller["authenticatedBy"] == Authentication.ADMIN_TOKEN:
        return EVERYTHING
    return GrantRules(map(_grant, caller["grants"]), cluster)[operation]


def may_use(caller: Mapping[str, Any], cluster: str, kind: ResourceType, operation: Operation) -> bool:
    """Return False if the grants of a caller allow an operation on no resource of a type of the service's own."""
    return bool(allowed(caller, cluster, operation).within(kind))


def _grant(each: Mapping[str, Any]) -> Grant:
    return Grant(
        UUID(each["id"]),
        each["principal"],
        Permission(each["permission"]),
        each["cluster"],
        operation=None if each["operation"] is None else Operation(each["operation"]),
        role=None if each["role"] is None else Role(each["role"]),
        resource=None if each["resourceType"] is None else ResourceType(each["resourceType"]),
        pattern=PatternType(each["patternType"] or PatternType.LITERAL),
        name=each["name"] or ANY,
    )
