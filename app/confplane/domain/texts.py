"""Parts of messages: quoted values, bounded so that a message never repeats a whole body, JSON pointers, and times."""

from __future__ import annotations

from datetime import timezone
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from datetime import datetime


def shown(text: str, limit: int = 60) -> str:
    """Quote a value, shortened if it is long."""
    return repr(text if len(text) <= limit else f"{text[:limit]}...")


def clipped(text: str, limit: int = 100) -> str:
    """Return a name, shortened if it is long."""
    return text if len(text) <= limit else f"{text[:limit]}..."


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
