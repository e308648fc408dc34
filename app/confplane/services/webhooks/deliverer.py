"""One request of a subscription: its body, its signature, and its result."""

from __future__ import annotations

import asyncio
import logging
import time
import traceback
from typing import TYPE_CHECKING, Any, Final

from confplane.domain.errors import ConfplaneError, InvalidRequestError, UnavailableError
from confplane.services.metrics import Sample
from confplane.services.ports.webhooks import OutboundError, WebhookDelivery, WebhookFormat
from confplane.services.webhooks.formats import body_of
from confplane.services.webhooks.secrets import signature, unseal

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping
    from datetime import datetime

    from confplane.domain.outbound_urls import UrlGuard
    from confplane.services.ports.webhooks import Subscription, WebhookSealer, WebhookSender
    from confplane.services.webhooks.secrets import WebhookSecrets

logger = logging.getLogger(__name__)

MOST_IN_PROGRESS: Final = 8
GONE: Final = 410
_SUCCESS: Final = range(200, 300)


class UnsealableError(Exception):
    """The secrets of a subscription were sealed under another key."""


class UnrenderableError(Exception):
    """No request can be made of an event."""


class WebhookDeliverer:
    """Sends events, a few at a time. One instance serves a process.

    Args:
        sender: Sends requests.
        sealer: Seals secrets under the key file.
        guard: The rules for URLs, which may have become stricter since a URL was accepted.
        public_url: The origin at which people reach the service.
        now: The time.
    """

    def __init__(
        self,
        sender: WebhookSender,
        sealer: WebhookSealer,
        guard: UrlGuard,
        public_url: str | None,
        now: Callable[[], datetime],
    ) -> None:
        self._sender = sender
        self._sealer = sealer
        self._guard = guard
        self._public_url = public_url
        self.now = now
        self._slots = asyncio.Semaphore(MOST_IN_PROGRESS)
        self._in_progress = 0
        self._results = {"delivered": 0, "failed": 0}

    def metrics(self) -> Iterator[Sample]:
        """Return the metrics."""
        yield Sample("webhook_deliveries_in_progress", self._in_progress)
        for result, count in self._results.items():
            yield Sample("webhook_deliveries", count, (result,))

    def secrets_of(self, subscription: Subscription) -> WebhookSecrets:
        """Return the secrets of a subscription.

        Raises:
            UnsealableError: They were sealed under another key.
        """
        found = unseal(self._sealer, subscription.id, subscription.sealed)
        if found is None:
            raise UnsealableError
        return found

    async def send(
        self,
        subscription: Subscription,
        render: Callable[[], Mapping[str, Any] | None],
        attempt: int,
        *,
        patience_s: float | None = None,
    ) -> WebhookDelivery | None:
        """Send an event once, when one of the places is free, and return the result.

        Args:
            subscription: The subscription.
            render: Returns the event, or None to send nothing. It is called once a place is free: the owner may lose
                grants during the wait.
            attempt: The number of the attempt.
            patience_s: Seconds to wait for a place; None: without a bound.

        Raises:
            UnsealableError: The secrets were sealed under another key.
            UnrenderableError: The event can't be rendered, because of an unexpected error.
            UnavailableError: No place is free in time.
            ConfplaneError: The function raised it.
        """
        secrets = self.secrets_of(subscription)
        try:
            async with asyncio.timeout(patience_s):
                await self._slots.acquire()
        except TimeoutError:
            raise UnavailableError(
                f"All {MOST_IN_PROGRESS} places for requests of webhooks are in use on this process. Send the request"
                " again",
                retry_after_s=5,
            ) from None
        self._in_progress += 1
        try:
            return await self._send(subscription, secrets, render, attempt)
        finally:
            self._in_progress -= 1
            self._slots.release()

    async def _send(
        self,
        subscription: Subscription,
        secrets: WebhookSecrets,
        render: Callable[[], Mapping[str, Any] | None],
        attempt: int,
    ) -> WebhookDelivery | None:
        try:
            event = render()
            if event is None:
                return None
            body = body_of(subscription.format, subscription.cluster, event, self._public_url)
            if body is None:
                return None
        except ConfplaneError:
            raise
        except Exception as unexpected:
            raise UnrenderableError from unexpected
        at, began = self.now(), time.monotonic()
        status, error = None, None
        try:
            url = self._guard.parse(secrets.url, "url")
            headers = {"Content-Type": body.media_type}
            if subscription.format is WebhookFormat.CLOUDEVENTS:
                timestamp = int(at.timestamp())
                headers |= {
                    "webhook-id": event["changeId"],
                    "webhook-timestamp": str(timestamp),
                    "webhook-signature": signature(secrets, event["changeId"], timestamp, body.content, at),
                }
            status = await self._sender.post(url, headers, body.content)
            if status not in _SUCCESS:
                error = f"the receiver responded {status}"
        except InvalidRequestError as refused:
            error = f"the URL is not allowed any more: {refused.detail}"
        except OutboundError as failed:
            error = str(failed)
        except Exception as unexpected:  # noqa: BLE001 - an attempt that failed, with the pauses of all others
            # Not its text, which may have parts of the URL.
            logger.error(  # noqa: TRY400 - as above
                "Webhook %s: %s in a request:\n%s",
                *(subscription.name, type(unexpected).__name__, "".join(traceback.format_tb(unexpected.__traceback__))),
            )
            error = "an internal error, which the log of the service has"
        self._results["failed" if error else "delivered"] += 1
        took_ms = int((time.monotonic() - began) * 1000)
        return WebhookDelivery(event["changeId"], event["type"], attempt, at, took_ms, status, error)
