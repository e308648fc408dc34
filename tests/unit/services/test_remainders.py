"""Remainders of runs: taken once, by the request that continues the run."""

from __future__ import annotations

import time
from dataclasses import replace
from typing import Any, cast

import pytest

from confplane.domain.entities import Entity
from confplane.domain.facets import FacetName
from confplane.domain.ops import Op, OpType
from confplane.services.changes.callers import Caller
from confplane.services.changes.edits import Edit, EditResult, Mode
from confplane.services.plans.bases import Basis
from confplane.services.plans.planned import Plan, PlannedEdit, PlanOptions
from confplane.services.plans.remainders import Remainder, Remainders
from confplane.services.ports.manifest_runs import ManifestRun

PLAN_ID = "a" * 40
RUN = ManifestRun("default", PLAN_ID, "the-request", "this process", b"")


class _Facet:
    """The facet of quotas of a cluster."""

    name = FacetName.CLIENT_QUOTAS


FACET = cast("Any", _Facet())


def edit_of(value: int) -> Edit:
    return Edit(Entity.from_id("user=a"), (Op("producer_byte_rate", OpType.SET, value),), Mode.REPLACE)


@pytest.fixture
def left() -> list[tuple[PlannedEdit, ...]]:
    return [(PlannedEdit(FACET, EditResult(edit_of(1)), Basis(None), pruned=False, may_alter=True),)]


def caller_of(principal: str = "User:a") -> Caller:
    return Caller.operator(principal, "test", "any-request", time.monotonic())


async def remainders(left: list[tuple[PlannedEdit, ...]]) -> Remainders:
    found = Remainders()
    remainder = Remainder(Plan(PLAN_ID, 1, left, None), left)
    await found.keep(RUN, [{FACET: edit_of(1)}], PlanOptions(), caller_of(), remainder)
    return found


async def test_a_remainder_is_taken_once(left: list[tuple[PlannedEdit, ...]]) -> None:
    kept, document = await remainders(left), [{FACET: edit_of(1)}]
    for other in (replace(RUN, cluster="other"), replace(RUN, plan_id="b" * 40)):
        assert await kept.take(other, document, PlanOptions(), caller_of()) is None
    assert await kept.take(RUN, document, PlanOptions(), caller_of()) == (Plan(PLAN_ID, 1, [], None), left)
    assert await kept.take(RUN, document, PlanOptions(), caller_of()) is None


@pytest.mark.parametrize(
    ("run", "value", "options", "principal"),
    [
        (replace(RUN, writer="another process"), 1, PlanOptions(), "User:a"),
        (RUN, 2, PlanOptions(), "User:a"),
        (RUN, 1, PlanOptions(owner="a"), "User:a"),
        (RUN, 1, PlanOptions(), "User:b"),
    ],
)
async def test_a_remainder_is_dropped_if_another_request_or_process_continues_the_run(
    left: list[tuple[PlannedEdit, ...]], run: ManifestRun, value: int, options: PlanOptions, principal: str
) -> None:
    kept = await remainders(left)
    assert await kept.take(run, [{FACET: edit_of(value)}], options, caller_of(principal)) is None
    assert await kept.take(RUN, [{FACET: edit_of(1)}], PlanOptions(), caller_of()) is None
