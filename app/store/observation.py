"""The leader's report on its observation of a target: the znode ``/confplane/observation``, as processes follow it."""

from __future__ import annotations

import contextlib
from functools import partial
from typing import TYPE_CHECKING, Any

from app.domain.errors import UnavailableError
from app.domain.releases import newest
from app.services.target.report import parse
from app.store import znodes

if TYPE_CHECKING:
    from app.store.session.keeper import Session


def release_in(report: bytes | None) -> str | None:
    """Return the release of the Kafka cluster by a report; None where it names none."""
    found = parse(report)
    return None if found is None else found.release or None


class ObservationNode:
    """A process's copy of the report."""

    def __init__(self) -> None:
        self.report: bytes | None = None
        """The latest report; None where there is none."""
        self.release = newest()
        """The release of the Kafka cluster by that report; the newest one before the first report."""
        self._session: Session | None = None

    def begin(self, session: Session) -> None:
        """Follow the node on this session, new or reconnected."""
        self._session = session
        self._watch = session.watcher(self._ask)
        self._ask()

    def _ask(self) -> None:
        session = self._session
        if session is not None:
            with contextlib.suppress(UnavailableError):  # read again after the reconnect
                session.get(znodes.OBSERVATION, self._watch).then(partial(self._taken, session))

    def _taken(self, session: Session, value: Any, error: Exception | None) -> None:
        # A replaced session's reply may be late. Without a node there is no watch; the next session makes the node.
        if session is self._session and error is None:
            self.report = value[0] or None
            self.release = release_in(self.report) or self.release
