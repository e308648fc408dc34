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

from typing_extensions import override

from confplane.domain.errors import EncoderSecretMissingError, UndecodablePasswordError
from confplane.services.ports.crypto import Fingerprinter

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from confplane.services.ports.crypto import Cipher


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


# Fingerprints of sensitive configs, for the trail and the responses.
#
# These never contain a value or its stored form.


class ConfigFingerprinter(Fingerprinter):
    """The fingerprints of the broker configs of one cluster."""

    def __init__(self, cipher: Cipher, *, sensitive: Callable[[str], bool], encoded: Callable[[str], bool]) -> None:
        """Take the rules.

        Args:
            cipher: The cluster's cipher.
            sensitive: Returns, for a key, whether its value must not be shown.
            encoded: Returns, for a key, whether its value is stored encoded. Other secrets (of plug-ins) are stored in
                plain text.
        """
        self._cipher = cipher
        self._sensitive = sensitive
        self._encoded = encoded

    @override
    def fingerprints(self, broker_id: int | None, config: Mapping[str, str]) -> dict[str, str | None]:
        return {
            key: self._fingerprint(broker_id, key, self._plain(broker_id, key, stored))
            for key, stored in config.items()
            if self._hidden(key)
        }

    def _hidden(self, key: str) -> bool:
        return self._sensitive(key) or self._encoded(key)

    def _plain(self, broker_id: int | None, key: str, stored: str) -> str | None:
        """Return the plain value, or None if it is unknown."""
        if not self._encoded(key):
            return stored
        if broker_id is None:
            # Only values of single brokers are encoded; a value at this level was not encoded by a broker.
            return None
        try:
            return self._cipher.decode(broker_id, key, stored)
        except (EncoderSecretMissingError, UndecodablePasswordError):
            return None

    def _fingerprint(self, broker_id: int | None, key: str, plain: str | None) -> str | None:
        return None if plain is None else self._cipher.fingerprint(broker_id, key, plain)


if TYPE_CHECKING:
    # Only for the type checker.
    _: type[Fingerprinter] = ConfigFingerprinter
