"""Reports of a client to the service: the revision of the configs that it uses, and the configs that it refuses.

A report is sent after each applied change, and after each successful poll that is at least four minutes later than the
last report. A client that polls rarely repeats its last report in between, because the service forgets it after fifteen
minutes.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
from typing import TYPE_CHECKING, Final, NamedTuple

from confplane.client.dynamic.source import is_unsupported
from confplane.client.errors import ProblemError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable
    from types import TracebackType

    from typing_extensions import Self

    from confplane.client.asynchronous import AsyncConfplane
    from confplane.client.dynamic.source import SoftwareRegistration
    from confplane.client.types import AppliedConfigs, ClientInformation
    from confplane.domain.entities import Entity

_log: Final = logging.getLogger(__name__)

FRESH_S: Final = 240.0
"""Seconds after a report during which a new revision alone causes no further report: the minimum interval between polls
at the default ``metadata.max.age.ms``. So clients that poll often do not double their requests."""
REPEATED_AFTER_S: Final = 400.0
"""Seconds without a poll after which the last report is repeated: more than one interval between polls at the default
``metadata.max.age.ms``, and less than half of the time after which the service forgets a report."""
_MOST_REFUSED: Final = 32
_LONGEST_TEXT: Final = 249
_UNSAID: Final = "refused by the application, whose log has the reason"


class ConfigsInUse(NamedTuple):
    """The dynamic configs that a client reports as in use."""

    revision: int = 0
    """The revision of the answer that has them; 0 if they come from no answer."""
    refused: tuple[tuple[str, str], ...] = ()
    """The keys of that answer that the client refused, each with the reason."""
    accepted: tuple[tuple[str, str], ...] = ()
    """The configs that it applied, with their values. They are not sent, but a change of them causes a report."""


class Reporter:
    """Sends reports in a separate task, so that no poll waits for one. An async context manager.

    Args:
        client: A client of the cluster.
        entity: ``<user>`` or ``<user, client-id>``.
        registration: The software.
        instance: The name of the running client.
        applied: Returns the configs that the client uses now.
        label: The client's name in the log.
    """

    def __init__(
        self,
        client: AsyncConfplane,
        entity: Entity,
        registration: SoftwareRegistration,
        instance: str,
        applied: Callable[[], ConfigsInUse],
        *,
        label: str,
    ) -> None:
        self._client = client
        self._entity, self._instance = entity, instance
        self._software: ClientInformation = {
            "softwareName": _sendable(registration.software_name),
            "softwareVersion": _sendable(registration.software_version),
        }
        self._applied = applied
        self._label = label
        self._loop = asyncio.get_running_loop()
        self._due = asyncio.Event()
        self._away = False
        self._sent: ConfigsInUse | None = None
        self._sent_at = 0.0

    async def __aenter__(self) -> Self:
        self._task = asyncio.create_task(self._run())
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._task.cancel()
        await asyncio.wait({self._task})

    def wake(self) -> None:
        """Trigger a report, unless the last one is recent and differs only in the revision. Thread-safe."""
        with contextlib.suppress(RuntimeError):  # the loop has ended in the meantime
            self._loop.call_soon_threadsafe(self._due.set)

    async def _run(self) -> None:
        await self._due.wait()
        while await self._report():
            # Not wait_for: up to Python 3.11 it loses a cancellation that arrives while the event is set.
            woken = self._loop.create_task(self._due.wait())
            try:
                await asyncio.wait({woken}, timeout=REPEATED_AFTER_S)
            finally:
                woken.cancel()

    async def _report(self) -> bool:
        """Send a report if one is due. Returns False if the service does not support reports."""
        self._due.clear()
        try:
            applied = self._applied()
            now = self._loop.time()
            sent = self._sent
            changed = sent is not None and sent._replace(revision=applied.revision) != applied
            if not is_report_due(changed=changed, since_s=None if sent is None else now - self._sent_at):
                return True
            self._sent = None
            await self._client.client_configs.report(self._entity, self._instance, self._body(applied))
        except Exception as error:  # noqa: BLE001 - after any answer of a proxy, the next report is sent
            if isinstance(error, ProblemError) and is_unsupported(error.status, error.kafka_error_code):
                _log.warning("%s: the service takes no reports, they are off: %s", self._label, error)
                return False
            if not self._away:
                _log.warning("%s: what is applied can't be reported for now: %r", self._label, error)
            self._away = True
        else:
            self._away = False
            self._sent, self._sent_at = applied, now
        return True

    def _body(self, applied: ConfigsInUse) -> AppliedConfigs:
        return {
            **self._software,
            "appliedRevision": str(applied.revision),
            "refused": [
                {"key": _sendable(key), "reason": _sendable(reason)} for key, reason in applied.refused[:_MOST_REFUSED]
            ],
        }


def is_report_due(*, changed: bool, since_s: float | None) -> bool:
    """Return True if a report must follow a successful poll.

    Args:
        changed: True if the applied values or the refusals differ from those of the last report.
        since_s: Seconds since the last report that the service accepted; None if it accepted none, or not the last one.
    """
    return changed or since_s is None or since_s >= FRESH_S


def redact_reason(reason: str, own: Iterable[str]) -> str:
    """Return an application's reason for other users: withheld if it quotes a value of its settings.

    Args:
        reason: The text of its exception.
        own: The texts among its own settings, including passwords.
    """
    texts = {spelled for value in own for spelled in (value, repr(value)[1:-1]) if spelled}
    return _UNSAID if any(text in reason for text in texts) else reason


def _sendable(text: str) -> str:
    """Return a text in a form that the service accepts: not too long, with no NUL and no lone surrogate."""
    return text.replace("\0", "?").encode(errors="replace").decode()[:_LONGEST_TEXT]
