"""The layout of client configs on a real ZooKeeper: their transactions rest on it, and every reader follows it."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import pytest

from confplane.domain.errors import CorruptZnodeError, UnavailableError
from confplane.domain.facets import Tree
from confplane.services.ports.cluster_states import Layout, LayoutCheck, Place, StoredState
from confplane.services.ports.transactions import Committed, Conflict, SessionEnded, StateWrite
from confplane.store import znodes
from tests.support.stores import ALICE, BILLING, commit, committed, facets, soon, transaction, until, write

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from kazoo.client import KazooClient

    from confplane.store import ZooKeeperStore

    Opener = Callable[..., Awaitable[ZooKeeperStore]]

APART = Tree.CLIENT_CONFIGS
BOTH = {name: replace(index, also=APART if name == "client-configs" else None) for name, index in facets().items()}


async def set_layout(store: ZooKeeperStore, layout: Layout, **more: Any) -> Any:
    state = await store.read_state(Layout, soon())
    write_layout = StateWrite("/confplane/layout", more.pop("expected", state.version), layout)
    return await commit(store, write_layout, **more)


async def commit_configs(store: ZooKeeperStore, check: LayoutCheck, tree: Tree = Tree.CONFIG) -> Any:
    return await store.commit(replace(transaction(store, write(ALICE, {"acks": "1"}, tree=tree)), layout=check), soon())


async def test_a_first_write_claims_the_layout_and_a_second_can_not(store: ZooKeeperStore, raw_zk: KazooClient) -> None:
    _, stat = raw_zk.get("/confplane/layout")
    unwritten: StoredState[Layout] = StoredState(0, None, stat.czxid)
    assert await store.read_state(Layout, soon()) == unwritten
    assert store.place() == Place(Tree.CONFIG, version=0)
    assert isinstance(await commit_configs(store, LayoutCheck(0, Tree.CONFIG)), Committed)
    assert json.loads(raw_zk.get("/confplane/layout")[0]) == {"version": 1, "layout": "shared"}
    assert await commit_configs(store, LayoutCheck(0, APART), APART) == Conflict()
    assert raw_zk.exists("/confplane/client-configs") is None
    # After a conflict it is known what there is.
    assert store.place() == Place(Tree.CONFIG, settled=True, version=1)


async def test_nothing_commits_under_another_layout_than_was_read(open_store: Opener, raw_zk: KazooClient) -> None:
    one, two = await open_store(facets=BOTH), await open_store(facets=BOTH)
    moving = await set_layout(one, Layout(APART, Tree.CONFIG))
    assert isinstance(moving, Committed)
    for store in (one, two):
        assert await commit_configs(store, LayoutCheck(0)) == Conflict()
        assert await store.confirm(store.writer(), [], soon(), layout=LayoutCheck(0)) is None
        assert await store.confirm(store.writer(), [], soon(), layout=LayoutCheck(1))
        assert store.place() == Place(APART, Tree.CONFIG, moving=True, settled=True, version=1)
        assert any("being moved to the layout separate" in str(text) for text in store.status().warnings)
    assert await set_layout(two, Layout(Tree.CONFIG), expected=0) == Conflict()
    assert isinstance(await set_layout(two, Layout(APART), writer="0" * 32), SessionEnded)
    assert isinstance(await commit_configs(two, LayoutCheck(1), APART), Committed)
    assert raw_zk.exists("/config/users/alice") is None


async def test_the_old_tree_is_watched_until_a_move_is_complete(open_store: Opener) -> None:
    one, two = await open_store(facets=BOTH), await open_store(facets=BOTH)
    await set_layout(one, Layout(Tree.CONFIG, APART))
    for store in (one, two):  # a store that reads the node only after the move sees no move
        await until(lambda: store.place().moving)  # noqa: B023 - in this round
    ended = await set_layout(one, Layout(Tree.CONFIG))
    for store in (one, two):
        await until(lambda: store.place() == Place(Tree.CONFIG, settled=True, version=2))  # noqa: B023 - in this round
        assert store.status().revision >= ended.revision
    # A strong read does not go by an older layout.
    await set_layout(one, Layout(APART))
    await two.catch_up(soon())
    assert (two.place().tree, two.place().version) == (APART, 3)


async def test_what_moves_is_in_the_mirror_at_every_moment(open_store: Opener) -> None:
    """One entity goes to and fro, and a process that reads one of its nodes for itself never has it in neither tree."""
    mover, reader = await open_store(facets=BOTH), await open_store(facets=BOTH)
    await set_layout(mover, Layout(APART, Tree.CONFIG))
    await reader.catch_up(soon())
    own = {"acks": "1"}
    await committed(mover, write(BILLING, {**own, "producer_byte_rate": "1"}))
    await reader.catch_up(soon())
    here, there = 0, -1
    seen = []

    def note() -> None:
        nodes = [reader.get(tree, BILLING.id) for tree in Tree]
        seen.append(any(node is not None and "acks" in node.config for node in nodes))

    take = reader._follower.apply_read

    def taken(*args: Any, **named: Any) -> None:
        take(*args, **named)
        note()

    reader._follower.apply_read = taken  # type: ignore[method-assign]
    for turn in range(20):
        if there < 0:
            there = 0
            writes = write(BILLING, own, None, tree=APART)
        else:
            writes = write(BILLING, own, there, tree=APART)
            there += 1
        await committed(mover, write(BILLING, {"producer_byte_rate": "1"}, here), writes)
        if turn % 2:  # or it only hears of it
            await reader.read(Tree.CONFIG, BILLING, soon())
        await reader.catch_up(soon())
        # Back, as a second move would; it is read in the other order then.
        await set_layout(mover, Layout(Tree.CONFIG, APART))
        await reader.catch_up(soon())
        await committed(
            mover, write(BILLING, {**own, "producer_byte_rate": "1"}, here + 1), write(BILLING, {}, there, tree=APART)
        )
        if turn % 2:
            await reader.read(APART, BILLING, soon())
        await reader.catch_up(soon())
        await set_layout(mover, Layout(APART, Tree.CONFIG))
        await reader.catch_up(soon())
        here, there = here + 2, there + 1
    assert len(seen) >= 80
    assert all(seen)


async def test_a_layout_that_is_gone_or_unreadable(store: ZooKeeperStore, raw_zk: KazooClient) -> None:
    for data in (b"no JSON", b"[]", b'{"version":1,"layout":"shared","from":"shared"}', b'{"version":1,"layout":"x"}'):
        raw_zk.set(znodes.LAYOUT, data)
        await store.catch_up(soon())
        assert store.place().defect
        assert any("can't be read" in str(text) for text in store.status().warnings)
        with pytest.raises(CorruptZnodeError):
            await store.read_state(Layout, soon())
    raw_zk.delete(znodes.LAYOUT)
    with pytest.raises(UnavailableError, match="made again"):
        await store.read_state(Layout, soon())
    await until(lambda: store.place() == Place(Tree.CONFIG, version=0))


@pytest.mark.parametrize("tree", list(Tree))
@pytest.mark.parametrize("moved", [False, True])
def test_a_layout_is_read_as_it_was_written(tree: Tree, *, moved: bool) -> None:
    layout = Layout(tree, tree.other if moved else None)
    assert znodes.decode_layout(znodes.encode_layout(layout)) == layout
    assert znodes.decode_layout(b"") is None


@pytest.mark.parametrize("source", ["[]", "{}", "1", '"shared"', '"none"'])
def test_a_layout_that_names_no_other_source_is_refused(source: str) -> None:
    with pytest.raises(ValueError, match="not of a form"):
        znodes.decode_layout(f'{{"version":1,"layout":"shared","from":{source}}}'.encode())
