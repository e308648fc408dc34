"""Entries of describes: rendered once per node, and never one of another node."""

from __future__ import annotations

import json
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any, cast

import pytest

from confplane.api.rendering import EntryRenderer
from confplane.domain.changes import Node
from confplane.domain.client_configs import ClientConfigsFacet
from confplane.domain.facets import Tree
from confplane.domain.quotas import ClientQuotasFacet
from confplane.services.cluster_facet import ClusterFacet
from confplane.services.ports.registrations import ClientRegistration
from confplane.services.reads.describe import DescribeService
from tests.support.catalogs import ZOOKEEPER

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Sequence

    from confplane.services.ports.registrations import RegistrationLog
    from confplane.services.ports.store import ClusterStore
    from confplane.services.reads.describe import Selected


def collection(facet: Any) -> ClusterFacet:
    store = cast("ClusterStore", SimpleNamespace(name="c"))
    return ClusterFacet(facet, Tree.CONFIG, store, cast("Any", None))


def node(entity_id: str, mzxid: int, **config: str) -> Node:
    return Node(entity_id, tuple(part for pair in config.items() for part in pair), mzxid, 1, mzxid, 0)


@pytest.fixture
def entries() -> EntryRenderer:
    return EntryRenderer(DescribeService(cast("RegistrationLog", None)))


QUOTAS = collection(ClientQuotasFacet())
CONFIGS = collection(
    ClientConfigsFacet(ZOOKEEPER, extra_keys=frozenset(), min_session_timeout_ms=6000, max_session_timeout_ms=1_800_000)
)


async def slices(*selected: Selected) -> AsyncIterator[list[Selected]]:
    for each in selected:
        yield [each]


async def render_all(
    entries: EntryRenderer, which: ClusterFacet, *selected: Selected, everything: bool = False
) -> tuple[list[bytes], list[str]]:
    skipped: list[str] = []
    parts = entries.render(which, slices(*selected), skipped, everything=everything)
    return [each async for part in parts for each in part], skipped


async def render(
    entries: EntryRenderer,
    which: ClusterFacet,
    entity_id: str,
    node: Node | None,
    known: Sequence[ClientRegistration] = (),
) -> bytes | None:
    found, skipped = await render_all(entries, which, (entity_id, node, known))
    assert skipped == []
    return found[0] if found else None


async def test_quotas(entries: EntryRenderer) -> None:
    first = node(
        "user=a,client-id=b~20c", 1, producer_byte_rate="9007199254740993", request_percentage="12.50", acks="1"
    )
    for _ in range(2):
        assert json.loads(await render(entries, QUOTAS, first.id, first) or b"") == {
            "entity": [
                {"entityType": "user", "entityName": "a"},
                {"entityType": "client-id", "entityName": "b c"},
            ],
            "values": [
                {"key": "producer_byte_rate", "value": 9007199254740993},
                {"key": "request_percentage", "value": 12.5},
            ],
        }
    assert await render(entries, QUOTAS, first.id, first) is await render(entries, QUOTAS, first.id, first)
    second = node(first.id, 2, producer_byte_rate="1")
    found = json.loads(await render(entries, QUOTAS, first.id, second) or b"")
    assert found["values"] == [{"key": "producer_byte_rate", "value": 1}]
    # Another facet's keys alone make no entry, kept or not.
    third = node(first.id, 3, acks="1")
    assert [await render(entries, QUOTAS, first.id, third) for _ in range(2)] == [None, None]


async def test_an_unreadable_node_is_skipped_and_never_kept(entries: EntryRenderer) -> None:
    bad = node("user=a", 1, producer_byte_rate="many")
    fine = node("user=b", 1, producer_byte_rate="5")
    for _ in range(2):
        found, skipped = await render_all(entries, QUOTAS, (bad.id, bad, ()), (fine.id, fine, ()))
        assert skipped == ["/config/users/a"]
        assert [json.loads(each)["entity"][0]["entityName"] for each in found] == ["b"]
    good = node("user=a", 2, producer_byte_rate="5")
    again = json.loads(await render(entries, QUOTAS, good.id, good) or b"")
    assert again["values"] == [{"key": "producer_byte_rate", "value": 5}]


KNOWN = ClientRegistration("c", "user=a", "librdkafka", "2.6", ("acks",))
SHOWN = {"clientInformation": {"softwareName": "librdkafka", "softwareVersion": "2.6"}, "supportedConfigs": ["acks"]}


async def test_client_configs_come_with_the_clients_of_the_moment(entries: EntryRenderer) -> None:
    a = node("user=a", 1, acks="1")
    for registrations, wanted in (((), []), ((KNOWN,), [SHOWN]), ((), [])):
        found = json.loads(await render(entries, CONFIGS, a.id, a, registrations) or b"")
        assert found["values"] == [{"key": "acks", "value": "1"}]
        assert found["entityCompatibility"] == wanted
    # Nothing declared: there is an entry only while a client is known.
    for nothing in (None, node("user=a", 2, producer_byte_rate="1")):
        for _ in range(2):
            assert await render(entries, CONFIGS, "user=a", nothing) is None
            found = json.loads(await render(entries, CONFIGS, "user=a", nothing, (KNOWN,)) or b"")
            assert (found["values"], found["entityCompatibility"]) == ([], [SHOWN])


async def test_of_an_unreadable_node_the_clients_are_shown(entries: EntryRenderer) -> None:
    bad = Node("user=a", (), 1, 1, 1, 0, "is no JSON")
    found, skipped = await render_all(entries, CONFIGS, (bad.id, bad, (KNOWN,)))
    assert skipped == ["/config/users/a"]
    assert [json.loads(each)["entityCompatibility"] for each in found] == [[SHOWN]]


async def test_each_facet_keeps_its_own(entries: EntryRenderer) -> None:
    both = node("user=a", 1, producer_byte_rate="5", acks="1")
    assert b"acks" not in (await render(entries, QUOTAS, both.id, both) or b"acks")
    assert b"acks" in (await render(entries, CONFIGS, both.id, both) or b"")


async def test_entries_of_absent_entities_are_forgotten() -> None:
    entries = EntryRenderer(DescribeService(cast("RegistrationLog", None)), slack=2)
    nodes = [node(f"user={name}", 1, producer_byte_rate="1") for name in "abcdef"]
    selected: list[Selected] = [(each.id, each, ()) for each in nodes]
    rendered, _ = await render_all(entries, QUOTAS, *selected)
    for present, everything, kept in ((3, False, 6), (4, True, 6), (3, True, 3)):
        await render_all(entries, QUOTAS, *selected[:present], everything=everything)
        assert len(next(iter(entries._cache.values()))) == kept
    assert await render(entries, QUOTAS, nodes[0].id, nodes[0]) is rendered[0]
    assert await render(entries, QUOTAS, nodes[5].id, nodes[5]) == rendered[5]


async def test_the_cache_has_a_bound_in_bytes_and_further_entries_are_rendered_each_time() -> None:
    entries = EntryRenderer(DescribeService(cast("RegistrationLog", None)), slack=0, most=1_000)
    nodes = [node(f"user={name}", 1, producer_byte_rate="1") for name in "abcdefghij"]
    selected: list[Selected] = [(each.id, each, ()) for each in nodes]
    rendered, _ = await render_all(entries, QUOTAS, *selected)
    again, _ = await render_all(entries, QUOTAS, *selected)
    assert again == rendered
    assert 0 < sum(one is other for one, other in zip(rendered, again, strict=True)) < len(nodes)
    # Entities that are gone make room for others.
    await render_all(entries, QUOTAS, selected[-1], everything=True)
    assert await render(entries, QUOTAS, nodes[-1].id, nodes[-1]) is await render(
        entries, QUOTAS, nodes[-1].id, nodes[-1]
    )
