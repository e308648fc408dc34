"""Copies of the stores: what a backup reads of ZooKeeper and Postgres, and what a restore writes."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal, NamedTuple, Protocol

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable, Mapping, Sequence
    from uuid import UUID

    from confplane.services.ports.store import Marker


class ZnodeCopy(NamedTuple):
    """A znode as it was read, or its absence."""

    path: str
    """The path below the chroot."""
    present: bool
    data: bytes | None
    czxid: int
    mzxid: int
    version: int
    tree: str | None
    """The tree of an entity's znode; None for all other znodes."""
    entity_id: str | None


class ZnodeWrite(NamedTuple):
    """A znode that a restore creates, sets or deletes."""

    action: Literal["create", "set", "delete"]
    path: str
    data: bytes | None
    entity: bool
    """True if the znode is one of an entity."""


class CopyPosition(NamedTuple):
    """The point in time of the copy of one cluster's znodes."""

    revision: int
    time_ms: int
    """ZooKeeper's time of a write shortly after that revision."""


@dataclass(frozen=True, slots=True)
class TrailCut:
    """The part of one cluster's trail that belongs to the copy of its znodes."""

    revision: int
    """Changes of later revisions are left out."""
    incarnation: int


class TreeCopy(Protocol):
    """The znodes of one cluster. All calls raise ``UnavailableError`` if ZooKeeper does not answer."""

    @property
    def name(self) -> str:
        """The name of the cluster."""

    async def read(self, take: Callable[[list[ZnodeCopy]], None]) -> None:
        """Read all znodes that a backup keeps, each once. Writes may continue."""

    async def catch_up(self, take: Callable[[list[ZnodeCopy]], None]) -> CopyPosition:
        """Read the znodes that were changed since :meth:`read` began, until all copies are of one revision."""

    @property
    def unreadable(self) -> int:
        """The number of znodes that this service may not read."""

    async def committed(self, change_ids: Sequence[UUID]) -> list[Marker]:
        """Return the markers of the commits among some changes."""

    async def processes(self) -> int:
        """Return the number of other processes of the service that have a session."""

    async def brokers(self) -> int:
        """Return the number of registered brokers."""

    async def write(self, writes: Sequence[ZnodeWrite], announced: Sequence[str]) -> None:
        """Write znodes, parents before children, and announce some of their paths to brokers, each with its write.

        The znodes must not be changed concurrently.
        """

    async def begin_restore(self) -> None:
        """Delete the incarnation, so that no process writes before the store is adopted, and all markers."""


class TableSnapshot(Protocol):
    """One snapshot of Postgres. All calls raise ``UnavailableError`` if Postgres does not answer."""

    async def schema(self) -> str:
        """Return the revision of the schema."""

    async def incarnations(self) -> dict[str, int]:
        """Return the incarnation of each cluster that has one."""

    async def recorded(self) -> dict[str, int]:
        """Return, for each cluster whose external changes are recorded, the revision up to which that is complete."""

    async def open_changes(self, cluster: str) -> list[UUID]:
        """Return the changes without an outcome."""

    def rows(self, table: str, cuts: Mapping[str, TrailCut], left_out: Sequence[UUID]) -> AsyncIterator[bytes]:
        """Yield the rows of a table that a backup keeps, each as one line of JSON.

        Args:
            table: The name of the table.
            cuts: The parts of the trails to keep; whole trails of all other clusters.
            left_out: Changes that are left out.
        """

    def moved(self, cuts: Mapping[str, TrailCut]) -> AsyncIterator[bytes]:
        """Yield cluster, tree and entity of the states of later revisions: :meth:`rows` has the states before these."""


class TableWriter(Protocol):
    """A transaction that replaces the rows of all tables. All calls raise ``UnavailableError``."""

    async def counts(self) -> dict[str, int]:
        """Return the number of rows of each table that a backup keeps."""

    async def schema(self) -> str | None:
        """Return the revision of the schema; None: the database is empty."""

    async def rejected(self) -> dict[str, str]:
        """Return the clusters to which no process writes, each with the reason."""

    async def reject(self, reasons: Mapping[str, str]) -> None:
        """Let no process write to clusters, each for a reason, in a transaction of its own."""

    async def clear(self) -> None:
        """Remove all rows."""

    async def insert(self, table: str, lines: Sequence[bytes]) -> None:
        """Insert rows, each one line of JSON."""

    async def commit(self, reasons: Mapping[str, str], *, confirm_tokens: bool) -> None:
        """Commit. The clusters stay rejected, each for a reason; API tokens too, unless they are confirmed."""
