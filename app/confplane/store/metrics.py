"""Metrics of a cluster's session and mirror."""

from __future__ import annotations

from typing import TYPE_CHECKING

from confplane.services.metrics import Sample
from confplane.services.ports.store import MirrorState, SessionState
from confplane.store.mirror.list_sizes import ALL_PAIRS

if TYPE_CHECKING:
    from collections.abc import Iterator

    from confplane.store.mirror.follower import MirrorFollower
    from confplane.store.session.session_manager import SessionManager


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
