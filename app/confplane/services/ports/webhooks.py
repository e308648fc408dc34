"""Webhooks: subscriptions and their deliveries in Postgres, and the sender of requests.

Implemented by ``confplane.audit`` and ``confplane.security``.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Protocol

from confplane.domain.enums import StrEnum

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from datetime import datetime
    from uuid import UUID

    from confplane.domain.outbound_urls import OutboundUrl
    from confplane.services.ports.access import AccessChange

MOST_OF_CLUSTER = 100
MOST_OF_OWNER = 10
KEPT_DELIVERIES = 50


class WebhookFormat(StrEnum):
    """The form of a subscription's requests."""

    CLOUDEVENTS = "cloudevents"
    SLACK = "slack"
    TEAMS = "teams"


@dataclass(frozen=True, slots=True)
class Subscription:
    """A subscription. Its representation has no secrets."""

    id: UUID
    cluster: str
    name: str
    owner: str
    groups: frozenset[str]
    """The owner's groups when it became the owner, for denies only."""
    by_token: bool
    """True if the owner used an API token: the subscription is parked when its last one has ended."""
    format: WebhookFormat
    filter: Mapping[str, str]
    """The filter of events, by the names of the feed's parameters."""
    shown_url: str
    """The URL without its path, query and user info."""
    sealed: bytes = field(repr=False)
    """The whole URL and the signing secrets, sealed for this id."""
    note: str | None
    created_at: datetime
    created_by: str
    revision: int = 0
    """Another number after each change of the members above, and after a resume; its ETag."""
    position: str = ""
    """Everything up to this position of the feed was delivered."""
    parked_at: datetime | None = None
    parked_reason: str | None = None
    failing_since: datetime | None = None
    attempts: int = 0
    """Failed attempts at the next event."""
    next_attempt_at: datetime | None = None
    last_delivered_at: datetime | None = None
    owner_has_token: bool = True
    """False if the owner has no valid API token."""


@dataclass(frozen=True, slots=True)
class WebhookDelivery:
    """One request of a subscription."""

    event_id: str
    event_type: str
    attempt: int
    at: datetime
    duration_ms: int
    status: int | None
    """The status of the response; None without one."""
    error: str | None
    """The reason of a failure, for people and without secrets; None if the receiver took the event."""

    @property
    def delivered(self) -> bool:
        """True if the receiver took the event."""
        return self.error is None


class WebhookStore(Protocol):
    """The tables. Every method raises ``UnavailableError`` if Postgres is unavailable."""

    async def find(self, cluster: str, name: str) -> Subscription | None:
        """Return a subscription."""

    async def list(self, cluster: str) -> list[Subscription]:
        """Return the subscriptions of a cluster by name."""

    async def create(self, subscription: Subscription, change: AccessChange) -> Subscription:
        """Add a subscription, with its row of history.

        Raises:
            AlreadyExistsError: The cluster has one of this name.
            WebhookConflictError: The cluster or the owner has as many as it may have.
        """

    async def replace(self, subscription: Subscription, change: AccessChange) -> Subscription | None:
        """Replace a subscription whose revision is still the given one, with its row of history.

        The position stays, and failures are forgotten. Returns None if the revision differs or there is none.

        Raises:
            WebhookConflictError: The new owner has as many as it may have.
        """

    async def remove(self, subscription: Subscription, change: AccessChange) -> bool:
        """Remove a subscription whose revision is still the given one; False if it differs or there is none."""

    async def park(self, subscription: Subscription, reason: str, change: AccessChange) -> bool:
        """Park a subscription whose revision is still the given one, with its row of history."""

    async def record(
        self,
        subscription: Subscription,
        delivery: WebhookDelivery,
        *,
        position: str | None = None,
        next_attempt_at: datetime | None = None,
    ) -> bool:
        """Record a delivery; the position moves if one is given. The last deliveries are kept.

        Returns False if the subscription was removed, or its position is not the given one's any more.
        """

    async def record_test(self, subscription_id: UUID, delivery: WebhookDelivery) -> None:
        """Record a delivery of a sample, which moves nothing."""

    async def move(self, subscription: Subscription, position: str) -> bool:
        """Move the position over events that do not match; False as of :meth:`record`."""

    async def deliveries(self, subscription_id: UUID) -> Sequence[WebhookDelivery]:
        """Return the last deliveries, newest first."""


class OutboundError(Exception):
    """A request without a response. The text has the reason, for people, and no secrets."""


class WebhookSender(Protocol):
    """Sends requests to URLs that callers supplied."""

    async def post(self, url: OutboundUrl, headers: Mapping[str, str], body: bytes) -> int:
        """Send a body once, and return the status of the response.

        Raises:
            OutboundError: There is no response.
        """


class WebhookSealer(Protocol):
    """Seals secrets under the key file."""

    def seal(self, plain: bytes, purpose: str) -> bytes:
        """Encrypt and authenticate."""

    def open(self, sealed: bytes, purpose: str) -> bytes | None:
        """Return what was sealed for a purpose, or None if it was sealed with another key, or for another purpose."""
