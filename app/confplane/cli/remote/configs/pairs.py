"""Keys and values of ``--add-config``, ``--add-config-file``, ``--delete-config``, parsed like Kafka's tool does."""

from __future__ import annotations

import re
from pathlib import Path
from typing import TYPE_CHECKING, Final

import javaproperties

from confplane.domain.errors import InvalidRequestError
from confplane.domain.numbers import java_trim

if TYPE_CHECKING:
    from collections.abc import Iterable

_OUTSIDE: Final = r"(?=[^\]]*(?:\[|$))"
"""Followed by an opening bracket or by no closing one: Kafka's test for a place outside brackets."""
_COMMA: Final = re.compile(f",{_OUTSIDE}")
_EQUALS: Final = re.compile(rf"\s*=\s*{_OUTSIDE}", re.ASCII)
_NO_KEY: Final = re.compile(r"[^a-zA-Z0-9._-]")
_BRACKETS: Final = re.compile(r"[\[\]]")
_USE_FILE: Final = "--add-config-file FILE takes every value as it is; FILE may be /dev/stdin."


def of_text(text: str) -> dict[str, str]:
    """Read ``k1=v1,k2=[v2,v3]``; only the outer brackets of a value are removed.

    Raises:
        InvalidRequestError: A part is not a key and a value, brackets in a value are ambiguous, a key is given twice or
        has an invalid character. The text shows neither: after a comma in a password without brackets, the rest of the
        password looks like a key.
    """
    parts = _COMMA.split(text)
    while text and parts and not parts[-1]:  # commas at the end separate nothing
        parts.pop()
    pairs = [_EQUALS.split(part) for part in parts]
    for number, pair in enumerate(pairs, 1):
        if len(pair) != 2:  # noqa: PLR2004 - a key and a value
            raise InvalidRequestError(
                f"--add-config: config {number} is not of the form key=value; a value with commas or equals signs needs"
                f" brackets: key=[a,b]. {_USE_FILE}"
            )
    return _checked(
        [(java_trim(key), _without_brackets(number, java_trim(value))) for number, (key, value) in enumerate(pairs, 1)],
        "--add-config",
    )


def _without_brackets(number: int, value: str) -> str:
    """Return a value without its outer pair of brackets.

    Kafka's tool removes all brackets. Here they remain inside a value, unless a comma or an equals sign belongs to the
    value only because of them.

    Raises:
        InvalidRequestError: It is not clear which brackets belong to the value.
    """
    if not _BRACKETS.search(value):
        return value
    if value[0] == "[" and value[-1] == "]" and _is_balanced(value[1:-1]):
        return java_trim(value[1:-1])
    if value[0] == "[" or "," in value or "=" in value:
        raise InvalidRequestError(
            f"--add-config: config {number} has brackets that may belong to its value or enclose it. {_USE_FILE}"
        )
    return value


def _is_balanced(text: str) -> bool:
    depth = 0
    for bracket in _BRACKETS.findall(text):
        depth += 1 if bracket == "[" else -1
        if depth < 0:
            return False
    return depth == 0


def of_file(path: str) -> dict[str, str]:
    """Read a properties file, in which brackets have no meaning.

    Raises:
        InvalidRequestError: The file can't be read, or a key is there twice or has an invalid character.
    """
    try:
        found = javaproperties.loads(Path(path).read_bytes(), object_pairs_hook=list)
    except OSError as error:
        raise InvalidRequestError(f"--add-config-file: {path} can't be read: {error.strerror}") from None
    except ValueError:
        raise InvalidRequestError(f"--add-config-file: {path} has a \\u without four hexadecimal digits") from None
    return _checked(found, f"--add-config-file: {path}")


def keys_of(texts: Iterable[str]) -> tuple[str, ...]:
    """Read ``k1,k2`` of each option; blanks around a key and empty keys do not count."""
    return tuple(java_trim(key) for text in texts for key in text.split(",") if key)


def _checked(pairs: Iterable[tuple[str, str]], where: str) -> dict[str, str]:
    found: dict[str, str] = {}
    for number, (key, value) in enumerate(pairs, 1):
        if (other := _NO_KEY.search(key)) is not None:
            raise InvalidRequestError(
                f"{where}: a key has the character {other[0]!r}; keys have letters, digits, '.', '_' and '-'"
            )
        if key in found:  # not named: it may be a part of a password
            raise InvalidRequestError(f"{where}: config {number} has the key of an earlier one")
        found[key] = value
    return found
