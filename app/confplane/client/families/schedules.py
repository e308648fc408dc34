"""Temporary changes and their ends."""

from __future__ import annotations

from typing import TYPE_CHECKING

from confplane.client.core.calls import call, id_of, segment
from confplane.client.core.operations import Family, S, listing, operation
from confplane.client.core.pages import Paged

if TYPE_CHECKING:
    from typing_extensions import Unpack

    from confplane.client.core.calls import ApiCall, CommonWriteOptions, PageOptions, UnkeyedWriteOptions, WriteOptions
    from confplane.client.types import ScheduleData, SchedulePage, SchedulePauseState
    from confplane.domain.entities import Entity


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
