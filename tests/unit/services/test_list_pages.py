"""Pages of lists whose filters select little: each reads a bounded number of nodes, and together they are the list."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any, cast

import pytest
from hypothesis import given
from hypothesis import strategies as st

from confplane.domain.changes import Node
from confplane.domain.entities import Entity
from confplane.domain.facets import Tree
from confplane.domain.quotas import ClientQuotasFacet
from confplane.services.cluster_facet import ClusterFacet
from confplane.services.reads import describe as module
from confplane.services.reads.describe import DescribeService, ListQuery
from confplane.store.mirror.nodes import Mirror
from tests.support.stores import facets

if TYPE_CHECKING:
    from collections.abc import Iterable

RATE = "producer_byte_rate"
RARE = "consumer_byte_rate"
IDS = [
    *(Entity.of(user=name).id for name in ("a", "ab", "b", None)),
    *(Entity.of(user=name, client_id=client).id for name in ("a", "ab", "b", None) for client in ("x", "y", None)),
    *(Entity.of(client_id=client).id for client in ("x", "y", None)),
]
KINDS = [("user",), ("client-id",), ("user", "client-id")]
QUERIES = st.builds(
    ListQuery,
    id=st.one_of(st.none(), st.sampled_from(IDS)),
    names=st.one_of(
        st.just({}),
        st.fixed_dictionaries({"user": st.sampled_from(["a", "b", None])}),
        st.fixed_dictionaries({"client-id": st.sampled_from(["x", None])}),
        st.fixed_dictionaries({"user": st.just("a"), "client-id": st.just("x")}),
    ),
    key=st.sampled_from([None, RARE, "request_percentage"]),
    kind=st.one_of(st.none(), st.sampled_from(KINDS)),
    page_size=st.integers(1, 5),
    prefix=st.sampled_from(["", "", "a", "ab", "z"]),
)


def quotas(stored: Iterable[str], rare: Iterable[str] = ()) -> ClusterFacet:
    mirror = Mirror({Tree.CONFIG: facets()})
    copy = mirror.trees[Tree.CONFIG]
    for entity_id in stored:
        items = (RATE, "1", *((RARE, "2") if entity_id in rare else ()))
        copy.put_node(Node(entity_id, items, 0, 1, 1, 0))
    store = SimpleNamespace(
        name="c",
        get=lambda _, entity_id: copy.nodes.get(entity_id),
        with_keys=lambda _, facet, **bounds: copy.with_keys(facet, **bounds),
        with_client_id=lambda _, client_id, **bounds: copy.with_client_id(client_id, **bounds),
    )
    return ClusterFacet(ClientQuotasFacet(), Tree.CONFIG, cast("Any", store), cast("Any", None))


async def pages(which: ClusterFacet, query: ListQuery, max_visited: int) -> list[module.DescribePage]:
    describe = DescribeService(cast("Any", None), max_visited=max_visited)
    found: list[module.DescribePage] = []
    token = None
    while not found or token is not None:
        page = await describe.page(which, replace(query, page_token=token))
        found.append(page)
        token = page.next_page_token
    return found


def matches(query: ListQuery, entity_id: str, rare: set[str]) -> bool:
    entity = Entity.from_id(entity_id)
    names = {kind.value: name for kind, name in entity.components}
    return (
        query.id in {None, entity_id}
        and all(kind in names and names[kind] == name for kind, name in query.names.items())
        and (query.kind is None or tuple(kind.value for kind in entity.types) == query.kind)
        and (query.key is None or (query.key == RARE and entity_id in rare))
        and (not query.prefix or (entity.components[0][1] or "").startswith(query.prefix))
    )


@given(st.sets(st.sampled_from(IDS)), st.sets(st.sampled_from(IDS)), QUERIES, st.integers(1, 8), st.integers(1, 4))
def test_the_pages_of_a_list_are_the_list_whatever_they_may_visit(
    stored: set[str], rare: set[str], query: ListQuery, max_visited: int, size: int
) -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(module, "SLICE", size)
        found = asyncio.run(pages(quotas(stored, rare), query, max_visited))
    assert [node.id for page in found for node, _ in page.items] == [
        each for each in sorted(stored) if matches(query, each, rare)
    ]
    assert all(page.visited <= max_visited and len(page.items) <= query.page_size for page in found)


@pytest.mark.parametrize(
    "query",
    [
        ListQuery(key="request_percentage"),
        ListQuery(kind=("user",), names={"client-id": "x"}),
        ListQuery(names={"client-id": "x"}, key=RARE),
        ListQuery(names={"user": "u"}, key=RARE),
    ],
)
async def test_a_page_may_be_empty_and_have_a_successor(query: ListQuery) -> None:
    ids = [f"user=u{number:02}" for number in range(30)]
    which = quotas(
        [*ids, *(f"{each},client-id=x" for each in ids), *(f"user=u,client-id=x{each}" for each in range(30))]
    )
    found = await pages(which, query, 10)
    assert len(found) > 2
    assert not any(page.items for page in found)
    assert [page.visited for page in found[:-1]] == [10] * (len(found) - 1)


async def test_a_page_that_is_full_has_visited_its_items_alone() -> None:
    ids = [f"user=u{number:02}" for number in range(30)]
    first, *_, last = await pages(quotas(ids), ListQuery(page_size=7), 10)
    assert (len(first.items), first.visited) == (7, 7)
    assert (len(last.items), last.visited) == (2, 2)


async def test_entities_that_do_not_set_a_key_cost_a_tenth() -> None:
    ids = [f"user=u{number:02}" for number in range(25)]
    [page] = await pages(quotas(ids), ListQuery(key="request_percentage"), 100)
    assert (page.visited, page.units) == (25, 2)
    [page] = await pages(quotas(ids), ListQuery(kind=("user", "client-id")), 100)
    assert (page.visited, page.units) == (25, 25)
    [page] = await pages(quotas(ids), ListQuery(names={"user": "u00"}), 100)
    assert (page.visited, page.units) == (1, 1)
