"""Events of change requests in the feed: their order, and consumers that continue on other processes."""

from __future__ import annotations

import asyncio
import random
from contextlib import aclosing
from dataclasses import replace
from typing import TYPE_CHECKING, Any
from uuid import UUID

import pytest

from confplane.domain.access.operations import ResourceType
from confplane.domain.access.ranges import NameRanges, spell
from confplane.domain.base64url import decode_base64url
from confplane.domain.change_requests import RequestEventType, RequestKind, RequestState
from confplane.domain.entities import EntityType
from confplane.domain.errors import InvalidRequestError
from confplane.domain.facets import FacetName
from confplane.services.feed import request_events
from confplane.services.feed.consumer import FeedConsumer
from confplane.services.feed.events import FeedEvent, FeedFilter, RequestSelection
from confplane.services.feed.merge import with_requests
from confplane.services.feed.positions import FeedPosition, decode, encode
from confplane.services.feed.request_events import number_of
from confplane.services.ports.feed import REQUEST, FeedChange, FeedRequest
from confplane.services.ports.trail import END_OF_HISTORY, HistoryPlace
from tests.support.waiting import until
from tests.unit.services.feed_double import NOW_MS, Feed, Trail, change, received

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Sequence

    from confplane.services.feed.consumer import FeedDelivery

ALL = FeedFilter(requests=RequestSelection.INCLUDE)


def event(number: int, *names: str, applied: HistoryPlace | None = None, at: int = 0) -> FeedChange:
    """An event of the request of some users."""
    request = FeedRequest(
        *(UUID(int=1), number, RequestEventType.PROPOSED, RequestState.OPEN, RequestKind.CHANGE, "User:dev", 1),
        [f"user={name}" for name in names or ("alice",)],
        None,
        applied,
    )
    place = HistoryPlace(0, 0, UUID(int=number))
    return FeedChange(place, NOW_MS + at, REQUEST, "User:dev", None, None, None, (), request=request)


@pytest.fixture
async def feed(monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[Feed]:
    monkeypatch.setattr(request_events, "INTERVAL_S", 0.01)
    made = Feed()
    yield made
    await made.hub.stop()


def shown(found: list[FeedDelivery]) -> list[int]:
    """The revisions of changes, and the negative numbers of events of requests."""
    events = [each.event for each in found if each.event is not None]
    return [-number_of(each.change) or each.change.place.revision for each in events]


async def test_an_event_comes_behind_the_changes_that_the_process_has(feed: Feed) -> None:
    consumer = await feed.open(wanted=ALL)
    feed.write(change(11))
    assert shown(await received(consumer, 1)) == [11]
    feed.trail.requested.append(event(1))
    [delivery] = await received(consumer, 1)
    assert delivery.event is not None
    assert (shown([delivery]), delivery.event.type, delivery.event.position.place.revision) == ([-1], "request", 11)
    feed.write(change(12))
    assert shown(await received(consumer, 1)) == [12]
    assert consumer.position.requests == 1
    consumer.close()


async def test_the_event_of_an_applied_request_waits_for_its_change(
    feed: Feed, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(request_events, "MOST_POLLS", 1 << 30)
    consumer = await feed.open(wanted=ALL)
    feed.trail.requested += [event(1, applied=END_OF_HISTORY), event(2)]
    feed.write(change(11))
    assert shown(await received(consumer, 1)) == [11]
    later = change(12)
    feed.trail.requested[0] = event(1, applied=later.place)
    feed.write(later)
    assert shown(await received(consumer, 3)) == [12, -1, -2]
    consumer.close()


async def test_an_outcome_that_is_lost_does_not_hold_events_up_for_ever(feed: Feed) -> None:
    consumer = await feed.open(wanted=ALL)
    feed.trail.requested += [event(1, applied=END_OF_HISTORY), event(2)]
    assert shown(await received(consumer, 2)) == [-1, -2]
    consumer.close()


async def test_consumers_from_now_on_do_not_shorten_the_wait_for_an_outcome() -> None:
    feed = Feed()
    (await feed.open(wanted=ALL)).close()
    feed.trail.requested.append(event(1, applied=END_OF_HISTORY))
    for _ in range(2 * request_events.MOST_POLLS):
        consumer = await feed.open(wanted=ALL)
        consumer.close()
    assert consumer.position.requests == 0
    await feed.hub.stop()


async def test_an_event_of_a_newer_release_is_left_out_and_counted(feed: Feed) -> None:
    consumer = await feed.open(wanted=ALL)
    unknown = event(1)
    assert unknown.request is not None
    feed.trail.requested += [replace(unknown, request=replace(unknown.request, type=None, state="newer")), event(2)]
    assert shown(await received(consumer, 1)) == [-2]
    counted = [each for each in feed.hub.metrics() if each.name == "feed_unknown_events"]
    assert [(each.labels, each.value) for each in counted] == [(("default",), 1)]
    consumer.close()


async def test_events_that_could_not_be_published_are_published_by_a_later_poll(
    feed: Feed, monkeypatch: pytest.MonkeyPatch
) -> None:
    consumer = await feed.open(wanted=ALL)
    offer, failures = FeedConsumer.offer, [RuntimeError("an error of this service")]

    def failing(each: FeedConsumer, events: Sequence[FeedEvent], number: int) -> None:
        if failures:
            raise failures.pop()
        offer(each, events, number)

    monkeypatch.setattr(FeedConsumer, "offer", failing)
    feed.trail.requested += [event(1), event(2)]
    assert shown(await received(consumer, 2)) == [-1, -2]
    assert failures == []
    feed.trail.requested.append(event(3))
    assert shown(await received(consumer, 1)) == [-3]
    consumer.close()


async def test_events_come_only_if_they_are_asked_for(feed: Feed) -> None:
    consumers = [
        await feed.open(wanted=FeedFilter(requests=selection))
        for selection in (None, RequestSelection.INCLUDE, RequestSelection.ONLY)
    ]
    feed.trail.requested.append(event(1))
    await until(lambda: not consumers[1].idle)
    feed.write(change(11))
    assert [shown(await received(each, count)) for each, count in zip(consumers, (1, 2, 1), strict=True)] == [
        [11],
        [-1, 11],
        [-1],
    ]
    for each in consumers:
        each.close()


@pytest.mark.parametrize(
    ("wanted", "taken"),
    [
        ({}, True),
        ({"entity_id": "user=alice"}, True),
        ({"entity_id": "user=carol"}, False),
        ({"entity_type": EntityType.USER}, True),
        ({"entity_type": EntityType.TOPIC}, False),
        ({"user": "bob"}, True),
        ({"prefix": "bo"}, True),
        ({"prefix": "x"}, False),
        ({"principal": "User:dev"}, True),
        ({"principal": "User:ops"}, False),
        ({"facet": FacetName.CLIENT_QUOTAS}, False),
        ({"key": "producer_byte_rate"}, False),
    ],
)
def test_filters_select_events_by_any_entity(wanted: dict[str, Any], *, taken: bool) -> None:
    made = FeedEvent(FeedPosition(HistoryPlace(1, 11, UUID(int=0)), 0), event(1, "alice", "bob"), ())
    for selection in RequestSelection:
        asked = FeedFilter(**wanted, requests=selection)
        assert (asked.select(made, None, lambda _: True) is not None) == taken
        assert asked.select(made, None, lambda _: False) is None
    assert FeedFilter(**wanted).select(made, None, lambda _: True) is None


async def test_events_are_hidden_unless_all_entities_of_the_request_may_be_described(feed: Feed) -> None:
    consumer = await feed.open(wanted=ALL)
    access: Any = consumer.access
    access.unlimited = False
    access.allows = lambda *_: False
    access.allowed = lambda *_: NameRanges(("user=a",), ("user=b",))
    feed.trail.requested += [event(1, "alice", "bob"), event(2, "bob"), event(3, "alice")]
    assert shown(await received(consumer, 1)) == [-3]
    # The reader of all requests of the author.
    access.allows = lambda _cluster, _operation, spelling: spelling == spell(ResourceType.CHANGE_REQUESTS, "User:dev")
    feed.trail.requested.append(event(4, "bob"))
    assert shown(await received(consumer, 1)) == [-4]
    consumer.close()


async def test_a_position_of_an_event_that_does_not_exist_is_refused(feed: Feed) -> None:
    feed.trail.requested.append(event(1))
    consumer = await feed.open(wanted=ALL)
    position = consumer.position
    consumer.close()
    with pytest.raises(InvalidRequestError):
        await feed.open(position._replace(requests=2), wanted=ALL)
    # Another process has published an event that this one has not read yet.
    feed.trail.requested.append(event(2))
    (await feed.open(position._replace(requests=2), wanted=ALL)).close()


def test_positions_with_and_without_events_are_read_as_they_were_given() -> None:
    position = FeedPosition(HistoryPlace(3, 7, UUID(int=7)), 1_767_225_600_000)
    for each in (position, position._replace(requests=0), position._replace(requests=12)):
        assert decode("default", encode("default", each), "after") == each


async def test_a_process_of_an_earlier_release_can_continue_from_positions_without_events(feed: Feed) -> None:
    consumer = await feed.open()
    feed.trail.requested.append(event(1))
    asking = await feed.open(wanted=ALL)
    feed.write(change(11))
    [delivery] = await received(consumer, 1)
    for position in (delivery.position, consumer.resting_position()):
        assert position is not None
        # The parts that earlier releases read: incarnation, revision, change id, time and cluster.
        *numbers, cluster = decode_base64url(encode("default", position)).decode().split("@")
        assert (len(numbers), numbers[3].isdigit(), cluster) == (4, True, "default")
    # With events of requests it has one from the first, before there are any.
    assert asking.position.requests == 1
    assert (await Feed().open(wanted=ALL)).position.requests == 0
    for each in (consumer, asking):
        each.close()


async def test_events_of_the_time_before_a_restore_of_zookeeper_are_not_left_out(feed: Feed) -> None:
    feed.trail.requested.append(event(1))
    consumer = await feed.open(wanted=ALL)
    # ZooKeeper is replaced before the next poll of events.
    feed.trail.requested.append(event(2))
    feed.cluster.store.incarnation = 2
    feed.journal.begin(20)
    feed.trail.requested.append(event(3))
    assert shown(await received(consumer, 2)) == [-2, -3]
    consumer.close()


async def test_who_asks_for_events_later_gets_those_from_then_on(feed: Feed) -> None:
    consumer = await feed.open()
    position = consumer.position
    consumer.close()
    feed.trail.requested += [event(1), event(2)]
    feed.write(change(11))
    consumer = await feed.open(position, wanted=ALL)
    feed.trail.requested.append(event(3))
    assert shown(await received(consumer, 2)) == [11, -3]
    consumer.close()


@pytest.mark.parametrize(
    ("all_changes", "all_requests", "expected"),
    [
        (True, True, [11, -1, 12, 13, -2, -3]),
        # What follows the last change may be before the next event, and the other way around.
        (False, True, [11, -1, 12, 13]),
        (True, False, [11, -1, 12, 13, -2, -3]),
        (False, False, [11, -1, 12, 13]),
    ],
)
def test_events_and_changes_of_the_trail_have_one_order(
    expected: list[int], *, all_changes: bool, all_requests: bool
) -> None:
    changes = [change(revision) for revision in (11, 12, 13)]
    requests = [event(1, at=11, applied=changes[0].place), event(2, at=11, applied=changes[2].place), event(3)]
    merged = with_requests(changes, requests, all_changes=all_changes, all_requests=all_requests)
    assert [-number_of(each) or each.place.revision for each in merged] == expected


@pytest.mark.parametrize("seed", range(20))
async def test_consumers_that_change_between_processes_get_each_event_once(
    seed: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Processes put the events behind different changes, and their rings begin at different times."""
    monkeypatch.setattr(request_events, "INTERVAL_S", 0.001)
    chance, trail = random.Random(seed), Trail()  # noqa: S311 - no secret
    processes = [Feed(trail), Feed(trail)]
    consumer = await processes[0].open(wanted=ALL)
    position, got = consumer.position, list[int]()
    consumer.close()
    unseen: list[list[FeedChange]] = [[], []]
    revision, number, expected = 10, 0, set[int]()
    for _ in range(40):
        if chance.random() < 0.5:
            revision += 1
            made = change(revision)
            trail.found.append(made)
            expected.add(revision)
            for each in unseen:
                each.append(made)
        else:
            number += 1
            trail.requested.append(event(number, at=revision))
            expected.add(-number)
        await asyncio.sleep(0)
        at = chance.randrange(2)
        processes[at].see(*unseen[at])
        unseen[at].clear()
        if chance.random() < 0.1:
            await processes[at].load_again(revision)
        if not unseen[at] and chance.random() < 0.5:
            consumer = await processes[at].open(position, wanted=ALL)
            async with aclosing(consumer.deliveries(0.0)) as deliveries:
                async for delivery in deliveries:
                    assert delivery.position is not None
                    got += shown([delivery])
                    position = delivery.position
                    if chance.random() < 0.3:
                        break
            consumer.close()
    processes[1].see(*unseen[1])
    consumer = await processes[1].open(position, wanted=ALL)
    if missing := len(expected) - len(got):
        got += shown(await received(consumer, missing))
    consumer.close()
    for process in processes:
        await process.hub.stop()
    assert sorted(got) == sorted(expected)
    assert [each for each in got if each > 0] == sorted(each for each in expected if each > 0)
    assert [-each for each in got if each < 0] == list(range(1, number + 1))


async def test_events_that_left_the_ring_come_from_postgres(feed: Feed) -> None:
    first = await feed.open(wanted=ALL)
    begin = first.position
    feed.trail.requested += [event(number, at=10) for number in range(1, 251)]
    feed.write(*(change(revision) for revision in range(11, 14)))
    await received(first, 253)
    first.close()
    await feed.load_again(20)
    consumer = await feed.open(begin, wanted=ALL)
    found = shown(await received(consumer, 253))
    assert found == [*range(-1, -251, -1), 11, 12, 13]
    consumer.close()
