"""Answers with the effective values of one client: rendered once for the same nodes, and never of other nodes."""

from __future__ import annotations

import json
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any, Self, cast

import pytest
from hypothesis import given
from hypothesis import strategies as st

from confplane.api import rendering as module
from confplane.api.rendering import EffectiveValueRenderer
from confplane.api.responses import PolledResponse
from confplane.domain.changes import Node
from confplane.domain.client_configs import ClientConfigsFacet
from confplane.domain.entities import Entity
from confplane.domain.errors import CorruptZnodeError, InvalidRequestError
from confplane.domain.facets import Tree
from confplane.domain.filters import EntityFilter, FilterComponent
from confplane.services.cluster_facet import ClusterFacet
from confplane.services.reads.describe import DescribeService
from tests.support.catalogs import ZOOKEEPER

if TYPE_CHECKING:
    from collections.abc import Mapping

    from confplane.services.ports.registrations import RegistrationLog

FACET = ClientConfigsFacet(
    ZOOKEEPER, extra_keys=frozenset(), min_session_timeout_ms=6000, max_session_timeout_ms=1_800_000
)
DESCRIBE = DescribeService(cast("RegistrationLog", None))
MAPS = st.none() | st.dictionaries(
    st.sampled_from(["acks", "session.timeout.ms", "heartbeat.interval.ms"]), st.sampled_from(["1", "10000"])
)


class Stored(dict[str, Node]):
    """The mirror of a cluster."""

    def collection(self, cluster: str = "c") -> ClusterFacet:
        store: Any = SimpleNamespace(name=cluster, get=lambda _, entity_id: self.get(entity_id))
        return ClusterFacet(FACET, Tree.CONFIG, store, cast("Any", None))

    def put(self, entity_id: str, config: dict[str, str] | None) -> None:
        self.pop(entity_id, None)
        if config is not None:
            self[entity_id] = Node(entity_id, tuple(part for pair in config.items() for part in pair), 0, 1, 1, 0)


def client(user: str = "a", client_id: str | None = "b") -> EntityFilter:
    components = [FilterComponent("user", "exact", user)]
    if client_id is not None:
        components.append(FilterComponent("client-id", "exact", client_id))
    return EntityFilter.build(components, strict=False, allowed=FACET.entity_types)


def resolved_values(answer: bytes) -> dict[str, str]:
    [entry] = json.loads(answer)["entries"]
    return {value["key"]: value["value"] for value in entry["values"]}


@given(st.lists(st.tuples(MAPS, MAPS), min_size=1, max_size=5))
def test_every_answer_is_that_of_the_nodes_as_they_are(states: list[tuple[Any, Any]]) -> None:
    stored, resolutions = Stored(), EffectiveValueRenderer(DESCRIBE)
    for user, pair in states:
        stored.put("user=a", user)
        stored.put("user=a,client-id=b", pair)
        for wanted, entity in (
            (client(), Entity.of(user="a", client_id="b")),
            (client("a", None), Entity.of(user="a")),
        ):
            nodes = DESCRIBE.deciding(stored.collection(), entity)
            effective, _ = DESCRIBE.effective(stored.collection(), entity, nodes)
            for _ in range(2):
                answer = resolutions.resolved(stored.collection(), wanted)
                assert resolved_values(answer) == {item.key: item.value for item in effective.values}
                polled = resolutions.effective(stored.collection(), entity)
                fresh = EffectiveValueRenderer(DESCRIBE).effective(stored.collection(), entity)
                assert polled == fresh
                shown = {item["key"]: item["value"] for item in json.loads(polled.body)["configs"]}
                assert shown == resolved_values(answer)
                assert list(resolved_values(answer)) == sorted(resolved_values(answer))
                assert {part["entityName"] for part in json.loads(answer)["entries"][0]["entity"]} == set(
                    dict(entity.components).values()
                )


def test_the_same_nodes_are_rendered_once(monkeypatch: pytest.MonkeyPatch) -> None:
    stored, resolutions, rendered = Stored(), EffectiveValueRenderer(DESCRIBE), list[str]()

    def entry(entity_id: str, _: object) -> bytes:
        rendered.append(entity_id)
        return b"{}"

    class Rendering(PolledResponse):
        @classmethod
        def of(cls, content: Mapping[str, Any], etag: str) -> Self:
            rendered.append(content["id"])
            return super().of(content, etag)

    monkeypatch.setattr(module, "entry", entry)
    monkeypatch.setattr(module, "PolledResponse", Rendering)

    def polled(cluster: str = "c") -> int:
        before = len(rendered)
        for _ in range(3):
            resolutions.resolved(stored.collection(cluster), client())
            resolutions.effective(stored.collection(cluster), Entity.of(user="a", client_id="b"))
        return len(rendered) - before

    stored.put("user=a", {"acks": "1"})
    assert polled() == 2
    assert polled("another") == 2
    stored.put("user=a,client-id=b", {"acks": "-1"})
    assert polled() == 2
    assert (polled(), polled("another")) == (0, 2)


def test_what_is_kept_is_bounded() -> None:
    stored = Stored()
    length = len(EffectiveValueRenderer(DESCRIBE).resolved(stored.collection(), client("u0")))
    # Room for three answers, and some.
    room = 3 * (length + len("user=u0,client-id=b") + module._RESPONSE_OVERHEAD) + 100
    resolutions = EffectiveValueRenderer(DESCRIBE, most_bytes=room)
    for number in range(9):
        resolutions.resolved(stored.collection(), client(f"u{number}"))

    def kept() -> list[str]:
        return [entity_id for _, _, entity_id in resolutions._resolved._answers]

    assert kept() == [f"user=u{number},client-id=b" for number in (6, 7, 8)]
    stored.put("user=u7", {"acks": "1"})
    assert resolved_values(resolutions.resolved(stored.collection(), client("u7"))) == {"acks": "1"}
    assert kept() == [f"user=u{number},client-id=b" for number in (6, 8, 7)]
    resolutions.resolved(stored.collection(), client("u" * 600))
    stored.put("user=u8", {"acks": "1" * 5000})
    resolutions.resolved(stored.collection(), client("u8"))
    assert kept() == [f"user=u{number},client-id=b" for number in (6, 7)]
    for number in (6, 7):
        stored.put(f"user=u{number}", {"acks": "1" * 5000})
        resolutions.resolved(stored.collection(), client(f"u{number}"))
    assert (kept(), resolutions._resolved._bytes) == ([], 0)


def test_a_node_that_cannot_be_read_is_reported_every_time() -> None:
    stored, resolutions = Stored(), EffectiveValueRenderer(DESCRIBE)
    stored["user=a"] = Node("user=a", (), 0, 1, 1, 0, "is no JSON")
    for _ in range(2):
        with pytest.raises(CorruptZnodeError, match="/config/users/a is no JSON"):
            resolutions.resolved(stored.collection(), client())
        with pytest.raises(CorruptZnodeError, match="/config/users/a is no JSON"):
            resolutions.effective(stored.collection(), Entity.of(user="a"))


@pytest.mark.parametrize(
    "components",
    [
        [],
        [("client-id", "exact", "b")],
        [("user", "default", None)],
        [("user", "any", None), ("client-id", "exact", "b")],
        [("user", "exact", "a"), ("client-id", "default", None)],
        [("user", "exact", "..")],
    ],
)
def test_a_filter_without_one_client_is_refused(components: list[tuple[str, str, str | None]]) -> None:
    wanted = EntityFilter.build(
        [FilterComponent(*each) for each in components], strict=False, allowed=FACET.entity_types
    )
    with pytest.raises(InvalidRequestError, match="exact user") as refused:
        EffectiveValueRenderer(DESCRIBE).resolved(Stored().collection(), wanted)
    assert refused.value.pointer == "/components"
