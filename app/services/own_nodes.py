"""Changing one of this service's own znodes that holds a state of the whole cluster: its freeze, its layout.

It is a change like any other (docs/architecture.md, "One write"): intent, transaction, outcome. The trail has it under
the entity ``cluster``.
"""

from __future__ import annotations

import time
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, Generic, TypeVar

from app.domain.errors import (
    ConcurrentChangeError,
    ConfplaneError,
    OutcomeUnknownError,
    UnavailableError,
    WriteOutcome,
)
from app.services.outcomes import conclude_committed, conclude_rejected
from app.services.ports import Committed, Conflict, Intent, IntentEntity, SessionEnded
from app.services.settle import settle_own

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable
    from uuid import UUID

    from app.services.clusters import Caller
    from app.services.ports import AuditLog, ClusterStore, CommitResult

ENTITY: Final = "cluster"
"""The id and the facet under which the trail has such changes."""

S = TypeVar("S")


@dataclass(frozen=True, slots=True)
class Attempt(Generic[S]):
    """One attempt to set a state, at the version read."""

    change_id: UUID
    number: int
    writer: str
    expected: int
    state: S


@dataclass(frozen=True, slots=True)
class OwnNode(Generic[S]):
    """A znode and how it is read and written."""

    path: str
    key: str
    """What the trail calls it."""
    read: Callable[[float], Awaitable[tuple[int, S]]]
    """Return its version and its state, until a deadline."""
    write: Callable[[Attempt[S]], Awaitable[CommitResult]]
    shown: Callable[[S], str | None]
    """The state as the trail has it; None for the state of an empty node."""
    contended: str
    """What others did until the deadline, where nothing came of it."""


@dataclass(frozen=True, slots=True)
class OwnResult(Generic[S]):
    """What became of a change."""

    before: S
    after: S
    change_id: str | None = None
    """None where nothing was to be done."""
    revision: int | None = None


class OwnChange(Generic[S]):
    """One change through its attempts."""

    def __init__(
        self, audit: AuditLog, store: ClusterStore, node: OwnNode[S], caller: Caller, *, reason: str | None
    ) -> None:
        self._audit = audit
        self._store = store
        self._node = node
        self._caller = caller
        self._reason = reason
        self._id = self._store.new_change_id()
        self._began = time.monotonic()
        self._attempt = 0
        self._writer: str | None = None
        self._settled = False

    async def run(self, decide: Callable[[S], S]) -> OwnResult[S]:
        """Try until committed, refused for good, or out of time.

        Args:
            decide: From the state as it is to what it has to be; equal means that nothing is to be done.

        Raises:
            ConcurrentChangeError: Others kept changing it until the deadline.
            UnavailableError: ZooKeeper or Postgres is away; nothing was changed.
            OutcomeUnknownError: The reply was lost; it may be done.
            ConfplaneError: What ``decide`` and the store raise.
        """
        try:
            while True:
                writer = self._store.writer()
                version, before = await self._node.read(self._caller.deadline)
                after = decide(before)
                if after == before:
                    await self._reject(0, "The cluster already was as asked")
                    return OwnResult(before, after)
                result = await self._try(writer, version, before, after)
                if result is not None:
                    return result
                if time.monotonic() >= self._caller.deadline:
                    raise ConcurrentChangeError(
                        f"Others {self._node.contended} until the deadline; nothing was applied",
                        outcome=WriteOutcome.NOT_APPLIED,
                    )
        except OutcomeUnknownError:
            raise  # its intent stays open until someone settles it
        except ConfplaneError as error:
            await self._reject(int(error.code), error.detail)
            raise

    async def _try(self, writer: str, version: int, before: S, after: S) -> OwnResult[S] | None:
        """Make one attempt; None means that the state was not as read."""
        if self._writer not in {None, writer}:
            raise UnavailableError("The ZooKeeper session was replaced; nothing was applied, try again")
        self._writer = writer
        number = self._attempt + 1
        await self._audit.intend([self._intent(number, writer, version, before, after)])
        self._attempt = number
        result = await self._node.write(Attempt(self._id, number, writer, version, after))
        if isinstance(result, Conflict):
            return None
        if isinstance(result, SessionEnded):
            raise UnavailableError(f"ZooKeeper refused: {result.reason}; nothing was applied, try again")
        if not isinstance(result, Committed):
            return OwnResult(before, after, str(self._id), await self._settle())
        versions = {self._node.path: version + 1}
        await conclude_committed(self._audit, self._store, self._id, number, result, versions)
        return OwnResult(before, after, str(self._id), result.revision)

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

    def _intent(self, number: int, writer: str, version: int, before: S, after: S) -> Intent:
        caller, key = self._caller, self._node.key
        shown = self._node.shown(after)
        return Intent(
            change_id=self._id,
            attempt=number,
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
                    path=self._node.path,
                    version_read=version,
                    czxid_read=None,
                    keys=(key,),
                    ops=({"key": key, "remove": True} if shown is None else {"key": key, "value": shown},),
                    before={key: self._node.shown(before)},
                    after={key: shown},
                ),
            ),
        )

    async def _reject(self, code: int, text: str) -> None:
        """Close a change that has intents and, for certain, no effect."""
        if self._attempt and not self._settled:
            await conclude_rejected(self._audit, self._store, self._id, self._attempt, code, text)
