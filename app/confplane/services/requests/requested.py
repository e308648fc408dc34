"""The changes that requests ask for: edits in one transaction, or a manifest, applied as the run of its plan."""

from __future__ import annotations

import asyncio
import time
from dataclasses import replace
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol
from uuid import UUID

from typing_extensions import override

from confplane.domain.access.operations import Operation
from confplane.domain.errors import ConfplaneError, RequestStateError, StalePlanError, UnavailableError, WriteOutcome
from confplane.domain.policies import approval_text
from confplane.services.access import approved, unrestricted
from confplane.services.changes.callers import Caller
from confplane.services.changes.edits import EditResult, offender, password_op
from confplane.services.plans.planned import PlanReference
from confplane.services.requests.contents import (
    RequestContent,
    decide,
    differences,
    entries_of,
    requirements_of,
    was_restored,
)
from confplane.services.requests.manifests import (
    ProposedManifest,
    check_size,
    is_manifest,
    restore_manifest,
    run_id,
    store_manifest,
)

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from confplane.domain.approvals import Requirement
    from confplane.domain.facets import JsonValue
    from confplane.services.access import Rights
    from confplane.services.changes.alter import AlterService, Entry
    from confplane.services.changes.stored_draft import Fingerprint
    from confplane.services.clusters import Cluster
    from confplane.services.plans.apply import ApplyService
    from confplane.services.plans.plan import PlanService
    from confplane.services.plans.planned import Plan
    from confplane.services.ports.change_requests import ChangeRequest
    from confplane.services.requests.participants import Participants

    Proposal = Sequence[Entry] | ProposedManifest
    """Edits, each entity once, or a manifest."""


class AttemptResult(NamedTuple):
    """The result of one attempt to make the change of a request."""

    change_id: UUID | None
    """The first change that was made."""
    error: ConfplaneError | None


class RequestedChange(Protocol):
    """The change of an approved request, with the sensitive values that were supplied."""

    async def requirements(self, author: Caller) -> dict[str, tuple[Requirement, ...]]:
        """Decide the change again, and return the approvals that rules ask for, by entity id.

        Raises:
            PreconditionFailedError: An entity was changed after the request was decided.
            StalePlanError: What the plan of the manifest rests on was changed.
            ConfplaneError: The change would be refused.
        """

    async def make(self, author: Caller) -> AttemptResult:
        """Make the change, or as much of it as is not refused."""


class RequestedChanges:
    """Decides what is proposed, and restores the change of a request. One instance serves all clusters of a process.

    Args:
        alter: Decides and runs the edits.
        plans: Plans manifests.
        applies: Applies plans.
        participants: The people of requests.
        fingerprints: The fingerprints of sensitive values, by cluster.
    """

    def __init__(
        self,
        alter: AlterService,
        plans: PlanService,
        applies: ApplyService,
        participants: Participants,
        fingerprints: Mapping[str, Fingerprint],
    ) -> None:
        self._alter = alter
        self._plans = plans
        self._applies = applies
        self._participants = participants
        self._fingerprints = fingerprints

    async def decide(self, cluster: Cluster, proposed: Proposal, caller: Caller) -> RequestContent:
        """Decide what is proposed, for an author who may propose it.

        Raises:
            ForbiddenError: The caller lacks the right to propose a change of an entity, to describe it, or to set its
                password.
            InvalidRequestError: Nothing would change, or too much.
            ConfplaneError: The change would be refused.
        """
        if isinstance(proposed, ProposedManifest):
            return await self._planned(cluster, proposed, caller)
        for cluster_facet, edit in (part for entry in proposed for part in entry.items()):
            if isinstance(edit, EditResult):
                raise edit.error or ValueError("an edit that can't be formed has an error")
            _check_may_propose(caller, cluster.name, edit.entity.id, pointer=edit.pointer)
            # Others could compare guesses with the stored password.
            if (secret := password_op(cluster_facet, edit)) is not None:
                caller.require(cluster.name, Operation.ALTER_CONFIGS, edit.entity.id, pointer=secret.pointer)
        author = Caller(unrestricted(caller.access), caller.deadline, caller.reason, caller.ticket)
        with caller.preparing():
            return await decide(self._alter, self._fingerprints[cluster.name], list(proposed), author)

    async def _planned(self, cluster: Cluster, manifest: ProposedManifest, caller: Caller) -> RequestContent:
        """Plan a manifest for its author."""
        check_size(manifest)
        # With the rights of the author, who may not compare guesses with the stored password of a broker.
        author = Caller(caller.access, caller.deadline, caller.reason, caller.ticket)
        with caller.preparing():
            await cluster.store.catch_up(caller.deadline)
            plan = await self._plans.plan(cluster, manifest.document, manifest.options, author)
        if manifest.plan_id is not None and plan.id != manifest.plan_id:
            raise StalePlanError(
                "The document, its options, the policies or the entities are not those of the plan any more; make a new"
                " plan",
                pointer="/planId",
                outcome=WriteOutcome.NOT_APPLIED,
            )
        _check(plan)
        for each in plan.edits:
            if each.has_effect:
                _check_may_propose(caller, cluster.name, each.entity.id, pointer=each.result.edit.pointer)
        draft = await asyncio.to_thread(store_manifest, plan, manifest, self._fingerprints[cluster.name])
        results = [each.result for each in plan.edits if each.has_effect]
        asked = {approval_text(each.edit.entity, each.requirements) for each in results if each.requirements}
        warnings = dict.fromkeys(text for each in plan.edits for text in each.result.warnings if text not in asked)
        entity_ids = tuple(sorted({each.edit.entity.id for each in results}))
        return RequestContent(draft, entity_ids, tuple(warnings), requirements_of(results))

    async def keep(self, cluster: Cluster, request: ChangeRequest, caller: Caller) -> RequestContent:
        """Return the content of a request that can't be decided again, because its sensitive values are not stored.

        Raises:
            ForbiddenError: The caller may not propose a change of an entity, or not describe it.
            RequestStateError: An entity was changed since it was decided.
        """
        for each in request.entity_ids:
            _check_may_propose(caller, cluster.name, each)
        with caller.preparing():
            await cluster.store.catch_up(caller.deadline)
        if changed := differences(cluster, request.draft):
            raise RequestStateError(
                f"{changed[0]['entity']} was changed since the request was decided, and its sensitive values are not"
                " stored. Revise it with its whole content",
                outcome=WriteOutcome.NOT_APPLIED,
            )
        return RequestContent(request.draft, request.entity_ids, request.warnings, dict(request.requirements))

    async def proposal_of(self, cluster: Cluster, draft: Mapping[str, Any]) -> Proposal:
        """Return what a content without sensitive values proposed, to be decided on the present state."""
        fingerprint = self._fingerprints[cluster.name]
        if is_manifest(draft):
            return await asyncio.to_thread(restore_manifest, draft, cluster.facets, {}, fingerprint)
        return await entries_of(cluster, fingerprint, draft, {}, on_versions=False)

    async def restore(
        self, cluster: Cluster, request: ChangeRequest, supplied: Mapping[tuple[str, str], JsonValue]
    ) -> RequestedChange:
        """Return the change of a request.

        Args:
            cluster: The cluster.
            request: The request.
            supplied: The sensitive values, by entity id and key.

        Raises:
            InvalidRequestError: A sensitive value is missing, or is not the one that was decided on.
            RequestStateError: The credential of the author of a manifest was revoked.
        """
        fingerprint, draft = self._fingerprints[cluster.name], request.draft
        if not is_manifest(draft):
            return _RequestedEdits(self._alter, await entries_of(cluster, fingerprint, draft, supplied))
        rights = await self._participants.rights(request.authors[-1])
        if rights is None:
            raise RequestStateError(f"The credential of {request.authors[-1].identity.principal} was revoked")
        manifest = await asyncio.to_thread(restore_manifest, draft, cluster.facets, supplied, fingerprint)
        return _RequestedPlan(self._plans, self._applies, cluster, request, manifest, rights=rights)


class _RequestedEdits(RequestedChange):
    """Edits, which are made in one transaction, on the versions on which they were decided."""

    def __init__(self, alter: AlterService, entries: Sequence[Entry]) -> None:
        self._alter = alter
        self._entries = entries

    @override
    async def requirements(self, author: Caller) -> dict[str, tuple[Requirement, ...]]:
        return requirements_of(await self._alter.decide_entries(self._entries, author))

    @override
    async def make(self, author: Caller) -> AttemptResult:
        results = await self._alter.alter_entries(self._entries, author, atomic=True)
        return AttemptResult(_first(result.change_id for result in results), offender(each.error for each in results))


class _RequestedPlan(RequestedChange):
    """A manifest, whose plan is applied as it was approved."""

    def __init__(
        self,
        plans: PlanService,
        applies: ApplyService,
        cluster: Cluster,
        request: ChangeRequest,
        manifest: ProposedManifest,
        *,
        rights: Rights,
    ) -> None:
        self._plans = plans
        self._applies = applies
        self._cluster = cluster
        self._request = request
        self._manifest = manifest
        self._rights = rights

    @override
    async def requirements(self, author: Caller) -> dict[str, tuple[Requirement, ...]]:
        if self._request.change_id is not None:  # a run that was begun: each edit is decided when it is sent
            return dict(self._request.requirements)
        await self._cluster.store.catch_up(author.deadline)
        caller = self._caller(author)
        approved = self._request.draft["plan"]
        plan = await self._plans.plan(
            self._cluster,
            self._manifest.document,
            self._manifest.options,
            caller,
            policies=approved.get("policies"),  # requests of the release before have none
        )
        if plan.id != approved["id"] or was_restored(self._cluster, self._request.draft):
            raise StalePlanError("What the plan rests on was changed", outcome=WriteOutcome.NOT_APPLIED)
        _check(plan)
        return requirements_of(each.result for each in plan.edits if each.has_effect)

    @override
    async def make(self, author: Caller) -> AttemptResult:
        caller, plan = self._caller(author), self._request.draft["plan"]
        try:
            applied = await self._applies.apply(
                self._cluster,
                self._manifest.document,
                self._manifest.options,
                PlanReference(plan["id"], plan.get("policies"), has_own_run=True),
                caller,
                seconds=caller.deadline - time.monotonic(),
            )
        except ConfplaneError as refusal:
            return AttemptResult(None, refusal)
        error = applied.error or offender(result.error for _, result in applied.done)
        if error is None and applied.left:
            error = UnavailableError(
                f"The time of the request was up before {len(applied.left)} entities were sent",
                outcome=WriteOutcome.NOT_APPLIED,
            )
        return AttemptResult(_first(result.change_id for _, result in applied.done), error)

    def _caller(self, author: Caller) -> Caller:
        """Return the author as the caller of the run, which has one request id."""
        return replace(author, access=approved(self._rights, author.access, run_id(self._request.id)))


def _check_may_propose(caller: Caller, cluster: str, entity_id: str, *, pointer: str | None = None) -> None:
    """Refuse a caller who may not propose a change of an entity, or not describe it.

    Raises:
        ForbiddenError: A grant is missing.
    """
    for operation in (Operation.DESCRIBE_CONFIGS, Operation.PROPOSE):
        caller.require(cluster, operation, entity_id, pointer=pointer)


def _check(plan: Plan) -> None:
    """Refuse a plan that can't be applied.

    Raises:
        ConfplaneError: The reason.
    """
    error = plan.refusal or offender(each.result.error for each in plan.edits)
    if error is not None:
        raise error


def _first(change_ids: Iterable[str | None]) -> UUID | None:
    return next((UUID(each) for each in change_ids if each is not None), None)
