"""The deliveries of a cluster's webhooks, by its leader.

Each process has a dispatcher for each cluster, and the leader's works. It has one worker for each subscription, which
reads the feed from the subscription's position, sends one event after another, and moves the position in Postgres after
each. So an event is sent again if a process ends between the response and the move: at least once, in order. A move
names the position that it starts from: a process that no longer leads can't move one back.

A worker holds no consumer of the feed while it sends: one that waited for a receiver would keep others from the trail.
"""

from __future__ import annotations

import asyncio
import json
import logging
import random
import time
from collections import OrderedDict
from contextlib import aclosing
from dataclasses import replace
from datetime import datetime, timedelta
from functools import partial
from typing import TYPE_CHECKING, Any, Final
from uuid import UUID

from uuid_utils.compat import uuid7

from confplane.domain.access.identities import SERVICE
from confplane.domain.errors import (
    BeforeHistoryError,
    ConfplaneError,
    InvalidRequestError,
    StoreReplacedError,
    UnavailableError,
)
from confplane.domain.texts import first_of
from confplane.services.access import of_operator
from confplane.services.background import BackgroundService, BackgroundTask, ErrorLog
from confplane.services.feed.consumer import FeedDelivery
from confplane.services.feed.positions import decode, encode
from confplane.services.metrics import Sample, of_cluster
from confplane.services.operator_warnings import OperatorWarning
from confplane.services.ports.access import AccessChange
from confplane.services.ticks import Ticks
from confplane.services.webhooks.deliverer import GONE, UnrenderableError, UnsealableError
from confplane.services.webhooks.formats import event_of
from confplane.services.webhooks.subscriptions import content_view, feed_filter, subject_of

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Iterable, Iterator, Mapping

    from confplane.services.clusters import Cluster
    from confplane.services.feed.consumer import FeedConsumer
    from confplane.services.feed.events import FeedFilter
    from confplane.services.feed.hub import FeedHub
    from confplane.services.feed.positions import FeedPosition
    from confplane.services.ports.webhooks import Subscription, WebhookDelivery, WebhookStore
    from confplane.services.webhooks.deliverer import WebhookDeliverer
    from confplane.services.webhooks.owners import WebhookOwners

logger = logging.getLogger(__name__)

INTERVAL_S = 1.0
RETRIES_S: Final = (1.0, 5.0, 30.0, 120.0, 600.0, 1_800.0, 3_600.0)
"""Seconds before the next attempt after one, two, ... failed ones; the last counts for all further ones."""
PARKED_AFTER: Final = 31
"""Failed attempts in a row after which a subscription is parked. Their pauses take a day, whatever a clock reports."""
_JITTER: Final = 0.1
_LONGEST_PAUSE: Final = timedelta(seconds=RETRIES_S[-1] * (1 + _JITTER))
_PAGE: Final = 100
"""Events that a worker takes from the feed at once."""
_MOVE_S: Final = 60.0
"""Seconds between two moves over events that do not match."""
_PAUSE_S: Final = 1.0
_CALL_S: Final = 10.0
_FAILED_S: Final = 60.0
"""Seconds before a subscription continues after an unexpected error."""
REMEMBERED = 1_000
"""External changes that are not sent again, although the feed repeats those of the last minutes for each consumer; more
if it repeats more."""


class _OutdatedError(Exception):
    """A subscription was changed, or another process delivers its events."""


class WebhookDispatcher(BackgroundService):
    """Delivers the events of one cluster.

    Args:
        cluster: The cluster.
        store: The tables.
        feeds: The feeds.
        owners: The rights of owners.
        deliverer: Sends events; all clusters share it.
        render: Returns an event as the feed's JSON has it.
        sleep: Waits for some seconds of the deliverer's time.
        ticks: The times of the rounds, which the dispatchers of a process share.
    """

    def __init__(
        self,
        cluster: Cluster,
        store: WebhookStore,
        feeds: FeedHub,
        owners: WebhookOwners,
        deliverer: WebhookDeliverer,
        render: Callable[[str, FeedDelivery], bytes],
        *,
        sleep: Callable[[float], Awaitable[None]] = asyncio.sleep,
        ticks: Ticks | None = None,
    ) -> None:
        self._ticks = ticks or Ticks()
        self.cluster = cluster
        self.store = store
        self.feeds = feeds
        self.owners = owners
        self.deliverer = deliverer
        self.render = render
        self.sleep = sleep
        self._workers: dict[UUID, tuple[int, asyncio.Task[None]]] = {}
        self._known: list[Subscription] = []
        self._errors = ErrorLog(logger, cluster.name, waits="webhooks have to wait", fails="webhooks failed")
        self._background = BackgroundTask(self._run, name=f"webhooks-{cluster.name}")

    async def stop(self) -> None:
        """Stop. Another process continues, or this one after its next start."""
        await super().stop()
        await self._stop_workers(list(self._workers))

    def warnings(self) -> list[OperatorWarning]:
        """Return warnings for operators; only the leader has any."""
        found = []
        parked = [each.name for each in self._known if each.parked_at is not None]
        failing = [each.name for each in self._known if each.parked_at is None and each.failing_since is not None]
        for what, names in (
            ("Parked webhooks, which send nothing until `confplane webhooks resume`", parked),
            ("Webhooks whose receivers fail", failing),
        ):
            if names:
                warning = OperatorWarning(f"{what}: {len(names)}", f"{what}: {first_of(names)}")
                found.append(warning.about(self.cluster.name))
        return found

    def metrics(self) -> Iterator[Sample]:
        """Return the metrics; only the leader has any."""
        return of_cluster(self.cluster.name, self._metrics())

    def _metrics(self) -> Iterator[Sample]:
        if not self.leads:
            return
        counts = {"active": 0, "failing": 0, "parked": 0}
        for each in self._known:
            counts["parked" if each.parked_at else "failing" if each.failing_since else "active"] += 1
        for state, count in counts.items():
            yield Sample("webhooks", count, (state,))

    @property
    def leads(self) -> bool:
        """True while this process leads the cluster."""
        return self.cluster.store.leadership.held

    async def _run(self) -> None:
        while True:
            with self._errors.of_round():
                await self.round()
            await self._ticks.wait(INTERVAL_S)

    async def round(self) -> None:
        """Have a worker for each subscription that is not parked, if this process leads; otherwise none.

        Raises:
            UnavailableError: A store is unavailable. The workers continue.
        """
        if not self.leads:
            self._known = []
            await self._stop_workers(list(self._workers))
            return
        # A worker that ends in this round may have moved its position since the list was read.
        busy = set(self._workers)
        self._known = await self.store.list(self.cluster.name)
        current: dict[UUID, Subscription] = {}
        for each in self._known:
            if each.parked_at is not None:
                continue
            loss = self.owners.loss(each)
            if loss is None:
                current[each.id] = each
            else:
                await self.park(each, loss)
        await self._stop_workers(
            [
                key
                for key, (revision, task) in self._workers.items()
                if task.done() or key not in current or current[key].revision != revision
            ]
        )
        for key, each in current.items():
            if key not in busy:
                task = asyncio.create_task(_Worker(self, each).run(), name=f"webhook-{each.name}")
                self._workers[key] = (each.revision, task)

    async def park(self, subscription: Subscription, reason: str) -> None:
        """Park a subscription, and log why.

        Raises:
            UnavailableError: Postgres is unavailable.
        """
        view = content_view(subscription)
        change = AccessChange(
            uuid7(),
            "webhook-parked",
            SERVICE,
            SERVICE,
            subject_of(subscription),
            reason=reason,
            before=view,
            after=view,
        )
        if await self.store.park(subscription, reason, change):
            logger.warning(
                "Cluster %s: the webhook %s is parked, because %s", self.cluster.name, subscription.name, reason
            )

    async def _stop_workers(self, keys: Iterable[UUID]) -> None:
        tasks = [self._workers.pop(key)[1] for key in keys]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


class _Worker:
    """Delivers the events of one subscription, until it is changed, parked, or delivered by another process.

    Args:
        dispatcher: The dispatcher.
        subscription: The subscription as it is stored.
    """

    def __init__(self, dispatcher: WebhookDispatcher, subscription: Subscription) -> None:
        self._dispatcher = dispatcher
        self._subscription = subscription
        # Chosen by the owner's rights when it is sent; the feed's bound of streams is not for webhooks.
        self._access = of_operator(f"webhooks/{subscription.id}", SERVICE, str(subscription.id))
        self._sent: OrderedDict[UUID, None] = OrderedDict()
        self._moved_at = time.monotonic()

    async def run(self) -> None:
        """Deliver events."""
        name = self._subscription.name
        try:
            wanted = feed_filter(self._subscription.filter)
            while True:
                try:
                    await self._deliver_next(wanted)
                except ConfplaneError as error:
                    logger.debug("Webhook %s has to wait: %s", name, error.detail)
                    await self._dispatcher.sleep(_PAUSE_S)
        except _OutdatedError:
            pass
        except Exception:
            logger.exception("Webhook %s failed", name)
            await self._dispatcher.sleep(_FAILED_S)

    async def _deliver_next(self, wanted: FeedFilter) -> None:
        """Take what the feed has next, wait for it if need be, and deliver it."""
        cluster = self._dispatcher.cluster
        before = self._subscription.position
        try:
            position = decode(cluster.name, before, "position")
            found, end = await self._read(position, wanted)
        except (BeforeHistoryError, StoreReplacedError, InvalidRequestError) as error:
            logger.warning("Webhook %s: changes may be missing: %s", self._subscription.name, error.detail)
            await self._reset(wanted)
            return
        for delivery in found:
            await self._deliver(delivery, wanted)
        # Also if nothing was delivered: the owner may not see what was found.
        moved = end.place > position.place or end.requests != position.requests
        if moved and (self._subscription.position == before or self._is_late()):
            await self._move(encode(cluster.name, end))

    async def _read(self, position: FeedPosition, wanted: FeedFilter) -> tuple[list[FeedDelivery], FeedPosition]:
        """Return the next events, and the position up to which nothing else matches."""
        consumer = await self._open(position, wanted)
        found: list[FeedDelivery] = []
        repeated = 0
        try:
            if (consumer.position.requests is None) != (position.requests is None):
                # The filter has requests since the position was stored. A later process must not begin again.
                return [], consumer.position
            async with aclosing(consumer.deliveries()) as deliveries:
                async for delivery in deliveries:
                    if delivery.event is None:
                        if self._is_late():
                            break
                    elif delivery.position is not None:
                        found.append(delivery)
                    else:
                        repeated += 1
                        change_id = delivery.event.change.place.change_id
                        if change_id in self._sent:
                            self._sent.move_to_end(change_id)
                        else:
                            found.append(delivery)
                    if found and (consumer.idle or len(found) >= _PAGE):
                        break
            ended = consumer.reason is not None
            end = consumer.resting_position()
        finally:
            consumer.close()
        while len(self._sent) > max(REMEMBERED, repeated):
            self._sent.popitem(last=False)
        if ended and not found:
            await self._dispatcher.sleep(_PAUSE_S)
        return found, end

    async def _open(self, position: FeedPosition | None, wanted: FeedFilter) -> FeedConsumer:
        feeds, cluster = self._dispatcher.feeds, self._dispatcher.cluster
        return await feeds.open(cluster, self._access, wanted, position, time.monotonic() + _CALL_S)

    def _is_late(self) -> bool:
        """Return True if the position is due to be moved over events that do not match."""
        return time.monotonic() - self._moved_at >= _MOVE_S

    async def _reset(self, wanted: FeedFilter) -> None:
        """Continue from now on, and tell the receiver that changes may be missing."""
        consumer = await self._open(None, wanted)
        try:
            position = encode(self._dispatcher.cluster.name, consumer.resting_position())
        finally:
            consumer.close()
        event = event_of("reset", self._dispatcher.deliverer.now())
        await self._send(lambda: event, position, UUID(event["changeId"]))

    async def _deliver(self, delivery: FeedDelivery, wanted: FeedFilter) -> None:
        dispatcher, event = self._dispatcher, delivery.event
        assert event is not None  # noqa: S101 - for the type checker
        name = dispatcher.cluster.name

        def rendered() -> Mapping[str, Any] | None:
            # For each attempt again: the owner may have lost a grant since.
            owners, subscription = dispatcher.owners, self._subscription
            selected = wanted.select(event, owners.visible(subscription), partial(owners.may_see, subscription))
            if selected is None:
                return None
            found: dict[str, Any] = json.loads(
                dispatcher.render(name, FeedDelivery(event, *selected, delivery.position))
            )
            return found

        change_id = event.change.place.change_id
        position = None if delivery.position is None else encode(name, delivery.position)
        await self._send(rendered, position, change_id)
        if event.external:
            self._sent[change_id] = None

    async def _send(
        self, render: Callable[[], Mapping[str, Any] | None], position: str | None, change_id: UUID
    ) -> None:
        """Send an event until the receiver takes it, and move to a position.

        A change of which no request can be made is reported, and is sent as a reset, as in the feed.

        Raises:
            _OutdatedError: The subscription was parked or changed, or another process leads.
            UnavailableError: Tokens and grants are not known.
        """
        dispatcher = self._dispatcher
        replacement, replaced = event_of("reset", dispatcher.deliverer.now(), change_id), False
        while True:
            await self._wait()
            attempt = self._subscription.attempts + 1
            try:
                result = await dispatcher.deliverer.send(
                    self._subscription, (lambda: replacement) if replaced else render, attempt
                )
            except UnsealableError:
                await dispatcher.park(self._subscription, "its secrets were sealed under another webhooks.key_file")
                raise _OutdatedError from None
            except UnrenderableError:
                if replaced:
                    raise
                logger.exception(
                    "Webhook %s: change %s can't be sent; the receiver is told to list again",
                    *(self._subscription.name, change_id),
                )
                replaced = True
                continue
            if result is None:
                return
            if result.delivered:
                await self._record(result, position=position)
                return
            await self._failed(result)

    async def _wait(self) -> None:
        """Wait until the next attempt is due.

        Raises:
            _OutdatedError: This process does not lead.
        """
        due = self._subscription.next_attempt_at
        if due is not None:
            # It may be from a process whose clock was wrong.
            due = min(due, self._dispatcher.deliverer.now() + _LONGEST_PAUSE)
        while due is not None and (left := (due - self._dispatcher.deliverer.now()).total_seconds()) > 0:
            await self._dispatcher.sleep(left)
        if not self._dispatcher.leads:
            raise _OutdatedError

    async def _failed(self, result: WebhookDelivery) -> None:
        dispatcher = self._dispatcher
        pause = RETRIES_S[min(result.attempt, len(RETRIES_S)) - 1] * random.uniform(1 - _JITTER, 1 + _JITTER)  # noqa: S311 - no secret
        await self._record(result, next_attempt_at=dispatcher.deliverer.now() + timedelta(seconds=pause))
        reason = None
        if result.status == GONE:
            reason = f"the receiver responded {GONE}: it is gone for good"
        elif result.attempt >= PARKED_AFTER:
            reason = f"its receiver has failed {result.attempt} times in a row; the last error: {result.error}"
        if reason is not None:
            await dispatcher.park(self._subscription, reason)
            raise _OutdatedError

    async def _record(
        self, result: WebhookDelivery, *, position: str | None = None, next_attempt_at: datetime | None = None
    ) -> None:
        """Record a delivery, and wait for Postgres if need be: an event that was delivered is not sent again.

        Raises:
            _OutdatedError: The position is not the subscription's any more.
        """
        dispatcher, subscription = self._dispatcher, self._subscription
        while True:
            try:
                moved = await dispatcher.store.record(
                    subscription, result, position=position, next_attempt_at=next_attempt_at
                )
            except UnavailableError:
                await dispatcher.sleep(_PAUSE_S)
            else:
                break
        if not moved:
            raise _OutdatedError
        self._subscription = replace(
            subscription,
            position=subscription.position if position is None else position,
            failing_since=None if result.delivered else subscription.failing_since or result.at,
            attempts=0 if result.delivered else result.attempt,
            next_attempt_at=next_attempt_at,
        )
        self._moved_at = time.monotonic()

    async def _move(self, position: str) -> None:
        if not await self._dispatcher.store.move(self._subscription, position):
            raise _OutdatedError
        self._subscription = replace(self._subscription, position=position)
        self._moved_at = time.monotonic()
