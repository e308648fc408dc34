from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any
from urllib.parse import quote

import pytest
from hypothesis import given
from hypothesis import strategies as st

from confplane.api.routing.paths import entity_of
from confplane.domain import id_patterns
from confplane.domain.entities import Entity
from confplane.domain.errors import InvalidEntityIdError
from tests.unit.domain.strategies import entities

if TYPE_CHECKING:
    from confplane.domain.entities import EntityType


def _scope(spelled: str, *, root: str = "", query: str = "") -> dict[str, Any]:
    raw = f"{root}/v1/clusters/default/client-quotas/{spelled}"
    return {"type": "http", "path": raw, "raw_path": f"{raw}{query}".encode("latin-1"), "root_path": root}


@given(entities(), st.sampled_from(["", "/effective"]), st.sampled_from(["", "/behind/a/proxy"]))
def test_the_path_names_the_entity(entity: Entity, suffix: str, root: str) -> None:
    for spelled in (entity.id, entity.id.replace("=", "%3D").replace(",", "%2C")):
        scope = _scope(spelled + suffix, root=root)
        assert entity_of(scope, suffix=suffix) == entity


@given(entities())
def test_the_pattern_of_the_specification_takes_every_id(entity: Entity) -> None:
    assert re.fullmatch(id_patterns.ANY_ID.removeprefix("^").removesuffix("$"), entity.id)


@given(st.from_regex(id_patterns.CONFIG_ID, fullmatch=True).filter(lambda text: not text.endswith("\n")))
def test_what_the_pattern_takes_is_an_id(spelled: str) -> None:
    assert Entity.from_id(spelled).id == spelled


@given(entities())
def test_another_spelling_is_refused_with_the_one(entity: Entity) -> None:
    kind: EntityType = entity.components[0][0]
    # One letter percent-encoded: the same bytes after decoding, and yet another path.
    spelled = entity.id.replace(
        kind.value[0], quote(kind.value[0]).replace(kind.value[0], f"%{ord(kind.value[0]):02X}"), 1
    )
    with pytest.raises(InvalidEntityIdError) as refused:
        entity_of(_scope(spelled))
    assert refused.value.canonical_id in {entity.id, None}


@pytest.mark.parametrize(
    "spelled",
    [
        "",
        "user=",
        "user=a/b",
        "user=a%2Fb",
        "user=a b",
        "user=a%20b",
        "User=a",
        "user=%41",
        "user=~41",
        "client-id=a,user=b",
        "user=a,user=b",
        "user=.",
        "user=..",
        "user=~FF",
        "user=\xff",
        "user=a;client-id=b",
        "~",
        "%",
        "%00",
    ],
)
def test_no_id(spelled: str) -> None:
    with pytest.raises(InvalidEntityIdError):
        entity_of(_scope(spelled))


def test_the_query_is_no_part_of_the_path() -> None:
    assert entity_of(_scope("user=a", query="?view=full&x=/y")).id == "user=a"


def test_servers_that_give_no_raw_path() -> None:
    scope = _scope("user=a")
    del scope["raw_path"]
    assert entity_of(scope).id == "user=a"
