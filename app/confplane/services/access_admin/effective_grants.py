"""The rule that no caller grants more rights than its own effective grants give it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from confplane.domain.access.operations import IMPLIES, OPERATIONS, Operation, ResourceType, denies, follows_of
from confplane.domain.access.ranges import LAST, NameRanges
from confplane.domain.errors import ForbiddenError
from confplane.services.access import Cause, own_grants

if TYPE_CHECKING:
    from collections.abc import Collection

    from confplane.domain.access.grants import Grant
    from confplane.services.access import Access, Rights

_ANOTHER: Final = "*"
"""A cluster unlike any other, for those that settings will have; no cluster's name has this character."""
_GREATEST_FIRST: Final = sorted(Operation, key=lambda operation: -len(IMPLIES.get(operation, ())))
"""Operations in the order in which a missing one is named: later operations may be parts of the first."""
_NEXT: Final = "-"
"""The end of the range of one name: see :func:`confplane.domain.access.ranges.named`."""


def check_rights(access: Access, rights: Rights, clusters: Collection[str]) -> None:
    """Refuse a credential with rights that its maker lacks, in any cluster or in all together.

    Args:
        access: The maker.
        rights: The rights that the credential would have now.
        clusters: The clusters of the settings.

    Raises:
        ForbiddenError: The maker lacks a right; the text names the first.
    """
    if access.unlimited:
        return
    own = NameRanges.of(part for grant in own_grants(rights.identity) for _, part in grant.rights())
    for cluster in (None, _ANOTHER, *clusters):
        for operation in _GREATEST_FIRST:
            given = rights.allowed(cluster, operation)
            if operation is Operation.REPORT:
                # Whoever may resolve an application may make the token with which it reports on itself.
                given -= own & access.allowed(cluster, Operation.RESOLVE)
            _check(access, cluster, operation, given, "The token would have")


def check_gift(access: Access, grant: Grant) -> None:
    """Refuse an allowing grant of what its giver does not hold; a deny gives nothing.

    Raises:
        ForbiddenError: The giver lacks a right; the text names the first.
    """
    if access.unlimited or not grant.allows:
        return
    for operation, part in grant.rights():
        for each in (operation, *sorted(IMPLIES.get(operation, ()))):
            _check(access, grant.cluster, each, NameRanges.of([part]), "The grant gives")


def check_return(access: Access, grant: Grant) -> None:
    """Refuse the end of a deny that gives back more than the caller holds; the end of an allow gives nothing.

    Raises:
        ForbiddenError: The caller lacks a right that the deny takes from other principals; the text names the first.
    """
    if access.unlimited or grant.allows:
        return
    for operation, part in grant.rights():
        kind = ResourceType(part[0].partition("=")[0])
        for each in sorted(OPERATIONS[kind]):
            if denies(operation, each) or each in follows_of(operation):
                _check(access, grant.cluster, each, NameRanges.of([part]), "The end of this deny gives back")


def _check(access: Access, cluster: str | None, operation: Operation, given: NameRanges, begin: str) -> None:
    lacking = given - access.allowed(cluster, operation)
    if not lacking:
        return
    first = next(iter(lacking))
    if access.events is not None:
        access.events.denied(access.identity, access.source, access.request_id, operation, first[0])
    where = "all clusters" if cluster is None else "further clusters" if cluster == _ANOTHER else f"cluster {cluster}"
    cause, identity = access.rights.cause(cluster, operation, first[0])
    what = f"{begin} {operation} on {described(*first)} of {where}"
    if cause is Cause.LIMIT:
        raise ForbiddenError(
            f"{what}, which the limits of the credential of {identity.principal} leave out. Ask for less, or use a"
            " credential without these limits"
        )
    raise ForbiddenError(
        f"{what}, which {identity.principal} lacks; nobody gives more than they hold. Ask for less, or have somebody do"
        " it who holds it"
    )


def described(start: str, end: str) -> str:
    """Return a range of resources in words."""
    kind, separator, name = start.partition("=")
    if not kind:
        return "every resource"
    if not separator:
        return kind if end == f"{kind}=" else f"every {kind}"
    if not name:
        return f"every named {kind}"
    if end == f"{start}{LAST}":
        return f"every {kind} that begins with {name}"
    return start if end == f"{start}{_NEXT}" else f"every {kind} from {start.removesuffix(_NEXT)} on"
