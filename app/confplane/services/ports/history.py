"""The trail as a history of znodes: the changes around a revision. Implemented by ``confplane.audit``."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, NamedTuple, Protocol

if TYPE_CHECKING:
    from collections.abc import Sequence
    from datetime import datetime
    from uuid import UUID

    from confplane.domain.access.ranges import NameRanges
    from confplane.domain.errors import ConflictingChange
    from confplane.domain.facets import Tree

Content = dict[str, str | None]
"""A config without secrets: None is a value that is not kept."""


class Znode(NamedTuple):
    """The znode of an entity."""

    tree: Tree
    entity_id: str


@dataclass(frozen=True, slots=True)
class TrailCoverage:
    """The range of revisions for which the trail of a cluster has every write, including external ones."""

    since: int
    """The first revision of the range."""
    since_at: datetime
    """The time at which the range began, by Postgres's clock."""
    recorded: int
    """The revision up to which external writes are recorded."""


@dataclass(frozen=True, slots=True)
class ZnodeChange:
    """One committed change of one znode."""

    change_id: UUID
    kind: str
    """As in :class:`confplane.services.ports.trail.AuditRecord`."""
    revision: int
    writes: int | None
    """The least number of writes of an external change; None for a change of this service."""
    version_read: int | None
    """The version before the change; None if the znode was absent."""
    czxid_read: int | None
    version: int | None
    """The version that the change left; None if it removed the znode."""
    remade: int | None
    """The czxid of a znode that was recreated externally during the change, and whose content is unknown."""
    before: Content
    after: Content
    defect: str | None
    """The reason why the content that the change left can't be read; ``after`` is empty then."""


@dataclass(frozen=True, slots=True)
class RecordedState:
    """The last state of a znode that the recorder explained, and the first."""

    present: bool
    czxid: int
    version: int
    mzxid: int
    """The zxid of the last write; of an absent znode a revision at which it was absent."""
    content: Content = field(repr=False)
    first_version: int | None
    """The version of the first state; None if an earlier release recorded it."""
    first_czxid: int | None


@dataclass(frozen=True, slots=True)
class SurroundingChanges:
    """The changes of one znode before and after a revision; None if there is no such change."""

    earlier: ZnodeChange | None = None
    """The last change at the revision or before it."""
    later: ZnodeChange | None = None
    """The first change after the revision."""
    after_later: ZnodeChange | None = None
    """The change that follows ``later``."""
    recorded: RecordedState | None = None


class TouchedKeys(NamedTuple):
    """Keys of an entity that a change touched."""

    entity_id: str
    keys: tuple[str, ...] | None
    """None: all keys."""
    revision: int
    time_ms: int | None
    """The time of the revision, milliseconds since the epoch; None: it is looked up."""
    incarnation: int | None = None
    """The incarnation of the revision; None: the current one."""


class SubsequentChange(NamedTuple):
    """A committed change of an entity after a revision."""

    change: ConflictingChange
    path: str
    """The full path of the znode."""
    reverts: tuple[UUID, ...]
    """The changes that it reverts."""
    incarnation: int
    """The incarnation of the store at its revision."""


class TrailHistory(Protocol):
    """The history of znodes. Every call raises ``UnavailableError`` if Postgres is unavailable."""

    async def coverage(self, cluster: str) -> TrailCoverage | None:
        """Return the range of revisions that the trail covers; None if it does not cover any yet."""

    async def first_after(self, cluster: str, moment: datetime) -> int | None:
        """Return the revision of the first change after a time; None if there is none."""

    async def around(self, cluster: str, znodes: Sequence[Znode], revision: int) -> list[SurroundingChanges]:
        """Return the changes around a revision for each of these znodes, in their order.

        The cost is that of the znodes' changes since the revision, and not that of all their changes.
        """

    async def walked(
        self, cluster: str, tree: Tree, revision: int, *, after: str | None, size: int, within: NameRanges
    ) -> dict[str, bool]:
        """Return the next entities of the trail by id, and for each whether it may have been changed after a revision.

        The cost is that of the entities, however many changes there are: fewer than ``size`` are the last ones.

        Args:
            cluster: The cluster.
            tree: The tree of the changes.
            revision: The revision.
            after: Only ids after this id; None: all.
            size: Most entities.
            within: Ids in these ranges. One more may be between each two of them.
        """

    async def later(self, cluster: str, touched: Sequence[TouchedKeys]) -> list[list[SubsequentChange] | None]:
        """Return, for each, the committed changes after its revision that touched one of its keys, newest first.

        None stands for an entity with more changes since than a search reads. Moves between layouts and new encodings
        of passwords are left out: they give no key another value. The cost is that of the entities' changes since.
        """
