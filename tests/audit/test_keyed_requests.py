"""Change requests under an Idempotency-Key: made by the holder of the key alone, and once."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from uuid import uuid4

import pytest

from confplane.audit import Database, PostgresAuditLog, PostgresRequestKeys
from confplane.audit.change_requests import PostgresChangeRequests
from confplane.domain.errors import IdempotencyKeyBusyError
from confplane.services.ports.change_requests import ChangeRequest, RequestClaim
from tests.audit.rows import intent
from tests.audit.test_feed_requests import CLUSTER, proposed
from tests.audit.test_request_keys import claim

WRITER = "writer-1"


def under(request: ChangeRequest, key: str = "k") -> RequestClaim:
    """Return the claim of a new key for a request."""
    return RequestClaim(claim(key, key_id=request.id, holder=request.id), WRITER)


async def test_a_request_makes_its_key_and_a_lost_reply_makes_no_other(pool: Database) -> None:
    store, keys = PostgresChangeRequests(pool), PostgresRequestKeys(pool)
    request, opened = proposed()
    mine = under(request)
    for _ in range(2):
        await store.create(request, opened, mine)
    row = await keys.find(mine.claim.key)
    assert row is not None
    assert (row.id, row.holder, row.writer, row.answer) == (request.id, request.id, WRITER, None)
    assert len(await store.events(request.id, 9)) == 1


async def test_of_many_at_once_one_makes_a_request(pool: Database) -> None:
    store = PostgresChangeRequests(pool)
    made = [proposed() for _ in range(8)]
    done = await asyncio.gather(
        *(store.create(request, opened, under(request)) for request, opened in made), return_exceptions=True
    )
    assert sum(each is None for each in done) == 1
    assert all(each is None or isinstance(each, IdempotencyKeyBusyError) for each in done)
    found = await store.search(CLUSTER, state=None, before=None, most=20, entity_id=None)
    assert [each.id for each in found] == [
        request.id for (request, _), result in zip(made, done, strict=True) if result is None
    ]


async def test_who_holds_an_existing_key_makes_the_request(pool: Database, log: PostgresAuditLog) -> None:
    store, request, opened = PostgresChangeRequests(pool), *proposed()
    held = under(request, "held").claim
    await log.intend([intent()], [held])
    await store.create(request, opened, RequestClaim(replace(held, fresh=False), WRITER))
    assert await store.find(CLUSTER, request.id) is not None


async def test_who_lost_the_key_makes_no_request_and_nobody_makes_it_again(pool: Database) -> None:
    store, keys = PostgresChangeRequests(pool), PostgresRequestKeys(pool)
    first, opened = proposed()
    await store.create(first, opened, under(first, "other"))
    row = await keys.find(under(first, "other").claim.key)
    assert row is not None
    later = uuid4()
    assert await keys.take_over(row, later, writer=WRITER, seconds=60)
    again, event = proposed()
    stale = RequestClaim(replace(under(first, "other").claim, fresh=False), WRITER)
    with pytest.raises(IdempotencyKeyBusyError):
        await store.create(replace(again, id=first.id), event, stale)
    held = RequestClaim(replace(stale.claim, holder=later), WRITER)
    with pytest.raises(IdempotencyKeyBusyError):  # the request exists: the holder has to find it
        await store.create(replace(again, id=first.id), event, held)
    assert len(await store.events(first.id, 9)) == 1
