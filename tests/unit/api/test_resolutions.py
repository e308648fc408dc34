"""Answers with the effective configs of one client: rendered once per pair of nodes, and never of other nodes."""

from __future__ import annotations

import json
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any, cast

import pytest
from hypothesis import given
from hypothesis import strategies as st

from app.api.rendered import resolutions as module
from app.api.rendered.resolutions import Resolutions
from app.domain.changes import Node
from app.domain.client_configs import ClientConfigs
from app.domain.entities import Entity
from app.domain.errors import CorruptZnodeError, InvalidRequestError
from app.domain.facets import Tree
from app.domain.filters import EntityFilter, FilterComponent
from app.services.collections import Collection
from app.services.reads.describe import DescribeService
from tests.support.catalogs import ZOOKEEPER

if TYPE_CHECKING:
    from app.services.ports.registrations import RegistrationLog

FACET = ClientConfigs(ZOOKEEPER, extra_keys=frozenset(), min_session_timeout_ms=6000, max_session_timeout_ms=1_800_000)
DESCRIBE = DescribeService(cast("RegistrationLog", None))
MAPS = st.none() | st.dictionaries(
    st.sampled_from(["acks", "session.timeout.ms", "heartbeat.interval.ms"]), st.sampled_from(["1", "10000"])
)


class Stored(dict[str, Node]):
    """The mirror of a cluster."""

    def collection(self, cluster: str = "c") -> Collection:
        store: Any = SimpleNamespace(name=cluster, get=lambda _, entity_id: self.get(entity_id))
        return Collection(FACET, Tree.CONFIG, store, cast("Any", None))

    def put(self, entity_id: str, config: dict[str, str] | None) -> None:
        self.pop(entity_id, None)
        if config is not None:
            self[entity_id] = Node(entity_id, tuple(part for pair in config.items() for part in pair), 0, 1, 1, 0)


def client(user: str = "a", client_id: str | None = "b") -> EntityFilter:
    components = [FilterComponent("user", "exact", user)]
    if client_id is not None:
        components.append(FilterComponent("client-id", "exact", client_id))
    return EntityFilter.build(components, strict=False, allowed=FACET.entity_types)


def told(answer: bytes) -> dict[str, str]:
    [entry] = json.loads(answer)["entries"]
    return {value["key"]: value["value"] for value in entry["values"]}


@given(st.lists(st.tuples(MAPS, MAPS), min_size=1, max_size=5))
def test_every_answer_is_that_of_the_nodes_as_they_are(states: list[tuple[Any, Any]]) -> None:
    stored, resolutions = Stored(), Resolutions(DESCRIBE)
    for user, pair in states:
        stored.put("user=a", user)
        stored.put("user=a,client-id=b", pair)
        for wanted, entity in (
            (client(), Entity.of(user="a", client_id="b")),
            (client("a", None), Entity.of(user="a")),
        ):
            effective, _ = DESCRIBE.effective(stored.collection(), entity)
            for _ in range(2):
                answer = resolutions.answer(stored.collection(), wanted)
                assert told(answer) == {item.key: item.value for item in effective.values}
                assert list(told(answer)) == sorted(told(answer))
                assert {part["entityName"] for part in json.loads(answer)["entries"][0]["entity"]} == set(
                    dict(entity.components).values()
                )


def test_the_same_nodes_are_rendered_once(monkeypatch: pytest.MonkeyPatch) -> None:
    stored, resolutions, rendered = Stored(), Resolutions(DESCRIBE), list[str]()

    def entry(entity_id: str, _: object) -> bytes:
        rendered.append(entity_id)
        return b"{}"

    monkeypatch.setattr(module, "entry", entry)
    stored.put("user=a", {"acks": "1"})
    for _ in range(3):
        resolutions.answer(stored.collection(), client())
    assert len(rendered) == 1
    resolutions.answer(stored.collection("another"), client())
    assert len(rendered) == 2
    stored.put("user=a,client-id=b", {"acks": "-1"})
    for _ in range(3):
        resolutions.answer(stored.collection(), client())
    assert len(rendered) == 3


def test_what_is_kept_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "_MOST", 3)
    stored, resolutions = Stored(), Resolutions(DESCRIBE)
    for number in range(9):
        resolutions.answer(stored.collection(), client(f"u{number}"))
    assert [entity_id for _, entity_id in resolutions._kept] == [f"user=u{number},client-id=b" for number in (6, 7, 8)]
    stored.put("user=u7", {"acks": "1"})
    assert told(resolutions.answer(stored.collection(), client("u7"))) == {"acks": "1"}
    assert len(resolutions._kept) == 3
    resolutions.answer(stored.collection(), client("u" * 600))
    stored.put("user=large", {"acks": "1" * 3000})
    resolutions.answer(stored.collection(), client("large"))
    assert not any("uuu" in entity_id or "large" in entity_id for _, entity_id in resolutions._kept)


def test_a_node_that_cannot_be_read_is_told_every_time() -> None:
    stored, resolutions = Stored(), Resolutions(DESCRIBE)
    stored["user=a"] = Node("user=a", (), 0, 1, 1, 0, "is no JSON")
    for _ in range(2):
        with pytest.raises(CorruptZnodeError, match="/config/users/a is no JSON"):
            resolutions.answer(stored.collection(), client())


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
        Resolutions(DESCRIBE).answer(Stored().collection(), wanted)
    assert refused.value.pointer == "/components"
