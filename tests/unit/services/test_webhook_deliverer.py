"""The places for requests of webhooks, which all webhooks of a process share."""

from __future__ import annotations

import asyncio
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any
from uuid import UUID

import pytest

from confplane.crypto import WebhookKey
from confplane.domain.errors import UnavailableError
from confplane.domain.outbound_urls import UrlGuard
from confplane.services.ports.webhooks import Subscription, WebhookFormat
from confplane.services.webhooks.deliverer import MOST_IN_PROGRESS, WebhookDeliverer
from confplane.services.webhooks.formats import event_of
from confplane.services.webhooks.secrets import WebhookSecrets, seal
from tests.support.waiting import until

if TYPE_CHECKING:
    from collections.abc import Mapping

    from confplane.domain.outbound_urls import OutboundUrl

KEY = WebhookKey("0123456789abcdef0123456789abcdef")
NOW = datetime(2026, 1, 31, tzinfo=UTC)
ONE = UUID(int=1)


class HangingReceiver:
    """Responds to requests once it is let go."""

    def __init__(self) -> None:
        self.requests = 0
        self.go = asyncio.Event()

    async def post(self, url: OutboundUrl, headers: Mapping[str, str], body: bytes) -> int:
        del url, headers, body
        self.requests += 1
        await self.go.wait()
        return 204


def subscription() -> Subscription:
    sealed = seal(KEY, ONE, WebhookSecrets("https://hooks.example.com/"))
    shown = "https://hooks.example.com/..."
    content: Any = (WebhookFormat.SLACK, {}, shown, sealed, None, NOW, "User:one")
    return Subscription(ONE, "one", "hook", "User:one", frozenset(), False, *content)  # noqa: FBT003


async def test_a_request_waits_for_a_place_and_is_rendered_once_it_has_one() -> None:
    """Grants may end during the wait. A caller who waits for the result is told that there is no place."""
    receiver, event = HangingReceiver(), event_of("test", NOW)
    deliverer = WebhookDeliverer(receiver, KEY, UrlGuard(), None, lambda: NOW)
    may_see = True

    def render() -> Mapping[str, Any] | None:
        return event if may_see else None

    requests = [asyncio.ensure_future(deliverer.send(subscription(), render, 1)) for _ in range(MOST_IN_PROGRESS)]
    await until(lambda: receiver.requests == MOST_IN_PROGRESS)
    with pytest.raises(UnavailableError, match="All 8 places"):
        await deliverer.send(subscription(), render, 1, patience_s=0)
    waiting = asyncio.ensure_future(deliverer.send(subscription(), render, 1))
    may_see = False
    receiver.go.set()
    assert await waiting is None
    assert all(each is not None and each.delivered for each in await asyncio.gather(*requests))
    assert receiver.requests == MOST_IN_PROGRESS
    may_see = True
    assert await deliverer.send(subscription(), render, 1, patience_s=30) is not None
