"""CRC-32C (Castagnoli), which Kafka uses for record batches.

The standard library has CRC-32 of another polynomial.

Long data are cut into lanes of equal length whose registers advance together, a byte of each lane in one step: the four
bytes of all registers are four long numbers, and ``bytes.translate`` looks up all lanes at once. Because the checksum
is linear, the lanes' registers are then joined, each advanced by the length of a lane. That is about 40 times as fast
as a loop over bytes.
"""

from __future__ import annotations

import functools
from typing import Final

_POLYNOMIAL: Final = 0x82F63B78  # reflected
_ALL: Final = 0xFFFFFFFF
_BYTE: Final = 0xFF
_LANE: Final = 256
"""The length of a lane in bytes."""
_LEAST_LANES: Final = 32
_MOST_LANES: Final = 512


@functools.cache
def _table() -> list[int]:
    """Return the register of each byte."""
    made = []
    for register in range(256):
        for _ in range(8):
            register = register >> 1 ^ (_POLYNOMIAL if register & 1 else 0)  # noqa: PLW2901 - it advances
        made.append(register)
    return made


@functools.cache
def _planes() -> list[bytes]:
    """Return the four bytes of the table's entries, lowest first, for ``bytes.translate``."""
    return [bytes(entry >> shift & _BYTE for entry in _table()) for shift in (0, 8, 16, 24)]


@functools.cache
def _moves() -> list[list[int]]:
    """Return, for each byte of a register, its part of the register after a further lane of zeros."""
    bits = [_by_bytes(bytes(_LANE), 1 << bit) for bit in range(32)]
    made = []
    for first in range(0, 32, 8):
        part = [0]
        for bit in bits[first : first + 8]:
            part += [known ^ bit for known in part]
        made.append(part)
    return made


def _by_bytes(data: bytes | memoryview, register: int) -> int:
    table = _table()
    for byte in data:
        register = table[(register ^ byte) & _BYTE] ^ register >> 8
    return register


def _by_lanes(data: bytes, register: int) -> int:
    lanes = len(data) // _LANE
    low, second, third, high = _planes()
    read = int.from_bytes
    a = b = c = d = 0  # the registers' bytes, lowest first, one byte for each lane
    for at in range(_LANE):
        index = (a ^ read(data[at::_LANE], "little")).to_bytes(lanes, "little")
        a = b ^ read(index.translate(low), "little")
        b = c ^ read(index.translate(second), "little")
        c = d ^ read(index.translate(third), "little")
        d = read(index.translate(high), "little")
    parts = [plane.to_bytes(lanes, "little") for plane in (a, b, c, d)]
    one, two, three, four = _moves()
    for lowest, next_, after, highest in zip(*parts, strict=True):
        moved = (
            one[register & _BYTE] ^ two[register >> 8 & _BYTE] ^ three[register >> 16 & _BYTE] ^ four[register >> 24]
        )
        register = moved ^ (lowest | next_ << 8 | after << 16 | highest << 24)
    return register


def crc32c(data: bytes | memoryview, before: int = 0) -> int:
    """Return the checksum of bytes that follow bytes with the checksum ``before``."""
    register, at = before ^ _ALL, 0
    while len(data) - at >= _LANE * _LEAST_LANES:
        size = min((len(data) - at) // _LANE, _MOST_LANES) * _LANE
        register = _by_lanes(bytes(data[at : at + size]), register)
        at += size
    return _by_bytes(data[at:], register) ^ _ALL
