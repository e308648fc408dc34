"""The rights of a caller by the grants that `/v1/whoami` lists, for links and forms. The API decides each request."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from confplane.domain.access.identities import Authentication
from confplane.domain.access.operations import ROLES, Operation, Permission, ResourceType, Role, gives

if TYPE_CHECKING:
    from collections.abc import Mapping


def may_use(caller: Mapping[str, Any], cluster: str, kind: ResourceType, operation: Operation) -> bool:
    """Return False if no grant of a caller gives an operation on any resource of a type.

    Args:
        caller: The answer of `/v1/whoami`.
        cluster: The cluster.
        kind: A type of the service's own resources.
        operation: DESCRIBE or ALTER.
    """
    if caller["authenticatedBy"] == Authentication.ADMIN_TOKEN:
        return True
    return any(
        grant["permission"] == Permission.ALLOW
        and grant["cluster"] in {None, cluster}
        and grant["resourceType"] in ({None, kind} if grant["role"] else {kind})
        and any(gives(granted, operation) for granted in _operations(grant, kind))
        for grant in caller["grants"]
    )


def _operations(grant: Mapping[str, Any], kind: ResourceType) -> frozenset[Operation]:
    if grant["role"] is None:
        return frozenset({Operation(grant["operation"])})
    return ROLES[Role(grant["role"])].get(kind, frozenset())
