"""Change requests that a newer release wrote, on the same Postgres: left out of lists, and refused when they are named."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import TYPE_CHECKING

import pytest

from confplane.audit import PostgresChangeRequests
from confplane.domain.change_requests import RequestAction, RequestKind, RequestState
from confplane.domain.errors import UnavailableError
from tests.audit.rows import run
from tests.audit.test_feed_requests import CLUSTER, Newer, event, moved, proposed

if TYPE_CHECKING:
    from uuid import UUID

    from confplane.audit import Database
    from tests.support import servers


async def test_requests_of_a_newer_release_are_left_out_of_pages_and_counted(pool: Database) -> None:
    store = PostgresChangeRequests(pool)
    known: list[UUID] = []
    for kind, state in (
        (RequestKind.CHANGE, None), (Newer.KIND, None), (RequestKind.CHANGE, Newer.STATE), (RequestKind.CHANGE, None),
    ):  # fmt: skip
        request, opened = proposed(kind)  # type: ignore[arg-type]
        await store.create(request, opened)
        if state is not None:
            await moved(store, request, RequestAction.REJECT, state)  # type: ignore[arg-type]
        if (kind, state) == (RequestKind.CHANGE, None):
            known.insert(0, request.id)
        else:
            with pytest.raises(UnavailableError, match=f"{request.id} was written by a newer release"):
                await store.find(CLUSTER, request.id)
    before = store.unknown[CLUSTER]
    found = await store.search(CLUSTER, state=None, before=None, most=2, entity_id=None)
    assert [each.id for each in found] == known
    assert store.unknown[CLUSTER] == before + 2
    found = await store.search(CLUSTER, state=None, before=found[0].id, most=9, entity_id="user=alice")
    assert [each.id for each in found] == known[1:]
    status = await store.status(CLUSTER, datetime.now(UTC), 9)
    assert (status.states, set(status.oldest)) == ({RequestState.OPEN: 3}, {RequestKind.CHANGE})


async def test_a_state_that_the_content_has_for_newer_releases_is_shown_as_the_stored_one(
    pool: Database, migrated: servers.Database
) -> None:
    store, (request, opened) = PostgresChangeRequests(pool), proposed()
    await store.create(request, opened)
    run(migrated.owner_dsn, """UPDATE change_requests SET content = content || '{"shown_state": "newer-state"}'""")
    found = await store.find(CLUSTER, request.id)
    assert found is not None
    assert (found.state, store.unknown[CLUSTER]) == (RequestState.OPEN, 0)


async def test_an_event_that_led_to_a_state_of_a_newer_release_is_left_out(pool: Database) -> None:
    store, (request, opened) = PostgresChangeRequests(pool), proposed()
    await store.create(request, opened)
    newer = await moved(store, request, RequestAction.REJECT, Newer.STATE)  # type: ignore[arg-type]
    again = await moved(store, newer, RequestAction.REOPEN, RequestState.OPEN)
    await store.add_event(request.id, event("comment", again.state))
    assert [each.action for each in await store.events(request.id, 9)] == ["open", "reopen", "comment"]
