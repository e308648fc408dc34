"""The response with all client quotas, read entry by entry in one pass: about 93 bytes an entity, 100,000 at a time.

The generated message would create four objects for each entity, which takes four times as long. Its reading defines the
format, and is used for every unusual entry: long names, many quotas, tagged fields, version 0.
"""

from __future__ import annotations

import struct
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from confplane.kraft.wire.codec import NUMBERS, Reader
from confplane.kraft.wire.message import guarded
from confplane.kraft.wire.messages import DescribeClientQuotasResponse
from confplane.kraft.wire.messages.quotas import DescribeClientQuotasResponseEntryData

if TYPE_CHECKING:
    from collections.abc import Generator, Mapping

_LONG: Final = 127
"""Greater lengths take more than one byte."""
_FLOAT64: Final = struct.Struct(">d")
_LEAST_ENTRY: Final = 3
_MOST_WORDS: Final = 64
"""The limit of types and keys that are cached as one text each; there are eight in Kafka 4.4."""


@dataclass(frozen=True, slots=True)
class QuotaEntry:
    """The quotas of one entity."""

    entity: tuple[tuple[str, str | None], ...]
    """Pairs of type and name, such as ("user", "alice"); None is the default entity."""
    values: Mapping[str, float]


@dataclass(frozen=True, slots=True)
class QuotasAnswer:
    """A response to a describe of quotas."""

    error_code: int
    error_message: str | None
    entries: tuple[QuotaEntry, ...]


def steps(data: bytes, version: int, at: int) -> Generator[None, None, QuotasAnswer]:
    """Read a response and pause after each entry; for ``run`` and ``run_in_slices`` of the codec.

    Raises:
        WireError: The bytes are not such a response.
    """
    if version == 0:
        answer = yield from DescribeClientQuotasResponse.steps(data, version, at)
        return QuotasAnswer(answer.error_code, answer.error_message, tuple(map(_entry, answer.entries or ())))
    reader = Reader(data, at)
    return (yield from guarded(DescribeClientQuotasResponse.NAME, reader, _read(reader, version)))


def _read(reader: Reader, version: int) -> Generator[None, None, QuotasAnswer]:
    reader.number(NUMBERS["int32"])
    error_code, error_message = reader.number(NUMBERS["int16"]), reader.nullable_string()
    entries: list[QuotaEntry] = []
    words: dict[bytes, str] = {}
    for _ in range(reader.nullable_count(_LEAST_ENTRY)):
        entry = _usual(reader, words)
        entries.append(_entry(DescribeClientQuotasResponseEntryData.read(reader, version)) if entry is None else entry)
        yield
    reader.skip_tags()
    return QuotasAnswer(error_code, error_message, tuple(entries))


def _entry(entry: DescribeClientQuotasResponseEntryData) -> QuotaEntry:
    names = tuple([(each.entity_type, each.entity_name) for each in entry.entity])
    return QuotaEntry(names, {each.key: each.value for each in entry.values})


def _usual(reader: Reader, words: dict[bytes, str]) -> QuotaEntry | None:  # noqa: C901, PLR0911 - one pass, no calls
    """Return the next entry. For an unusual or truncated entry, return None and leave the reader in place.

    A length that exceeds the bytes is detected at the next byte, which is missing: every part ends with a tag count.
    """
    data, at = reader.data, reader.at
    count = data[at]
    if not 0 < count <= _LONG:
        return None
    at += 1
    parts: list[tuple[str, str | None]] = []
    for _ in range(count - 1):
        size = data[at]
        if not 0 < size <= _LONG:
            return None
        end = at + size
        kind = words.get(data[at + 1 : end]) or _word(data[at + 1 : end], words)
        size = data[end]
        if size > _LONG:
            return None
        at = end + size + (size == 0)
        if data[at]:
            return None
        parts.append((kind, data[end + 1 : at].decode() if size else None))
        at += 1
    count = data[at]
    if not 0 < count <= _LONG:
        return None
    at += 1
    values: dict[str, float] = {}
    for _ in range(count - 1):
        size = data[at]
        if not 0 < size <= _LONG:
            return None
        end = at + size
        key = words.get(data[at + 1 : end]) or _word(data[at + 1 : end], words)
        at = end + _FLOAT64.size
        if data[at]:
            return None
        (values[key],) = _FLOAT64.unpack_from(data, end)
        at += 1
    if data[at]:
        return None
    reader.at = at + 1
    return QuotaEntry(tuple(parts), values)


def _word(data: bytes, words: dict[bytes, str]) -> str:
    word = data.decode()
    if len(words) < _MOST_WORDS:
        words[data] = word
    return word
