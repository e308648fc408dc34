"""The ops of the trail, as ``GET /audit`` answers them to callers who know those of earlier releases."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

import pytest

from confplane.api.audit import audit_record
from confplane.domain.ops import Op, OpType
from confplane.services.ports.trail import AuditRecord, ObservedRange
from tests.audit.rows import entity, intent


def answered(facet: str, *ops: dict[str, Any]) -> list[dict[str, Any]]:
    record = AuditRecord(intent(None, entity(facet=facet, ops=ops)), datetime.now(UTC), None, None)
    [found] = audit_record(record)["entities"]
    listed: list[dict[str, Any]] = found["ops"]
    return listed


@pytest.mark.parametrize("facet", ["client-quotas", "client-configs", "cluster"])
def test_rows_of_this_release_and_of_earlier_ones_are_answered_alike(facet: str) -> None:
    earlier = {"key": "a", "value": 1024}, {"key": "b", "remove": True}
    present = Op("a", OpType.SET, 1024).as_json(), Op("b", OpType.DELETE).as_json()
    assert answered(facet, *present) == answered(facet, *earlier) == list(earlier)


def test_a_change_that_follows_a_cluster_says_where_in_its_log() -> None:
    followed = intent(None, kind="observed", observed=ObservedRange(None, 2**53 + 1, 1_500, writes=2))
    shown = audit_record(AuditRecord(followed, datetime.now(UTC), None, None))
    assert shown["kind"] == "observed"
    assert shown["observed"] == {
        "after": None, "until": "9007199254740993", "at": "1970-01-01T00:00:01.500Z", "exact": False, "writes": 2
    }  # fmt: skip
    assert audit_record(AuditRecord(intent(), datetime.now(UTC), None, None))["observed"] is None


def test_topics_and_brokers_have_the_type_of_each_op() -> None:
    ops = [Op("a", kind, "1").as_json() for kind in OpType]
    assert answered("configs", *ops) == ops
    # What earlier releases kept of a PUT.
    assert answered("configs", {"key": "a", "value": "1"}) == [{"key": "a", "value": "1"}]


@pytest.mark.parametrize(
    ("facet", "op"),
    [
        ("client-configs", {"op": "MOVE", "to": "separate"}),
        ("client-configs", {"op": "DISCARD"}),
        ("client-quotas", {"removeAll": True}),
        ("configs", {"key": "a", "op": "REENCODE", "value": None, "secret": True}),
    ],
)
def test_other_ops_are_answered_as_they_are_kept(facet: str, op: dict[str, Any]) -> None:
    assert answered(facet, op) == [op]
