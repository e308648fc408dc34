"""Structs of Kafka's protocol: dataclasses whose fields say how they are read and written.

A field of a generated class is declared by :func:`wire`. What it says is all that reading and writing need, so there is
one reading and one writing for all classes and versions. A reading is composed once for each class and version.
"""

from __future__ import annotations

from dataclasses import dataclass, field, fields
from functools import partial
from typing import TYPE_CHECKING, Any, Final, Self

from confplane.kraft.wire.codec import NUMBERS, ZERO_UUID, PlainReader, Reader, Writer

if TYPE_CHECKING:
    import struct
    from collections.abc import Callable, Generator

_TEXTS: Final[dict[str, tuple[Any, int]]] = {"uuid": (ZERO_UUID, 16), "string": ("", 1), "binary": (b"", 1)}
"""The other primitive types, which are methods of Reader and Writer: the default of a field, and the least size."""
_UNSET: Final = object()


@dataclass(frozen=True, slots=True)
class WireField:
    """The form of a field on the wire."""

    name: str
    default: Any
    kind: str | type[Struct]
    """A primitive type, or the struct that the field consists of."""
    array: bool
    nullable: bool
    since: int
    """The first version that has the field."""
    tag: int | None
    """The tag of a field that is written only if it has a value other than its default (KIP-482)."""
    ignorable: bool
    """True if versions without the field ignore its value. Otherwise, a value can't be written in such a version."""

    def write(self, value: Any, out: Writer, version: int) -> None:
        """Add a value."""
        if not self.array:
            self._write_one(value, out, version)
            return
        out.count(None if value is None else len(value))
        for each in value or ():
            self._write_one(each, out, version)

    def _write_one(self, value: Any, out: Writer, version: int) -> None:
        if not isinstance(self.kind, str):
            value.write(out, version)
        elif self.kind in NUMBERS:
            out.number(NUMBERS[self.kind], value)
        else:
            getattr(out, self.kind)(value)

    def reading(self, reader: type[Reader], version: int) -> Callable[[Reader], Any]:
        """Return the reading of a value, or of one element of an array."""
        if not isinstance(self.kind, str):
            return reading(self.kind, reader, version).read
        if self.kind in NUMBERS:
            return _number_reading(NUMBERS[self.kind])
        read: Callable[[Reader], Any] = getattr(
            reader, f"nullable_{self.kind}" if self.nullable and not self.array else self.kind
        )
        return read

    def array_reading(self, reader: type[Reader], version: int) -> ArrayReading:
        """Return the reading of an array."""
        count = reader.nullable_count if self.nullable else reader.count
        return ArrayReading(self.reading(reader, version), count, max(1, _least(self.kind, reader, version)))


@dataclass(frozen=True, slots=True)
class ArrayReading:
    """The reading of an array, whose number of elements is compared with the bytes that are left."""

    element: Callable[[Reader], Any]
    count: Callable[[Reader, int], int]
    least: int
    """The least size of an element in bytes."""

    def read(self, reader: Reader) -> tuple[Any, ...] | None:
        """Return the elements, or None for null."""
        count, element = self.count(reader, self.least), self.element
        return None if count < 0 else tuple([element(reader) for _ in range(count)])

    def steps(self, reader: Reader) -> Generator[None, None, tuple[Any, ...] | None]:
        """Read the array, and pause after each element."""
        count = self.count(reader, self.least)
        elements = []
        for _ in range(count):
            elements.append(self.element(reader))
            yield
        return None if count < 0 else tuple(elements)


def wire(
    kind: str | type[Struct],
    *,
    default: Any = _UNSET,
    array: bool = False,
    nullable: bool = False,
    since: int = 0,
    tag: int | None = None,
    ignorable: bool = False,
    hidden: bool = False,
) -> Any:
    """Declare a field of a struct.

    Args:
        kind: A primitive type, or a struct.
        default: The value of a field that is not given; usually zero, empty, or the struct's own default.
        array: True for any number of such values.
        nullable: True if the value can be null.
        since: The first version that has the field.
        tag: The tag of a tagged field.
        ignorable: True if versions without the field ignore its value.
        hidden: True for a value that may be a password, which the representation omits.
    """
    if default is _UNSET:
        default = () if array else _default_of(kind)
    rest = (kind, array, nullable, since, tag, ignorable)
    return field(default=default, repr=not hidden, metadata={"wire": rest})


@dataclass(frozen=True, slots=True)
class Struct:
    """A struct, or a whole message (:class:`~confplane.kraft.wire.message.Message`)."""

    def write(self, out: Writer, version: int) -> None:
        """Add the fields that the version has.

        Raises:
            ValueError: The version has no place for a value.
        """
        tags: list[tuple[int, Writer]] = []
        for item in wire_fields(type(self)):
            value = getattr(self, item.name)
            if version < item.since:
                if value != item.default and not item.ignorable:
                    raise ValueError(f"this version has no place for {item.name}")
            elif item.tag is None:
                item.write(value, out, version)
            elif value != item.default:
                item.write(value, tag := Writer(), version)
                tags.append((item.tag, tag))
        out.tags(*tags)

    @classmethod
    def read(cls, reader: Reader, version: int) -> Self:
        """Return the struct that begins at the reader's position."""
        value: Self = reading(cls, type(reader), version).read(reader)
        return value


def wire_fields(struct: type[Struct]) -> tuple[WireField, ...]:
    """Return the fields of a struct in their order."""
    if struct not in _FIELDS:
        _FIELDS[struct] = tuple(WireField(item.name, item.default, *item.metadata["wire"]) for item in fields(struct))
    return _FIELDS[struct]


@dataclass(frozen=True, slots=True)
class StructReading:
    """The reading of a struct: one step for each field, then the tagged fields.

    A field that is tagged, or that the version does not have, begins with its default.
    """

    struct: type[Struct]
    fields: tuple[Callable[[Reader], Any], ...]
    arrays: dict[int, ArrayReading]
    """Place among the fields -> the reading of an array."""
    tagged: dict[int, tuple[int, Callable[[Reader], Any]]]
    """Tag -> place among the fields, and reading."""

    def read(self, reader: Reader) -> Any:
        """Return the struct."""
        values = [read(reader) for read in self.fields]
        if self.tagged:
            self._read_tags(reader, values)
        else:
            reader.skip_tags()
        return self.struct(*values)

    def steps(self, reader: Reader) -> Generator[None, None, Any]:
        """Read the struct, and pause after each element of its arrays."""
        if not self.arrays:
            return self.read(reader)
        values = []
        for place, read in enumerate(self.fields):
            array = self.arrays.get(place)
            values.append(read(reader) if array is None else (yield from array.steps(reader)))
        self._read_tags(reader, values)
        return self.struct(*values)

    def _read_tags(self, reader: Reader, values: list[Any]) -> None:
        for _ in range(reader.tag_count()):
            tag, end = reader.tag()
            if tag in self.tagged:
                place, read = self.tagged[tag]
                values[place] = read(reader)
            reader.leave_tag(end)


def reading(struct: type[Struct], reader: type[Reader], version: int) -> StructReading:
    """Return the reading of a struct in a version."""
    key = (struct, reader, version)
    if key not in _READINGS:
        _READINGS[key] = _composed(*key)
    return _READINGS[key]


def _composed(struct: type[Struct], reader: type[Reader], version: int) -> StructReading:
    steps: list[Callable[[Reader], Any]] = []
    arrays: dict[int, ArrayReading] = {}
    tagged: dict[int, tuple[int, Callable[[Reader], Any]]] = {}
    for place, item in enumerate(wire_fields(struct)):
        default = partial(_default, item.default)
        if version < item.since:
            steps.append(default)
            continue
        array = item.array_reading(reader, version) if item.array else None
        read = item.reading(reader, version) if array is None else array.read
        if item.tag is not None:
            tagged[item.tag] = (place, read)
            steps.append(default)
            continue
        if array is not None:
            arrays[place] = array
        steps.append(read)
    return StructReading(struct, tuple(steps), arrays, tagged)


def _number_reading(form: struct.Struct) -> Callable[[Reader], Any]:
    """Return :meth:`Reader.number` of one form, in a single call: numbers are most of the fields."""
    unpack, size = form.unpack_from, form.size

    def read(reader: Reader) -> Any:
        (value,) = unpack(reader.data, reader.at)
        reader.at += size
        return value

    return read


def _default_of(kind: str | type[Struct]) -> Any:
    """Return the value of a field whose definition has none."""
    if not isinstance(kind, str):
        return kind()
    return _TEXTS[kind][0] if kind in _TEXTS else NUMBERS[kind].unpack(bytes(NUMBERS[kind].size))[0]


def _default(value: Any, _reader: Reader) -> Any:
    return value


def _least(kind: str | type[Struct], reader: type[Reader], version: int) -> int:
    """Return the least size of a value in bytes."""
    if isinstance(kind, str):
        return NUMBERS[kind].size if kind in NUMBERS else _TEXTS[kind][1]
    present = [item for item in wire_fields(kind) if version >= item.since and item.tag is None]
    tags = 0 if issubclass(reader, PlainReader) else 1
    return tags + sum(1 if item.array else _least(item.kind, reader, version) for item in present)


_FIELDS: Final[dict[type[Struct], tuple[WireField, ...]]] = {}
_READINGS: Final[dict[tuple[type[Struct], type[Reader], int], StructReading]] = {}
