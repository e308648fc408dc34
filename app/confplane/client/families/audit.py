"""The trail of changes, and reverts of changes."""

from __future__ import annotations

from typing import TYPE_CHECKING

from confplane.client.core.calls import PageOptions, call, drop_none, segment
from confplane.client.core.operations import Family, S, listing, operation
from confplane.client.core.pages import Paged

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from typing import Literal

    from typing_extensions import Unpack

    from confplane.client.core.calls import ApiCall, WriteOptions
    from confplane.client.types import AuditedChange, AuditedRefusal, AuditPage, RevertedChanges
    from confplane.domain.entities import Entity


class AuditFilters(PageOptions, total=False):
    """Filters of a list of changes or attempts."""

    entity: Entity | str | None
    """Of this entity; ``cluster`` for freezes, thaws and layouts."""
    key: str | None
    """Of this key."""
    principal: str | None
    """By this principal."""
    request_id: str | None
    """Of this request."""
    since: str | None
    """At this time or later, RFC 3339."""
    until: str | None
    """Before this time, RFC 3339."""


class Audit(Family[S]):
    """The changes of a cluster."""

    @listing
    def search(
        self, *, outcome: Literal["committed", "rejected", "open"] | None = None, **filters: Unpack[AuditFilters]
    ) -> Paged[AuditPage, AuditedChange]:
        """List changes, newest first.

        Args:
            outcome: Changes with this outcome; ``open`` means not known yet.
            **filters: Other filters, and the page.
        """
        return Paged(call("GET", f"{self._base}/audit", filters, params={"outcome": outcome}))

    @listing
    def refused(self, **filters: Unpack[AuditFilters]) -> Paged[AuditPage, AuditedRefusal]:
        """List writes that were refused before they were begun, newest first."""
        return Paged(call("GET", f"{self._base}/audit", filters, params={"result": "refused"}))

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
