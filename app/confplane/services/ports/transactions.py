"""One transaction of ZooKeeper: the writes of changes, and its results."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from confplane.domain.enums import StrEnum
from confplane.domain.fast_dataclass import fast_dataclass

if TYPE_CHECKING:
    from uuid import UUID

    from confplane.domain.changes import Node
    from confplane.domain.entities import Entity
    from confplane.domain.facets import Tree
    from confplane.services.ports.cluster_states import Freeze, Incarnation, Layout, LayoutCheck, Target
    from confplane.services.ports.trail import Intent


class Guarded(StrEnum):
    """The states of the cluster that a transaction checks, before its intent and within."""

    CALLER = "caller"
    """A change by a caller: the cluster is not frozen, its controller takes writes through ZooKeeper, and its target
    takes the writes of callers."""
    OBSERVED = "observed"
    """A change that follows the target: the target is still observed. A freeze does not stop external changes."""
    NONE = "none"
    """A change of these states themselves."""


@fast_dataclass(frozen=True, slots=True)
class EntityWrite:
    """An entity's config node: set at the version read, or created if ``expected`` is None (absent)."""

    path: str
    """The full path of the znode."""
    tree: Tree
    entity: Entity
    expected: int | None
    config: dict[str, str]
    extra: bytes | None = None
    czxid: int | None = None
    """The czxid of the node that was read; None if there was no node, or if it does not matter."""
    applied: bool = False
    """True for a write whose altered keys are named in ``extra``, to be applied to a Kafka cluster."""


@dataclass(frozen=True, slots=True)
class StateWrite:
    """A write of one of this service's own nodes with a state of the whole cluster, at the version read."""

    path: str
    expected: int
    value: Freeze | Layout | Target | Incarnation | None
    """The new state; None empties the node."""
    czxid: int | None = None
    """The czxid of the node that was read."""


@dataclass(frozen=True, slots=True)
class Removal:
    """The removal of an empty node at the version read: an entity's, or a folder between entities."""

    path: str
    """Full path of the znode."""
    entity: Entity | None = None
    """The entity; None for a folder, which is removed at any version."""
    expected: int | None = None
    czxid: int | None = None


Write = EntityWrite | StateWrite | Removal
"""One znode of a transaction. Each kind has its path, its data and the version expected."""


@fast_dataclass(frozen=True, slots=True)
class Transaction:
    """One attempt to commit changes together (docs/architecture.md, "One write")."""

    writer: str
    """The writer node named in the intent of this attempt, never "the current one"."""
    changes: tuple[Intent, ...]
    """The changes in the order of their ids, which is that of their notifications."""
    writes: tuple[tuple[Write, ...], ...]
    """The writes of each change. No two changes write one znode."""
    layout: LayoutCheck | None = None
    """The layout of client configs that the transaction rests on."""
    guarded: Guarded = Guarded.CALLER
    """The states of the cluster that the transaction checks."""
    again: bool = False
    """True after ZooKeeper refused these changes together with another one. The mirror may be behind, so the parents of
    new nodes are looked up in ZooKeeper."""


@fast_dataclass(frozen=True, slots=True)
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
