"""Freezing a cluster's configs, and thawing them: a quiet time before an upgrade, or a first contact without writes.

After the commit of a freeze no write of configs commits, in any process that serves the cluster.
"""

from __future__ import annotations

import time
from dataclasses import asdict, dataclass, replace
from typing import TYPE_CHECKING, Any, Final

from confplane.domain.access.operations import Operation, ResourceType
from confplane.domain.errors import AlreadyExistsError, ConfplaneError, InvalidRequestError, WriteOutcome
from confplane.services.changes.edits import ChangeJob
from confplane.services.changes.states import decide_state
from confplane.services.ports.cluster_states import ENTITY, Freeze

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from confplane.services.changes.callers import Caller
    from confplane.services.changes.runner import ChangeRunner
    from confplane.services.changes.states import StateChange
    from confplane.services.ports.request_keys import KeyedChange
    from confplane.services.ports.store import ClusterStore

_REASON_LENGTH: Final = 1000

_CONTENDED: Final = "Other writers kept freezing and thawing the cluster until the deadline; nothing was applied"


@dataclass(frozen=True, slots=True)
class FreezeResult:
    """The end of a freeze or a thaw."""

    before: Freeze | None
    after: Freeze | None
    change_id: str | None
    """The id of the change; None if the cluster was in that state already."""
    revision: int | None


class FreezeService:
    """Freezes and thaws clusters."""

    def __init__(self, runner: ChangeRunner) -> None:
        self._runner = runner

    async def freeze(
        self, store: ClusterStore, reason: str, caller: Caller, *, validate_only: bool = False
    ) -> FreezeResult:
        """Freeze a cluster. Nothing is written if it is frozen for the same reason, or if the request only validates.

        Raises:
            ForbiddenError: The caller may not freeze the cluster.
            InvalidRequestError: The reason can't be stored.
            AlreadyExistsError: The cluster is frozen for another reason; the text has it.
            ConcurrentChangeError: Other writers kept freezing and thawing the cluster until the deadline.
            UnavailableError: ZooKeeper or Postgres is unavailable; nothing was changed.
            OutcomeUnknownError: The reply was lost; the cluster may be frozen.
        """
        reason = checked_reason(reason)
        wanted = Freeze(reason, caller.principal, int(time.time() * 1000))

        def after(current: Freeze | None) -> Freeze | None:
            if current is None:
                return wanted
            if current.principal is not None and current.reason == reason:
                return current
            raise AlreadyExistsError(
                f"Cluster {store.name} is frozen already {current}. Thaw it first to give another reason",
                outcome=WriteOutcome.NOT_APPLIED,
            )

        return await self._run(store, after, replace(caller, reason=reason, validate_only=validate_only))

    async def thaw(
        self, store: ClusterStore, reason: str, caller: Caller, *, validate_only: bool = False
    ) -> FreezeResult:
        """Thaw a cluster. Nothing is written if it is not frozen, or if the request only validates.

        Raises:
            ConfplaneError: As of :meth:`freeze`.
        """
        caller = replace(caller, reason=checked_reason(reason), validate_only=validate_only)
        return await self._run(store, lambda _: None, caller)

    async def _run(
        self, store: ClusterStore, after: Callable[[Freeze | None], Freeze | None], caller: Caller
    ) -> FreezeResult:
        caller.require(store.name, Operation.FREEZE, ResourceType.CLUSTER)
        run = caller.run
        earlier = None if run is None else run.earlier(ENTITY, ENTITY)
        if earlier is not None:
            return _restored(*earlier)

        decide = decide_state(
            store,
            Freeze,
            lambda state: after(state.value),
            caller.deadline,
            answers=lambda change: () if run is None else (_kept(change),),
        )
        try:
            ended = await self._runner.run(store, ChangeJob(decide, contended=_CONTENDED), caller)
        except ConfplaneError as error:
            if run is not None:
                run.record_error(error)
            raise
        change_id = None if ended.change_id is None else str(ended.change_id)
        if run is not None and change_id is not None:
            run.wrote = True
        return FreezeResult(ended.decided.before, ended.decided.after, change_id, ended.revision)


def _kept(change: StateChange[Freeze]) -> dict[str, Any]:
    """Return the answer of a change as an Idempotency-Key keeps it."""
    before, after = (None if each is None else asdict(each) for each in (change.before, change.after))
    return {"facet": ENTITY, "entity": ENTITY, "before": before, "after": after}


def _restored(change: KeyedChange, kept: Mapping[str, Any]) -> FreezeResult:
    """Return the result of a change that an earlier run of the same request made."""
    before, after = (None if kept[name] is None else Freeze(**kept[name]) for name in ("before", "after"))
    revision = None if change.outcome is None else change.outcome.revision
    return FreezeResult(before, after, str(change.change_id), revision)


def checked_reason(reason: str) -> str:
    """Return a reason without white space around it.

    Raises:
        InvalidRequestError: The trail can't keep it, or shows it badly.
    """
    reason = reason.strip()
    if not reason:
        raise InvalidRequestError("The reason is empty; give one, which the trail keeps", pointer="/reason")
    if len(reason) > _REASON_LENGTH:
        raise InvalidRequestError(f"The reason is longer than {_REASON_LENGTH} characters", pointer="/reason")
    # Not printable either: the surrogates that represent bytes of a command line that are not UTF-8.
    if not reason.isprintable():
        raise InvalidRequestError(
            "The reason holds a line break or another character that can't be printed", pointer="/reason"
        )
    return reason
