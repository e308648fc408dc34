"""Freezing a cluster's configs, and thawing them: a quiet time before an upgrade, or a first contact for reading only.

Once a freeze is committed no write of configs commits, in any process that serves the cluster.
"""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Final

from app.domain.errors import AlreadyExistsError, InvalidRequestError, WriteOutcome
from app.services.own_nodes import OwnChange, OwnNode, OwnResult
from app.services.ports import Freeze, FreezeWrite

if TYPE_CHECKING:
    from app.services.clusters import Caller
    from app.services.own_nodes import Attempt
    from app.services.ports import AuditLog, ClusterStore, CommitResult

PATH: Final = "/confplane/freeze"
KEY: Final = "frozen"
_REASON_LENGTH: Final = 1000

FreezeResult = OwnResult[Freeze | None]
"""What became of a freeze or a thaw."""


class FreezeService:
    """Freezes and thaws clusters."""

    def __init__(self, audit: AuditLog) -> None:
        self._audit = audit

    async def freeze(self, store: ClusterStore, reason: str, caller: Caller) -> FreezeResult:
        """Freeze a cluster; nothing is done where it is frozen for the same reason.

        Raises:
            InvalidRequestError: The reason can't be stored.
            AlreadyExistsError: It is frozen for another reason; the text has it.
            ConcurrentChangeError: Others kept freezing and thawing it until the deadline.
            UnavailableError: ZooKeeper or Postgres is away; nothing was changed.
            OutcomeUnknownError: The reply was lost; it may be frozen.
        """
        reason = _checked(reason)
        wanted = Freeze(reason, caller.principal, int(time.time() * 1000))

        def decide(current: Freeze | None) -> Freeze | None:
            if current is None:
                return wanted
            if current.principal is not None and current.reason == reason:
                return current
            raise AlreadyExistsError(
                f"Cluster {store.name} is frozen already {current}. Thaw it first to give another reason",
                outcome=WriteOutcome.NOT_APPLIED,
            )

        return await self._change(store, reason, caller).run(decide)

    async def thaw(self, store: ClusterStore, reason: str, caller: Caller) -> FreezeResult:
        """Let writes go on; nothing is done where the cluster is not frozen.

        Raises:
            InvalidRequestError: The reason can't be stored.
            ConcurrentChangeError: Others kept freezing and thawing it until the deadline.
            UnavailableError: ZooKeeper or Postgres is away; nothing was changed.
            OutcomeUnknownError: The reply was lost; it may be thawed.
        """
        return await self._change(store, _checked(reason), caller).run(lambda _: None)

    def _change(self, store: ClusterStore, reason: str, caller: Caller) -> OwnChange[Freeze | None]:
        async def read(deadline: float) -> tuple[int, Freeze | None]:
            state = await store.read_freeze(deadline)
            return state.version, state.freeze

        async def write(attempt: Attempt[Freeze | None]) -> CommitResult:
            change = FreezeWrite(
                attempt.change_id,
                attempt.number,
                attempt.writer,
                attempt.expected,
                attempt.state,
                caller.principal,
                caller.request_id,
            )
            return await store.set_freeze(change, caller.deadline)

        node = OwnNode(PATH, KEY, read, write, _shown, "kept freezing and thawing the cluster")
        return OwnChange(self._audit, store, node, caller, reason=reason)


def _shown(freeze: Freeze | None) -> str | None:
    return None if freeze is None else freeze.reason


def _checked(reason: str) -> str:
    reason = reason.strip()
    if not reason:
        raise InvalidRequestError("The reason is empty; say why, for those whose writes are refused", pointer="/reason")
    if len(reason) > _REASON_LENGTH:
        raise InvalidRequestError(f"The reason is longer than {_REASON_LENGTH} characters", pointer="/reason")
    # Also what stands for bytes of a command line that are no UTF-8.
    if not reason.isprintable():
        raise InvalidRequestError(
            "The reason holds a line break or another character that can't be printed", pointer="/reason"
        )
    return reason
