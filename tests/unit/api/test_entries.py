"""Entries of describes: rendered once per node, and never one of another node."""

from __future__ import annotations

import json
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any, cast

import pytest

from app.api import entries as module
from app.api.entries import Entries
from app.domain.changes import Node
from app.domain.client_configs import ClientConfigs
from app.domain.errors import CorruptZnodeError
from app.domain.facets import Tree
from app.domain.quotas import ClientQuotas
from app.services.collections import Collection
from app.services.ports.registrations import Registration
from app.services.reads.describe import DescribeService

if TYPE_CHECKING:
    from app.services.ports.registrations import RegistrationLog
    from app.services.ports.store import ClusterStore


def collection(facet: Any) -> Collection:
    store = cast("ClusterStore", SimpleNamespace(name="c"))
    return Collection(facet, Tree.CONFIG, store, cast("Any", None))


def node(entity_id: str, mzxid: int, **config: str) -> Node:
    return Node(entity_id, tuple(part for pair in config.items() for part in pair), mzxid, 1, mzxid, 0)


@pytest.fixture
def entries() -> Entries:
    return Entries(DescribeService(cast("RegistrationLog", None)))


QUOTAS = collection(ClientQuotas())
CONFIGS = collection(
    ClientConfigs(extra_keys=frozenset(), min_session_timeout_ms=6000, max_session_timeout_ms=1_800_000)
)


def test_quotas(entries: Entries) -> None:
    render = entries.of(QUOTAS)
    first = node(
        "user=a,client-id=b~20c", 1, producer_byte_rate="9007199254740993", request_percentage="12.50", acks="1"
    )
    for _ in range(2):
        assert json.loads(render(first.id, first, ()) or b"") == {
            "entity": [
                {"entityType": "user", "entityName": "a"},
                {"entityType": "client-id", "entityName": "b c"},
            ],
            "values": [
                {"key": "producer_byte_rate", "value": 9007199254740993},
                {"key": "request_percentage", "value": 12.5},
            ],
        }
    assert render(first.id, first, ()) is render(first.id, first, ())
    second = node(first.id, 2, producer_byte_rate="1")
    assert json.loads(render(first.id, second, ()) or b"")["values"] == [{"key": "producer_byte_rate", "value": 1}]
    # Another facet's keys alone are nothing to tell, kept or not.
    third = node(first.id, 3, acks="1")
    assert [render(first.id, third, ()) for _ in range(2)] == [None, None]


def test_what_can_not_be_read_is_never_kept(entries: Entries) -> None:
    render = entries.of(QUOTAS)
    bad = node("user=a", 1, producer_byte_rate="many")
    for _ in range(2):
        with pytest.raises(CorruptZnodeError):
            render(bad.id, bad, ())
    good = node("user=a", 2, producer_byte_rate="5")
    assert json.loads(render(good.id, good, ()) or b"")["values"] == [{"key": "producer_byte_rate", "value": 5}]


def test_client_configs_come_with_the_clients_of_the_moment(entries: Entries) -> None:
    render = entries.of(CONFIGS)
    known = Registration("c", "user=a", "librdkafka", "2.6", ("acks",))
    told = {"clientInformation": {"softwareName": "librdkafka", "softwareVersion": "2.6"}, "supportedConfigs": ["acks"]}
    a = node("user=a", 1, acks="1")
    for registrations, wanted in (((), []), ((known,), [told]), ((), [])):
        found = json.loads(render(a.id, a, registrations) or b"")
        assert found["values"] == [{"key": "acks", "value": "1"}]
        assert found["entityCompatibility"] == wanted
    # Nothing declared: there is an entry only while a client is known.
    for nothing in (None, node("user=a", 2, producer_byte_rate="1")):
        for _ in range(2):
            assert render("user=a", nothing, ()) is None
            found = json.loads(render("user=a", nothing, (known,)) or b"")
            assert (found["values"], found["entityCompatibility"]) == ([], [told])


def test_each_facet_keeps_its_own(entries: Entries) -> None:
    both = node("user=a", 1, producer_byte_rate="5", acks="1")
    assert b"acks" not in (entries.of(QUOTAS)(both.id, both, ()) or b"acks")
    assert b"acks" in (entries.of(CONFIGS)(both.id, both, ()) or b"")


def test_what_is_gone_is_forgotten(entries: Entries, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "_SLACK", 2)
    render = entries.of(QUOTAS)
    nodes = [node(f"user={name}", 1, producer_byte_rate="1") for name in "abcdef"]
    rendered = [(each.id, render(each.id, each, ()) or b"") for each in nodes]
    for present, kept in ((rendered[:4], 6), (rendered[:3], 3)):
        entries.tidy(QUOTAS, present)
        assert len(next(iter(entries._kept.values()))) == kept
    again = entries.of(QUOTAS)
    assert again(nodes[0].id, nodes[0], ()) is rendered[0][1]
    assert again(nodes[5].id, nodes[5], ()) == rendered[5][1]
