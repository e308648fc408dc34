"""A change as one ZooKeeper transaction: its operations in their order, its size, and what ZooKeeper's answer means.

The order of operations: the writer node's set (nothing commits once the session counts as gone, and its Stat gives the
revision and the time), the guard's checks and those of topics, the config nodes with their missing parents, one
notification per path, the marker. ZooKeeper applies all of them or none, under one zxid.
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

from app.domain.changes import Node
from app.domain.entities import EntityType
from app.domain.errors import BodyTooLargeError, WriteOutcome
from app.domain.facets import Tree
from app.services.ports import Conflict, Layout, LayoutCheck, SessionEnded
from app.store import markers, znodes

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from app.domain.entities import Entity
    from app.services.compact import Removal
    from app.services.ports import EntityWrite, FreezeWrite, LayoutWrite, Transaction
    from app.store.access import Access

Operation = tuple[Any, ...]

WRITER_GONE: Final = "the writer node is gone"

_WRITER: Final = "writer"
_GUARD: Final = "guard"
_TOPIC: Final = "topic"
_CONFIG: Final = "config"
_NOTIFICATION: Final = "notification"
_NOTICE: Final = "notice"
_MARKER: Final = "marker"

_HEADER: Final = 9
"""Bytes of an operation's header within a transaction: type, done flag, error."""
_ENVELOPE: Final = 4 + 4 + 4 + _HEADER
"""Length, xid and type of the request, and the header that ends the list."""
_STAND_IN: Final = "0" * 36
_PRINCIPAL_ALLOWANCE: Final = 1024
"""Bytes set aside for principal and request id where a transaction is measured before they are known."""


@dataclass(slots=True)
class Plan:
    """The operations of one transaction and what each is for."""

    operations: list[Operation] = field(default_factory=list)
    roles: list[str] = field(default_factory=list)
    sets: list[int] = field(default_factory=list)
    """By write, in the order of the writes: the index of its operation."""
    parents: list[str] = field(default_factory=list)
    """Paths that are created without data."""

    def add(self, role: str, *operation: Any) -> None:
        """Append an operation."""
        self.operations.append(operation)
        self.roles.append(role)


@dataclass(frozen=True, slots=True)
class Applied:
    """What a successful answer tells."""

    revision: int
    time_ms: int
    nodes: tuple[Node, ...]
    sequences: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class GuardConflict:
    """The controller is not as it was read; it has to be read again before a new attempt."""


@dataclass(frozen=True, slots=True)
class RootsMissing:
    """A root below which notifications or markers are kept is gone; it has to be made again."""


@dataclass(frozen=True, slots=True)
class Refused:
    """ZooKeeper refused it for a reason of its own (rights, quotas); nothing was applied."""

    reason: str


Verdict = Applied | Conflict | SessionEnded | GuardConflict | RootsMissing | Refused


def plan(
    transaction: Transaction,
    *,
    guard: Sequence[Operation],
    missing: frozenset[str],
    topics: Sequence[str] = (),
) -> Plan:
    """Lay out a transaction.

    Args:
        transaction: What to commit.
        guard: The guard's check operations.
        missing: Ancestors of the config nodes that are absent and have to be created.
        topics: Topics that the cluster's metadata must have at that moment.

    Raises:
        ValueError: An entity is written twice.
    """
    result = Plan()
    result.add(_WRITER, "set", znodes.writer_path(transaction.writer), b"", -1)
    for operation in guard:
        result.add(_GUARD, *operation)
    for topic in topics:
        result.add(_TOPIC, "check", znodes.topic_path(topic), -1)
    paths = [znodes.path_of(write.tree, write.entity) for write in transaction.writes]
    if len(set(paths)) != len(paths):
        raise ValueError("An entity is written twice in one transaction")
    made = set(paths)
    result.sets = [0] * len(paths)
    # Parents first: an entity may be the parent of another that is created with it.
    for index in sorted(range(len(paths)), key=lambda each: paths[each].count("/")):
        write, path = transaction.writes[index], paths[index]
        data = znodes.encode_entity(write.config, write.extra)
        if write.expected is None:
            for parent in znodes.parents_of(write.tree, write.entity):
                if parent in missing and parent not in made:
                    made.add(parent)
                    result.parents.append(parent)
                    result.add(_CONFIG, "create", parent, None)
        result.sets[index] = len(result.operations)
        if write.expected is None:
            result.add(_CONFIG, "create", path, data)
        else:
            result.add(_CONFIG, "set", path, data, write.expected)
    for entity_path in dict.fromkeys(write.entity.path for write in transaction.writes):
        result.add(_NOTIFICATION, "sequence", znodes.CHANGE_PREFIX, znodes.encode_notification(entity_path))
    marker = markers.encode_committed(
        attempt=transaction.attempt,
        writer=transaction.writer,
        principal=transaction.principal,
        request_id=transaction.request_id,
        writes=[
            (path, 0 if write.expected is None else write.expected + 1)
            for path, write in zip(paths, transaction.writes, strict=True)
        ],
    )
    result.add(_MARKER, "create", znodes.marker_path(transaction.change_id), marker)
    return result


def layout_operation(check: LayoutCheck) -> Operation:
    """Return what has a transaction fail where the layout is another; it stores the layout where none was."""
    if check.claim is None:
        return ("check", znodes.LAYOUT, check.version)
    return ("set", znodes.LAYOUT, znodes.encode_layout(Layout(check.claim)), check.version)


def plan_freeze(change: FreezeWrite) -> Plan:
    """Lay out the transaction of a freeze or a thaw."""
    return _plan_own(change, znodes.FREEZE, znodes.encode_freeze(change.freeze), ())


def plan_layout(change: LayoutWrite, guard: Sequence[Operation]) -> Plan:
    """Lay out the transaction that sets the layout of client configs."""
    return _plan_own(change, znodes.LAYOUT, znodes.encode_layout(change.layout), guard)


def _plan_own(change: FreezeWrite | LayoutWrite, path: str, data: bytes, guard: Sequence[Operation]) -> Plan:
    """Lay out a change of one of this service's own nodes: the writer node, the guard, the node, the marker."""
    result = Plan()
    result.add(_WRITER, "set", znodes.writer_path(change.writer), b"", -1)
    for operation in guard:
        result.add(_GUARD, *operation)
    result.add(_CONFIG, "set", path, data, change.expected)
    marker = markers.encode_committed(
        attempt=change.attempt,
        writer=change.writer,
        principal=change.principal,
        request_id=change.request_id,
        writes=[(path, change.expected + 1)],
    )
    result.add(_MARKER, "create", znodes.marker_path(change.change_id), marker)
    return result


def plan_removal(removal: Removal, guard: Sequence[Operation]) -> Plan:
    """Lay out the removal of empty nodes: writer node, guard, the nodes from the bottom up, notifications, marker.

    The notifications are not told as this process's own: its mirror reads what they name like anybody's.
    """
    result = Plan()
    result.add(_WRITER, "set", znodes.writer_path(removal.writer), b"", -1)
    for operation in guard:
        result.add(_GUARD, *operation)
    nodes = removal.what.nodes
    for node in nodes:
        result.add(_CONFIG, "check", node.path, node.version)
    for path in sorted((*(node.path for node in nodes), *removal.what.folders), key=len, reverse=True):
        result.add(_CONFIG, "delete", path)
    for node in nodes:
        result.add(_NOTICE, "sequence", znodes.CHANGE_PREFIX, znodes.encode_notification(node.entity.path))
    marker = markers.encode_committed(
        attempt=1, writer=removal.writer, principal=removal.principal, request_id=removal.request_id, writes=[]
    )
    result.add(_MARKER, "create", znodes.marker_path(removal.change_id), marker)
    return result


def topics_of(entities: Iterable[Entity]) -> list[str]:
    """Return the names of the topics among entities."""
    firsts = (entity.components[0] for entity in entities)
    return [name for kind, name in firsts if kind is EntityType.TOPIC and name is not None]


def notifications_of(writes: Sequence[EntityWrite]) -> int:
    """Return how many notifications a transaction of these writes makes."""
    return len({write.entity.path for write in writes})


# ---------------------------------------------------------------- size


@dataclass(frozen=True, slots=True)
class Limits:
    """How large a transaction may be, and what its size depends on besides its operations."""

    max_packet: int
    """Bytes."""
    chroot: str
    access: Access


def packet_size(operations: Sequence[Operation], limits: Limits) -> int:
    """Return the length of the packet that a transaction makes, in bytes."""
    base = len(limits.chroot.encode())
    return _ENVELOPE + sum(_operation_size(operation, base, limits.access) for operation in operations)


def check_packet(operations: Sequence[Operation], limits: Limits) -> None:
    """Refuse a transaction that is above the limit.

    Raises:
        BodyTooLargeError: It is.
    """
    size = packet_size(operations, limits)
    if size > limits.max_packet:
        raise _too_large(size, limits)


def _operation_size(operation: Operation, chroot: int, access: Access) -> int:
    kind, path, *rest = operation
    size = _HEADER + 4 + chroot + len(path.encode())
    if kind == "check":
        return size + 4
    size += 4 + len(rest[0] or b"")
    return size + 4 if kind == "set" else size + access.acl_size(path) + 4


def check_size(writes: Sequence[EntityWrite], limits: Limits) -> None:
    """Refuse writes whose transaction would be too large, with room for what is not known yet.

    Raises:
        BodyTooLargeError: It would.
    """
    chroot, access = limits.chroot, limits.access
    largest = len(chroot) + access.largest_acl
    if sum(_at_most(write) for write in writes) + 4096 + len(writes) * 8 * largest < limits.max_packet:
        return
    size = _ENVELOPE + _PRINCIPAL_ALLOWANCE
    base = len(chroot.encode())
    # Writer, three checks of the guard, the layout, marker; its list of writes is counted with them.
    size += _operation_size(("set", znodes.writer_path(_STAND_IN), b"", -1), base, access)
    size += 3 * _operation_size(("check", znodes.CONTROLLER_EPOCH, -1), base, access)
    size += _operation_size(layout_operation(LayoutCheck(0, Tree.CLIENT_CONFIGS)), base, access)
    size += _operation_size(("create", f"{znodes.COMMITS}/{_STAND_IN}", b""), base, access)
    for write in writes:
        path = znodes.path_of(write.tree, write.entity)
        operation = ("create", path, znodes.encode_entity(write.config, write.extra))
        size += _operation_size(operation, base, access)
        for topic in topics_of([write.entity]):
            size += _operation_size(("check", znodes.topic_path(topic), -1), base, access)
        size += sum(
            _operation_size(("create", each, b""), base, access) for each in znodes.parents_of(write.tree, write.entity)
        )
        notification = znodes.encode_notification(write.entity.path)
        size += _operation_size(("create", f"{znodes.CHANGE_PREFIX}", notification), base, access)
        size += len(path.encode()) * 2 + 64
    if size > limits.max_packet:
        raise _too_large(size, limits)


def _at_most(write: EntityWrite) -> int:
    """Return more bytes than a write can take, without encoding it; nearly all are far below the limit."""
    text = sum(len(key) + len(value) + 8 for key, value in write.config.items())
    # A character takes at most 12 bytes escaped (two \\uXXXX); a path stands in the node's, its parents' and the
    # marker's operations and in the notification.
    return 12 * text + len(write.extra or b"") + 8 * len(write.entity.path.encode()) + 1024


def _too_large(size: int, limits: Limits) -> BodyTooLargeError:
    return BodyTooLargeError(
        f"The change makes a ZooKeeper transaction of about {size} bytes; at most {limits.max_packet} are allowed."
        " Send fewer entities at once, or smaller values",
        outcome=WriteOutcome.NOT_APPLIED,
    )


# ---------------------------------------------------------------- the answer


def judge(made: Plan, writes: Sequence[EntityWrite], results: Sequence[Any]) -> Verdict:
    """Say what ZooKeeper's list of results means.

    A failed transaction's list holds the real error at the operation that failed, and stand-ins at all others.
    """
    for role, result in zip(made.roles, results, strict=True):
        if isinstance(result, Exception) and not isinstance(result, (RolledBackError, RuntimeInconsistency)):
            return _refusal(role, result)
    if any(isinstance(result, Exception) for result in results):
        return Refused("without saying which operation failed")
    stat = results[0]
    nodes = []
    for write, index in zip(writes, made.sets, strict=True):
        created = write.expected is None
        if not created and results[index].mzxid != stat.mzxid:
            raise AssertionError("Operations of one ZooKeeper transaction have different zxids")
        nodes.append(_node(write, None if created else results[index], stat))
    sequences = tuple(
        int(result[-10:]) for role, result in zip(made.roles, results, strict=True) if role == _NOTIFICATION
    )
    return Applied(stat.mzxid, stat.mtime, tuple(nodes), sequences)


def parent_nodes(made: Plan, applied: Applied) -> list[tuple[Tree, Node]]:
    """Return the entities that a transaction created only as parents: empty, but there, with a version."""
    found = []
    for path in made.parents:
        for tree in Tree:
            entity_id = znodes.entity_id(path.removeprefix(f"{tree.value}/"))
            if entity_id is not None and path.startswith(f"{tree.value}/"):
                node = Node(entity_id, (), 0, applied.revision, applied.revision, applied.time_ms)
                found.append((tree, node))
    return found


def _node(write: EntityWrite, set_stat: Any, stat: Any) -> Node:
    items = tuple(part for pair in write.config.items() for part in pair)
    return Node(
        id=write.entity.id,
        items=znodes.shared_items(items),
        version=0 if set_stat is None else set_stat.version,
        czxid=stat.mzxid if set_stat is None else set_stat.czxid,
        mzxid=stat.mzxid,
        mtime_ms=stat.mtime,
        extra=write.extra,
    )


def _refusal(role: str, error: Exception) -> Verdict:
    if role == _WRITER and isinstance(error, NoNodeError):
        return SessionEnded(WRITER_GONE)
    if role == _MARKER and isinstance(error, NodeExistsError):
        return SessionEnded("the change's marker stands already")
    if role in {_NOTIFICATION, _NOTICE, _MARKER} and isinstance(error, NoNodeError):
        return RootsMissing()
    if isinstance(error, (BadVersionError, NoNodeError, NodeExistsError, NotEmptyError)):
        return GuardConflict() if role == _GUARD else Conflict()
    return Refused(f"{type(error).__name__} at the {role} operation")
