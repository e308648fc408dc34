"""The states of a whole cluster: its freeze, the layout of its client configs, and its target."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from datetime import datetime, timezone
from typing import TYPE_CHECKING, Final, Generic, TypeVar

from confplane.domain.enums import StrEnum
from confplane.services.ports.kafka import KraftEntityType

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping
    from uuid import UUID

    from confplane.domain.facets import Tree

ENTITY: Final = "cluster"
"""The id and the facet of changes of a cluster's states in the trail."""
LAYOUT_KEY: Final = "client_configs_layout"
"""The key of the layout in the trail."""


@dataclass(frozen=True, slots=True)
class LayoutCheck:
    """The layout that a transaction of client configs rests on (docs/writes-design.md, "Layout of client configs").

    The version is that of the layout's znode; the transaction checks it.
    """

    version: int
    claim: Tree | None = None
    """The tree that this transaction stores as the layout if no layout is stored."""


@dataclass(frozen=True, slots=True)
class Freeze:
    """The reason why no config of a cluster may be written, who decided so, and when."""

    reason: str
    principal: str | None
    """None if the stored freeze can't be read; ``reason`` then states this."""
    since_ms: int

    def __str__(self) -> str:
        """Return the freeze as part of a sentence."""
        since = (
            datetime.fromtimestamp(self.since_ms / 1000, timezone.utc)
            .isoformat(timespec="seconds")
            .replace("+00:00", "Z")
        )
        return f"since {since} by {self.principal or 'somebody'}: {self.reason}"


@dataclass(frozen=True, slots=True)
class Layout:
    """The stored layout: the tree of a cluster's client configs."""

    tree: Tree
    source: Tree | None = None
    """During a move, the tree that may still have some of the client configs."""

    def __str__(self) -> str:
        """Return the layout as part of a sentence."""
        return self.tree.layout if self.source is None else f"{self.tree.layout}, being moved from {self.source.layout}"


@dataclass(frozen=True, slots=True)
class Place:
    """The place of a cluster's client configs as this process has followed it."""

    tree: Tree
    """The tree of the stored layout, or of the settings if no layout is stored."""
    source: Tree | None = None
    """The tree to read for entities that ``tree`` lacks."""
    moving: bool = False
    settled: bool = False
    """True if a layout is stored."""
    version: int = -1
    """The version of the layout's znode; -1 before its first read."""
    defect: str | None = None
    """The reason why the znode can't be read; the other attributes keep their last values then."""


class TargetMode(StrEnum):
    """The relation between this service's configs and those of a Kafka cluster without ZooKeeper."""

    OBSERVE = "observe"
    """The configs follow the cluster; its quotas and configs are only written externally."""
    ADOPT = "adopt"
    """Clients write quotas and configs here, and the leader applies them to the cluster; external changes are followed
    too."""
    ENFORCE = "enforce"
    """As :attr:`ADOPT`, but external changes are put back."""


@dataclass(frozen=True, slots=True)
class Target:
    """The Kafka cluster without ZooKeeper (KRaft) that the configs belong to.

    A cluster without a target is one whose brokers read ZooKeeper themselves.
    """

    cluster_id: str
    """The cluster's id, as its brokers name it; no other cluster is ever polled."""
    mode: TargetMode = TargetMode.OBSERVE
    imported: bool = False
    """True once every config of the cluster was imported. Until then all changes that follow the cluster are of the
    kind ``import``."""
    paused: bool = False
    """True while nothing follows the cluster, and nothing is applied to it."""
    modes: Mapping[KraftEntityType, TargetMode] = field(default_factory=dict, hash=False)
    """The modes of the entity types that have another than the cluster."""
    states_by_key: bool = False
    """True once the states of deliveries are in tables that earlier releases do not know. These can't read such a
    target, and so they apply nothing."""

    @property
    def modes_by_entity_type(self) -> dict[KraftEntityType, TargetMode]:
        """The mode of each entity type."""
        return {entity_type: self.mode_of(entity_type) for entity_type in KraftEntityType}

    def mode_of(self, entity_type: KraftEntityType) -> TargetMode:
        """Return the mode of an entity type."""
        return self.modes.get(entity_type, self.mode)

    @property
    def applies(self) -> bool:
        """True if callers write quotas or configs of any entity type."""
        return any(map(self.applies_to, KraftEntityType))

    def applies_to(self, entity_type: KraftEntityType) -> bool:
        """Say whether callers write the quotas or configs of an entity type."""
        return self.mode_of(entity_type) is not TargetMode.OBSERVE

    def with_mode(self, mode: TargetMode, entity_types: Collection[KraftEntityType]) -> Target:
        """Return the target with another mode of some entity types; with no type named, of all."""
        if entity_types:
            modes = self.modes_by_entity_type | dict.fromkeys(entity_types, mode)
            others = {entity_type: each for entity_type, each in modes.items() if each is not self.mode}
            after = replace(self, modes=others)
        else:
            after = replace(self, mode=mode, modes={})
        # A mode that an earlier release began ends, or its leader hands over (services/kraft/round.py).
        return replace(after, states_by_key=after.applies and (self.states_by_key or not self.applies))

    def __str__(self) -> str:
        """Return the target as part of a sentence."""
        state = "paused" if self.paused else "imported" if self.imported else "not imported yet"
        others = "".join(f"; {entity_type}: {mode}" for entity_type, mode in self.modes.items())
        return f"{self.mode} cluster {self.cluster_id} ({state}{others})"


@dataclass(frozen=True, slots=True)
class Incarnation:
    """The incarnation of a store. A ZooKeeper that is restored goes back to an earlier state under the same number.

    The node also has the last state of Postgres that the leader knew, at most a minute old, so that a Postgres that was
    restored is noticed.
    """

    number: int
    id: str
    """A random text: two stores may have the same number."""
    newest_change: UUID | None = None
    """The newest change id of the cluster in Postgres."""
    timeline: int | None = None
    """The timeline of Postgres, which a promotion and a restore to a point in time raise."""

    def __str__(self) -> str:
        """Return the number, as the trail has it."""
        return str(self.number)


S = TypeVar("S", Freeze, Layout, Target, Incarnation)


@dataclass(frozen=True, slots=True)
class StoredState(Generic[S]):
    """A state as ZooKeeper has it at a version."""

    version: int
    value: S | None
    """None: the cluster is not frozen, no client configs were written yet, or the brokers read ZooKeeper themselves."""
    czxid: int | None = None
    """The czxid of the znode."""
