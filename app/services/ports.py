"""What the use cases need of the outside world. ``app.store`` and ``app.audit`` implement these.

A :class:`ClusterStore` is one cluster's ZooKeeper. Its reads are of the mirror: synchronous and free of I/O. What goes
to ZooKeeper is ``async``, takes a deadline on ``time.monotonic()``'s clock, and raises ``UnavailableError`` when there
is no live session.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from datetime import UTC, datetime
from enum import StrEnum
from typing import TYPE_CHECKING, Any, ClassVar, Final, Protocol

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
    from uuid import UUID

    from app.domain.changes import Node
    from app.domain.entities import Entity
    from app.domain.facets import Tree
    from app.services.notices import Notice


# ---------------------------------------------------------------- ZooKeeper


@dataclass(frozen=True, slots=True)
class LayoutCheck:
    """What a transaction of client configs rests on: where they are (docs/architecture.md, "Layout of client configs").

    The version is that of the layout's znode, which must not have changed.
    """

    version: int
    claim: Tree | None = None
    """Nobody has said yet where they are: this transaction does."""


@dataclass(frozen=True, slots=True)
class EntityWrite:
    """An entity's config node: set at the version read, or created where ``expected`` is None (absent)."""

    tree: Tree
    entity: Entity
    expected: int | None
    config: dict[str, str]
    extra: bytes | None = None
    czxid: int | None = None
    """Of the node that was read; None where there was none, or where it does not matter."""

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
    """One of this service's own nodes that hold a state of the whole cluster, set at the version read."""

    path: str
    expected: int
    value: Freeze | Layout | None
    """None empties the node."""
    czxid: int | None = None
    """Of the node that was read."""
    notifies: ClassVar[str | None] = None
    """Brokers know nothing of these nodes."""


@dataclass(frozen=True, slots=True)
class Removal:
    """An empty node that is removed at the version read: an entity's, or a folder between entities."""

    path: str
    """Full path of the znode."""
    entity: Entity | None = None
    """None for a folder, which is removed at any version."""
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
    layout: LayoutCheck | None = None
    """Of client configs."""
    guarded: bool = True
    """True where the transaction carries the checks of freeze and controller. A freeze and a thaw carry none."""

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
    """ZooKeeper's time of it, milliseconds since the epoch."""
    nodes: tuple[Node, ...]
    """The entities' nodes afterwards, in the order of the entity writes."""
    versions: dict[str, int] = field(default_factory=dict)
    """See :class:`Outcome`."""
    remade: dict[str, int] = field(default_factory=dict)
    """See :class:`Outcome`."""


@dataclass(frozen=True, slots=True)
class Conflict:
    """ZooKeeper refused it because something was not as read; nothing was applied, a new attempt may be made."""


@dataclass(frozen=True, slots=True)
class SessionEnded:
    """ZooKeeper refused it: the writer counts as gone, or the marker stands. This change can't commit any more."""

    reason: str


@dataclass(frozen=True, slots=True)
class Unknown:
    """It was submitted and no reply came: applied, or not, or yet to be. Never followed by a new attempt."""


CommitResult = Committed | Conflict | SessionEnded | Unknown


@dataclass(frozen=True, slots=True)
class Marker:
    """What decides how a change ended (docs/architecture.md, "Settling")."""

    change_id: UUID
    committed: bool
    """False: the marker is a tombstone, and the change can't commit any more."""
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


@dataclass(frozen=True, slots=True)
class Freeze:
    """Why no config of a cluster may be written, who decided it, and when."""

    reason: str
    principal: str | None
    """None where the stored freeze can't be read; ``reason`` says so then."""
    since_ms: int

    def __str__(self) -> str:
        """Return it as part of a sentence."""
        since = datetime.fromtimestamp(self.since_ms / 1000, UTC).isoformat(timespec="seconds").replace("+00:00", "Z")
        return f"since {since} by {self.principal or 'somebody'}: {self.reason}"


@dataclass(frozen=True, slots=True)
class FreezeState:
    """A cluster's freeze, if there is one, as ZooKeeper has it at a version."""

    version: int
    freeze: Freeze | None
    czxid: int | None = None
    """Of the znode."""


@dataclass(frozen=True, slots=True)
class Layout:
    """Which tree has a cluster's client configs."""

    tree: Tree
    source: Tree | None = None
    """They are being moved: this tree may have some of them still."""

    def __str__(self) -> str:
        """Return it as part of a sentence."""
        return self.tree.layout if self.source is None else f"{self.tree.layout}, being moved from {self.source.layout}"


@dataclass(frozen=True, slots=True)
class LayoutState:
    """A cluster's layout, as ZooKeeper has it at a version; None before anybody has written client configs."""

    version: int
    layout: Layout | None
    czxid: int | None = None
    """Of the znode."""


@dataclass(frozen=True, slots=True)
class Place:
    """Where a process finds a cluster's client configs, for all that it has followed."""

    tree: Tree
    """The stored layout's, or that of the settings where none is stored."""
    source: Tree | None = None
    """Where those are to be looked for that ``tree`` has not."""
    moving: bool = False
    settled: bool = False
    """Whether a layout is stored."""
    version: int = -1
    """Of the layout's znode; -1 as long as it was not read."""
    defect: str | None = None
    """Why that can't be read; it is as it was before then."""


PAGE_BYTES: Final = 4 * 1024 * 1024
"""Bytes of rows after which a page of any list ends, full or not; it always has a row."""


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
    """Findings an operator should know: stray children of /config/changes, undecodable nodes."""
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
        """Decide a change by its marker: create a tombstone, or find what stands there.

        Only for a change that had no outcome half a minute ago: markers are dropped a minute after the outcome.

        Returns:
            What stands now; None when a marker stood in the way and was dropped meanwhile: the outcome is durable.

        Raises:
            UnavailableError: ZooKeeper did not answer by the deadline; a tombstone may stand all the same.
            CorruptZnodeError: What stands there can't be read.
        """

    def new_change_id(self) -> UUID:
        """Return the id of a new change: a UUIDv7 by ZooKeeper's clock, above all that this process made before.

        Where nothing is known of ZooKeeper's clock yet, the own one counts.
        """

    def release_marker(self, change_id: UUID) -> None:
        """Let the marker of a change go, some time after its outcome became durable."""


# ---------------------------------------------------------------- Postgres


@dataclass(frozen=True, slots=True)
class IntentEntity:
    """One entity of an intent: what was read, what was asked, what will be stored.

    The values of secrets, and of keys of no facet, are None.
    """

    entity_id: str
    facet: str
    path: str
    version_read: int | None
    czxid_read: int | None
    keys: tuple[str, ...]
    """The keys whose values differ."""
    ops: tuple[dict[str, Any], ...]
    before: dict[str, str | None]
    after: dict[str, str | None]


@dataclass(frozen=True, slots=True)
class Intent:
    """One attempt, durable before its transaction is submitted."""

    change_id: UUID
    attempt: int
    cluster: str
    writer: str
    principal: str
    source: str
    """The caller's address."""
    request_id: str
    reason: str | None
    ticket: str | None
    entities: tuple[IntentEntity, ...]


@dataclass(frozen=True, slots=True)
class Claim:
    """The Idempotency-Key under which an intent is made (app/services/idempotency.py). It holds no secret."""

    key: str
    """A digest of who sent which key to what."""
    key_id: UUID
    holder: UUID
    """Whose turn it has to be."""
    fresh: bool
    """The key was not there when the request began, so this makes it; otherwise it must be there."""
    body: str
    """A digest of the request's body."""
    seconds: float
    """How long the request may still take."""
    results: list[dict[str, Any]]
    """What the change would be answered with."""


@dataclass(frozen=True, slots=True)
class Outcome:
    """How a change ended. The first outcome of a change stands."""

    change_id: UUID
    attempt: int
    cluster: str
    committed: bool
    revision: int | None = None
    time_ms: int | None = None
    versions: dict[str, int] = field(default_factory=dict)
    """Full znode path -> version."""
    error_code: int | None = None
    error: str | None = None
    remade: dict[str, int] = field(default_factory=dict)
    """Full znode path -> czxid, of znodes that others deleted and made again between the read and the transaction, so
    that they had the version that was read: what others wrote into them was overwritten, and nobody saw it."""


@dataclass(frozen=True, slots=True)
class AuditQuery:
    """A search of the trail; None means any. Newest first."""

    cluster: str
    entity_id: str | None = None
    key: str | None = None
    principal: str | None = None
    since: datetime | None = None
    until: datetime | None = None
    outcome: str | None = None
    """``committed``, ``rejected`` or ``open`` (no outcome yet)."""
    page_size: int = 100
    before: UUID | None = None
    """Cursor: only changes older than this one."""


@dataclass(frozen=True, slots=True)
class AuditRecord:
    """A change as the trail tells it: its last attempt and, when known, its outcome."""

    intent: Intent
    created_at: datetime
    outcome: Outcome | None
    recorded_at: datetime | None
    kind: str = "change"
    """``change``; ``external``: made by others, and found by the recorder (app/services/record.py); ``recovered``: made
    by this service, lost with Postgres's rows and found by its marker."""
    writes: int | None = None
    """Of an external or a recovered change: how many writes it certainly was."""


class AuditLog(Protocol):
    """The trail."""

    async def intend(self, intents: Sequence[Intent], claim: Claim | None = None) -> None:
        """Make intents durable. Rows of concurrent calls share a commit.

        With a claim, the key becomes durable in the same transaction, and an intent of a key that is not the holder's
        (any more) is refused.

        Raises:
            IdempotencyKeyBusyError: The key is another request's; nothing was recorded.
            UnavailableError: Postgres did not confirm them; ``outcome`` is not_applied.
        """

    async def conclude(self, outcomes: Sequence[Outcome]) -> bool:
        """Make outcomes durable; False when Postgres could not confirm now (they are kept and sent again)."""

    async def search(self, query: AuditQuery) -> tuple[list[AuditRecord], UUID | None]:
        """Return one page and the cursor of the next, or None.

        Raises:
            UnavailableError: Postgres is away.
        """

    async def get(self, cluster: str, change_id: UUID) -> AuditRecord | None:
        """Return one change.

        Raises:
            UnavailableError: Postgres is away.
        """

    async def check(self) -> list[Notice]:
        """Return warnings about the database (migrations missing, synchronous_commit off, ownership of tables).

        Raises:
            UnavailableError: Postgres is away.
        """


@dataclass(frozen=True, slots=True)
class Registration:
    """Which configs a client software said it supports, for one ``<user, client-id>`` or ``<user>`` (KIP-649)."""

    cluster: str
    entity_id: str
    software_name: str
    software_version: str
    supported_configs: tuple[str, ...]
    """Sorted, without repeats."""


class RegistrationLog(Protocol):
    """Registrations: append-only in Postgres, deduplicated and answered from memory."""

    def record(self, registration: Registration) -> None:
        """Take a registration; never waits, never fails. Written in the background unless already known."""

    def registered(self, cluster: str) -> Collection[str]:
        """Return the ids of the entities that have registrations, from memory, in no order."""

    def compatibility(self, cluster: str, entity_id: str) -> list[Registration]:
        """Return what is known of one entity, from memory, ordered by software name and version."""

    async def search(
        self, cluster: str, *, entity_id: str | None, page_size: int, after: str | None
    ) -> tuple[list[tuple[Registration, datetime, datetime]], str | None]:
        """Return a page of (registration, first seen, last seen) ordered by entity id, and the next cursor.

        Raises:
            UnavailableError: Postgres is away.
        """

    async def clear(self, cluster: str, *, entity_id: str | None, principal: str, request_id: str) -> int:
        """Append the clearing of an entity's registrations (None: all of the cluster); return how many it hid.

        Raises:
            UnavailableError: Postgres is away.
        """


# ---------------------------------------------------------------- sensitive configs


class Cipher(Protocol):
    """Sensitive broker configs of one cluster, as its brokers store them.

    All of it takes milliseconds of CPU, in proportion to the iterations that a value was encoded with: call it in a
    worker thread, never on the event loop. No error that it raises holds a value.
    """

    def encode(self, broker_id: int, key: str, plain: str) -> str:
        """Return what is stored for a plain value, under the broker's current secret; another text at each call.

        Raises:
            EncoderSecretMissingError: The broker has no secret; the message says which setting to set.
            InvalidRequestError: The value is not Unicode text.
        """

    def decode(self, broker_id: int, key: str, stored: str) -> str:
        """Return the plain value, whichever of the broker's secrets (current, old) it is under.

        Raises:
            EncoderSecretMissingError: The broker has no secret.
            UndecodablePasswordError: Neither secret opens it. Brokers ignore such a value.
        """

    def matches(self, broker_id: int, key: str, stored: str, plain: str) -> bool:
        """Say whether a stored value is this plain one, compared in constant time; raises what ``decode`` does."""

    def fingerprint(self, broker_id: int | None, key: str, plain: str) -> str | None:
        """Return a keyed fingerprint of a plain value: the same however often it is encoded anew under a secret.

        Args:
            broker_id: Whose secret is the key; None for the cluster-wide default, which has the cluster's.
            key: The config key, which goes into it.
            plain: The value.

        Returns:
            16 hex digits, or None where there is no secret.
        """


class Redactor(Protocol):
    """What may be told of broker configs. Nothing that it returns holds a sensitive value or what is stored of it."""

    def fingerprints(self, broker_id: int | None, config: Mapping[str, str]) -> dict[str, str | None]:
        """Return the fingerprint of each sensitive key of a stored map, None where it can't be known.

        It decodes: call it in a worker thread.
        """


@dataclass(frozen=True, slots=True)
class Rotation:
    """What a new encoder secret makes of one broker's stored map. Its representation shows keys, never values."""

    config: dict[str, str] = field(repr=False)
    """The whole map to store: all other keys as they were, in their order."""
    reencoded: tuple[str, ...] = ()
    """Keys that were under the old secret, or of a cipher that a broker with these parameters can't read."""
    current: tuple[str, ...] = ()
    """Keys that already were under the current secret, untouched."""
    undecodable: tuple[str, ...] = ()
    """Keys that no secret opens, untouched. Brokers ignore them too: they must be set anew."""
    old_known: bool = True
    """Whether the broker has an old secret, so that keys under it can be told from those that nothing opens."""

    @property
    def needed(self) -> bool:
        """Whether there is anything to write."""
        return bool(self.reencoded)


class Rotator(Protocol):
    """Brings what brokers have stored under their current secrets."""

    def rotate(self, broker_id: int, stored: Mapping[str, str]) -> Rotation:
        """Encode anew what is not under the broker's current secret yet; call it in a worker thread.

        Raises:
            EncoderSecretMissingError: There are passwords, and the broker has no secret.
        """


def full_path(tree: Tree, entity: Entity) -> str:
    """Return the znode's path below the chroot."""
    return f"{tree.value}/{entity.path}"


def latest(revisions: Iterable[int | None]) -> int:
    """Return the highest revision that is known, or 0."""
    return max((revision for revision in revisions if revision is not None), default=0)
