"""Bearer tokens: fixed, or read for each request from a file or a function, because tokens are rotated."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from pathlib import Path

from confplane.client.errors import ClientError

Token = str | Path | Callable[[], str]
"""A token, a file with a token, or a function that returns one. The function runs in a thread and may block."""


def authorization(token: Token) -> str:
    """Return the value of the header ``Authorization`` with the current token.

    Raises:
        ClientError: The file has no token, or the function returned none. The text has no part of a token.
    """
    return f"Bearer {_word(token if isinstance(token, str) else _read(token))}"


async def authorization_in_thread(token: Token) -> str:
    """Same as :func:`authorization`, but in a thread, because the file or the function may block."""
    return authorization(token) if isinstance(token, str) else await asyncio.to_thread(authorization, token)


def _read(token: Path | Callable[[], str]) -> str:
    try:
        return (token.read_text("utf-8") if isinstance(token, Path) else token()).strip()
    except Exception as error:  # noqa: BLE001 - any exception of an application's function means no token
        # The text of a foreign exception may quote a token.
        reason = error.strerror if isinstance(error, OSError) and error.strerror else type(error).__name__
        raise ClientError(f"the token can't be read: {reason}") from None


def is_token(text: str) -> bool:
    """Return True if a text can be a token: one word of printable ASCII characters."""
    return text.isascii() and text.isprintable() and len(text.split()) == 1


def _word(text: str) -> str:
    """Check a token, because a library that refuses a header may quote it in the log."""
    if not is_token(text):
        raise ClientError("the token is not one word of printable ASCII characters")
    return text
