"""Webhooks: subscriptions to the feed whose events are sent to URLs."""

from __future__ import annotations

from typing import TYPE_CHECKING

from confplane.client.core.calls import call, segment
from confplane.client.core.operations import Family, S, listing, operation, tagged
from confplane.client.core.pages import Paged

if TYPE_CHECKING:
    from typing_extensions import Unpack

    from confplane.client.core.calls import ApiCall, UnkeyedConditionalWriteOptions, UnkeyedWriteOptions
    from confplane.client.types import (
        WebhookBody,
        WebhookData,
        WebhookDeliveryData,
        WebhookDeliveryPage,
        WebhookPage,
        WebhookTestResult,
    )


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
