"""One cluster's ZooKeeper, implemented by ``app.store``.

Reads of a :class:`ClusterStore` are of the mirror: synchronous and free of I/O. Calls that go to ZooKeeper are
``async``, take a deadline on ``time.monotonic()``'s clock, and raise ``UnavailableError`` without a live session.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import StrEnum
from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from uuid import UUID

    from app.domain.changes import Node
    from app.domain.entities import Entity
    from app.domain.facets import Tree
    from app.services.notices import Notice
    from app.services.ports.cluster_states import FreezeState, LayoutCheck, LayoutState, Place
    from app.services.ports.transactions import CommitResult, Transaction, Write


@dataclass(frozen=True, slots=True)
class Marker:
    """What decides how a change ended (docs/architecture.md, "Settling")."""

    change_id: UUID
    committed: bool
    """False: it is an abort marker, and the change can't commit any more."""
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
    """The state of a process's ZooKeeper session. In all but one calls fail at once instead of waiting for another."""

    CONNECTING = "connecting"
    """There was none yet."""
    CONNECTED = "connected"
    SUSPENDED = "suspended"
    """Cut off, and it may come back: watches are lost, its ephemeral nodes are not."""
    LOST = "lost"
    """Expired, or cut off for longer than its timeout by our own clock. A new one is being opened."""


class MirrorState(StrEnum):
    """The state of a process's copy of a cluster's configs. In all but the first it is whole."""

    LOADING = "loading"
    """There is no copy yet."""
    FRESH = "fresh"
    STALE = "stale"
    """It can't be known to be current."""
    RELOADING = "reloading"
    """Stale, and another is being loaded in its place."""


@dataclass(frozen=True, slots=True)
class StoreStatus:
    """A cluster's state as readiness and headers show it."""

    session: SessionState
    session_ms: int
    """For how many milliseconds it has been so."""
    mirror: MirrorState
    revision: int
    """Highest R with every notification of czxid <= R applied."""
    stale_ms: int | None
    """Milliseconds since the mirror could last be current; None while it is."""
    brokers_registered: bool
    notifications: int
    warnings: tuple[Notice, ...] = ()
    """For operators: stray children of /config/changes, undecodable nodes."""
    frozen: Notice | None = None
    """Why no config may be written now; None while they may."""

    @property
    def connected(self) -> bool:
        """Whether there is a live session."""
        return self.session is SessionState.CONNECTED

    @property
    def loaded(self) -> bool:
        """Whether the mirror holds a full copy, possibly a stale one."""
        return self.mirror is not MirrorState.LOADING


class ClusterStore(Protocol):
    """One cluster's configs."""

    name: str

    # -- the mirror

    def status(self) -> StoreStatus:
        """Return the current state."""

    def freshness(self) -> tuple[int, int | None] | None:
        """Return (revision, staleness in ms or None) of :meth:`status` alone; None before the mirror was loaded.

        Every answer asks for it, so it costs next to nothing.
        """

    def get(self, tree: Tree, entity_id: str) -> Node | None:
        """Return an entity's node from the mirror.

        Raises:
            UnavailableError: The mirror was never loaded.
        """

    def with_keys(self, tree: Tree, facet: str, *, after: str | None = None, prefix: str = "") -> Iterator[Node]:
        """Iterate over the nodes that hold at least one key of a facet (or can't be read), ordered by id.

        Args:
            tree: Which tree.
            facet: The facet's name.
            after: Start behind this id.
            prefix: Only ids that start so. ``user=alice,`` are all of alice's client-ids.

        The iteration sees one moment of the mirror as long as the caller does not await within it.
        """

    def place(self) -> Place:
        """Return where the client configs are; it costs next to nothing."""

    def topic_exists(self, name: str) -> bool | None:
        """Say whether the cluster's metadata have a topic, as followed; None where there are no such metadata.

        Brokers create topics without a notification, so one made this moment may be missing; writes look at ZooKeeper.

        Raises:
            UnavailableError: The mirror was never loaded.
        """

    def with_client_id(self, tree: Tree, facet: str, client_id: str | None) -> list[Node]:
        """Return the nodes of entities whose client-id component has this name (None: the default), ordered by id."""

    # -- ZooKeeper itself

    async def catch_up(self, deadline: float) -> int:
        """Bring the mirror to at least the moment of the call (``consistency=strong``) and return its revision."""

    async def wait_for(self, revision: int, deadline: float) -> None:
        """Wait until the mirror is at ``revision``, and until it was loaded.

        Raises:
            UnavailableError: It was not reached by the deadline, or the session is down: that is not waited for.
        """

    def writer(self) -> str:
        """Return the name of the current session's writer node.

        Raises:
            UnavailableError: No live session; ``outcome`` is not_applied.
        """

    async def read(self, tree: Tree, entity: Entity, deadline: float) -> Node | None:
        """Read one node from ZooKeeper, behind all writes committed before the call."""

    async def confirm(
        self,
        writer: str,
        expectations: Sequence[tuple[Tree, Entity, int | None]],
        deadline: float,
        *,
        layout: LayoutCheck | None = None,
    ) -> int | None:
        """Prove that nodes still are at the versions read (None: absent), by a write to the writer node.

        With a layout, that it still is as read, too.

        Returns:
            The revision at which they were, or None when one was not.

        Raises:
            UnknownTopicError: The cluster has topic metadata, and a topic is not among them.
        """

    async def check_admission(self, writes: Sequence[Write], deadline: float, *, guarded: bool = True) -> None:
        """Refuse writes that may not be tried now, before their intent.

        Raises:
            BodyTooLargeError: The serialized transaction is above ``zookeeper.max_packet``.
            ThrottledError: It would bring the notifications above ``notifications.max`` while brokers are registered.
            FrozenError: The cluster is frozen. Like the next, only where the transaction is ``guarded``.
            StaleControllerError: Brokers are registered and there is no ZooKeeper-mode controller.
            UnknownTopicError: The cluster has topic metadata, and a topic is not among them.
        """

    async def commit(self, transaction: Transaction, deadline: float) -> CommitResult:
        """Run the transaction. Applied nodes are in the mirror when it returns.

        Once it returned Committed for a freeze, no write of configs commits, whichever process tries.

        Raises:
            UnavailableError: Nothing was submitted, for certain.
            FrozenError: The same; the cluster was frozen after the admission.
            StaleControllerError: The same; the controller changed after the admission.
        """

    async def read_freeze(self, deadline: float) -> FreezeState:
        """Read from ZooKeeper whether the cluster is frozen, behind all writes committed before the call."""

    async def read_layout(self, deadline: float) -> LayoutState:
        """Read from ZooKeeper where the client configs are, behind all writes committed before the call.

        Raises:
            UnavailableError: ZooKeeper did not answer.
            CorruptZnodeError: What is stored there can't be read.
        """

    async def read_raw(self, path: str, deadline: float) -> bytes | None:
        """Read any znode, by its absolute path below the chroot, behind all writes committed before the call.

        Returns:
            Its data, empty where it has none, or None when it is absent.

        Raises:
            UnavailableError: ZooKeeper did not answer in time, or refused (rights).
        """

    async def has_writer(self, writer: str, deadline: float) -> bool:
        """Say whether a writer node exists, behind all writes committed before the call.

        Raises:
            UnavailableError: ZooKeeper did not answer.
        """

    async def settle(self, change_id: UUID, deadline: float) -> Marker | None:
        """Decide a change by its marker: create an abort marker, or find what stands there.

        Only for a change that had no outcome half a minute ago: markers are dropped a minute after the outcome.

        Returns:
            What stands now; None when a marker stood in the way and was dropped meanwhile: the outcome is durable.

        Raises:
            UnavailableError: ZooKeeper did not answer by the deadline; an abort marker may stand all the same.
            CorruptZnodeError: What stands there can't be read.
        """

    def new_change_id(self) -> UUID:
        """Return the id of a new change: a UUIDv7 by ZooKeeper's clock, above all that this process made before.

        Where nothing is known of ZooKeeper's clock yet, the own one counts.
        """

    def release_marker(self, change_id: UUID) -> None:
        """Let the marker of a change go, some time after its outcome was written and once it is durable."""


class Leadership(Protocol):
    """A process's part in who leads a cluster."""

    @property
    def held(self) -> bool:
        """Whether this process still leads, for all that its own clock and connection tell."""

    async def seek(self, deadline: float) -> bool:
        """Become or stay the leader if that can be, and say whether it is so; raises ``UnavailableError``."""
