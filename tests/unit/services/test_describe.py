"""Selections of a describe, in slices, against a plain model: nodes and registrations in one order."""

from __future__ import annotations

import asyncio
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any, cast

import pytest
from hypothesis import given
from hypothesis import strategies as st

from confplane.domain.changes import Node
from confplane.domain.client_configs import ClientConfigsFacet
from confplane.domain.facets import Tree
from confplane.domain.filters import EntityFilter, FilterComponent, MatchType
from confplane.domain.quotas import ClientQuotasFacet
from confplane.services.cluster_facet import ClusterFacet
from confplane.services.ports.registrations import ClientRegistration
from confplane.services.reads import describe as module
from confplane.services.reads.describe import DescribeService
from tests.support.catalogs import ZOOKEEPER

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from confplane.domain.access.ranges import NameRanges
    from confplane.services.reads.describe import Selected

FACET = ClientConfigsFacet(
    ZOOKEEPER, extra_keys=frozenset(), min_session_timeout_ms=6000, max_session_timeout_ms=1_800_000
)
IDS = [f"user={user}{pair}" for user in "abcde" for pair in ("", ",client-id=x")]
SETS = st.sets(st.sampled_from(IDS))


def service(registered: Iterable[str]) -> DescribeService:
    known = {
        entity_id: [ClientRegistration("c", entity_id, "librdkafka", "2.6", ("acks",))] for entity_id in registered
    }
    log = SimpleNamespace(
        registered=lambda _, within: [each for each in known if within is None or each in within],
        compatibility=lambda _, entity_id: known.get(entity_id, []),
    )
    return DescribeService(cast("Any", log))


def collection(facet: Any, stored: Iterable[str]) -> ClusterFacet:
    """A collection whose mirror has these nodes at the call of ``with_keys``."""
    nodes = {entity_id: Node(entity_id, ("acks", "1"), 0, 1, 1, 0) for entity_id in stored}

    async def moment(
        _: Tree, __: str, *, prefix: str = "", client_id: object = None, within: NameRanges | None = None
    ) -> list[Node]:
        assert client_id is None
        seen = [each for each in sorted(nodes) if within is None or each in within]
        return [nodes[entity_id] for entity_id in seen if entity_id.startswith(prefix)]

    store = SimpleNamespace(name="c", get=lambda _, entity_id: nodes.get(entity_id), moment=moment)
    return ClusterFacet(facet, Tree.CONFIG, cast("Any", store), cast("Any", None))


def wanted(*components: FilterComponent, strict: bool = False) -> EntityFilter:
    return EntityFilter.build(components, strict=strict, allowed=FACET.entity_types)


EVERYTHING = wanted()
USER_A = FilterComponent("user", MatchType.EXACT, "a")
FILTERS: list[tuple[EntityFilter, Callable[[str], bool]]] = [
    (EVERYTHING, lambda _: True),
    (wanted(USER_A), lambda entity_id: entity_id.startswith("user=a")),
    (wanted(USER_A, strict=True), lambda entity_id: entity_id == "user=a"),
]


async def selected(describe: DescribeService, which: ClusterFacet, of: EntityFilter) -> list[list[Selected]]:
    return [part async for part in describe.select(which, of)]


@given(SETS, SETS, st.sampled_from(FILTERS), st.integers(1, 4))
def test_nodes_and_registrations_come_in_one_order(
    stored: set[str], registered: set[str], of: tuple[EntityFilter, Callable[[str], bool]], size: int
) -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(module, "SLICE", size)
        parts = asyncio.run(selected(service(registered), collection(FACET, stored), of[0]))
    assert all(len(part) <= size for part in parts)
    ids = sorted(filter(of[1], stored | registered))
    found = [each for part in parts for each in part]
    assert [entity_id for entity_id, _, _ in found] == ids
    assert {entity_id for entity_id, node, _ in found if node is not None} == stored & set(ids)
    assert {entity_id for entity_id, _, known in found if known} == registered & set(ids)


async def test_quotas_have_no_registrations() -> None:
    describe, which = service(IDS), collection(ClientQuotasFacet(), IDS[:2])
    [part] = await selected(describe, which, EVERYTHING)
    assert [(entity_id, known) for entity_id, _, known in part] == [(IDS[0], ()), (IDS[1], ())]
