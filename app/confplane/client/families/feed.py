"""The changes of a cluster as they happen, and webhooks: subscriptions whose events are sent to URLs."""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal

from confplane.client.core.calls import call, id_of, segment
from confplane.client.core.operations import Family, S, listing, operation, tagged
from confplane.client.core.pages import Paged

if TYPE_CHECKING:
    from collections.abc import Iterator

    from typing_extensions import Unpack

    from confplane.client.core.calls import ApiCall, UnkeyedConditionalWriteOptions, UnkeyedWriteOptions
    from confplane.client.types import (
        FeedBookmark,
        FeedEventData,
        FeedPage,
        FeedState,
        WebhookBody,
        WebhookData,
        WebhookDeliveryData,
        WebhookDeliveryPage,
        WebhookPage,
        WebhookTestResult,
    )
    from confplane.domain.entities import Entity


WAIT_S = 10
"""Seconds for which an iteration over the changes waits with each request."""

_ANSWER_S = 10.0
"""Seconds that an answer may take after the wait for its first event."""
_MOST_SEEN = 10_000


class Feed(Family[S]):
    """The feed of a cluster."""

    @operation
    def poll(  # noqa: PLR0913 - one argument a filter
        self,
        *,
        after: str | None = None,
        snapshot: bool | None = None,
        wait_s: int | None = None,
        facet: str | None = None,
        entity_type: str | None = None,
        entity: Entity | str | None = None,
        user: str | None = None,
        prefix: str | None = None,
        key: str | None = None,
        principal: str | None = None,
        requests: Literal["include", "only"] | None = None,
    ) -> ApiCall[FeedPage]:
        """Read the events after a position, and the next position.

        Args:
            after: The position, or the ``id`` of the last event; None: from now on.
            snapshot: Without a position: the current states first, a part with each request.
            wait_s: Seconds to wait for a first event, 60 at most.
            facet: Only keys of this facet.
            entity_type: Only entities of this type.
            entity: Only this entity.
            user: Only this user and its client-ids.
            prefix: Only entities whose last name begins so.
            key: Only entities of which this key changed.
            principal: Only changes of this principal.
            requests: Events of change requests as well, or no others; None: none of them.
        """
        params = {
            "after": after,
            "snapshot": "true" if snapshot else None,
            "wait": None if wait_s is None else str(wait_s),
            "facet": facet,
            "entityType": entity_type,
            "entity": None if entity is None else id_of(entity),
            "user": user,
            "prefix": prefix,
            "key": key,
            "principal": principal,
            "requests": requests,
        }
        lasts_s = 0.0 if wait_s is None else wait_s + _ANSWER_S
        return call("GET", f"{self._base}/changes", params=params, lasts_s=lasts_s)


def snapshot_events(page: FeedPage) -> Iterator[FeedState | FeedBookmark]:
    """Yield the states of a page of a snapshot, and the bookmark at the snapshot's end."""
    part = page.get("snapshot")
    if part is not None:
        yield from part["states"]
        if "bookmark" in part:
            yield part["bookmark"]


class RepeatedEvents:
    """Finds the events without an id that an iteration has yielded before: several polls may return them."""

    def __init__(self) -> None:
        self._seen: dict[str, None] = {}

    def is_new(self, event: FeedEventData) -> bool:
        """Return False for an event without an id that was given before."""
        if "id" in event:
            return True
        new = event["changeId"] not in self._seen
        self._seen[event["changeId"]] = None
        if len(self._seen) > _MOST_SEEN:
            del self._seen[next(iter(self._seen))]
        return new


class Webhooks(Family[S]):
    """Webhooks of the cluster, by their names. A new signing secret is returned only in the response to its request."""

    @listing
    def list(self) -> Paged[WebhookPage, WebhookData]:
        """List webhooks."""
        return Paged(call("GET", f"{self._base}/webhooks"))

    @tagged
    def get(self, name: str) -> ApiCall[WebhookData]:
        """Read a webhook, without the secrets of its URL."""
        return call("GET", self._path(name))

    @operation
    def put(
        self, name: str, webhook: WebhookBody, **terms: Unpack[UnkeyedConditionalWriteOptions]
    ) -> ApiCall[WebhookData]:
        """Create a webhook, or replace one. Not retried after a lost answer, because nobody would know its secret."""
        return call("PUT", self._path(name), terms, json=webhook)

    @operation
    def delete(self, name: str, **terms: Unpack[UnkeyedConditionalWriteOptions]) -> ApiCall[WebhookData]:
        """Delete a webhook."""
        return call("DELETE", self._path(name), terms)

    @operation
    def assign(self, name: str, owner: str, **terms: Unpack[UnkeyedWriteOptions]) -> ApiCall[WebhookData]:
        """Hand a webhook over.

        Args:
            name: The webhook.
            owner: The new owner, ``User:name``.
            **terms: The terms of the write.
        """
        return call("POST", f"{self._path(name)}:assign", terms, json={"owner": owner}, repeatable=True)

    @operation
    def resume(self, name: str, **terms: Unpack[UnkeyedWriteOptions]) -> ApiCall[WebhookData]:
        """Continue a parked webhook with the first event that was not delivered."""
        return call("POST", f"{self._path(name)}:resume", terms, repeatable=True)

    @operation
    def rotate(self, name: str, *, overlap_s: int, **terms: Unpack[UnkeyedWriteOptions]) -> ApiCall[WebhookData]:
        """Replace the signing secret. Not retried after a lost answer.

        Args:
            name: The webhook.
            overlap_s: Seconds for which requests are signed with the old secret as well.
            **terms: The terms of the write.
        """
        return call("POST", f"{self._path(name)}:rotate", terms, json={"overlapSeconds": overlap_s})

    @operation
    def test(self, name: str, **terms: Unpack[UnkeyedWriteOptions]) -> ApiCall[WebhookTestResult]:
        """Send a sample, and return its result."""
        return call("POST", f"{self._path(name)}:test", terms)

    @listing
    def deliveries(self, name: str) -> Paged[WebhookDeliveryPage, WebhookDeliveryData]:
        """List the last deliveries, newest first."""
        return Paged(call("GET", f"{self._path(name)}/deliveries"))

    def _path(self, name: str) -> str:
        return f"{self._base}/webhooks/{segment(name)}"
