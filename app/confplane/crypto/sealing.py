"""Key files: they seal what is stored or given to browsers.

The console's key seals tokens and short-lived cookies, and signs session ids and the tokens of forms. That of webhooks
seals their URLs and signing secrets.
"""

from __future__ import annotations

import hmac
import secrets
from typing import TYPE_CHECKING, Final, TypeVar

from cryptography.exceptions import InvalidTag
from cryptography.hazmat.primitives.ciphers.aead import AESGCM

from confplane.domain.base64url import encode_base64url
from confplane.settings import UnusableSettingsError

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

K = TypeVar("K")

MIN_LENGTH: Final = 32
"""Characters of the shortest key: 32 random bytes in base64 are 44."""
_NONCE_BYTES: Final = 12


class SealingKey:
    """Seals for one purpose each: what was sealed for one purpose is not valid for another.

    Args:
        secret: The key file's secret, which all replicas share.
        use: The use of the key. Keys of different uses are different, even if the files are equal.

    Raises:
        ValueError: The secret is too short.
    """

    def __init__(self, secret: str, use: str) -> None:
        if len(secret) < MIN_LENGTH:
            raise ValueError(f"it has fewer than {MIN_LENGTH} characters")
        self._sealing = AESGCM(hmac.digest(secret.encode(), f"confplane {use} sealing".encode(), "sha256"))

    def seal(self, plain: bytes, purpose: str) -> bytes:
        """Encrypt and authenticate."""
        nonce = secrets.token_bytes(_NONCE_BYTES)
        return nonce + self._sealing.encrypt(nonce, plain, purpose.encode())

    def open(self, sealed: bytes, purpose: str) -> bytes | None:
        """Return what was sealed for a purpose, or None if it was sealed with another key, or for another purpose."""
        try:
            return self._sealing.decrypt(sealed[:_NONCE_BYTES], sealed[_NONCE_BYTES:], purpose.encode())
        except (InvalidTag, ValueError):
            return None


class WebhookKey(SealingKey):
    """Seals the URLs and signing secrets of webhooks.

    Args:
        secret: The key file's secret.
    """

    def __init__(self, secret: str) -> None:
        super().__init__(secret, "webhooks")

    @classmethod
    def from_file(cls, path: Path) -> WebhookKey:
        """Read the secret from the first line of a file.

        Raises:
            UnusableSettingsError: The file can't be read, or its first line is too short.
        """
        return _from_file(cls, path, "webhooks.key_file")


class ConsoleKey(SealingKey):
    """Seals and signs for one purpose each: what was made for one purpose is not valid for another.

    Args:
        secret: The key file's secret.
    """

    def __init__(self, secret: str) -> None:
        super().__init__(secret, "console")
        self._signing = hmac.digest(secret.encode(), b"confplane console signing", "sha256")

    @classmethod
    def from_file(cls, path: Path) -> ConsoleKey:
        """Read the secret from the first line of a file.

        Raises:
            UnusableSettingsError: The file can't be read, or its first line is too short.
        """
        return _from_file(cls, path, "console_key_file")

    def sign(self, text: str, purpose: str) -> str:
        """Return the signature of a text for a purpose."""
        message = f"{purpose}\0{text}".encode(errors="surrogatepass")
        return encode_base64url(hmac.digest(self._signing, message, "sha256"))

    def is_signed(self, text: str, signature: str, purpose: str) -> bool:
        """Return True if a signature is that of a text for a purpose; compared in constant time."""
        return hmac.compare_digest(self.sign(text, purpose).encode(), signature.encode(errors="surrogatepass"))


def _from_file(make: Callable[[str], K], path: Path, setting: str) -> K:
    try:
        return make((path.read_text("utf-8").splitlines() or [""])[0].strip())
    except (OSError, ValueError) as error:
        reason = error.strerror if isinstance(error, OSError) else error
        raise UnusableSettingsError(
            f"{setting}: {path} can't be used: {reason}. Make one with `openssl rand -base64 32`"
        ) from None
