"""Security events: missing grants, refused credentials, uses of the admin token, and writes past the rules.

Each event is counted, is a line of JSON in the log, and is part of a sum in the history of tokens and grants: one row
for each kind, principal, source, subject and minute. A flood fills neither: the number of lines per minute is limited
for each kind, principal and source, and so is the number of sums per minute.
"""

from __future__ import annotations

import asyncio
import json
import logging
import time
from collections import Counter
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Final

from typing_extensions import override
from uuid_utils.compat import uuid7

from confplane.domain.access.identities import ADMIN
from confplane.domain.errors import UnavailableError
from confplane.domain.texts import clipped
from confplane.services.background import BackgroundService, BackgroundTask
from confplane.services.metrics import Sample
from confplane.services.ports.access import AccessChange, SecurityEvents

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence
    from typing import Protocol

    from confplane.domain.access.identities import Identity
    from confplane.domain.access.operations import Operation

    class EventStore(Protocol):
        """The part of :class:`confplane.services.ports.access.AccessStore` that stores sums of events."""

        async def add_events(self, rows: Sequence[AccessChange]) -> None:
            """Append sums of security events."""


DENIED: Final = "denied"
UNAUTHENTICATED: Final = "unauthenticated"
ADMIN_TOKEN_USED: Final = "admin-token-used"  # noqa: S105 - the name of an event
BREAK_GLASS: Final = "break-glass"
KINDS: Final = (DENIED, UNAUTHENTICATED, ADMIN_TOKEN_USED, BREAK_GLASS)
NOBODY: Final = "User:ANONYMOUS"
"""The principal of callers without a valid credential, as Kafka names them."""
OVERFLOW: Final = "*"
"""Principal, source and subject of the sum that collects all events above the limit of sums."""
LINES: Final = 10
"""Log lines per minute for one kind, principal and source. Further events are only counted."""
SUMS: Final = 1_000
"""Sums of one minute; further events share one sum for each kind. It bounds the rows in the history, too."""
BACKLOG: Final = 10_000
"""Rows that wait for Postgres. Above this limit the oldest rows are dropped, with a log line."""
_MINUTE_S: Final = 60.0
_LENGTH: Final = 200
"""Characters of a name in the log and in a sum."""
_log: Final = logging.getLogger("confplane.security")

_Key = tuple[str, str, str, str]
"""Kind, principal, source and subject."""


class EventLog(BackgroundService, SecurityEvents):
    """Records security events, and never waits.

    Args:
        store: The history that the sums are added to.
        interval_s: Seconds between two additions.
        clock: The time in seconds.
    """

    def __init__(
        self, store: EventStore, *, interval_s: float = _MINUTE_S, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._store = store
        self._interval_s = interval_s
        self._clock = clock
        self._counts: Counter[str] = Counter(dict.fromkeys(KINDS, 0))
        self._sums: dict[_Key, int] = {}
        self._lines: Counter[tuple[str, str, str]] = Counter()
        self._quiet_sources: set[str] = set()
        """Sources whose further uses of the admin token are not logged in this minute."""
        self._suppressed = 0
        """Events of the minute that are not logged."""
        self._minute_ends = clock() + _MINUTE_S
        self._waiting: list[AccessChange] = []
        self._adding = asyncio.Lock()
        self._background = BackgroundTask(self._run, name="sums of security events")

    async def stop(self) -> None:
        """Stop, and add what is left."""
        await self._background.stop()
        await self.flush()

    @override
    def denied(self, identity: Identity, source: str, request_id: str, operation: Operation, resource: str) -> None:
        """Record a request without the needed grant.

        The sum is per operation and resource type. The log line has the resource itself.
        """
        self._record(
            (DENIED, identity.principal, source, f"{operation} {resource.partition('=')[0].partition(',')[0]}"),
            request_id,
            operation=str(operation),
            resource=resource,
            onBehalfOf=identity.acts_for,
        )

    @override
    def unauthenticated(self, kind: str, source: str, request_id: str) -> None:
        self._record((UNAUTHENTICATED, NOBODY, source, kind), request_id, reason=kind)

    @override
    def admitted_admin(self, source: str, request_id: str) -> None:
        # Called for every request with the admin token, so a request that is not logged takes this short path.
        key = (ADMIN_TOKEN_USED, ADMIN, source, "admin-token")
        if source in self._quiet_sources and key in self._sums and self._clock() < self._minute_ends:
            self._counts[ADMIN_TOKEN_USED] += 1
            self._sums[key] += 1
            self._suppressed += 1
            return
        self._record(key, request_id)
        if self._lines[key[:3]] > LINES:
            self._quiet_sources.add(source)

    @override
    def broke_glass(self, identity: Identity, source: str, request_id: str, cluster: str, change_request: str) -> None:
        self._record(
            (BREAK_GLASS, identity.principal, source, f"clusters/{cluster}"),
            request_id,
            cluster=cluster,
            changeRequest=change_request,
            onBehalfOf=identity.acts_for,
        )

    def metrics(self) -> Iterator[Sample]:
        """Return the metrics."""
        for kind, count in self._counts.items():
            yield Sample("security_events", count, (kind,))

    def _record(self, key: _Key, request_id: str, **more: str | None) -> None:
        kind, principal, source, subject = key
        self._counts[kind] += 1
        key = (kind, principal[:_LENGTH], source[:_LENGTH], subject[:_LENGTH])
        if key not in self._sums and len(self._sums) >= SUMS:
            key = (kind, OVERFLOW, OVERFLOW, OVERFLOW)
        self._sums[key] = self._sums.get(key, 0) + 1
        if self._clock() >= self._minute_ends:
            self._next_minute()
        place = key[:3]
        self._lines[place] += 1
        if self._lines[place] > LINES:
            self._suppressed += 1
            return
        line = {"event": kind, "principal": principal, "source": source, "requestId": request_id, **more}
        shown = {name: clipped(text, _LENGTH) for name, text in line.items() if text is not None}
        if self._lines[place] == LINES:
            shown["note"] = "further events of this kind, principal and source are only counted in this minute"
        _log.warning("%s", json.dumps(shown))

    def _next_minute(self) -> None:
        if self._suppressed:
            _log.warning("%s", json.dumps({"event": "not-shown", "count": self._suppressed}))
        self._lines.clear()
        self._quiet_sources.clear()
        self._suppressed = 0
        self._minute_ends = self._clock() + _MINUTE_S

    async def flush(self) -> None:
        """Add the sums to the history. While Postgres is unavailable they are kept, within bounds."""
        async with self._adding:
            now = datetime.now(UTC)
            sums, self._sums = self._sums, {}
            self._waiting += [
                AccessChange(
                    id=uuid7(),
                    kind=kind,
                    principal=principal,
                    source=source,
                    subject=subject,
                    count=count,
                    recorded_at=now,
                )
                for (kind, principal, source, subject), count in sums.items()
            ]
            if len(self._waiting) > BACKLOG:
                _log.warning("%s", json.dumps({"event": "dropped", "count": len(self._waiting) - BACKLOG}))
                del self._waiting[:-BACKLOG]
            if self._waiting:
                try:
                    await self._store.add_events(self._waiting)
                except UnavailableError:
                    return
                self._waiting = []

    async def _run(self) -> None:
        while True:
            await asyncio.sleep(self._interval_s)
            try:
                await self.flush()
            except Exception:  # noqa: BLE001 - a failed addition must not be the last
                _log.exception("Sums of security events could not be added to the history; they are kept")
