"""One transaction of ZooKeeper: the writes of changes, and its results."""

from __future__ import annotations

from dataclasses import dataclass, field
from itertools import islice
from typing import TYPE_CHECKING, ClassVar

from confplane.domain.enums import StrEnum
from confplane.domain.facets import full_path

if TYPE_CHECKING:
    from collections.abc import Sequence
    from uuid import UUID

    from confplane.domain.changes import Node
    from confplane.domain.entities import Entity
    from confplane.domain.facets import Tree
    from confplane.services.ports.cluster_states import Freeze, Incarnation, Layout, LayoutCheck, Target


class Guarded(StrEnum):
    """The states of the cluster that a transaction checks, before its intent and within."""

    CALLER = "caller"
    """A change by a caller: the cluster is not frozen, its controller takes writes through ZooKeeper, and its target
    takes the writes of callers."""
    OBSERVED = "observed"
    """A change that follows the target: the target is still observed. A freeze does not stop external changes."""
    NONE = "none"
    """A change of these states themselves."""


@dataclass(frozen=True, slots=True)
class EntityWrite:
    """An entity's config node: set at the version read, or created if ``expected`` is None (absent)."""

    tree: Tree
    entity: Entity
    expected: int | None
    config: dict[str, str]
    extra: bytes | None = None
    czxid: int | None = None
    """The czxid of the node that was read; None if there was no node, or if it does not matter."""
    applied: bool = False
    """True for a write whose altered keys are named in ``extra``, to be applied to a Kafka cluster."""

    @property
    def path(self) -> str:
        """The full path of the znode."""
        return full_path(self.tree, self.entity)

    @property
    def notifies(self) -> str | None:
        """The entity path that the brokers are notified of."""
        return self.entity.path


@dataclass(frozen=True, slots=True)
class StateWrite:
    """A write of one of this service's own nodes with a state of the whole cluster, at the version read."""

    path: str
    expected: int
    value: Freeze | Layout | Target | Incarnation | None
    """The new state; None empties the node."""
    czxid: int | None = None
    """The czxid of the node that was read."""
    notifies: ClassVar[str | None] = None
    """None: brokers know nothing of these nodes."""


@dataclass(frozen=True, slots=True)
class Removal:
    """The removal of an empty node at the version read: an entity's, or a folder between entities."""

    path: str
    """Full path of the znode."""
    entity: Entity | None = None
    """The entity; None for a folder, which is removed at any version."""
    expected: int | None = None
    czxid: int | None = None

    @property
    def notifies(self) -> str | None:
        """The entity path that the brokers are notified of."""
        return None if self.entity is None else self.entity.path


Write = EntityWrite | StateWrite | Removal
"""One znode of a transaction. Each kind knows its path, its data, the version expected, and its notification."""


@dataclass(frozen=True, slots=True)
class ChangeWrites:
    """One change's part of a transaction: its writes, with their notifications and the change's marker."""

    change_id: UUID
    attempt: int
    writes: tuple[Write, ...]
    principal: str
    request_id: str


@dataclass(frozen=True, slots=True)
class Transaction:
    """One attempt to commit changes together (docs/architecture.md, "One write")."""

    writer: str
    """The writer node named in the intent of this attempt, never "the current one"."""
    changes: tuple[ChangeWrites, ...]
    """The changes in the order of their ids, which is that of their notifications. No two changes write one znode."""
    layout: LayoutCheck | None = None
    """The layout of client configs that the transaction rests on."""
    guarded: Guarded = Guarded.CALLER
    """The states of the cluster that the transaction checks."""
    again: bool = False
    """True after ZooKeeper refused these changes together with another one. The mirror may be behind, so the parents of
    new nodes are looked up in ZooKeeper."""

    @property
    def writes(self) -> tuple[Write, ...]:
        """The writes of all changes, in order."""
        return tuple(write for change in self.changes for write in change.writes)


@dataclass(frozen=True, slots=True)
class Committed:
    """ZooKeeper applied the transaction."""

    revision: int
    """The transaction's zxid."""
    time_ms: int
    """The transaction's time by ZooKeeper, milliseconds since the epoch."""
    nodes: tuple[Node, ...]
    """The entities' nodes afterwards, in the order of the entity writes."""
    versions: dict[str, int] = field(default_factory=dict)
    """See :class:`Outcome`."""
    remade: dict[str, int] = field(default_factory=dict)
    """See :class:`Outcome`."""

    def parts(self, changes: Sequence[Sequence[Write]]) -> list[Committed]:
        """Return the parts of the changes, in their order: the same revision and time, the nodes of each.

        Args:
            changes: The writes of each change of the transaction.
        """
        if len(changes) == 1:
            return [self]
        nodes = iter(self.nodes)
        found = []
        for writes in changes:
            paths = [write.path for write in writes]
            own = tuple(islice(nodes, sum(isinstance(write, EntityWrite) for write in writes)))
            versions = {path: self.versions[path] for path in paths if path in self.versions}
            remade = {path: self.remade[path] for path in paths if path in self.remade}
            found.append(Committed(self.revision, self.time_ms, own, versions, remade))
        return found


@dataclass(frozen=True, slots=True)
class Conflict:
    """A refusal by ZooKeeper because some node was not as read; nothing was applied, a new attempt may be made."""

    change_id: UUID | None = None
    """The refused change of several; None: all of them."""


@dataclass(frozen=True, slots=True)
class SessionEnded:
    """A refusal by ZooKeeper: the writer counts as gone, or the marker exists. This change can't commit any more."""

    reason: str
    change_id: UUID | None = None
    """The change of several whose marker exists; None: no change of the transaction can commit any more."""


@dataclass(frozen=True, slots=True)
class TransactionUnknown:
    """A submitted transaction without a reply: its changes are applied, or none is, or they are yet to be.

    None of them is ever followed by a new attempt.
    """


CommitResult = Committed | Conflict | SessionEnded | TransactionUnknown
