"""Znodes in which the leader publishes the state of a Kafka 4 cluster, watched by every process.

The znode ``/confplane/observation`` holds the observation report. The znode ``/confplane/applied`` holds the applied
watermark: the revision up to which clients' changes are applied to the Kafka cluster.
"""

from __future__ import annotations

import contextlib
from functools import partial
from typing import TYPE_CHECKING, Any

from kazoo.exceptions import NoNodeError

from confplane.domain.errors import UnavailableError
from confplane.domain.releases import newest
from confplane.services.ports.observation_report import parse
from confplane.store import znodes

if TYPE_CHECKING:
    from collections.abc import Callable

    from confplane.store.session.asyncio_adapter import Reply
    from confplane.store.session.session import Session, Watcher


def release_in(report: bytes | None) -> str | None:
    """Return the Kafka release that a report names, or None."""
    found = parse(report)
    return None if found is None else found.release or None


class WatchedNode:
    """A process's copy of a znode, kept up to date by a watch in each session.

    Args:
        path: The path.
        on_missing: Called where the node is absent: without a node there is no watch, and the next session creates the
            node.
    """

    def __init__(self, path: str, *, on_missing: Callable[[], None] = lambda: None) -> None:
        self._path = path
        self._on_missing = on_missing
        self._session: Session | None = None
        self._watch: Watcher | None = None

    def begin(self, session: Session) -> None:
        """Follow the node on this session, new or reconnected."""
        self._session = session
        self._watch = session.watcher(self._on_watch)
        self._on_watch()

    def read(self, session: Session) -> Reply:
        """Read the node, with the watch set."""
        return session.get(self._path, self._watch).then(partial(self._on_reply, session))

    def _on_watch(self) -> None:
        session = self._session
        if session is not None:
            with contextlib.suppress(UnavailableError):  # it is read again after the reconnect
                self.read(session)

    def _on_reply(self, session: Session, value: Any, error: Exception | None) -> None:
        # Of one session's replies the later is the newer; a replaced session's reply may be late.
        if session is self._session:
            if error is None:
                self._update(*value)
            elif isinstance(error, NoNodeError):
                self._on_missing()

    def _update(self, data: bytes | None, stat: Any) -> None:
        raise NotImplementedError


class ObservationReportNode(WatchedNode):
    """A process's copy of the observation report."""

    def __init__(self) -> None:
        super().__init__(znodes.OBSERVATION)
        self.report: bytes | None = None
        """The latest report, or None before the first."""
        self.release = newest()
        """The release of the Kafka cluster according to that report, or the newest release before the first report."""
        self.eligible_replicas = True
        """True if the Kafka cluster keeps eligible leader replicas according to that report, and before the first."""

    def _update(self, data: bytes | None, stat: Any) -> None:
        del stat
        self.report = data or None
        self.release = release_in(self.report) or self.release
        found = parse(self.report)
        if found is not None and found.eligible_replicas is not None:
            self.eligible_replicas = found.eligible_replicas


class AppliedWatermarkNode(WatchedNode):
    """A process's copy of the applied watermark."""

    def __init__(self) -> None:
        super().__init__(znodes.APPLIED)
        self.revision: int | None = None
        """The watermark; None before the first one. A leader that lost the leadership may write a lower one, which is
        also valid."""
        self.callbacks: list[Callable[[], None]] = []
        """Called after each write of the node."""

    def _update(self, data: bytes | None, stat: Any) -> None:
        del stat
        if data:
            self.revision = int(data)
            for each in self.callbacks:
                each()
