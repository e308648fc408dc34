"""YAML files whose scalars are as in JSON: a reader that knows the place of each value, and the dumper for such files.

Parsers of YAML 1.1 and 1.2 read ``010``, ``1_000``, ``yes`` and other words without quotes differently. Here a scalar
without quotes is null, true, false, a number of JSON, or text; one that some parser reads as anything else is rejected.
So are repeated keys, anchors, aliases, merge keys, tags, and a second document.
"""

from __future__ import annotations

import math
import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

import yaml

from confplane.domain.errors import InvalidRequestError

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping
    from typing import BinaryIO

_LOADER: Final = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
"""The parser in C, which is many times as fast, if PyYAML is built with it."""
_Event = Any
"""An event of PyYAML; the parsers in C and in Python have different marks."""
_WORDS: Final = {"null": None, "true": True, "false": False}
_NUMBER: Final = re.compile(r"-?(?:0|[1-9][0-9]*)(\.[0-9]+)?([eE][-+]?[0-9]+)?")
_NOT_TEXT: Final = re.compile(
    r"""~|null|Null|NULL|true|True|TRUE|false|False|FALSE|yes|Yes|YES|no|No|NO|on|On|ON|off|Off|OFF|=|<<
    |[-+]?(?:\.[0-9_]+|[0-9][0-9_]*(?:\.[0-9_]*)?)(?:[eE][-+]?[0-9]+)?   # 1, 010, +1, 1_000, .5, 1e6
    |[-+]?0(?:[xX][0-9a-fA-F_]+|[oO][0-7_]+|[bB][01_]+)
    |[-+]?[0-9][0-9_]*(?::[0-5]?[0-9])+(?:\.[0-9_]*)?                    # 1:30 is 90 in YAML 1.1
    |[-+]?\.(?:inf|Inf|INF)|\.(?:nan|NaN|NAN)
    |[0-9]{4}-[0-9]{1,2}-[0-9]{1,2}(?:(?:[Tt]|[ \t]+)[0-9].*)?""",
    re.VERBOSE,
)
"""Words without quotes that a parser of YAML 1.1 or of YAML 1.2 does not read as text."""
_DEEPEST: Final = 50


@dataclass(frozen=True, slots=True)
class YamlNode:
    """A value with its place: for a member of a map the place of its key."""

    value: Any
    """None, a bool, int, float, str, a list of nodes, or a dict of nodes by key."""
    file: str
    line: int
    """From 1."""
    column: int
    """From 1, in characters."""

    @property
    def place(self) -> str:
        """The place, for a message."""
        return f"{self.file}, line {self.line}, column {self.column}"

    def plain(self) -> Any:
        """Return the value without places, as a parser of JSON would."""
        if isinstance(self.value, dict):
            return {key: member.plain() for key, member in self.value.items()}
        return [item.plain() for item in self.value] if isinstance(self.value, list) else self.value

    def error(self, reason: str) -> InvalidRequestError:
        """Return an error that names the place."""
        return InvalidRequestError(f"{self.place}: {reason}")


Dumper: Final[type[yaml.SafeDumper]] = type("Dumper", (getattr(yaml, "CSafeDumper", yaml.SafeDumper),), {})
"""A dumper that puts text into quotes if some parser would not read it as text without."""
# PyYAML quotes text that it would read as anything else itself. The tag of such text does not matter.
Dumper.add_implicit_resolver("tag:yaml.org,2002:float", re.compile(f"(?:{_NOT_TEXT.pattern})\\Z", re.VERBOSE), None)


_UNFOLDED: Final = 2**31 - 1
"""Maximum line length, large enough to avoid folding: a folded value is hard to search for."""


def dump_item(item: Mapping[str, Any]) -> str:
    """Return a map as an item of a list. If it has characters that can't be printed, all but ASCII are escaped."""
    return _dump([item], item)


def dump_members(members: Mapping[str, Any]) -> str:
    """Return members of a map. If they have characters that can't be printed, all but ASCII are escaped."""
    return _dump(members, members)


def _dump(value: object, members: Mapping[str, Any]) -> str:
    allow_unicode = "".join(_texts(members)).isprintable()
    text: str = yaml.dump(value, Dumper=Dumper, sort_keys=False, allow_unicode=allow_unicode, width=_UNFOLDED)
    return text


def _texts(value: object) -> Iterator[str]:
    if isinstance(value, dict):
        for key, member in value.items():
            yield from (key, *_texts(member))
    elif isinstance(value, str):
        yield value


def read_items(stream: BinaryIO, file: str) -> Iterator[YamlNode]:
    """Read the list that is the only document of a file, item by item.

    Args:
        stream: The file, which must be seekable.
        file: The name of the file, for errors.

    Raises:
        InvalidRequestError: The file is not a list, or not of the form above. The text has the place, and never a
            value.
    """
    return _YamlParser(stream, file).items()


def is_map(stream: BinaryIO, file: str) -> bool:
    """Return True if the first document of a file is a map.

    Raises:
        InvalidRequestError: As :func:`read_items`.
    """
    return _YamlParser(stream, file).is_map()


def read_document(stream: BinaryIO, file: str) -> YamlNode | None:
    """Read the only document of a file; None if it has no content.

    Raises:
        InvalidRequestError: As :func:`read_items`.
    """
    return _YamlParser(stream, file).document()


class _YamlParser:
    """Turns the events of PyYAML's parser into nodes."""

    def __init__(self, stream: BinaryIO, file: str) -> None:
        stream.seek(0)
        self._stream = stream
        self._file = file
        self._events = yaml.parse(stream, Loader=_LOADER)

    def is_map(self) -> bool:
        return isinstance(self._begin(), yaml.MappingStartEvent)

    def items(self) -> Iterator[YamlNode]:
        first = self._begin()
        if first is None:
            raise YamlNode(None, self._file, 1, 1).error("the file has no content")
        if not isinstance(first, yaml.SequenceStartEvent):
            raise self._error(first.start_mark, "the file is not a list, whose items begin with '- '")
        self._check_properties(first)
        while not isinstance(event := self._next(), yaml.SequenceEndEvent):
            yield self._node(event, 1)
        self._end()

    def document(self) -> YamlNode | None:
        first = self._begin()
        if first is None:
            return None
        node = self._node(first, 0)
        self._end()
        return node

    def _begin(self) -> _Event | None:
        """Return the first event of the document; None if it has no content."""
        self._next()  # the start of the stream
        if isinstance(self._next(), yaml.StreamEndEvent):
            return None
        first = self._next()
        if isinstance(first, yaml.ScalarEvent) and not (first.value or first.style or first.anchor or first.tag):
            self._end()
            return None
        return first

    def _end(self) -> None:
        self._next()  # the end of the document
        if not isinstance(event := self._next(), yaml.StreamEndEvent):
            raise self._error(event.start_mark, "a second document begins here; a file has one")

    def _node(self, event: _Event, depth: int) -> YamlNode:
        self._check_properties(event)
        mark = event.start_mark
        value: Any
        if isinstance(event, yaml.ScalarEvent):
            value = self._scalar(event)
        elif depth == _DEEPEST:
            raise self._error(mark, f"lists and maps are nested more than {_DEEPEST} deep")
        elif isinstance(event, yaml.SequenceStartEvent):
            value = []
            while not isinstance(item := self._next(), yaml.SequenceEndEvent):
                value.append(self._node(item, depth + 1))
        else:
            value = {}
            while not isinstance(key := self._next(), yaml.MappingEndEvent):
                name = self._key(key)
                if name in value:
                    raise self._error(
                        key.start_mark, f"the key {name!r} occurs twice: here and in line {value[name].line}"
                    )
                member = self._node(self._next(), depth + 1)
                value[name] = YamlNode(member.value, self._file, key.start_mark.line + 1, key.start_mark.column + 1)
        return YamlNode(value, self._file, mark.line + 1, mark.column + 1)

    def _key(self, event: _Event) -> str:
        self._check_properties(event)
        if not isinstance(event, yaml.ScalarEvent) or (
            not event.style and (not event.value or _NOT_TEXT.fullmatch(event.value))
        ):
            raise self._error(event.start_mark, "a key must be text; put it in quotes")
        name: str = event.value
        return name

    def _scalar(self, event: _Event) -> float | str | None:
        text: str = event.value
        if event.style:  # in quotes, or a block
            return text
        if text in _WORDS:
            return _WORDS[text]
        if not text:
            raise self._error(event.start_mark, "a value is missing; an empty text is written ''")
        if (number := _NUMBER.fullmatch(text)) is not None:
            value = float(text)
            if not math.isfinite(value):
                raise self._error(event.start_mark, "the number is too large; put it in quotes if it is text")
            return int(text) if number[1] is None and number[2] is None else value
        if _NOT_TEXT.fullmatch(text):
            raise self._error(
                event.start_mark,
                "the value is not null, true, false or a number as in JSON; put it in quotes if it is text",
            )
        return text

    def _check_properties(self, event: _Event) -> None:
        if isinstance(event, yaml.AliasEvent):
            raise self._error(event.start_mark, "aliases are not supported; write the value again")
        if event.anchor is not None:
            raise self._error(event.start_mark, "anchors are not supported")
        if event.tag is not None:
            raise self._error(event.start_mark, "tags are not supported; put text in quotes")

    def _next(self) -> _Event:
        try:
            return next(self._events)
        except yaml.MarkedYAMLError as error:
            # The error's own text has an excerpt of the file, which may include a value.
            raise self._error(error.problem_mark or error.context_mark, error.problem or "not valid YAML") from None
        except yaml.reader.ReaderError as error:
            self._stream.seek(0)
            before = self._stream.read(error.position)
            line = before.rpartition(b"\n")[2].decode(errors="replace")
            place = YamlNode(None, self._file, before.count(b"\n") + 1, len(line) + 1)
            raise place.error("the file is not UTF-8" if "UTF-8" in error.reason else error.reason) from None

    def _error(self, mark: Any, reason: str) -> InvalidRequestError:
        return YamlNode(None, self._file, mark.line + 1, mark.column + 1).error(reason)
