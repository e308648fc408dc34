"""Remainders of runs: taken once, by the request that continues the run."""

from __future__ import annotations

import time
from typing import Any, cast

from confplane.domain.entities import Entity
from confplane.domain.facets import FacetName
from confplane.domain.ops import Op, OpType
from confplane.services.changes.callers import Caller
from confplane.services.changes.edits import Edit, EditResult, Mode
from confplane.services.plans.bases import Basis
from confplane.services.plans.planned import Plan, PlannedEdit, PlanOptions
from confplane.services.plans.remainders import Remainder, Remainders

PLAN_ID = "a" * 40


class _Facet:
    """The facet of quotas of a cluster."""

    name = FacetName.CLIENT_QUOTAS


FACET = cast("Any", _Facet())


def edit_of(value: int) -> Edit:
    return Edit(Entity.from_id("user=a"), (Op("producer_byte_rate", OpType.SET, value),), Mode.REPLACE)


async def test_a_remainder_is_taken_once_and_by_the_same_request_alone() -> None:
    kept, document = Remainders(), [{FACET: edit_of(1)}]
    caller = Caller.operator("User:a", "test", "the-request", time.monotonic())
    left: list[tuple[PlannedEdit, ...]] = [
        (PlannedEdit(FACET, EditResult(edit_of(1)), Basis(None), pruned=False, may_alter=True),)
    ]

    async def take(
        cluster: str = "default",
        value: int = 1,
        options: PlanOptions | None = None,
        plan_id: str = PLAN_ID,
        by: Caller = caller,
    ) -> Remainder | None:
        return await kept.take(cluster, [{FACET: edit_of(value)}], options or PlanOptions(), plan_id, by)

    assert await take() is None
    await kept.keep("default", document, PlanOptions(), caller, Remainder(Plan(PLAN_ID, 1, left, None), left))
    other = Caller.operator("User:b", "test", "the-request", time.monotonic())
    assert await take(cluster="other") is None
    assert await take(value=2) is None
    assert await take(options=PlanOptions(owner="a")) is None
    assert await take(plan_id="b" * 40) is None
    assert await take(by=other) is None
    again = Caller.operator("User:a", "test", "another-request", time.monotonic())
    assert await take(by=again) == (Plan(PLAN_ID, 1, [], None), left)
    assert await take() is None
