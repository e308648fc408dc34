"""Rules for the texts in tokens and grants."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final
from unicodedata import bidirectional, category

from confplane.domain.access.grants import ANY
from confplane.domain.access.identities import ADMIN, EVERYBODY, GROUP, USER
from confplane.domain.access.operations import (
    OPERATIONS,
    ROLES,
    Operation,
    PatternType,
    ResourceType,
    Role,
)
from confplane.domain.entities import Entity, check_name
from confplane.domain.errors import InvalidRequestError
from confplane.domain.quotas import ClientQuotasFacet
from confplane.domain.texts import LONGEST_PRINCIPAL, shown, storable

if TYPE_CHECKING:
    from collections.abc import Collection

LONGEST_NOTE: Final = 1_024
_DELETE: Final = 0x7F
_CONTROLS: Final = frozenset({"Cc", "Zl", "Zp"})
"""Categories of Unicode: control characters (C0, DEL, C1), line and paragraph separators."""
_DIRECTIONS: Final = frozenset({"LRE", "RLE", "LRO", "RLO", "PDF", "LRI", "RLI", "FSI", "PDI"})
_MARKS: Final = frozenset("\u200e\u200f\u061c")
"""Marks of text direction that have the class of letters."""
_KINDS: Final = (USER, GROUP)
_OF_PRINCIPALS: Final = frozenset({ResourceType.TOKENS, ResourceType.GRANTS})
"""Types whose names are principals."""


def check_text(text: str | None, what: str, pointer: str) -> None:
    """Refuse a note or an owner that can't be stored, or shown on a line.

    Raises:
        InvalidRequestError: The text is empty, too long, or has control characters or lone surrogates.
    """
    if text is None:
        return
    if not text or len(text) > LONGEST_NOTE or not _is_plain(text) or _controls(text):
        raise InvalidRequestError(
            f"The {what} has to be 1 to {LONGEST_NOTE} characters without control characters, line separators and marks"
            " of text direction",
            pointer=pointer,
        )


def check_principal(principal: str, pointer: str) -> None:
    """Refuse a text that is not a user or group.

    Raises:
        InvalidRequestError: The text is not of the form ``User:name`` or ``Group:name``, or has no possible name.
    """
    kind = next((each for each in _KINDS if principal.startswith(each)), None)
    if kind is None:
        raise InvalidRequestError(
            f"{shown(principal)} is not a valid principal. Use User:name or Group:name.", pointer=pointer
        )
    name = principal.removeprefix(kind)
    check_name("principal", name, pointer=pointer)
    if not _is_plain(name) or len(principal.encode()) > LONGEST_PRINCIPAL:
        raise InvalidRequestError(
            f"{shown(principal)} is not a valid principal. It must have no control characters, and"
            f" {LONGEST_PRINCIPAL} bytes at most.",
            pointer=pointer,
        )


def check_new_principal(principal: str, pointer: str) -> None:
    """Refuse a new principal that would be displayed as something else; stored ones can still be asked about.

    Raises:
        InvalidRequestError: The name has control characters, line separators, or marks of text direction.
    """
    if _controls(principal):
        raise InvalidRequestError(
            f"{principal[:60]!a} is not accepted as a new principal: a name has no control characters, line"
            " separators or marks of text direction, which change how it is displayed",
            pointer=pointer,
        )


def check_holder(principal: str, pointer: str) -> None:
    """Refuse a principal that no API token may have.

    Raises:
        InvalidRequestError: The principal is a group, everybody, the admin token's, or none at all.
    """
    check_principal(principal, pointer)
    if principal == ADMIN:
        raise InvalidRequestError(
            f"{ADMIN} is the principal of the admin token alone; name the token's user otherwise, and give that user"
            " the role admin",
            pointer=pointer,
        )
    if principal == EVERYBODY or not principal.startswith(USER):
        raise InvalidRequestError(
            f"A token is for one user, such as User:payments-portal, not for {shown(principal)}; the groups of a token"
            " are in its groups",
            pointer=pointer,
        )


def check_group(group: str, pointer: str) -> None:
    """Refuse a text that is not a group.

    Raises:
        InvalidRequestError: The text is not of the form ``Group:name``, or is ``Group:*``.
    """
    check_principal(group, pointer)
    if not group.startswith(GROUP) or group == f"{GROUP}{ANY}":
        raise InvalidRequestError(
            f"{shown(group)} is not a valid group. Use Group:name; {EVERYBODY} means every caller.", pointer=pointer
        )


def check_grantee(principal: str, pointer: str) -> None:
    """Refuse a principal that no grant may have.

    Raises:
        InvalidRequestError: The principal is not valid, is ``Group:*``, or is the admin token's, which needs no grants.
    """
    if principal.startswith(GROUP):
        check_group(principal, pointer)
    check_principal(principal, pointer)
    if principal == ADMIN:
        raise InvalidRequestError(f"{ADMIN}, the admin token, needs no grants and obeys none", pointer=pointer)


def check_cluster(cluster: str | None, known: Collection[str], pointer: str) -> None:
    """Refuse a cluster that the settings do not have; None is all clusters.

    Raises:
        InvalidRequestError: There is no such cluster.
    """
    if cluster is not None and cluster not in known:
        raise InvalidRequestError(
            f"There is no cluster {shown(cluster)}; there are: {', '.join(sorted(known))}; leave it out for all",
            pointer=pointer,
        )


def check_right(operation: Operation | None, role: Role | None, resource: ResourceType | None, *, at: str = "") -> None:
    """Refuse a right that no resource has; ``at`` is the JSON pointer of the object that has these members.

    Raises:
        InvalidRequestError: Neither or both of operation and role are given, or the resource has no such operation.
    """
    if (operation is None) == (role is None):
        raise InvalidRequestError("Give exactly one of operation and role", pointer=f"{at}/operation")
    if role is not None:
        if resource is not None and resource not in ROLES[role]:
            raise InvalidRequestError(
                f"The role {role} has no operation on {resource}; it has some on: {', '.join(ROLES[role])}",
                pointer=f"{at}/resourceType",
            )
        return
    if resource is None:
        raise InvalidRequestError(
            "An operation needs its resourceType; only a role may stand alone", pointer=f"{at}/resourceType"
        )
    if operation is not Operation.ALL and operation not in OPERATIONS[resource]:
        known = ", ".join(sorted(OPERATIONS[resource]))
        raise InvalidRequestError(
            f"The resource type {resource} has no operation {operation}; it has: ALL, {known}",
            pointer=f"{at}/operation",
        )


def check_pattern(resource: ResourceType | None, pattern: PatternType, name: str) -> None:
    """Refuse a name or prefix that no resource of its type can have.

    Raises:
        InvalidRequestError: ``*`` as a prefix, a name of what has no names, or an impossible name.
    """
    at = "/name"
    if resource is None or resource is ResourceType.CLUSTER:
        if name != ANY or pattern is not PatternType.LITERAL:
            whole = (
                "A role without a resourceType is"
                if resource is None
                else "The resource type cluster has no names; it is"
            )
            raise InvalidRequestError(f"{whole} granted whole: leave out name and patternType", pointer=at)
        return
    if pattern is PatternType.PREFIXED:
        _check_prefix(resource, name, at)
    elif name != ANY:
        check_resource_name(resource, name, at)


def check_resource_name(resource: ResourceType, name: str, pointer: str) -> None:
    """Refuse a name that no resource of a type can have.

    Raises:
        InvalidRequestError: The name is impossible.
    """
    if resource is ResourceType.CLUSTER:
        raise InvalidRequestError("The resource type cluster has no names; leave the name out", pointer=pointer)
    if resource in _OF_PRINCIPALS:
        check_principal(name, pointer)
        return
    check_name(resource.value, name, pointer=pointer)
    _check_length(name, pointer)
    if resource is ResourceType.IP:
        ClientQuotasFacet().check_entity(Entity.from_names({"ip": name}), pointer=pointer)


def _check_prefix(resource: ResourceType, prefix: str, pointer: str) -> None:
    if not prefix:
        raise InvalidRequestError("The prefix is empty; every name is the literal *", pointer=pointer)
    if prefix == ANY:
        raise InvalidRequestError("Every name is the literal *; leave out patternType", pointer=pointer)
    check_name(resource.value, f"{prefix}0" if prefix in {".", ".."} else prefix, pointer=pointer)
    if resource in _OF_PRINCIPALS and not any(prefix.startswith(kind) or kind.startswith(prefix) for kind in _KINDS):
        raise InvalidRequestError(
            f"No principal begins with {shown(prefix)}; one begins with User: or Group:", pointer=pointer
        )
    _check_length(prefix, pointer)


def _check_length(name: str, pointer: str) -> None:
    if len(name.encode()) > LONGEST_PRINCIPAL:
        raise InvalidRequestError(
            f"The name takes more than {LONGEST_PRINCIPAL} bytes; a grant on a prefix covers longer names",
            pointer=pointer,
        )


def _controls(text: str) -> bool:
    """Return True if a text has characters that change how a terminal or page displays the text around them."""
    return any(
        category(letter) in _CONTROLS or bidirectional(letter) in _DIRECTIONS or letter in _MARKS for letter in text
    )


def _is_plain(text: str) -> bool:
    return storable(text) and not any(ord(letter) < ord(" ") or ord(letter) == _DELETE for letter in text)
