"""Reverts of applied change requests: each is a request of its own, which others approve."""

from __future__ import annotations

from typing import TYPE_CHECKING

from confplane.domain.access.operations import Operation
from confplane.domain.change_requests import WITHOUT_CHANGE, WRITTEN, RequestAction, RequestState, check_action
from confplane.domain.errors import (
    ConcurrentChangeError,
    NotRevertibleError,
    RequestStateError,
    RevertConflictError,
)
from confplane.services.access import unrestricted
from confplane.services.changes.callers import Caller
from confplane.services.changes.edits import offender
from confplane.services.reads import trail as reading
from confplane.services.requests.manifests import is_manifest, run_id
from confplane.services.reverts.parts import of_hidden
from confplane.services.reverts.service import RevertSelection

if TYPE_CHECKING:
    from collections.abc import Sequence
    from uuid import UUID

    from confplane.services.changes.alter import AlterService, Entry
    from confplane.services.changes.edits import Edit, EditResult
    from confplane.services.cluster_facet import ClusterFacet
    from confplane.services.clusters import Cluster
    from confplane.services.ports.change_requests import ChangeRequest
    from confplane.services.ports.trail import AuditLog
    from confplane.services.requests.proposals import RequestProposals, RequestTerms
    from confplane.services.requests.reader import RequestReader
    from confplane.services.requests.transitions import RequestTransitions
    from confplane.services.reverts.service import RevertService


class RequestReversals:
    """Proposes reverts.

    Args:
        reader: Reads requests.
        transitions: Writes requests.
        proposals: Creates the requests that revert.
        audit: The trail.
        reverts: Decides reverts.
        alter: Decides which entities can be reverted.
    """

    def __init__(
        self,
        reader: RequestReader,
        transitions: RequestTransitions,
        proposals: RequestProposals,
        *,
        audit: AuditLog,
        reverts: RevertService,
        alter: AlterService,
    ) -> None:
        self._reader = reader
        self._transitions = transitions
        self._proposals = proposals
        self._audit = audit
        self._reverts = reverts
        self._alter = alter

    async def revert(
        self,
        cluster: Cluster,
        request_id: UUID,
        terms: RequestTerms,
        caller: Caller,
        *,
        partly: bool = False,
        validate_only: bool = False,
    ) -> ChangeRequest:
        """Propose to give the keys of an applied request their earlier values, as a request of its own.

        Args:
            cluster: The cluster.
            request_id: The applied request.
            terms: The times of the new request.
            caller: The author of the new request, with the run of an Idempotency-Key.
            partly: Leave out entities that can't be reverted.
            validate_only: Check everything, and write nothing.

        Raises:
            RequestStateError: The request is not applied, or is reverted already; or the request that was made under
                the Idempotency-Key has ended without a change.
            ConcurrentChangeError: Another revert was proposed at the same time.
            ConfplaneError: As of :meth:`create` and :meth:`reversal`.
        """
        request = await self._reader.find(cluster.name, request_id, caller.access)
        run = None if validate_only else caller.run
        made = await self._reader.made_under(cluster.name, run.id) if run is not None and run.claimed else None
        if run is not None and made is not None:
            run.wrote = True
            return await self._continued(request, made, caller)
        check_action(request.kind, request.state, RequestAction.REVERT)
        if request.change_id is None:
            raise RequestStateError("The request changed nothing that could be reverted")
        if is_manifest(request.draft):
            selection = RevertSelection(request_id=run_id(request.id), applies=request.id)
            entries = await self._reversal(cluster, selection, request.entity_ids, caller, partly=partly)
        else:
            entries = await self.reversal(cluster, request.change_id, caller, partly=partly)
        made = await self._proposals.create(
            cluster, entries, terms, caller, reverted=request, validate_only=validate_only
        )
        return made if validate_only else await self._begun(request, made, caller)

    async def _continued(self, request: ChangeRequest, made: ChangeRequest, caller: Caller) -> ChangeRequest:
        """Return the request that an earlier run made under the same Idempotency-Key, and end that run's work.

        Raises:
            RequestStateError: It has ended without a change.
        """
        if made.state in WITHOUT_CHANGE:
            raise RequestStateError(
                f"The request {made.id} that was made with this Idempotency-Key is {made.state}; propose the revert"
                " again with another key"
            )
        if made.state in WRITTEN or made.id == request.reverted_by:
            return made
        return await self._begun(request, made, caller)

    async def _begun(self, request: ChangeRequest, made: ChangeRequest, caller: Caller) -> ChangeRequest:
        """Record in a request that another one reverts it, which is cancelled if that is not possible."""
        try:
            await self._transitions.move(
                request,
                RequestAction.REVERT,
                RequestState.REVERTING,
                made.authors[0],
                caller.reason,
                reverted_by=made.id,
            )
        except (ConcurrentChangeError, RequestStateError):
            text = "Another revert of the same request was proposed at the same time"
            await self._transitions.move(made, RequestAction.CANCEL, RequestState.CANCELLED, text=text)
            raise
        return made

    async def reversal(self, cluster: Cluster, change_id: UUID, caller: Caller, *, partly: bool = False) -> list[Entry]:
        """Return the entries that give the keys of a change their earlier values.

        Args:
            cluster: The cluster.
            change_id: The change.
            caller: The author.
            partly: Leave out entities that can't be reverted, if any can be.

        Raises:
            NotFoundError: The trail has no such change that the caller may see.
            ForbiddenError: The caller may not describe some of its entities, or not propose a change of them.
            NotRevertibleError: It gave no key another value, or can't be reverted.
            RevertConflictError: Later changes touched the same keys.
        """
        with caller.preparing():
            record = await reading.find(self._audit, caller.access, cluster.name, change_id)
        if record.partial:  # errors would name the hidden entities
            raise of_hidden(change_id)
        entity_ids = [entity.entity_id for entity in record.intent.entities]
        return await self._reversal(cluster, RevertSelection(change_id=change_id), entity_ids, caller, partly=partly)

    async def _reversal(
        self,
        cluster: Cluster,
        selection: RevertSelection,
        entity_ids: Sequence[str],
        caller: Caller,
        *,
        partly: bool,
    ) -> list[Entry]:
        """Return the entries that give the keys of changes of some entities their earlier values."""
        for entity_id in entity_ids:
            caller.require(cluster.name, Operation.PROPOSE, entity_id)
        planner = Caller(unrestricted(caller.access), caller.deadline)
        done = await self._reverts.changes(cluster, selection, planner, validate_only=True)
        entries: dict[str, dict[ClusterFacet, Edit | EditResult]] = {}
        for each in done.results:
            entries.setdefault(each.result.edit.entity.id, {})[each.cluster_facet] = each.result.edit
        error = offender(each.result.error for each in done.results)
        if error is None:
            return list(entries.values())
        lost = {
            each.result.edit.entity.id for each in done.results if isinstance(each.result.error, NotRevertibleError)
        }
        kept: list[Entry] = [entry for entity_id, entry in entries.items() if entity_id not in lost] if partly else []
        # The changes of one transaction are not decided one by one, so the first conflict hides the others.
        decided = await self._alter.alter_entries(kept, planner, validate_only=True)
        found = [
            entry
            for entry, result in zip(kept, decided, strict=True)
            if not isinstance(result.error, RevertConflictError)
        ]
        if not found:
            raise error
        return found
