"""Kafka's primitive types as bytes.

The rules are those of Kafka's protocol guide and of KIP-482 (compact lengths and tagged fields). :class:`Reader` and
:class:`Writer` are for flexible versions, :class:`PlainReader` and :class:`PlainWriter` for earlier versions.

Received bytes are never trusted: a length or count is compared with the number of remaining bytes before it is used.
:class:`~confplane.kraft.wire.message.Message` turns all failures into one error.
"""

from __future__ import annotations

import struct
from typing import TYPE_CHECKING, Any, Final
from uuid import UUID

if TYPE_CHECKING:
    from collections.abc import Sequence

ZERO_UUID: Final = UUID(int=0)

NUMBERS: Final = {
    "boolean": struct.Struct(">?"),  # read as Kafka does: any value except zero is true
    "int8": struct.Struct(">b"),
    "int16": struct.Struct(">h"),
    "uint16": struct.Struct(">H"),
    "int32": struct.Struct(">i"),
    "int64": struct.Struct(">q"),
    "float64": struct.Struct(">d"),
}
"""The types whose values have a fixed size."""


class RuleError(ValueError):
    """A broken rule of the format."""


class Reader:
    """A position in bytes. ``at`` moves past a value once the value is complete, so it is the place of a failure."""

    __slots__ = ("at", "data", "end")

    def __init__(self, data: bytes, at: int = 0) -> None:
        self.data = data
        self.at = at
        self.end = len(data)

    def number(self, form: struct.Struct) -> Any:
        """Return a value of one of :data:`NUMBERS`."""
        (value,) = form.unpack_from(self.data, self.at)
        self.at += form.size
        return value

    def uuid(self) -> UUID:
        """Return 16 bytes as a UUID."""
        return UUID(bytes=self.take(16))

    def string(self) -> str:
        """Return text that may not be null."""
        data, at = self.data, self.at
        size = data[at]
        if 0 < size < 128 and at + size <= self.end:  # noqa: PLR2004 - large answers are full of short texts
            self.at = at + size
            return data[at + 1 : at + size].decode()
        value = self.nullable_string()
        if value is None:
            raise RuleError("a string that must not be null is null")
        return value

    def nullable_string(self) -> str | None:
        """Return text, or None."""
        data, start = self.data, self.at
        size = data[start]
        if size > 127:  # noqa: PLR2004 - more than one byte
            size, start = self._varint(start)
        else:
            start += 1
        if size == 0:
            self.at = start
            return None
        end = start + size - 1
        if end > self.end:
            raise RuleError(f"{size - 1} bytes of text are announced, {self.end - start} are left")
        value = data[start:end].decode()
        self.at = end
        return value

    def binary(self) -> bytes:
        """Return bytes that may not be null."""
        value = self.nullable_binary()
        if value is None:
            raise RuleError("bytes are null that may not be")
        return value

    def nullable_binary(self) -> bytes | None:
        """Return bytes, or None."""
        size = self._size()
        return None if size < 0 else self.take(size)

    def count(self, least: int) -> int:
        """Return the number of elements of an array that may not be null, each of ``least`` bytes at least."""
        count = self.nullable_count(least)
        if count < 0:
            raise RuleError("an array that must not be null is null")
        return count

    def nullable_count(self, least: int) -> int:
        """Return the number of elements of an array, or -1 for null."""
        count = self._size()
        if count * least > self.end - self.at:
            raise RuleError(f"{count} elements are announced, {self.end - self.at} bytes are left")
        return count

    def skip_tags(self) -> None:
        """Skip tagged fields, all of which are unknown."""
        if self.data[self.at] == 0:
            self.at += 1
            return
        for _ in range(self.tag_count()):
            self.leave_tag(self.tag()[1])

    def tag_count(self) -> int:
        """Return the number of tagged fields, each of two bytes at least."""
        count, self.at = self._varint(self.at)
        if count * 2 > self.end - self.at:
            raise RuleError(f"{count} tagged fields are announced, {self.end - self.at} bytes are left")
        return count

    def tag(self) -> tuple[int, int]:
        """Return a tag and the offset after its field."""
        tag, at = self._varint(self.at)
        size, at = self._varint(at)
        if size > self.end - at:
            raise RuleError(f"{size} bytes of tag {tag} are announced, {self.end - at} are left")
        self.at = at
        return tag, at + size

    def leave_tag(self, end: int) -> None:
        """Go to the end of a tagged field, which may be longer than the known part."""
        if self.at > end:
            raise RuleError("a tagged field is longer than announced")
        self.at = end

    def varint(self) -> int:
        """Return an unsigned number of variable length, 32 bits at most."""
        value, self.at = self._varint(self.at)
        return value

    def varlong(self) -> int:
        """Return a signed number of variable length (zigzag), 64 bits at most."""
        value, self.at = self._varint(self.at, 64)
        return value >> 1 ^ -(value & 1)

    def _size(self) -> int:
        """Return the length of bytes or an array, -1 for null."""
        return self.varint() - 1

    def take(self, size: int) -> bytes:
        """Return the next bytes."""
        start = self.at
        end = start + size
        if end > self.end:
            raise RuleError(f"{size} bytes are announced, {self.end - start} are left")
        self.at = end
        return self.data[start:end]

    def _varint(self, at: int, bits: int = 32) -> tuple[int, int]:
        value = 0
        for shift in range(0, bits + 3, 7):
            byte = self.data[at]
            at += 1
            value |= (byte & 127) << shift
            if byte < 128:  # noqa: PLR2004 - the last byte
                if value >> bits:
                    break
                return value, at
        raise RuleError(f"a number of variable length exceeds {bits} bits")


class PlainReader(Reader):
    """A position in bytes of a version that is not flexible: lengths have a fixed size, and there are no tags."""

    __slots__ = ()

    def string(self) -> str:
        """Return text that may not be null."""
        value = self.nullable_string()
        if value is None:
            raise RuleError("a string that must not be null is null")
        return value

    def nullable_string(self) -> str | None:
        """Return text, or None."""
        size = self.number(NUMBERS["int16"])
        if size < 0:
            return None
        return self.take(size).decode()

    def skip_tags(self) -> None:
        """Do nothing: there are no tags."""

    def tag_count(self) -> int:
        """Return 0: there are no tags."""
        return 0

    def _size(self) -> int:
        return int(self.number(NUMBERS["int32"]))


class Writer:
    """Bytes under construction, of a flexible version."""

    __slots__ = ("out",)

    def __init__(self) -> None:
        self.out = bytearray()

    def number(self, form: struct.Struct, value: float) -> None:
        """Add a value of one of :data:`NUMBERS`."""
        self.out += form.pack(value)

    def uuid(self, value: UUID) -> None:
        """Add a UUID as 16 bytes."""
        self.out += value.bytes

    def string(self, value: str | None) -> None:
        """Add text, or null."""
        if value is None:
            self.out.append(0)
            return
        encoded = value.encode()
        if len(encoded) < 127:  # noqa: PLR2004 - large requests are full of short texts
            self.out.append(len(encoded) + 1)
            self.out += encoded
        else:
            self.binary(encoded)

    def binary(self, value: bytes | None) -> None:
        """Add bytes, or null."""
        self.count(None if value is None else len(value))
        if value is not None:
            self.out += value

    def count(self, count: int | None) -> None:
        """Add the number of elements, None for null."""
        self.varint(0 if count is None else count + 1)

    def tags(self, fields: Sequence[tuple[int, Writer]]) -> None:
        """Add tagged fields in the order of their tags."""
        self.varint(len(fields))
        for tag, field in fields:
            self.varint(tag)
            self.varint(len(field.out))
            self.out += field.out

    def varint(self, value: int) -> None:
        """Add an unsigned number of variable length."""
        while value > 127:  # noqa: PLR2004 - what does not fit into 7 bits
            self.out.append(value & 127 | 128)
            value >>= 7
        self.out.append(value)


class PlainWriter(Writer):
    """Bytes under construction, of a version that is not flexible."""

    __slots__ = ()

    def string(self, value: str | None) -> None:
        """Add text, or null."""
        encoded = None if value is None else value.encode()
        self.number(NUMBERS["int16"], -1 if encoded is None else len(encoded))
        self.out += encoded or b""

    def count(self, count: int | None) -> None:
        """Add the number of elements, None for null."""
        self.number(NUMBERS["int32"], -1 if count is None else count)

    def tags(self, fields: Sequence[tuple[int, Writer]]) -> None:
        """Do nothing: there are no tags."""
