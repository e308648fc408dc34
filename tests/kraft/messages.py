"""The direction of messages that the service does not have: requests from bytes, responses and records as bytes.

Importing this module gives it to all classes of ``confplane.kraft.wire.messages``. ``messages.txt``, which
tests/kraft/generate.py writes, has the fields of each struct in their order: ``name:type``, followed by a
``?`` if it can be null, the versions that have it, its tag, and a ``~`` if other versions ignore it. ``[]`` is an array.
"""

from __future__ import annotations

import re
import sys
from dataclasses import MISSING, dataclass, fields
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from confplane.kraft.wire import messages
from confplane.kraft.wire.codec import Reader, Writer
from confplane.kraft.wire.message import Message

if TYPE_CHECKING:
    from collections.abc import Generator

_FIELD: Final = re.compile(
    r"(?P<name>\w+):(?P<array>\[])?(?P<kind>\w+)(?P<null>\?)?(@(?P<first>\d+)(\+|-(?P<last>\d+)))?(#(?P<tag>\d+))?(?P<ignored>~)?"
)
_ANY: Final = 32767


@dataclass(frozen=True, slots=True)
class Field:
    """A field of a struct, and the struct that it consists of, if any."""

    name: str
    kind: str
    versions: range
    tag: int | None
    is_array: bool
    is_nullable: bool
    is_ignorable: bool
    default: Any
    struct: Struct | None


@dataclass(frozen=True, slots=True)
class Struct:
    """A class of the service and its fields on the wire."""

    made: type[Any]
    fields: tuple[Field, ...]
    has_tags: bool

    def write(self, value: Any, out: Writer, version: int) -> None:
        tags: list[tuple[int, Writer]] = []
        for field in self.fields:
            item = getattr(value, field.name)
            if version not in field.versions:
                if item != field.default and not field.is_ignorable:
                    raise ValueError(f"this version has no place for {field.name}")
            elif field.tag is None:
                _write_field(field, item, out, version)
            elif item != field.default:
                _write_field(field, item, tag := Writer(), version)
                tags.append((field.tag, tag))
        if self.has_tags:
            out.tags(*tags)

    def read(self, reader: Reader, version: int) -> Any:
        found = {field.name: field.default for field in self.fields}
        present = [field for field in self.fields if version in field.versions]
        for field in present:
            if field.tag is None:
                found[field.name] = _read_field(field, reader, version)
        for _ in range(reader.tag_count() if self.has_tags else 0):
            number, end = reader.tag()
            for field in present:
                if field.tag == number:
                    found[field.name] = _read_field(field, reader, version)
            reader.leave_tag(end)
        return self.made(**found)


def _write_field(field: Field, value: Any, out: Writer, version: int) -> None:
    if field.is_array:
        out.count(None if value is None else len(value))
    for item in (value or ()) if field.is_array else (value,):
        if field.struct is None:
            getattr(out, field.kind)(item)
        else:
            field.struct.write(item, out, version)


def _read_field(field: Field, reader: Reader, version: int) -> Any:
    if not field.is_array:
        return _read_one(field, reader, version)
    count = reader.nullable_count(1) if field.is_nullable else reader.count(1)
    return None if count < 0 else tuple([_read_one(field, reader, version) for _ in range(count)])


def _read_one(field: Field, reader: Reader, version: int) -> Any:
    if field.struct is not None:
        return field.struct.read(reader, version)
    return getattr(reader, "nullable_" * (field.is_nullable and not field.is_array) + field.kind)()


def _structs() -> dict[type[Any], Struct]:
    """Return each message with what it consists of; the table has a struct behind those of its fields."""
    found: dict[type[Any], Struct] = {}
    for line in Path(__file__).with_suffix(".txt").read_text().splitlines():
        name, *declared = line.split()
        message_name, _, inner = name.partition(".")
        message = getattr(messages, message_name)
        module = sys.modules[message.__module__]
        made = getattr(module, inner or message_name)
        defaults = {item.name: None if item.default is MISSING else item.default for item in fields(made)}
        parsed = []
        for text in declared:
            part = _FIELD.fullmatch(text)
            assert part is not None, text
            struct = getattr(module, part["kind"], None)
            parsed.append(
                Field(
                    name=part["name"],
                    kind=part["kind"],
                    versions=range(int(part["first"] or 0), int(part["last"] or _ANY) + 1),
                    tag=None if part["tag"] is None else int(part["tag"]),
                    is_array=part["array"] is not None,
                    is_nullable=part["null"] is not None,
                    is_ignorable=part["ignored"] is not None,
                    default=defaults[part["name"]],
                    struct=None if struct is None else found[struct],
                )
            )
        found[made] = Struct(made, tuple(parsed), message.FLEXIBLE_FROM is not None)
    return found


def _complete(message: type[Any], struct: Struct) -> None:
    def write(self: Any, out: Writer, version: int) -> None:
        struct.write(self, out, version)

    def steps(reader: Reader, version: int) -> Generator[None, None, Any]:
        yield
        return struct.read(reader, version)

    if message.__name__.endswith("Request"):
        message._steps = staticmethod(steps)
    else:
        message._write = write


for _made, _struct in _structs().items():
    if issubclass(_made, Message):
        _complete(_made, _struct)
