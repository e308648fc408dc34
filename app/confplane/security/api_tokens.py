"""The text of API tokens: ``confplane_``, 256 random bits in base 62, and a checksum.

Secret scanners recognise the prefix, and use the checksum to discard other texts without a lookup.

Source: https://github.blog/engineering/behind-githubs-new-authentication-token-formats/ (prefix, base 62, CRC32 in six
digits).
"""

from __future__ import annotations

import hashlib
import secrets
import string
import zlib
from typing import Final

PREFIX: Final = "confplane_"
_DIGITS: Final = string.digits + string.ascii_uppercase + string.ascii_lowercase
_BYTES: Final = 32
_BODY: Final = 43
"""Digits of 256 bits in base 62."""
_CHECKSUM: Final = 6
"""Digits of 32 bits in base 62."""


def make() -> str:
    """Return the text of a new token."""
    begin = PREFIX + _base62(int.from_bytes(secrets.token_bytes(_BYTES)), _BODY)
    return begin + _checksum(begin.encode())


def mint() -> tuple[str, bytes]:
    """Return the text of a new token, and its digest."""
    text = make()
    return text, digest(text)


def digest(text: str) -> bytes:
    """Return the SHA-256 of a token's whole text, the only part of a token that is stored."""
    return hashlib.sha256(text.encode()).digest()


def _checksum(begin: bytes) -> str:
    return _base62(zlib.crc32(begin), _CHECKSUM)


def _base62(number: int, digits: int) -> str:
    found = []
    for _ in range(digits):
        number, digit = divmod(number, len(_DIGITS))
        found.append(_DIGITS[digit])
    return "".join(reversed(found))
