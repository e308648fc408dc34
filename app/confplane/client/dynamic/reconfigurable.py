"""Objects that apply changed settings, in the two steps of Kafka's ``Reconfigurable``: validate, reconfigure."""

from __future__ import annotations

import inspect
import logging
import random
from typing import TYPE_CHECKING, Any, Final, Protocol

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Iterator, Mapping

_log: Final = logging.getLogger(__name__)


class Reconfigurable(Protocol):
    """An object that applies changed settings. Both methods may be coroutines.

    An object that applies them only some time after :meth:`reconfigure` has an attribute ``waiting``, which is true
    until then. It calls ``taken_over`` of its settings afterwards.
    """

    def validate_reconfiguration(self, settings: Mapping[str, Any]) -> object:
        """Refuse settings by raising ValueError; they are not offered again until they change.

        After another exception they are offered again after the next poll.
        """
        ...

    def reconfigure(self, settings: Mapping[str, Any]) -> object:
        """Apply settings. After an exception they are offered again after the next poll."""
        ...


class ReconfigurableState:
    """A reconfigurable, the settings that it runs with, and the settings that it refused, with the reason."""

    def __init__(self, reconfigurable: Reconfigurable, settings: Mapping[str, Any]) -> None:
        self._reconfigurable = reconfigurable
        self.applied = settings
        self._refused: Mapping[str, Any] | None = None
        self._reason = ""

    def needs_offer(self, settings: Mapping[str, Any]) -> bool:
        """Return True if settings have to be offered."""
        return settings not in (self.applied, self._refused)

    def refusal(self, settings: Mapping[str, Any]) -> str | None:
        """Return the reason why settings are not applied and must not be offered again, or None."""
        return self._reason if settings == self._refused and settings != self.applied else None

    @property
    def waiting(self) -> bool:
        """True while the object does not yet run with its latest settings."""
        return bool(getattr(self._reconfigurable, "waiting", False))

    async def offer(self, settings: Mapping[str, Any], label: str) -> None:
        """Offer settings; a failure is logged."""
        try:
            try:
                await _done(self._reconfigurable.validate_reconfiguration(dict(settings)))
            except ValueError as error:
                _log.warning("%s: the new settings were refused, the former stay: %s", label, error)
                self._refused, self._reason = settings, str(error)
                return
            await _done(self._reconfigurable.reconfigure(dict(settings)))
        except Exception:  # noqa: BLE001 - an error of the application; the previous settings remain
            _log.exception("%s: the new settings could not be applied, next try after the next poll", label)
            return
        self.applied, self._refused = settings, None


class ReconfigurableRegistry:
    """The reconfigurables of one client.

    Args:
        label: The client's name in the log.
        spread_s: Seconds over which clients spread a change: each waits for a random part of this time.
        sleep: Waits for seconds.
    """

    def __init__(self, label: str, spread_s: float, sleep: Callable[[float], Awaitable[None]]) -> None:
        self._label = label
        self._spread_s = spread_s
        self._sleep = sleep
        self._all: list[ReconfigurableState] = []

    def add(self, reconfigurable: Reconfigurable, settings: Mapping[str, Any]) -> None:
        """Add an object with its current settings."""
        self._all.append(ReconfigurableState(reconfigurable, settings))

    async def settle(self, settings: Mapping[str, Any]) -> None:
        """Offer settings to all objects that have neither applied nor refused them."""
        behind = [state for state in self._all if state.needs_offer(settings)]
        if behind and self._spread_s:
            await self._sleep(random.uniform(0, self._spread_s))  # noqa: S311 - spreads load, hides nothing
        for state in behind:
            await state.offer(settings, self._label)

    def settled(self, settings: Mapping[str, Any]) -> bool:
        """Return True if all objects run with the settings or have refused them."""
        return not any(state.needs_offer(settings) or state.waiting for state in self._all)

    def refusals(self, settings: Mapping[str, Any]) -> Iterator[tuple[Mapping[str, Any], str]]:
        """Return the refused settings of each object, with the reason."""
        for state in self._all:
            if (reason := state.refusal(settings)) is not None:
                yield state.applied, reason


async def _done(result: object) -> None:
    if inspect.isawaitable(result):
        await result
