"""The patterns of entity ids accept exactly the ids that the rules of their facet accept, in every place that has them."""

from __future__ import annotations

import json
import re
from typing import TYPE_CHECKING, Final

import pytest
from hypothesis import given
from hypothesis import strategies as st

from confplane.domain import id_patterns
from confplane.domain.client_configs import ClientConfigsFacet
from confplane.domain.configs import ConfigsFacet
from confplane.domain.entities import Entity, EntityType
from confplane.domain.errors import InvalidRequestError, InvalidTopicError
from confplane.domain.quotas import ClientQuotasFacet
from tests.support.catalogs import ZOOKEEPER
from tests.support.processes import ROOT
from tests.unit.domain.strategies import entities, odd_names

if TYPE_CHECKING:
    from confplane.domain.facets import Facet

FACETS: Final[dict[str, Facet]] = {
    id_patterns.QUOTA_ID: ClientQuotasFacet(),
    id_patterns.CONFIG_ID: ClientConfigsFacet(ZOOKEEPER),
    id_patterns.RESOURCE_ID: ConfigsFacet(lambda: ZOOKEEPER),
}
VARIABLES: Final = {
    "client_quotas": id_patterns.QUOTA_ID,
    "client_configs": id_patterns.CONFIG_ID,
    "configs": id_patterns.RESOURCE_ID,
}
SPELLED: Final = (
    *("user", "user=a", "user=a,client-id=b", "user,client-id", "user=a,client-id", "client-id", "client-id=a~20b"),
    *("ip", "ip=10.0.0.1", "ip=1.2.3", "ip=1.2.3.256", "ip=01.2.3.4", "ip=~3A~3A1", "ip=::1", "ip=host", "user=..."),
    *(
        "user=",
        "user=.",
        "user=..",
        "user=~2E",
        "user=a b",
        "user=~C3",
        "user=~00",
        "user=~c3~a9",
        "user=a,",
        "user=,a",
    ),
    *(
        "client-id=app,user",
        "client-id=app,user=a",
        "user=a,user=b",
        "users=a",
        "",
        "user=a,ip=1.2.3.4",
        "user=~ED~A0~80",
    ),
    *("topic=a", "topic", "topic=.", "topic=..", "topic=...", "topic=.a", f"topic={'a' * 249}", f"topic={'a' * 250}"),
    *(f"topic=.{'a' * 248}", f"topic=.{'a' * 249}", f"topic=..{'a' * 247}", f"topic=..{'a' * 248}", "topic=a~20b"),
    *("broker", "broker=0", "broker=00", "broker=-1", "broker=7", "broker=a", "broker=", "broker=2147483647"),
    *("group=g", "group", "group=", "group=..", "client-metrics=m", "client-metrics", "group=a~2Fb"),
)


def accepted(facet: Facet, spelled: str) -> bool:
    try:
        entity = Entity.from_id(spelled)
        facet.check_entity(entity)
    except (InvalidRequestError, InvalidTopicError):
        return False
    return "%" not in spelled


@pytest.mark.parametrize("pattern", FACETS)
def test_a_pattern_accepts_what_its_facet_accepts(pattern: str) -> None:
    found = [spelled for spelled in SPELLED if re.search(pattern, spelled)]
    assert found == [spelled for spelled in SPELLED if accepted(FACETS[pattern], spelled)]


@given(entities() | st.tuples(st.sampled_from(["group", "client-metrics"]), odd_names).map(
    lambda pair: Entity(((EntityType(pair[0]), pair[1]),))
), st.sampled_from(list(FACETS)))  # fmt: skip
def test_a_pattern_accepts_every_entity_of_its_facet(entity: Entity, pattern: str) -> None:
    assert (re.search(pattern, entity.id) is not None) == accepted(FACETS[pattern], entity.id)
    assert re.search(id_patterns.ANY_ID, entity.id)


@pytest.mark.parametrize("pattern", [*FACETS, id_patterns.ANY_ID])
def test_a_pattern_keeps_to_what_all_syntaxes_have(pattern: str) -> None:
    assert "(?" not in pattern
    assert "\\d" not in pattern
    assert all(int(most) <= 1000 for most in re.findall(r"\{\d+,(\d+)\}", pattern))  # RE2's limit


@pytest.mark.parametrize(("variable", "pattern"), VARIABLES.items())
def test_the_terraform_module_has_the_same_pattern(variable: str, pattern: str) -> None:
    text = (ROOT / "deploy/terraform/confplane/variables.tf").read_text()
    block = text.partition(f'variable "{variable}" {{')[2].partition("\nvariable ")[0]
    assert re.findall(r'can\(regex\(("(?:[^"\\]|\\.)*"), id\)\)', block) == [json.dumps(pattern)]


@pytest.mark.parametrize(
    ("path", "pattern"),
    [
        ("client-quotas", id_patterns.QUOTA_ID),
        ("client-configs", id_patterns.CONFIG_ID),
        ("configs", id_patterns.RESOURCE_ID),
    ],
)
def test_the_specification_has_the_same_pattern(path: str, pattern: str) -> None:
    text = (ROOT / "openapi/openapi.yaml").read_text()
    text = text.partition(f"\n  /v1/clusters/{{cluster}}/{path}/{{id}}/effective:\n")[2]
    assert f"pattern: {pattern}\n" in text.partition("\n  /v1/")[0]
