"""The asynchronous client.

Example::

    async with AsyncConfplane("https://confplane.example.com", token=token, cluster="payments") as client:
        await client.client_quotas.put("user=alice", {"producer_byte_rate": 1048576})
        async for quotas in client.client_quotas.list(user="alice"):
            print(quotas["id"], quotas["quotas"])
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Literal, overload

import httpx

from confplane.client.core.senders import TIMEOUT_S, TRIES, AsyncSender, settings
from confplane.client.families.all import Families
from confplane.client.families.feed import WAIT_S, RepeatedEvents, snapshot_events

if TYPE_CHECKING:
    import ssl
    from collections.abc import AsyncGenerator
    from types import TracebackType

    from typing_extensions import Self

    from confplane.client.tokens import Token
    from confplane.client.types import FeedBookmark, FeedEventData, FeedState


class AsyncConfplane(Families[AsyncSender]):
    """A client of one service and one cluster. Not bound to a thread; bound to an event loop once used.

    Its retries and arguments are those of :class:`~confplane.client.blocking.Confplane`.
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
        transport: httpx.AsyncBaseTransport | None = None,
    ) -> None:
        self._http = httpx.AsyncClient(transport=transport, **settings(url, timeout_s=timeout_s, verify=verify))
        self._wait_s = max(1, min(WAIT_S, int(timeout_s / 2)))
        super().__init__(AsyncSender(self._http, token, tries, timeout_s), cluster)

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.close()

    @overload
    def changes(
        self, *, after: str | None = None, snapshot: Literal[False] = False, **filters: Any
    ) -> AsyncGenerator[FeedEventData, None]: ...

    @overload
    def changes(
        self, *, after: str | None = None, snapshot: bool, **filters: Any
    ) -> AsyncGenerator[FeedEventData | FeedState | FeedBookmark, None]: ...

    async def changes(
        self, *, after: str | None = None, snapshot: bool = False, **filters: Any
    ) -> AsyncGenerator[FeedEventData | FeedState | FeedBookmark, None]:
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
            page = (await self.feed.poll(after=after, snapshot=snapshot, wait_s=self._wait_s, **filters)).body
            for state in snapshot_events(page):
                yield state
            for event in filter(repeated.is_new, page["events"]):
                yield event
            after = page["position"]

    async def close(self) -> None:
        """Close all connections."""
        await self._http.aclose()
