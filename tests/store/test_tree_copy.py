"""The znodes that a restore writes: any number of them, of any size that one znode may have."""

from __future__ import annotations

from typing import TYPE_CHECKING

from confplane.domain.facets import Tree
from confplane.services.ports.backups import ZnodeWrite
from confplane.store import ZooKeeperAccess, ZooKeeperTreeCopy

if TYPE_CHECKING:
    from kazoo.client import KazooClient

TOPICS = f"{Tree.CONFIG}/topics"
LARGE = b"x" * 200_000
"""Six of them are more than ZooKeeper accepts in one request."""


async def test_znodes_larger_than_a_request_are_created_set_and_deleted(chroot: str, raw_zk: KazooClient) -> None:
    paths = [f"{TOPICS}/t{number}" for number in range(6)]
    raw_zk.ensure_path(TOPICS)
    raw_zk.ensure_path(f"{Tree.CONFIG}/changes")
    async with ZooKeeperTreeCopy("default", chroot, 4_000, ZooKeeperAccess()) as tree:
        await tree.write([ZnodeWrite("create", path, LARGE, entity=True) for path in paths], paths)
        assert [raw_zk.get(path)[0] for path in paths] == [LARGE] * 6
        assert len(raw_zk.get_children(f"{Tree.CONFIG}/changes")) == 6
        await tree.write([ZnodeWrite("set", path, b"", entity=True) for path in paths[1:]], [])
        await tree.write([ZnodeWrite("delete", paths[0], None, entity=True)], [])
    assert sorted(raw_zk.get_children(TOPICS)) == [f"t{number}" for number in range(1, 6)]
    assert {raw_zk.get(path)[0] for path in paths[1:]} == {b""}
