"""ZooKeeper's transaction (opcode 14) as one request, laid out in one pass: kazoo makes objects of each operation.

The ACL of a new node is open, or secure. Open is Kafka's default: anyone may do anything. Secure is the ACL of brokers
with ``zookeeper.set.acl=true``: all rights for the creator, and reading for anyone except below ``/config/users`` and
``/config/brokers``, which hold SCRAM keys and passwords. Of this service's own nodes, markers and the freeze can't be
read by anyone either: they hold principals, request ids and reasons. Brokers name the creator alone. Here two parties
may need the nodes: the brokers, whose identity the ACL names, and this service, by the credentials of its session
(scheme ``auth``, which ZooKeeper replaces by the session's identity). Existing nodes keep their ACL.

Source: core/src/main/scala/kafka/zk/ZkData.scala (defaultAcls, sensitivePath);
org.apache.zookeeper.MultiOperationRecord, MultiResponse; CreateRequest, SetDataRequest, CheckVersionRequest.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from kazoo.exceptions import EXCEPTIONS, MarshallingError
from kazoo.protocol.serialization import (
    CheckVersion,
    Create,
    Delete,
    SetData,
    Transaction,
    int_struct,
    multiheader_struct,
    stat_struct,
    write_string,
)
from kazoo.protocol.states import ZnodeStat
from kazoo.security import ACL, AUTH_IDS, OPEN_ACL_UNSAFE, READ_ACL_UNSAFE, Id, Permissions

from confplane.store import znodes

if TYPE_CHECKING:
    from collections.abc import Sequence

Operation = tuple[Any, ...]
"""``("set", path, data, version)``, ``("check", path, version)``, ``("create", path, data)``, ``("sequence", path,
data)``, ``("ephemeral", path, data)`` or ``("delete", path)``. The data None are those of a node without data."""

_ERROR: Final = -1
_END: Final = multiheader_struct.pack(-1, 1, -1)
_NO_DATA: Final = int_struct.pack(-1)
_ANY_VERSION: Final = int_struct.pack(-1)
_KINDS: Final[dict[str, int]] = {"set": SetData.type, "check": CheckVersion.type, "delete": Delete.type}
_HEADS: Final = {
    kind: multiheader_struct.pack(_KINDS.get(kind, Create.type), 0, -1)
    for kind in ("set", "check", "delete", "create", "ephemeral", "sequence")
}
_FLAGS: Final = {"create": int_struct.pack(0), "ephemeral": int_struct.pack(1), "sequence": int_struct.pack(2)}
"""The flags of each kind of creation."""
_SENSITIVE: Final = ("/config/users", "/config/brokers", f"{znodes.COMMITS}/", znodes.FREEZE)


class NodeAcls:
    """The ACLs of new nodes, as they are in a request.

    Args:
        identity: The brokers' ZooKeeper identity, ``scheme:id``; None for the open ACL.

    Attributes:
        largest: The greatest size of an ACL, in bytes.
    """

    def __init__(self, identity: str | None = None) -> None:
        sensitive: list[ACL] = OPEN_ACL_UNSAFE
        others: list[ACL] = OPEN_ACL_UNSAFE
        if identity is not None:
            scheme, _, name = identity.partition(":")
            sensitive = [ACL(Permissions.ALL, Id(scheme, name)), ACL(Permissions.ALL, AUTH_IDS)]
            others = [*sensitive, *READ_ACL_UNSAFE]
        self._sensitive, self._others = _encoded(sensitive), _encoded(others)
        self.largest = len(self._others)

    def of(self, path: str) -> bytes:
        """Return the ACL of a new node; the path is below the chroot."""
        # The test is a plain prefix, as in Kafka.
        return self._sensitive if path.startswith(_SENSITIVE) else self._others


def _encoded(acl: list[ACL]) -> bytes:
    # A count; for each entry its rights and two strings with their lengths.
    parts = [int_struct.pack(len(acl))]
    for each in acl:
        parts += int_struct.pack(each.perms), write_string(each.id.scheme), write_string(each.id.id)
    return b"".join(parts)


class Multi:
    """One transaction, in the form of kazoo's own requests.

    Args:
        operations: The operations, with paths below the chroot that znodes can have.
        chroot: ``""`` or ``/path``.
        acls: The ACLs of new nodes.
    """

    type = Transaction.type

    def __init__(self, operations: Sequence[Operation], chroot: str, acls: NodeAcls) -> None:
        self._operations = operations
        self._chroot = chroot
        self._acls = acls

    def serialize(self) -> bytes:
        """Return the request's bytes."""
        number, chroot, acl_of = int_struct.pack, self._chroot, self._acls.of
        parts: list[bytes] = []
        for operation in self._operations:
            kind, below = operation[:2]
            path = (chroot + below).encode()
            parts += _HEADS[kind], number(len(path)), path
            if kind == "check":
                parts.append(number(operation[2]))
            elif kind == "delete":
                parts.append(_ANY_VERSION)
            else:
                data = operation[2]
                parts += (_NO_DATA,) if data is None else (number(len(data)), data)
                parts += (number(operation[3]),) if kind == "set" else (acl_of(below), _FLAGS[kind])
        parts.append(_END)
        return b"".join(parts)

    def deserialize(self, buffer: bytes, offset: int) -> list[Any]:
        """Return the results of the operations, in order.

        The result of a creation is the path, that of a set the Stat, that of a check or deletion True; that of an
        operation of a refused transaction is an exception.

        Raises:
            MarshallingError: The reply is not of a transaction.
            struct.error: The reply ends too early.
        """
        results: list[Any] = []
        header, number = multiheader_struct.unpack_from, int_struct.unpack_from
        while True:
            kind, done, _ = header(buffer, offset)
            offset += multiheader_struct.size
            if done:
                return results
            if kind == Create.type:
                start = offset + int_struct.size
                offset = start + number(buffer, offset)[0]
                results.append(buffer[start:offset].decode())
            elif kind == SetData.type:
                results.append(ZnodeStat._make(stat_struct.unpack_from(buffer, offset)))
                offset += stat_struct.size
            elif kind in {CheckVersion.type, Delete.type}:
                results.append(True)
            elif kind == _ERROR:
                results.append(EXCEPTIONS[number(buffer, offset)[0]]())
                offset += int_struct.size
            else:
                raise MarshallingError(f"result {len(results)} of a transaction is of the unknown kind {kind}")
