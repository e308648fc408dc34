"""Bearer tokens: fixed, or read for each request from a file or a function, because tokens are rotated."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Final, Protocol, runtime_checkable

from confplane.client.errors import ClientError

_SCHEME: Final = "Bearer "

Token = str | Path | Callable[[], str]
"""A token, a file with a token, or a function that returns one. The function runs in a thread and may block."""


@runtime_checkable
class CachedToken(Protocol):
    """A function that returns the same token for many requests, and can replace one that the service refuses."""

    def __call__(self) -> str:
        """Return the token."""

    def renew(self, refused: str) -> str:
        """Return another token than the refused one, or the same if there is no other."""


def authorization(token: Token) -> str:
    """Return the value of the header ``Authorization`` with the current token.

    Raises:
        ClientError: The file has no token, or the function returned none. The text has no part of a token.
    """
    return f"{_SCHEME}{_word(token if isinstance(token, str) else _read(token))}"


async def authorization_in_thread(token: Token) -> str:
    """Same as :func:`authorization`, but in a thread, because the file or the function may block."""
    return authorization(token) if isinstance(token, str) else await asyncio.to_thread(authorization, token)


def renewed_authorization(token: Token | None, refused: str | None) -> str | None:
    """Read a token again after the service has refused it.

    Args:
        token: The token.
        refused: The value of the header with which the request was refused.

    Returns:
        The value of the header with another token; None if there is no other token.
    """
    if token is None or refused is None or isinstance(token, str):
        return None
    if isinstance(token, CachedToken):
        token = partial(token.renew, refused.removeprefix(_SCHEME))
    try:
        found = authorization(token)
    except ClientError:
        return None  # the refusal says more
    return None if found == refused else found


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
