"""Incarnations: what shows that a ZooKeeper was restored to an earlier state (services/upkeep/incarnation.py)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol

from confplane.services.ports.store import ClusterStore

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable
    from uuid import UUID

    from confplane.services.ports.cluster_states import Incarnation


@dataclass(frozen=True, slots=True)
class StorePosition:
    """The position of a cluster's ZooKeeper, read after a write of this session."""

    incarnation: Incarnation | None
    """None: ``/confplane/incarnation`` is absent, or empty."""
    version: int | None
    """The version of that node; None: it is absent."""
    cversion: int
    """The number of creations and deletions below ``/confplane/commits``, wrapped to 32 bits. It never falls."""
    pzxid: int
    """The zxid of the last of them."""
    revision: int
    """The zxid of the write before the read."""
    time_ms: int
    """ZooKeeper's time of that write."""
    connection: int
    """The connection on which it was read."""


@dataclass(frozen=True, slots=True)
class KnownPosition:
    """The last position of a cluster's ZooKeeper in Postgres."""

    number: int
    id: str
    cversion: int
    pzxid: int
    rejected: str | None
    """The reason why the store is taken for a restored one, until its state is accepted. Later positions prove nothing:
    the store may have passed the last known one."""


@dataclass(frozen=True, slots=True)
class TrailState:
    """The state of the trail of one cluster."""

    store: KnownPosition | None
    """None: no process of this release has stored a position yet."""
    last_commit: int
    """The revision of the last change that this service committed in the current incarnation; 0 if there is none."""
    newest_change: UUID | None
    """The newest change id."""
    timeline: int | None
    """The timeline of Postgres; None on a standby."""


class StorePositions(Protocol):
    """The positions of stores in Postgres. Every call raises ``UnavailableError`` if Postgres is unavailable."""

    async def read(self, cluster: str) -> TrailState:
        """Return the state of a cluster's trail."""

    async def has(self, cluster: str, change_id: UUID) -> bool:
        """Return True if the trail has a change."""

    async def distrust(self, change_id: UUID) -> bool:
        """Reject all API tokens created so far, because Postgres lacks a change that it had: it was restored.

        Returns:
            True if the tokens were confirmed since the first call for this change.
        """

    async def confirmed(self, change_id: UUID) -> bool:
        """Return True if the tokens were confirmed after :meth:`distrust` was called for this change."""

    async def save(self, cluster: str, incarnation: Incarnation, position: StorePosition) -> None:
        """Store a position, unless that of another incarnation is stored."""

    async def reject(self, cluster: str, known: KnownPosition | None, reason: str) -> None:
        """Store that the store was restored, unless another position than the known one is stored by now."""

    async def adopt(self, cluster: str, incarnation: Incarnation, position: StorePosition) -> None:
        """Store a position of a new incarnation, and let the coverage of the trail begin at it."""


class IncarnationStore(ClusterStore, Protocol):
    """A cluster's store with the calls that find out whether it was restored."""

    def check_connections(self, check: Callable[[float], Awaitable[None]]) -> None:
        """Refuse writes on each connection until it was accepted; call a function when a write waits for that."""

    @property
    def checked(self) -> bool:
        """True if the current connection was accepted or rejected."""

    async def read_position(self, deadline: float) -> StorePosition:
        """Read the position.

        Raises:
            UnavailableError: ZooKeeper did not answer by the deadline.
            CorruptZnodeError: The incarnation can't be read.
        """

    def accept(self, connection: int, number: int) -> None:
        """Let writes through, if the connection is still the current one."""

    def reject(self, connection: int, reason: str) -> None:
        """Refuse writes and leadership, if the connection is still the current one."""

    def begin_incarnation(self, number: int) -> None:
        """Give outcomes written from now on another incarnation."""

    async def write_incarnation(self, incarnation: Incarnation | None, version: int | None, deadline: float) -> None:
        """Write the node at a version, or create it if the version is None. A node that has changed stays as it is.

        Raises:
            UnavailableError: ZooKeeper did not answer, or refused.
        """
