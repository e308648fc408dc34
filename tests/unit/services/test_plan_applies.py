"""Applies of plans: what happens if the time is up before anything was sent."""

from __future__ import annotations

import time
import zlib
from dataclasses import replace
from types import SimpleNamespace
from typing import Any, cast

import pytest

from confplane.domain.changes import Difference
from confplane.domain.entities import Entity
from confplane.domain.errors import UnavailableError, WriteOutcome
from confplane.domain.facets import FacetName
from confplane.domain.quotas import ClientQuotasFacet
from confplane.services.changes.callers import Caller
from confplane.services.changes.edits import Edit, EditResult, Mode
from confplane.services.plans import apply
from confplane.services.plans.apply import ApplyService
from confplane.services.plans.bases import Basis, BegunPlan
from confplane.services.plans.planned import Plan, PlannedEdit, PlanOptions, PlanReference


class _Cluster:
    """A cluster that is caught up."""

    name = "default"

    def __init__(self) -> None:
        self.store = self

    async def catch_up(self, deadline: float) -> None:
        """Return at once."""


class _Plans:
    """Makes a plan of one edit."""

    async def plan(self, *_: object, **__: object) -> Plan:
        """Return the plan."""
        edit = Edit(Entity.from_id("user=a"), (), Mode.REPLACE, pointer="/entities/0/id")
        result = EditResult(edit, diff=(Difference("producer_byte_rate", None, "1"),))
        facet = cast("Any", SimpleNamespace(name=FacetName.CLIENT_QUOTAS, facet=ClientQuotasFacet()))
        return Plan("a" * 40, 1, [(PlannedEdit(facet, result, Basis(None), pruned=False, may_alter=True),)], None)


async def test_the_release_before_reads_the_bases_of_a_run_with_policies() -> None:
    plan = replace(await _Plans().plan(), policies="rules 1")
    packed = await cast("Any", apply)._packed(plan)
    assert zlib.decompress(packed).decode().splitlines() == ['["client-quotas", "user=a", null, {}]']
    begun = await cast("Any", apply)._unpacked(packed)
    assert (begun.policies, list(begun.bases)) == ("rules 1", [(FacetName.CLIENT_QUOTAS, "user=a")])


async def test_a_run_of_the_release_before_has_no_policies() -> None:
    begun = await cast("Any", apply)._unpacked(zlib.compress(b'["client-quotas", "user=a", [3, 1]]'))
    assert begun == BegunPlan({(FacetName.CLIENT_QUOTAS, "user=a"): Basis((3, 1))}, "")


class _NoRuns:
    """Has no runs, and begins none."""

    async def find(self, *_: object) -> None:
        """Return None."""


@pytest.mark.parametrize("validate_only", [False, True])
async def test_a_plan_that_takes_all_of_the_time_is_an_error_and_not_an_apply_without_results(
    *, validate_only: bool
) -> None:
    made = cast("Any", ApplyService)(_Plans(), None, _NoRuns())
    caller = Caller.operator("User:a", "test", "the-request", time.monotonic())
    with pytest.raises(UnavailableError, match="Split the manifest") as refused:
        await made.apply(
            _Cluster(), [], PlanOptions(), PlanReference("a" * 40), caller, seconds=5, validate_only=validate_only
        )
    assert refused.value.outcome is WriteOutcome.NOT_APPLIED
