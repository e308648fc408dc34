"""A transaction as one request: the bytes are kazoo's own, and each result is taken for what it is."""

from __future__ import annotations

import struct
from typing import Any

import pytest
from kazoo.exceptions import MarshallingError, NoNodeError, RolledBackError
from kazoo.protocol.serialization import CheckVersion, Create, Delete, SetData, Transaction
from kazoo.protocol.states import ZnodeStat

from confplane.store.session.access import ZooKeeperAccess
from confplane.store.session.session import Multi
from tests.support.stores import acl_of

OPERATIONS: list[tuple[Any, ...]] = [
    ("set", "/confplane/writers/w", b"", -1),
    ("check", "/controller_epoch", 7),
    ("create", "/config/users/ü", None),
    ("create", "/config/users/ü/clients/c", b'{"version":1}'),
    ("sequence", "/config/changes/config_change_", b"\0\xff"),
    ("ephemeral", "/confplane/leader", b""),
    ("delete", "/config/users/old"),
]
STAT = struct.pack("!qqqqiiiqiiq", 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11)
END = struct.pack("!iBi", -1, 1, -1)


@pytest.mark.parametrize("access", [ZooKeeperAccess(), ZooKeeperAccess("sasl:käfka", "confplane:secret")])
@pytest.mark.parametrize("chroot", ["", "/a/chröot"])
def test_a_request_has_the_bytes_of_kazoos_own(access: ZooKeeperAccess, chroot: str) -> None:
    made = {"set": SetData, "check": CheckVersion}
    flags = {"create": 0, "ephemeral": 1, "sequence": 2}
    requests = []
    for kind, path, *rest in OPERATIONS:
        if kind in flags:
            requests.append(Create(chroot + path, *rest, acl_of(access, path), flags[kind]))
        else:
            requests.append(made[kind](chroot + path, *rest) if kind in made else Delete(chroot + path, -1))
    assert Multi(OPERATIONS, chroot, access.acls).serialize() == bytes(Transaction(requests).serialize())
    assert Multi([], chroot, access.acls).serialize() == END


def reply(*results: tuple[int, bytes]) -> bytes:
    """A reply behind 16 bytes of a header, with the kind and the body of each result."""
    return bytes(16) + b"".join(struct.pack("!iBi", kind, 0, 0) + body for kind, body in results) + END


def text(path: str) -> bytes:
    return struct.pack("!i", len(path.encode())) + path.encode()


def test_results_are_those_that_kazoo_reads() -> None:
    applied = reply((SetData.type, STAT), (CheckVersion.type, b""), (Create.type, text("/ü")), (Delete.type, b""))
    request = Multi([], "", ZooKeeperAccess().acls)
    stat = ZnodeStat._make(range(1, 12))
    assert request.deserialize(applied, 16) == [stat, True, "/ü", True] == Transaction.deserialize(applied, 16)
    refused = reply((-1, struct.pack("!i", 0)), (-1, struct.pack("!i", -101)))
    assert [type(each) for each in request.deserialize(refused, 16)] == [RolledBackError, NoNodeError]
    assert [type(each) for each in Transaction.deserialize(refused, 16)] == [RolledBackError, NoNodeError]


def test_a_reply_of_another_form_is_an_error() -> None:
    request = Multi([], "", ZooKeeperAccess().acls)
    with pytest.raises(MarshallingError, match="result 1 of a transaction is of the unknown kind 99"):
        request.deserialize(reply((Delete.type, b""), (99, b"")), 16)
    with pytest.raises(struct.error):
        request.deserialize(reply((Delete.type, b""))[:-9], 16)
