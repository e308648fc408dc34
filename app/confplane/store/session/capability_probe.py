"""A session's capability probe: the first request to the server, sent while it connects, before any other request.

kazoo reports the connection as soon as the session is established. Calls made at that moment would be sent before the
probe, so the report is held back until the probe is answered.
"""

from __future__ import annotations

import logging
from collections import Counter
from typing import Any, Final

from kazoo.exceptions import UnimplementedError, ZookeeperError
from kazoo.protocol.connection import ConnectionDropped
from kazoo.protocol.serialization import Connect
from kazoo.protocol.states import KeeperState

from confplane.store.session.multiread import DATA, MultiRead

logger = logging.getLogger(__name__)

_TRIES: Final = 3
"""Consecutive times that a server may end the connection instead of answering. After that it is not probed again."""


class CapabilityProbe:
    """Probes each connection of one client. It runs entirely on kazoo's thread.

    A server before ZooKeeper 3.6 answers an unknown opcode with an error **and closes the connection**; the requests
    after it get no reply. So the probe is an empty MultiRead right after the connect, and such a server is not probed
    again in this session. Other servers may end the connection without an answer; those are probed a few times.

    Args:
        client: A new client.
        timeout_s: The requested session timeout.

    Attributes:
        timeout_s: The requested session timeout; once connected, the timeout that the server granted.
        multi_reads: True where the server knows MultiRead; while connected, the server of the present connection.
    """

    def __init__(self, client: Any, timeout_s: float) -> None:
        self.timeout_s = timeout_s
        self.multi_reads = False
        self._unanswered: Counter[tuple[str, int]] = Counter()
        self._held_back = False
        # kazoo offers no other way.
        connection = self._connection = client._connection  # noqa: SLF001
        self._invoke, connection._invoke = connection._invoke, self._intercept_invoke  # noqa: SLF001
        self._connect, connection._connect = connection._connect, self._intercept_connect  # noqa: SLF001
        self._forward_state, client._session_callback = client._session_callback, self._on_state  # noqa: SLF001

    def _on_state(self, state: Any) -> None:
        if state == KeeperState.CONNECTED:
            self._held_back = True
        else:
            self._forward_state(state)

    def _intercept_invoke(self, timeout: float, request: Any, xid: int | None = None) -> Any:
        reply = self._invoke(timeout, request, xid)
        # A session that has expired is granted None.
        if isinstance(request, Connect) and reply[0].time_out > 0:
            self.timeout_s = reply[0].time_out / 1000
        return reply

    def _intercept_connect(self, host: str, address: str, port: int) -> Any:
        self._held_back = False
        timeouts = self._connect(host, address, port)
        self.multi_reads = self._probe((address, port), timeouts[1] / 1000)
        if self._held_back:
            self._forward_state(KeeperState.CONNECTED)
        return timeouts

    def _probe(self, server: tuple[str, int], timeout_s: float) -> bool:
        if self._unanswered[server] >= _TRIES:
            return False
        self._unanswered[server] += 1
        connection = self._connection
        # The number by kazoo's own count: the next request gets the next number.
        connection._xid += 1  # noqa: SLF001
        try:
            self._invoke(timeout_s, MultiRead(DATA, (), {}), connection._xid)  # noqa: SLF001
        except UnimplementedError:
            self._unanswered[server] = _TRIES
            logger.info("ZooKeeper at %s:%d knows no MultiRead: many nodes are read one by one", *server)
            raise ConnectionDropped(
                "the server ends a connection on which it was asked what it does not know"
            ) from None
        except (ZookeeperError, RuntimeError) as error:
            # kazoo raises a RuntimeError for a reply to an unknown request.
            raise ConnectionDropped(f"a MultiRead was answered {type(error).__name__}") from None
        del self._unanswered[server]
        return True
