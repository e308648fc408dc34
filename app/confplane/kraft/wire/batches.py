"""Record batches (magic 2) of a log, read from untrusted bytes: checked, and split into records."""

from __future__ import annotations

import asyncio
import functools
import struct
import time
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final

from confplane.kraft.wire.codec import Reader, RuleError
from confplane.kraft.wire.errors import WireError
from confplane.kraft.wire.message import SLICE_S

if TYPE_CHECKING:
    from collections.abc import Iterator

_POLYNOMIAL: Final = 0x82F63B78
"""The polynomial of CRC-32C (Castagnoli), reflected: that of record batches. The standard library has another one."""
_ALL: Final = 0xFFFFFFFF


@functools.cache
def _table() -> list[int]:
    """Return the register of each byte."""
    made = []
    for register in range(256):
        for _ in range(8):
            register = register >> 1 ^ (_POLYNOMIAL if register & 1 else 0)  # noqa: PLW2901 - it advances
        made.append(register)
    return made


def crc32c(data: bytes | memoryview, before: int = 0) -> int:
    """Return the checksum of bytes that follow bytes with the checksum ``before``."""
    register, table = before ^ _ALL, _table()
    for byte in data:
        register = table[(register ^ byte) & 0xFF] ^ register >> 8
    return register ^ _ALL


_NAME: Final = "RecordBatch"
_HEADER: Final = struct.Struct(">qiibIhiqqqhii")
_SIZE_BEHIND: Final = 12
"""The bytes of base offset and length, which the length does not count."""
_CHECKED_FROM: Final = 21
"""The checksum covers everything after itself."""
_MAGIC: Final = 2
_COMPRESSION: Final = 0x07
_LOG_APPEND_TIME: Final = 0x08
_CONTROL: Final = 0x20
_PIECE: Final = 16 * 1024
"""Number of bytes that are checked between two reads of the clock."""


@dataclass(frozen=True, slots=True)
class Record:
    """One record of a batch."""

    offset: int
    timestamp: int
    """Milliseconds since the epoch."""
    value: bytes | None = field(repr=False)


@dataclass(frozen=True, slots=True)
class Batch:
    """A batch whose checksum is right."""

    base_offset: int
    last_offset: int
    leader_epoch: int
    control: bool
    """True for records of the log itself: changes of the leader, start and end of a snapshot."""
    count: int
    base_timestamp: int
    max_timestamp: int
    append_time: bool
    data: bytes = field(repr=False)
    at: int
    """The offset in bytes of the first record."""
    end: int

    def records(self) -> Iterator[Record]:
        """Split the batch into its records.

        Raises:
            WireError: A record is malformed.
        """
        source = Reader(self.data, self.at)
        try:
            yield from self._records(source)
        except IndexError:
            raise WireError(_NAME, source.at, "the bytes end too early") from None
        except RuleError as error:
            raise WireError(_NAME, source.at, str(error)) from None

    def _records(self, source: Reader) -> Iterator[Record]:
        for _ in range(self.count):
            end = source.varlong() + source.at
            if not source.at < end <= self.end:
                raise RuleError("a record is longer than its batch")
            source.at, source.end = source.at + 1, end  # attributes, which are unused
            timestamp = self.base_timestamp + source.varlong()
            offset = self.base_offset + source.varlong()
            _blob(source)  # the key
            value = _blob(source)
            if not self.base_offset <= offset <= self.last_offset:
                raise RuleError("a record's offset is outside of its batch")
            source.at = end  # metadata records have no headers
            yield Record(offset, self.max_timestamp if self.append_time else timestamp, value)
        if source.at != self.end:
            raise RuleError("bytes are left behind the records")


def _blob(source: Reader) -> bytes | None:
    """Return bytes preceded by their length, or None."""
    size = source.varlong()
    return None if size < 0 else source.take(size)


async def batches(data: bytes) -> list[Batch]:
    """Return the complete batches in ``data``; the last batch may be truncated.

    Checksums are computed in slices, so that other tasks run every :data:`~confplane.kraft.wire.message.SLICE_S`
    seconds.

    Raises:
        WireError: A batch is damaged, compressed, or of another format.
    """
    found: list[Batch] = []
    at = 0
    while len(data) - at >= _HEADER.size:
        (
            base, length, epoch, magic, checksum, attributes, last_delta, first, most, _, _, _, count,
        ) = _HEADER.unpack_from(data, at)  # fmt: skip
        if magic != _MAGIC:
            raise WireError(_NAME, at, f"a batch is of format {magic}, and {_MAGIC} alone is known")
        if length < _HEADER.size - _SIZE_BEHIND:
            raise WireError(_NAME, at, f"a batch of {length} bytes is shorter than its header")
        end = at + _SIZE_BEHIND + length
        if end > len(data):
            break
        if attributes & _COMPRESSION:
            raise WireError(_NAME, at, "a batch is compressed; the metadata log never is")
        if last_delta < 0 or not 0 <= count <= end - at:
            raise WireError(_NAME, at, "a batch's count of records is impossible")
        if await _checksum(memoryview(data)[at + _CHECKED_FROM : end]) != checksum:
            raise WireError(_NAME, at, "a batch's checksum is wrong")
        control, append_time = bool(attributes & _CONTROL), bool(attributes & _LOG_APPEND_TIME)
        start = at + _HEADER.size
        found.append(Batch(base, base + last_delta, epoch, control, count, first, most, append_time, data, start, end))
        at = end
    return found


async def _checksum(data: memoryview) -> int:
    made, until = 0, time.perf_counter() + SLICE_S
    for start in range(0, len(data), _PIECE):
        made = crc32c(data[start : start + _PIECE], made)
        if time.perf_counter() >= until:
            await asyncio.sleep(0)
            until = time.perf_counter() + SLICE_S
    return made
