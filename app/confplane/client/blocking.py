"""The blocking client.

Example::

    with Confplane("https://confplane.example.com", token=token, cluster="payments") as client:
        client.client_quotas.put("user=alice", {"producer_byte_rate": 1048576})
        for quotas in client.client_quotas.list(user="alice"):
            print(quotas["id"], quotas["quotas"])
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import httpx

from confplane.client.core.senders import BlockingSender
from confplane.client.core.settings import TIMEOUT_S, TRIES, settings
from confplane.client.families.all import Families

if TYPE_CHECKING:
    import ssl
    from types import TracebackType

    from typing_extensions import Self

    from confplane.client.tokens import Token


class Confplane(Families[BlockingSender]):
    """Speaks to one service about one cluster, from any thread.

    A request is repeated after a failure that may pass: no answer, or an answer that is retriable, as 429, 502, 503 and
    504 of a server in between are. The pause is that of ``Retry-After``, and otherwise a growing time with a random
    part. Where ``Retry-After`` is more than ``timeout_s``, the error is raised at once. A write has an Idempotency-Key,
    the same in all its tries, so that it is done once. The few writes that take no key are repeated only where they are
    known to have left everything as it was.

    Args:
        url: Base URL, without ``/v1``.
        token: Bearer token, or the file or function that gives it, asked before each request; None to send none.
        cluster: Name of the cluster.
        timeout_s: The longest wait, seconds, for each step of a request: a connection, each part of what is sent and of
            the answer, the pause before another try. The whole of a call may take longer.
        tries: How often a request may be sent; with 1, a write has a key only where it is given one.
        verify: The TLS context; True for the authorities of the system.
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
        super().__init__(BlockingSender(self._http, token, tries, timeout_s), cluster)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        """Close all connections."""
        self._http.close()
