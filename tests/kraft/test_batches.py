"""Record batches, checksums and transactions of records, as bytes that may be damaged."""

from __future__ import annotations

import random
import struct
from typing import TYPE_CHECKING

import crc32c as reference
import pytest

from confplane.kraft.metadata_log import RecordTransactions
from confplane.kraft.wire.batches import Record, batches, crc32c
from confplane.kraft.wire.codec import Reader, RuleError, Writer
from confplane.kraft.wire.errors import UnsupportedError, WireError
from confplane.kraft.wire.messages import (
    AbortTransactionRecord,
    BeginTransactionRecord,
    ConfigRecord,
    EndTransactionRecord,
)

if TYPE_CHECKING:
    from confplane.kraft.wire.message import Message


NO_OP = 20
"""The number of a kind of record that is not followed."""


def varint(value: int) -> bytes:
    out = Writer()
    out.varint(value)
    return bytes(out.out)


def signed(value: int) -> bytes:
    return varint((value << 1) ^ (value >> 63))


def batch(
    *values: bytes, base: int = 100, attributes: int = 0, magic: int = 2, timestamp: bytes | None = None
) -> bytes:
    records = b""
    for delta, value in enumerate(values):
        time = timestamp or signed(delta * 5)
        body = b"\0" + time + signed(delta) + signed(-1) + signed(len(value)) + value + signed(0)
        records += signed(len(body)) + body
    behind = struct.pack(">hiqqqhii", attributes, len(values) - 1, 1000, 2000, -1, -1, -1, len(values)) + records
    head = struct.pack(">ib", 7, magic) + struct.pack(">I", reference.crc32c(behind)) + behind
    return struct.pack(">qi", base, len(head)) + head


def record(message: Message, offset: int = 0) -> Record:
    assert message.API_KEY is not None
    return Record(offset, 0, bytes([1, message.API_KEY, 0]) + message.encode(0))


@pytest.mark.parametrize("size", [0, 1, 2, 255, 8191, 8192, 8193, 70_001, 131_072, 400_003])
def test_checksums_are_those_of_another_implementation(size: int) -> None:
    data = random.Random(size).randbytes(size)  # noqa: S311 - seeded
    assert crc32c(data) == reference.crc32c(data)
    assert crc32c(data[size // 3 :], crc32c(data[: size // 3])) == reference.crc32c(data)


async def test_a_batch_is_cut_into_records_with_offset_and_time() -> None:
    whole = batch(b"a", b"", b"c" * 300)
    found = await batches(whole + batch(b"d", base=103, attributes=8) + whole[:30])
    assert [[(each.offset, each.timestamp, each.value) for each in one.records()] for one in found] == [
        [(100, 1000, b"a"), (101, 1005, b""), (102, 1010, b"c" * 300)],
        [(103, 2000, b"d")],
    ]
    assert [one.leader_epoch for one in found] == [7, 7]


@pytest.mark.parametrize("delta", [0, -1, 2**63 - 1, -(2**63)])
async def test_a_varlong_has_64_bits_at_most(delta: int) -> None:
    zigzag = (delta << 1) ^ (delta >> 63)
    [[record]] = [list(one.records()) for one in await batches(batch(b"a", timestamp=varint(zigzag)))]
    assert record.timestamp == 1000 + delta
    for beyond in (varint(zigzag | 2**64), varint(zigzag | 2**69), b"\x80" * 10 + b"\0"):
        [one] = await batches(batch(b"a", timestamp=beyond))
        with pytest.raises(WireError, match="exceeds 64 bits"):
            list(one.records())


@pytest.mark.parametrize("value", [0, 127, 128, 2**31, 2**32 - 1])
def test_a_varint_has_32_bits_at_most(value: int) -> None:
    assert Reader(varint(value)).varint() == value
    for beyond in (varint(value | 2**32), varint(value | 2**34), b"\x80" * 5 + b"\0"):
        with pytest.raises(RuleError, match="exceeds 32 bits"):
            Reader(beyond).varint()


@pytest.mark.parametrize(
    ("data", "why"),
    [
        (batch(b"a", magic=1), "format 1"),
        (batch(b"a", attributes=2), "compressed"),
        (batch(b"a")[:-1] + b"\1", "checksum"),
        (batch(b"a")[:8] + b"\0\0\0\5" + batch(b"a")[12:], "shorter than its header"),
    ],
)
async def test_a_damaged_batch_is_an_error(data: bytes, why: str) -> None:
    with pytest.raises(WireError, match=why):
        await batches(data)


async def test_mutated_batches_are_errors_or_records() -> None:
    chooser = random.Random(16)  # noqa: S311 - seeded
    outcomes = {"error": 0, "records": 0}
    original = batch(*(bytes([1, 4, 0]) + ConfigRecord(2, "t", "k", "v").encode(0) for _ in range(5)))
    for _ in range(2000):
        data = bytearray(original)
        for _ in range(chooser.randint(1, 4)):
            data[chooser.randrange(len(data))] = chooser.randrange(256)
        # The checksum is made right again: what a hostile node would do.
        data[17:21] = struct.pack(">I", reference.crc32c(bytes(data[21:])))
        try:
            for one in await batches(bytes(data)):
                transactions = RecordTransactions()
                for each in one.records():
                    transactions.add(each)
            outcomes["records"] += 1
        except (WireError, UnsupportedError):
            outcomes["error"] += 1
    assert min(outcomes.values()) > 100


def test_a_transaction_is_in_effect_at_its_end_or_not_at_all() -> None:
    config = ConfigRecord(2, "t", "k", "v")
    transactions = RecordTransactions()
    assert [each.message for each in transactions.add(record(config, 1))] == [config]
    assert transactions.add(record(BeginTransactionRecord("n"), 2)) == []
    begins = [transactions.begin]
    assert transactions.add(record(config, 3)) == []
    assert transactions.add(Record(4, 0, bytes([1, NO_OP, 0, 0]))) == []
    assert [each.offset for each in transactions.add(record(EndTransactionRecord(), 5))] == [3]
    assert [*begins, transactions.begin] == [2, None]
    transactions.add(record(BeginTransactionRecord(), 6))
    transactions.add(record(config, 7))
    assert transactions.add(record(AbortTransactionRecord("why"), 8)) == []
    assert [each.offset for each in transactions.add(record(config, 9))] == [9]


def test_a_newer_version_of_a_followed_record_is_refused_and_other_kinds_are_passed_over() -> None:
    with pytest.raises(UnsupportedError, match="ConfigRecord in version 3"):
        RecordTransactions().add(Record(0, 0, bytes([1, 4, 3]) + b"later"))
    assert RecordTransactions().add(Record(0, 0, bytes([1, 11, 0]) + b"credentials")) == []
    with pytest.raises(WireError):
        RecordTransactions().add(Record(0, 0, b"\1"))
