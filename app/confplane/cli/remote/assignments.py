"""Arguments of ``confplane set``: ``KEY=VALUE``, ``KEY=@FILE``, and ``KEY`` to prompt for the value."""

from __future__ import annotations

import re
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Final

import typer

from confplane.domain.errors import InvalidRequestError

if TYPE_CHECKING:
    from collections.abc import Sequence

_KEY: Final = re.compile(r"[a-zA-Z0-9._-]+")
_STANDARD_INPUT: Final = "-"


def values_of(words: Sequence[str]) -> dict[str, str]:
    """Return the values of keys.

    ``KEY=@FILE`` is the file's text without the end of its last line, and ``KEY=@-`` that of standard input.
    ``KEY=@@TEXT`` is the text ``@TEXT``. For ``KEY`` alone, the command prompts for the value without showing it.
    Without a terminal, the value is a line of standard input.

    Raises:
        InvalidRequestError: A word has no key, a key is given twice, or a file can't be read. The text shows no value.
    """
    found: dict[str, str] = {}
    for number, word in enumerate(words, 1):
        key, equals, text = word.partition("=")
        if not _KEY.fullmatch(key):
            raise InvalidRequestError(f"Argument {number} behind the entity is not of the form KEY=VALUE")
        if key in found:
            raise InvalidRequestError(f"{key} is given twice")
        found[key] = _value(key, text) if equals else _asked(key, number)
    return found


def _value(key: str, text: str) -> str:
    if not text.startswith("@"):
        return text
    source = text[1:]
    if source.startswith("@"):
        return source
    try:
        content = sys.stdin.read() if source == _STANDARD_INPUT else Path(source).read_text("utf-8")
    except OSError as error:
        raise InvalidRequestError(f"{key}: the file {source} can't be read: {error.strerror}") from None
    except UnicodeDecodeError:
        raise InvalidRequestError(f"{key}: the file {source} is not text") from None
    return content.removesuffix("\n").removesuffix("\r")


def _asked(key: str, number: int) -> str:
    """Prompt for a value. A word that is not a key may be a misplaced value, so it is shown only on the terminal."""
    if sys.stdin.isatty():
        text: str = typer.prompt(key, hide_input=True, default="", show_default=False, err=True)
    else:
        text = sys.stdin.readline().removesuffix("\n").removesuffix("\r")
    if not text:
        raise InvalidRequestError(f"Argument {number} behind the entity got no value; an empty one is written KEY=")
    return text
