"""One cluster's ZooKeeper, implemented by ``confplane.store``.

Reads of a :class:`ClusterStore` are of the mirror: synchronous and free of I/O. Calls that go to ZooKeeper are
``async``, take a deadline on ``time.monotonic()``'s clock, and raise ``UnavailableError`` without a live session.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Protocol

from confplane.domain.enums import StrEnum
from confplane.services.ports.transactions import Guarded

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Collection, Iterator, Sequence
    from uuid import UUID

    from confplane.domain.access.ranges import NameRanges
    from confplane.domain.changes import Node
    from confplane.domain.definitions import Catalog
    from confplane.domain.entities import Entity
    from confplane.domain.errors import UnavailableError
    from confplane.domain.facets import Tree
    from confplane.services.operator_warnings import OperatorWarning
    from confplane.services.ports.cluster_states import Freeze, LayoutCheck, Place, S, StoredState, Target
    from confplane.services.ports.journal import Journal
    from confplane.services.ports.transactions import CommitResult, Transaction, Write


@dataclass(frozen=True, slots=True)
class Marker:
    """The decision on how a change ended (docs/writes-design.md, "Settling")."""

    change_id: UUID
    committed: bool
    """True for a commit; False for an abort marker: the change can't commit any more."""
    attempt: int | None = None
    revision: int | None = None
    time_ms: int | None = None
    versions: dict[str, int] = field(default_factory=dict)
    """Full znode path -> the version that the change gave it."""
    removed: dict[str, int] = field(default_factory=dict)
    """Full path of an entity's znode that the change removed -> the version it had."""
    principal: str = ""
    writer: str = ""
    request_id: str = ""


class SessionState(StrEnum):
    """The state of a process's ZooKeeper session. Calls fail at once in all states except CONNECTED."""

    CONNECTING = "connecting"
    """No session was opened yet."""
    CONNECTED = "connected"
    SUSPENDED = "suspended"
    """The connection is cut and may come back: watches are lost, the session's ephemeral nodes are not."""
    LOST = "lost"
    """The session expired, or was cut off for longer than its timeout by our own clock. A new one is being opened."""


class MirrorState(StrEnum):
    """The state of a process's copy of a cluster's configs. In all states except LOADING the copy is whole."""

    LOADING = "loading"
    """The copy does not exist yet."""
    FRESH = "fresh"
    STALE = "stale"
    """The copy may be out of date."""
    RELOADING = "reloading"
    """The copy is stale, and another is being loaded in its place."""


@dataclass(frozen=True, slots=True)
class MirrorLoad:
    """The progress of a load of the copy."""

    read: int
    """Nodes that were read."""
    listed: int
    """Nodes whose names are known. Names are listed in parts, so the number may rise until the end."""
    ms: int
    """Milliseconds since the load began."""


@dataclass(frozen=True, slots=True)
class StoreStatus:
    """A cluster's state as readiness and headers show it."""

    session: SessionState
    session_ms: int
    """Milliseconds in the current state of the session."""
    mirror: MirrorState
    revision: int
    """Highest R with every notification of czxid <= R applied."""
    stale_ms: int | None
    """Milliseconds since the mirror could last be current; None while it is."""
    brokers_registered: bool
    notifications: int
    checked: bool
    """True if it is known whether the current connection leads to the store that the trail describes."""
    warnings: tuple[OperatorWarning, ...] = ()
    """For operators: stray children of /config/changes, undecodable nodes."""
    frozen: OperatorWarning | None = None
    """The reason why no config may be written now; None while they may."""
    load: MirrorLoad | None = None
    """The progress of the load, the first one or one after a gap; None while the copy is not loaded."""

    @property
    def connected(self) -> bool:
        """True while there is a live session."""
        return self.session is SessionState.CONNECTED

    @property
    def loaded(self) -> bool:
        """True if the mirror holds a full copy, possibly a stale one."""
        return self.mirror is not MirrorState.LOADING


class Markers(Protocol):
    """A cluster's markers. Every call raises ``UnavailableError`` when ZooKeeper does not answer."""

    async def settle(self, change_id: UUID, deadline: float) -> Marker | None:
        """Decide a change by its marker: create an abort marker, or find the existing marker.

        Only for a change that had no outcome half a minute ago: markers are dropped a minute after the outcome.

        Returns:
            The marker; None if a marker blocked the creation and was dropped in the meantime: the outcome is durable.

        Raises:
            UnavailableError: ZooKeeper did not answer by the deadline; an abort marker may stand nevertheless.
            CorruptZnodeError: The existing marker can't be read.
        """

    def release(self, change_id: UUID) -> None:
        """Drop the marker of a change later, some time after its outcome was written and once it is durable."""

    async def found(self, deadline: float) -> tuple[list[UUID], list[str]]:
        """Return the changes that have markers, and the names of other nodes next to them."""

    async def commits(self, change_ids: Sequence[UUID], deadline: float) -> list[Marker]:
        """Read markers of some changes, after all writes committed before the call.

        Abort markers, dropped and unreadable markers are left out.
        """

    async def writers(self, deadline: float) -> frozenset[str]:
        """Return the names of existing writer nodes, at the moment of the call or later."""

    async def drop(self, change_ids: Sequence[UUID]) -> None:
        """Drop markers."""

    async def drop_released(self, now: float, lasting: Callable[[Sequence[UUID]], Awaitable[Collection[UUID]]]) -> int:
        """Drop the released markers due by ``now``, on the clock of ``time.monotonic()``, and return their number.

        ``lasting()`` returns, of some changes, those whose outcomes are durable and at least a minute old.
        """


class ClusterStore(Protocol):
    """One cluster's configs."""

    name: str
    leadership: Leadership
    journal: Journal
    """The journal of the mirror."""
    markers: Markers

    # -- the mirror

    def status(self) -> StoreStatus:
        """Return the current state."""

    def freshness(self) -> tuple[int, int | None] | None:
        """Return (revision, staleness in ms or None) of :meth:`status` alone; None before the mirror was loaded.

        Every answer calls it, so it costs next to nothing.
        """

    def get(self, tree: Tree, entity_id: str) -> Node | None:
        """Return an entity's node from the mirror.

        Raises:
            UnavailableError: The mirror was never loaded.
        """

    def with_keys(
        self, tree: Tree, facet: str, *, after: str | None = None, prefix: str = "", within: NameRanges | None = None
    ) -> Iterator[Node]:
        """Iterate over the nodes that hold at least one key of a facet (or can't be read), ordered by id.

        Args:
            tree: The tree.
            facet: The facet's name.
            after: Start after this id.
            prefix: Only ids that start so. ``user=alice,`` are all of alice's client-ids.
            within: Only ids in these ranges; the cost is that of the ranges and of the nodes in them. None: all ids.

        The iteration sees one moment of the mirror as long as the caller does not await within it.
        """

    async def moment(
        self,
        tree: Tree,
        facet: str,
        *,
        prefix: str = "",
        client_id: tuple[str | None] | None = None,
        within: NameRanges | None = None,
    ) -> list[Node]:
        """Return the nodes of :meth:`with_keys` as of the start of the call; other tasks run in the meantime.

        With ``client_id`` they are only those whose client-id has the name in the tuple.
        """

    def entities_with_pending_keys(self) -> list[str]:
        """Return the ids of the mirror's entities with pending keys (:mod:`confplane.services.znode_metadata`).

        Raises:
            UnavailableError: The mirror was never loaded.
        """

    def place(self) -> Place:
        """Return the place of the client configs; it costs next to nothing."""

    def catalog(self, release: str | None = None) -> Catalog:
        """Return the cluster's definitions, with the keys that its settings declare; it costs next to nothing.

        The release of its Kafka can change while this process runs, when the brokers are upgraded.

        Args:
            release: The release of the definitions; None is that of the cluster's Kafka.

        Raises:
            ValueError: The text is not a release of Kafka.
        """

    def keeps_eligible_replicas(self) -> bool:
        """Return True if an observed cluster keeps eligible leader replicas (KIP-966); it costs next to nothing.

        Until the first report of the leader it is True for every observed cluster. It can change while this process
        runs.
        """

    def topic_exists(self, name: str) -> bool | None:
        """Return whether the followed metadata of the cluster have a topic, or None without such metadata.

        Brokers create topics without a notification, so a new topic may be missing; writes read ZooKeeper itself.

        Raises:
            UnavailableError: The mirror was never loaded.
        """

    def with_client_id(
        self, tree: Tree, client_id: str | None, *, after: str | None = None, within: NameRanges | None = None
    ) -> Iterator[Node]:
        """Iterate over the nodes of entities whose client-id component has this name (None: the default), by id.

        The nodes may have no keys of a facet. ``after`` and ``within`` are as in :meth:`with_keys`.
        """

    # -- ZooKeeper itself

    async def catch_up(self, deadline: float) -> int:
        """Bring the mirror to at least the moment of the call (``consistency=strong``) and return its revision."""

    async def wait_for(self, revision: int, deadline: float) -> None:
        """Wait until the mirror is at ``revision``, and until it was loaded.

        Raises:
            UnavailableError: The revision was not reached by the deadline, or the session is down, which is not waited
                for.
        """

    def writer(self) -> str:
        """Return the name of the current session's writer node.

        Raises:
            UnavailableError: No live session; ``outcome`` is not_applied.
        """

    async def read(self, tree: Tree, entity: Entity, deadline: float) -> Node | None:
        """Read one node from ZooKeeper, after all writes committed before the call."""

    async def read_many(
        self, tree: Tree, entities: Sequence[Entity], deadline: float
    ) -> list[Node | UnavailableError | None]:
        """Read nodes from ZooKeeper as :meth:`read` does, in few requests.

        Returns:
            The nodes in the order of the entities; None for an absent node, the error for a node that may not be read.
        """

    async def confirm(
        self,
        writer: str,
        expectations: Sequence[tuple[Tree, Entity, int | None]],
        deadline: float,
        *,
        layout: LayoutCheck | None = None,
    ) -> int | None:
        """Prove that nodes still are at the versions read (None: absent), by a write to the writer node.

        With a layout, also that the layout is as read.

        Returns:
            The revision at which they were, or None if any was not.

        Raises:
            UnknownTopicError: The cluster has topic metadata, and a topic is not among them.
            RestoredStoreError: The store was restored, and nobody has accepted its state yet.
        """

    async def check_admission(
        self, writes: Sequence[Write], deadline: float, *, guarded: Guarded = Guarded.CALLER, changes: int = 1
    ) -> float:
        """Refuse writes that may not be tried now, before their intent.

        Args:
            writes: All writes of a transaction.
            deadline: Until when.
            guarded: As the transaction.
            changes: How many changes make them. A shared transaction has a lower limit of size.

        Returns:
            The part of a shared transaction's greatest size that the writes take, at most.

        Raises:
            BodyTooLargeError: The serialized transaction is above ``zookeeper.max_packet``, or too large to share.
            ThrottledError: It would bring the notifications above ``notifications.max`` while brokers are registered.
            RestoredStoreError: The store was restored, and nobody has accepted its state yet.
            FrozenError: The cluster is frozen. Like the next two, only where the transaction is ``guarded`` so.
            StaleControllerError: Brokers are registered and there is no ZooKeeper-mode controller.
            ObservedError: A client's write of quotas or configs that are only written externally; or nothing is
                observed now, and the write follows the target.
            CorruptZnodeError: The target's znode can't be read.
            UnknownTopicError: The cluster has topic metadata, and a topic is not among them.
        """

    async def commit(self, transaction: Transaction, deadline: float) -> CommitResult:
        """Run the transaction. Applied nodes are in the mirror when it returns.

        Once it returned Committed for a freeze, no write of configs commits, whichever process tries.

        Raises:
            UnavailableError: Nothing was applied, for certain.
            BodyTooLargeError: The same; with its marker the transaction is above the limit.
            RestoredStoreError: The same; the store was restored.
            FrozenError: The same; the cluster was frozen after the admission.
            StaleControllerError: The same; the controller changed after the admission.
            ObservedError: The same; the target changed after the admission.
        """

    async def read_state(self, kind: type[S], deadline: float) -> StoredState[S]:
        """Read the freeze, the layout of the client configs or the target, after all writes committed before the call.

        Raises:
            UnavailableError: ZooKeeper did not answer.
            CorruptZnodeError: A layout or a target that can't be read; such a freeze is one, and says so.
        """

    def target(self) -> Target | None:
        """Return the cluster's target as this process has followed it; None if there is none, or it is not known.

        It costs next to nothing.
        """

    async def read_target_and_freeze(self, deadline: float) -> tuple[StoredState[Target], StoredState[Freeze]]:
        """Read both as :meth:`read_state` does, at the cost of one of them."""

    async def claim_states(self, deadline: float) -> bool:
        """Mark the target as one whose states are kept by key, so that no earlier release applies changes.

        Returns:
            False if a process of an earlier release is registered, or if there is no target; nothing was changed.

        Raises:
            UnavailableError: ZooKeeper did not answer in time, or the target was changed at the same time.
        """

    def observation(self) -> bytes | None:
        """Return the leader's latest report on its observation of the target, as followed; None: there is none."""

    async def publish_observation(self, report: bytes, deadline: float) -> None:
        """Write the report for all processes. The last report remains. It is not a change, and is not in the trail.

        Args:
            report: The report, 100 kB at most.
            deadline: Until when.

        Raises:
            UnavailableError: ZooKeeper did not answer, or refused.
        """

    def applied_revision(self) -> int | None:
        """Return a revision up to which no client change waits to be applied to the Kafka cluster.

        Changes that are held are left out: those that wait for an unavailable broker, a right or a topic.
        The revision is the one that this process has followed; reading it costs almost nothing. Returns None if nothing
        is applied (brokers read ZooKeeper themselves, or configs are only written externally), or if no leader has
        published one yet.
        """

    def on_applied(self, call: Callable[[], None]) -> None:
        """Call a function, which must not wait, whenever changes may have ended in the Kafka cluster."""

    async def publish_applied(self, revision: int, deadline: float) -> None:
        """Write, as the leader, the revision for :meth:`applied_revision`, and wake the waits in all processes.

        Raises:
            UnavailableError: ZooKeeper did not answer, or refused.
        """

    @property
    def incarnation(self) -> int:
        """The incarnation of the store, which outcomes name: a restored store uses revisions again."""

    @property
    def restored(self) -> bool:
        """True if the store was restored, and nobody has accepted its state yet: it is read, and not written."""

    @property
    def accepted(self) -> bool:
        """True if the current connection is known to lead to the store that the trail describes."""

    async def read_raw(self, path: str, deadline: float) -> bytes | None:
        """Read any znode, by its absolute path below the chroot, after all writes committed before the call.

        Returns:
            The node's data, empty if it has none, or None if it is absent.

        Raises:
            UnavailableError: ZooKeeper did not answer in time, or refused (rights).
        """

    async def replication_factor(self, topic: str, deadline: float) -> int | None:
        """Return the least number of replicas of a topic's partitions; None if the metadata do not have it.

        Clusters with a target have none: metadata left in ZooKeeper are those of an earlier time.

        Raises:
            UnavailableError: ZooKeeper did not answer in time, or refused (rights).
        """

    def new_change_id(self) -> UUID:
        """Return the id of a new change: a UUIDv7 by ZooKeeper's clock, above all earlier ones of this process.

        While ZooKeeper's clock is unknown, the own clock counts.
        """


class Leadership(Protocol):
    """A process's part in the leadership of a cluster."""

    @property
    def held(self) -> bool:
        """True while this process leads, by its own clock and connection."""

    async def seek(self, deadline: float) -> bool:
        """Become or stay the leader if possible, and return whether this process leads; raises ``UnavailableError``."""
