"""Metrics of a cluster's store: its transactions, its session and its mirror."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from confplane.services.metrics import SECONDS, Histogram, Sample
from confplane.services.ports.store import MirrorState, SessionState
from confplane.services.ports.transactions import Conflict, SessionEnded
from confplane.store.mirror.list_sizes import ALL_PAIRS
from confplane.store.write import transactions

if TYPE_CHECKING:
    from collections.abc import Iterator

    from confplane.store.mirror.follower import MirrorFollower
    from confplane.store.session.session_manager import SessionManager

_UNKNOWN: Final = "unknown"
_RESULTS: Final[dict[type, str]] = {
    transactions.TransactionApplied: "committed",
    Conflict: "conflict",
    transactions.GuardConflict: "conflict",
    transactions.RootsMissing: "conflict",
    SessionEnded: "session_ended",
    transactions.TransactionRefused: "refused",
}


class TransactionMetrics:
    """Counts and times submitted transactions by result."""

    def __init__(self) -> None:
        self._durations = {result: Histogram(SECONDS) for result in (*_RESULTS.values(), _UNKNOWN)}

    def record(self, result: transactions.TransactionResult | None, seconds: float) -> None:
        """Record the result of a transaction; None if the reply was lost."""
        self._durations[_RESULTS.get(type(result), _UNKNOWN)].add(seconds)

    def metrics(self) -> Iterator[Sample]:
        """Return the metrics."""
        for result, histogram in self._durations.items():
            yield Sample("transaction_duration_seconds", histogram, (result,))


def session_metrics(session_manager: SessionManager) -> Iterator[Sample]:
    """Return the metrics of a session."""
    now, seconds = session_manager.state
    yield Sample("session_state_seconds", seconds)
    yield Sample("session_failures", session_manager.failures)
    for state in SessionState:
        yield Sample("session_state", state is now, (state.value,))
        yield Sample("session_transitions", session_manager.entered[state], (state.value,))


def mirror_metrics(follower: MirrorFollower) -> Iterator[Sample]:
    """Return the metrics of a mirror."""
    now = follower.state
    for state in MirrorState:
        yield Sample("mirror_state", state is now, (state.value,))
    yield Sample("mirror_revision", follower.revision)
    yield Sample("mirror_stale_seconds", (follower.stale_ms or 0) / 1000)
    yield Sample("mirror_loads", follower.loads)
    yield Sample("mirror_gaps", follower.gaps)
    yield Sample("mirror_load_seconds", follower.load_s)
    yield Sample("transactions_in_flight", follower.in_flight)
    yield Sample("notifications", follower.notifications)
    yield Sample("stray_notifications", len(follower.anomalies.strays))
    yield Sample("nameless_notifications", len(follower.anomalies.nameless))
    if (mirror := follower.mirror) is not None:
        unread = len(mirror.forbidden) + len(mirror.unaddressed)
        for tree, copy in mirror.trees.items():
            yield Sample("entities", len(copy.nodes), (tree.value,))
            for parent, size in copy.list_sizes.sizes():
                yield Sample("list_bytes", size, (tree.value, parent))
            if (longest := copy.list_sizes.longest_of_users()) is not None:
                yield Sample("list_bytes", longest[1], (tree.value, ALL_PAIRS))
            unread += copy.defective
        yield Sample("unreadable_znodes", unread)
