"""Grants: their rules, and that nobody gives, or gives back, more than they hold."""

from __future__ import annotations

import re
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING
from uuid import UUID

import pytest
from uuid_utils.compat import uuid7

import confplane
from confplane.domain.access.grants import Grant
from confplane.domain.access.identities import CredentialNarrowing, Identity
from confplane.domain.access.operations import (
    OPERATIONS,
    Operation,
    PatternType,
    Permission,
    ResourceType,
    Role,
)
from confplane.domain.access.ranges import named, spell, whole
from confplane.domain.entities import EntityType
from confplane.domain.errors import (
    AlreadyExistsError,
    ConcurrentChangeError,
    ConfplaneError,
    ForbiddenError,
    InvalidRequestError,
    NotFoundError,
    PreconditionFailedError,
)
from confplane.domain.etags import Precondition
from confplane.services.access_admin.effective_grants import described
from confplane.services.access_admin.grants import NewGrant
from confplane.services.access_admin.overview import own_rights, rights_of
from confplane.services.access_admin.views import etag_of, grant_view
from tests.audit.rows import run
from tests.support.access_world import ADMINISTRATOR, World, allow, deny

if TYPE_CHECKING:
    from tests.support import servers

PREFIXED = PatternType.PREFIXED
ANYHOW = Precondition()
ALICE = allow("User:alice", Operation.ALTER_CONFIGS, ResourceType.USER, "alice", note="her own")
LEAD = (
    allow("User:lead", Operation.ALTER, ResourceType.GRANTS, "User:payments-", pattern=PREFIXED),
    allow("User:lead", Operation.ALTER_CONFIGS, ResourceType.USER, "payments-", pattern=PREFIXED),
    allow("User:lead", Operation.DESCRIBE_CONFIGS, ResourceType.TOPIC, cluster="one"),
)
"""The grants of a person who lets a team's members manage users named payments-*."""


async def refused(world: World, wanted: NewGrant, by: Identity, kind: type[ConfplaneError] = ForbiddenError) -> str:
    """Return the text of a refusal, and see to it that nothing was written."""
    written = len(await world.history())
    with pytest.raises(kind) as caught:
        await world.grants.create(wanted, world.caller(by))
    assert len(await world.history()) == written
    return f"{caught.value.pointer}: {caught.value.detail}"


async def test_a_grant_exists_once_and_its_history_shows_it(world: World) -> None:
    first, is_new = await world.grants.create(ALICE, world.caller(reason="she asked", ticket="CHG-2"))
    assert is_new
    again, is_new = await world.grants.create(replace(ALICE, note="another note"), world.caller())
    assert not is_new
    assert again == first == await world.grants.find(first.grant.id, world.caller().access)
    (row,) = await world.history()
    assert (row.kind, row.subject, row.before, row.after, row.reason, row.ticket) == (
        "grant-created",
        f"grants/{first.grant.id}",
        None,
        grant_view(first),
        "she asked",
        "CHG-2",
    )


@pytest.mark.parametrize(
    ("wanted", "pointer", "text"),
    [
        (replace(ALICE, principal="alice"), "/principal", "User:name or Group:name"),
        (replace(ALICE, principal="Group:*"), "/principal", "User:*"),
        (replace(ALICE, principal="User:"), "/principal", "Empty"),
        (replace(ALICE, principal="User:admin"), "/principal", "needs no grants"),
        (replace(ALICE, principal="user:alice"), "/principal", "User:name or Group:name"),
        (replace(ALICE, cluster="three"), "/cluster", "one, two"),
        (replace(ALICE, cluster=""), "/cluster", "one, two"),
        (replace(ALICE, role=Role.VIEWER), "/operation", "exactly one"),
        (replace(ALICE, operation=None), "/operation", "exactly one"),
        (replace(ALICE, resource=None), "/resourceType", "needs its resourceType"),
        (replace(ALICE, operation=Operation.FREEZE), "/operation", "it has: ALL, ALTER_CONFIGS"),
        (replace(ALICE, operation=Operation.ALTER), "/operation", "it has: ALL, ALTER_CONFIGS"),
        (replace(ALICE, name=""), "/name", "Empty"),
        (replace(ALICE, name=".."), "/name", "can't be stored"),
        (replace(ALICE, name="a\0"), "/name", "NUL"),
        (replace(ALICE, name="é" * 1_000), "/name", "1024 bytes"),
        (replace(ALICE, pattern=PREFIXED, name=""), "/name", "empty"),
        (replace(ALICE, pattern=PREFIXED, name="*"), "/name", "literal *"),
        (replace(ALICE, resource=ResourceType.TOPIC, name="a/b"), "/name", "not a legal topic name"),
        (replace(ALICE, resource=ResourceType.TOPIC, name="a/", pattern=PREFIXED), "/name", "not a legal topic name"),
        (replace(ALICE, resource=ResourceType.BROKER, name="01"), "/name", "not a legal broker name"),
        (replace(ALICE, resource=ResourceType.IP, name="10.0.0.256"), "/name", "10.0.0.256"),
        (replace(ALICE, resource=ResourceType.CLUSTER), "/name", "no names"),
        (replace(ALICE, resource=ResourceType.CLUSTER, name="a", pattern=PREFIXED), "/name", "no names"),
        (NewGrant("User:alice", role=Role.VIEWER, name="alice"), "/name", "granted whole"),
        (NewGrant("User:alice", role=Role.APPLICATION, resource=ResourceType.TOPIC), "/resourceType", "user"),
        (allow("User:alice", Operation.ALTER, ResourceType.TOKENS, "alice"), "/name", "User:name"),
        (allow("User:alice", Operation.ALTER, ResourceType.GRANTS, "pay", pattern=PREFIXED), "/name", "begins with"),
        (allow("User:alice", Operation.ALTER, ResourceType.GRANTS, cluster="one"), "/cluster", "limited to a cluster"),
        (replace(ALICE, note="a\nb"), "/note", "control characters"),
    ],
)
async def test_a_grant_that_means_nothing_is_refused_by_name(
    world: World, wanted: NewGrant, pointer: str, text: str
) -> None:
    said = await refused(world, wanted, ADMINISTRATOR, InvalidRequestError)
    assert said.startswith(f"{pointer}: "), said
    assert text in said


@pytest.mark.parametrize(
    "wanted",
    [
        NewGrant("User:*", role=Role.VIEWER),
        NewGrant("Group:payments", role=Role.OPERATOR, cluster="one", permission=Permission.DENY),
        NewGrant("User:a", role=Role.APPLICATION, resource=ResourceType.USER, name="pay", pattern=PREFIXED),
        NewGrant("User:a", operation=Operation.ALL, resource=ResourceType.CLUSTER),
        NewGrant("User:a", operation=Operation.ALTER_CONFIGS, resource=ResourceType.TOPIC, name=".", pattern=PREFIXED),
        allow("User:a", Operation.ALTER, ResourceType.TOKENS, "User:*"),
        allow("User:a", Operation.ALTER, ResourceType.TOKENS, "Us", pattern=PREFIXED),
        allow("User:a", Operation.ALTER_CONFIGS, ResourceType.USER, "CN=Zoë, O=Acme/x y*"),
        allow("User:a", Operation.ALTER_CONFIGS, ResourceType.IP, "10.", pattern=PREFIXED),
    ],
)
async def test_what_a_grant_can_be(world: World, wanted: NewGrant) -> None:
    made, is_new = await world.grants.create(wanted, world.caller())
    assert is_new
    assert (made.grant.principal, made.grant.role, made.grant.name) == (wanted.principal, wanted.role, wanted.name)


@pytest.mark.parametrize(
    ("wanted", "text"),
    [
        (allow("User:payments-a", Operation.ALTER_CONFIGS, ResourceType.USER, "payments-a"), None),
        (allow("User:payments-a", Operation.DESCRIBE_CONFIGS, ResourceType.USER, "payments-", pattern=PREFIXED), None),
        (allow("User:payments-a", Operation.RESOLVE, ResourceType.USER, "payments-", cluster="two", pattern=PREFIXED), None),
        (allow("User:payments-a", Operation.DESCRIBE_CONFIGS, ResourceType.TOPIC, cluster="one"), None),
        (NewGrant("User:payments-a", role=Role.APPLICATION, resource=ResourceType.USER, name="payments-a"), None),
        (deny("User:payments-a", Operation.ALL, ResourceType.CLUSTER), None),
        (allow("User:billing-a", Operation.RESOLVE, ResourceType.USER, "payments-a"), "/principal: User:lead lacks the grant ALTER on grants=User~3Abilling-a"),
        (allow("User:*", Operation.RESOLVE, ResourceType.USER, "payments-a"), "ALTER on grants=User~3A~2A"),
        (deny("User:billing-a", Operation.RESOLVE, ResourceType.USER, "payments-a"), "ALTER on grants="),
        (allow("User:payments-a", Operation.ALTER_CONFIGS, ResourceType.USER, "pay", pattern=PREFIXED), "gives ALTER_CONFIGS on every user"),
        (allow("User:payments-a", Operation.ALL, ResourceType.USER, "payments-a"), "gives ALL on user=payments-a of all clusters, which User:lead lacks; nobody gives more than they hold"),
        (allow("User:payments-a", Operation.DESCRIBE_CONFIGS, ResourceType.TOPIC), "gives DESCRIBE_CONFIGS on every named topic of all clusters"),
        (allow("User:payments-a", Operation.DESCRIBE_CONFIGS, ResourceType.TOPIC, "t", cluster="two"), "gives DESCRIBE_CONFIGS on topic=t of cluster two"),
        (allow("User:payments-a", Operation.ALTER_CONFIGS, ResourceType.CLUSTER, cluster="one"), "gives ALTER_CONFIGS on every cluster"),
        (NewGrant("User:payments-a", role=Role.VIEWER, cluster="one"), "gives DESCRIBE_CONFIGS on"),
        (allow("User:payments-a", Operation.ALTER, ResourceType.GRANTS), "gives ALTER on every grants"),
    ],
)  # fmt: skip
async def test_nobody_gives_more_than_they_hold(world: World, wanted: NewGrant, text: str | None) -> None:
    lead = await world.user("lead", *LEAD)
    if text is None:
        assert (await world.grants.create(wanted, world.caller(lead)))[1]
        return
    said = await refused(world, wanted, lead)
    assert text in said
    assert world.denials.noted


async def test_a_denied_part_is_not_given_on(world: World) -> None:
    lead = await world.user("lead", *LEAD, deny("User:*", Operation.DESCRIBE_CONFIGS, ResourceType.USER, "payments-x"))
    every = allow("User:payments-a", Operation.ALTER_CONFIGS, ResourceType.USER, "payments-", pattern=PREFIXED)
    assert "ALTER_CONFIGS on user=payments-x" in await refused(world, every, lead)
    assert (await world.grants.create(replace(every, name="payments-y"), world.caller(lead)))[1]


async def test_limits_of_a_credential_bound_what_it_gives(world: World) -> None:
    lead = await world.user("lead", *LEAD)
    wanted = allow("User:payments-a", Operation.ALTER_CONFIGS, ResourceType.USER, "payments-a")
    only_grants = replace(lead, narrowing=CredentialNarrowing(operations=frozenset({Operation.ALTER})))
    said = await refused(world, wanted, only_grants)
    assert "ALTER_CONFIGS on user=payments-a" in said
    assert "which the limits of the credential of User:lead leave out" in said
    assert "ALTER on grants" in await refused(
        world, wanted, replace(lead, narrowing=CredentialNarrowing(read_only=True))
    )
    bob = await world.user("bob")
    assert "ALTER on grants" in await refused(world, wanted, replace(lead, behalf_of=bob))


async def test_the_end_of_an_allow_gives_nothing_and_the_end_of_a_deny_gives_back(world: World) -> None:
    allowed = await world.give(NewGrant("User:payments-a", role=Role.ADMIN))
    small = await world.give(deny("User:payments-a", Operation.ALTER_CONFIGS, ResourceType.USER, "payments-a"))
    great = await world.give(deny("User:payments-a", Operation.RESOLVE, ResourceType.USER, "billing"))
    along = await world.give(deny("User:payments-a", Operation.DESCRIBE_CONFIGS, ResourceType.USER, "payments-x"))
    bypass = await world.give(deny("User:payments-a", Operation.ALL, ResourceType.USER, "payments-a"))
    role = await world.give(NewGrant("User:payments-a", role=Role.VIEWER, permission=Permission.DENY, cluster="one"))
    no_reports = deny("User:lead", Operation.REPORT, ResourceType.USER, "payments-x")
    lead = world.caller(await world.user("lead", *LEAD, no_reports))
    await world.grants.remove(allowed.grant.id, ANYHOW, lead)
    await world.grants.remove(small.grant.id, ANYHOW, lead)
    for denied, text in (
        (great, "ALTER_CONFIGS on user=billing"),
        (along, "REPORT on user=payments-x"),
        (bypass, "BYPASS_RULES on user=payments-a"),
        (role, "ALTER_CONFIGS on"),
    ):
        with pytest.raises(ForbiddenError, match=text):
            await world.grants.remove(denied.grant.id, ANYHOW, lead)
        with pytest.raises(ForbiddenError, match=text):
            await world.grants.replace(
                denied.grant.id, replace(ALICE, principal="User:payments-a", name="payments-a"), ANYHOW, lead
            )
        assert await world.store.find_grant(denied.grant.id) == denied
    for denied in (great, along, bypass, role):
        await world.grants.remove(denied.grant.id, ANYHOW, world.caller())
    assert {row.kind for row in (await world.history())[-4:]} == {"grant-removed"}


async def test_nobody_ends_a_deny_of_their_own(world: World) -> None:
    own = deny("User:keeper", Operation.ALTER_CONFIGS, ResourceType.TOPIC, "secret")
    keeper = await world.user("keeper", Role.ADMIN, own)
    (denied,) = (await world.store.list_grants(principal="User:keeper", cluster=None, page_size=9, after=None))[0][1:]
    with pytest.raises(ForbiddenError, match="gives back ALTER_CONFIGS on topic=secret"):
        await world.grants.remove(denied.grant.id, ANYHOW, world.caller(keeper))


async def test_a_grant_is_replaced_under_its_etag(world: World) -> None:
    made, _ = await world.grants.create(ALICE, world.caller())
    other = replace(ALICE, name="bob", note=None)
    replaced = await world.grants.replace(made.grant.id, other, Precondition((etag_of(made),)), world.caller())
    assert (replaced.grant.name, replaced.note, replaced.created_at) == ("bob", None, made.created_at)
    assert etag_of(replaced) != etag_of(made)
    for precondition in (Precondition((etag_of(made),)), Precondition(None, ("*",))):
        with pytest.raises(PreconditionFailedError) as caught:
            await world.grants.replace(made.grant.id, ALICE, precondition, world.caller())
        assert caught.value.etag == etag_of(replaced)
        with pytest.raises(PreconditionFailedError):
            await world.grants.remove(made.grant.id, precondition, world.caller())
    row = (await world.history())[-1]
    assert (row.kind, row.before, row.after) == ("grant-replaced", grant_view(made), grant_view(replaced))
    written = len(await world.history())
    same = await world.grants.replace(made.grant.id, other, ANYHOW, world.caller())
    assert same == replaced
    assert len(await world.history()) == written, "the same content is no change"
    twin, _ = await world.grants.create(ALICE, world.caller())
    with pytest.raises(AlreadyExistsError):
        await world.grants.replace(twin.grant.id, other, ANYHOW, world.caller())
    assert await world.store.find_grant(twin.grant.id) == twin


async def test_a_replacement_amid_concurrent_replacements_gives_up_in_the_end(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    made, _ = await world.grants.create(ALICE, world.caller())

    async def late(*_: object) -> None:
        return None

    monkeypatch.setattr(world.store, "replace_grant", late)
    monkeypatch.setattr(world.store, "remove_grant", late)
    with pytest.raises(ConcurrentChangeError):
        await world.grants.replace(made.grant.id, replace(ALICE, name="bob"), ANYHOW, world.caller())
    with pytest.raises(ConcurrentChangeError):
        await world.grants.remove(made.grant.id, ANYHOW, world.caller())


async def test_nothing_is_written_when_only_validated(world: World) -> None:
    made, _ = await world.grants.create(ALICE, world.caller())
    written = len(await world.history())
    assert (await world.grants.create(replace(ALICE, name="b"), world.caller(), validate_only=True))[1]
    changed = await world.grants.replace(
        made.grant.id, replace(ALICE, name="b"), ANYHOW, world.caller(), validate_only=True
    )
    assert changed.grant.name == "b"
    assert await world.grants.remove(made.grant.id, ANYHOW, world.caller(), validate_only=True) == made
    assert len(await world.history()) == written


def test_every_operation_and_type_of_resource_is_checked_somewhere() -> None:
    definitions = {"domain/access", "client/types", "cli", "services/access_admin/rules.py"}
    root = Path(confplane.__file__).parent
    checked = set()
    for file in root.rglob("*.py"):
        name = file.relative_to(root).as_posix()
        if not any(name.startswith(each) for each in definitions):
            checked |= set(re.findall(r"\b(?:Operation|ResourceType)\.([A-Z_]+)", file.read_text()))
    used = {each for kind in (Operation, ResourceType) for each in kind if each.name in checked}
    used |= {ResourceType(each.value) for each in EntityType}
    assert {*Operation, *ResourceType} - used == {Operation.ALL}


async def test_hidden_and_absent_grants_are_refused_alike(world: World) -> None:
    hidden, _ = await world.grants.create(ALICE, world.caller())
    plain = world.caller(await world.user("plain"))
    said = set()
    for grant_id in (hidden.grant.id, uuid7()):
        with pytest.raises(ForbiddenError) as caught:
            await world.grants.find(grant_id, plain.access)
        said.add(caught.value.detail)
        for change in (
            world.grants.remove(grant_id, ANYHOW, plain),
            world.grants.replace(grant_id, ALICE, ANYHOW, plain),
        ):
            with pytest.raises(ForbiddenError, match="ALTER on grants of all clusters"):
                await change
    assert len(said) == 1
    with pytest.raises(NotFoundError):
        await world.grants.find(UUID(int=0), world.caller().access)


async def test_a_list_has_the_callers_own_and_what_it_may_see(world: World) -> None:
    for principal in ("User:plain", "User:other", "User:*", "Group:mine", "Group:theirs"):
        await world.give(replace(ALICE, principal=principal, cluster="one" if principal == "User:plain" else None))
    plain = await world.user("plain", groups=frozenset({"Group:mine"}))
    access = world.caller(plain).access
    found, _ = await world.grants.page(None, None, access, page_size=10, after=None)
    assert [each.grant.principal for each in found] == ["User:plain", "User:*", "Group:mine"]
    found, _ = await world.grants.page(None, "one", access, page_size=10, after=None)
    assert [each.grant.principal for each in found] == ["User:plain"]
    for principal in ("User:plain", "User:*", "Group:mine"):
        assert len((await world.grants.page(principal, None, access, page_size=10, after=None))[0]) == 1
    with pytest.raises(ForbiddenError, match="DESCRIBE on grants=Group~3Atheirs"):
        await world.grants.page("Group:theirs", None, access, page_size=10, after=None)
    assert len((await world.grants.page(None, None, world.caller().access, page_size=10, after=None))[0]) == 5


async def test_a_page_of_few_visible_among_very_many_ends(world: World, module_database: servers.Database) -> None:
    hidden = """
        INSERT INTO grants (id, principal, permission, cluster, role, pattern, name, created_at, created_by, change_id, version)
        SELECT lpad(to_hex(number), 32, '0')::uuid, 'User:x', 'allow', number::text, 'viewer', 'literal', '*', now(), 'User:admin',
               gen_random_uuid(), 1
          FROM generate_series(1, 10500) AS number
    """
    run(module_database.owner_dsn, hidden)
    last = await world.give(replace(ALICE, principal="User:plain"))
    access = world.caller(await world.user("plain")).access
    found, cursor = await world.grants.page(None, None, access, page_size=10, after=None)
    assert found == []
    assert cursor is not None
    assert await world.grants.page(None, None, access, page_size=10, after=cursor) == ([last], None)


# ---------------------------------------------------------------- who may what


async def test_the_grants_that_count_for_somebody(world: World) -> None:
    allowed = await world.give(ALICE)
    everywhere = await world.give(NewGrant("User:*", role=Role.APPLICATION))
    denied = await world.give(deny("Group:g", Operation.ALTER_CONFIGS, ResourceType.USER, "alice", cluster="one"))
    await world.give(replace(ALICE, cluster="two", name="bob"))
    access = world.caller().access
    ask = world.overview.grants_of
    assert await ask("User:alice", None, "one", access) == [everywhere, allowed]
    assert await ask("User:alice", "Group:g", "one", access) == [denied, everywhere, allowed]
    assert await ask(None, "Group:g", "one", access) == [denied, everywhere]
    assert await ask("User:*", "Group:g", None, access) == [denied, everywhere]
    plain = await world.user("alice")
    assert await ask("User:alice", None, "one", world.caller(plain).access) == [everywhere, allowed]
    with pytest.raises(ForbiddenError, match="DESCRIBE on grants=Group~3Ag"):
        await ask("User:alice", "Group:g", "one", world.caller(plain).access)
    for principal, group, pointer in (
        (None, None, "principal"),
        ("Group:g", None, "principal"),
        ("User:a", "User:b", "group"),
    ):
        with pytest.raises(InvalidRequestError) as caught:
            await ask(principal, group, "one", access)
        assert caught.value.pointer == pointer


async def test_who_may_resolve_although_reading_is_denied(world: World) -> None:
    for name in ("lost", "separate", "apart"):
        await world.give(allow(f"User:{name}", Operation.ALTER_CONFIGS, ResourceType.USER))
    denied = {
        name: await world.give(deny(f"User:{name}", Operation.DESCRIBE_CONFIGS, ResourceType.USER, "x"))
        for name in ("lost", "separate", "apart")
    }
    separate = await world.give(allow("User:separate", Operation.RESOLVE, ResourceType.USER))
    everybody = await world.give(NewGrant("Group:other", role=Role.APPLICATION))
    access, resource = world.caller().access, spell(ResourceType.USER, "x")
    found = await world.overview.who("one", Operation.RESOLVE, resource, access)
    assert [(each.principal, each.grant) for each in found] == [
        ("Group:other", everybody),
        ("User:apart", denied["apart"]),
        ("User:lost", denied["lost"]),
        ("User:separate", separate),
    ]
    # A right of everybody is not listed as taken away from a caller with further denies.
    everybody = await world.give(NewGrant("User:*", role=Role.APPLICATION))
    found = await world.overview.who("one", Operation.RESOLVE, resource, access)
    assert {each.principal for each in found} == {"Group:other", "User:*", "User:separate"}


async def test_who_may_do_something_and_by_which_grant(world: World) -> None:
    by_prefix = await world.give(
        allow("User:alice", Operation.ALTER_CONFIGS, ResourceType.TOPIC, "ord", pattern=PREFIXED)
    )
    await world.give(allow("User:alice", Operation.DESCRIBE_CONFIGS, ResourceType.TOPIC))
    by_role = await world.give(NewGrant("Group:ops", role=Role.OPERATOR, cluster="one"))
    await world.give(NewGrant("User:two", role=Role.OPERATOR, cluster="two"))
    await world.give(NewGrant("User:bob", role=Role.ADMIN))
    denied = await world.give(deny("User:bob", Operation.DESCRIBE_CONFIGS, ResourceType.TOPIC, "orders"))
    orders = spell(ResourceType.TOPIC, "orders")
    access = world.caller().access
    found = await world.overview.who("one", Operation.ALTER_CONFIGS, orders, access)
    assert [(each.principal, each.grant) for each in found] == [
        ("Group:ops", by_role),
        ("User:alice", by_prefix),
        ("User:bob", denied),
    ]
    for_all = await world.give(deny("User:*", Operation.ALTER_CONFIGS, ResourceType.TOPIC, "orders"))
    found = await world.overview.who("one", Operation.ALTER_CONFIGS, orders, access)
    assert {each.grant for each in found} == {for_all}
    with pytest.raises(ForbiddenError, match="DESCRIBE on grants of all clusters"):
        await world.overview.who("one", Operation.ALTER_CONFIGS, orders, world.caller(await world.user("x")).access)


def test_a_role_is_expanded_into_its_rights() -> None:
    grant = Grant(uuid7(), "User:a", role=Role.APPLICATION, resource=ResourceType.USER, name="pay", pattern=PREFIXED)
    (right,) = rights_of(grant)
    assert (right.operation, right.resource, right.pattern, right.name) == (
        Operation.RESOLVE,
        ResourceType.USER,
        PREFIXED,
        "pay",
    )
    rights = rights_of(Grant(uuid7(), "User:a", role=Role.ADMIN))
    assert {(right.operation, right.resource) for right in rights} == {(Operation.ALL, kind) for kind in OPERATIONS}
    assert [(right.operation, right.name) for right in own_rights("User:a")] == [(Operation.RESOLVE, "a")]


@pytest.mark.parametrize(
    ("part", "text"),
    [
        (named(ResourceType.USER, PatternType.LITERAL, "pay"), "user=pay"),
        (named(ResourceType.USER, PatternType.LITERAL, "*"), "every named user"),
        (named(ResourceType.USER, PREFIXED, "pay"), "every user that begins with pay"),
        (whole(ResourceType.USER), "every user"),
        (("user", "user="), "user"),
        (("", "\x7f"), "every resource"),
        (("user=pay-", "user=pay\x7f"), "every user from user=pay on"),
    ],
)
def test_ranges_in_words(part: tuple[str, str], text: str) -> None:
    assert described(*part) == text
