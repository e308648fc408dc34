"""Deletes old notifications: at each change a broker of Kafka 3.9 reads every notification that is there."""

from __future__ import annotations

import threading
import time
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING, Final

from kazoo.exceptions import KazooException

from confplane.store.znodes import CHANGES

if TYPE_CHECKING:
    from collections.abc import Iterator

    from kazoo.client import KazooClient

_AGE_S: Final = 8.0
"""The age at which every running broker and service has read a notification; at its start each reads the configs."""
_KEPT: Final = 20


@contextmanager
def few_notifications(zk: KazooClient) -> Iterator[None]:
    """Delete notifications that are some seconds old, as brokers do after 15 minutes.

    Args:
        zk: A client on the chroot of the cluster.
    """
    ended = threading.Event()

    def delete_old() -> None:
        while not ended.wait(1.0):
            with suppress(KazooException):
                for name in sorted(zk.get_children(CHANGES))[:-_KEPT]:
                    stat = zk.exists(f"{CHANGES}/{name}")
                    if stat is None or time.time() - stat.created < _AGE_S:
                        break
                    zk.delete(f"{CHANGES}/{name}")

    thread = threading.Thread(target=delete_old, name="few-notifications")
    thread.start()
    try:
        yield
    finally:
        ended.set()
        thread.join()
