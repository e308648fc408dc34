"""Bearer tokens: fixed, or read again for each request from a file or a function, since tokens are rotated."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from pathlib import Path

from confplane.client.errors import ClientError

Token = str | Path | Callable[[], str]
"""A token, the file that holds one, or a function that returns one, which runs in a thread and may block."""


def authorization(token: Token) -> str:
    """Return the value of the header ``Authorization`` with a token as it is now.

    Raises:
        ClientError: There is no token in the file, or none from the function. The text has no part of a token.
    """
    return f"Bearer {_word(token if isinstance(token, str) else _read(token))}"


async def authorization_in_thread(token: Token) -> str:
    """Do as :func:`authorization`; a file or a function that blocks holds up a thread of its own."""
    return authorization(token) if isinstance(token, str) else await asyncio.to_thread(authorization, token)


def _read(token: Path | Callable[[], str]) -> str:
    try:
        return (token.read_text("utf-8") if isinstance(token, Path) else token()).strip()
    except Exception as error:  # noqa: BLE001 - whatever an application's function raises is a token less
        # A text of others may quote a token.
        reason = error.strerror if isinstance(error, OSError) and error.strerror else type(error).__name__
        raise ClientError(f"the token can't be read: {reason}") from None


def is_token(text: str) -> bool:
    """Say whether a text can be a token: one word of printable ASCII characters."""
    return text.isascii() and text.isprintable() and len(text.split()) == 1


def _word(text: str) -> str:
    """Check a token, since a library that refuses a header may quote it in the log."""
    if not is_token(text):
        raise ClientError("the token is not one word of printable ASCII characters")
    return text
