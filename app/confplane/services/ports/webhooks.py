"""Webhooks: the sender of requests. Implemented by ``confplane.security``."""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from collections.abc import Mapping

    from confplane.domain.outbound_urls import OutboundUrl


class OutboundError(Exception):
    """A request without a response. The text says why, for people, and has no secrets."""


class WebhookSender(Protocol):
    """Sends requests to URLs that callers supplied."""

    async def post(self, url: OutboundUrl, headers: Mapping[str, str], body: bytes) -> int:
        """Send a body once, and return the status of the response.

        Raises:
            OutboundError: There is no response.
        """
