"""The blocking client.

Example::

    with Confplane("https://confplane.example.com", token=token, cluster="payments") as client:
        client.client_quotas.put("user=alice", {"producer_byte_rate": 1048576})
        for quotas in client.client_quotas.list(user="alice"):
            print(quotas["id"], quotas["quotas"])
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Literal, overload

import httpx

from confplane.client.core.senders import TIMEOUT_S, TRIES, BlockingSender, settings
from confplane.client.families.all import Families
from confplane.client.families.feed import WAIT_S, RepeatedEvents, snapshot_events

if TYPE_CHECKING:
    import ssl
    from collections.abc import Iterator
    from types import TracebackType

    from typing_extensions import Self

    from confplane.client.tokens import Token
    from confplane.client.types import FeedBookmark, FeedEventData, FeedState


class Confplane(Families[BlockingSender]):
    """A client of one service and one cluster, usable from any thread.

    A request is retried after a transient failure: no response, or a retriable response, such as 429, 502, 503 and 504
    from a proxy. The pause is that of ``Retry-After``, otherwise it grows and has a random part. If ``Retry-After``
    exceeds ``timeout_s``, the error is raised immediately. A write has the same Idempotency-Key in all its attempts, so
    it is executed once. The few writes that accept no key are retried only if the failed attempt is known to have
    changed nothing.

    Args:
        url: Base URL, without ``/v1``.
        token: Bearer token, or the file or function that provides it, read before each request; None to send none.
        cluster: Name of the cluster.
        timeout_s: Timeout in seconds of each step of a request: the connection, each part of the request and of the
            response, the pause before another attempt. The whole call may take longer.
        tries: How often a request may be sent; with 1, a write has a key only if it is given one.
        verify: The TLS context; True for the certificate authorities of the system.
        transport: Another httpx transport, e.g. ``httpx.MockTransport`` in tests.
    """

    def __init__(
        self,
        url: str,
        *,
        token: Token | None,
        cluster: str = "default",
        timeout_s: float = TIMEOUT_S,
        tries: int = TRIES,
        verify: ssl.SSLContext | bool = True,
        transport: httpx.BaseTransport | None = None,
    ) -> None:
        self._http = httpx.Client(transport=transport, **settings(url, timeout_s=timeout_s, verify=verify))
        self._wait_s = max(1, min(WAIT_S, int(timeout_s / 2)))
        super().__init__(BlockingSender(self._http, token, tries, timeout_s), cluster)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    @overload
    def changes(
        self, *, after: str | None = None, snapshot: Literal[False] = False, **filters: Any
    ) -> Iterator[FeedEventData]: ...

    @overload
    def changes(
        self, *, after: str | None = None, snapshot: bool, **filters: Any
    ) -> Iterator[FeedEventData | FeedState | FeedBookmark]: ...

    def changes(
        self, *, after: str | None = None, snapshot: bool = False, **filters: Any
    ) -> Iterator[FeedEventData | FeedState | FeedBookmark]:
        """Iterate over the changes of the cluster as they happen; see ``docs/feed.md``.

        The iteration never ends by itself. Events have an ``id``, after which another iteration continues.
        Those without one moved no position, and another iteration may yield them again.

        Args:
            after: The position, or the ``id`` of the last event; None: from now on.
            snapshot: Without a position: first a ``state`` of each entity in each facet, and a ``bookmark``.
            filters: The filters of ``feed.poll``.

        Raises:
            GoneError: The position is too old: list again, and begin without one.
            ClientError: As every request.
        """
        repeated = RepeatedEvents()
        while True:
            page = self.feed.poll(after=after, snapshot=snapshot, wait_s=self._wait_s, **filters).body
            yield from snapshot_events(page)
            yield from filter(repeated.is_new, page["events"])
            after = page["position"]

    def close(self) -> None:
        """Close all connections."""
        self._http.close()
