"""Freezing a cluster's configs, and thawing them: a quiet time before an upgrade, or a first contact for reading only.

A freeze is a change like any other (docs/architecture.md, "One write"): intent, transaction, outcome. Once its
transaction is committed no write of configs commits, in any process that serves the cluster.
"""

from __future__ import annotations

import time
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from uuid_utils.compat import uuid7

from app.domain.errors import (
    AlreadyExistsError,
    ConcurrentChangeError,
    ConfplaneError,
    InvalidRequestError,
    OutcomeUnknownError,
    UnavailableError,
    WriteOutcome,
)
from app.services.ports import Committed, Conflict, Freeze, FreezeWrite, Intent, IntentEntity, Outcome, SessionEnded
from app.services.settle import settle_own

if TYPE_CHECKING:
    from collections.abc import Callable

    from app.services.clusters import Caller
    from app.services.ports import AuditLog, ClusterStore, FreezeState

ENTITY: Final = "cluster"
"""The id and the facet under which the trail has freezes and thaws."""
PATH: Final = "/confplane/freeze"
KEY: Final = "frozen"
_REASON_LENGTH: Final = 1000


@dataclass(frozen=True, slots=True)
class FreezeResult:
    """What became of a freeze or a thaw."""

    before: Freeze | None
    after: Freeze | None
    change_id: str | None = None
    """None where nothing was to be done."""
    revision: int | None = None


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

        return await _Change(self._audit, store, reason, caller).run(decide)

    async def thaw(self, store: ClusterStore, reason: str, caller: Caller) -> FreezeResult:
        """Let writes go on; nothing is done where the cluster is not frozen.

        Raises:
            InvalidRequestError: The reason can't be stored.
            ConcurrentChangeError: Others kept freezing and thawing it until the deadline.
            UnavailableError: ZooKeeper or Postgres is away; nothing was changed.
            OutcomeUnknownError: The reply was lost; it may be thawed.
        """
        return await _Change(self._audit, store, _checked(reason), caller).run(lambda _: None)


class _Change:
    """One freeze or thaw through its attempts."""

    def __init__(self, audit: AuditLog, store: ClusterStore, reason: str, caller: Caller) -> None:
        self._audit = audit
        self._store = store
        self._reason = reason
        self._caller = caller
        self._id = uuid7()
        self._began = time.monotonic()
        self._attempt = 0
        self._writer: str | None = None
        self._settled = False

    async def run(self, decide: Callable[[Freeze | None], Freeze | None]) -> FreezeResult:
        """Try until committed, refused for good, or out of time.

        Args:
            decide: From the freeze as it is to what it has to be; equal means that nothing is to be done.
        """
        try:
            while True:
                writer = self._store.writer()
                state = await self._store.read_freeze(self._caller.deadline)
                after = decide(state.freeze)
                if after == state.freeze:
                    await self._reject(0, "The cluster already was as asked")
                    return FreezeResult(state.freeze, after)
                result = await self._try(writer, state, after)
                if result is not None:
                    return result
                if time.monotonic() >= self._caller.deadline:
                    raise ConcurrentChangeError(
                        "Others kept freezing and thawing the cluster until the deadline; nothing was applied",
                        outcome=WriteOutcome.NOT_APPLIED,
                    )
        except OutcomeUnknownError:
            raise  # its intent stays open until someone settles it
        except ConfplaneError as error:
            await self._reject(int(error.code), error.detail)
            raise

    async def _try(self, writer: str, state: FreezeState, after: Freeze | None) -> FreezeResult | None:
        """Make one attempt; None means that the freeze was not as read."""
        caller = self._caller
        if self._writer not in {None, writer}:
            raise UnavailableError("The ZooKeeper session was replaced; nothing was applied, try again")
        self._writer = writer
        attempt = self._attempt + 1
        await self._audit.intend([self._intent(attempt, writer, state, after)])
        self._attempt = attempt
        change = FreezeWrite(self._id, attempt, writer, state.version, after, caller.principal, caller.request_id)
        result = await self._store.set_freeze(change, caller.deadline)
        if isinstance(result, Conflict):
            return None
        if isinstance(result, SessionEnded):
            raise UnavailableError(f"ZooKeeper refused: {result.reason}; nothing was applied, try again")
        if not isinstance(result, Committed):
            return FreezeResult(state.freeze, after, str(self._id), await self._settle())
        outcome = Outcome(
            self._id,
            attempt,
            self._store.name,
            committed=True,
            revision=result.revision,
            time_ms=result.time_ms,
            versions={PATH: state.version + 1},
        )
        if await self._audit.conclude([outcome]):
            self._store.release_marker(self._id)
        return FreezeResult(state.freeze, after, str(self._id), result.revision)

    async def _settle(self) -> int | None:
        """Find out what became of a transaction whose reply was lost; return its revision."""
        outcome = await settle_own(
            self._audit,
            self._store,
            self._id,
            self._attempt,
            began=self._began,
            deadline=self._caller.deadline,
        )
        self._settled = True
        if not outcome.committed:
            raise UnavailableError("ZooKeeper's reply was lost; it was settled as aborted. Nothing was applied")
        return outcome.revision

    def _intent(self, attempt: int, writer: str, state: FreezeState, after: Freeze | None) -> Intent:
        caller = self._caller
        return Intent(
            change_id=self._id,
            attempt=attempt,
            cluster=self._store.name,
            writer=writer,
            principal=caller.principal,
            source=caller.source,
            request_id=caller.request_id,
            reason=self._reason,
            ticket=caller.ticket,
            entities=(
                IntentEntity(
                    entity_id=ENTITY,
                    facet=ENTITY,
                    path=PATH,
                    version_read=state.version,
                    czxid_read=None,
                    keys=(KEY,),
                    ops=({"key": KEY, "remove": True} if after is None else {"key": KEY, "value": after.reason},),
                    before={KEY: None if state.freeze is None else state.freeze.reason},
                    after={KEY: None if after is None else after.reason},
                ),
            ),
        )

    async def _reject(self, code: int, text: str) -> None:
        """Close a change that has intents and, for certain, no effect."""
        if self._attempt and not self._settled:
            await self._audit.conclude(
                [Outcome(self._id, self._attempt, self._store.name, committed=False, error_code=code, error=text)]
            )


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
