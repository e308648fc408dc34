"""The external changes of the trail that a consumer may not have been given."""

from __future__ import annotations

import time
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING
from uuid import UUID

from confplane.audit.feed import PostgresFeedTrail
from confplane.services.ports.trail import EXTERNAL, LAST_ID, PUT_BACK, HistoryPlace
from tests.audit.rows import committed, entity, intent

if TYPE_CHECKING:
    from confplane.audit import Database, PostgresAuditLog
    from confplane.services.ports.feed import FeedChange

DAY_MS = 86_400_000
BEGIN = HistoryPlace(1, 0, UUID(int=0))
EVER = datetime(1970, 1, 1, tzinfo=UTC)


async def recorded(log: PostgresAuditLog, revision: int, name: str, *, time_ms: int, kind: str = EXTERNAL) -> UUID:
    made = intent(None, entity(f"user={name}", path=f"/config/users/{name}"), kind=kind)
    await log.intend([made])
    await log.conclude([committed(made, revision=revision, time_ms=time_ms)])
    return made.change_id


async def test_late_external_changes_come_in_pages_up_to_the_place_and_above_the_revision(
    pool: Database, log: PostgresAuditLog
) -> None:
    trail, now_ms = PostgresFeedTrail(pool), time.time_ns() // 1_000_000
    revisions = (11, 12, 12, 13, 31)
    external = [await recorded(log, each, f"u{number}", time_ms=now_ms) for number, each in enumerate(revisions)]
    for revision in (14, 32):
        await recorded(log, revision, "own", time_ms=now_ms, kind="change")
    for revision in (21, 30):
        await recorded(log, revision, "between", time_ms=now_ms)
    place, since, found = HistoryPlace(1, 20, LAST_ID), datetime.now(UTC) - timedelta(minutes=15), list[UUID]()
    after: HistoryPlace | None = BEGIN
    while after is not None:
        page, after = await trail.late("payments", place, since, after, 2, above=30)
        assert len(page) <= 2
        found += [each.place.change_id for each in page]
    assert found == [external[0], *sorted(external[1:3]), *external[3:]]
    nothing: tuple[list[FeedChange], None] = [], None
    assert await trail.late("payments", place, datetime.now(UTC) + timedelta(days=1), BEGIN, 2, above=30) == nothing
    assert await trail.late("payments", place._replace(incarnation=2), EVER, BEGIN, 2, above=30) == nothing


async def test_an_external_change_before_a_change_of_ours_that_was_delivered_does_not_come_late(
    pool: Database, log: PostgresAuditLog
) -> None:
    """The process that delivered the change of ours delivered the external one before it."""
    trail, now_ms = PostgresFeedTrail(pool), time.time_ns() // 1_000_000
    for revision, name, kind in (
        *((11, "changed", EXTERNAL), (12, "changed", "change"), (13, "changed", EXTERNAL)),
        *((14, "other", "change"), (15, "changed-later", EXTERNAL), (21, "changed-later", "change")),
        *((16, "twice", EXTERNAL), (17, "twice", EXTERNAL)),
    ):
        await recorded(log, revision, name, time_ms=now_ms, kind=kind)
    found, _ = await trail.late("payments", HistoryPlace(1, 20, LAST_ID), EVER, BEGIN, 9, above=30)
    assert [each.place.revision for each in found] == [13, 15, 17]
    assert all(entity.complete for each in found for entity in each.entities)


async def test_a_time_that_does_not_fit_the_place_does_not_return_the_whole_trail(
    pool: Database, log: PostgresAuditLog
) -> None:
    """A client may write any time into a position."""
    trail, now_ms = PostgresFeedTrail(pool), time.time_ns() // 1_000_000
    old = await recorded(log, 11, "old", time_ms=now_ms)
    [_], _ = await trail.late("payments", HistoryPlace(1, 11, LAST_ID), EVER, BEGIN, 9, above=30)
    await recorded(log, 12, "newest", time_ms=now_ms + 3 * DAY_MS, kind="change")
    assert await trail.late("payments", HistoryPlace(1, 12, LAST_ID), EVER, BEGIN, 9, above=30) == ([], None)
    [found], _ = await trail.late("payments", HistoryPlace(1, 11, LAST_ID), EVER, BEGIN, 9, above=30)
    assert found.place.change_id == old


async def test_put_backs_come_in_pages_and_are_at_no_revision(pool: Database, log: PostgresAuditLog) -> None:
    trail, found, after = PostgresFeedTrail(pool), list[UUID](), UUID(int=0)
    made = [intent(None, entity(f"user=p{number}"), kind=PUT_BACK) for number in range(3)]
    await log.intend(made)
    await recorded(log, 31, "another", time_ms=time.time_ns() // 1_000_000)
    since = datetime.now(UTC) - timedelta(minutes=1)
    while page := await trail.put_backs("payments", since, after, 2):
        assert {(each.kind, each.place.revision, len(each.entities)) for each in page} == {(PUT_BACK, 0, 1)}
        found += [each.place.change_id for each in page]
        after = found[-1]
    assert found == sorted(each.change_id for each in made)
    assert await trail.put_backs("payments", datetime.now(UTC) + timedelta(days=1), UUID(int=0), 9) == []
