"""Strict JSON for request bodies: refuses texts that parsers interpret differently, and reports the place.

It refuses duplicate keys, NaN and Infinity, numbers outside any useful range, invalid UTF-8, NUL characters, lone
surrogates, and nesting deeper than 32 levels (RFC 8259 leaves all of these to the reader).

The cost of parsing depends on the number of items rather than bytes: 8 MB of empty lists would take seconds. So the
items of a large body are first counted in its bytes, and its lists are parsed in slices, with pauses for other tasks.
"""

from __future__ import annotations

import json
import re
from typing import TYPE_CHECKING, Any, Final, NoReturn

from confplane.domain.errors import BodyTooLargeError, InvalidRequestError
from confplane.domain.texts import clipped, step
from confplane.services.cooperative_yielding import in_slices

if TYPE_CHECKING:
    from collections.abc import Iterator

MAX_DEPTH: Final = 32
MAX_ITEMS: Final = 400_000
"""The greatest number of items in a body: its brackets, braces, commas and colons, including those in strings. An alter
of 10,000 entities with five ops each has 350,000."""
MAX_PART_ITEMS: Final = 20_000
"""The greatest number of items in one entry of a large body, or in a member that is not a list. An entry with 500 ops
has 4,000."""
LARGE: Final = 64 * 1024
"""Size in bytes above which a body is counted and parsed in slices."""
_SUSPECT: Final = re.compile(r"\\u(?:0000|[dD][89a-fA-F])")
_SPACE: Final = re.compile(r"[ \t\n\r]*")
_MAX_DIGITS: Final = 400
"""Digits of the longest number literal: further digits are lost in a double."""


def loads(body: bytes) -> Any:
    """Parse a request body.

    Raises:
        InvalidRequestError: The text is refused, with the reason; ``pointer`` is set if the place is known.
    """
    text = _decoded(body)
    try:
        value = _DECODER.decode(text)
    except json.JSONDecodeError as error:
        raise _not_json(error) from None
    except RecursionError:
        raise _too_deep() from None
    # A walk costs more than parsing; most bodies visibly need none.
    if text.count("{") + text.count("[") > MAX_DEPTH or "\0" in text or _SUSPECT.search(text):
        _check(value, "", 0)
    return value


async def loads_large(body: bytes, most_items: int = MAX_ITEMS) -> Any:
    """Parse a request body of any size, in slices.

    Args:
        body: The body.
        most_items: The greatest number of items in the body.

    Raises:
        BodyTooLargeError: The body has more items than are accepted.
        InvalidRequestError: As :func:`loads`; or the body is not an object.
    """
    _count_items("The body", body, most_items)
    text = _decoded(body)
    try:
        return await _large_object(text)
    except json.JSONDecodeError as error:
        raise _not_json(error) from None
    except RecursionError:
        raise _too_deep() from None


async def _large_object(text: str) -> dict[str, Any]:
    """Parse an object, and each list that is a member of it element by element."""
    place = _behind_space(text, 0)
    if text[place : place + 1] != "{":
        raise InvalidRequestError("The body is not a JSON object")
    pairs: list[tuple[str, Any]] = []
    place = _behind_space(text, place + 1)
    more = text[place : place + 1] != "}"
    while more:
        if text[place : place + 1] != '"':
            raise json.JSONDecodeError("Expecting property name enclosed in double quotes", text, place)
        name, place = _DECODER.raw_decode(text, place)
        _check_text(name, "")
        place = _behind_space(text, place)
        if text[place : place + 1] != ":":
            raise json.JSONDecodeError("Expecting ':' delimiter", text, place)
        place = _behind_space(text, place + 1)
        value: Any
        if text[place : place + 1] == "[":
            elements = _Elements(text, place, step(name))
            value = await in_slices(lambda element: element, elements)
            place = elements.place
        else:
            value, place = _part(text, place, step(name), 1)
        pairs.append((name, value))
        more, place = _more(text, place, "}")
    end = _behind_space(text, place + 1)
    if end != len(text):
        raise json.JSONDecodeError("Extra data", text, end)
    return _object(pairs)


class _Elements:
    """The elements of a list, each parsed and checked on demand.

    Attributes:
        place: The end of the text read so far. After the last element, this is the end of the list.
    """

    def __init__(self, text: str, place: int, pointer: str) -> None:
        self.place = place
        self._text = text
        self._pointer = pointer

    def __iter__(self) -> Iterator[Any]:
        text, index = self._text, 0
        place = _behind_space(text, self.place + 1)
        more = text[place : place + 1] != "]"
        while more:
            value, place = _part(text, place, f"{self._pointer}/{index}", 2)
            yield value
            index += 1
            more, place = _more(text, place, "]")
        self.place = place + 1


def _part(text: str, place: int, pointer: str, depth: int) -> tuple[Any, int]:
    """Parse and check one part of a large body at once; return it and its end."""
    value, end = _DECODER.raw_decode(text, place)
    if end - place > MAX_PART_ITEMS:
        _count_items(
            f"The part {clipped(pointer)} of the body", text[place:end].encode(errors="replace"), MAX_PART_ITEMS
        )
    _check(value, pointer, depth)
    return value, end


def _count_items(what: str, body: bytes, most: int) -> None:
    items = sum(body.count(mark) for mark in (b"[", b"{", b",", b":"))
    if items > most:
        raise BodyTooLargeError(
            f"{what} has {items} items, counted as its brackets, braces, commas and colons; at most {most} are taken,"
            " send fewer in a request"
        )


def _more(text: str, place: int, end: str) -> tuple[bool, int]:
    """Return whether another member or element follows, and where it begins; otherwise where the end is."""
    place = _behind_space(text, place)
    mark = text[place : place + 1]
    if mark == end:
        return False, place
    if mark != ",":
        raise json.JSONDecodeError("Expecting ',' delimiter", text, place)
    return True, _behind_space(text, place + 1)


def _behind_space(text: str, place: int) -> int:
    found = _SPACE.match(text, place)
    return place if found is None else found.end()


def _decoded(body: bytes) -> str:
    try:
        return body.decode()
    except UnicodeDecodeError as error:
        raise InvalidRequestError(f"The body is not UTF-8: invalid byte at offset {error.start}") from None


def _not_json(error: json.JSONDecodeError) -> InvalidRequestError:
    return InvalidRequestError(f"The body is not JSON: {error.msg} at line {error.lineno}, column {error.colno}")


def _too_deep() -> InvalidRequestError:
    return InvalidRequestError(f"The body is nested deeper than {MAX_DEPTH} levels")


def _object(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    value = dict(pairs)
    if len(value) < len(pairs):
        seen: set[str] = set()
        for key, _ in pairs:
            if key in seen:
                raise InvalidRequestError(f"The body holds an object with the member {key[:100]!a} twice")
            seen.add(key)
    return value


def _constant(name: str) -> NoReturn:
    raise InvalidRequestError(f"The body holds {name}, which is not a JSON number")


def _int(digits: str) -> int:
    if len(digits) > _MAX_DIGITS:
        raise InvalidRequestError(f"The body holds a number of {len(digits)} digits")
    return int(digits)


def _float(text: str) -> float:
    value = float(text)
    if value in {float("inf"), float("-inf")}:
        raise InvalidRequestError(f"The body holds {text[:40]}, which is beyond the range of a double")
    return value


_DECODER: Final = json.JSONDecoder(
    object_pairs_hook=_object, parse_constant=_constant, parse_int=_int, parse_float=_float
)


def _check(value: Any, pointer: str, depth: int) -> None:
    if depth > MAX_DEPTH:
        raise InvalidRequestError(f"The body is nested deeper than {MAX_DEPTH} levels", pointer=pointer)
    if isinstance(value, str):
        _check_text(value, pointer)
    elif isinstance(value, dict):
        for key, item in value.items():
            _check_text(key, pointer)
            _check(item, pointer + step(key), depth + 1)
    elif isinstance(value, list):
        for index, item in enumerate(value):
            _check(item, f"{pointer}/{index}", depth + 1)


def _check_text(text: str, pointer: str) -> None:
    if "\0" in text:
        raise InvalidRequestError("The body holds a NUL character", pointer=pointer)
    try:
        text.encode()
    except UnicodeEncodeError:
        raise InvalidRequestError("The body holds a lone surrogate", pointer=pointer) from None
