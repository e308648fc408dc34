"""What the trail, the answers and the logs may have of sensitive configs: that they changed, and a fingerprint.

A redacted map holds None for every sensitive value; neither the value nor what is stored of it comes out of here.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from app.crypto.fingerprints import same
from app.domain.errors import EncoderSecretMissingError, UndecodablePasswordError
from app.services.ports import RedactedDifference, ValueChange

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from app.domain.changes import Op
    from app.services.ports import Cipher, Redactor


class ConfigRedactor:
    """The port ``Redactor``, for the broker configs of one cluster."""

    def __init__(self, cipher: Cipher, *, sensitive: Callable[[str], bool], encoded: Callable[[str], bool]) -> None:
        """Take the rules.

        Args:
            cipher: The cluster's.
            sensitive: Whether a key's value must not be shown.
            encoded: Whether a key's value is stored encoded. Others (of plug-ins) are stored in clear.
        """
        self._cipher = cipher
        self._sensitive = sensitive
        self._encoded = encoded

    def config(self, config: Mapping[str, str]) -> dict[str, str | None]:
        """Redact a stored map; see ``ports.Redactor``."""
        return {key: None if self._hidden(key) else value for key, value in config.items()}

    def op(self, op: Op) -> dict[str, Any]:
        """Redact an op; see ``ports.Redactor``."""
        shown = op.as_json()
        if "value" in shown and self._hidden(op.key):
            shown |= {"value": None, "sensitive": True}
        return shown

    def fingerprints(self, broker_id: int | None, config: Mapping[str, str]) -> dict[str, str | None]:
        """Return the fingerprints of a stored map's sensitive keys; see ``ports.Redactor``."""
        return {
            key: self._fingerprint(broker_id, key, self._plain(broker_id, key, stored))
            for key, stored in config.items()
            if self._hidden(key)
        }

    def differences(
        self, broker_id: int | None, before: Mapping[str, str], after: Mapping[str, str]
    ) -> list[RedactedDifference]:
        """Compare two stored maps; see ``ports.Redactor``."""
        return [
            self._hidden_difference(broker_id, key, before.get(key), after.get(key))
            if self._hidden(key)
            else _open_difference(key, before.get(key), after.get(key))
            for key in sorted(before.keys() | after.keys())
            if before.get(key) != after.get(key)
        ]

    def _hidden(self, key: str) -> bool:
        return self._sensitive(key) or self._encoded(key)

    def _hidden_difference(
        self, broker_id: int | None, key: str, before: str | None, after: str | None
    ) -> RedactedDifference:
        plain_before, plain_after = (self._plain(broker_id, key, stored) for stored in (before, after))
        change = _change(before, after)
        if plain_before is not None and plain_after is not None and same(plain_before, plain_after):
            change = ValueChange.REENCODED
        return RedactedDifference(
            key,
            change,
            sensitive=True,
            before_fingerprint=self._fingerprint(broker_id, key, plain_before),
            after_fingerprint=self._fingerprint(broker_id, key, plain_after),
        )

    def _plain(self, broker_id: int | None, key: str, stored: str | None) -> str | None:
        """Return the plain value, or None where there is none or it can't be known."""
        if stored is None or not self._encoded(key):
            return stored
        if broker_id is None:
            # Encoded values live at brokers only; what stands here instead was not encoded by any.
            return None
        try:
            return self._cipher.decode(broker_id, key, stored)
        except (EncoderSecretMissingError, UndecodablePasswordError):
            return None

    def _fingerprint(self, broker_id: int | None, key: str, plain: str | None) -> str | None:
        return None if plain is None else self._cipher.fingerprint(broker_id, key, plain)


def _open_difference(key: str, before: str | None, after: str | None) -> RedactedDifference:
    return RedactedDifference(key, _change(before, after), before=before, after=after)


def _change(before: str | None, after: str | None) -> ValueChange:
    if before is None:
        return ValueChange.ADDED
    return ValueChange.REMOVED if after is None else ValueChange.CHANGED


if TYPE_CHECKING:
    # Checked by the type checker alone.
    _: type[Redactor] = ConfigRedactor
