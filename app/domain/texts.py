"""How values of others are put into messages: bounded in length, so that a message never repeats a whole body."""

from __future__ import annotations


def shown(text: str, limit: int = 60) -> str:
    """Quote a value, cut where it is long."""
    return repr(text if len(text) <= limit else f"{text[:limit]}...")


def clipped(text: str, limit: int = 100) -> str:
    """Return a name as it is, cut where it is long."""
    return text if len(text) <= limit else f"{text[:limit]}..."
