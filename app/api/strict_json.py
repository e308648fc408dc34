"""Strict JSON for request bodies: what several parsers would read in several ways is refused, with its place.

Refused are duplicate keys, NaN and Infinity, numbers beyond any use, invalid UTF-8, NUL characters, lone surrogates,
and nesting deeper than 32 levels (RFC 8259 leaves all of these to the reader).
"""

from __future__ import annotations

import json
import re
from typing import Any, Final, NoReturn

from app.domain.errors import InvalidRequestError
from app.domain.texts import step

MAX_DEPTH: Final = 32
_SUSPECT: Final = re.compile(r"\\u(?:0000|[dD][89a-fA-F])")
_MAX_DIGITS: Final = 400
"""Longer number literals say nothing that a double can hold."""


def loads(body: bytes) -> Any:
    """Parse a request body.

    Raises:
        InvalidRequestError: With the reason; ``pointer`` is set where the place is known.
    """
    try:
        text = body.decode()
    except UnicodeDecodeError as error:
        raise InvalidRequestError(f"The body is not UTF-8: invalid byte at offset {error.start}") from None
    try:
        value = _DECODER.decode(text)
    except json.JSONDecodeError as error:
        raise InvalidRequestError(
            f"The body is not JSON: {error.msg} at line {error.lineno}, column {error.colno}"
        ) from None
    except RecursionError:
        raise InvalidRequestError(f"The body is nested deeper than {MAX_DEPTH} levels") from None
    # Walking costs more than parsing; most bodies can be seen to need none of it.
    if text.count("{") + text.count("[") > MAX_DEPTH or "\0" in text or _SUSPECT.search(text):
        _check(value, "", 0)
    return value


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
