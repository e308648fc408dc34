"""The recorder's ports to a cluster's store (``confplane.store``) and to the trail (``confplane.audit``)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final, Protocol

from confplane.domain.znode_versions import Point
from confplane.services.ports.store import ClusterStore

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence
    from datetime import datetime
    from uuid import UUID

    from confplane.domain.changes import Node
    from confplane.domain.entities import Entity
    from confplane.domain.facets import Tree
    from confplane.domain.znode_versions import OwnWrite
    from confplane.services.ports.store import Marker

    Key = tuple[str, str]
    """Tree and entity id."""

SOURCE: Final = "zookeeper"
RECOVERED: Final = "recovered"
"""The kind of a change of this service that the trail had lost, and that its marker in ZooKeeper proves."""
FACET: Final = "node"
"""The facet of a change of a whole znode."""


class RefusedError(Exception):
    """Postgres can't store the content of a row, now or ever."""


@dataclass(frozen=True, slots=True)
class Watermark:
    """The revision up to which the trail of a cluster is complete."""

    revision: int
    complete: bool
    """True if every entity has a state; until then entities older than the watermark are taken as they are."""
    age_s: float
    """Seconds since the watermark was written, by Postgres's clock."""
    server: str
    """The run of the Postgres server, as a text that differs between runs."""
    since: int | None = None
    """The revision from which on the trail is complete: each entity had been taken as it was by then. None: not yet, or
    unknown."""
    since_at: datetime | None = None
    """The time of ``since``, by Postgres's clock."""


@dataclass(frozen=True, slots=True)
class Move:
    """One entity's step from the state that the trail explained to the next, and the rows that explain it."""

    key: Key
    before: Point | None
    """The state before; None if there was none."""
    after: Point
    changes: tuple[dict[str, Any], ...] = ()


@dataclass(frozen=True, slots=True)
class UnexplainedNode:
    """A node as the mirror had it, which the trail does not explain yet."""

    node: Node | None
    revision: int
    """The mirror's revision: an absent entity was absent at it."""
    old: Node | None = None
    """The mirror's node before; with secrets, so it never leaves the process."""
    absent_ms: int = 0
    """ZooKeeper's time of the revision of an absent entity, once read."""

    @property
    def time_ms(self) -> int:
        """ZooKeeper's time of the write, or of the revision at which the entity was absent."""
        return self.absent_ms if self.node is None else self.node.mtime_ms

    @property
    def shape(self) -> Point:
        """The node as a state, without its content."""
        node = self.node
        if node is None:
            return Point(present=False, mzxid=self.revision)
        return Point(present=True, czxid=node.czxid, version=node.version, mzxid=node.mzxid)

    @property
    def mzxid(self) -> int:
        """The revision of the write, or one at which the entity was absent."""
        return self.revision if self.node is None else self.node.mzxid


@dataclass(frozen=True, slots=True)
class OpenWrite:
    """The possible write of a change without an outcome, to one entity."""

    entity_id: str
    path: str
    creates: bool
    """True if the change creates the znode, and with it the user above a pair if that is absent."""


class EntityStates(Protocol):
    """The recorder's view of the trail. Every call raises ``UnavailableError`` if Postgres is unavailable."""

    async def watermark(self, cluster: str) -> Watermark | None:
        """Return a cluster's watermark; None before the first contact."""

    async def advance(self, cluster: str, revision: int, *, complete: bool, server: str | None) -> Watermark | None:
        """Raise the watermark, and return it as it is now. It never falls.

        Args:
            cluster: The cluster.
            revision: The revision up to which the trail is complete.
            complete: Every entity has a state.
            server: The run of Postgres that everything was read from (None: nothing was read). With another run nothing
                is raised, and None returned: it may lack rows that were read.
        """

    async def known(self, cluster: str, keys: Sequence[Key], *, whole: bool) -> dict[Key, Point]:
        """Return the states of entities, of those that have one, with their contents when ``whole``."""

    async def present(self, cluster: str, tree: str, after: str, size: int) -> list[str]:
        """Return ids of the entities that exist by their states, in order, after a given id."""

    async def own(self, cluster: str, above: int) -> tuple[list[tuple[str, str, OwnWrite]], int | None]:
        """Return id, path and write of the changes of this service above a revision, without contents, a page of them.

        The second result is the revision at which the next page begins; None: there is no next page.
        """

    async def own_at(self, cluster: str, revisions: Sequence[int]) -> list[tuple[str, str, OwnWrite]]:
        """Return id, path and write of the changes of this service with these revisions, without contents."""

    async def contents(
        self, cluster: str, revisions: Sequence[int]
    ) -> dict[tuple[int, str], tuple[dict[str, str | None], dict[str, str | None]]]:
        """Return the contents that changes of this service saw and left, by their revisions and paths."""

    async def open(self, cluster: str, ids: Sequence[str] | None, margin_s: float) -> set[OpenWrite]:
        """Return the possible writes of changes without an outcome to entities, and to pairs below users.

        Args:
            cluster: The cluster.
            ids: The entities; None: all. For a user, creations of its pairs are returned as well.
            margin_s: Seconds before the writing of the watermark at which an unsettled change may have begun.
        """

    async def lost(self, change_ids: Sequence[UUID]) -> list[UUID]:
        """Return the ids of which the trail has no intent but a recovered one, which may lack entities."""

    async def prune(self, cluster: str, age_s: float) -> int:
        """Forget some of the states of entities that have been gone for so many seconds; return the number."""

    async def move(self, cluster: str, moves: Sequence[Move], *, server: str, incarnation: int) -> set[Key]:
        """Move states that still are as given, with the rows that explain the moves; return the entities moved.

        Args:
            cluster: The cluster.
            moves: The moves.
            server: The run of Postgres that the moves were decided on. With another run nothing is moved.
            incarnation: The incarnation of the store.

        Raises:
            RefusedError: Postgres refuses a move; none was made.
        """


class Recording(Protocol):
    """The recorder's port to a cluster's store."""

    def nodes(self, tree: Tree, after: str, size: int) -> list[Node]:
        """Return nodes of a tree in the order of their ids, after a given id."""

    @property
    def trees(self) -> Sequence[Tree]:
        """The trees that may have entities."""

    async def entities(self, tree: Tree) -> Iterator[str]:
        """List the ids of a tree's entities in ZooKeeper, without pairs, at the moment of the call or later."""

    async def pairs(self, tree: Tree, users: Sequence[str]) -> Iterator[str]:
        """List the ids of the pairs below some users in ZooKeeper, at the moment of the call or later."""

    def unreadable(self, tree: Tree, entity: Entity) -> bool:
        """Return True if a node exists that this service may not read."""

    async def absent_at(self, tree: Tree, entity: Entity, deadline: float) -> tuple[int, int] | None:
        """Return a revision and ZooKeeper's time (ms) at which an entity has no node; None if it has one.

        The node of an existing entity is in the mirror at the return.
        """

    async def markers(self) -> list[UUID]:
        """Return the changes that have markers, at the moment of the call or later."""

    async def commits(self, change_ids: Sequence[UUID]) -> list[Marker]:
        """Read the markers of changes; only those of commits are returned."""

    async def notify_unnotified(self, held: Callable[[], bool]) -> int:
        """Read all znodes, and write the missing notifications of writes without one; return their number."""

    async def notify_deletions(self, tree: Tree, entities: Sequence[Entity], held: Callable[[], bool]) -> int:
        """Write notifications of entities that have no znode any more, except for topics; return their number."""

    def keep_notifications(self, above: int | None, seconds: float) -> None:
        """Make the purge keep notifications above a revision for so many seconds."""


class RecordedStore(ClusterStore, Protocol):
    """A cluster's store with the recorder's further port, available once the store was started."""

    @property
    def recording(self) -> Recording:
        """The recorder's port to the store."""
