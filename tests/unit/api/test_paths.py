from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from confplane.api.routing.paths import entity_of
from confplane.domain import id_patterns
from confplane.domain.entities import Entity
from confplane.domain.errors import InvalidEntityIdError
from tests.unit.domain.strategies import entities


def _scope(spelled: str, *, root: str = "", query: str = "") -> dict[str, Any]:
    raw = f"{root}/v1/clusters/default/client-quotas/{spelled}"
    return {"type": "http", "path": raw, "raw_path": f"{raw}{query}".encode("latin-1"), "root_path": root}


@given(entities(), st.sampled_from(["", "/effective"]), st.sampled_from(["", "/behind/a/proxy"]))
def test_the_path_names_the_entity(entity: Entity, suffix: str, root: str) -> None:
    for spelled in (entity.id, entity.id.replace("=", "%3D").replace(",", "%2C")):
        scope = _scope(spelled + suffix, root=root)
        assert entity_of(scope, suffix=suffix) == entity


@given(st.from_regex(id_patterns.CONFIG_ID, fullmatch=True).filter(lambda text: not text.endswith("\n")))
def test_what_the_pattern_takes_is_an_id(spelled: str) -> None:
    assert Entity.from_id(spelled).id == spelled


@pytest.mark.parametrize("spelled", ["", "user=a/b", "user=a%2Fb", "user=a b", "user=%41", "user=\xff", "%", "%00"])
def test_no_id(spelled: str) -> None:
    with pytest.raises(InvalidEntityIdError):
        entity_of(_scope(spelled))


def test_the_query_is_no_part_of_the_path() -> None:
    assert entity_of(_scope("user=a", query="?view=full&x=/y")).id == "user=a"


def test_servers_that_give_no_raw_path() -> None:
    scope = _scope("user=a")
    del scope["raw_path"]
    assert entity_of(scope).id == "user=a"
