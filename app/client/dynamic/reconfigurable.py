"""Objects that take changed settings over, in the two steps of Kafka's ``Reconfigurable``: validate, reconfigure."""

from __future__ import annotations

import inspect
import logging
from typing import TYPE_CHECKING, Any, Final, Protocol

if TYPE_CHECKING:
    from collections.abc import Mapping

_log: Final = logging.getLogger(__name__)


class Reconfigurable(Protocol):
    """An object that takes changed settings over. Both methods may be coroutines."""

    def validate_reconfiguration(self, settings: Mapping[str, Any]) -> object:
        """Refuse settings by ValueError; they are not offered again until they change."""
        ...

    def reconfigure(self, settings: Mapping[str, Any]) -> object:
        """Take settings over. After an exception they are offered again after the next poll."""
        ...


class Listener:
    """A reconfigurable, the settings it has, and the settings it refused."""

    def __init__(self, reconfigurable: Reconfigurable, settings: Mapping[str, Any]) -> None:
        self._reconfigurable = reconfigurable
        self._applied = settings
        self._refused: Mapping[str, Any] | None = None

    def behind(self, settings: Mapping[str, Any]) -> bool:
        """Say whether settings are to be offered."""
        return settings not in (self._applied, self._refused)

    async def offer(self, settings: Mapping[str, Any], label: str) -> None:
        """Offer settings; a failure is logged."""
        try:
            await _done(self._reconfigurable.validate_reconfiguration(settings))
        except ValueError as error:
            _log.warning("%s: the new settings were refused, the former stay: %s", label, error)
            self._refused = settings
            return
        try:
            await _done(self._reconfigurable.reconfigure(settings))
        except Exception:  # noqa: BLE001 - of the application; the former settings stay
            _log.exception("%s: the new settings could not be applied, next try after the next poll", label)
            return
        self._applied, self._refused = settings, None


async def _done(result: object) -> None:
    if inspect.isawaitable(result):
        await result
