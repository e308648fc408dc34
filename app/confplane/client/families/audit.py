"""The trail of changes, and reverts of changes."""

from __future__ import annotations

from typing import TYPE_CHECKING

from confplane.client.core.calls import call, drop_none, id_of, segment
from confplane.client.core.operations import Family, S, listing, operation
from confplane.client.core.pages import Paged
from confplane.client.families.resources import page_params

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from typing import Literal

    from typing_extensions import Unpack

    from confplane.client.core.calls import ApiCall, WriteOptions
    from confplane.client.types import AuditedChange, AuditedRefusal, AuditPage, RevertedChanges
    from confplane.domain.entities import Entity


class Audit(Family[S]):
    """The changes of a cluster."""

    @listing
    def search(  # noqa: PLR0913 - one argument a filter
        self,
        *,
        entity: Entity | str | None = None,
        key: str | None = None,
        principal: str | None = None,
        request_id: str | None = None,
        since: str | None = None,
        until: str | None = None,
        outcome: Literal["committed", "rejected", "open"] | None = None,
        page_size: int | None = None,
        page_token: str | None = None,
    ) -> Paged[AuditPage, AuditedChange]:
        """List changes, newest first.

        Args:
            entity: Changes of this entity; ``cluster`` for freezes, thaws and layouts.
            key: Changes of this key.
            principal: Changes by this principal.
            request_id: Changes of this request.
            since: Changes at this time or later, RFC 3339.
            until: Changes before this time, RFC 3339.
            outcome: Changes with this outcome; ``open`` means not known yet.
            page_size: Changes of a page, 1000 at most.
            page_token: The page at which a list continues.
        """
        filters = {
            "entity": None if entity is None else id_of(entity),
            "key": key,
            "principal": principal,
            "requestId": request_id,
            "since": since,
            "until": until,
            "outcome": outcome,
        }
        return Paged(call("GET", f"{self._base}/audit", params=filters | page_params(page_size, page_token)))

    @listing
    def refused(
        self,
        *,
        entity: Entity | str | None = None,
        key: str | None = None,
        principal: str | None = None,
        request_id: str | None = None,
        since: str | None = None,
        until: str | None = None,
        page_size: int | None = None,
        page_token: str | None = None,
    ) -> Paged[AuditPage, AuditedRefusal]:
        """List writes that were refused before they were begun, newest first.

        Args:
            entity: Attempts to change this entity; ``cluster`` for freezes and thaws.
            key: Attempts that name this key.
            principal: Attempts by this principal.
            request_id: Attempts of this request.
            since: Attempts at this time or later, RFC 3339.
            until: Attempts before this time, RFC 3339.
            page_size: Attempts of a page, 1000 at most.
            page_token: The page at which a list continues.
        """
        filters = {
            "entity": None if entity is None else id_of(entity),
            "key": key,
            "principal": principal,
            "requestId": request_id,
            "since": since,
            "until": until,
            "result": "refused",
        }
        return Paged(call("GET", f"{self._base}/audit", params=filters | page_params(page_size, page_token)))

    @operation
    def get(self, change_id: str) -> ApiCall[AuditedChange]:
        """Read one change."""
        return call("GET", f"{self._base}/audit/{segment(change_id)}")

    @operation
    def revert(
        self,
        selection: Mapping[str, str],
        *,
        keys: Sequence[str] | None = None,
        force: bool = False,
        **terms: Unpack[WriteOptions],
    ) -> ApiCall[RevertedChanges]:
        """Set the keys that changes touched to their previous values.

        Args:
            selection: One of ``{"changeId": …}``, ``{"requestId": …}``, and ``{"principal": …, "since": …}``, the
                last with or without ``until``; times are RFC 3339.
            keys: Only these keys; None: all.
            force: Revert even if later changes touched the same keys.
            **terms: The terms of the write.
        """
        body = {**selection, **drop_none(keys=None if keys is None else list(keys)), "force": force}
        return call("POST", f"{self._base}/audit:revert", terms, json=body, keyed=True)
