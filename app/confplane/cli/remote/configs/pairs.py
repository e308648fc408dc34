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
_BRACKETS: Final = str.maketrans("", "", "[]")


def of_text(text: str) -> dict[str, str]:
    """Read ``k1=v1,k2=[v2,v3]``; if a key is given twice, the last value counts.

    Raises:
        InvalidRequestError: A part is not a key and a value, or a key has an invalid character. The text shows neither:
        after a comma in a password without brackets, the rest of the password looks like a key.
    """
    parts = _COMMA.split(text)
    while text and parts and not parts[-1]:  # commas at the end separate nothing
        parts.pop()
    found = {}
    for number, part in enumerate(parts, 1):
        key, *values = _EQUALS.split(part)
        if len(values) != 1:
            raise InvalidRequestError(
                f"--add-config: config {number} is not of the form key=value; a value with commas or equals signs needs"
                " brackets: key=[a,b]"
            )
        found[java_trim(key)] = java_trim(values[0].translate(_BRACKETS))
    return _checked(found, "--add-config")


def of_file(path: str) -> dict[str, str]:
    """Read a properties file, in which brackets have no meaning.

    Raises:
        InvalidRequestError: The file can't be read, or a key has an invalid character.
    """
    try:
        found = javaproperties.loads(Path(path).read_bytes())
    except OSError as error:
        raise InvalidRequestError(f"--add-config-file: {path} can't be read: {error.strerror}") from None
    except ValueError:
        raise InvalidRequestError(f"--add-config-file: {path} has a \\u without four hexadecimal digits") from None
    return _checked(found, f"--add-config-file: {path}")


def keys_of(texts: Iterable[str]) -> tuple[str, ...]:
    """Read ``k1,k2`` of each option; blanks around a key and empty keys do not count."""
    return tuple(java_trim(key) for text in texts for key in text.split(",") if key)


def _checked(found: dict[str, str], where: str) -> dict[str, str]:
    for key in found:
        if (other := _NO_KEY.search(key)) is not None:
            raise InvalidRequestError(
                f"{where}: a key has the character {other[0]!r}; keys have letters, digits, '.', '_' and '-'"
            )
    return found
