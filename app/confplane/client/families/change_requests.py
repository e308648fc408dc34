"""Change requests, and temporary changes with their ends."""

from __future__ import annotations

from types import MappingProxyType
from typing import TYPE_CHECKING, Any

from confplane.client.core.calls import call, id_of, segment
from confplane.client.core.operations import Family, S, listing, operation, tagged
from confplane.client.core.pages import Paged

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from typing_extensions import Unpack

    from confplane.client.core.calls import (
        ApiCall,
        CommonWriteOptions,
        PageOptions,
        ProposalOptions,
        UnkeyedConditionalWriteOptions,
        UnkeyedWriteOptions,
        WriteOptions,
    )
    from confplane.client.types import (
        ChangeRequestData,
        ChangeRequestPage,
        ChangeRequestSummary,
        ProposedEdit,
        ScheduleData,
        SchedulePage,
        SchedulePauseState,
        SuppliedValue,
    )
    from confplane.domain.entities import Entity


class ChangeRequests(Family[S]):
    """The change requests of the cluster."""

    @listing
    def list(
        self,
        *,
        state: str | None = None,
        entity: Entity | str | None = None,
        **page: Unpack[PageOptions],
    ) -> Paged[ChangeRequestPage, ChangeRequestSummary]:
        """List change requests, newest first.

        Args:
            state: Only requests in this state.
            entity: Only requests of this entity.
            **page: The page.
        """
        query = {"state": state, "entity": None if entity is None else id_of(entity)}
        return Paged(call("GET", f"{self._base}/change-requests", page, params=query))

    @tagged
    def get(self, request_id: str) -> ApiCall[ChangeRequestData]:
        """Read a request with its content and its events."""
        return call("GET", self._path(request_id))

    @operation
    def propose(
        self,
        edits: Sequence[ProposedEdit] = (),
        *,
        revert: str | None = None,
        manifest: Mapping[str, Any] | None = None,
        expires_at: str | None = None,
        apply_at: str | None = None,
        draft: bool = False,
        **terms: Unpack[ProposalOptions],
    ) -> ApiCall[ChangeRequestData]:
        """Propose a change.

        Args:
            edits: The edits, each facet of an entity once.
            revert: Instead of edits, the id of a change that is to be reverted.
            manifest: Instead of edits, a manifest with the options of its plan, and with the ``planId`` that was seen.
            expires_at: The time at which the request expires, RFC 3339; a week by default.
            apply_at: The time from which it is applied by itself once it is approved.
            draft: Make a draft, which :meth:`revise` proposes.
            **terms: The terms of the write.
        """
        body = {
            **_content(edits, revert, manifest),
            **_times(expires_at, apply_at),
            **({"draft": True} if draft else {}),
        }
        return call("POST", f"{self._base}/change-requests", terms, json=body, keyed=True)

    @operation
    def revise(
        self,
        request_id: str,
        edits: Sequence[ProposedEdit] = (),
        *,
        revert: str | None = None,
        manifest: Mapping[str, Any] | None = None,
        times: Mapping[str, str | None] = MappingProxyType({}),
        draft: bool = False,
        **terms: Unpack[UnkeyedConditionalWriteOptions],
    ) -> ApiCall[ChangeRequestData]:
        """Replace the content of a request, or without edits decide it again on the present state.

        Args:
            request_id: The request.
            edits: The new edits; without them, the same edits are decided again.
            revert: Instead of edits, the id of a change that is to be reverted.
            manifest: Instead of edits, a manifest with the options of its plan.
            times: ``expiresAt`` and ``applyAt`` as far as they change; None for a week, and for no time.
            draft: Leave a draft a draft. Otherwise it is proposed.
            **terms: The terms of the write.
        """
        body = {**_content(edits, revert, manifest), **times, **({"draft": True} if draft else {})}
        return call("POST", f"{self._path(request_id)}:revise", terms, json=body)

    @operation
    def approve(
        self, request_id: str, digest: str, *, comment: str | None = None, **terms: Unpack[UnkeyedWriteOptions]
    ) -> ApiCall[ChangeRequestData]:
        """Approve a request.

        Args:
            request_id: The request.
            digest: The ``digest`` of the content that was seen.
            comment: A comment.
            **terms: The terms of the write.
        """
        body = {"digest": digest, **_comment(comment)}
        return call("POST", f"{self._path(request_id)}:approve", terms, json=body, repeatable=True)

    @operation
    def reject(
        self, request_id: str, comment: str | None = None, **terms: Unpack[UnkeyedWriteOptions]
    ) -> ApiCall[ChangeRequestData]:
        """Reject a request for good."""
        return call("POST", f"{self._path(request_id)}:reject", terms, json=_comment(comment))

    @operation
    def cancel(
        self, request_id: str, comment: str | None = None, **terms: Unpack[UnkeyedWriteOptions]
    ) -> ApiCall[ChangeRequestData]:
        """Cancel a request as its author."""
        return call("POST", f"{self._path(request_id)}:cancel", terms, json=_comment(comment))

    @operation
    def comment(
        self, request_id: str, comment: str, **terms: Unpack[UnkeyedWriteOptions]
    ) -> ApiCall[ChangeRequestData]:
        """Comment on a request."""
        return call("POST", f"{self._path(request_id)}:comment", terms, json={"comment": comment})

    @operation
    def apply(
        self, request_id: str, values: Sequence[SuppliedValue] = (), **terms: Unpack[UnkeyedWriteOptions]
    ) -> ApiCall[ChangeRequestData]:
        """Apply an approved request.

        Args:
            request_id: The request.
            values: The sensitive values that its ``toSupply`` names.
            **terms: The terms of the write.
        """
        return call("POST", f"{self._path(request_id)}:apply", terms, json={"values": [*values]}, repeatable=True)

    @operation
    def revert(
        self,
        request_id: str,
        *,
        partly: bool = False,
        expires_at: str | None = None,
        apply_at: str | None = None,
        **terms: Unpack[ProposalOptions],
    ) -> ApiCall[ChangeRequestData]:
        """Propose the revert of an applied request, and return the new request.

        Args:
            request_id: The applied request.
            partly: Leave out entities that can't be reverted.
            expires_at: The time at which the new request expires, RFC 3339; a week by default.
            apply_at: The time from which it is applied by itself once it is approved.
            **terms: The terms of the write.
        """
        body = {**({"partly": True} if partly else {}), **_times(expires_at, apply_at)}
        return call("POST", f"{self._path(request_id)}:revert", terms, json=body, keyed=True)

    def _path(self, request_id: str) -> str:
        return f"{self._base}/change-requests/{segment(request_id)}"


def _content(edits: Sequence[ProposedEdit], revert: str | None, manifest: Mapping[str, Any] | None) -> dict[str, Any]:
    if manifest is not None:
        return {"manifest": {**manifest}}
    return {"edits": [*edits], **({} if revert is None else {"revert": revert})}


def _times(expires_at: str | None, apply_at: str | None) -> dict[str, str]:
    times = {"expiresAt": expires_at, "applyAt": apply_at}
    return {name: value for name, value in times.items() if value is not None}


def _comment(comment: str | None) -> dict[str, str]:
    return {} if comment is None else {"comment": comment}


class Schedules(Family[S]):
    """The temporary changes of the cluster. Writes begin them, with ``expires_in`` or ``revert_at``."""

    @listing
    def list(
        self,
        *,
        ended: bool = False,
        entity: Entity | str | None = None,
        **page: Unpack[PageOptions],
    ) -> Paged[SchedulePage, ScheduleData]:
        """List temporary changes, newest first.

        Args:
            ended: Those that have ended, instead of those that have not.
            entity: Only changes of this entity.
            **page: The page.
        """
        query = {"ended": "true" if ended else None, "entity": None if entity is None else id_of(entity)}
        return Paged(call("GET", f"{self._base}/schedules", page, params=query))

    @operation
    def end(self, change_id: str, **terms: Unpack[WriteOptions]) -> ApiCall[ScheduleData]:
        """End a temporary change now."""
        return call("POST", f"{self._base}/schedules/{segment(change_id)}:end", terms, keyed=True)

    @operation
    def pause(self, reason: str, **terms: Unpack[CommonWriteOptions]) -> ApiCall[SchedulePauseState]:
        """Pause the ends of all temporary changes.

        Args:
            reason: The reason, which the pause shows.
            **terms: The terms of the write.
        """
        return call("POST", f"{self._base}/schedules:pause", terms, json={"reason": reason}, repeatable=True)

    @operation
    def resume(self, **terms: Unpack[UnkeyedWriteOptions]) -> ApiCall[SchedulePauseState]:
        """Resume the ends of temporary changes."""
        return call("POST", f"{self._base}/schedules:resume", terms, repeatable=True)
