"""ZooKeeper's transaction logs, read afterwards: every write that was ever committed, in its order.

A log is a file header, then records of checksum, length and bytes until a length of 0 or the end of the file; a record
is a header (session, cxid, zxid, time, type) and the transaction of that type, in jute. What a killed leader logged
and nobody else is discarded by the next one, so that only what a majority of the servers has was committed.

Source: zookeeper-server/src/main/java/org/apache/zookeeper/server/persistence/FileTxnLog.java and zookeeper-jute's
zookeeper.jute (module org.apache.zookeeper.txn).
"""

from __future__ import annotations

import struct
from collections import Counter
from typing import TYPE_CHECKING

from tests.faults.history import NodeEvent

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence
    from pathlib import Path

_MAGIC = b"ZKLG"
_FILE_HEADER = 16
_RECORD = struct.Struct(">qi")
_TXN_HEADER = struct.Struct(">qiqqi")
_CREATE, _DELETE, _SET, _CHECK, _MULTI, _CREATE2 = 1, 2, 5, 13, 14, 15
_CREATE_CONTAINER, _DELETE_CONTAINER, _CREATE_TTL = 19, 20, 21
_ERROR, _CLOSE = -1, -11
_CREATES = {_CREATE, _CREATE2, _CREATE_CONTAINER, _CREATE_TTL}
_DELETES = {_DELETE, _DELETE_CONTAINER}


class _Jute:
    """Reads jute from bytes."""

    def __init__(self, data: bytes) -> None:
        self._data = data
        self._at = 0

    def int(self) -> int:
        value: int = struct.unpack_from(">i", self._data, self._at)[0]
        self._at += 4
        return value

    def bool(self) -> bool:
        self._at += 1
        return self._data[self._at - 1] != 0

    def buffer(self) -> bytes | None:
        length = self.int()
        if length < 0:
            return None
        self._at += length
        return self._data[self._at - length : self._at]

    def text(self) -> str:
        return (self.buffer() or b"").decode("utf-8", "replace")


def read_events(log_dirs: Sequence[Path], *, chroot: str = "") -> list[NodeEvent]:
    """Return what was committed below a chroot, given the log directories of all servers of an ensemble that is quiet."""
    # A zxid is given once: its upper half counts the leaders.
    records: dict[int, bytes] = {}
    servers: Counter[int] = Counter()
    for directory in log_dirs:
        own = dict(_logged(directory))
        records |= own
        servers.update(own.keys())
    committed = (records[zxid] for zxid in sorted(records) if 2 * servers[zxid] > len(log_dirs))
    return list(_events(committed, chroot))


def _logged(directory: Path) -> Iterator[tuple[int, bytes]]:
    """Read all records of one server with their zxids, in the order of its files."""
    files = sorted(directory.glob("log.*"), key=lambda path: int(path.name.partition(".")[2], 16))
    for path in files:
        data = path.read_bytes()
        if data[:4] != _MAGIC:
            continue  # made and never written to
        at = _FILE_HEADER
        while at + _RECORD.size <= len(data):
            _, length = _RECORD.unpack_from(data, at)
            at += _RECORD.size
            if length <= 0 or at + length >= len(data):
                break
            record = data[at : at + length]
            at += length + 1
            yield _TXN_HEADER.unpack_from(record)[2], record


def _events(records: Iterable[bytes], chroot: str) -> Iterator[NodeEvent]:
    kept = (f"{chroot}/config", f"{chroot}/confplane")
    owners: dict[str, int] = {}
    """The sessions of the ephemeral nodes that are there."""
    for record in records:
        session, _, zxid, time_ms, kind = _TXN_HEADER.unpack_from(record)
        if kind == _CLOSE:
            # Newer servers list the nodes in the transaction; which they are is known without.
            for path in [path for path, owner in owners.items() if owner == session]:
                del owners[path]
                yield NodeEvent(zxid, time_ms, 0, path.removeprefix(chroot), None, None)
            continue
        for operation, jute in _operations(kind, _Jute(record[_TXN_HEADER.size :])):
            path, version, data = _written(operation, jute)
            if not path.startswith(kept):
                continue
            if operation in _DELETES:
                owners.pop(path, None)
            elif operation in {_CREATE, _CREATE2} and jute.bool():
                owners[path] = session
            yield NodeEvent(zxid, time_ms, session, path.removeprefix(chroot), version, data)


def _written(operation: int, jute: _Jute) -> tuple[str, int | None, str | None]:
    """Return path, version and data of a write."""
    path = jute.text()
    if operation in _DELETES:
        return path, None, None
    data = (jute.buffer() or b"").decode("utf-8", "replace")
    if operation == _SET:
        return path, jute.int(), data
    for _ in range(jute.int()):  # the ACL: rights, and who has them
        jute.int()
        jute.text()
        jute.text()
    return path, 0, data


def _operations(kind: int, jute: _Jute) -> Iterator[tuple[int, _Jute]]:
    """Give the writes of one transaction, each with its bytes."""
    if kind == _MULTI:
        parts = [(jute.int(), jute.buffer() or b"") for _ in range(jute.int())]
        # One that was refused is logged too, with those of its parts that came before the one that was to blame.
        if not any(part == _ERROR for part, _ in parts):
            for part, data in parts:
                yield from _operations(part, _Jute(data))
    elif kind in _CREATES | _DELETES | {_SET}:
        yield kind, jute
