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
    """The span of revisions of which the trail of a cluster has every write, those of others too."""

    since: int
    """The first revision of the span."""
    since_at: datetime
    """The time at which the span began, by Postgres's clock."""
    recorded: int
    """The revision up to which the writes of others are recorded."""


@dataclass(frozen=True, slots=True)
class ZnodeChange:
    """One committed change of one znode."""

    change_id: UUID
    kind: str
    """As in :class:`confplane.services.ports.trail.AuditRecord`."""
    revision: int
    writes: int | None
    """The least number of writes of a change that others made; None for a change of this service."""
    version_read: int | None
    """The version before the change; None where the znode was absent."""
    czxid_read: int | None
    version: int | None
    """The version that the change left; None where it removed the znode."""
    remade: int | None
    """The czxid of a znode that others made anew while the change was under way, and whose content nobody saw."""
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
    """The version of the first state; None where an earlier release recorded it."""
    first_czxid: int | None


@dataclass(frozen=True, slots=True)
class SurroundingChanges:
    """The changes of one znode around a revision; None where there is none."""

    earlier: ZnodeChange | None = None
    """The last change at the revision or before it."""
    later: ZnodeChange | None = None
    """The first change behind the revision."""
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


class SubsequentChange(NamedTuple):
    """A committed change of an entity behind a revision."""

    change: ConflictingChange
    path: str
    """The full path of the znode."""
    reverts: tuple[UUID, ...]
    """The changes that it reverts."""


class TrailHistory(Protocol):
    """The history of znodes. Every call raises ``UnavailableError`` when Postgres is away."""

    async def coverage(self, cluster: str) -> TrailCoverage | None:
        """Return the span of revisions that the trail knows; None where it does not know any yet."""

    async def first_after(self, cluster: str, moment: datetime) -> int | None:
        """Return the revision of the first change that is later than a moment; None where there is none."""

    async def around(self, cluster: str, znodes: Sequence[Znode], revision: int) -> list[SurroundingChanges]:
        """Return the changes around a revision for each of these znodes, in their order.

        The cost is that of the znodes' changes since the revision, and not that of all their changes.
        """

    async def changed(
        self, cluster: str, tree: Tree, revision: int, *, after: str | None, size: int, within: NameRanges | None
    ) -> list[str]:
        """Return ids of the entities whose znodes in a tree were changed behind a revision, in order.

        The cost is that of the cluster's changes since the revision.

        Args:
            cluster: The cluster.
            tree: The tree.
            revision: The revision.
            after: Only ids behind this id; None: all.
            size: Most ids.
            within: Only ids in these ranges; None: all.
        """

    async def later(self, cluster: str, touched: Sequence[TouchedKeys]) -> list[list[SubsequentChange] | None]:
        """Return, for each, the committed changes behind its revision that touched one of its keys, newest first.

        None stands for an entity with more changes since than a search reads. Moves between layouts and new encodings
        of passwords are left out: they give no key another value. The cost is that of the entities' changes since.
        """
