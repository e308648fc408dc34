"""Parts of messages: quoted values, bounded so that a message never repeats a whole body, and JSON pointers."""

from __future__ import annotations


def shown(text: str, limit: int = 60) -> str:
    """Quote a value, shortened where it is long."""
    return repr(text if len(text) <= limit else f"{text[:limit]}...")


def clipped(text: str, limit: int = 100) -> str:
    """Return a name, shortened where it is long."""
    return text if len(text) <= limit else f"{text[:limit]}..."


def step(part: str | int) -> str:
    """Return the step of a JSON pointer (RFC 6901) to a member or an element, with its slash."""
    return f"/{part}" if isinstance(part, int) else f"/{part.replace('~', '~0').replace('/', '~1')}"
