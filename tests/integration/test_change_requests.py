"""Change requests on real stores: applied once, as they were approved, by two people."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from datetime import timedelta
from typing import TYPE_CHECKING, Any, Final

import pytest

from confplane.api.change_requests.render import summary, whole
from confplane.audit import PostgresChangeRequests, PostgresFeedTrail
from confplane.domain.access.identities import Authentication, Identity
from confplane.domain.access.operations import Operation, ResourceType, Role
from confplane.domain.change_requests import RequestAction, RequestState
from confplane.domain.entities import Entity
from confplane.domain.errors import (
    BodyTooLargeError,
    ConfplaneError,
    ForbiddenError,
    InvalidRequestError,
    NotFoundError,
    RequestStateError,
    StalePlanError,
)
from confplane.domain.etags import Precondition
from confplane.domain.facets import FacetName
from confplane.policy.loading import read_policy
from confplane.services.access_admin.tokens import NewToken
from confplane.services.changes.freeze import FreezeService
from confplane.services.ports.feed import LAST_NUMBER
from confplane.services.requests.participants import Participants
from confplane.services.requests.proposals import RequestTerms
from tests.audit.rows import fetch, past_the_trigger
from tests.support.access_world import ADMINISTRATOR, allow, deny
from tests.support.alerts import PartAlerts
from tests.support.change_requests import Requests
from tests.support.reverting import now
from tests.support.stores import ALICE, content, kafka_writes, soon, until

if TYPE_CHECKING:
    from pathlib import Path

    from confplane.services.ports.change_requests import ChangeRequest
    from tests.support.world import World

BOB: Final = Entity.of(user="bob")
HOUR: Final = timedelta(hours=1)
DEV: Final = Identity("User:dev", Authentication.OIDC, issuer="https://idp.example.com")
OPS: Final = Identity("User:ops", Authentication.OIDC, issuer="https://idp.example.com")
SRE: Final = Identity("User:sre", Authentication.CERTIFICATE)


async def started(world: World, **cluster: Any) -> Requests:
    """A process with a developer who may propose, and two operators who may alter as well."""
    one = Requests(await world.replica(**cluster))
    for operation in (Operation.DESCRIBE_CONFIGS, Operation.PROPOSE):
        await one.access.give(allow("User:dev", operation, ResourceType.CLUSTER))
    await one.access.user("ops", Role.OPERATOR)
    await one.access.user("sre", Role.OPERATOR)
    return one


async def another(world: World, first: Requests) -> Requests:
    """Another process on the same stores."""
    other = Requests(await world.replica())
    other.ahead = first.ahead
    await other.access.book.refresh()
    return other


async def test_a_request_is_applied_as_it_was_approved_and_the_trail_names_it(world: World) -> None:
    one = await started(world)
    await one.replica.alter(ALICE, producer_byte_rate=1)
    request = await one.propose(DEV, one.entry(ALICE, producer_byte_rate=2), one.entry(BOB, request_percentage=5))
    assert (request.state, request.entity_ids) == (RequestState.OPEN, (ALICE.id, BOB.id))
    with pytest.raises(RequestStateError):
        await one.apply(request, OPS)
    assert (await one.approve(request, OPS)).state is RequestState.APPROVED
    applied = await one.apply(request, DEV)
    assert applied == await one.found(request)
    assert (await now(one.replica, ALICE), await now(one.replica, BOB)) == (
        {"producer_byte_rate": "2"},
        {"request_percentage": "5.0"},
    )
    [change] = await one.changes(request)
    assert (applied.state, applied.change_id) == (RequestState.APPLIED, change.intent.change_id)
    assert (change.intent.principal, change.intent.reason, change.intent.ticket) == ("User:dev", "more load", "CHG-1")
    assert await one.apply(request, DEV) == applied
    assert await one.actions(request) == ["open", "approve", "begin", "finish"]


async def test_an_approver_whom_another_process_does_not_know_yet_counts(world: World) -> None:
    one = await started(world)
    two = await another(world, one)
    new = await one.access.user("new", Role.OPERATOR)
    request = await one.approve(await one.propose(DEV, one.entry(ALICE, producer_byte_rate=2)), new)
    assert (await two.apply(request, DEV)).state is RequestState.APPLIED


async def test_a_change_in_between_opens_the_request_again_and_shows_the_differences(world: World) -> None:
    one = await started(world)
    request = await one.propose(DEV, one.entry(ALICE, producer_byte_rate=2), one.entry(BOB, request_percentage=5))
    await one.approve(request, OPS)
    await one.replica.alter(ALICE, producer_byte_rate=7)
    with pytest.raises(RequestStateError):
        await one.apply(request, OPS)
    opened = await one.found(request)
    assert (opened.state, opened.approvals) == (RequestState.OPEN, ())
    [difference] = opened.differences
    assert (difference["entity"], difference["keys"]) == (
        ALICE.id,
        [{"key": "producer_byte_rate", "decided": None, "now": "7"}],
    )
    assert await now(one.replica, BOB) == {}
    with pytest.raises(RequestStateError):
        await one.approve(opened, OPS)
    revised = await one.service.proposals.revise(
        one.cluster, request.id, None, one.caller(DEV), Precondition(), validate_only=False
    )
    assert (revised.revision, revised.state, revised.differences) == (2, RequestState.OPEN, ())
    with pytest.raises(StalePlanError):
        await one.approve(opened, OPS)
    await one.approve(revised, OPS)
    assert (await one.apply(revised, OPS)).state is RequestState.APPLIED
    assert await now(one.replica, ALICE) == {"producer_byte_rate": "2"}


async def test_a_write_by_kafkas_tools_in_between_opens_the_request_again(world: World) -> None:
    one = await started(world)
    request = await one.propose(DEV, one.entry(ALICE, producer_byte_rate=2))
    await one.approve(request, OPS)
    kafka_writes(world.zk, ALICE.path, content(consumer_byte_rate="9"))
    await one.replica.store.catch_up(soon())
    with pytest.raises(RequestStateError):
        await one.apply(request, OPS)
    assert await one.state(request) is RequestState.OPEN


def for_user(identity: Identity, user: str) -> Identity:
    """A portal that acts for a user."""
    return replace(identity, behalf_of=Identity(f"User:{user}", Authentication.BEHALF))


PORTAL: Final = Identity("User:portal", Authentication.CERTIFICATE)


@pytest.mark.parametrize(
    ("author", "approver", "accepted"),
    [
        (DEV, OPS, True),
        (OPS, OPS, False),
        (OPS, replace(OPS, kind=Authentication.CERTIFICATE), False),
        (OPS, SRE, True),
        (for_user(PORTAL, "ops"), OPS, False),
        (for_user(PORTAL, "ops"), PORTAL, False),
        (for_user(PORTAL, "ops"), for_user(PORTAL, "sre"), False),
        (for_user(PORTAL, "ops"), SRE, True),
        (OPS, for_user(PORTAL, "ops"), False),
        (OPS, for_user(PORTAL, "sre"), True),
        (OPS, ADMINISTRATOR, False),
        (ADMINISTRATOR, OPS, True),
        (ADMINISTRATOR, ADMINISTRATOR, False),
    ],
    ids=lambda each: each if isinstance(each, bool) else f"{each.principal}-for-{each.acts_for}",
)
async def test_another_person_than_the_author_approves(
    world: World, author: Identity, approver: Identity, *, accepted: bool
) -> None:
    one = await started(world)
    await one.access.user("portal", Role.OPERATOR)
    request = await one.propose(author, one.entry(ALICE, producer_byte_rate=2))
    if accepted:
        assert (await one.approve(request, approver)).state is RequestState.APPROVED
    else:
        with pytest.raises(ForbiddenError):
            await one.approve(request, approver)
        assert await one.state(request) is RequestState.OPEN


async def new_token(one: Requests, principal: str, by: Identity = ADMINISTRATOR, **more: Any) -> Identity:
    """The identity of a new token."""
    made = await one.access.tokens.create(NewToken(principal, **more), one.access.caller(by))
    await one.access.book.refresh()
    identity = one.access.book.authenticate((made.text or "").encode())
    assert identity is not None
    return identity


async def test_the_owner_and_the_makers_of_a_token_count_as_its_principal(world: World) -> None:
    one = await started(world)
    for name in ("ops", "portal"):
        await one.access.user(name, Role.OPERATOR, allow(f"User:{name}", Operation.ALTER, ResourceType.TOKENS))
    await one.access.user("robot", Role.OPERATOR)
    own, made = await new_token(one, "User:ops"), await new_token(one, "User:robot", by=OPS, owner="someone")
    owned, free = await new_token(one, "User:robot", owner="User:ops"), await new_token(one, "User:robot")
    by_portal = await new_token(one, "User:robot", by=for_user(PORTAL, "ops"))
    for author, approver in ((OPS, own), (OPS, made), (made, OPS), (OPS, owned), (owned, made), (OPS, by_portal)):
        request = await one.propose(author, one.entry(ALICE, producer_byte_rate=2))
        with pytest.raises(ForbiddenError):
            await one.approve(request, approver)
    request = await one.propose(OPS, one.entry(ALICE, producer_byte_rate=2))
    assert (await one.approve(request, free)).state is RequestState.APPROVED


async def test_a_trial_of_an_application_judges_the_approvals_as_the_application_does(
    world: World, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "policy.yaml"
    rule = "rules: [{name: leads, match: {names: {user: alice}}, approvals: {count: 1}}]"
    path.write_text(rule)
    one = await started(world, policy_file=path)
    refreshes = 0
    refresh = Participants.refresh

    async def counted(participants: Participants) -> None:
        nonlocal refreshes
        refreshes += 1
        await refresh(participants)

    monkeypatch.setattr(Participants, "refresh", counted)
    request = await one.propose(DEV, one.entry(ALICE, producer_byte_rate=2))
    await one.approve(request, OPS, SRE)
    assert refreshes == 2

    async def trial() -> ChangeRequest:
        return await one.service.apply(one.cluster, request.id, {}, one.caller(DEV), validate_only=True)

    approved = await one.found(request)
    assert (await trial(), refreshes) == (approved, 3)
    path.write_text(rule.replace("count: 1", "count: 3"))
    one.replica.parts.policies["default"].replace_rules(read_policy(path))
    with pytest.raises(RequestStateError, match="rule 'leads' asks for 3 approvals"):
        await trial()
    path.write_text(rule)
    one.replica.parts.policies["default"].replace_rules(read_policy(path))
    for name in ("ops", "sre"):
        await one.access.give(deny(f"User:{name}", Operation.ALTER_CONFIGS, ResourceType.USER, "alice"))
    with pytest.raises(RequestStateError, match="No approver may alter"):
        await trial()
    await one.replica.alter(ALICE, producer_byte_rate=9)
    with pytest.raises(RequestStateError, match="was changed after"):
        await trial()
    assert await one.found(request) == approved


async def test_a_revoked_token_and_a_lost_grant_count_no_more_when_the_request_is_applied(world: World) -> None:
    one = await started(world)
    token = await new_token(one, "User:ops")
    request = await one.propose(DEV, one.entry(ALICE, producer_byte_rate=2))
    await one.approve(request, token, SRE)
    assert token.token_id is not None
    await one.access.tokens.revoke(token.token_id, one.access.caller())
    await one.access.book.refresh()
    await one.access.give(deny("User:sre", Operation.ALTER_CONFIGS, ResourceType.USER, "alice"))
    with pytest.raises(RequestStateError):
        await one.apply(request, DEV)
    opened = await one.found(request)
    assert (opened.state, opened.approvals) == (RequestState.OPEN, ())
    await one.approve(request, OPS)
    await one.access.give(deny("User:dev", Operation.PROPOSE, ResourceType.USER, "alice"))
    with pytest.raises(RequestStateError, match="the author"):
        await one.apply(request, OPS)
    assert await one.changes(request) == []


async def test_an_author_who_may_not_propose_any_more_or_whose_token_is_revoked_blocks_the_request(
    world: World,
) -> None:
    one = await started(world)
    token = await new_token(one, "User:dev")
    first, second = [await one.propose(token, one.entry(user, producer_byte_rate=2)) for user in (ALICE, BOB)]
    await one.approve(first, OPS)
    await one.approve(second, OPS)
    await one.access.give(deny("User:dev", Operation.PROPOSE, ResourceType.USER, "alice"))
    with pytest.raises(RequestStateError, match="may not propose"):
        await one.apply(first, OPS)
    assert token.token_id is not None
    await one.access.tokens.revoke(token.token_id, one.access.caller())
    await one.access.book.refresh()
    with pytest.raises(RequestStateError, match="may not propose"):
        await one.apply(second, OPS)
    assert (await one.changes(first), await one.changes(second)) == ([], [])


async def test_an_approval_counts_after_its_token_has_expired_and_not_after_its_revocation(world: World) -> None:
    one = await started(world)
    expiring, revoked = await new_token(one, "User:ops"), await new_token(one, "User:ops")
    requests = [await one.propose(DEV, one.entry(user, producer_byte_rate=2)) for user in (ALICE, BOB)]
    for request, token in zip(requests, (expiring, revoked), strict=True):
        await one.approve(request, token)
    assert expiring.token_id is not None
    assert revoked.token_id is not None
    found = await one.access.store.find_token(expiring.token_id)
    assert found is not None
    await one.access.tokens.revoke(revoked.token_id, one.access.caller())
    one.ahead = found.expires_at - one.now() + timedelta(seconds=1)
    assert [len(await one.service._participants.counting(await one.found(each))) for each in requests] == [1, 0]


async def _of_one_user(one: Requests, name: str, operation: Operation, user: str) -> Identity:
    """Somebody who may see everything, and run an operation on one user."""
    await one.access.give(allow(f"User:{name}", Operation.DESCRIBE_CONFIGS, ResourceType.CLUSTER))
    await one.access.give(allow(f"User:{name}", operation, ResourceType.USER, user))
    return Identity(f"User:{name}", Authentication.CERTIFICATE)


async def test_every_entity_needs_an_approver_who_may_alter_it(world: World) -> None:
    one = await started(world)
    users = (("first", "alice"), ("second", "bob"))
    people = [await _of_one_user(one, name, Operation.ALTER_CONFIGS, user) for name, user in users]
    request = await one.propose(DEV, one.entry(ALICE, producer_byte_rate=2), one.entry(BOB, producer_byte_rate=2))
    assert (await one.approve(request, people[0])).state is RequestState.OPEN
    assert (await one.approve(request, people[1])).state is RequestState.APPROVED
    reader = Identity("User:reader", Authentication.CERTIFICATE)
    await one.access.user("reader", Role.VIEWER)
    with pytest.raises(ForbiddenError):
        await one.approve(request, reader)
    with pytest.raises(NotFoundError):
        await one.approve(request, Identity("User:stranger", Authentication.CERTIFICATE))
    with pytest.raises(ForbiddenError):
        await one.propose(reader, one.entry(ALICE, producer_byte_rate=3))


async def test_the_rules_decide_how_many_approve_and_who_also_when_the_request_is_applied(
    world: World, tmp_path: Path
) -> None:
    path = tmp_path / "policy.yaml"
    rule = "rules: [{name: leads, match: {names: {user: alice}}, approvals: {count: 1, from: 'Group:leads'}}]"
    path.write_text(rule)
    one = await started(world, policy_file=path)
    lead = replace(SRE, groups=frozenset({"Group:leads"}))
    request = await one.propose(DEV, one.entry(ALICE, producer_byte_rate=2))
    assert ([each.rule for each in request.requirements[ALICE.id]], request.warnings) == (["leads"], ())
    assert (await one.approve(request, OPS)).state is RequestState.OPEN
    assert (await one.approve(request, lead)).state is RequestState.APPROVED
    path.write_text(rule.replace("count: 1", "count: 2"))
    one.replica.parts.policies["default"].replace_rules(read_policy(path))
    with pytest.raises(RequestStateError, match="rule 'leads' asks for 2 approvals"):
        await one.apply(request, DEV)
    opened = await one.found(request)
    assert (opened.state, len(opened.approvals)) == (RequestState.OPEN, 2)
    path.write_text(rule)
    one.replica.parts.policies["default"].replace_rules(read_policy(path))
    await one.approve(request, lead)
    assert (await one.apply(request, DEV)).state is RequestState.APPLIED


async def test_a_request_shows_which_rule_asks_for_how_many_approvals_from_whom_and_who_gave_them(
    world: World, tmp_path: Path
) -> None:
    path = tmp_path / "policy.yaml"
    path.write_text(
        "rules: [{name: two, match: {types: user}, approvals: {count: 2}},"
        " {name: leads, match: {names: {user: alice}}, approvals: {count: 1, from: [Group:leads, User:olga]}}]"
    )
    one = await started(world, policy_file=path)
    of_bob = await _of_one_user(one, "other", Operation.ALTER_CONFIGS, "bob")
    request = await one.propose(DEV, one.entry(ALICE, producer_byte_rate=2), one.entry(BOB, producer_byte_rate=2))

    async def shown() -> list[tuple[Any, ...]]:
        rules = whole(one.cluster, await one.found(request), ())["approvalRules"]
        return [
            (
                *(each[name] for name in ("rule", "count", "approvers", "entities")),
                [by["principal"] for by in each["given"]],
                each["missing"],
            )
            for each in rules
        ]

    leads = ["Group:leads", "User:olga"]
    assert await shown() == [
        ("two", 2, ["*"], [ALICE.id, BOB.id], [], 2),
        ("leads", 1, leads, [ALICE.id], [], 1),
    ]
    await one.approve(request, replace(SRE, groups=frozenset({"Group:leads"})), of_bob)
    assert sorted(await shown(), key=str) == [
        ("leads", 1, leads, [ALICE.id], ["User:sre"], 0),
        ("two", 2, ["*"], [ALICE.id], ["User:sre"], 1),
        ("two", 2, ["*"], [BOB.id], ["User:sre", "User:other"], 0),
    ]


async def test_an_approver_who_may_not_alter_an_entity_does_not_count_for_its_rules(
    world: World, tmp_path: Path
) -> None:
    path = tmp_path / "policy.yaml"
    path.write_text("rules: [{name: two, match: {names: {user: alice}}, approvals: {count: 2}}]")
    one = await started(world, policy_file=path)
    other = await _of_one_user(one, "other", Operation.ALTER_CONFIGS, "bob")
    request = await one.propose(DEV, one.entry(ALICE, producer_byte_rate=2), one.entry(BOB, producer_byte_rate=2))
    assert (await one.approve(request, OPS, other)).state is RequestState.OPEN
    [shown] = summary(await one.found(request))["requirements"]
    assert shown == "rule 'two' asks for 2 approvals"
    approved = await one.approve(request, SRE)
    assert (approved.state, len(approved.approvals)) == (RequestState.APPROVED, 3)
    await one.access.give(deny("User:sre", Operation.ALTER_CONFIGS, ResourceType.USER, "alice"))
    with pytest.raises(RequestStateError, match="rule 'two' asks for 2 approvals"):
        await one.apply(request, DEV)
    assert await one.state(request) is RequestState.OPEN
    assert (await now(one.replica, ALICE), await now(one.replica, BOB)) == ({}, {})


async def test_nobody_takes_over_a_request_of_entities_that_they_may_not_propose_changes_of(world: World) -> None:
    one = await started(world)
    stranger = await _of_one_user(one, "stranger", Operation.PROPOSE, "bob")
    request = await one.propose(DEV, one.entry(ALICE, producer_byte_rate=2))

    await one.access.user("portal", Role.OPERATOR)
    of_portal = await one.propose(for_user(PORTAL, "ops"), one.entry(ALICE, producer_byte_rate=2))

    async def revise(by: Identity, other: ChangeRequest = request) -> ChangeRequest:
        entries = [one.entry(BOB, producer_byte_rate=3)]
        return await one.service.proposals.revise(one.cluster, other.id, entries, one.caller(by), Precondition())

    for by, other in ((stranger, request), (for_user(PORTAL, "stranger"), of_portal)):
        with pytest.raises(ForbiddenError, match="alice"):
            await revise(by, other)
        with pytest.raises(ForbiddenError):
            await one.service.reviews.cancel(one.cluster, other.id, None, one.caller(by))
        assert await one.found(other) == other
    await one.access.give(allow("User:stranger", Operation.ALTER, ResourceType.CHANGE_REQUESTS, "User:dev"))
    revised = await revise(stranger)
    assert (revised.entity_ids, len(revised.authors)) == ((BOB.id,), 2)
    assert (await revise(OPS)).authors[-1].identity == OPS
    await one.access.give(deny("User:dev", Operation.PROPOSE, ResourceType.USER, "alice"))
    assert (await revise(DEV)).authors[-1].identity == DEV


async def test_requests_end_without_a_change(world: World) -> None:
    one = await started(world)
    rejected, cancelled, expired = [
        await one.propose(DEV, one.entry(ALICE, producer_byte_rate=number), expires_at=one.now() + HOUR)
        for number in (1, 2, 3)
    ]
    reviews = one.service.reviews
    with pytest.raises(ForbiddenError):
        await reviews.reject(one.cluster, rejected.id, None, one.caller(DEV))
    await reviews.reject(one.cluster, rejected.id, "too much", one.caller(SRE))
    with pytest.raises(ForbiddenError):
        await reviews.cancel(one.cluster, cancelled.id, None, one.caller(SRE))
    await reviews.comment(one.cluster, cancelled.id, "not needed any more", one.caller(DEV))
    await reviews.cancel(one.cluster, cancelled.id, None, one.caller(DEV))
    await one.approve(expired, OPS)
    one.ahead = 2 * HOUR
    with pytest.raises(RequestStateError, match="expired"):
        await one.apply(expired, OPS)
    await one.scheduler.round()
    states = [await one.state(each) for each in (rejected, cancelled, expired)]
    assert states == [RequestState.REJECTED, RequestState.CANCELLED, RequestState.EXPIRED]
    for each in (rejected, cancelled, expired):
        with pytest.raises(RequestStateError):
            await one.apply(each, OPS)
        with pytest.raises(RequestStateError):
            await one.approve(each, OPS)
    assert await one.actions(cancelled) == ["open", "comment", "cancel"]
    assert await now(one.replica, ALICE) == {}


async def test_a_scheduled_request_is_applied_at_its_time_or_expires(world: World) -> None:
    one = await started(world)
    times = {"apply_at": one.now() + HOUR, "expires_at": one.now() + 3 * HOUR}
    first, second = [await one.propose(DEV, one.entry(user, producer_byte_rate=2), **times) for user in (ALICE, BOB)]
    assert (await one.approve(first, OPS)).state is RequestState.SCHEDULED
    await one.pass_(HOUR / 2)
    assert await one.state(first) is RequestState.SCHEDULED
    for validate_only in (True, False):
        with pytest.raises(RequestStateError, match="not earlier"):
            await one.service.apply(one.cluster, first.id, {}, one.caller(DEV), validate_only=validate_only)
    freezes = FreezeService(one.replica.parts.runner)
    await freezes.freeze(one.replica.store, "upgrade", one.caller(ADMINISTRATOR))
    await one.pass_(HOUR)
    delayed = await one.found(first)
    assert (delayed.state, "upgrade" in (delayed.error or "")) == (RequestState.SCHEDULED, True)
    await freezes.thaw(one.replica.store, "done", one.caller(ADMINISTRATOR))
    await one.pass_(HOUR / 2)
    assert await one.state(first) is RequestState.APPLIED
    assert {sample.labels: sample.value for sample in one.scheduler.metrics() if sample.name == "change_requests"}[
        "default", "open"
    ] == 1
    await one.pass_(2 * HOUR)
    assert await one.state(second) is RequestState.EXPIRED
    assert (await now(one.replica, ALICE), await now(one.replica, BOB)) == ({"producer_byte_rate": "2"}, {})


async def test_texts_about_an_earlier_content_are_shown_to_those_who_may_see_it(world: World) -> None:
    one = await started(world)
    request = await one.propose(DEV, one.entry(ALICE, producer_byte_rate=2), one.entry(BOB, producer_byte_rate=2))
    await one.service.reviews.comment(one.cluster, request.id, "bob is too slow", one.caller(OPS))
    entries = [one.entry(ALICE, producer_byte_rate=2)]
    caller = one.caller(DEV, reason="alice alone")
    revised = await one.service.proposals.revise(one.cluster, request.id, entries, caller, Precondition())
    await one.access.give(allow("User:part", Operation.DESCRIBE_CONFIGS, ResourceType.USER, "alice"))
    texts = {
        name: [
            each.text
            for each in await one.service.reader.visible_events(
                revised, one.caller(Identity(name, Authentication.CERTIFICATE)).access
            )
        ]
        for name in ("User:part", "User:ops")
    }
    assert texts == {
        "User:part": [None, None, "alice alone"],
        "User:ops": ["more load", "bob is too slow", "alice alone"],
    }


async def test_a_request_that_waits_for_a_thaw_is_written_once(world: World) -> None:
    one = await started(world)
    times = {"apply_at": one.now() + HOUR, "expires_at": one.now() + 3 * HOUR}
    request = await one.approve(await one.propose(DEV, one.entry(ALICE, producer_byte_rate=2), **times), OPS)
    freezes = FreezeService(one.replica.parts.runner)
    await freezes.freeze(one.replica.store, "upgrade", one.caller(ADMINISTRATOR))
    await one.pass_(HOUR)
    delayed = await one.found(request)
    assert (delayed.state, await one.actions(request)) == ("scheduled", ["open", "approve", "begin", "delay"])
    for _ in range(5):
        await one.pass_(timedelta(minutes=2))
    assert await one.found(request) == delayed
    # Another reason is written.
    await freezes.thaw(one.replica.store, "done", one.caller(ADMINISTRATOR))
    await freezes.freeze(one.replica.store, "another upgrade", one.caller(ADMINISTRATOR))
    await one.pass_(timedelta(minutes=2))
    assert "another upgrade" in ((await one.found(request)).error or "")
    await freezes.thaw(one.replica.store, "done", one.caller(ADMINISTRATOR))
    await one.pass_(timedelta(minutes=2))
    applied = await one.found(request)
    assert (applied.state, applied.error) == ("applied", None)


async def test_the_age_of_the_oldest_open_request_of_each_kind_is_a_metric(world: World) -> None:
    one = await started(world)

    async def ages() -> dict[str, int]:
        await one.pass_(HOUR)
        samples = [each for each in one.scheduler.metrics() if each.name == "change_requests_oldest_open_seconds"]
        return {each.labels[1]: int(str(each.value).partition(".")[0]) // 3600 for each in samples}

    assert await ages() == {"change": 0, "break-glass": 0}
    first = await one.propose(DEV, one.entry(ALICE, producer_byte_rate=2))
    glass = await one.service.open_break_glass(one.cluster, [BOB.id], one.caller(OPS, break_glass="an outage"))
    assert await ages() == {"change": 1, "break-glass": 1}
    second = await one.propose(DEV, one.entry(ALICE, producer_byte_rate=3))
    assert await ages() == {"change": 2, "break-glass": 2}
    alerts = PartAlerts(one.scheduler)
    assert alerts.scrape() == set()
    one.ahead += 3 * HOUR
    assert alerts.scrape() == {"GlassNotAcknowledged"}
    one.ahead += 45 * HOUR
    assert alerts.scrape() == {"GlassNotAcknowledged", "ChangeRequestWaits"}
    one.ahead -= 48 * HOUR
    await one.approve(first, OPS)
    await one.approve(glass, SRE)
    assert await ages() == {"change": 2, "break-glass": 0}
    await one.approve(second, OPS)
    assert await ages() == {"change": 0, "break-glass": 0}


async def test_a_request_that_does_not_fit_into_one_transaction_is_refused_when_it_is_proposed(world: World) -> None:
    one = await started(world)
    users = [Entity.of(user=f"{number:04}-" + "u" * 200) for number in range(1_000)]
    with pytest.raises(BodyTooLargeError, match="ZooKeeper transaction"):
        await one.propose(DEV, *(one.entry(user, producer_byte_rate=2) for user in users))
    page = await one.service.reader.page("default", one.caller(ADMINISTRATOR).access, state=None, before=None, size=9)
    assert page.requests == []


async def test_a_scheduled_request_is_revised_and_applied_after_its_time(world: World) -> None:
    one = await started(world)
    for apply_at in (one.now() - HOUR, one.now() + 1_000 * HOUR):
        with pytest.raises(InvalidRequestError, match="applyAt"):
            await one.propose(
                DEV, one.entry(ALICE, producer_byte_rate=2), apply_at=apply_at, expires_at=one.now() + HOUR
            )
    request = await one.propose(DEV, one.entry(ALICE, producer_byte_rate=2), apply_at=one.now() + HOUR)
    await one.approve(request, OPS)
    await one.replica.alter(ALICE, producer_byte_rate=7)
    await one.pass_(2 * HOUR)
    assert await one.state(request) is RequestState.OPEN
    revised = await one.service.proposals.revise(one.cluster, request.id, None, one.caller(DEV), Precondition())
    assert (await one.approve(revised, OPS)).state is RequestState.SCHEDULED
    await one.pass_(HOUR)
    assert (await one.state(request), await now(one.replica, ALICE)) == (
        RequestState.APPLIED,
        {"producer_byte_rate": "2"},
    )


async def test_a_revision_replaces_the_times_that_it_names_and_no_others(world: World) -> None:
    one = await started(world)
    at, end = one.now() + HOUR, one.now() + 5 * HOUR
    request = await one.propose(DEV, one.entry(ALICE, producer_byte_rate=2), apply_at=at, expires_at=end)
    approved = await one.approve(request, OPS)

    async def revise(**times: Any) -> ChangeRequest:
        return await one.service.proposals.revise(
            one.cluster, request.id, None, one.caller(DEV), Precondition(), times=times
        )

    for wrong in ({"apply_at": one.now() - HOUR}, {"apply_at": end}, {"expires_at": at}, {"expires_at": one.now()}):
        with pytest.raises(InvalidRequestError, match=r"applyAt|expiresAt"):
            await revise(**wrong)
    assert await one.found(request) == approved
    digests = {request.digest}
    steps: tuple[tuple[dict[str, Any], Any], ...] = (
        ({"apply_at": at + HOUR}, (at + HOUR, end)),
        ({"expires_at": end + HOUR}, (at + HOUR, end + HOUR)),
        ({}, (at + HOUR, end + HOUR)),
        ({"apply_at": None}, (None, end + HOUR)),
    )
    for times, expected in steps:
        revised = await revise(**times)
        assert revised == await one.found(request)
        assert ((revised.apply_at, revised.expires_at), revised.state, revised.approvals) == (expected, "open", ())
        digests.add(revised.digest)
    assert len(digests) == 4, "an approval is given for the times as well"
    with pytest.raises(StalePlanError):
        await one.approve(request, OPS)
    assert (await one.approve(revised, OPS)).state is RequestState.APPROVED
    by_default = (await revise(expires_at=None)).expires_at
    assert by_default is not None
    assert (by_default - one.now()) // (24 * HOUR) in {6, 7}


async def test_an_unexpected_error_of_one_request_does_not_stop_the_others_and_is_attempted_again(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    one = await started(world)
    at = one.now() + HOUR
    first, second = [
        await one.propose(DEV, one.entry(user, producer_byte_rate=2), apply_at=at) for user in (ALICE, BOB)
    ]
    for each in (first, second):
        await one.approve(each, OPS)
    attempts = one.store.attempts

    async def failing(_store: Any, request_id: Any) -> Any:
        if request_id == first.id:
            raise ValueError
        return await attempts(request_id)

    with monkeypatch.context() as patch:
        patch.setattr(PostgresChangeRequests, "attempts", failing)
        await one.pass_(HOUR)
        assert await one.state(second) is RequestState.APPLIED
    await one.pass_(timedelta(minutes=2))
    assert await one.state(first) is RequestState.SCHEDULED
    await one.pass_(timedelta(minutes=2))
    assert await one.state(first) is RequestState.APPLIED


async def test_two_processes_at_once_apply_a_request_once(world: World) -> None:
    one = await started(world)
    other = await another(world, one)
    users = [Entity.of(user=f"u{number}") for number in range(10)]
    requests = [await one.propose(DEV, one.entry(user, producer_byte_rate=2)) for user in users]
    for request in requests:
        await one.approve(request, OPS)
    results = await asyncio.gather(
        *(each.apply(request, OPS) for request in requests for each in (one, other)), return_exceptions=True
    )
    assert all(not isinstance(each, BaseException) or isinstance(each, ConfplaneError) for each in results)
    assert [len(await one.changes(request)) for request in requests] == [1] * len(requests)
    assert {await one.state(request) for request in requests} == {RequestState.APPLIED}


@pytest.mark.parametrize("step", ["begin", "intend", "commit", "conclude", "finish"])
async def test_an_application_that_was_interrupted_at_a_step_is_completed_once_or_given_back(
    world: World, monkeypatch: pytest.MonkeyPatch, step: str
) -> None:
    one = await started(world, session_timeout_ms=4_000)
    request = await one.propose(DEV, one.entry(ALICE, producer_byte_rate=2))
    await one.approve(request, OPS)

    class Interrupted(Exception):  # noqa: N818 - a process that is killed
        pass

    target: Any = {"intend": one.replica.audit, "commit": one.replica.store, "conclude": one.replica.audit}.get(
        step, one.service._transitions
    )
    name = "move" if target is one.service._transitions else step
    call = getattr(target, name)

    async def killed(*given: Any, **named: Any) -> Any:
        if name == "move" and given[1] != step:
            return await call(*given, **named)
        if step not in {"conclude", "finish"}:
            await call(*given, **named)
        raise Interrupted

    with monkeypatch.context() as patch:
        patch.setattr(target, name, killed)
        with pytest.raises(Interrupted):
            await one.apply(request, OPS)
    assert await one.state(request) is RequestState.APPLYING
    other = await another(world, one)
    with pytest.raises(ConfplaneError):
        await other.apply(request, OPS)
    assert await other.state(request) is RequestState.APPLYING
    await world.stop_replicas(one.replica)

    async def given_back() -> bool:
        other.ahead += timedelta(minutes=2)
        await other.replica.reconcile()
        await other.scheduler.round()
        return await other.state(request) is not RequestState.APPLYING

    await until(given_back)
    is_committed = step in {"commit", "conclude", "finish"}
    assert await other.state(request) is (RequestState.APPLIED if is_committed else RequestState.APPROVED)
    assert (await other.apply(request, OPS)).state is RequestState.APPLIED
    [change] = await other.changes(request)
    assert (await other.found(request)).change_id == change.intent.change_id
    assert await now(other.replica, ALICE) == {"producer_byte_rate": "2"}
    # The feed has each event once, and knows the change that the last one follows.
    trail = PostgresFeedTrail(other.replica.parts.database)
    found = [each.request for each in await trail.requests("default", 0, LAST_NUMBER, 100)]
    shown = [each for each in found if each is not None and each.id == request.id]
    assert [each.type for each in shown] == ["proposed", "approved", "applied"]
    assert shown[-1].applied is not None
    assert shown[-1].applied.change_id == change.intent.change_id


async def _revise(one: Requests, request: ChangeRequest) -> None:
    await one.service.proposals.revise(one.cluster, request.id, None, one.caller(DEV), Precondition())


async def _cancel(one: Requests, request: ChangeRequest) -> None:
    await one.service.reviews.cancel(one.cluster, request.id, None, one.caller(DEV))


async def _reject(one: Requests, request: ChangeRequest) -> None:
    await one.service.reviews.reject(one.cluster, request.id, None, one.caller(SRE))


async def _expire(one: Requests, _request: ChangeRequest) -> None:
    await one.pass_(2 * HOUR)


async def _keep(_one: Requests, _request: ChangeRequest) -> None:
    pass


@pytest.mark.parametrize("is_killed", [False, True], ids=["lives", "killed"])
@pytest.mark.parametrize(
    ("recorded", "state"),
    [
        (_keep, RequestState.APPROVED),
        (_revise, RequestState.OPEN),
        (_cancel, RequestState.CANCELLED),
        (_reject, RequestState.REJECTED),
        (_expire, RequestState.EXPIRED),
    ],
)
async def test_a_change_of_a_process_that_was_paused_beyond_its_time_applies_the_request_whatever_was_recorded(
    world: World, monkeypatch: pytest.MonkeyPatch, recorded: Any, state: RequestState, *, is_killed: bool
) -> None:
    one = await started(world)
    other = await another(world, one)
    request = await one.propose(DEV, one.entry(ALICE, producer_byte_rate=2), expires_at=one.now() + HOUR)
    await one.approve(request, OPS)
    paused, continues = asyncio.Event(), asyncio.Event()
    intend, move = one.replica.audit.intend, one.service._transitions.move

    async def pause(*given: Any, **named: Any) -> Any:
        paused.set()
        await continues.wait()
        return await intend(*given, **named)

    async def end(*given: Any, **named: Any) -> Any:
        if is_killed and given[1] is RequestAction.FINISH:
            raise asyncio.CancelledError
        return await move(*given, **named)

    monkeypatch.setattr(one.replica.audit, "intend", pause)
    monkeypatch.setattr(one.service._transitions, "move", end)
    applying = asyncio.create_task(one.apply(request, OPS))
    await paused.wait()
    await other.pass_(timedelta(minutes=2))
    await recorded(other, request)
    assert await other.state(request) is state
    continues.set()
    [result] = await asyncio.gather(applying, return_exceptions=True)
    if is_killed:
        assert isinstance(result, asyncio.CancelledError)
        assert await other.state(request) is state
        await other.pass_(timedelta(minutes=2))
    applied = await other.found(request)
    [change] = await other.changes(request)
    assert (applied.state, applied.change_id) == (RequestState.APPLIED, change.intent.change_id)
    assert (await other.service.reader.events(applied))[-1].text == (
        f"The change was committed late; the request was {state} by then"
    )
    await other.pass_(timedelta(minutes=2))
    assert await other.apply(request, OPS) == applied
    assert await other.changes(request) == [change]


async def test_a_secret_is_nowhere_and_is_supplied_again_by_the_one_who_applies(world: World, tmp_path: Path) -> None:
    (tmp_path / "secret").write_text("encoder")
    one = await started(world, password_encoder={"secret_file": str(tmp_path / "secret")})
    broker, key, planted = Entity.of(broker="1"), "listener.name.internal.ssl.key.password", "hunter2-pl4nted"
    entry = one.entry(broker, FacetName.CONFIGS, **{key: planted})
    with pytest.raises(InvalidRequestError, match="applyAt"):
        await one.propose(SRE, entry, apply_at=one.now() + HOUR)
    request = await one.propose(SRE, entry)
    tables = ("change_requests", "change_request_revisions", "change_request_events")
    rows = [fetch(world.database.owner_dsn, f"SELECT to_jsonb(x)::text FROM {table} AS x") for table in tables]  # noqa: S608 - of this test
    assert [len(some) for some in rows] == [1, 1, 1]
    assert planted not in repr(rows) + repr(request)
    await one.approve(request, OPS)
    for supplied in ({}, {key: "another"}):
        with pytest.raises(InvalidRequestError) as refused:
            await one.apply(request, OPS, **supplied)
        assert planted not in refused.value.detail
    # A right and a wrong guess are refused alike, of the proposed value and of the one that is set.
    for guess in (planted, "another"):
        with pytest.raises(ForbiddenError, match="ALTER_CONFIGS"):
            await one.apply(request, DEV, **{key: guess})
    assert (await one.apply(request, OPS, **{key: planted})).state is RequestState.APPLIED
    for guess in (planted, "another"):
        with pytest.raises(ForbiddenError, match="ALTER_CONFIGS"):
            await one.propose(DEV, one.entry(broker, FacetName.CONFIGS, **{key: guess}))
    removal = await one.approve(await one.propose(DEV, one.entry(broker, FacetName.CONFIGS, **{key: None})), OPS)
    assert (await one.apply(removal, DEV)).state is RequestState.APPLIED


async def test_authors_of_other_contents_supply_no_password(world: World, tmp_path: Path) -> None:
    (tmp_path / "secret").write_text("encoder")
    one = await started(world, password_encoder={"secret_file": str(tmp_path / "secret")})
    broker, key = Entity.of(broker="1"), "listener.name.internal.ssl.key.password"
    revise, any_state = one.service.proposals.revise, Precondition()
    request = await one.propose(DEV, one.entry(broker, FacetName.CONFIGS, **{"log.cleaner.threads": "2"}))
    entry = one.entry(broker, FacetName.CONFIGS, **{key: "hunter2"})
    request = await revise(one.cluster, request.id, [entry], one.caller(SRE), any_state)
    with pytest.raises(ForbiddenError, match="ALTER_CONFIGS"):
        await revise(one.cluster, request.id, None, one.caller(DEV), any_state)
    await one.approve(request, OPS)
    for guess in ("hunter2", "another"):
        with pytest.raises(ForbiddenError, match="ALTER_CONFIGS"):
            await one.apply(request, DEV, **{key: guess})
    assert (await one.apply(request, SRE, **{key: "hunter2"})).state is RequestState.APPLIED


async def test_a_request_with_a_secret_gets_another_expiry_on_the_same_state_only(world: World, tmp_path: Path) -> None:
    (tmp_path / "secret").write_text("encoder")
    one = await started(world, password_encoder={"secret_file": str(tmp_path / "secret")})
    broker, key = Entity.of(broker="1"), "listener.name.internal.ssl.key.password"
    entry, other = one.entry(broker, FacetName.CONFIGS, **{key: "hunter2"}), Entity.of(broker="2")
    manifest = one.manifest(entry, one.entry(other, FacetName.CONFIGS, **{"log.cleaner.threads": "2"}))
    ada = replace(OPS, principal="User:ada")
    await one.access.user("ada", Role.OPERATOR)
    revise = one.service.proposals.revise
    made = {OPS: await one.propose(OPS, entry), SRE: await one.propose_manifest(SRE, manifest)}
    for author, request in made.items():
        later = one.now() + 24 * HOUR
        revised = await revise(
            one.cluster, request.id, None, one.caller(author), Precondition(), times={"expires_at": later}
        )
        assert (revised.expires_at, revised.draft, revised.digest != request.digest) == (later, request.draft, True)
        await one.approve(revised, ada)
    assert (await one.apply(revised, ada, **{key: "hunter2"})).state is RequestState.APPLIED
    [first] = list(
        await one.store.search("default", state=RequestState.APPROVED, before=None, most=10, entity_id=broker.id)
    )
    with pytest.raises(RequestStateError, match="was changed"):
        await revise(one.cluster, first.id, None, one.caller(OPS), Precondition())


async def test_a_change_past_the_rules_is_acknowledged_by_another_person(world: World) -> None:
    one = await started(world)
    request = await one.service.open_break_glass(one.cluster, [ALICE.id], one.caller(OPS, break_glass="an outage"))
    assert (request.reason, request.expires_at) == ("an outage", None)
    with pytest.raises(RequestStateError):
        await one.apply(request, OPS)
    with pytest.raises(RequestStateError):
        await one.service.reviews.cancel(one.cluster, request.id, None, one.caller(OPS))
    with pytest.raises(ForbiddenError):
        await one.approve(request, OPS)
    assert (await one.approve(request, SRE)).state is RequestState.ACKNOWLEDGED
    dropped = await one.service.open_break_glass(one.cluster, [ALICE.id], one.caller(OPS, break_glass="an outage"))
    await one.service.drop_break_glass(dropped)
    assert await one.state(dropped) is RequestState.CANCELLED


async def test_a_draft_is_proposed_later_and_nobody_is_asked_before(world: World) -> None:
    one = await started(world)
    caller = one.caller(DEV)
    draft = await one.service.proposals.create(
        one.cluster, [one.entry(ALICE, producer_byte_rate=2)], RequestTerms(), caller, draft=True
    )
    assert (draft.state, draft.expires_at) == (RequestState.DRAFT, None)
    assert await one.found(draft) == draft
    with pytest.raises(RequestStateError):
        await one.approve(draft, OPS)
    await one.service.reviews.comment(one.cluster, draft.id, "soon", one.caller(OPS))
    await one.pass_(timedelta(days=100))
    reviser = one.service.proposals
    again = await reviser.revise(one.cluster, draft.id, None, caller, Precondition(), draft=True)
    assert (again.state, again.revision) == (RequestState.DRAFT, 2)
    listed = await one.service.reader.page("default", caller.access, state=RequestState.DRAFT, before=None, size=10)
    assert [each.id for each in listed.requests] == [draft.id]
    proposed = await reviser.revise(one.cluster, draft.id, None, caller, Precondition())
    assert proposed.state is RequestState.OPEN
    assert proposed.expires_at is not None
    assert proposed.expires_at > one.now()
    with pytest.raises(RequestStateError):
        await reviser.revise(one.cluster, draft.id, None, caller, Precondition(), draft=True)
    await one.approve(proposed, OPS)
    assert (await one.apply(proposed, DEV)).state is RequestState.APPLIED
    events = await one.service.reader.events(draft)
    assert [(each.action, each.state) for each in events[:4]] == [
        ("draft", RequestState.DRAFT),
        ("comment", RequestState.DRAFT),
        ("redraft", RequestState.DRAFT),
        ("submit", RequestState.OPEN),
    ]
    dropped = await one.service.proposals.create(
        one.cluster, [one.entry(BOB, producer_byte_rate=2)], RequestTerms(), caller, draft=True
    )
    cancelled = await one.service.reviews.cancel(one.cluster, dropped.id, None, caller)
    assert (cancelled.state, await one.state(dropped)) == (RequestState.CANCELLED, RequestState.CANCELLED)
    read = await PostgresFeedTrail(one.replica.parts.database).requests("default", 0, LAST_NUMBER, 100)
    shown = [each.request for each in read if each.request is not None]
    assert shown[0].type == "proposed"
    assert {each.id for each in shown} == {draft.id}


@pytest.mark.parametrize("form", ["edits", "manifest"])
async def test_a_version_that_a_restored_zookeeper_uses_again_opens_the_request_again(world: World, form: str) -> None:
    one = await started(world)
    await one.replica.alter(ALICE, producer_byte_rate=1, consumer_byte_rate=1)
    entry = one.entry(ALICE, producer_byte_rate=2)
    request = await (
        one.propose(DEV, entry) if form == "edits" else one.propose_manifest(DEV, one.manifest(entry, merge=True))
    )
    await one.approve(request, OPS)
    # Another write of this version and this znode, as after a restore, differs from the approved one in its time.
    past_the_trigger(
        world.database.owner_dsn,
        "change_request_revisions",
        "UPDATE change_request_revisions"
        """ SET draft = CAST(regexp_replace(CAST(draft AS text), '"mtime": [0-9]+', '"mtime": 5', 'g') AS jsonb)""",
    )
    with pytest.raises(RequestStateError, match="was changed"):
        await one.apply(request, DEV)
    opened = await one.found(request)
    assert (opened.state, opened.approvals) == (RequestState.OPEN, ())
    assert [each["entity"] for each in opened.differences] == [ALICE.id]
    assert await now(one.replica, ALICE) == {"producer_byte_rate": "1", "consumer_byte_rate": "1"}
    revised = await one.service.proposals.revise(one.cluster, request.id, None, one.caller(DEV), Precondition())
    await one.approve(revised, OPS)
    assert (await one.apply(revised, DEV)).state is RequestState.APPLIED
    # Alters and merged manifests keep other keys.
    assert await now(one.replica, ALICE) == {"producer_byte_rate": "2", "consumer_byte_rate": "1"}
