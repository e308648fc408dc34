"""Ports that stay reserved until the server of a test listens on them, and whenever it does not."""

from __future__ import annotations

import socket
import sys
import weakref
from typing import Final

_KEPT: Final[list[socket.socket]] = []


def reserved_port(owner: object = None) -> int:
    """Return a TCP port of 127.0.0.1 that the system gives to no other process.

    A port that was merely free a moment ago may be taken by any connection or server before the test's own server
    listens on it, or while that is restarted. Then requests of the test reach another test's service.

    Args:
        owner: The port is reserved as long as this object exists. None: as long as this process runs.
    """
    reserved = socket.socket()
    # Servers set the same option, and may therefore listen on a port that is only bound. Other systems than Linux do
    # not permit that.
    reserved.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    reserved.bind(("127.0.0.1", 0))
    port: int = reserved.getsockname()[1]
    if sys.platform != "linux":
        reserved.close()
    elif owner is None:
        _KEPT.append(reserved)
    else:
        weakref.finalize(owner, reserved.close)
    return port
