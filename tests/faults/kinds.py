"""The kinds of faults: what a report counts them as, and all that there are, so that it can say which never struck."""

from __future__ import annotations

from typing import Final

from tests.support.stepping import STEPS

POSTGRES_KILLED: Final = "Postgres killed"
POSTGRES_RESTARTED: Final = "Postgres restarted"
POSTGRES_PAUSED: Final = "Postgres paused"
DISK_FULL: Final = "Postgres's disk full"
CONFPLANE_KILLED: Final = "confplane killed"
CONFPLANE_TERMINATED: Final = "confplane terminated"
CONFPLANE_PAUSED: Final = "confplane paused"
SESSION_EXPIRED: Final = "session expired"
CONTROLLER_MOVED: Final = "controller moved"
NOTIFICATIONS_DELETED: Final = "notifications deleted"

ABORT_MARKER: Final = "abort-marker"
"""The step that no process comes to unless another's change was left open: it has faults of its own."""


def zookeeper(*, leader: bool, pause: bool) -> str:
    """Return the kind of a fault of one ZooKeeper server."""
    return f"ZooKeeper {'leader' if leader else 'follower'} {_ended(pause=pause)}"


def line_cut(to: str) -> str:
    """Return the kind of a broken line; ``to`` is ZooKeeper or Postgres."""
    return f"line to {to} cut"


def line_slowed(to: str) -> str:
    """Return the kind of a slow line."""
    return f"line to {to} slowed"


def lost_on_line(to: str, *, replies: bool) -> str:
    """Return the kind of a line on which one direction is lost."""
    return f"{'replies' if replies else 'requests'} on the line to {to} lost"


def at_step(step: str, *, pause: bool) -> str:
    """Return the kind of a Confplane that ends or stands still at a step."""
    return f"confplane {_ended(pause=pause)} at step {step}"


def settler(*, pause: bool) -> str:
    """Return the kind of a settler that is struck while it settles a dead writer's change."""
    return f"writer killed at step intent, then settler {_ended(pause=pause)} at step {ABORT_MARKER}"


def successor(*, pause: bool) -> str:
    """Return the kind of a holder's successor that is struck as it takes the Idempotency-Key over."""
    return f"holder killed at step claim, then its successor {_ended(pause=pause)} at step take-over"


def sweeper(*, pause: bool) -> str:
    """Return the kind of a new leader that is struck as it sweeps."""
    return f"leader killed, then the next {_ended(pause=pause)} at step sweep"


def _ended(*, pause: bool) -> str:
    return "paused" if pause else "killed"


_BOTH: Final = (False, True)
SILENT: Final = frozenset({line_cut("ZooKeeper"), *(lost_on_line("ZooKeeper", replies=each) for each in _BOTH)})
"""While one of these lasts a process hears nothing of ZooKeeper."""

ALL: Final = (
    *(POSTGRES_KILLED, POSTGRES_RESTARTED, POSTGRES_PAUSED, DISK_FULL),
    *(CONFPLANE_KILLED, CONFPLANE_TERMINATED, CONFPLANE_PAUSED),
    *(SESSION_EXPIRED, CONTROLLER_MOVED, NOTIFICATIONS_DELETED),
    *(zookeeper(leader=leader, pause=pause) for leader in _BOTH for pause in _BOTH),
    *(make(to) for make in (line_cut, line_slowed) for to in ("ZooKeeper", "Postgres")),
    *(lost_on_line(to, replies=replies) for to in ("ZooKeeper", "Postgres") for replies in _BOTH),
    *(at_step(step, pause=pause) for step in STEPS if step != ABORT_MARKER for pause in _BOTH),
    *(make(pause=pause) for make in (settler, successor, sweeper) for pause in _BOTH),
)
