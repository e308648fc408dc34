"""ZooKeeper's persistent recursive watch (opcode 106): ZooKeeper has it since 3.6, kazoo has no call for it.

kazoo looks up the watchers of each event in a table. A table of this class also records the path, so that one watch
reports each created, changed and deleted znode below a path. The session loses the watch when it is disconnected.

Source: org.apache.zookeeper.proto.AddWatchRequest; ZooDefs.AddWatchModes.
"""

from __future__ import annotations

from collections import defaultdict, deque
from typing import Any, Final

from kazoo.protocol.serialization import int_struct, write_string

_RECURSIVE: Final = 1


class AddWatch:
    """One request, in the form of kazoo's own requests.

    Args:
        path: The path with the chroot.
    """

    type = 106

    def __init__(self, path: str) -> None:
        self._path = path

    def serialize(self) -> bytes:
        """Return the request's bytes."""
        request: bytes = write_string(self._path) + int_struct.pack(_RECURSIVE)
        return request

    def deserialize(self, _buffer: bytes, _offset: int) -> bool:
        """Return True: the reply has no content."""
        return True


class RecordedEvents(defaultdict[str, set[Any]]):
    """kazoo's table of watchers, which records the paths of all events.

    Args:
        chroot: ``""`` or ``/path``.
    """

    def __init__(self, chroot: str) -> None:
        super().__init__(set)
        self._skipped = len(chroot)
        self._events: deque[str] = deque()

    def pop(self, path: str, *default: Any) -> Any:
        """Record the path of an event, and return its watchers. Called on kazoo's thread."""
        self._events.append(path[self._skipped :])
        return super().pop(path, *default)

    def drain(self) -> set[str]:
        """Return the paths of all events since the last call."""
        found: set[str] = set()
        while self._events:
            found.add(self._events.popleft())
        return found
