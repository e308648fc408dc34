"""The stream of one cluster and its consumers, on a real journal and a trail whose answers the test sets."""

from __future__ import annotations

import asyncio
import time
from contextlib import aclosing
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from itertools import chain, repeat
from typing import TYPE_CHECKING
from uuid import UUID

import orjson
import pytest

from confplane.api.feed.render import event_json
from confplane.domain.changes import Node
from confplane.domain.errors import LimitExceededError, TooManyConnectionsError, UnavailableError
from confplane.domain.facets import Tree
from confplane.services.feed import hub as hubs
from confplane.services.feed import stream as streams
from confplane.services.feed.consumer import PAGE_S
from confplane.services.feed.events import FeedFilter
from confplane.services.kraft.apply.apply_status import PENDING, ApplyStatus, ChangeApplyState
from confplane.services.ports.feed import FeedChange, FeedEntity
from confplane.services.ports.store import Marker
from confplane.services.ports.trail import EXTERNAL, IMPORT, LAST_ID, PUT_BACK, HistoryPlace
from tests.unit.services.feed_double import NOW_MS, PATIENCE_S, RATE, Feed, change, entity, places, received

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Sequence

    from confplane.services.ports.trail import Outcome


@pytest.fixture
async def feed() -> AsyncIterator[Feed]:
    made = Feed()
    yield made
    await made.hub.stop()


async def test_a_change_that_can_not_be_shown_is_a_reset_and_holds_nothing_up(
    feed: Feed, caplog: pytest.LogCaptureFixture
) -> None:
    consumer = await feed.open()
    begin = consumer.position
    broken = change(12)
    broken = replace(broken, entities=[replace(broken.entities[0], before=None)])  # type: ignore[arg-type]
    feed.write(change(11), broken, change(13))
    # Its write counts as external, because it explains nothing.
    assert places(await received(consumer, 4)) == [(11, False), (12, True), (12, False), (13, False)]
    assert str(broken.place.change_id) in caplog.text
    # Neither does it hold up those that read the trail.
    await feed.load_again(20)
    again = await feed.open(begin)
    assert places(await received(again, 3)) == [(11, False), (12, True), (13, False)]
    for each in (consumer, again):
        each.close()


async def test_an_import_is_one_reset(feed: Feed) -> None:
    """In the ring and in the trail; the last one counts, because all before it is listed then."""
    consumer = await feed.open()
    begin = consumer.position
    feed.write(change(11), *(change(revision, f"i{revision}", kind=IMPORT) for revision in (12, 13, 14)), change(15))
    expected = [(11, False), (14, True), (15, False)]
    assert places(await received(consumer, 3)) == expected
    consumer.close()
    await feed.load_again(20)
    again = await feed.open(begin)
    assert places(await received(again, 3)) == expected
    again.close()


async def test_external_changes_below_a_position_come_from_all_pages_before_what_follows(feed: Feed) -> None:
    await feed.load_again(3_000)
    begin = (await feed.open()).position
    feed.write(change(3_001))
    await feed.load_again(3_010)
    feed.trail.found_late = [change(revision, kind=EXTERNAL) for revision in range(1, 2_003)]
    consumer = await feed.open(begin)
    found = await received(consumer, 2_003)
    assert places(found) == [(revision, False) for revision in [*range(1, 2_003), 3_001]]
    assert [each.position is not None for each in found] == [False] * 2_002 + [True]
    consumer.close()


async def test_a_deletion_that_was_recorded_above_the_load_comes_before_what_moves_the_position(feed: Feed) -> None:
    """The process that was loaded has no event of it, and the other one has the event below the position."""
    other = await feed.open()
    begin, gone = other.position, outside(0, 5)
    feed.journal.record(Tree.CONFIG, gone.id, gone, None, 15)
    feed.journal.advance(15)
    assert places(await received(other, 1)) == [(15, False)]
    feed.write(change(18))
    later = Feed(feed.trail)
    later.journal.begin(20)
    of_out = replace(entity("out", "0"), before={RATE: "0"}, after={}, version=None)
    feed.trail.found_late = [change(25, kind=EXTERNAL, entities=[of_out])]
    try:
        consumer = await later.open(begin)
        late, found = await received(consumer, 2)
        consumer.close()
    finally:
        await later.hub.stop()
    assert places([late, found]) == [(25, False), (18, False)]
    assert late.position is None
    assert late.parts[0].keys[0].after is None
    # The other process continues after both.
    again = await feed.open(found.position)
    feed.write(change(26))
    assert places(await received(again, 1)) == [(26, False)]
    for each in (other, again):
        each.close()


async def test_external_changes_above_a_load_come_to_a_consumer_that_read_the_trail_during_it(feed: Feed) -> None:
    begin = (await feed.open()).position
    feed.write(change(11), change(12))
    await feed.load_again(20)
    consumer = await feed.open(begin)
    async with asyncio.timeout(PATIENCE_S), aclosing(consumer.deliveries()) as deliveries:
        found = [await anext(deliveries)]
        await feed.load_again(30)
        feed.trail.found_late = [
            change(number, kind=EXTERNAL, entities=[entity("out", "0")]) for number in (25, 35, 36)
        ]
        found += [await anext(deliveries) for _ in range(3)]
    # Both of one entity, because the second does not have the keys that only the first altered.
    assert places(found) == [(11, False), (12, False), (35, False), (36, False)]
    consumer.close()


async def test_a_reset_shows_nothing_of_a_change_that_may_be_hidden(feed: Feed) -> None:
    consumer = await feed.open()
    feed.write(change(11, kind=IMPORT, principal="User:hidden", behalf_of="hidden", reason="hidden", ticket="hidden"))
    [reset] = await received(consumer, 1)
    shown = orjson.loads(event_json("default", reset))
    assert "hidden" not in str(shown)
    assert (shown["type"], shown["revision"], shown["principal"]) == ("reset", "11", "confplane")
    consumer.close()


async def test_a_node_that_was_made_and_deleted_unseen_waits_for_open_changes(feed: Feed) -> None:
    consumer = await feed.open()
    feed.trail.open = {UUID(int=7): "/config/users/brief"}
    feed.journal.record(Tree.CONFIG, "user=brief", None, None, 12)
    feed.journal.advance(12)
    reader = asyncio.ensure_future(received(consumer, 1))
    await feed.trail.asked.wait()
    feed.trail.found.append(change(11, "brief"))
    feed.trail.open.clear()
    assert places(await reader) == [(11, False)]
    consumer.close()


async def test_a_change_whose_writer_writes_no_outcome_is_concluded_by_its_marker(
    feed: Feed, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Another one, which has no marker, has written nothing yet: it is not waited for."""
    monkeypatch.setattr(streams, "SETTLE_S", 0.0)
    consumer = await feed.open()
    written, unsent = UUID(int=7), UUID(int=8)
    feed.trail.open = {written: "/config/users/ours", unsent: "/config/users/out"}
    feed.trail.committed = [
        Marker(written, committed=True, attempt=1, revision=11, time_ms=NOW_MS, versions={"/config/users/ours": 0})
    ]
    feed.journal.record(Tree.CONFIG, "user=ours", None, Node("user=ours", (RATE, "1"), 0, 11, 11, NOW_MS))
    feed.journal.record(Tree.CONFIG, "user=out", None, outside(0, 12))
    feed.journal.advance(12)
    [first, second] = [orjson.loads(event_json("default", each)) for each in await received(consumer, 2)]
    assert (first["source"], first["changeId"]) == ("confplane", str(written))
    assert (second["source"], second["entities"][0]["id"]) == ("external", "user=out")
    assert [each.change_id for each in feed.trail.concluded] == feed.trail.released == [written]
    consumer.close()


async def test_a_committed_change_is_waited_for_until_its_outcome_is_written(
    feed: Feed, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(streams, "SETTLE_S", 0.0)
    consumer = await feed.open()
    written, refused = UUID(int=7), asyncio.Event()
    feed.trail.open = {written: "/config/users/ours"}
    feed.trail.committed = [
        Marker(written, committed=True, attempt=1, revision=11, time_ms=NOW_MS, versions={"/config/users/ours": 0})
    ]
    conclude = feed.trail.conclude

    async def conclude_later(outcomes: Sequence[Outcome]) -> bool:
        if refused.is_set():
            return await conclude(outcomes)
        refused.set()
        return False

    monkeypatch.setattr(feed.trail, "conclude", conclude_later)
    feed.journal.record(Tree.CONFIG, "user=ours", None, Node("user=ours", (RATE, "1"), 0, 11, 11, NOW_MS))
    feed.journal.advance(11)
    [delivery] = await received(consumer, 1)
    assert delivery.event is not None
    assert delivery.event.change.place.change_id == written
    consumer.close()


def outside(version: int, mzxid: int) -> Node:
    return Node("user=out", (RATE, str(version)), version, 5, mzxid, NOW_MS + mzxid)


@pytest.mark.parametrize("read", ["with its notification", "before its notification"])
async def test_an_external_state_has_the_place_of_its_notification(feed: Feed, read: str) -> None:
    """Any process that has passed the notification has shown the state; one that has not may have read it or not."""
    consumer = await feed.open()
    found = outside(1, 11)
    feed.journal.record(Tree.CONFIG, found.id, outside(0, 5), found)
    if read == "before its notification":
        feed.journal.advance(12)
        assert places(await received(consumer, 1)) == [(11, False)]
    feed.journal.record(Tree.CONFIG, found.id, found, found, 14)
    feed.journal.advance(15)
    [delivery] = await received(consumer, 1)
    event = orjson.loads(event_json("default", delivery))
    assert (event["revision"], event["entities"][0]["revision"]) == ("14", "11")
    assert event["entities"][0]["keys"] == [{"key": RATE, "before": 0, "after": 1, "sensitive": False}]
    consumer.close()


async def test_a_state_from_before_the_load_is_shown_with_its_notification(feed: Feed) -> None:
    """Unless a change of ours left it."""
    consumer = await feed.open()
    feed.trail.found.append(change(8, "ours"))
    ours = Node("user=ours", (RATE, "8"), 0, 8, 8, NOW_MS)
    found = outside(3, 9)
    for node in (ours, found):
        feed.journal.record(Tree.CONFIG, node.id, node, node, 12)
    feed.write(change(13))
    [first, second] = [orjson.loads(event_json("default", each)) for each in await received(consumer, 2)]
    assert (first["source"], first["entities"][0]["id"], first["entities"][0]["revision"]) == (
        *("external", "user=out", "9"),
    )
    assert first["entities"][0]["keys"] == [{"key": RATE, "before": None, "after": 3, "sensitive": False}]
    assert second["revision"] == "13"
    consumer.close()


async def test_a_consumer_that_is_too_far_behind_is_disconnected_and_continues_from_the_trail(
    feed: Feed, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(streams, "RING_EVENTS", 4)
    slow, quick = await feed.open(), await feed.open()
    first = slow.deliveries()
    for revision in range(11, 31):
        feed.write(change(revision))
        await received(quick, 1)
        if revision == 11:
            assert places([await anext(first)]) == [(11, False)]
    rest = [each async for each in first]
    assert slow.reason == "slow-consumer"
    position = slow.position
    slow.close()
    again = await feed.open(position)
    behind = position.place.revision + 1
    assert places(rest) == [(revision, False) for revision in range(12, behind)]
    assert places(await received(again, 31 - behind)) == [(revision, False) for revision in range(behind, 31)]
    for each in (again, quick):
        each.close()


async def test_a_consumer_of_one_entity_or_user_is_offered_their_changes_alone_and_every_reset(
    feed: Feed, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also after more changes of others than the ring has."""
    monkeypatch.setattr(streams, "RING_EVENTS", 4)
    every = await feed.open()
    of_entity = await feed.open(wanted=FeedFilter(entity_id="user=one"))
    of_user = await feed.open(wanted=FeedFilter(user="one"))
    for revision in range(11, 31):
        feed.write(change(revision))
        await received(every, 1)
    pair = FeedEntity(
        "user=one,client-id=a", "/config/users/one/clients/a", None, None, 0, None, [RATE], {}, {RATE: "1"}
    )
    feed.write(change(31, "one"))
    feed.write(change(32, entities=[pair]))
    feed.write(change(33, kind=IMPORT))
    assert places(await received(every, 3)) == [(31, False), (32, False), (33, True)]
    assert places(await received(of_entity, 2)) == [(31, False), (33, True)]
    assert places(await received(of_user, 3)) == [(31, False), (32, False), (33, True)]
    for each in (every, of_entity, of_user):
        each.close()


async def test_a_ring_that_begins_again_moves_no_consumer_that_reads_the_trail(feed: Feed) -> None:
    begin = (await feed.open()).position
    feed.write(change(11))
    await feed.load_again(20)
    consumer = await feed.open(begin)
    await feed.load_again(30)
    assert places(await received(consumer, 1)) == [(11, False)]
    consumer.close()


async def test_a_large_event_is_cut_and_has_a_link(feed: Feed) -> None:
    consumer = await feed.open()
    found = change(11, entities=[entity(f"u{number}", "x" * 100_000) for number in range(20)])
    feed.write(found)
    [delivery] = await received(consumer, 1)
    rendered = event_json("default", delivery)
    assert len(rendered) < 1_100_000
    event = orjson.loads(rendered)
    assert event["truncated"] is True
    assert event["link"] == f"/v1/clusters/default/audit/{found.place.change_id}"
    assert [each["id"] for each in event["entities"]] == [f"user=u{number}" for number in range(9)]
    consumer.close()


async def test_streams_are_bounded_per_principal_and_per_process(feed: Feed, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(hubs, "MOST", hubs.MOST_OF_PRINCIPAL + 1)
    found = [await feed.open() for _ in range(hubs.MOST_OF_PRINCIPAL)]
    with pytest.raises(LimitExceededError):
        await feed.open()
    found.append(await feed.open(principal="User:two"))
    with pytest.raises(TooManyConnectionsError):
        await feed.open(principal="User:three")
    for each in found:
        each.close()
    (await feed.open(principal="User:three")).close()


async def test_now_is_after_everything_that_the_mirror_has(feed: Feed) -> None:
    consumer = await feed.open()
    consumer.close()
    feed.write(change(11))
    assert (await feed.open()).position.place >= HistoryPlace(1, 11, LAST_ID)


def undone(name: str, age: timedelta) -> tuple[datetime, FeedChange]:
    """An external write that was undone some time ago."""
    at = datetime.now(UTC) - age
    time_ms = int(at.timestamp() * 1000)
    place = HistoryPlace(0, 0, UUID(int=(time_ms << 80) + len(name)))
    made = entity(name, "7")
    return at, FeedChange(place, time_ms, PUT_BACK, "External:unknown", None, None, None, [made])


async def test_put_backs_have_no_id_and_come_again_after_a_resume(feed: Feed) -> None:
    """Resumes get the put-backs after their position only, and a new consumer gets those of its time."""
    feed.statuses.applies = True
    feed.trail.undone = [undone("old", timedelta(minutes=5))]
    consumer = await feed.open()
    begin = consumer.position._replace(time_ms=time.time_ns() // 1_000_000)
    feed.trail.undone.append(undone("new", timedelta()))
    [delivery] = await received(consumer, 1)
    shown = orjson.loads(event_json("default", delivery))
    assert (shown["type"], shown["source"], shown["revision"]) == ("put-back", "external", "0")
    assert "id" not in shown
    [made] = shown["entities"]
    assert (made["id"], made["revision"], made["keys"][0]["after"]) == ("user=new", "0", 7)
    for age, expected in ((timedelta(), ["user=new"]), (timedelta(hours=1), ["user=old", "user=new"])):
        earlier = begin._replace(time_ms=begin.time_ms - age // timedelta(milliseconds=1))
        again = await feed.open(earlier)
        found = await received(again, len(expected))
        assert [each.parts[0].entity.id for each in found] == expected
        assert again.resting_position().place == begin.place
        again.close()
    consumer.close()


@pytest.mark.parametrize("lost", ["second page of put-backs", "apply statuses"])
async def test_no_put_back_is_lost_with_an_answer_of_postgres(feed: Feed, lost: str) -> None:
    feed.statuses.applies = True
    consumer = await feed.open()
    feed.trail.undone += [undone("x" * number, timedelta()) for number in range(1, 102)]
    ids = sorted(each.place.change_id for _, each in feed.trail.undone)
    if lost == "apply statuses":
        feed.statuses.lost_answers = 1
    else:
        feed.trail.lost_pages.append(ids[99])
    found = await received(consumer, len(ids))
    assert sorted(each.event.change.place.change_id for each in found if each.event is not None) == ids
    assert (feed.trail.lost_pages, feed.statuses.lost_answers) == ([], 0)
    consumer.close()


async def test_statuses_that_change_are_sent_and_after_a_resume_those_not_applied(feed: Feed) -> None:
    refused = ApplyStatus(ChangeApplyState.REFUSED, 3, 42, "no such listener")
    applied = ApplyStatus(ChangeApplyState.APPLIED, 5)
    feed.statuses.found = {"user=a": PENDING, "user=b": refused, "user=done": applied}
    feed.statuses.applies = True
    consumer, plain = await feed.open(statuses=True), await feed.open()
    begin = consumer.position
    [first] = await received(consumer, 1)
    assert first.statuses == {"user=a": PENDING, "user=b": refused}
    feed.statuses.found["user=a"] = applied
    [second] = await received(consumer, 1)
    assert (second.statuses, second.position, consumer.position) == ({"user=a": applied}, None, begin)
    again = await feed.open(begin, statuses=True)
    [current] = await received(again, 1)
    assert current.statuses == {"user=b": refused}
    # Only for consumers that ask for them.
    feed.write(change(11))
    [found] = await received(plain, 1)
    assert found.event is not None
    for each in (consumer, plain, again):
        each.close()


async def test_a_consumer_that_is_slow_to_take_a_page_of_the_trail_gives_its_place_up(feed: Feed) -> None:
    begin = (await feed.open()).position
    feed.write(*map(change, range(11, 15)))
    await feed.load_again(20)
    slow = [await feed.open(begin) for _ in range(hubs.MOST_REPLAYS)]
    taken = [each.deliveries() for each in slow]
    firsts = [await anext(each) for each in taken]
    assert places(firsts) == [(11, False)] * len(slow)
    feed.now = PAGE_S
    for each in slow:
        each.check()
    with pytest.raises(UnavailableError):
        await feed.open(begin)
    feed.now = PAGE_S + 1
    for each in slow:
        each.check()
    assert [[each async for each in rest] for rest in taken] == [[]] * len(slow)
    assert {each.reason for each in slow} == {"slow-consumer"}
    # Each continues after what it took.
    again = await feed.open(slow[0].position)
    assert places(await received(again, 3)) == [(revision, False) for revision in (12, 13, 14)]
    for each in (*slow, again):
        each.close()


async def test_a_position_is_given_out_once_the_trail_covers_what_follows(feed: Feed) -> None:
    feed.recorded.add("default")
    feed.trail.covers = chain([None, 12], repeat(10))
    begin = (await feed.open()).position
    assert begin.place.revision == 10
    feed.trail.covers = repeat(None)
    (await feed.open()).close()
    await feed.load_again(20)
    with pytest.raises(UnavailableError, match="has not begun yet"):
        await feed.open(begin)
