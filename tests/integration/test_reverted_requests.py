"""Reverts of change requests on real stores: each is a request of its own, and the reverted one has its outcome."""

from __future__ import annotations

import asyncio
from contextlib import suppress
from dataclasses import replace
from datetime import timedelta
from typing import TYPE_CHECKING, Any
from unittest.mock import AsyncMock

import pytest

from confplane.audit import PostgresRequestKeys
from confplane.domain.access.identities import Authentication, Identity
from confplane.domain.access.operations import Operation, ResourceType, Role
from confplane.domain.change_requests import RequestAction, RequestState
from confplane.domain.errors import (
    ConcurrentChangeError,
    ForbiddenError,
    PolicyViolationError,
    RequestStateError,
    RevertConflictError,
    UnavailableError,
)
from confplane.domain.etags import Precondition
from confplane.policy.loading import read_policy
from confplane.services.changes.idempotency import IdempotencyService, RequestKey, RequestRun
from confplane.services.requests.proposals import RequestTerms
from confplane.services.requests.transitions import RequestTransitions
from tests.integration.test_change_requests import BOB, DEV, HOUR, OPS, SRE, another, started
from tests.support.access_world import allow
from tests.support.reverting import now
from tests.support.stores import ALICE, content, kafka_writes, soon

if TYPE_CHECKING:
    from pathlib import Path

    from confplane.services.changes.alter import Entry
    from confplane.services.ports.change_requests import ChangeRequest
    from tests.support.change_requests import Requests
    from tests.support.world import World

MINUTE = timedelta(minutes=1)


async def applied(one: Requests, *entries: Entry) -> ChangeRequest:
    """An applied request."""
    request = await one.propose(DEV, *entries)
    await one.approve(request, OPS)
    return await one.apply(request, DEV)


async def reverted(one: Requests, request: ChangeRequest, by: Identity = DEV, **options: Any) -> ChangeRequest:
    """Propose the revert of a request."""
    caller = one.caller(by, reason="harmful")
    return await one.service.reversals.revert(one.cluster, request.id, RequestTerms(), caller, **options)


async def test_a_revert_is_approved_by_another_person_and_ends_in_the_reverted_request(world: World) -> None:
    one = await started(world)
    kafka_writes(world.zk, ALICE.path, content(request_percentage="5"))
    await one.replica.store.catch_up(soon())
    first = await applied(one, one.entry(ALICE, request_percentage=9, producer_byte_rate=2))
    await one.access.user("reader", Role.VIEWER)
    with pytest.raises(ForbiddenError):
        await reverted(one, first, Identity("User:reader", Authentication.CERTIFICATE))
    trial = await reverted(one, first, validate_only=True)
    assert (trial.reverts, await one.found(first)) == (first.id, first)
    revert = await reverted(one, first)
    assert (revert.state, revert.reverts, revert.reverts_partly, revert.warnings) == ("open", first.id, False, ())
    found = await one.found(first)
    assert (found.state, found.reverted_by, found.change_id) == ("reverting", revert.id, first.change_id)
    with pytest.raises(RequestStateError):
        await reverted(one, first)
    with pytest.raises(ForbiddenError):
        await one.approve(revert, DEV)
    await one.approve(revert, OPS)
    await one.pass_(2 * MINUTE)
    assert await one.state(first) is RequestState.REVERTING
    ended = await one.apply(revert, DEV)
    found = await one.found(first)
    assert (ended.state, found.state, found.reverted_by) == ("applied", "reverted", revert.id)
    # The quota is stored in Confplane's spelling now, which is the same value.
    assert await now(one.replica, ALICE) == {"request_percentage": "5.0"}
    assert await one.actions(first) == ["open", "approve", "begin", "finish", "revert", "finish-revert"]
    [change] = await one.changes(revert)
    assert change.intent.reason == "harmful"
    assert await one.apply(first, DEV) == found
    with pytest.raises(RequestStateError):
        await reverted(one, first)
    await one.pass_(2 * MINUTE)
    assert await one.found(first) == found


@pytest.mark.parametrize("end", ["reject", "cancel", "expire"])
async def test_a_revert_that_ends_without_a_change_leaves_the_request_applied(world: World, end: str) -> None:
    one = await started(world)
    first = await applied(one, one.entry(ALICE, producer_byte_rate=2))
    revert = await reverted(one, first)
    reviews = one.service.reviews
    if end == "reject":
        await reviews.reject(one.cluster, revert.id, None, one.caller(SRE))
    elif end == "cancel":
        await reviews.cancel(one.cluster, revert.id, None, one.caller(DEV))
    else:
        await one.pass_(200 * HOUR)
    found = await one.found(first)
    assert (found.state, found.reverted_by, found.change_id) == ("applied", None, first.change_id)
    again = await reverted(one, first)
    assert (await one.found(first)).reverted_by == again.id
    assert await now(one.replica, ALICE) == {"producer_byte_rate": "2"}


@pytest.mark.parametrize("is_killed", [False, True])
async def test_a_revert_that_is_refused_leaves_the_request_applied_and_may_be_revised(
    world: World, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, *, is_killed: bool
) -> None:
    path = tmp_path / "policy.yaml"
    rule = "rules: [{name: closed, match: {names: {user: OTHER}}, protected: true}]"
    path.write_text(rule)
    one = await started(world, policy_file=path)
    first = await applied(one, one.entry(ALICE, producer_byte_rate=2))
    revert = await reverted(one, first)
    await one.approve(revert, OPS)
    path.write_text(rule.replace("OTHER", "alice"))
    one.replica.parts.policies["default"].replace_rules(read_policy(path))
    with monkeypatch.context() as patch:
        if is_killed:
            patch.setattr(RequestTransitions, "end_revert", AsyncMock(side_effect=UnavailableError("killed")))
        with pytest.raises(PolicyViolationError):
            await one.apply(revert, DEV)
    assert await one.state(revert) is RequestState.FAILED
    if is_killed:
        assert await one.state(first) is RequestState.REVERTING
        await one.pass_(2 * MINUTE)
    found = await one.found(first)
    assert (found.state, found.reverted_by) == (RequestState.APPLIED, None)
    assert await one.store.ended_reverts("default", 9) == []
    path.write_text(rule)
    one.replica.parts.policies["default"].replace_rules(read_policy(path))
    revised = await one.service.proposals.revise(one.cluster, revert.id, None, one.caller(DEV), Precondition())
    await one.approve(revised, OPS)
    await one.apply(revised, DEV)
    found = await one.found(first)
    assert (found.state, found.reverted_by) == (RequestState.REVERTED, revert.id)


async def test_what_was_changed_since_is_left_out_on_request(world: World) -> None:
    one = await started(world)
    first = await applied(one, one.entry(ALICE, producer_byte_rate=2), one.entry(BOB, producer_byte_rate=2))
    await one.replica.alter(BOB, producer_byte_rate=7)
    with pytest.raises(RevertConflictError):
        await reverted(one, first)
    assert await one.state(first) is RequestState.APPLIED
    revert = await reverted(one, first, partly=True)
    assert (revert.entity_ids, revert.reverts_partly) == ((ALICE.id,), True)
    assert str(first.id) in revert.warnings[0]
    # A revision may revert the rest as well.
    entries = [one.entry(ALICE, producer_byte_rate=None), one.entry(BOB, producer_byte_rate=None)]
    revised = await one.service.proposals.revise(one.cluster, revert.id, entries, one.caller(DEV), Precondition())
    assert (revised.reverts, revised.reverts_partly, revised.warnings) == (first.id, False, ())
    revised = await one.service.proposals.revise(one.cluster, revert.id, entries[:1], one.caller(DEV), Precondition())
    assert (revised.reverts, revised.reverts_partly) == (first.id, True)
    await one.approve(revised, OPS)
    await one.apply(revised, DEV)
    assert await one.state(first) is RequestState.REVERTED_PARTLY
    assert (await now(one.replica, ALICE), await now(one.replica, BOB)) == ({}, {"producer_byte_rate": "7"})


async def test_a_request_whose_entities_were_all_changed_since_is_not_reverted(world: World) -> None:
    one = await started(world)
    first = await applied(one, one.entry(ALICE, producer_byte_rate=2))
    await one.replica.alter(ALICE, producer_byte_rate=7)
    for partly in (False, True):
        with pytest.raises(RevertConflictError):
            await reverted(one, first, partly=partly)
    assert await one.found(first) == first


async def test_a_revert_of_a_change_with_hidden_entities_is_refused_without_their_names(world: World) -> None:
    one = await started(world)
    first = await applied(one, one.entry(ALICE, producer_byte_rate=2), one.entry(BOB, producer_byte_rate=2))
    for operation in (Operation.DESCRIBE_CONFIGS, Operation.PROPOSE):
        await one.access.give(allow("User:part", operation, ResourceType.USER, "alice"))
    caller = one.caller(Identity("User:part", Authentication.CERTIFICATE))
    assert first.change_id is not None
    with pytest.raises(ForbiddenError, match="further entities"):
        await one.service.reversals.reversal(one.cluster, first.change_id, caller)
    await one.replica.alter(BOB, producer_byte_rate=7)
    with pytest.raises(ForbiddenError, match="further entities"):
        await one.service.reversals.reversal(one.cluster, first.change_id, caller)


async def test_of_two_reverts_proposed_at_once_one_is_cancelled(world: World) -> None:
    one = await started(world)
    other = await another(world, one)
    first = await applied(one, one.entry(ALICE, producer_byte_rate=2))
    results = await asyncio.gather(
        *(reverted(each, first) for each in (one, other) for _ in range(3)), return_exceptions=True
    )
    [made] = [each for each in results if not isinstance(each, BaseException)]
    for each in results:
        assert each is made or isinstance(each, (ConcurrentChangeError, RequestStateError)), each
    found = await one.found(first)
    assert (found.state, found.reverted_by) == ("reverting", made.id)
    page = await one.service.reader.page(
        "default", one.caller(OPS).access, state=RequestState.OPEN, before=None, size=9
    )
    assert [each.id for each in page.requests] == [made.id]


async def keyed(one: Requests, sent: RequestKey, request: ChangeRequest) -> ChangeRequest | None:
    """Propose a revert with an Idempotency-Key; None if it failed."""
    keys = PostgresRequestKeys(one.replica.parts.database)
    runs = IdempotencyService(keys, one.replica.parts.audit)
    caller = one.caller(DEV)
    try:
        run = await runs.begin(sent, one.cluster.store, caller.access, caller.deadline)
        assert isinstance(run, RequestRun)
        made = None
        with suppress(UnavailableError):
            made = await one.service.reversals.revert(one.cluster, request.id, RequestTerms(), replace(caller, run=run))
        assert await runs.finish(run, None)  # as if the process ended before it stored the response
        return made
    finally:
        await keys.close()


@pytest.mark.parametrize("end", [None, "reject"])
async def test_a_revert_with_a_key_is_completed_after_a_process_was_killed(
    world: World, monkeypatch: pytest.MonkeyPatch, end: str | None
) -> None:
    """Between the new request and the record in the reverted one."""
    one = await started(world)
    first = await applied(one, one.entry(ALICE, producer_byte_rate=2))
    place: dict[str, Any] = {
        "cluster": "default",
        "identity": DEV,
        "method": "POST",
        "path": f"/{first.id}:revert",
        "body": {},
    }
    sent = RequestKey.of("sent-twice", **place)

    with monkeypatch.context() as patch:
        patch.setattr(RequestTransitions, "move", AsyncMock(side_effect=UnavailableError("killed")))
        assert await keyed(one, sent, first) is None
    [made] = await one.store.search("default", state=RequestState.OPEN, before=None, most=9, entity_id=None)
    assert await one.state(first) is RequestState.APPLIED
    if end is not None:
        await one.service.reviews.reject(one.cluster, made.id, None, one.caller(SRE))
        with pytest.raises(RequestStateError, match=str(made.id)):
            await keyed(one, sent, first)
        assert await one.state(first) is RequestState.APPLIED
        return
    await one.replica.alter(ALICE, producer_byte_rate=7)  # the request exists, and is not decided again
    for _ in range(2):
        again = await keyed(one, sent, first)
        assert again is not None
        assert again.id == made.id
        found = await one.found(first)
        assert (found.state, found.reverted_by) == (RequestState.REVERTING, made.id)
    page = await one.service.reader.page("default", one.caller(DEV).access, state=None, before=None, size=9)
    assert {each.id for each in page.requests} == {first.id, made.id}


@pytest.mark.parametrize("step", [RequestAction.REVERT, RequestAction.FINISH_REVERT, RequestAction.DROP_REVERT])
async def test_the_end_of_a_revert_is_recorded_although_a_process_is_killed(
    world: World, monkeypatch: pytest.MonkeyPatch, step: RequestAction
) -> None:
    """Before the reverted request is written, or before it is written again."""
    one = await started(world)
    other = await another(world, one)
    first = await applied(one, one.entry(ALICE, producer_byte_rate=2))
    move = RequestTransitions.move

    async def killed(
        transitions: RequestTransitions, request: ChangeRequest, action: Any, *given: Any, **more: Any
    ) -> Any:
        if action is step:
            raise UnavailableError("killed")
        return await move(transitions, request, action, *given, **more)

    with monkeypatch.context() as patch:
        patch.setattr(RequestTransitions, "move", killed)
        if step is RequestAction.REVERT:
            with pytest.raises(UnavailableError):
                await reverted(one, first)
            [revert] = await one.store.search("default", state=RequestState.OPEN, before=None, most=9, entity_id=None)
            revert = await one.found(revert)
        else:
            revert = await reverted(one, first)
        if step is RequestAction.DROP_REVERT:
            await one.service.reviews.reject(one.cluster, revert.id, None, one.caller(SRE))
        else:
            await one.approve(revert, OPS)
        if step is RequestAction.FINISH_REVERT:
            await one.apply(revert, DEV)
    assert await one.state(first) is (RequestState.APPLIED if step is RequestAction.REVERT else RequestState.REVERTING)
    if step is RequestAction.REVERT:
        await one.apply(revert, DEV)
    await other.pass_(2 * MINUTE)
    await one.pass_(2 * MINUTE)
    expected = RequestState.APPLIED if step is RequestAction.DROP_REVERT else RequestState.REVERTED
    found = await one.found(first)
    assert found.state is expected
    assert await one.store.ended_reverts("default", 9) == []


async def test_a_revert_that_is_revised_to_other_keys_leaves_the_first_request_applied(world: World) -> None:
    one = await started(world)
    first = await applied(one, one.entry(ALICE, producer_byte_rate=2))
    revert = await reverted(one, first)
    other = [one.entry(ALICE, consumer_byte_rate=3), one.entry(BOB, producer_byte_rate=2)]
    revised = await one.service.proposals.revise(one.cluster, revert.id, other, one.caller(DEV), Precondition())
    assert "is not reverted" in revised.warnings[-1]
    assert await one.state(first) is RequestState.REVERTING
    await one.approve(revised, OPS)
    assert (await one.apply(revised, DEV)).state is RequestState.APPLIED
    found = await one.found(first)
    assert (found.state, found.reverted_by) == (RequestState.APPLIED, None)
    await one.pass_(2 * MINUTE)
    assert await one.found(first) == found
    # The leader does not read such a revert again and again, also while another one is open.
    assert await one.store.ended_reverts("default", 9) == []
    assert (await reverted(one, first)).state is RequestState.OPEN
    assert await one.store.ended_reverts("default", 9) == []
