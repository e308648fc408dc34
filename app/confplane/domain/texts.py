"""Parts of messages: quoted values, bounded so that a message never repeats a whole body, JSON pointers, and times."""

from __future__ import annotations

from datetime import timezone
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Iterable
    from datetime import datetime

LONGEST_INDEXED: Final = 2_000
"""Bytes of the longest text that an index of Postgres has to take. An entry of a B-tree has 2,704 bytes at most; the
other columns of an index, such as the cluster's name and an id, take up to 300. Postgres compresses long texts, so it
may take a longer one, which depends on the text."""
LONGEST_PRINCIPAL: Final = 1_024
"""Bytes of the longest principal, and of the longest name in a grant: one index has both."""


def shown(text: str, limit: int = 60) -> str:
    """Quote a value, shortened if it is long."""
    return repr(text if len(text) <= limit else f"{text[:limit]}...")


def clipped(text: str, limit: int = 100) -> str:
    """Return a name, shortened if it is long."""
    return text if len(text) <= limit else f"{text[:limit]}..."


def first_of(names: Iterable[str], limit: int = 5) -> str:
    """Return the first names, and the number of the rest."""
    every = list(names)
    listed = ", ".join(every[:limit])
    return listed if len(every) <= limit else f"{listed} and {len(every) - limit} more"


def step(part: str | int) -> str:
    """Return the step of a JSON pointer (RFC 6901) to a member or an element, with its slash."""
    return f"/{part}" if isinstance(part, int) else f"/{part.replace('~', '~0').replace('/', '~1')}"


def rfc3339(moment: datetime) -> str:
    """Return a time in UTC, to the millisecond."""
    return moment.astimezone(timezone.utc).isoformat(timespec="milliseconds").replace("+00:00", "Z")


def storable(text: str) -> bool:
    """Return True if Postgres can store a text: it has no NUL and no lone surrogate."""
    try:
        return b"\0" not in text.encode()
    except UnicodeEncodeError:
        return False
