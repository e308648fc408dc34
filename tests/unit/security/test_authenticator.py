"""Acting on behalf of people: who may act for whom, what is allowed then, and headers that name nobody."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any
from uuid import uuid4

import pytest

from confplane.domain.access.grants import Grant
from confplane.domain.access.identities import ADMIN, Authentication, Identity
from confplane.domain.access.operations import Operation, PatternType, Permission, ResourceType
from confplane.domain.errors import ForbiddenError, InvalidRequestError, UnauthenticatedError
from confplane.security.authenticator import BEHALF_OF, Authenticator, Credentials
from confplane.services.access import AccessControl
from tests.support.grants import Grants

if TYPE_CHECKING:
    from confplane.services.access import Access


class Names:
    """Takes each bearer token for the name of its user, and ``admin`` for the admin token."""

    def authenticate(self, given: bytes) -> Identity:
        kind = Authentication.ADMIN_TOKEN if given == b"admin" else Authentication.TOKEN
        return Identity(f"User:{given.decode()}", kind)

    def groups_of(self, principal: str) -> frozenset[str]:
        """Return what a token of the user has said: Alice is in a group."""
        return frozenset({"Group:known"} if principal == "User:alice" else ())


def grant(principal: str, operation: Operation, name: str | None = None, **more: Any) -> Grant:
    resource = ResourceType.CLUSTER if name is None else ResourceType.USER
    return Grant(uuid4(), principal, operation=operation, resource=resource, name=name or "*", **more)


def admit(token: bytes, user: bytes | None, *grants: Grant, cluster: str | None = "c") -> Access:
    door = Authenticator([Names()], AccessControl(Grants(*grants)))
    return door.authenticate(Credentials(b"Bearer " + token, behalf_of=user), cluster, "127.0.0.1", "r")


ALICE = b"User:alice"
ALTER = grant("User:portal", Operation.ALTER_CONFIGS)


def test_allowed_is_what_both_may() -> None:
    acting = admit(
        b"portal",
        ALICE,
        grant("User:portal", Operation.IMPERSONATE, "alice"),
        grant("User:portal", Operation.ALTER_CONFIGS, "payments-", pattern=PatternType.PREFIXED),
        grant("User:alice", Operation.ALTER_CONFIGS, "payments-a"),
        grant("User:alice", Operation.ALTER_CONFIGS, "billing"),
    )
    assert acting.identity.principal == "User:portal"
    assert acting.identity.behalf_of is not None
    assert acting.identity.acts_for == "User:alice"
    allowed = {name for name in ("payments-a", "payments-b", "billing", "alice") if may(acting, name)}
    assert allowed == {"payments-a"}
    assert not acting.unlimited


def may(access: Access, name: str) -> bool:
    return access.allows("c", Operation.ALTER_CONFIGS, f"user={name}")


@pytest.mark.parametrize(
    ("given", "allowed"),
    [
        (grant("User:portal", Operation.IMPERSONATE, "alice"), True),
        (grant("User:portal", Operation.IMPERSONATE, "al", pattern=PatternType.PREFIXED), True),
        (grant("User:portal", Operation.IMPERSONATE), True),
        (grant("User:portal", Operation.IMPERSONATE, "alice", cluster="c"), True),
        (grant("User:portal", Operation.IMPERSONATE, "alice", cluster="d"), False),
        (grant("User:portal", Operation.IMPERSONATE, "bob"), False),
        (grant("User:other", Operation.IMPERSONATE, "alice"), False),
        (ALTER, False),
    ],
)
def test_acting_needs_the_grant_on_that_user(given: Grant, allowed: bool) -> None:  # noqa: FBT001 - a column
    if allowed:
        assert admit(b"portal", ALICE, given).identity.behalf_of is not None
        return
    with pytest.raises(ForbiddenError, match="User:portal lacks the grant IMPERSONATE on user=alice") as refused:
        admit(b"portal", ALICE, given)
    assert refused.value.pointer == BEHALF_OF


def test_a_path_of_no_cluster_needs_the_grant_for_all_clusters() -> None:
    here = grant("User:portal", Operation.IMPERSONATE, "alice", cluster="c")
    with pytest.raises(ForbiddenError, match="all clusters"):
        admit(b"portal", ALICE, here, cluster=None)
    everywhere = grant("User:portal", Operation.IMPERSONATE, "alice")
    assert admit(b"portal", ALICE, everywhere, cluster=None).identity.behalf_of is not None


def test_the_admin_token_acts_for_a_user_with_that_users_rights_alone() -> None:
    acting = admit(b"admin", ALICE, grant("User:alice", Operation.ALTER_CONFIGS, "payments"))
    assert acting.identity.principal == ADMIN
    assert may(acting, "payments")
    assert not may(acting, "others")
    assert not acting.allows(None, Operation.ALTER, "grants")


@pytest.mark.parametrize("token", [b"portal", b"admin"])
def test_the_denies_of_a_users_known_groups_apply_and_their_allows_do_not(token: bytes) -> None:
    grants = (
        grant("User:portal", Operation.IMPERSONATE),
        grant("User:portal", Operation.ALTER_CONFIGS),
        *(grant(f"User:{name}", Operation.ALTER_CONFIGS, "payments") for name in ("alice", "bob")),
        grant("Group:known", Operation.ALTER_CONFIGS, "billing"),
        grant("Group:known", Operation.ALTER_CONFIGS, "payments", permission=Permission.DENY),
    )
    alice, bob = (admit(token, user, *grants) for user in (ALICE, b"User:bob"))
    assert [may(alice, name) for name in ("payments", "billing")] == [False, False]
    assert [may(bob, name) for name in ("payments", "billing")] == [True, False]


def test_a_user_resolves_itself_also_through_a_portal_that_may_resolve_it() -> None:
    acting = admit(b"portal", ALICE, grant("User:portal", Operation.IMPERSONATE, "alice"), ALTER)
    assert acting.allows("c", Operation.RESOLVE, "user=alice")
    assert not acting.allows("c", Operation.RESOLVE, "user=bob")


@pytest.mark.parametrize(
    "given",
    [
        b"",
        b"alice",
        b"User:",
        b"User:*",
        b"User:<default>",
        b"User:admin",
        b"user:alice",
        b"Group:payments",
        b"User:\xff",
        b"User:a\x01b",
        "User:a\u2028b".encode(),
        b"User:" + b"a" * 1025,
    ],
)
@pytest.mark.parametrize("token", [b"admin", b"portal"])
def test_nobody_acts_for_nobody(given: bytes, token: bytes) -> None:
    with pytest.raises(InvalidRequestError) as refused:
        admit(token, given, grant("User:portal", Operation.ALL))
    assert refused.value.pointer == BEHALF_OF


def test_names_are_taken_as_they_are_written() -> None:
    name = "CN=Zo\u00eb, O=Acme"
    acting = admit(b"admin", f"User:{name}".encode())
    assert acting.identity.behalf_of is not None
    assert acting.identity.behalf_of.principal == f"User:{name}"


@pytest.mark.parametrize("given", [b"", b"admin", b"Basic YTpi"])
def test_a_token_without_its_scheme_is_refused_with_the_form_of_the_header(given: bytes) -> None:
    authenticator = Authenticator([Names()], AccessControl(Grants()))
    with pytest.raises(UnauthenticatedError, match="send Authorization: Bearer <token>"):
        authenticator.authenticate(Credentials(given), "c", "127.0.0.1", "r")


def test_credentials_come_first() -> None:
    door = Authenticator([Names()], AccessControl(Grants()))
    with pytest.raises(UnauthenticatedError):
        door.authenticate(Credentials(None, behalf_of=b"User:*"), "c", "127.0.0.1", "r")
