"""Tokens: nobody makes one for more than they hold, and nobody sees one that is not theirs to see."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING
from uuid import UUID

import psycopg
import pytest
from uuid_utils.compat import uuid7

from confplane.domain.access.grants import Grant, passed_on
from confplane.domain.access.identities import Authentication, CredentialNarrowing, Identity
from confplane.domain.access.operations import Operation, PatternType, Permission, ResourceType, Role
from confplane.domain.errors import (
    ConfplaneError,
    ForbiddenError,
    InvalidRequestError,
    NotFoundError,
    UnauthenticatedError,
    UnavailableError,
    WriteOutcome,
)
from confplane.domain.etags import Precondition
from confplane.security import api_tokens
from confplane.services.access_admin.grants import NewGrant
from confplane.services.access_admin.history import change_of
from confplane.services.access_admin.tokens import LONGEST_OVERLAP_S, KnownNames, Lifetimes, NewToken, TokenService
from confplane.services.access_admin.views import token_view
from confplane.services.ports.access import StoredGrant, Token
from tests.support.access_world import CLUSTERS, World, allow, deny
from tests.support.credentials import parse

if TYPE_CHECKING:
    from tests.support import servers

PREFIXED = PatternType.PREFIXED
TEAM = (
    allow("User:team", Operation.ALTER, ResourceType.TOKENS, "User:payments-", pattern=PREFIXED),
    allow("User:team", Operation.ALTER_CONFIGS, ResourceType.USER, "payments-", pattern=PREFIXED),
)
"""The grants of a team that manages the users and the tokens named payments-*."""


async def refused(world: World, wanted: NewToken, by: Identity, kind: type[ConfplaneError] = ForbiddenError) -> str:
    """Return the text of a refusal, and see to it that nothing was written."""
    written = len(await world.history())
    with pytest.raises(kind) as caught:
        await world.tokens.create(wanted, world.caller(by))
    assert len(await world.history()) == written
    return f"{caught.value.pointer}: {caught.value.detail}"


async def test_a_token_works_and_only_its_digest_is_kept(world: World) -> None:
    wanted = NewToken("User:payments-portal", ("Group:b", "Group:a"), "team payments", "the portal")
    made = await world.tokens.create(wanted, world.caller(reason="new portal", ticket="CHG-1"))
    await world.book.refresh()
    assert made.text is not None
    identity = world.book.authenticate(made.text.encode())
    assert identity is not None
    assert (identity.principal, identity.groups, identity.owner) == (
        "User:payments-portal",
        frozenset({"Group:a", "Group:b"}),
        "team payments",
    )
    (row,) = await world.history()
    assert (row.kind, row.subject, row.reason, row.ticket) == (
        "token-created",
        f"tokens/{made.token.id}",
        "new portal",
        "CHG-1",
    )
    assert row.after == token_view(made.token, world.tokens.now)
    secret = made.text.removeprefix(api_tokens.PREFIX)
    assert secret not in repr(await world.history()) + repr(await world.store.find_token(made.token.id))


@pytest.mark.parametrize("days", [(90, 365), (7, 30), (400, 30)])
async def test_the_expiry_is_the_default_within_the_longest(world: World, days: tuple[int, int]) -> None:
    service = TokenService(world.store, world.control, api_tokens.mint, KnownNames(CLUSTERS), Lifetimes(*days))
    made = await service.create(NewToken("User:a"), world.caller())
    assert made.token.expires_at - made.token.created_at == timedelta(days=min(days))


@pytest.mark.parametrize("offset", [timedelta(0), timedelta(seconds=-1), timedelta(days=366)])
async def test_an_expiry_that_has_passed_or_is_too_late_is_refused(world: World, offset: timedelta) -> None:
    wanted = NewToken("User:a", expires_at=datetime.now(UTC) + offset)
    assert "/expiresAt: " in await refused(world, wanted, world.caller().access.identity, InvalidRequestError)


@pytest.mark.parametrize(
    ("wanted", "pointer", "text"),
    [
        (NewToken("User:admin"), "/principal", "admin token alone"),
        (NewToken("User:github:me/it"), "/principal", "an issuer of access tokens alone"),
        (NewToken("User:*"), "/principal", "one user"),
        (NewToken("Group:payments"), "/principal", "one user"),
        (NewToken("alice"), "/principal", "User:name"),
        (NewToken("User:"), "/principal", "Empty"),
        (NewToken("User:a\nb"), "/principal", "control characters"),
        (NewToken("User:\ud800"), "/principal", "surrogate"),
        (NewToken("User:" + "é" * 2_000), "/principal", "1024 bytes"),
        (NewToken("User:a", ("Group:x", "User:b")), "/groups/1", "Group:name"),
        (NewToken("User:a", ("Group:*",)), "/groups/0", "User:*"),
        (NewToken("User:a", owner=""), "/owner", "1 to 1024"),
        (NewToken("User:a", note="\0"), "/note", "control characters"),
        (
            NewToken("User:a", narrowing=CredentialNarrowing(clusters=frozenset({"three"}))),
            "/narrowing/clusters",
            "one, two",
        ),
        (NewToken("User:a", narrowing=CredentialNarrowing(clusters=frozenset())), "/narrowing/clusters", "no limit"),
        (
            NewToken("User:a", narrowing=CredentialNarrowing(operations=frozenset())),
            "/narrowing/operations",
            "no limit",
        ),
    ],
)
async def test_what_no_token_can_have_is_refused_by_name(
    world: World, wanted: NewToken, pointer: str, text: str
) -> None:
    said = await refused(world, wanted, world.caller().access.identity, InvalidRequestError)
    assert said.startswith(f"{pointer}: ")
    assert text in said


CONTROLS = ["\x1b[31m", "\x7f", "\x85", "\x9b", "\u2028", "\u2029", "\u202e", "\u2066", "\u2069", "\u200f", "\u061c"]
"""Characters that change how the text around them is displayed."""


@pytest.mark.parametrize("control", CONTROLS)
async def test_new_names_and_texts_are_displayed_as_they_are(world: World, control: str) -> None:
    name = f"a{control}b"
    administrator = world.caller().access.identity
    for pointer, wanted in (
        ("/principal", NewToken(f"User:{name}")),
        ("/groups/0", NewToken("User:a", (f"Group:{name}",))),
        ("/owner", NewToken("User:a", owner=name)),
        ("/note", NewToken("User:a", note=name)),
    ):
        said = await refused(world, wanted, administrator, InvalidRequestError)
        assert said.startswith(f"{pointer}: ")
        assert control not in said
    grant = allow("User:a", Operation.ALTER, ResourceType.TOKENS)
    for pointer, given in (
        ("/principal", replace(grant, principal=f"User:{name}")),
        ("/principal", replace(grant, principal=f"Group:{name}", permission=Permission.DENY)),
        ("/name", replace(grant, name=f"User:{name}")),
        ("/note", replace(grant, note=name)),
    ):
        with pytest.raises(InvalidRequestError) as caught:
            await world.grants.create(given, world.caller())
        assert (caught.value.pointer, control in caught.value.detail) == (pointer, False)


@pytest.mark.parametrize("control", ["\x9b", "\u202e", "\u2028"])
async def test_a_stored_principal_with_such_characters_is_found_rotated_and_removed(world: World, control: str) -> None:
    principal, now = f"User:a{control}b", datetime.now(UTC)
    token = Token(uuid7(), principal, now, "User:admin", now + timedelta(days=1), note=control)
    assert await world.store.create_token(token, b"digest", change_of(world.caller(), "token-created", "tokens/1"))
    grant = StoredGrant(Grant(uuid7(), principal, role=Role.VIEWER), now, "User:admin")
    grant = await world.add(grant)
    access = world.caller().access
    assert (await world.tokens.page(principal, access, page_size=9, after=None))[0] == [token]
    assert await world.overview.grants_of(principal, None, "one", access) == [grant]
    rotated = (await world.tokens.rotate(token.id, 0, world.caller())).token
    assert (await world.tokens.revoke(rotated.id, world.caller())).token.revoked_at is not None
    await world.grants.remove(grant.grant.id, Precondition(), world.caller())


@pytest.mark.parametrize(
    "name", ["Zo\u00eb", "\u0645\u0631\u06cc\u0645", "\u05d3\u05d5\u05d3", "CN=a b, O=c", "\U0001f469\u200d\U0001f4bb"]
)
async def test_letters_of_every_script_are_names(world: World, name: str) -> None:
    made = await world.tokens.create(NewToken(f"User:{name}", owner=name, note=name), world.caller())
    assert made.token.principal == f"User:{name}"


async def test_a_team_makes_tokens_of_its_applications_alone(world: World) -> None:
    team = await world.user("team", *TEAM)
    made = await world.tokens.create(NewToken("User:payments-app"), world.caller(team))
    assert made.token.created_by == "User:team"
    said = await refused(world, NewToken("User:billing-app"), team)
    assert said.startswith("/principal: User:team lacks the grant ALTER on tokens=User~3Abilling-app of all clusters")
    assert world.denials.noted == [("User:team", "ALTER", "tokens=User~3Abilling-app")]


@pytest.mark.parametrize(
    ("more", "named"),
    [
        (NewGrant("User:payments-app", role=Role.VIEWER), "DESCRIBE_CONFIGS on every"),
        (allow("User:payments-app", Operation.ALTER_CONFIGS, ResourceType.USER, "pay", pattern=PREFIXED), "user=pay"),
        (
            allow("User:payments-app", Operation.ALTER_CONFIGS, ResourceType.TOPIC, "orders", cluster="two"),
            "ALTER_CONFIGS on topic=orders of cluster two",
        ),
        (allow("User:*", Operation.ALTER, ResourceType.GRANTS), None),
        (allow("Group:payments", Operation.FREEZE, ResourceType.CLUSTER), None),
    ],
)
async def test_a_token_for_more_than_its_maker_holds_is_refused(
    world: World, more: NewGrant, named: str | None
) -> None:
    team = await world.user("team", *TEAM)
    await world.give(more)
    wanted = NewToken("User:payments-app")
    if named is None:  # everybody has the first, and a group that the token lacks has the second
        await world.tokens.create(wanted, world.caller(team))
        return
    said = await refused(world, wanted, team)
    assert "nobody gives more than they hold" in said
    assert named in said


async def test_a_narrowed_token_has_to_be_within_its_makers_rights_and_no_more(world: World) -> None:
    team = await world.user("team", *TEAM)
    await world.give(allow("User:payments-app", Operation.ALTER_CONFIGS, ResourceType.TOPIC, cluster="two"))
    await refused(world, NewToken("User:payments-app"), team)
    await refused(world, NewToken("User:payments-app", narrowing=CredentialNarrowing(read_only=True)), team)
    only = CredentialNarrowing(clusters=frozenset({"one"}))
    assert (await world.tokens.create(NewToken("User:payments-app", narrowing=only), world.caller(team))).text


ALTERS = CredentialNarrowing(operations=frozenset({Operation.ALTER, Operation.RESOLVE, Operation.DESCRIBE_CONFIGS}))


@pytest.mark.parametrize(
    ("wanted", "expected"),
    [
        (None, ALTERS),
        (CredentialNarrowing(), ALTERS),
        (CredentialNarrowing(read_only=True), replace(ALTERS, read_only=True)),
        (CredentialNarrowing(clusters=frozenset({"one"})), replace(ALTERS, clusters=frozenset({"one"}))),
        (
            CredentialNarrowing(operations=frozenset({Operation.RESOLVE, Operation.DESCRIBE})),
            CredentialNarrowing(operations=frozenset({Operation.RESOLVE, Operation.DESCRIBE})),
        ),
        (CredentialNarrowing(operations=frozenset({Operation.RESOLVE, Operation.FREEZE})), None),
        (CredentialNarrowing(operations=frozenset({Operation.ALL})), None),
    ],
)
async def test_a_narrowed_maker_hands_its_limits_on(
    world: World, wanted: CredentialNarrowing | None, expected: CredentialNarrowing | None
) -> None:
    keeper = await world.user("keeper", Role.ADMIN, narrowing=ALTERS)
    await world.give(allow("User:app", Operation.ALTER_CONFIGS, ResourceType.TOPIC))
    if expected is None:
        said = await refused(world, NewToken("User:app", narrowing=wanted), keeper)
        assert said.startswith("/narrowing/operations: The new token would have operations that the limits")
        return
    made = await world.tokens.create(NewToken("User:app", narrowing=wanted), world.caller(keeper))
    assert made.token.narrowing == expected
    assert await world.store.find_token(made.token.id) == made.token


@pytest.mark.parametrize(
    ("own", "wanted", "expected"),
    [
        (None, None, None),
        (None, CredentialNarrowing(), CredentialNarrowing()),
        (CredentialNarrowing(), None, None),
        (CredentialNarrowing(read_only=True), None, CredentialNarrowing(read_only=True)),
        (
            CredentialNarrowing(clusters=frozenset({"one"})),
            CredentialNarrowing(read_only=True),
            CredentialNarrowing(read_only=True, clusters=frozenset({"one"})),
        ),
        (
            CredentialNarrowing(clusters=frozenset({"one"})),
            CredentialNarrowing(clusters=frozenset({"two"})),
            "clusters",
        ),
        (
            CredentialNarrowing(operations=frozenset({Operation.ALTER_CONFIGS})),
            CredentialNarrowing(operations=frozenset({Operation.RESOLVE})),
            CredentialNarrowing(operations=frozenset({Operation.RESOLVE})),
        ),
        (
            CredentialNarrowing(operations=frozenset({Operation.RESOLVE})),
            CredentialNarrowing(operations=frozenset({Operation.ALTER_CONFIGS})),
            "operations",
        ),
    ],
)
def test_limits_are_passed_on(
    own: CredentialNarrowing | None, wanted: CredentialNarrowing | None, expected: CredentialNarrowing | str | None
) -> None:
    if isinstance(expected, str):
        with pytest.raises(ValueError, match=expected):
            passed_on(own, wanted)
    else:
        assert passed_on(own, wanted) == expected


async def test_a_maker_that_may_alter_no_tokens_with_its_credential_makes_none(world: World) -> None:
    keeper = await world.user("keeper", Role.ADMIN)
    for limits in (CredentialNarrowing(read_only=True), CredentialNarrowing(clusters=frozenset({"one"}))):
        assert "ALTER on tokens" in await refused(world, NewToken("User:app"), replace(keeper, narrowing=limits))


@pytest.mark.parametrize("kind", [Authentication.TOKEN, Authentication.OIDC])
async def test_a_token_ends_no_later_than_the_credential_that_made_it(world: World, kind: Authentication) -> None:
    ends = datetime.now(UTC) + timedelta(minutes=10)
    keeper = replace(await world.user("keeper", Role.ADMIN), kind=kind, expires_at=ends)
    made = await world.tokens.create(NewToken("User:app"), world.caller(keeper))
    assert made.token.expires_at == ends
    sooner = ends - timedelta(minutes=1)
    made = await world.tokens.create(NewToken("User:app", expires_at=sooner), world.caller(keeper))
    assert made.token.expires_at == sooner
    said = await refused(world, NewToken("User:app", expires_at=ends + timedelta(seconds=1)), keeper)
    assert said.startswith("/expiresAt: A token expires no later than the credential that creates it")
    late = replace(keeper, kind=Authentication.OIDC, expires_at=datetime.now(UTC) - timedelta(seconds=1))
    assert "/expiresAt: " in await refused(world, NewToken("User:app"), late)


async def test_a_deny_that_only_the_maker_has_counts_in_clusters_of_later_days(world: World) -> None:
    # In all clusters together both lack topic=secret, and in the clusters of today each has it denied.
    await world.give(allow("User:app", Operation.ALTER_CONFIGS, ResourceType.TOPIC))
    for cluster in CLUSTERS:
        await world.give(deny("User:app", Operation.ALTER_CONFIGS, ResourceType.TOPIC, "secret", cluster=cluster))
    keeper = await world.user(
        "keeper", Role.ADMIN, deny("User:keeper", Operation.ALTER_CONFIGS, ResourceType.TOPIC, "secret")
    )
    said = await refused(world, NewToken("User:app"), keeper)
    assert "ALTER_CONFIGS on topic=secret of further clusters" in said


async def test_a_maker_needs_the_right_that_an_application_has_of_itself(world: World) -> None:
    bare = await world.user("bare", allow("User:bare", Operation.ALTER, ResourceType.TOKENS))
    assert "RESOLVE on user=app of all clusters" in await refused(world, NewToken("User:app"), bare)
    assert (await world.tokens.create(NewToken("User:bare"), world.caller(bare))).text


async def test_a_maker_that_only_reads_an_application_makes_its_token_and_no_other_reporter(world: World) -> None:
    reader = await world.user(
        "reader", Role.VIEWER, allow("User:reader", Operation.ALTER, ResourceType.TOKENS, "User:app")
    )
    assert (await world.tokens.create(NewToken("User:app"), world.caller(reader))).text
    await world.give(allow("User:app", Operation.REPORT, ResourceType.USER, "other"))
    assert "REPORT on user=other of all clusters" in await refused(world, NewToken("User:app"), reader)


async def test_a_group_is_granted_by_its_members_and_its_managers(world: World) -> None:
    wanted = NewToken("User:payments-app", ("Group:payments",))
    team = await world.user("team", *TEAM)
    assert "/groups: User:team lacks the grant ALTER on tokens=Group~3Apayments" in await refused(world, wanted, team)
    member = replace(team, groups=frozenset({"Group:payments"}))
    assert (await world.tokens.create(wanted, world.caller(member))).text
    await world.give(allow("User:team", Operation.ALTER, ResourceType.TOKENS, "Group:payments"))
    assert (await world.tokens.create(wanted, world.caller(team))).text
    await world.give(allow("Group:payments", Operation.ALTER_CONFIGS, ResourceType.TOPIC))
    assert "ALTER_CONFIGS on every named topic" in await refused(world, wanted, team)


async def test_nobody_becomes_two_persons_by_a_token(world: World) -> None:
    team = await world.user("team", *TEAM, owner="payments")
    made = await world.tokens.create(NewToken("User:payments-app"), world.caller(team))
    assert made.token.owner == "payments"
    assert "The owner of this token is payments" in await refused(
        world, NewToken("User:payments-app", owner="somebody else"), team
    )
    keeper = await world.user("keeper", Role.ADMIN)
    made = await world.tokens.create(NewToken("User:app", owner="billing"), world.caller(keeper))
    assert made.token.owner == "billing"


async def test_nobody_becomes_two_persons_by_a_rotation(world: World) -> None:
    made = (await world.tokens.create(NewToken("User:payments-app", owner="bob"), world.caller())).token
    team = await world.user("team", *TEAM, owner="payments")
    with pytest.raises(ForbiddenError, match="The owner of this token is payments"):
        await world.tokens.rotate(made.id, 60, world.caller(team))
    bob = replace(team, owner="bob")
    assert (await world.tokens.rotate(made.id, 60, world.caller(bob))).token.owner == "bob"
    plain = (await world.tokens.create(NewToken("User:payments-app"), world.caller())).token
    assert (await world.tokens.rotate(plain.id, 60, world.caller(team))).token.owner == "payments"


async def test_a_portal_makes_what_both_may_and_the_history_has_both(world: World) -> None:
    alice = await world.user("alice", Role.ADMIN)
    portal = await world.user("portal", *(replace(each, principal="User:portal") for each in TEAM), behalf_of=alice)
    made = await world.tokens.create(NewToken("User:payments-app"), world.caller(portal))
    assert made.text
    assert ((await world.history())[-1].principal, (await world.history())[-1].behalf_of) == (
        "User:portal",
        "User:alice",
    )
    # The token names only the portal as its maker, so its owner is the other one, also for those who choose owners.
    assert (made.token.created_by, made.token.owner) == ("User:portal", "User:alice")
    await world.give(NewGrant("User:portal", role=Role.ADMIN))
    assert "The owner of this token is User:alice" in await refused(
        world, NewToken("User:payments-app", owner="billing"), portal
    )
    rotated = await world.tokens.rotate(made.token.id, 60, world.caller(portal))
    assert rotated.token.owner == "User:alice"
    await refused(world, NewToken("User:nobody"), replace(portal, behalf_of=await world.user("carol")))
    bob = await world.user("bob")
    await refused(world, NewToken("User:payments-app"), replace(portal, behalf_of=bob))


async def test_nothing_is_written_when_only_validated(world: World) -> None:
    made = await world.tokens.create(NewToken("User:app"), world.caller(), validate_only=True)
    assert made.text is None
    assert not await world.history()
    made = await world.tokens.create(NewToken("User:app"), world.caller())
    rotated = await world.tokens.rotate(made.token.id, 60, world.caller(), validate_only=True)
    assert rotated.text is None
    assert (await world.tokens.revoke(made.token.id, world.caller(), validate_only=True)).token.revoked_at is None
    assert len(await world.history()) == 1


async def test_a_list_leaves_out_what_is_hidden(world: World) -> None:
    for name in ("payments-a", "billing", "payments-b", "reader"):
        await world.tokens.create(NewToken(f"User:{name}"), world.caller())
    reader = await world.user(
        "reader", allow("User:reader", Operation.DESCRIBE, ResourceType.TOKENS, "User:payments-", pattern=PREFIXED)
    )
    access = world.caller(reader).access
    found, cursor = await world.tokens.page(None, access, page_size=10, after=None)
    assert [token.principal for token in found] == ["User:payments-a", "User:payments-b", "User:reader"]
    assert cursor is None
    paged = []
    while True:
        page, cursor = await world.tokens.page(None, access, page_size=1, after=cursor)
        paged += page
        if cursor is None:
            break
    assert paged == found
    assert [
        token.principal for token in (await world.tokens.page("User:payments-a", access, page_size=10, after=None))[0]
    ] == ["User:payments-a"]
    with pytest.raises(ForbiddenError, match="DESCRIBE on tokens=User~3Abilling"):
        await world.tokens.page("User:billing", access, page_size=10, after=None)
    assert len((await world.tokens.page(None, world.caller().access, page_size=10, after=None))[0]) == 4


async def test_a_hidden_token_and_an_absent_one_are_refused_alike(world: World) -> None:
    hidden = (await world.tokens.create(NewToken("User:other"), world.caller())).token
    own = (await world.tokens.create(NewToken("User:plain"), world.caller())).token
    plain = world.caller(await world.user("plain"))
    assert await world.tokens.find(own.id, plain.access) == own
    said = set()
    for token_id in (hidden.id, uuid7()):
        with pytest.raises(ForbiddenError) as caught:
            await world.tokens.find(token_id, plain.access)
        said.add(caught.value.detail)
        for change in (world.tokens.revoke(token_id, plain), world.tokens.rotate(token_id, 60, plain)):
            with pytest.raises(ForbiddenError, match="ALTER on tokens of all clusters"):
                await change
    assert len(said) == 1
    with pytest.raises(ForbiddenError):  # seen, and not altered
        await world.tokens.revoke(own.id, plain)
    for work in (world.tokens.find(UUID(int=0), world.caller().access), world.tokens.revoke(uuid7(), world.caller())):
        with pytest.raises(NotFoundError):
            await work


async def test_a_revoked_token_stays_revoked_and_is_written_down_once(world: World) -> None:
    made = await world.tokens.create(NewToken("User:app"), world.caller())
    first = await world.tokens.revoke(made.token.id, world.caller(reason="leaked"))
    assert first.token.revoked_at is not None
    assert await world.tokens.revoke(made.token.id, world.caller()) == first
    assert [row.kind for row in await world.history()] == ["token-created", "token-revoked"]
    before, after = (await world.history())[-1].before, (await world.history())[-1].after
    assert before is not None
    assert after is not None
    assert (before["status"], after["status"]) == ("active", "revoked")
    with pytest.raises(InvalidRequestError, match="create a new one"):
        await world.tokens.rotate(made.token.id, 60, world.caller())


@pytest.mark.parametrize("overlap", [0, 60, LONGEST_OVERLAP_S])
async def test_a_rotated_token_has_what_the_old_one_had(world: World, overlap: int) -> None:
    limits = CredentialNarrowing(read_only=True, clusters=frozenset({"one"}))
    wanted = NewToken("User:app", ("Group:g",), "owner", "note", narrowing=limits)
    old = (await world.tokens.create(wanted, world.caller())).token
    made = await world.tokens.rotate(old.id, overlap, world.caller())
    assert made.text
    assert parse(made.text.encode())
    new = made.token
    assert (new.principal, new.groups, new.owner, new.note, new.narrowing) == (
        old.principal,
        old.groups,
        old.owner,
        old.note,
        old.narrowing,
    )
    assert new.replaces == old.id
    assert new.expires_at - new.created_at == old.expires_at - old.created_at
    ended = await world.store.find_token(old.id)
    assert ended is not None
    assert ended.expires_at == new.created_at + timedelta(seconds=overlap)
    assert (await world.history())[-1].kind == "token-rotated"


@pytest.mark.parametrize("overlap", [-1, LONGEST_OVERLAP_S + 1])
async def test_an_overlap_is_bounded(world: World, overlap: int) -> None:
    old = (await world.tokens.create(NewToken("User:app"), world.caller())).token
    with pytest.raises(InvalidRequestError) as caught:
        await world.tokens.rotate(old.id, overlap, world.caller())
    assert caught.value.pointer == "/overlapSeconds"


async def _bearer(world: World, wanted: NewToken) -> Identity:
    """Create a token, and return the identity of requests with it."""
    made = await world.tokens.create(wanted, world.caller())
    await world.book.refresh()
    assert made.text is not None
    identity = world.book.authenticate(made.text.encode())
    assert identity is not None
    return identity


async def test_a_token_that_replaces_itself_stays_what_it_was_and_lives_as_long_again(world: World) -> None:
    keeper = await world.user("keeper", Role.ADMIN)
    ends = datetime.now(UTC) + timedelta(hours=2)
    limits = CredentialNarrowing(operations=frozenset({Operation.ALTER}))
    wanted = NewToken("User:keeper", ("Group:g",), "olga", "note", expires_at=ends, narrowing=limits)
    own = await _bearer(world, wanted)
    assert own.token_id is not None
    old = await world.store.find_token(own.token_id)
    assert old is not None
    lifetime = old.expires_at - old.created_at
    new = (await world.tokens.rotate(old.id, 60, world.caller(own))).token
    assert (new.groups, new.owner, new.narrowing) == (old.groups, "olga", limits)
    assert new.expires_at - new.created_at == lifetime
    assert (new.replaces, new.created_with) == (old.id, old.id)
    other = await _bearer(world, wanted)
    assert other.token_id is not None
    with pytest.raises(ForbiddenError, match="lives as long again at most"):
        await world.tokens.rotate(
            other.token_id, 60, world.caller(other), expires_at=datetime.now(UTC) + lifetime + timedelta(minutes=1)
        )
    sooner = datetime.now(UTC) + timedelta(hours=1)
    assert (
        await world.tokens.rotate(other.token_id, 60, world.caller(other), expires_at=sooner)
    ).token.expires_at == sooner
    # The tokens of others, and its principal's other ones, follow the rules of new tokens.
    longer = await world.tokens.create(NewToken("User:keeper", narrowing=limits), world.caller())
    third = await _bearer(world, wanted)
    with pytest.raises(ForbiddenError, match="expires no later than the credential that creates it"):
        await world.tokens.rotate(longer.token.id, 60, world.caller(third))
    unlimited = await world.tokens.create(NewToken("User:keeper", expires_at=ends), world.caller())
    with pytest.raises(ForbiddenError, match="unlike the old one"):
        await world.tokens.rotate(unlimited.token.id, 60, world.caller(third), expires_at=sooner)
    assert (await world.tokens.rotate(unlimited.token.id, 60, world.caller(keeper))).token.narrowing is None


async def test_a_revocation_offers_to_revoke_what_was_created_with_the_token(world: World) -> None:
    await world.give(NewGrant("User:keeper", role=Role.ADMIN))
    keeper = await _bearer(world, NewToken("User:keeper"))
    assert keeper.token_id is not None
    first = await world.tokens.create(NewToken("User:keeper"), world.caller(keeper))
    await world.book.refresh()
    assert first.text is not None
    through = world.book.authenticate(first.text.encode())
    assert through is not None
    second = await world.tokens.create(NewToken("User:app"), world.caller(through))
    rotated = await world.tokens.rotate(first.token.id, 0, world.caller(through))
    other = await world.tokens.create(NewToken("User:app"), world.caller())
    assert (second.token.created_with, rotated.token.created_with, other.token.created_with) == (
        first.token.id,
        first.token.id,
        None,
    )
    limited = await world.user("limited", allow("User:limited", Operation.ALTER, ResourceType.TOKENS, "User:keeper"))
    with pytest.raises(ForbiddenError) as caught:
        await world.tokens.revoke(keeper.token_id, world.caller(limited), with_created=True)
    assert "User:app" not in caught.value.detail
    assert "app" not in caught.value.detail
    assert (await world.tokens.revoke(keeper.token_id, world.caller(), validate_only=True)).active == 2
    alone = await world.tokens.revoke(keeper.token_id, world.caller(limited))
    assert (alone.token.revoked_at is not None, alone.active, alone.revoked) == (True, 2, 0)
    assert (await world.tokens.revoke(keeper.token_id, world.caller(), with_created=True)).revoked == 2
    for made in (second, rotated):
        found = await world.store.find_token(made.token.id)
        assert found is not None
        assert found.revoked_at is not None
    assert await world.store.find_token(other.token.id) == other.token
    # A credential that a process still admits for a moment creates nothing any more.
    with pytest.raises(UnauthenticatedError):
        await world.tokens.create(NewToken("User:app"), world.caller(keeper))
    with pytest.raises(InvalidRequestError):
        await world.tokens.rotate(
            other.token.id, 0, world.caller(keeper), expires_at=world.tokens.now + timedelta(days=1)
        )


async def test_a_rotation_gives_no_more_than_its_caller_holds(world: World) -> None:
    team = await world.user("team", *TEAM)
    old = (await world.tokens.create(NewToken("User:payments-app"), world.caller())).token
    assert (await world.tokens.rotate(old.id, 0, world.caller(team), validate_only=True)).token.replaces == old.id
    await world.give(NewGrant("User:payments-app", role=Role.OPERATOR))
    with pytest.raises(ForbiddenError, match="nobody gives more"):
        await world.tokens.rotate(old.id, 0, world.caller(team))


async def test_a_caller_sees_its_own_tokens_by_whatever_credential(world: World) -> None:
    await world.book.refresh()
    made = (await world.tokens.create(NewToken("User:alice"), world.caller())).token
    for kind in (Authentication.OIDC, Authentication.CERTIFICATE, Authentication.TOKEN):
        access = world.control.access(Identity("User:alice", kind), "::1", "r")
        assert await world.tokens.find(made.id, access) == made
        other = world.control.access(Identity("User:alicia", kind), "::1", "r")
        with pytest.raises(ForbiddenError):
            await world.tokens.find(made.id, other)


def distrust(database: servers.Database, at: datetime) -> None:
    """Reject the tokens created before a time, as after a restore."""
    with psycopg.connect(database.owner_dsn) as connection:
        connection.execute("UPDATE access_version SET tokens_from = %s, version = version + 1", [at])


async def check(world: World, text: str | None) -> str | None:
    """Return the reason why a token is refused; None if it is admitted."""
    await world.book.refresh()
    assert text is not None
    try:
        identity = world.book.authenticate(text.encode())
        assert identity is not None
        world.book.check(identity)
    except UnauthenticatedError as error:
        return error.detail
    return None


async def test_the_tokens_of_a_restored_postgres_are_rejected_until_they_are_confirmed(
    world: World, module_database: servers.Database
) -> None:
    old = await world.tokens.create(NewToken("User:old"), world.caller())
    assert await check(world, old.text) is None
    assert await world.tokens.confirm(world.caller()) is False
    distrust(module_database, datetime.now(UTC))
    assert "`confplane tokens confirm`" in (await check(world, old.text) or "")
    new = await world.tokens.create(NewToken("User:new"), world.caller())
    assert await check(world, new.text) is None
    assert await world.tokens.confirm(world.caller(reason="checked")) is True
    assert await check(world, old.text) is None
    assert [(row.kind, row.reason) for row in await world.history()][-1] == ("tokens-confirmed", "checked")


async def test_all_tokens_created_before_a_time_are_revoked(world: World, module_database: servers.Database) -> None:
    old = await world.tokens.create(NewToken("User:old"), world.caller())
    restored = datetime.now(UTC)
    distrust(module_database, restored)
    new = await world.tokens.create(NewToken("User:new"), world.caller())
    # Some of the rejected tokens are left.
    assert await world.tokens.invalidate(old.token.created_at, world.caller()) == 0
    assert "was restored" in (await check(world, old.text) or "")
    assert await world.tokens.invalidate(restored, world.caller(reason="restored")) == 1
    assert "was revoked" in (await check(world, old.text) or "")
    assert await check(world, new.text) is None
    loaded = await world.store.load(None)
    assert loaded is not None
    assert loaded.tokens_from is None
    assert [(row.kind, row.after) for row in await world.history()][-1] == (
        "tokens-invalidated",
        {"issuedBefore": restored.isoformat()},
    )


async def test_a_token_that_is_created_during_an_invalidation_is_refused_until_it_is_asked_for_again(
    world: World,
) -> None:
    before = datetime.now(UTC) + timedelta(minutes=1)  # on the clock of another process
    after = {"issuedBefore": before.isoformat()}
    await world.store.invalidate_tokens(
        before, change_of(world.caller(), "tokens-invalidated", "tokens/*", after=after)
    )
    with pytest.raises(UnavailableError, match="invalidated at the same time") as refused:
        await world.tokens.create(NewToken("User:new"), world.caller())
    assert refused.value.outcome is WriteOutcome.NOT_APPLIED


async def test_only_callers_for_every_token_confirm_or_invalidate_them_and_not_for_the_future(world: World) -> None:
    team = await world.user("team", *TEAM)
    for work in (
        world.tokens.confirm(world.caller(team)),
        world.tokens.invalidate(datetime.now(UTC), world.caller(team)),
    ):
        with pytest.raises(ForbiddenError, match="ALTER on tokens of every principal"):
            await work
    with pytest.raises(InvalidRequestError, match="in the future"):
        await world.tokens.invalidate(datetime.now(UTC) + timedelta(hours=1), world.caller())
