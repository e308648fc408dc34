"""Events of change requests in Postgres, as the feed reads them."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from datetime import UTC, datetime
from typing import TYPE_CHECKING

from uuid_utils.compat import uuid7

from confplane.audit import PostgresChangeRequests
from confplane.audit.feed import PostgresFeedTrail
from confplane.domain.access.identities import Authentication, Identity
from confplane.domain.change_requests import OPENED, RequestAction, RequestKind, RequestState
from confplane.domain.enums import StrEnum
from confplane.services.feed.request_events import number_of
from confplane.services.ports.change_requests import ChangeRequest, Participant, RequestEvent
from confplane.services.ports.feed import LAST_NUMBER
from confplane.services.ports.trail import END_OF_HISTORY, HistoryPlace
from tests.audit.rows import committed, entity, intent

if TYPE_CHECKING:
    from uuid import UUID

    from confplane.audit import Database, PostgresAuditLog

CLUSTER = "payments"
DEV = Participant(Identity("User:dev", Authentication.TOKEN))


class Newer(StrEnum):
    """A kind and a state of a newer release."""

    KIND = "newer-kind"
    STATE = "newer-state"


def proposed(kind: RequestKind = RequestKind.CHANGE) -> tuple[ChangeRequest, RequestEvent]:
    request = ChangeRequest(
        uuid7(),
        CLUSTER,
        RequestState.OPEN,
        1,
        1,
        "digest",
        ("user=alice",),
        datetime.now(UTC),
        (DEV,),
        kind,
        "why",
        "T-1",
    )
    return request, event(OPENED, RequestState.OPEN, "User:dev")


def event(action: str, state: RequestState, principal: str | None = None) -> RequestEvent:
    return RequestEvent(uuid7(), action, datetime.now(UTC), principal, None, "text", 1, state)


async def moved(
    store: PostgresChangeRequests, request: ChangeRequest, action: RequestAction, state: RequestState
) -> ChangeRequest:
    found = replace(request, state=state, version=request.version + 1)
    assert await store.write(found, event(action, state))
    return found


async def test_a_reader_misses_no_event_of_concurrent_writers_and_gets_none_twice(pool: Database) -> None:
    store, trail = PostgresChangeRequests(pool), PostgresFeedTrail(pool)
    got: list[tuple[int, UUID]] = []
    written: list[UUID] = []
    done = asyncio.Event()

    async def write() -> None:
        for _ in range(10):
            request, opened = proposed()
            await store.create(request, opened)
            await moved(store, request, RequestAction.REJECT, RequestState.REJECTED)
            written.append(opened.id)

    async def read() -> None:
        last = False
        while not last:
            last = done.is_set()
            after = got[-1][0] if got else 0
            while page := await trail.requests(CLUSTER, after, LAST_NUMBER, 7):
                got.extend((number_of(each), each.place.change_id) for each in page)
                after = got[-1][0]

    reader = asyncio.create_task(read())
    await asyncio.gather(*(write() for _ in range(6)))
    done.set()
    await reader
    numbers = [number for number, _ in got]
    assert numbers == list(range(1, 121))
    assert len({change_id for _, change_id in got}) == 120
    assert set(written) <= {change_id for _, change_id in got}
    assert await trail.newest_request(CLUSTER) == 120
    assert (await trail.newest_request("other"), await trail.requests("other", 0, LAST_NUMBER, 9)) == (0, [])


async def test_an_event_that_is_sent_again_after_a_lost_reply_is_one_event(pool: Database) -> None:
    store, trail = PostgresChangeRequests(pool), PostgresFeedTrail(pool)
    request, opened = proposed()
    for _ in range(2):
        await store.create(request, opened)
    rejected = replace(request, state=RequestState.REJECTED, version=2)
    end = event(RequestAction.REJECT, RequestState.REJECTED, "User:ops")
    assert [await store.write(rejected, end) for _ in range(2)] == [True, True]
    found = await trail.requests(CLUSTER, 0, LAST_NUMBER, 9)
    assert [(number_of(each), each.place.change_id, each.principal) for each in found] == [
        (1, opened.id, "User:dev"),
        (2, end.id, "User:ops"),
    ]


async def test_events_of_an_earlier_content_have_no_text(pool: Database) -> None:
    store, trail = PostgresChangeRequests(pool), PostgresFeedTrail(pool)
    request, opened = proposed()
    await store.create(request, opened)
    revised = replace(request, version=2, revision=2, entity_ids=("user=bob",))
    assert await store.write(revised, replace(event(RequestAction.REVISE, RequestState.OPEN), revision=2))
    found = [each.request for each in await trail.requests(CLUSTER, 0, LAST_NUMBER, 9)]
    assert [(each.type, each.entity_ids, each.comment) for each in found if each is not None] == [
        ("proposed", ["user=bob"], None),
        ("revised", ["user=bob"], "text"),
    ]


async def test_begun_and_delayed_applications_and_comments_are_left_out(pool: Database, log: PostgresAuditLog) -> None:
    store, trail = PostgresChangeRequests(pool), PostgresFeedTrail(pool)
    request, opened = proposed()
    await store.create(request, opened)
    await store.add_event(request.id, event("comment", RequestState.OPEN, "User:ops"))
    request = await moved(store, request, RequestAction.APPROVE, RequestState.APPROVED)
    request = await moved(store, request, RequestAction.BEGIN, RequestState.APPLYING)
    request = await moved(store, request, RequestAction.DELAY, RequestState.APPROVED)
    request = await moved(store, request, RequestAction.BEGIN, RequestState.APPLYING)
    change = intent(None, entity("user=alice", path="/config/users/alice"))
    await log.intend([change])
    await moved(store, replace(request, change_id=change.change_id), RequestAction.FINISH, RequestState.APPLIED)
    found = [each.request for each in await trail.requests(CLUSTER, 0, LAST_NUMBER, 9)]
    assert [(each.type, each.state) for each in found if each is not None] == [
        ("proposed", "open"),
        ("approved", "approved"),
        ("applied", "applied"),
    ]
    last = found[-1]
    assert last is not None
    assert (last.id, last.author, last.entity_ids, last.comment) == (request.id, "User:dev", ["user=alice"], "text")
    # Its change has no outcome yet.
    assert last.applied == END_OF_HISTORY
    await log.conclude([committed(change, revision=15)])
    [finished] = await trail.requests(CLUSTER, last.number - 1, LAST_NUMBER, 9)
    assert finished.request is not None
    assert finished.request.applied == HistoryPlace(1, 15, change.change_id)
    assert (finished.principal, finished.reason, finished.ticket) == ("confplane", "why", "T-1")


async def test_events_of_a_newer_release_do_not_hide_the_others(pool: Database) -> None:
    store, trail = PostgresChangeRequests(pool), PostgresFeedTrail(pool)
    newer, opened = proposed(Newer.KIND)  # type: ignore[arg-type]
    await store.create(newer, opened)
    request, opened = proposed()
    await store.create(request, opened)
    await moved(store, request, RequestAction.REJECT, Newer.STATE)  # type: ignore[arg-type]
    found = [each.request for each in await trail.requests(CLUSTER, 0, LAST_NUMBER, 9)]
    assert [(each.number, each.type) for each in found if each is not None] == [(1, None), (2, "proposed"), (3, None)]


async def test_a_change_past_the_rules_is_acknowledged(pool: Database) -> None:
    store, trail = PostgresChangeRequests(pool), PostgresFeedTrail(pool)
    request, opened = proposed(RequestKind.BREAK_GLASS)
    await store.create(request, opened)
    await moved(store, request, RequestAction.APPROVE, RequestState.ACKNOWLEDGED)
    found = [each.request for each in await trail.requests(CLUSTER, 0, LAST_NUMBER, 9)]
    assert [each.type for each in found if each is not None] == ["break-glass", "acknowledged"]
