"""Base64url without padding (RFC 4648, section 5)."""

from __future__ import annotations

import base64


def encode_base64url(data: bytes) -> str:
    """Return the text of bytes."""
    return base64.urlsafe_b64encode(data).decode().rstrip("=")


def decode_base64url(text: str) -> bytes:
    """Return the bytes of a text.

    Raises:
        ValueError: The text is not the one that :func:`encode_base64url` makes of any bytes.
    """
    try:
        data = base64.b64decode(text + "=" * (-len(text) % 4), altchars=b"-_", validate=True)
    except ValueError:
        data = b""
    if encode_base64url(data) != text:
        raise ValueError("not base64url without padding")
    return data
