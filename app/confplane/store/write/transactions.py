"""Changes as one ZooKeeper transaction: its ordered operations, its size, and the classification of ZooKeeper's reply.

The order of operations: the writer node's set (nothing commits once the session counts as gone, and its Stat gives the
revision and the time), the checks of the guard and of topics, the config nodes with their missing parents, and for each
change one notification per path and the marker. ZooKeeper applies all of them or none, under one zxid.

Each operation belongs to one change, or to all of them: the writer node, the guard and the layout. A parent belongs to
the first change that needs it. So if ZooKeeper rejects a transaction of several changes, the failed change is known.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final

from kazoo.exceptions import (
    BadVersionError,
    NodeExistsError,
    NoNodeError,
    NotEmptyError,
    RolledBackError,
    RuntimeInconsistency,
)

from confplane.domain.changes import Node
from confplane.domain.entities import EntityType
from confplane.domain.errors import BodyTooLargeError, WriteOutcome
from confplane.domain.facets import Tree
from confplane.domain.fast_dataclass import fast_dataclass
from confplane.services.metrics import SECONDS, Histogram, Sample
from confplane.services.ports.cluster_states import Layout, LayoutCheck
from confplane.services.ports.transactions import Committed, Conflict, EntityWrite, Removal, SessionEnded, StateWrite
from confplane.store import znodes
from confplane.store.session.session import acl_of
from confplane.store.write import markers

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence
    from uuid import UUID

    from confplane.domain.entities import Entity
    from confplane.services.ports.transactions import Transaction, Write
    from confplane.store.session.access import NodeAcls
    from confplane.store.session.session import Operation

WRITER_GONE: Final = "the writer node is gone"

_WRITER: Final = "writer"
_GUARD: Final = "guard"
_TOPIC: Final = "topic"
_CONFIG: Final = "config"
_NOTIFICATION: Final = "notification"
_REMOVAL_NOTIFICATION: Final = "notice"
_MARKER: Final = "marker"

_HEADER: Final = 9
"""Bytes of an operation's header within a transaction: type, done flag, error."""
_ENVELOPE: Final = 4 + 4 + 4 + _HEADER
"""Length, xid and type of the request, and the header that ends the list."""
_STAND_IN: Final = "0" * 36
_PRINCIPAL_ALLOWANCE: Final = 1024
"""Bytes set aside for principal and request id where a transaction is measured before they are known."""
_SHARED_ALLOWANCE: Final = 256
"""Bytes set aside for each further change. Longer ones are refused in the measurement of the whole transaction."""
SHARED_PACKET: Final = 256 * 1024
"""Bytes of a transaction of several changes, at most. A larger one delays other requests' changes for longer."""


@dataclass(slots=True)
class Operations:
    """The operations of one transaction, with the role of each."""

    change_ids: list[UUID]
    operations: list[Operation] = field(default_factory=list)
    roles: list[str] = field(default_factory=list)
    owners: list[int | None] = field(default_factory=list)
    """For each operation the index of its change; None: it belongs to all changes."""
    written: list[tuple[Write, int]] = field(default_factory=list)
    """Each write with the index of the operation that sets or creates its node, in the order of the writes."""
    parents: list[str] = field(default_factory=list)
    """Paths that are created without data."""

    def add(self, role: str, owner: int | None, *operation: Any) -> None:
        """Append an operation."""
        self.operations.append(operation)
        self.roles.append(role)
        self.owners.append(owner)

    def change_of(self, index: int) -> UUID | None:
        """Return the change that an operation belongs to; None for an operation of all changes, or of a single one."""
        owner = self.owners[index]
        return None if owner is None or len(self.change_ids) == 1 else self.change_ids[owner]


@fast_dataclass(frozen=True, slots=True)
class TransactionApplied:
    """The content of a successful reply."""

    result: Committed
    entities: tuple[tuple[Tree, Node], ...]
    """The nodes of the entity writes, in order, and then those of entities that were created only as parents."""
    sequences: tuple[int, ...]
    """Numbers of the notifications whose nodes are all in ``entities``. There are none beside a removal: the mirror has
    the transaction's revision only once the removal's notification was read."""


@dataclass(frozen=True, slots=True)
class GuardConflict:
    """A rejection: the controller has changed and must be read again before a new attempt."""


@dataclass(frozen=True, slots=True)
class RootsMissing:
    """A rejection: a root of notifications or markers is gone and must be recreated."""


@dataclass(frozen=True, slots=True)
class TransactionRefused:
    """A rejection by ZooKeeper itself (rights, quotas); nothing was applied."""

    reason: str
    change_id: UUID | None = None
    """The refused change, as in :class:`Conflict`."""


TransactionResult = TransactionApplied | Conflict | SessionEnded | GuardConflict | RootsMissing | TransactionRefused


def operations_of(
    transaction: Transaction,
    *,
    guard: Sequence[Operation] = (),
    missing: frozenset[str] = frozenset(),
    topics: Sequence[str] = (),
) -> Operations:
    """Lay out a transaction: writer node, guard, config nodes, then each change's notifications and marker.

    Args:
        transaction: The transaction.
        guard: The guard's check operations.
        missing: Absent ancestors of the config nodes, which have to be created.
        topics: Topics that the cluster's metadata must have at that moment.

    Raises:
        ValueError: A znode is written twice.
    """
    result = Operations([change.change_id for change in transaction.changes])
    result.add(_WRITER, None, "set", znodes.writer_path(transaction.writer), b"", -1)
    for operation in guard:
        result.add(_GUARD, None, *operation)
    if transaction.layout is not None:
        result.add(_GUARD, None, *layout_operation(transaction.layout))
    if topics:
        _add_topics(result, transaction, frozenset(topics))
    _add_writes(result, transaction, missing)
    for owner, (intent, writes) in enumerate(zip(transaction.changes, transaction.writes, strict=True)):
        # This process's mirror reads the notification of a removal, like any other process's.
        roles: dict[str, str] = {}
        for write in writes:
            if (notified := _notified(write)) is not None:
                roles[notified] = _REMOVAL_NOTIFICATION if isinstance(write, Removal) else _NOTIFICATION
        for entity_path, role in roles.items():
            result.add(role, owner, "sequence", znodes.CHANGE_PREFIX, znodes.encode_notification(entity_path))
        result.add(
            _MARKER,
            owner,
            "create",
            znodes.marker_path(intent.change_id),
            markers.encode_committed(intent, writes),
        )
    return result


def _add_topics(result: Operations, transaction: Transaction, topics: frozenset[str]) -> None:
    for owner, writes in enumerate(transaction.writes):
        for topic in topics_of(entities_of(writes)):
            if topic in topics:
                result.add(_TOPIC, owner, "check", znodes.topic_path(topic), -1)


def _add_writes(result: Operations, transaction: Transaction, missing: frozenset[str]) -> None:
    writes = writes_of(transaction)
    owners = [owner for owner, own in enumerate(transaction.writes) for _ in own]
    paths = [write.path for write in writes]
    made = set(paths)
    if len(made) != len(paths):
        raise ValueError("A znode is written twice in one transaction")
    at = [0] * len(paths)
    # Parents first: an entity may be the parent of another that is created with it.
    for index in sorted(range(len(paths)), key=lambda each: paths[each].count("/")):
        write = writes[index]
        if isinstance(write, EntityWrite) and write.expected is None:
            for parent in znodes.parents_of(write.tree, write.entity):
                if parent in missing and parent not in made:
                    made.add(parent)
                    result.parents.append(parent)
                    result.add(_CONFIG, owners[index], "create", parent, None)
        at[index] = len(result.operations)
        result.add(_CONFIG, owners[index], *_operation(write))
    result.written = list(zip(writes, at, strict=True))
    # All versions are checked by now, and children are removed first.
    removed = [
        (path, owner) for path, owner, write in zip(paths, owners, writes, strict=True) if isinstance(write, Removal)
    ]
    for path, owner in sorted(removed, key=lambda each: len(each[0]), reverse=True):
        result.add(_CONFIG, owner, "delete", path)


def _operation(write: Write) -> Operation:
    """Return the operation that writes a node, or that checks the version of a node to remove."""
    if isinstance(write, Removal):
        return ("check", write.path, -1 if write.expected is None else write.expected)
    if isinstance(write, StateWrite):
        return ("set", write.path, znodes.encode_state(write.value), write.expected)
    data = znodes.encode_entity(write.config, write.extra)
    return ("create", write.path, data) if write.expected is None else ("set", write.path, data, write.expected)


def layout_operation(check: LayoutCheck) -> Operation:
    """Return the operation that fails the transaction under another layout; it stores a layout if there is none."""
    if check.claim is None:
        return ("check", znodes.LAYOUT, check.version)
    return ("set", znodes.LAYOUT, znodes.encode_layout(Layout(check.claim)), check.version)


def writes_of(transaction: Transaction) -> list[Write]:
    """Return the writes of all changes, in order."""
    return [write for writes in transaction.writes for write in writes]


def topics_of(entities: Iterable[Entity]) -> list[str]:
    """Return the names of the topics among entities."""
    firsts = (entity.components[0] for entity in entities)
    return [name for kind, name in firsts if kind is EntityType.TOPIC and name is not None]


def entities_of(writes: Iterable[Write]) -> list[Entity]:
    """Return the entities whose nodes are set or created."""
    return [write.entity for write in writes if isinstance(write, EntityWrite)]


def notifications_of(writes: Iterable[Write]) -> int:
    """Return the number of notifications in a transaction of these writes."""
    return len({_notified(write) for write in writes} - {None})


def _notified(write: Write) -> str | None:
    """Return the entity path that the brokers are notified of; None for a write that they know nothing of."""
    return None if isinstance(write, StateWrite) or write.entity is None else write.entity.path


# ---------------------------------------------------------------- size


@dataclass(frozen=True, slots=True)
class PacketLimits:
    """The limit of a transaction's size, and the inputs of the size besides the operations."""

    max_packet: int
    """The limit in bytes."""
    chroot: str
    acls: NodeAcls

    @property
    def shared_packet(self) -> int:
        """The limit of a transaction of several changes."""
        return min(SHARED_PACKET, self.max_packet)


def packet_size(operations: Sequence[Operation], limits: PacketLimits) -> int:
    """Return the length of a transaction's packet in bytes."""
    base = len(limits.chroot.encode())
    return _ENVELOPE + sum(_operation_size(operation, base, limits.acls) for operation in operations)


def check_packet(operations: Sequence[Operation], limits: PacketLimits) -> None:
    """Refuse a transaction that is above the limit.

    Raises:
        BodyTooLargeError: The transaction is above the limit.
    """
    size = packet_size(operations, limits)
    if size > limits.max_packet:
        raise _too_large(size, limits.max_packet)


def _operation_size(operation: Operation, chroot: int, acls: NodeAcls) -> int:
    kind, path, *rest = operation
    size = _HEADER + 4 + chroot + len(path.encode())
    if kind in {"check", "delete"}:
        return size + 4
    size += 4 + len(rest[0] or b"")
    return size + 4 if kind == "set" else size + len(acl_of(acls, path)) + 4


def check_size(writes: Sequence[Write], limits: PacketLimits, changes: int = 1) -> int:
    """Refuse writes whose transaction would be too large, with room for parts that are not known yet.

    Returns the greatest size that the transaction may have.

    Args:
        writes: The writes.
        limits: The limit, and the inputs of the size.
        changes: The number of changes.

    Raises:
        BodyTooLargeError: The transaction would be above the limit.
    """
    most = limits.max_packet if changes == 1 else limits.shared_packet
    size = estimate(writes, limits, changes)
    if size >= most:
        size = measure(writes, limits, changes)
        if size > most:
            raise _too_large(size, most)
    return size


def measure(writes: Sequence[Write], limits: PacketLimits, changes: int) -> int:
    """Return the size of a transaction of these writes, with room for parts that are not known yet."""
    acls, base = limits.acls, len(limits.chroot.encode())
    size = _ENVELOPE + _PRINCIPAL_ALLOWANCE + (changes - 1) * _SHARED_ALLOWANCE
    # Writer, four checks of the guard, the layout, markers; a marker's list of writes is counted with the writes.
    size += _operation_size(("set", znodes.writer_path(_STAND_IN), b"", -1), base, acls)
    size += 4 * _operation_size(("check", znodes.CONTROLLER_EPOCH, -1), base, acls)
    size += _operation_size(layout_operation(LayoutCheck(0, Tree.CLIENT_CONFIGS)), base, acls)
    size += changes * _operation_size(("create", f"{znodes.COMMITS}/{_STAND_IN}", b""), base, acls)
    for write in writes:
        size += _operation_size(_operation(write), base, acls)
        if isinstance(write, EntityWrite):
            for topic in topics_of([write.entity]):
                size += _operation_size(("check", znodes.topic_path(topic), -1), base, acls)
            for parent in znodes.parents_of(write.tree, write.entity):
                size += _operation_size(("create", parent, b""), base, acls)
        elif isinstance(write, Removal):
            size += _operation_size(("delete", write.path), base, acls)
        if (notified := _notified(write)) is not None:
            notification = znodes.encode_notification(notified)
            size += _operation_size(("create", znodes.CHANGE_PREFIX, notification), base, acls)
        size += len(write.path.encode()) * 2 + 64
    return size


def estimate(writes: Sequence[Write], limits: PacketLimits, changes: int) -> int:
    """Return no less than :func:`measure`, without encoding anything; nearly all writes are far below the limit."""
    root = len(limits.chroot.encode()) + len(limits.acls.others)
    size = 4096 + 8 * root + changes * (512 + root)
    for write in writes:
        # Operations of the node, of its parents or its topic, and of the notification; client configs have a parent
        # more. The path is in each of them at most, in the notification's data, and twice in the marker's list.
        operations = 5 if isinstance(write, EntityWrite) and write.tree is Tree.CLIENT_CONFIGS else 4
        size += 192 + operations * (25 + root) + 8 * len(write.path.encode())
        if isinstance(write, EntityWrite):
            size += len(write.extra or b"")
            for key, value in write.config.items():
                size += 8 + _escaped(key) + _escaped(value)
        elif isinstance(write, StateWrite):
            size += 12 * len(str(write.value))
    return size


def _escaped(text: str) -> int:
    """Return more bytes than a text can take in JSON: two escapes of six bytes for a character, at most."""
    return len(text) * (2 if text.isascii() and text.isprintable() else 12)


def _too_large(size: int, most: int) -> BodyTooLargeError:
    return BodyTooLargeError(
        f"The change makes a ZooKeeper transaction of about {size} bytes; at most {most} are allowed."
        " Send fewer entities at once, or smaller values",
        outcome=WriteOutcome.NOT_APPLIED,
    )


# ---------------------------------------------------------------- the reply


def classify_reply(made: Operations, results: Sequence[Any]) -> TransactionResult:
    """Return the result of a transaction by ZooKeeper's list of results.

    A failed transaction's list holds the real error at the operation that failed, and stand-ins at all others.
    """
    if any(isinstance(result, Exception) for result in results):
        return _refused(made, results)
    stat = results[0]
    entities: list[tuple[Tree, Node]] = []
    versions: dict[str, int] = {}
    recreated: dict[str, int] = {}
    for write, index in made.written:
        if isinstance(write, Removal):
            continue
        was_set = None if write.expected is None else results[index]
        if was_set is not None and was_set.mzxid != stat.mzxid:
            raise AssertionError("Operations of one ZooKeeper transaction have different zxids")
        versions[write.path] = 0 if was_set is None else was_set.version
        # A transaction can check versions and nothing else, and the versions of a recreated znode start again at 0.
        if was_set is not None and write.czxid is not None and was_set.czxid != write.czxid:
            recreated[write.path] = was_set.czxid
        if isinstance(write, EntityWrite):
            entities.append((write.tree, _node(write, was_set, stat)))
    given = () if _REMOVAL_NOTIFICATION in made.roles else zip(made.roles, results, strict=True)
    sequences = tuple(int(result[-10:]) for role, result in given if role == _NOTIFICATION)
    nodes = tuple(node for _, node in entities)
    entities += _parent_nodes(made, stat)
    return TransactionApplied(Committed(stat.mzxid, stat.mtime, nodes, versions, recreated), tuple(entities), sequences)


def _refused(made: Operations, results: Sequence[Any]) -> TransactionResult:
    for index, (role, result) in enumerate(zip(made.roles, results, strict=True)):
        if isinstance(result, Exception) and not isinstance(result, (RolledBackError, RuntimeInconsistency)):
            return _refusal(role, made.change_of(index), result)
    return TransactionRefused("without saying which operation failed")


def _parent_nodes(made: Operations, stat: Any) -> list[tuple[Tree, Node]]:
    """Return the entities that a transaction created only as parents: empty, but existing, with a version."""
    found = []
    for path in made.parents:
        for tree in Tree:
            entity_id = znodes.entity_id(path.removeprefix(f"{tree.value}/"))
            if entity_id is not None and path.startswith(f"{tree.value}/"):
                found.append((tree, Node(entity_id, (), 0, stat.mzxid, stat.mzxid, stat.mtime)))
    return found


def _node(write: EntityWrite, set_stat: Any, stat: Any) -> Node:
    return Node(
        id=write.entity.id,
        items=znodes.items_of(write.config),
        version=0 if set_stat is None else set_stat.version,
        czxid=stat.mzxid if set_stat is None else set_stat.czxid,
        mzxid=stat.mzxid,
        mtime_ms=stat.mtime,
        extra=write.extra,
    )


def _refusal(role: str, change_id: UUID | None, error: Exception) -> TransactionResult:
    if role == _WRITER and isinstance(error, NoNodeError):
        return SessionEnded(WRITER_GONE)
    if role == _MARKER and isinstance(error, NodeExistsError):
        return SessionEnded("the change's marker stands already", change_id)
    if role in {_NOTIFICATION, _REMOVAL_NOTIFICATION, _MARKER} and isinstance(error, NoNodeError):
        return RootsMissing()
    if isinstance(error, (BadVersionError, NoNodeError, NodeExistsError, NotEmptyError)):
        return GuardConflict() if role == _GUARD else Conflict(change_id)
    return TransactionRefused(f"{type(error).__name__} at the {role} operation", change_id)


_UNKNOWN: Final = "unknown"
_RESULTS: Final[dict[type, str]] = {
    TransactionApplied: "committed",
    Conflict: "conflict",
    GuardConflict: "conflict",
    RootsMissing: "conflict",
    SessionEnded: "session_ended",
    TransactionRefused: "refused",
}


class TransactionMetrics:
    """Counts and times submitted transactions by result."""

    def __init__(self) -> None:
        self._durations = {result: Histogram(SECONDS) for result in (*_RESULTS.values(), _UNKNOWN)}

    def record(self, result: TransactionResult | None, seconds: float) -> None:
        """Record the result of a transaction; None if the reply was lost."""
        self._durations[_RESULTS.get(type(result), _UNKNOWN)].add(seconds)

    def metrics(self) -> Iterator[Sample]:
        """Return the metrics."""
        for result, histogram in self._durations.items():
            yield Sample("transaction_duration_seconds", histogram, (result,))
