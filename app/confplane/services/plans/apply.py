"""Applies of plans.

An apply makes the plan again, on the state of ZooKeeper, and compares the ids. Then the edits go the way of all bulks,
in batches, each with the version on which it was planned (:class:`confplane.services.plans.bases.ExpectedBase`): an
entity that was changed in between is refused. The first refusal ends the run.

The run is stored before its first batch, with the versions of the plan. So after a refusal, a timeout or a crash the
same plan continues: an edit whose entity is as planned is sent, one without an effect is done, and any other is
refused. The process whose time was up keeps what is left (:mod:`confplane.services.plans.remainders`).
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import time
import zlib
from dataclasses import dataclass, replace
from functools import partial
from typing import TYPE_CHECKING, Final, Protocol

from confplane.domain.access.operations import Operation, ResourceType
from confplane.domain.access.ranges import spell
from confplane.domain.approvals import missing
from confplane.domain.errors import (
    ConcurrentChangeError,
    PolicyViolationError,
    StalePlanError,
    UnavailableError,
    WriteOutcome,
)
from confplane.domain.facets import FacetName
from confplane.domain.policies import approval_error
from confplane.services.access import Access
from confplane.services.changes.edits import Edit, EntryResult, offender
from confplane.services.cooperative_yielding import in_slices
from confplane.services.plans.bases import Bases, Basis, BegunPlan, ExpectedBase
from confplane.services.plans.remainders import Remainder, Remainders
from confplane.services.ports.manifest_runs import ManifestRun

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Sequence

    from confplane.domain.errors import ConfplaneError
    from confplane.services.changes.alter import AlterService, Entry
    from confplane.services.changes.callers import Caller
    from confplane.services.clusters import Cluster
    from confplane.services.plans.plan import PlanService
    from confplane.services.plans.planned import Plan, PlannedEdit, PlannedEntry, PlanOptions, PlanReference
    from confplane.services.ports.manifest_runs import ManifestRuns


class _Replan(Protocol):
    """Plans the same document again, as :meth:`PlanService.plan` does."""

    async def __call__(
        self, caller: Caller, *, begun: BegunPlan | None = None, policies: str | None = None
    ) -> Plan: ...


_BATCH: Final = 500
"""Entities of a batch."""
_RESERVE: Final = 2
"""A batch is begun if so many times the duration of the batch before it are left."""
_LEAST_S: Final = 1
"""The first batch is begun if so many seconds are left."""
_BEGUN: Final = (
    "The plan was begun with another document, with other options, or by a caller who may describe more entities."
    " Send the request of that time again, or make a new plan"
)
_CHANGED: Final = (
    "The document, its options, the policies or the entities are not those of the plan any more; make a new plan"
)
_MADE_PAST_RULES: Final = (
    "The plan was made with break glass and is applied without it. Send Confplane-Break-Glass with the apply too"
    " (in the CLI --break-glass), or make a new plan without it"
)
_MADE_WITHIN_RULES: Final = (
    "The plan was made without break glass and is applied with it. Send Confplane-Break-Glass with the plan too"
    " (in the CLI --break-glass)"
)


@dataclass(frozen=True, slots=True)
class AppliedPlan:
    """The result of an apply."""

    plan: Plan
    """The plan as it was made again."""
    request_id: str
    """The request id of all changes of the run."""
    done: list[tuple[PlannedEntry, EntryResult]]
    """The entities of the batches that were sent, with their results."""
    left: list[PlannedEntry]
    """The entities that were not sent."""
    error: ConfplaneError | None = None
    """The reason why nothing was sent."""


class ApplyService:
    """Applies plans. One instance serves all clusters of a process.

    Args:
        plans: Makes the plans again.
        alter: Runs the edits.
        runs: The stored runs.
    """

    def __init__(self, plans: PlanService, alter: AlterService, runs: ManifestRuns) -> None:
        self._plans = plans
        self._alter = alter
        self._runs = runs
        self._remainders = Remainders()
        self._executed: set[tuple[str, str]] = set()
        """The clusters and plans of the runs that this process executes: its requests have the same writer node."""

    async def apply(
        self,
        cluster: Cluster,
        document: Sequence[Entry],
        options: PlanOptions,
        planned: PlanReference,
        caller: Caller,
        *,
        seconds: float,
        validate_only: bool = False,
    ) -> AppliedPlan:
        """Apply a plan, or continue to.

        Args:
            cluster: The cluster.
            document: The document of the plan.
            options: The options of the plan.
            planned: The plan.
            caller: The caller. Its deadline is the latest end of the apply.
            seconds: The longest duration of a batch.
            validate_only: Send nothing, and return the results that the apply would have.

        Raises:
            ConcurrentChangeError: Another request executes the plan.
            ForbiddenError: The caller may not alter an entity that the plan changes; nothing was sent.
            UnavailableError: A store is unavailable, or the plan took all of the time; nothing was sent.
        """
        replan: _Replan = partial(self._plans.plan, cluster, document, options)
        with caller.preparing():
            await cluster.store.catch_up(caller.deadline)
            run, replaced = await self._find(cluster, planned, caller)
            begun = None if run is None else await _unpacked(run.bases)
            kept = None
            if run is not None and not validate_only:
                kept = await self._remainders.take(run, document, options, caller)
            plan, entries = await _decide(replan, planned, caller, begun) if kept is None else kept
        request_id = caller.request_id if run is None else run.request_id
        error: ConfplaneError | None = None
        if entries is None:
            text = _BEGUN
            if run is None:
                text = await _difference(replan, planned, caller, plan)
            error = StalePlanError(text, pointer="/planId", outcome=WriteOutcome.NOT_APPLIED)
        elif run is None:
            error = _refusal(plan, caller, validate_only=validate_only)
        if error is not None or entries is None:
            return AppliedPlan(plan, request_id, [], [], error)
        _require(cluster.name, entries, options, caller)
        altered = frozenset([(each.cluster_facet.name.value, each.entity) for entry in entries for each in entry])
        applied, caller = AppliedPlan(plan, request_id, [], entries), replace(caller, altered=altered)
        if not entries:
            return applied
        if time.monotonic() + _LEAST_S >= caller.deadline:
            # Without an error, clients would send the same request again and again.
            raise _no_time()
        new = None
        async with contextlib.AsyncExitStack() as executed:
            if not validate_only:
                with caller.preparing():
                    writer, packed = cluster.store.writer(), await _packed(plan)
                    new = ManifestRun(cluster.name, plan.id, request_id, writer, packed, owner=options.owner)
                    await executed.enter_async_context(self._execution(run, new, caller, replaced))
            bases = None if begun is None else begun.bases
            await self._send(applied, bases, options, caller, seconds, validate_only=validate_only)
        if applied.left and new is not None and all(result.error is None for _, result in applied.done):
            await self._remainders.keep(new, document, options, caller, Remainder(plan, [*applied.left]))
        return applied

    async def _find(
        self, cluster: Cluster, planned: PlanReference, caller: Caller
    ) -> tuple[ManifestRun | None, ManifestRun | None]:
        """Return the run to continue, and the run to replace; None: there is none.

        Raises:
            ConcurrentChangeError: Another request executes the plan.
        """
        if (cluster.name, planned.id) in self._executed:
            raise _busy()
        run = await self._runs.find(cluster.name, planned.id)
        # A run of this process that is not executed any more: Postgres was unavailable when it began or ended.
        if (
            run is not None
            and run.in_time
            and run.writer != cluster.store.writer()
            and run.writer in await cluster.store.markers.writers(caller.deadline)
        ):
            raise _busy()
        if run is not None and planned.has_own_run and run.request_id != caller.request_id:
            return None, run
        return run, None

    @contextlib.asynccontextmanager
    async def _execution(
        self, run: ManifestRun | None, new: ManifestRun, caller: Caller, replaced: ManifestRun | None
    ) -> AsyncIterator[None]:
        """Begin a new run, perhaps in place of another one, or continue the given one; end it on exit."""
        place, seconds = (new.cluster, new.plan_id), max(0.0, caller.deadline - time.monotonic())
        if place in self._executed:
            raise _busy()
        self._executed.add(place)
        try:
            if run is None:
                begun = await self._runs.begin(new, seconds, replaced=replaced)
            else:
                begun = await self._runs.resume(run, new.writer, seconds)
            if not begun:
                raise _busy()
            try:
                yield
            finally:
                with contextlib.suppress(UnavailableError):
                    await self._runs.end(new)
        finally:
            self._executed.remove(place)

    async def _send(
        self,
        applied: AppliedPlan,
        bases: Bases | None,
        options: PlanOptions,
        caller: Caller,
        seconds: float,
        *,
        validate_only: bool,
    ) -> None:
        """Send batches until one has a refusal, or the time is up; ``applied`` is updated."""
        access = caller.access
        of_run = Access(access.rights, access.source, applied.request_id, access.events)
        lasted = 0.0
        while applied.left and (not applied.done or time.monotonic() + _RESERVE * lasted < caller.deadline):
            began = time.monotonic()
            size = len(applied.left) if options.atomic else _BATCH
            batch = applied.left[:size]
            batch_caller = replace(caller, access=of_run, deadline=min(began + seconds, caller.deadline))
            results = await self._alter.alter_entries(
                [{each.cluster_facet: _expecting(each, bases) for each in entry} for entry in batch],
                batch_caller,
                validate_only=validate_only,
                atomic=options.atomic,
            )
            del applied.left[:size]
            applied.done.extend(zip(batch, results, strict=True))
            if any(result.error is not None for result in results):
                break
            lasted = time.monotonic() - began


async def _decide(
    replan: _Replan, planned: PlanReference, caller: Caller, begun: BegunPlan | None
) -> tuple[Plan, list[PlannedEntry] | None]:
    """Make the plan again; return it with the entities that are left to send, or None if it is stale."""
    plan = await replan(caller, begun=begun, policies=planned.policies)
    if plan.id != planned.id:
        if begun is not None:
            # The response has the plan of this document now, and not that of the entities of the run.
            plan = await replan(caller)
        return plan, None
    bases = None if begun is None else begun.bases
    entries = await in_slices(partial(_to_send, bases, temporary=caller.revert_at is not None), plan.entries)
    return plan, [entry for entry in entries if entry]


async def _difference(replan: _Replan, planned: PlanReference, caller: Caller, now: Plan) -> str:
    """Return how a stale plan differs from the present one, as a sentence."""
    broken = caller.break_glass is not None
    if broken or any(isinstance(each.result.error, PolicyViolationError) for each in now.edits):
        other = replace(caller, break_glass=None if broken else "compare")  # plans record no reason
        plan = await replan(other, policies=planned.policies)
        if plan.id == planned.id:
            return _MADE_WITHIN_RULES if broken else _MADE_PAST_RULES
    return _CHANGED


def _refusal(plan: Plan, caller: Caller, *, validate_only: bool) -> ConfplaneError | None:
    """Return the refusal of a plan, or that of an edit that can't be made or lacks approvals; None: there is none."""
    error = plan.refusal or offender(each.result.error for each in plan.edits)
    if error is not None or validate_only or caller.break_glass is not None:
        return error
    for each in plan.edits:
        if lacking := missing(each.entity.id, each.result.requirements, caller.approvals or ()):
            store, pointer = each.cluster_facet.store, each.result.edit.pointer
            return approval_error(store.name, each.entity, lacking, pointer=pointer)
    return None


def _require(cluster: str, entries: Sequence[PlannedEntry], options: PlanOptions, caller: Caller) -> None:
    """Refuse a caller who may not carry out a plan.

    Raises:
        ForbiddenError: The grant for an entity, for the owner, or for an owner of whom a key is taken over is missing.
    """
    taken: dict[str, str | None] = {}
    for each in (each for entry in entries for each in entry):
        edit = each.result.edit
        caller.require(cluster, Operation.ALTER_CONFIGS, each.entity.id, pointer=edit.pointer)
        taken |= {owner: edit.pointer for owner in each.claimed.values() if owner is not None}
    if options.owner is not None and entries:
        caller.require(cluster, Operation.ALTER, spell(ResourceType.MANIFESTS, options.owner), pointer="/owner")
    for owner, pointer in sorted(taken.items()):
        caller.require(cluster, Operation.TAKE_OVER, spell(ResourceType.MANIFESTS, owner), pointer=pointer)


def _to_send(bases: Bases | None, entry: PlannedEntry, *, temporary: bool) -> PlannedEntry:
    """Return the edits that are left to do: those with an effect, and those that can't be decided any more.

    Temporary changes leave the owners as they are.
    """
    if temporary:
        entry = tuple([_unclaiming(each) for each in entry])
    some = tuple([each for each in entry if each.has_effect or each.result.error is not None])
    return some if bases is None or any(each.key in bases for each in some) else ()


def _unclaiming(planned: PlannedEdit) -> PlannedEdit:
    edit = replace(planned.result.edit, claim=None, claims=False)
    return replace(planned, result=replace(planned.result, edit=edit), claimed={})


def _expecting(planned: PlannedEdit, bases: Bases | None) -> Edit:
    """Return an edit that rests on the base of its plan."""
    basis = planned.basis if bases is None else bases.get(planned.key, Basis(None))
    return replace(planned.result.edit, expected=ExpectedBase(basis.base))


async def _packed(plan: Plan) -> bytes:
    lines = await in_slices(lambda each: json.dumps([*each.key, each.basis.base, each.basis.owners]), plan.edits)
    bases = await asyncio.to_thread(zlib.compress, "\n".join(lines).encode())
    return bases + plan.policies.encode()  # the release before reads the bases, and ignores the rest


async def _unpacked(packed: bytes) -> BegunPlan:
    stream = zlib.decompressobj()
    lines = (await asyncio.to_thread(stream.decompress, packed)).decode().splitlines()

    def parsed(line: str) -> tuple[tuple[FacetName, str], Basis]:
        name, entity_id, base, *owners = json.loads(line)  # those of the release before have no owners
        return (FacetName(name), entity_id), Basis(None if base is None else (base[0], base[1]), *owners)

    return BegunPlan(dict(await in_slices(parsed, lines)), stream.unused_data.decode())


def _no_time() -> UnavailableError:
    return UnavailableError(
        "Planning the manifest took all the time of the request, so nothing was sent. Split the manifest, or send this"
        " request again when the service is less busy",
        outcome=WriteOutcome.NOT_APPLIED,
    )


def _busy() -> ConcurrentChangeError:
    return ConcurrentChangeError(
        "Another request applies this plan, or another plan of its owner; send this one again after it",
        pointer="/planId",
        outcome=WriteOutcome.NOT_APPLIED,
        retry_after_s=2,
    )
