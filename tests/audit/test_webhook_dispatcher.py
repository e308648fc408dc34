"""The dispatcher of webhooks on Postgres, with a clock of the test: pauses, parking, and other processes."""

from __future__ import annotations

import asyncio
import json
from datetime import UTC, datetime, timedelta
from itertools import pairwise
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any
from uuid import UUID

import pytest
from uuid_utils.compat import uuid7

from confplane.audit import Database, PostgresWebhooks
from confplane.crypto import WebhookKey
from confplane.domain.entities import Entity
from confplane.domain.errors import BeforeHistoryError, UnavailableError
from confplane.domain.facets import FacetName
from confplane.domain.outbound_urls import UrlGuard
from confplane.services.feed.consumer import FeedDelivery
from confplane.services.feed.events import EventPart, FeedEvent, KeyValues
from confplane.services.feed.positions import FeedPosition, decode, encode
from confplane.services.ports.access import AccessChange
from confplane.services.ports.feed import FeedChange
from confplane.services.ports.trail import EXTERNAL, HistoryPlace
from confplane.services.ports.webhooks import (
    MOST_OF_CLUSTER,
    MOST_OF_OWNER,
    OutboundError,
    Subscription,
    WebhookFormat,
)
from confplane.services.webhooks import dispatcher
from confplane.services.webhooks.deliverer import WebhookDeliverer
from confplane.services.webhooks.dispatcher import PARKED_AFTER, RETRIES_S, WebhookDispatcher
from confplane.services.webhooks.secrets import WebhookSecrets, seal
from tests.support.alerts import PartAlerts
from tests.support.waiting import until

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable, Mapping

    from confplane.domain.outbound_urls import OutboundUrl
    from tests.support import servers

KEY = WebhookKey("0123456789abcdef0123456789abcdef")
START = datetime(2026, 1, 31, tzinfo=UTC)


class Clock:
    """A clock that passes over each pause at once."""

    def __init__(self) -> None:
        self.now = START

    async def sleep(self, seconds: float) -> None:
        self.now += timedelta(seconds=seconds)
        await asyncio.sleep(0)


class Sender:
    """Keeps what is sent, and responds with a status, or with none."""

    def __init__(self) -> None:
        self.sent: list[str] = []
        self.status: int | None = 204
        self.before: Callable[[], Any] = lambda: None

    async def post(self, url: OutboundUrl, headers: Mapping[str, str], body: bytes) -> int:
        del url, headers
        self.sent.append(json.loads(body)["id"])
        await self.before() if asyncio.iscoroutinefunction(self.before) else self.before()
        if self.status is None:
            raise OutboundError("no connection to the host")
        return self.status


class Consumer:
    """A consumer of some events."""

    reason = None

    def __init__(self, feeds: Feeds, start: FeedPosition, left: list[FeedDelivery]) -> None:
        self.feeds, self.position, self.last, self.left = feeds, start, start.place, left

    @property
    def idle(self) -> bool:
        return not self.left

    async def deliveries(self) -> AsyncIterator[FeedDelivery]:
        while self.left:
            delivery = self.left.pop(0)
            if delivery.position is not None:
                self.last = max(self.last, Feeds.place(delivery))
            yield delivery
        self.feeds.waiting += 1
        await asyncio.Event().wait()

    def resting_position(self) -> FeedPosition:
        return self.position._replace(place=self.last)

    def close(self) -> None:
        """Nothing is held."""


class Feeds:
    """A feed with some events. A position may be before its begin."""

    def __init__(self) -> None:
        self.events: list[FeedDelivery] = []
        self.waiting = 0
        """Consumers so far that had taken everything."""
        self.gone = False
        self.requests = 7
        """The number of the newest event of a change request."""

    async def open(self, cluster: Any, access: Any, wanted: Any, after: FeedPosition | None, deadline: float) -> Any:
        del cluster, access, deadline
        number = after.requests if after is not None and after.requests is not None else self.requests
        requests = None if wanted.requests is None else number
        if after is None:
            return Consumer(self, FeedPosition(HistoryPlace(1, 99, UUID(int=0)), 0, requests=requests), [])
        if self.gone:
            self.gone = False
            raise BeforeHistoryError("too old", pointer="after", oldest="o")
        start = after.place
        left = [each for each in self.events if each.position is None or self.place(each) > start]
        return Consumer(self, after._replace(requests=requests), left)

    @staticmethod
    def place(delivery: FeedDelivery) -> HistoryPlace:
        assert delivery.event is not None
        return delivery.event.position.place

    def add(self, revision: int, *, kind: str = "alter", late: bool = False, reason: str | None = None) -> str:
        place = HistoryPlace(1, revision, uuid7())
        change = FeedChange(place, 0, kind, "User:olga", None, reason, None, [])
        part = EventPart(Entity.of(user="a"), FacetName.CLIENT_QUOTAS, revision, [KeyValues("k", None, 1, False)])  # noqa: FBT003
        event = FeedEvent(FeedPosition(place, 0), change, [part])
        self.events.append(FeedDelivery(event, position=None if late else event.position))
        return str(place.change_id)


def rendered(_: str, delivery: FeedDelivery) -> bytes:
    assert delivery.event is not None
    if delivery.event.change.reason == "unrenderable":
        raise TypeError
    change_id = str(delivery.event.change.place.change_id)
    return json.dumps({"type": "change", "changeId": change_id, "time": "t", "entities": []}).encode()


class World:
    """A dispatcher with everything around it."""

    def __init__(self, store: PostgresWebhooks) -> None:
        self.store, self.clock, self.sender, self.feeds = store, Clock(), Sender(), Feeds()
        self.leadership = SimpleNamespace(held=True)
        self.loss: str | None = None
        self.visible: Any = None
        cluster: Any = SimpleNamespace(name="one", store=SimpleNamespace(leadership=self.leadership))
        owners: Any = SimpleNamespace(loss=lambda _: self.loss, visible=lambda _: self.visible, may_see=lambda *_: True)
        deliverer = WebhookDeliverer(self.sender, KEY, UrlGuard(), None, lambda: self.clock.now)
        feeds: Any = self.feeds
        self.dispatcher = WebhookDispatcher(cluster, store, feeds, owners, deliverer, rendered, sleep=self.clock.sleep)

    async def subscribe(
        self, name: str = "hook", *, key: WebhookKey = KEY, owner: str | None = None, **wanted: str
    ) -> Subscription:
        new_id = uuid7()
        position = encode("one", FeedPosition(HistoryPlace(1, 0, UUID(int=0)), 0))
        sealed = seal(key, new_id, WebhookSecrets("https://hooks.example.com/"))
        owner = owner or f"User:owner-of-{name}"
        made = Subscription(
            *(
                new_id,
                "one",
                name,
                owner,
                frozenset(),
                False,
                WebhookFormat.CLOUDEVENTS,
                wanted,
                "https://hooks.example.com/...",
            ),
            *(sealed, None, START, owner),
            position=position,
        )
        change = AccessChange(uuid7(), "webhook-created", owner, "s", f"webhooks/one/{name}")
        return await self.store.create(made, change)

    async def stored(self, name: str = "hook") -> Subscription:
        found = await self.store.find("one", name)
        assert found is not None
        return found


@pytest.fixture
async def world(migrated: servers.Database) -> AsyncIterator[World]:
    database = Database(migrated.service_dsn, pool_size=10)
    await database.start()
    made = World(PostgresWebhooks(database))
    try:
        yield made
    finally:
        await made.dispatcher.stop()
        await database.close()


async def parked(world: World) -> Subscription:
    async def found() -> Subscription | None:
        stored = await world.stored()
        return stored if stored.parked_at is not None else None

    made: Subscription = await until(found)
    return made


async def test_attempts_pause_longer_and_longer_and_a_day_of_failures_parks(world: World) -> None:
    await world.subscribe()
    change = world.feeds.add(1)
    world.feeds.add(2)
    alerts = PartAlerts(world.dispatcher)
    world.sender.status = None
    await world.dispatcher.round()
    stored = await parked(world)
    assert "has failed 31 times in a row; the last error: no connection to the host" in str(stored.parked_reason)
    assert set(world.sender.sent) == {change}, "later events wait"
    assert timedelta(hours=22) < world.clock.now - START < timedelta(hours=28)
    listed = [*(await world.store.deliveries(stored.id))][::-1]
    pauses = [(b.at - a.at).total_seconds() for a, b in pairwise(listed)]
    for pause, planned in zip(pauses, (*RETRIES_S, *[RETRIES_S[-1]] * len(pauses)), strict=False):
        assert 0.9 * planned <= pause <= 1.1 * planned
    await world.dispatcher.round()
    assert [str(each) for each in world.dispatcher.warnings()] == [
        "one: Parked webhooks, which send nothing until `confplane webhooks resume`: hook"
    ]
    assert alerts.scrape() == {"WebhooksParked"}


async def test_a_clock_that_was_wrong_delays_no_attempt_beyond_the_longest_pause(world: World) -> None:
    await world.subscribe()
    change = world.feeds.add(1)
    world.clock.now += timedelta(days=400)
    world.sender.status = None
    world.sender.before = lambda: setattr(world.leadership, "held", False)
    await world.dispatcher.round()

    async def failed() -> bool:
        return (await world.stored()).next_attempt_at is not None

    await until(failed)
    await world.dispatcher.round()
    # Another process leads, whose clock is right.
    world.clock.now, world.leadership.held = START, True
    world.sender.status, world.sender.before = 204, lambda: None
    await world.dispatcher.round()
    await until(lambda: len(world.sender.sent) > 1)
    assert world.sender.sent == [change] * 2
    assert world.clock.now - START <= timedelta(seconds=RETRIES_S[-1] * 1.1)


@pytest.mark.parametrize("days", [400, -400])
async def test_a_jump_of_the_clock_neither_parks_a_webhook_nor_delays_its_parking(world: World, days: int) -> None:
    def jump() -> None:
        if len(world.sender.sent) == 2:
            world.clock.now += timedelta(days=days)

    await world.subscribe()
    world.feeds.add(1)
    world.sender.status, world.sender.before = None, jump
    await world.dispatcher.round()
    await parked(world)
    assert len(world.sender.sent) == PARKED_AFTER


async def test_a_process_that_no_longer_leads_stops_and_moves_nothing_back(world: World) -> None:
    await world.subscribe()
    changes = [world.feeds.add(number) for number in (1, 2)]
    other = encode("one", FeedPosition(HistoryPlace(1, 2, UUID(int=2**128 - 1)), 0))

    async def overtaken() -> None:
        """Another process delivers both during our request."""
        world.sender.before = lambda: None
        assert await world.store.move(await world.stored(), other)

    world.sender.before = overtaken
    await world.dispatcher.round()
    await until(lambda: world.sender.sent)
    await until(lambda: all(task.done() for _, task in world.dispatcher._workers.values()))
    assert world.sender.sent == changes[:1]
    assert (await world.stored()).position == other
    world.leadership.held = False
    await world.dispatcher.round()
    assert list(world.dispatcher.metrics()) == []


async def test_a_delivery_is_recorded_once_postgres_is_back(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    await world.subscribe()
    change = world.feeds.add(1)
    record, left = world.store.record, [1, 2, 3]

    async def flaky(*arguments: Any, **more: Any) -> bool:
        if left:
            left.pop()
            raise UnavailableError("away")
        return await record(*arguments, **more)

    monkeypatch.setattr(world.store, "record", flaky)
    await world.dispatcher.round()
    await until(lambda: world.feeds.waiting)
    assert left == []
    assert world.sender.sent == [change]
    assert (await world.stored()).attempts == 0


async def test_a_change_that_can_not_be_rendered_is_sent_as_a_reset(
    world: World, caplog: pytest.LogCaptureFixture
) -> None:
    made = await world.subscribe()
    broken = world.feeds.add(1, reason="unrenderable")
    change = world.feeds.add(2)
    await world.dispatcher.round()
    await until(lambda: world.feeds.waiting)
    assert world.sender.sent == [broken, change]
    listed = await world.store.deliveries(made.id)
    assert [each.event_type for each in listed] == ["change", "reset"]
    assert f"change {broken} can't be sent" in caplog.text


async def test_an_unexpected_error_in_a_request_is_a_failed_attempt_and_shows_no_secret(
    world: World, caplog: pytest.LogCaptureFixture
) -> None:
    """Attempts pause as after any other failure, and the subscription is parked in the end."""
    made = await world.subscribe()
    world.feeds.add(1)

    secret = str(uuid7())  # not in the source, whose lines a traceback shows

    def fail() -> None:
        raise ValueError(secret)

    world.sender.before = fail
    await world.dispatcher.round()
    assert "an internal error" in str((await parked(world)).parked_reason)
    assert secret not in caplog.text + str(await world.store.deliveries(made.id))


async def test_more_external_changes_than_are_remembered_are_sent_once(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The feed repeats all of them for each page, until an event with a position follows."""
    monkeypatch.setattr(dispatcher, "REMEMBERED", 10)
    await world.subscribe()
    external = [world.feeds.add(1, kind=EXTERNAL, late=True) for _ in range(111)]
    own = world.feeds.add(2)
    await world.dispatcher.round()
    await until(lambda: own in world.sender.sent or len(world.sender.sent) > len(external))
    assert world.sender.sent == [*external, own]


async def test_a_list_read_before_a_worker_ended_starts_none_at_its_old_position(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    made = await world.subscribe()
    changes = [world.feeds.add(number) for number in (1, 2)]
    listed, go = world.store.list, asyncio.Event()

    async def wait_then_be_gone() -> None:
        await go.wait()
        world.sender.before = lambda: setattr(world.sender, "status", 410)

    async def outdated(cluster: str) -> list[Subscription]:
        found = await listed(cluster)
        go.set()
        await parked(world)
        return found

    world.sender.before = wait_then_be_gone
    await world.dispatcher.round()
    monkeypatch.setattr(world.store, "list", outdated)
    await world.dispatcher.round()
    monkeypatch.setattr(world.store, "list", listed)
    await world.dispatcher.round()
    assert world.sender.sent == changes
    assert [each.status for each in await world.store.deliveries(made.id)] == [410, 204]


async def test_lost_positions_become_a_reset(world: World) -> None:
    await world.subscribe()
    world.feeds.gone = True
    await world.dispatcher.round()
    await until(lambda: world.sender.sent)

    async def moved() -> bool:
        [delivery] = await world.store.deliveries((await world.stored()).id)
        return delivery.event_type == "reset"

    await until(moved, refused=ValueError)


async def test_a_place_among_events_of_requests_is_stored_before_anything_is_sent(world: World) -> None:
    """The filter has requests, and the position is from before: a later process must not leave out events."""
    await world.subscribe(requests="include")
    await world.dispatcher.round()

    async def number() -> int | None:
        return decode("one", (await world.stored()).position, "position").requests

    await until(lambda: world.feeds.waiting)
    assert await number() == 7
    await world.dispatcher.stop()
    world.feeds.requests = 9
    await world.dispatcher.round()
    await until(lambda: world.feeds.waiting == 2)
    assert await number() == 7


async def test_owners_without_rights_and_other_keys_park(world: World) -> None:
    await world.subscribe(key=WebhookKey("another key of 32 characters, ok"))
    world.feeds.add(1)
    await world.dispatcher.round()
    assert "another webhooks.key_file" in str((await parked(world)).parked_reason)
    assert world.sender.sent == []


async def test_a_lost_owner_parks(world: World) -> None:
    await world.subscribe()
    world.loss = "its owner has no grant left"
    world.feeds.add(1)
    await world.dispatcher.round()
    stored = await world.stored()
    assert stored.parked_reason == "its owner has no grant left"
    assert world.sender.sent == []


async def test_the_last_fifty_deliveries_are_kept(world: World) -> None:
    await world.subscribe()
    changes = [world.feeds.add(number) for number in range(1, 61)]
    await world.dispatcher.round()
    await until(lambda: len(world.sender.sent) == 60)

    async def all_recorded() -> bool:
        found = await world.store.deliveries((await world.stored()).id)
        return [each.event_id for each in found] == changes[:9:-1]

    await until(all_recorded)


async def test_concurrent_requests_make_no_more_than_the_limits(world: World) -> None:
    """Each of an owner of its own but for those of one; the cluster has 100 at most."""
    made = await asyncio.gather(
        *(world.subscribe(f"same-{number}", owner="User:same") for number in range(14)), return_exceptions=True
    )
    assert sum(isinstance(each, Subscription) for each in made) == MOST_OF_OWNER
    assert {str(each) for each in made if not isinstance(each, Subscription)} == {
        "User:same owns 10 webhooks, and may own no more. Remove one of them first"
    }
    made = await asyncio.gather(
        *(world.subscribe(f"other-{number}") for number in range(MOST_OF_CLUSTER)), return_exceptions=True
    )
    assert sum(isinstance(each, Subscription) for each in made) == MOST_OF_CLUSTER - MOST_OF_OWNER
    assert len(await world.store.list("one")) == MOST_OF_CLUSTER


async def test_a_request_that_others_overtake_gets_a_slot_as_long_as_one_is_free(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    database = world.store._database
    execute, overtaken = database.execute, iter(range(MOST_OF_CLUSTER - 1))

    async def lose(statement: Any, **given: Any) -> None:
        """Insert nothing, as if another request took the slot."""
        if next(overtaken, None) is None:
            await execute(statement, **given)

    monkeypatch.setattr(database, "execute", lose)
    assert (await world.subscribe()).name == "hook"
