"""The texts of refusals: they name the cause, and suggest a grant only where a grant is missing."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from confplane.domain.access.identities import Authentication, CredentialNarrowing, Identity
from confplane.domain.access.operations import Operation, Permission, ResourceType, Role
from confplane.domain.errors import ForbiddenError
from confplane.services.access import AccessControl
from tests.support.grants import Grants

if TYPE_CHECKING:
    from confplane.services.access import Access

ALTER, DESCRIBE = Operation.ALTER_CONFIGS, Operation.DESCRIBE_CONFIGS
NARROWED = CredentialNarrowing(operations=frozenset({DESCRIBE, Operation.FREEZE}))
SUGGESTION = "confplane grants create"


def caller(*grants: dict[str, Any], acts_for: str | None = None, **more: Any) -> Access:
    """Return the access of User:olga with grants to her, or to others by ``principal``."""
    given = Grants()
    for each in grants:
        given.give(**{"principal": "User:olga", "resource": ResourceType.USER, **each})
    behalf_of = None if acts_for is None else Identity(acts_for, Authentication.BEHALF)
    identity = Identity("User:olga", Authentication.TOKEN, behalf_of=behalf_of, **more)
    return AccessControl(given).access(identity, "127.0.0.1", "r")


def refusal(access: Access, operation: Operation = ALTER, spelling: str = "user=app", cluster: str | None = "c") -> str:
    with pytest.raises(ForbiddenError) as caught:
        access.require(cluster, operation, spelling)
    return caught.value.detail


def test_a_missing_grant_is_named_with_the_command_that_gives_it() -> None:
    said = refusal(caller({"operation": DESCRIBE}))
    assert said == (
        "User:olga lacks the grant ALTER_CONFIGS on user=app of cluster c, or on the resource cluster of cluster c; an"
        " administrator gives it with `confplane grants create --principal User:olga --operation ALTER_CONFIGS"
        " --resource user:app --cluster c`"
    )


@pytest.mark.parametrize(
    ("narrowing", "limit"),
    [
        (CredentialNarrowing(read_only=True), "reads"),
        (NARROWED, "the operations DESCRIBE_CONFIGS, FREEZE"),
        (CredentialNarrowing(clusters=frozenset({"d", "e"})), "the clusters d, e"),
        (CredentialNarrowing(read_only=True, clusters=frozenset({"d"})), "the clusters d"),
        (CredentialNarrowing(read_only=True, operations=frozenset({ALTER})), "reads"),
    ],
)
def test_a_limited_credential_is_told_its_limit(narrowing: CredentialNarrowing, limit: str) -> None:
    said = refusal(caller({"operation": ALTER}, narrowing=narrowing))
    assert said == (
        f"The credential of User:olga is limited to {limit}, which leaves out ALTER_CONFIGS on user=app of cluster c;"
        " use one without this limit"
    )
    assert SUGGESTION in refusal(caller({"operation": DESCRIBE}, narrowing=narrowing)), (
        "both are missing: the grant first"
    )


def test_a_credential_of_some_clusters_does_nothing_that_belongs_to_none() -> None:
    access = caller({"role": Role.ADMIN, "resource": None}, narrowing=CredentialNarrowing(clusters=frozenset({"c"})))
    said = refusal(access, Operation.ALTER, "tokens=User~3Aa", None)
    assert said.startswith(
        "The credential of User:olga is limited to the clusters c, which leaves out ALTER on tokens="
    )


@pytest.mark.parametrize("denied", [ALTER, DESCRIBE, Operation.ALL, Operation.RESOLVE])
@pytest.mark.parametrize("principal", ["User:olga", "User:*", "Group:g"])
def test_a_deny_is_named(denied: Operation, principal: str) -> None:
    deny = {"principal": principal, "operation": denied, "name": "app", "permission": Permission.DENY}
    access = caller({"operation": ALTER}, deny, groups=frozenset({"Group:g"}))
    said = refusal(access)
    assert said.startswith("A deny takes ALTER_CONFIGS on user=app of cluster c from User:olga; ")
    assert SUGGESTION not in said
    assert SUGGESTION in refusal(caller(deny, groups=frozenset({"Group:g"}))), (
        "without the deny it would be missing, too"
    )


def test_the_user_for_whom_a_portal_acts_is_named() -> None:
    own = {"operation": ALTER}
    said = refusal(caller(own, acts_for="User:alice"))
    assert said.startswith("User:alice lacks the grant ALTER_CONFIGS on user=app")
    assert "--principal User:alice" in said
    alice = {"principal": "User:alice", "operation": ALTER}
    denied = {**alice, "permission": Permission.DENY}
    assert refusal(caller(own, alice, denied, acts_for="User:alice")).startswith(
        "A deny takes ALTER_CONFIGS on user=app"
    )
    assert refusal(caller(alice, acts_for="User:alice")).startswith("User:olga lacks the grant")
    limited = refusal(caller(own, alice, acts_for="User:alice", narrowing=NARROWED))
    assert limited.startswith("The credential of User:olga is limited to the operations")
