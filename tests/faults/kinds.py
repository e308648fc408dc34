"""The kinds of faults by name, and what a run with some of them can reach."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from tests.support.stepping import STEPS

if TYPE_CHECKING:
    from collections.abc import Iterable

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
UNREAD_NOTIFICATIONS_DELETED: Final = "notifications deleted before a replica read them"

ZOOKEEPER_ROLES: Final = ("leader", "follower", "follower of a replica")
"""The last is a follower to which a replica of Confplane is connected."""
ZOOKEEPER_FAULTS: Final = ("killed", "paused", "partitioned")
SERVERS: Final = ("ZooKeeper", "Postgres", "HTTP")
"""The ends of connections: the first two of Confplane's, the last of its clients'."""
PARTS: Final = ("requests", "responses")

ABORT_MARKER: Final = "abort-marker"
LEAD: Final = "lead"
_SWEEP: Final = ("sweep", "swept")
_OF_KAFKA_4: Final = ("claimed", "sending", "sent", "ended")
"""Steps of a cluster that Confplane delivers to, of which the suite has none."""
REPLICA_STEPS: Final = tuple(step for step in STEPS if step not in {ABORT_MARKER, LEAD, *_OF_KAFKA_4})
"""Steps that any replica reaches under load. It settles and leads only after a fault of another one."""
LEADER_STEPS: Final = ("record", "recorded")
SUCCESSOR_STEPS: Final = (LEAD, "sweep", "swept")
"""Steps with which a new leader begins."""
SWEPT_S: Final = 80.0
"""Seconds from the start of a run until there are markers that a sweep drops: those of a minute ago."""


def zookeeper(role: str, fault: str) -> str:
    """Return the kind of a fault of one ZooKeeper server."""
    return f"ZooKeeper {role} {fault}"


def connection_cut(to: str) -> str:
    """Return the kind of a broken connection to one of :data:`SERVERS`."""
    return f"connection to {to} cut"


def connection_slowed(to: str) -> str:
    """Return the kind of a slow connection."""
    return f"connection to {to} slowed"


def lost(part: str, to: str) -> str:
    """Return the kind of a connection on which requests or responses are lost before it breaks."""
    return f"{part} on the connection to {to} lost"


def at_step(step: str, *, pause: bool) -> str:
    """Return the kind of a replica that is killed or paused at a step."""
    return f"confplane {_stopped(pause=pause)} at step {step}"


def settler(*, pause: bool) -> str:
    """Return the kind of a leader that is stopped while it settles a dead writer's change."""
    return f"writer killed at step intent, then settler {_stopped(pause=pause)} at step {ABORT_MARKER}"


def successor(*, pause: bool) -> str:
    """Return the kind of a replica that is stopped as it takes over a dead holder's Idempotency-Key."""
    return f"holder killed at step claim, then its successor {_stopped(pause=pause)} at step take-over"


def next_leader(step: str, *, pause: bool) -> str:
    """Return the kind of a new leader that is stopped at one of :data:`SUCCESSOR_STEPS`."""
    return f"leader killed, then the next {_stopped(pause=pause)} at step {step}"


def _stopped(*, pause: bool) -> str:
    return "paused" if pause else "killed"


SILENT: Final = frozenset(
    {connection_cut("ZooKeeper"), UNREAD_NOTIFICATIONS_DELETED, *(lost(part, "ZooKeeper") for part in PARTS)}
)
"""During one of these a replica receives nothing from ZooKeeper."""


def earliest_s(kind: str) -> float:
    """Return the seconds from the start of a run before which a fault can't be injected."""
    return SWEPT_S if kind.endswith(tuple(f"at step {step}" for step in _SWEEP)) else 0.0


def reachable_steps(seconds: float) -> list[str]:
    """Return the steps that a run of that length can reach."""
    return [step for step in STEPS if step not in _OF_KAFKA_4 and (step not in _SWEEP or seconds >= SWEPT_S)]


def can_be_stale(kinds: Iterable[str]) -> bool:
    """Return True if one of these faults can keep a replica from what is written to ZooKeeper."""
    return any("ZooKeeper" in kind or kind.startswith(("confplane", "session", "leader", "writer")) for kind in kinds)
