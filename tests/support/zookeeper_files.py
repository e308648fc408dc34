"""Znodes written as a ZooKeeper snapshot, from which a server starts: many znodes with any zxids and versions.

The format is that of ``FileSnap``: a header, the sessions, the ACLs, the nodes from the root on, each after its parent,
and a checksum over everything.
"""

from __future__ import annotations

import struct
import zlib
from dataclasses import dataclass
from pathlib import PurePosixPath
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Iterable
    from pathlib import Path

_HEADER: Final = struct.pack(">4siq", b"ZKSN", 2, -1)
_NO_SESSIONS_AND_NO_ACLS: Final = struct.pack(">ii", 0, 0)
_OPEN_TO_ALL: Final = -1
_END: Final = b"/"
_STAT: Final = struct.Struct(">qqqqqiiiqq")
"""The number of the ACL, czxid, mzxid, ctime, mtime, version, cversion, aversion, owner, and the children's zxid."""


@dataclass(frozen=True, slots=True)
class Stored:
    """A znode.

    Attributes:
        path: The path, from the root of the server on.
        data: The content.
        czxid: The zxid of the creation.
        mzxid: The zxid of the last write.
        mtime: The time of the last write, in milliseconds.
        version: The number of writes since the creation.
    """

    path: str
    data: bytes
    czxid: int = 1
    mzxid: int = 1
    mtime: int = 0
    version: int = 0


def write(data_dir: Path, znodes: Iterable[Stored], zxid: int) -> None:
    """Write the snapshot of a server that has not started yet.

    Args:
        data_dir: The directory of the server, as of ``ZooKeeper``.
        znodes: The znodes in any order; parents that are missing are made, without content.
        zxid: The zxid that the server has reached.
    """
    given = {each.path: each for each in znodes}
    missing = {"/zookeeper", "/zookeeper/quota", "/zookeeper/config"}
    missing |= {str(parent) for path in given for parent in PurePosixPath(path).parents}
    nodes = given | {path: Stored(path, b"") for path in missing - given.keys() - {"/"}}
    directory = data_dir / "data" / "version-2"
    directory.mkdir(parents=True)
    checksum = 1
    with (directory / f"snapshot.{zxid:x}").open("wb") as file:
        pieces = [_HEADER, _NO_SESSIONS_AND_NO_ACLS, _node("", Stored("", b""))]
        # A parent's path is shorter than those below it.
        pieces += [_node(path, nodes[path]) for path in sorted(nodes, key=lambda path: path.count("/"))]
        for piece in (*pieces, _text(_END)):
            file.write(piece)
            checksum = zlib.adler32(piece, checksum)
        file.write(struct.pack(">q", checksum) + _text(_END))


def _node(path: str, node: Stored) -> bytes:
    times = (node.mtime, node.mtime)
    stat = (node.czxid, node.mzxid, *times, node.version, 0, 0, 0, node.czxid)
    return _text(path.encode()) + _text(node.data) + _STAT.pack(_OPEN_TO_ALL, *stat)


def _text(content: bytes) -> bytes:
    return struct.pack(">i", len(content)) + content
