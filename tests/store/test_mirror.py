"""The mirror's indexes against a naive reference, under any order of changes."""

from __future__ import annotations

import asyncio
import itertools
from typing import TYPE_CHECKING, NoReturn

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from confplane.domain.access.ranges import NameRanges
from confplane.domain.changes import Node
from confplane.domain.entities import Entity, EntityType
from confplane.domain.facets import Tree
from confplane.services import cooperative_yielding
from confplane.store import znodes
from confplane.store.mirror import nodes as nodes_module
from confplane.store.mirror.loader import apply_node, apply_nodes
from confplane.store.mirror.nodes import Mirror, TreeMirror
from confplane.store.session.reads import FORBIDDEN
from tests.support.stores import facets

if TYPE_CHECKING:
    from collections.abc import Iterator

IDS = [
    *(f"user={name}" for name in ("a", "ab", "a~2C", "b")),
    "user",
    *(f"user={user},client-id={client}" for user in ("a", "ab") for client in ("x", "y~20z")),
    "user=a,client-id",
    "user,client-id=x",
    "client-id=x",
    "client-id",
    "topic=x",
]
CONTENTS = [
    (),
    ("producer_byte_rate", "1"),
    ("acks", "0"),
    ("acks", "0", "producer_byte_rate", "1"),
    ("SCRAM-SHA-256", "secret"),
    None,
]
PATHS = [
    *("users/a", "users/a+b", "users/a/clients/x", "users/a/clients/<default>", "users/<default>/clients/x"),
    *("users/a/clients/x+y", "clients/x", "ips/10.0.0.1", "topics/t t"),
]
VALUES = [None, FORBIDDEN, b"", b'{"config":{"acks":"1"}}', b"no JSON"]
READS = st.lists(st.lists(st.tuples(st.sampled_from(PATHS), st.sampled_from(VALUES)), max_size=12), max_size=6)
CHANGES = st.lists(st.tuples(st.sampled_from(IDS), st.sampled_from([*CONTENTS, "gone", "old"])), max_size=60)


def made(entity_id: str, items: tuple[str, ...] | None, mzxid: int) -> Node:
    defect = "does not hold JSON" if items is None else None
    return Node(entity_id, items or (), 0, 1, mzxid, 1, defect)


def expected(nodes: dict[str, Node], facet: str) -> list[Node]:
    """The nodes with a key of the facet, and the unreadable ones at which the facet could have a key."""
    index = facets()[facet]
    return [
        nodes[each]
        for each in sorted(nodes)
        for entity in [Entity.from_id(each)]
        if any(index.owns(entity, key) for key in nodes[each].items[::2])
        or (nodes[each].defect is not None and index.covers(entity))
    ]


@given(CHANGES)
def test_indexes_equal_a_scan(changes: list[tuple[str, object]]) -> None:
    mirror = TreeMirror(facets())
    nodes: dict[str, Node] = {}
    for zxid, (entity_id, what) in enumerate(changes, start=10):
        if what == "gone":
            mirror.remove(entity_id)
            nodes.pop(entity_id, None)
        elif what == "old":
            if entity_id in nodes:
                assert not mirror.put_node(made(entity_id, ("acks", "old"), 5))
        else:
            node = made(entity_id, what, zxid)  # type: ignore[arg-type]  # one of CONTENTS
            assert mirror.put_node(node)
            nodes[entity_id] = node
    assert mirror.nodes == nodes
    assert mirror.defective == sum(node.defect is not None for node in nodes.values())
    for facet in facets():
        wanted = expected(nodes, facet)
        assert list(mirror.with_keys(facet, after=None, prefix="")) == wanted
        for entity_id in IDS:
            after = [node for node in wanted if node.id > entity_id]
            assert list(mirror.with_keys(facet, after=entity_id, prefix="")) == after
        for prefix in ("user=a,", "user=a", "client-id"):
            below = [node for node in wanted if node.id.startswith(prefix)]
            assert list(mirror.with_keys(facet, after=None, prefix=prefix)) == below
            assert list(mirror.with_keys(facet, after="user=a,client-id=x", prefix=prefix)) == [
                node for node in below if node.id > "user=a,client-id=x"
            ]
    for client in ("x", "y z", None, "nobody"):
        named = [
            nodes[each]
            for each in sorted(nodes)
            if ("client-id", client) in [(kind.value, name) for kind, name in Entity.from_id(each).components]
        ]
        assert list(mirror.with_client_id(client)) == named
        for entity_id in IDS:
            after = [node for node in named if node.id > entity_id]
            assert list(mirror.with_client_id(client, after=entity_id)) == after


@example(
    first=[(each, CONTENTS[1]) for each in IDS],
    meanwhile=[[], [("user=b", "gone"), ("user=a", "gone")]],
    prefix="",
    bounded=False,
    client_id=None,
)
@given(
    CHANGES,
    st.lists(CHANGES, max_size=12),
    st.sampled_from(["", "user=a", "user=a,"]),
    st.booleans(),
    st.sampled_from([None, None, ("x",), (None,)]),
)
def test_a_snapshot_of_the_mirror_is_that_of_its_start_despite_concurrent_changes(
    first: list[tuple[str, object]],
    meanwhile: list[list[tuple[str, object]]],
    prefix: str,
    bounded: bool,  # noqa: FBT001 - drawn
    client_id: tuple[str | None] | None,
) -> None:
    mirror = TreeMirror(facets())
    zxids = itertools.count(10)

    def change(changes: list[tuple[str, object]]) -> None:
        for entity_id, what in changes:
            if what == "gone":
                mirror.remove(entity_id)
            elif what != "old":
                mirror.put_node(made(entity_id, what, next(zxids)))  # type: ignore[arg-type]  # one of CONTENTS

    async def look() -> None:
        within = NameRanges.of([("user=a", "user=a,client-id=x"), ("user=ab", "user=b")]) if bounded else None
        expected = [
            node
            for node in mirror.with_keys("client-quotas", after=None, prefix=prefix, within=within)
            if client_id is None or Entity.from_id(node.id).components[-1] == (EntityType.CLIENT_ID, client_id[0])
        ]
        task = asyncio.create_task(mirror.moment("client-quotas", prefix=prefix, client_id=client_id, within=within))
        for changes in meanwhile:
            await asyncio.sleep(0)
            change(changes)
        assert await task == expected
        assert not mirror._moments

    change(first)
    with pytest.MonkeyPatch.context() as patch:
        # A pause behind every node.
        patch.setattr(nodes_module, "PIECE", 1)
        patch.setattr(cooperative_yielding, "SLICE_S", 0)
        asyncio.run(look())


def test_a_snapshot_of_the_mirror_yields_between_pieces(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(nodes_module, "PIECE", 10)
    monkeypatch.setattr(cooperative_yielding, "SLICE_S", 0)
    mirror = TreeMirror(facets())
    for number in range(100):
        mirror.put_node(made(f"user=u{number:03d}", ("producer_byte_rate", "1"), 10))

    async def look() -> int:
        turns = 0
        task = asyncio.create_task(mirror.moment("client-quotas", prefix=""))
        while not task.done():
            turns += 1
            await asyncio.sleep(0)
        return turns

    assert asyncio.run(look()) > 10


class _Unwalked(dict[str, Node]):
    """Nodes that no caller may walk: a walk of a million holds the loop."""

    def __iter__(self) -> Iterator[str]:
        raise AssertionError("the nodes are walked")

    def values(self) -> NoReturn:
        raise AssertionError("the nodes are walked")


def test_the_newest_revision_is_known_without_a_walk() -> None:
    mirror = Mirror({tree: facets() for tree in Tree})
    assert mirror.newest() == 0
    for tree in mirror.trees.values():
        tree.nodes = _Unwalked()
    mirror.trees[Tree.CONFIG].put_node(made("user=a", ("acks", "0"), 12))
    mirror.trees[Tree.CLIENT_CONFIGS].put_node(made("user=b", ("acks", "0"), 15))
    mirror.trees[Tree.CONFIG].put_node(made("user=a", ("acks", "1"), 14))
    assert mirror.newest() == 15
    mirror.trees[Tree.CONFIG].put_node(made("user=a", ("acks", "2"), 16))
    assert mirror.newest() == 16


def test_below_an_absent_user_there_is_nothing() -> None:
    mirror = Mirror({Tree.CONFIG: facets()})
    stat = (1, 1, 1, 1, 0)
    for path in ("users/a", "users/a/clients/x", "users/a/clients/<default>", "users/ab", "users/ab/clients/x"):
        apply_node(mirror, Tree.CONFIG, path, (b'{"config":{"acks":"1"}}', stat))
    apply_node(mirror, Tree.CONFIG, "users/a", None)
    assert set(mirror.trees[Tree.CONFIG].nodes) == {"user=ab", "user=ab,client-id=x"}
    assert [node.id for node in mirror.trees[Tree.CONFIG].with_client_id("x")] == ["user=ab,client-id=x"]


def test_nodes_under_another_spelling_are_remembered_as_such() -> None:
    mirror = Mirror({Tree.CONFIG: facets()})
    apply_node(mirror, Tree.CONFIG, "users/a+b", (b"", (1, 1, 1, 1, 0)))
    assert list(mirror.unaddressed) == ["/config/users/a+b"]
    assert not mirror.entities()
    apply_node(mirror, Tree.CONFIG, "users/a+b", None)
    assert not mirror.unaddressed


def test_equal_texts_are_one_object() -> None:
    first = znodes.decode_entity(b'{"config":{"producer_byte_rate":"1048576"}}')
    second = znodes.decode_entity(b'{"config":{"producer_byte_rate":"1048576"}}')
    assert first.items[0] is second.items[0]
    assert first.items[1] is second.items[1]


@given(READS)
def test_many_nodes_are_taken_as_one_by_one(reads: list[list[tuple[str, object]]]) -> None:
    one_by_one, at_once = (Mirror({Tree.CONFIG: facets()}) for _ in range(2))
    mzxid = 0
    for some in reads:
        values: list[object] = []
        for path, found in some:
            mzxid += 1
            values.append((found, (1, mzxid, 1, 1, 0)) if isinstance(found, bytes) else found)
            apply_node(one_by_one, Tree.CONFIG, path, values[-1])
        apply_nodes(at_once, Tree.CONFIG, [f"/config/{path}" for path, _ in some], values)
    assert at_once.trees[Tree.CONFIG].nodes == one_by_one.trees[Tree.CONFIG].nodes
    assert (at_once.unaddressed, at_once.forbidden) == (one_by_one.unaddressed, one_by_one.forbidden)
    sizes = [dict(mirror.trees[Tree.CONFIG].list_sizes.sizes()) for mirror in (at_once, one_by_one)]
    assert sizes[0] == sizes[1]
