"""The recorder's ports (app/services/recorder/record.py), implemented by ``app.store`` and ``app.audit``."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final, Protocol

from app.services.ports.store import ClusterStore
from app.services.recorder.versions import Point

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from datetime import datetime
    from uuid import UUID

    from app.domain.changes import Node
    from app.domain.entities import Entity
    from app.domain.facets import Tree
    from app.services.ports.journal import Journal
    from app.services.ports.store import Leadership, Marker
    from app.services.recorder.versions import OwnWrite

    Key = tuple[str, str]
    """Tree and entity id."""

PRINCIPAL: Final = "External:unknown"
SOURCE: Final = "zookeeper"
EXTERNAL: Final = "external"
"""The kind of a change that others made."""
RECOVERED: Final = "recovered"
"""The kind of a change of ours that the trail had lost, and that its marker in ZooKeeper proves."""
FACET: Final = "node"
"""What stands for the facet where a change is one of the whole znode."""


class RefusedError(Exception):
    """Postgres can't take what stands in a row, now or ever."""


@dataclass(frozen=True, slots=True)
class Watermark:
    """Up to where the trail of a cluster is complete."""

    revision: int
    complete: bool
    """Every entity has a state; until then those that were there before the watermark are taken as they are."""
    age_s: float
    """Since it was written, by Postgres's clock."""
    server: str
    """Tells one run of a Postgres server from another."""
    since: int | None = None
    """From which revision on it is: by then each entity had been taken as it was. None: not yet, or nobody knows."""
    since_at: datetime | None = None
    """When that was, by Postgres's clock."""


@dataclass(frozen=True, slots=True)
class Move:
    """One entity's step from the state that the trail explained to the next, and the rows that explain it."""

    key: Key
    before: Point | None
    """None: there was no state."""
    after: Point
    changes: tuple[dict[str, Any], ...] = ()


@dataclass(frozen=True, slots=True)
class Seen:
    """What the mirror had of an entity."""

    node: Node | None
    revision: int
    """The mirror's: at which an absent entity was absent."""
    old: Node | None = None
    """What the mirror had before; with secrets, so it never leaves the process."""
    absent_ms: int = 0
    """ZooKeeper's time of that revision, once it was asked."""

    @property
    def time_ms(self) -> int:
        """When it was written, or was found absent, by ZooKeeper's clock."""
        return self.absent_ms if self.node is None else self.node.mtime_ms

    @property
    def shape(self) -> Point:
        """As a state, without its content."""
        node = self.node
        if node is None:
            return Point(present=False, mzxid=self.revision)
        return Point(present=True, czxid=node.czxid, version=node.version, mzxid=node.mzxid)

    @property
    def mzxid(self) -> int:
        """When it was written; for what is absent, a revision at which it was."""
        return self.revision if self.node is None else self.node.mzxid


@dataclass(frozen=True, slots=True)
class OpenWrite:
    """What a change of ours without an outcome may have done to one entity."""

    entity_id: str
    path: str
    creates: bool
    """It creates the znode, and with it the user above a pair where that is absent."""


class EntityStates(Protocol):
    """The recorder's view of the trail. Every call raises ``UnavailableError`` when Postgres is away."""

    async def watermark(self, cluster: str) -> Watermark | None:
        """Return a cluster's watermark; None where nothing was recorded ever."""

    async def advance(self, cluster: str, revision: int, *, complete: bool, server: str | None) -> Watermark | None:
        """Raise the watermark, and return it as it is now. It never falls.

        Args:
            cluster: The cluster.
            revision: Up to where the trail is complete.
            complete: Every entity has a state.
            server: The run of Postgres that all of it was read from (None: nothing was). Where another one answers,
                nothing is raised, and None returned: it may lack what was read.
        """

    async def known(self, cluster: str, keys: Sequence[Key], *, whole: bool) -> dict[Key, Point]:
        """Return the states of entities that have one, with their contents when ``whole``."""

    async def present(self, cluster: str, tree: str, after: str, size: int) -> list[str]:
        """Return ids of the entities that are there by their states, in order, from behind one of them."""

    async def own(self, cluster: str, above: int) -> tuple[list[tuple[str, str, OwnWrite]], int | None]:
        """Return id, path and write of the changes of ours above a revision, without contents, a page of them.

        The revision that comes with it is where the next page begins; None: there is none.
        """

    async def own_at(self, cluster: str, revisions: Sequence[int]) -> list[tuple[str, str, OwnWrite]]:
        """Return id, path and write of the changes of ours with these revisions, without contents."""

    async def contents(
        self, cluster: str, revisions: Sequence[int]
    ) -> dict[tuple[int, str], tuple[dict[str, str | None], dict[str, str | None]]]:
        """Return what changes of ours saw and left, by their revisions and paths."""

    async def open(self, cluster: str, ids: Sequence[str] | None, margin_s: float) -> set[OpenWrite]:
        """Return what changes of ours without an outcome may have done to entities, and to pairs below users.

        Args:
            cluster: The cluster.
            ids: Which entities; None: all. Of a user, creations of its pairs are returned as well.
            margin_s: How long before the watermark was written a change may have begun that is not settled.
        """

    async def unknown(self, change_ids: Sequence[UUID]) -> list[UUID]:
        """Return those of which the trail has no intent."""

    async def prune(self, cluster: str, age_s: float) -> int:
        """Forget some of the states of entities that have been gone for so long; return how many."""

    async def move(self, cluster: str, moves: Sequence[Move], *, server: str) -> set[Key]:
        """Move states that still are as given, with the rows that explain it; return which ones were moved.

        Args:
            cluster: The cluster.
            moves: The states.
            server: The run of Postgres that all was read from which led to them. Where another one answers, none is
                moved.

        Raises:
            RefusedError: Of one of them; none was moved.
        """


class Recording(Protocol):
    """What a cluster's store does for the recorder."""

    def nodes(self, tree: Tree, after: str, size: int) -> list[Node]:
        """Return nodes of a tree in the order of their ids, from behind one of them."""

    @property
    def trees(self) -> Sequence[Tree]:
        """The trees of the mirror."""

    def unreadable(self, tree: Tree, entity: Entity) -> bool:
        """Say whether a node is there that this service may not read."""

    async def absent_at(self, tree: Tree, entity: Entity, deadline: float) -> tuple[int, int] | None:
        """Return a revision and ZooKeeper's time (ms) at which an entity has no node; None where it has one.

        What it has instead is in the mirror when this returns.
        """

    async def markers(self) -> list[UUID]:
        """Return the changes that have markers."""

    async def commits(self, change_ids: Sequence[UUID]) -> list[Marker]:
        """Read the markers of changes; only those of commits are told."""

    async def notify_unnotified(self, held: Callable[[], bool]) -> int:
        """Look at all znodes, and write the notifications of writes that nobody was notified of; return how many."""

    def keep_notifications(self, above: int | None, seconds: float) -> None:
        """Have the purge keep notifications above a revision, for a while unless it is said again."""


class RecordedStore(ClusterStore, Protocol):
    """A cluster's store with what the recorder needs besides. Both are there once the store was started."""

    @property
    def journal(self) -> Journal:
        """What changed in the mirror."""

    @property
    def recording(self) -> Recording:
        """What the store does for the recorder besides."""

    @property
    def leadership(self) -> Leadership:
        """Who leads it."""
