"""Structs of Kafka's protocol: dataclasses whose fields say how they are read and written.

A field of a generated class is declared by :func:`wire`. What it says is all that reading and writing need, so there is
one reading and one writing for all classes and versions. Both are composed once for each class and version.
"""

from __future__ import annotations

from dataclasses import dataclass, field, fields
from functools import partial
from operator import attrgetter
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

    def writing(self, writer: type[Writer], version: int) -> Callable[[Writer, Any], None]:
        """Return the writing of a value, or of an array of values."""
        write: Callable[[Writer, Any], None]
        if not isinstance(self.kind, str):
            write = writing(self.kind, writer, version).write
        elif self.kind in NUMBERS:
            write = _number_writing(NUMBERS[self.kind])
        else:
            write = getattr(writer, self.kind)
        return _array_writing(write) if self.array else write

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


@dataclass(frozen=True, slots=True)
class StructWriting:
    """The writing of a struct: one step for each field, then the tagged fields."""

    fields: tuple[tuple[Callable[[Any], Any], Callable[[Writer, Any], None]], ...]
    """The value of each field, and the writing of it."""
    tagged: tuple[tuple[int, WireField, Callable[[Writer, Any], None]], ...]
    """The tag of each tagged field, the field, and the writing of its value."""
    absent: tuple[WireField, ...]
    """The fields that the version does not have and that must have their defaults."""

    def write(self, out: Writer, value: Any) -> None:
        """Add a struct.

        Raises:
            ValueError: The version has no place for a value.
        """
        for item in self.absent:
            if getattr(value, item.name) != item.default:
                raise ValueError(f"this version has no place for {item.name}")
        for get, write in self.fields:
            write(out, get(value))
        tags: list[tuple[int, Writer]] = []
        for tag, item, write in self.tagged:
            if (content := getattr(value, item.name)) != item.default:
                write(written := Writer(), content)
                tags.append((tag, written))
        out.tags(tags)


def writing(struct: type[Struct], writer: type[Writer], version: int) -> StructWriting:
    """Return the writing of a struct in a version."""
    key = (struct, writer, version)
    if key not in _WRITINGS:
        present = [item for item in wire_fields(struct) if version >= item.since]
        absent = [item for item in wire_fields(struct) if version < item.since and not item.ignorable]
        _WRITINGS[key] = StructWriting(
            tuple((attrgetter(item.name), item.writing(writer, version)) for item in present if item.tag is None),
            tuple((item.tag, item, item.writing(Writer, version)) for item in present if item.tag is not None),
            tuple(absent),
        )
    return _WRITINGS[key]


def _array_writing(write: Callable[[Writer, Any], None]) -> Callable[[Writer, Any], None]:
    """Return the writing of an array, or null, by that of an element."""

    def write_array(out: Writer, values: Any) -> None:
        out.count(None if values is None else len(values))
        for value in values or ():
            write(out, value)

    return write_array


def _number_writing(form: struct.Struct) -> Callable[[Writer, Any], None]:
    """Return :meth:`Writer.number` of one form, in a single call."""
    pack = form.pack

    def write(out: Writer, value: Any) -> None:
        out.out += pack(value)

    return write


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
_WRITINGS: Final[dict[tuple[type[Struct], type[Writer], int], StructWriting]] = {}
