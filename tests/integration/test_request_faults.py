"""Change requests under faults and by whatever operation: applied once at most, and never approved by their authors."""

from __future__ import annotations

import asyncio
from datetime import timedelta
from typing import TYPE_CHECKING, Any, Final

import psycopg
import pytest

from confplane.api.app import FAMILIES
from confplane.domain.access.operations import Role
from confplane.domain.change_requests import RequestState
from confplane.domain.entities import Entity
from confplane.domain.errors import ForbiddenError, RequestStateError
from confplane.domain.etags import Precondition
from confplane.services.requests.proposals import RequestTerms
from tests.integration.test_change_requests import (
    BOB,
    DEV,
    HOUR,
    OPS,
    PORTAL,
    SRE,
    another,
    for_user,
    new_token,
    started,
)
from tests.support.access_world import ADMINISTRATOR
from tests.support.stores import ALICE, until

if TYPE_CHECKING:
    from confplane.services.ports.change_requests import ChangeRequest
    from tests.support.change_requests import Requests
    from tests.support.world import World


async def test_two_leaders_whose_clocks_differ_apply_a_scheduled_request_once_or_not_at_all(world: World) -> None:
    one = await started(world)
    other = await another(world, one)
    times = {"apply_at": one.now() + HOUR, "expires_at": one.now() + 2 * HOUR}
    requests = [
        await one.propose(DEV, one.entry(Entity.of(user=f"u{number}"), producer_byte_rate=2), **times)
        for number in range(6)
    ]
    for request in requests:
        await one.approve(request, OPS)
    # To one leader they are due, and to the other one they have expired.
    one.ahead, other.ahead = HOUR, 3 * HOUR
    await asyncio.gather(*(each.scheduler.round() for _ in range(3) for each in (one, other)), return_exceptions=True)
    for each in (one, other):
        await each.pass_(timedelta(minutes=2))
    for request in requests:
        found, changes = await one.found(request), await one.changes(request)
        if changes:
            [change] = changes
            assert (found.state, found.change_id) == (RequestState.APPLIED, change.intent.change_id)
        else:
            assert (found.state, found.change_id) == (RequestState.EXPIRED, None)


async def _created(one: Requests, first: ChangeRequest) -> ChangeRequest:
    del first
    return await one.propose(OPS, one.entry(BOB, producer_byte_rate=2))


async def _reverting_change(one: Requests, first: ChangeRequest) -> ChangeRequest:
    assert first.change_id is not None
    entries = await one.service.reversals.reversal(one.cluster, first.change_id, one.caller(OPS))
    return await one.propose(OPS, *entries)


async def _revised(one: Requests, first: ChangeRequest) -> ChangeRequest:
    del first
    request = await one.propose(DEV, one.entry(BOB, producer_byte_rate=2))
    return await one.service.proposals.revise(one.cluster, request.id, None, one.caller(OPS), Precondition())


async def _reverted(one: Requests, first: ChangeRequest) -> ChangeRequest:
    return await one.service.reversals.revert(one.cluster, first.id, RequestTerms(), one.caller(OPS))


AUTHORS: Final = {
    "createChangeRequest": (_created, _reverting_change),
    "reviseChangeRequest": (_revised,),
    "revertChangeRequest": (_reverted,),
}
"""The operations by which somebody becomes an author."""
NO_AUTHORS: Final = {f"{verb}ChangeRequest" for verb in ("approve", "reject", "cancel", "comment", "apply")}


def test_every_operation_on_requests_makes_authors_or_does_not() -> None:
    operations = {
        str(route.operation_id)
        for family in FAMILIES
        for route in family
        if "/change-requests" in route.path and "POST" in (route.methods or ())
    }
    assert operations == AUTHORS.keys() | NO_AUTHORS


@pytest.mark.parametrize("become", [each for some in AUTHORS.values() for each in some])
async def test_nobody_approves_a_request_of_their_own_by_whatever_operation_they_became_its_author(
    world: World, become: Any
) -> None:
    one = await started(world)
    for name in ("portal", "robot"):
        await one.access.user(name, Role.OPERATOR)
    first = await one.propose(DEV, one.entry(ALICE, producer_byte_rate=2))
    await one.approve(first, OPS)
    request = await become(one, await one.apply(first, DEV))
    assert request.authors[-1].identity == OPS
    own = await new_token(one, "User:robot", owner="User:ops")
    for approver in (OPS, for_user(PORTAL, "ops"), own, ADMINISTRATOR):
        with pytest.raises(ForbiddenError):
            await one.approve(request, approver)
    assert (await one.found(request)).approvals == ()
    assert (await one.approve(request, SRE)).state is RequestState.APPROVED


async def test_a_restored_postgres_applies_and_approves_nothing_until_its_tokens_are_confirmed(world: World) -> None:
    one = await started(world)
    times = {"apply_at": one.now() + HOUR, "expires_at": one.now() + 3 * HOUR}
    # As of the backup; somebody may have cancelled them since.
    scheduled = await one.approve(await one.propose(DEV, one.entry(ALICE, producer_byte_rate=2), **times), OPS)
    approver = await new_token(one, "User:ops")
    approved = await one.approve(await one.propose(DEV, one.entry(BOB, producer_byte_rate=2)), approver)
    soon = one.now() + HOUR
    expiring, extended = [
        await one.propose(DEV, one.entry(BOB, producer_byte_rate=rate), expires_at=soon) for rate in (3, 4)
    ]
    before = [await one.found(each) for each in (scheduled, approved, expiring, extended)]
    with psycopg.connect(world.database.owner_dsn) as connection:
        connection.execute("UPDATE access_version SET tokens_from = now(), version = version + 1")
    await one.pass_(HOUR)
    for attempt in (one.apply(approved, DEV), one.approve(approved, SRE), one.apply(scheduled, DEV)):
        with pytest.raises(RequestStateError, match="`confplane tokens confirm`"):
            await attempt
    assert [await one.found(each) for each in (scheduled, approved, expiring, extended)] == before
    await one.service.reviews.cancel(one.cluster, scheduled.id, None, one.caller(DEV))
    later = {"expires_at": one.now() + HOUR}
    await one.service.proposals.revise(one.cluster, extended.id, None, one.caller(DEV), Precondition(), times=later)
    assert await one.access.tokens.confirm(one.access.caller()) is True
    await one.pass_(timedelta(minutes=2))
    states = [await one.state(each) for each in (scheduled, expiring, extended)]
    assert states == [RequestState.CANCELLED, RequestState.EXPIRED, RequestState.OPEN]
    assert (await one.apply(approved, DEV)).state is RequestState.APPLIED


async def _past_the_rules(one: Requests, entity: Entity) -> ChangeRequest:
    return await one.service.open_break_glass(one.cluster, [entity.id], one.caller(OPS, break_glass="an outage"))


async def _write(one: Requests, request: ChangeRequest) -> None:
    """Make the change of a request past the rules."""
    caller = one.caller(OPS, applies=request.id)
    [result] = await one.replica.parts.alter.alter_entries([one.entry(BOB, producer_byte_rate=2)], caller)
    assert result.error is None


async def test_a_request_past_the_rules_is_cancelled_if_its_process_ended_before_it_wrote_anything(
    world: World,
) -> None:
    one = await started(world, session_timeout_ms=4_000)
    unwritten, written = await _past_the_rules(one, ALICE), await _past_the_rules(one, BOB)
    await _write(one, written)
    other = await another(world, one)
    running = await _past_the_rules(other, ALICE)
    for process in (one, other):
        await process.pass_(2 * HOUR)
        assert await other.state(unwritten) is RequestState.OPEN, "its process may be paused"
    await world.stop_replicas(one.replica)

    async def cancelled() -> bool:
        await other.pass_(timedelta(minutes=2))
        return await other.state(unwritten) is RequestState.CANCELLED

    await until(cancelled)
    assert await other.actions(unwritten) == ["open", "cancel"]
    assert [await other.state(each) for each in (written, running)] == [RequestState.OPEN, RequestState.OPEN]


async def test_a_request_past_the_rules_is_opened_again_if_its_change_is_committed_late(world: World) -> None:
    one = await started(world)
    request = await _past_the_rules(one, BOB)
    await one.service.drop_break_glass(request)
    await one.pass_(timedelta(minutes=2))
    assert await one.state(request) is RequestState.CANCELLED
    await _write(one, request)
    await one.pass_(timedelta(minutes=2))
    assert await one.actions(request) == ["open", "cancel", "reopen"]
    assert (await one.approve(await one.found(request), SRE)).state is RequestState.ACKNOWLEDGED
    await one.pass_(timedelta(minutes=2))
    assert await one.state(request) is RequestState.ACKNOWLEDGED
