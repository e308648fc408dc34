"""Keeps the notifications of a cluster few: a broker of Kafka 3.9 reads all that are there at each change."""

from __future__ import annotations

import threading
import time
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING, Final

from kazoo.client import KazooClient
from kazoo.exceptions import KazooException

if TYPE_CHECKING:
    from collections.abc import Iterator

_CHANGES: Final = "/config/changes"
_AGE_S: Final = 8.0
"""Whoever has not read a notification by then has not started, and reads the configs instead."""
_KEPT: Final = 20


@contextmanager
def few_notifications(hosts: str) -> Iterator[None]:
    """Delete notifications that are some seconds old, as brokers do after 15 minutes.

    Args:
        hosts: The connect string of the cluster.
    """
    client = KazooClient(hosts=hosts)
    client.start(60)
    ended = threading.Event()

    def delete_old() -> None:
        while not ended.wait(1.0):
            with suppress(KazooException):
                for name in sorted(client.get_children(_CHANGES))[:-_KEPT]:
                    stat = client.exists(f"{_CHANGES}/{name}")
                    if stat is None or time.time() - stat.created < _AGE_S:
                        break
                    client.delete(f"{_CHANGES}/{name}")

    thread = threading.Thread(target=delete_old, name="few-notifications")
    thread.start()
    try:
        yield
    finally:
        ended.set()
        thread.join()
        client.stop()
        client.close()
