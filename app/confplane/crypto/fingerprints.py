"""Keyed fingerprints: they show whether two values of a config are equal, without showing either.

A fingerprint is the start of an HMAC under a key that is derived from a broker's encoder secret. The fingerprint stays
the same when a password is encoded again, and changes when the secret does; without the secret it does not allow
guesses.
"""

from __future__ import annotations

import hashlib
import hmac
from functools import cache
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Callable

HEX_DIGITS: Final = 16
"""Digits of a fingerprint, 64 bits: enough to distinguish values."""

_ITERATIONS: Final = 120_000
"""Iterations of the key's derivation, slow on purpose: knowledge of one password and its fingerprint must not reveal
the secret faster than a stored value would. The derivation runs once per secret and process."""


def fingerprinter(secret: str, cluster: str) -> Callable[[str, str], str]:
    """Return the function ``(config key, value) -> fingerprint`` of a secret.

    The config's key is an input, so that the same password in two configs has two fingerprints. The cluster is an
    input, too. The first call derives the key, which takes a tenth of a second of CPU time.
    """
    encoded = secret.encode()
    salt = f"confplane fingerprint 1 {cluster}".encode()

    # Closures, because their representation shows nothing.
    @cache
    def mac_key() -> bytes:
        return hashlib.pbkdf2_hmac("sha512", encoded, salt, _ITERATIONS, 32)

    def fingerprint(key: str, value: str) -> str:
        message = b"\0".join(text.encode(errors="surrogatepass") for text in (key, value))
        return hmac.digest(mac_key(), message, "sha256").hex()[:HEX_DIGITS]

    return fingerprint


def constant_time_equal(one: str, other: str) -> bool:
    """Compare two sensitive values in a time that depends only on their lengths."""
    return hmac.compare_digest(one.encode(errors="surrogatepass"), other.encode(errors="surrogatepass"))
