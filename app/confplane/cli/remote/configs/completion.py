"""Completion of lines in ``confplane shell``: options, types of entities, and keys of configs."""

from __future__ import annotations

from functools import cache
from typing import TYPE_CHECKING, Final

from confplane.cli.remote.configs import arguments, options

if TYPE_CHECKING:
    from collections.abc import Callable

DELIMITERS: Final = " ,="
"""Characters between the words that are completed: a key follows a blank or a comma."""
_KEY_OPTIONS: Final = {f"--{name}" for name in ("add-config", "added-config", "delete-config", "deleted-config")}
_TYPE: Final = "--entity-type"


class Completion:
    """Completions of one shell; each kind of keys is requested once.

    Args:
        keys: Returns the valid keys of an entity type, given by its name in the API. Empty if they are not known.
        commands: Words that are complete lines.
    """

    def __init__(self, keys: Callable[[str], list[str]], commands: tuple[str, ...]) -> None:
        self._keys = cache(keys)
        self._commands = commands

    def candidates(self, line: str, begin: int, end: int) -> list[str]:
        """Return the completions of a part of a line, each with the character that follows it."""
        before, text = line[:begin], line[begin:end]
        words = before.split()
        option = next((word for word in reversed(words) if word.startswith("-")), "")
        if before.endswith("="):
            found = []
        elif option in _KEY_OPTIONS and before.endswith((",", f"{option} ")):
            mark = "=" if "add" in option else ""
            found = [f"{key}{mark}" for key in self._keys(_kind(line.split()))]
        elif before.endswith(f"{_TYPE} "):
            found = [f"{name} " for name in arguments.TYPES]
        elif text.startswith("-"):
            found = [f"--{name} " for name in options.NAMES if name not in options.REPLACED]
        else:
            found = [f"{name} " for name in self._commands if not words]
        return [each for each in found if each.startswith(text)]


def _kind(words: list[str]) -> str:
    """Return the type of a line's entity; a user has keys of client configs in addition to quotas."""
    kinds = arguments.types_of(words)
    return "user" if "user" in kinds else next(iter(kinds), "topic")
