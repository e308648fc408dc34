"""Waiting for a condition: limited by time, never by a count of polls."""

from __future__ import annotations

import asyncio
import inspect
import time
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from collections.abc import Callable

    from tests.support.facets import ConfplaneClient

PATIENCE_S: Final = 120.0
"""A timeout that even the slowest machine does not reach."""
_GROWTH: Final = 1.25
_LONGEST_S: Final = 0.2
"""Maximum pause between two checks. A check may be a request, which costs the service and Postgres some time too."""


async def until(
    what: Callable[[], Any],
    seconds: float = PATIENCE_S,
    *,
    why: object = "",
    refused: type[Exception] | tuple[type[Exception], ...] = (),
    pause_s: float = 0.02,
) -> Any:
    """Call a function repeatedly until its result is true, and return the result.

    Args:
        what: A function, plain or async. For a plain one that blocks, see :func:`until_thread`.
        seconds: The timeout.
        why: The message if the condition is not met, or a function that returns it.
        refused: Exceptions that mean "not yet"; the last one is raised if the condition is not met.
        pause_s: The pause between the first two checks; each later pause is longer by a quarter, up to 0.2 seconds.

    Raises:
        AssertionError: The condition was not met.
    """
    deadline = time.monotonic() + seconds
    while True:
        try:
            found = what()
            if inspect.isawaitable(found):
                found = await found
            if found:
                return found
        except refused:
            if time.monotonic() > deadline:
                raise
        assert time.monotonic() < deadline, _text(why, seconds)
        await asyncio.sleep(pause_s)
        pause_s = _longer(pause_s)


async def until_warned(client: ConfplaneClient, text: str) -> None:
    """Wait for a warning of ``/readyz`` with this text; those of Postgres are kept for a moment."""

    async def warned() -> bool:
        body = (await client.request("GET", "/readyz")).body
        return any(text in str(warning) for warning in body["warnings"])

    await until(warned, why=text)


async def until_thread(
    what: Callable[[], Any],
    seconds: float = PATIENCE_S,
    *,
    why: object = "",
    refused: type[Exception] | tuple[type[Exception], ...] = (),
) -> Any:
    """Like :func:`until`, for a function that blocks: called in a thread, because the loop may have to run a proxy."""
    return await until(lambda: asyncio.to_thread(what), seconds, why=why, refused=refused, pause_s=0.05)


async def run_ready_tasks() -> None:
    """Let all tasks continue until each of them waits: for another task, not for a timer, a thread or a connection."""
    for _ in range(100):
        await asyncio.sleep(0)


def wait_for(what: Callable[[], Any], seconds: float = PATIENCE_S, *, why: object = "", pause_s: float = 0.05) -> Any:
    """Like :func:`until`, without a loop."""
    deadline = time.monotonic() + seconds
    while not (found := what()):
        assert time.monotonic() < deadline, _text(why, seconds)
        time.sleep(pause_s)
        pause_s = _longer(pause_s)
    return found


def _longer(pause_s: float) -> float:
    return max(pause_s, min(pause_s * _GROWTH, _LONGEST_S))


def _text(why: object, seconds: float) -> str:
    return f"not within {seconds:g} s: {why() if callable(why) else why}"
