"""ZooKeeper's MultiRead, many reads in one request (opcode 22): ZooKeeper has it since 3.6, kazoo has no call for it.

The request reads data and lists of children, sets no watch, and returns no Stat of a list. Each read succeeds or fails
by itself. ZooKeeper makes the whole reply before it sends any of it, so the caller bounds its size.

Source: org.apache.zookeeper.MultiOperationRecord, MultiResponse; FinalRequestProcessor.
"""

from __future__ import annotations

import struct
from typing import TYPE_CHECKING, Any, Final

from kazoo.exceptions import EXCEPTIONS, MarshallingError, ZookeeperError
from kazoo.protocol.serialization import (
    GetChildren,
    GetData,
    int_struct,
    multiheader_struct,
    read_string,
    stat_struct,
)

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

DATA: Final[int] = GetData.type
"""The kind of reads of a node's data and its Stat."""
CHILDREN: Final[int] = GetChildren.type
"""The kind of reads of the names of a node's children."""
READ_BYTES: Final = multiheader_struct.size + int_struct.size + 1
"""Bytes of a read in a request, besides its path."""

_ERROR: Final = -1
_END: Final = multiheader_struct.pack(-1, 1, -1)
_RESULT: Final = struct.Struct("!iBii")
"""The header of a result, and the number with which every result begins: a length, a count or an error's code."""


class MultiRead:
    """One request, in the form of kazoo's own requests.

    Args:
        kind: DATA or CHILDREN.
        paths: The paths of the nodes.
        errors: The results of failed reads, by ZooKeeper's error code. Any other error fails the request.
    """

    type = 22

    def __init__(self, kind: int, paths: Sequence[str], errors: Mapping[int, Any]) -> None:
        self._kind = kind
        self._paths = paths
        self._errors = errors

    def serialize(self) -> bytes:
        """Return the request's bytes."""
        head, length, unwatched = multiheader_struct.pack(self._kind, 0, -1), int_struct.pack, b"\0"
        parts: list[bytes] = []
        for path in self._paths:
            encoded = path.encode()
            parts += head, length(len(encoded)), encoded, unwatched
        parts.append(_END)
        return b"".join(parts)

    def deserialize(self, buffer: bytes, offset: int) -> tuple[list[Any], int]:
        """Return the results in the order of the paths, and the size of the reply.

        A result is the data (None where a node has none) and the fields of the Stat, or the names of the children.

        Raises:
            ZookeeperError: A read failed; MarshallingError for a reply that is not of these reads.
            struct.error: The reply ends too early.
        """
        results: list[Any] = []
        kind, result, stat = self._kind, _RESULT.unpack_from, stat_struct.unpack_from
        for _ in self._paths:
            found, done, _, number = result(buffer, offset)
            offset += _RESULT.size
            if found == _ERROR and not done:
                results.append(self._failed(number))
            elif found != kind or done:
                raise MarshallingError(f"result {len(results)} of a MultiRead is of another kind than its read")
            elif kind == DATA:
                end = offset + number if number > 0 else offset
                results.append((buffer[offset:end] if number >= 0 else None, stat(buffer, end)))
                offset = end + stat_struct.size
            else:
                names = []
                for _ in range(number):
                    name, offset = read_string(buffer, offset)
                    names.append(name)
                results.append(names)
        if buffer[offset:] != _END:
            raise MarshallingError(f"a MultiRead of {len(results)} reads has more results")
        return results, len(buffer)

    def _failed(self, code: int) -> Any:
        if code in self._errors:
            return self._errors[code]
        raise EXCEPTIONS[code]() if code in EXCEPTIONS else ZookeeperError(f"error {code} of a read")
