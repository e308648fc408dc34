"""Fingerprints of sensitive configs, for the trail and the responses.

These never contain a value or its stored form.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from typing_extensions import override

from confplane.domain.errors import EncoderSecretMissingError, UndecodablePasswordError
from confplane.services.ports.crypto import Fingerprinter

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from confplane.services.ports.crypto import Cipher


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
