"""The drafter of client quotas and client configs: its encoding of an edit, before any read of stored content."""

from __future__ import annotations

from types import SimpleNamespace
from typing import TYPE_CHECKING, Any, cast

import pytest

from confplane.domain.client_configs import ClientConfigsFacet
from confplane.domain.entities import Entity
from confplane.domain.errors import InvalidRequestError
from confplane.domain.ops import Op, OpType
from confplane.domain.quotas import ClientQuotasFacet
from confplane.services.changes.client_drafts import ClientDrafter
from confplane.services.changes.edits import Edit
from tests.support.catalogs import ZOOKEEPER

if TYPE_CHECKING:
    from confplane.domain.facets import ClientFacet

ALICE = Entity.of(user="alice")
SET = Op("acks", OpType.SET, "all")


def encoded(facet: ClientFacet, *ops: Op, target: object = None) -> dict[str, str | None]:
    # What an edit is on its own says nothing of a cluster, but for its kind.
    collection = cast("Any", SimpleNamespace(store=SimpleNamespace(target=lambda: target)))
    return ClientDrafter(facet).encode(collection, Edit(ALICE, ops))


@pytest.mark.parametrize("kind", [OpType.APPEND, OpType.SUBTRACT])
@pytest.mark.parametrize("facet", [ClientQuotasFacet(), ClientConfigsFacet(ZOOKEEPER)], ids=lambda facet: facet.name)
def test_an_op_on_lists_is_refused_and_not_passed_over(facet: ClientFacet, kind: OpType) -> None:
    foreign = Op("acks", kind, "1", "/configs/1")
    with pytest.raises(InvalidRequestError, match=f"{kind.name} of acks: a key of {facet.name} can be set") as caught:
        encoded(facet, foreign)
    assert caught.value.pointer == "/configs/1"


def test_alongside_a_sound_op_it_is_refused_too() -> None:
    assert encoded(ClientConfigsFacet(ZOOKEEPER), SET) == {"acks": "all"}
    with pytest.raises(InvalidRequestError, match="APPEND of session"):
        encoded(ClientConfigsFacet(ZOOKEEPER), SET, Op("session.timeout.ms", OpType.APPEND, "1"))


def test_a_removal_is_an_op_of_every_facet() -> None:
    assert encoded(ClientConfigsFacet(ZOOKEEPER), SET, Op("session.timeout.ms", OpType.DELETE)) == {
        "acks": "all",
        "session.timeout.ms": None,
    }


@pytest.mark.parametrize(
    ("ops", "detail"),
    [
        ([("producer_byte_rate", 0)], "producer_byte_rate must be greater than 0"),
        ([("request_percentage", -0.0)], "request_percentage must be greater than 0"),
        ([("producer_byte_rate", 999.9999995)], "producer_byte_rate must be a whole number"),
        ([("producer_byte_rate", 1), ("producer_byte_rate", 1)], "producer_byte_rate is named twice"),
        ([("producer_byte_rate", None), ("producer_byte_rate", 1)], "producer_byte_rate is named twice"),
    ],
    ids=str,
)
def test_quotas_that_a_cluster_without_zookeeper_refuses(ops: list[tuple[str, float | None]], detail: str) -> None:
    given = [
        Op(key, OpType.DELETE if value is None else OpType.SET, value, f"/ops/{index}")
        for index, (key, value) in enumerate(ops)
    ]
    assert encoded(ClientQuotasFacet(), *given)
    with pytest.raises(InvalidRequestError, match=detail) as caught:
        encoded(ClientQuotasFacet(), *given, target="a target")
    assert caught.value.pointer == f"/ops/{len(ops) - 1}"
