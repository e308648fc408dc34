"""The copy of all znodes: what a backup reads is complete, and a restore writes znodes of any number and size."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import pytest

from confplane.domain.errors import UnavailableError
from confplane.domain.facets import Tree
from confplane.services.ports.backups import ZnodeWrite
from confplane.store import ZooKeeperAccess, ZooKeeperTreeCopy
from tests.support.stores import kafka_writes, rate
from tests.support.waiting import until

if TYPE_CHECKING:
    from collections.abc import Sequence

    from kazoo.client import KazooClient

    from confplane.services.ports.backups import ZnodeCopy
    from tests.support.proxy import Proxy

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


async def test_znodes_of_a_restore_that_was_interrupted_are_announced(chroot: str, raw_zk: KazooClient) -> None:
    paths = [f"{TOPICS}/t{number:03}" for number in range(150)]
    raw_zk.ensure_path(TOPICS)
    raw_zk.ensure_path(f"{Tree.CONFIG}/changes")
    writes = [ZnodeWrite("create", path, b"", entity=True) for path in paths]
    refused = ZnodeWrite("set", f"{TOPICS}/missing", b"", entity=True)
    async with ZooKeeperTreeCopy("default", chroot, 4_000, ZooKeeperAccess()) as tree:
        with pytest.raises(UnavailableError, match="refused a write"):
            await tree.write([*writes, refused], paths)
    written = {f"topics/{name}" for name in raw_zk.get_children(TOPICS)}
    changes = [raw_zk.get(f"{Tree.CONFIG}/changes/{name}")[0] for name in raw_zk.get_children(f"{Tree.CONFIG}/changes")]
    assert written
    assert {json.loads(each)["entity_path"] for each in changes} == written


async def test_a_copy_that_may_have_missed_changes_is_refused(
    chroot: str, raw_zk: KazooClient, zk_proxy: Proxy
) -> None:
    found: dict[str, bytes | None] = {}

    def take(copies: Sequence[ZnodeCopy]) -> None:
        found.update((each.path, each.data) for each in copies)

    async with ZooKeeperTreeCopy("default", zk_proxy.connect(chroot), 4_000, ZooKeeperAccess()) as tree:

        async def connected() -> bool:
            try:
                await tree.brokers()
            except UnavailableError:
                return False
            return True

        async def disconnected() -> bool:
            return not await connected()

        kafka_writes(raw_zk, "users/alice", rate(1))
        await tree.read(take)
        zk_proxy.accepting = False
        zk_proxy.cut()
        await until(disconnected)
        kafka_writes(raw_zk, "users/alice", rate(2))
        zk_proxy.accepting = True
        await until(connected)
        with pytest.raises(UnavailableError, match="Run the command again"):
            await tree.catch_up(take)
        await tree.read(take)
        kafka_writes(raw_zk, "users/alice", rate(3))
        await tree.catch_up(take)
    assert found[f"{Tree.CONFIG}/users/alice"] == rate(3)
