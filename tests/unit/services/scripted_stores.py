"""A store and a trail whose answers are set by the test, and changes of one entity each."""

from __future__ import annotations

import asyncio
import time
from collections import Counter
from dataclasses import replace
from typing import TYPE_CHECKING, Any, cast
from uuid import UUID

from confplane.domain.entities import Entity
from confplane.domain.errors import (
    ConfplaneError,
    ThrottledError,
    UnavailableError,
    UnknownTopicError,
)
from confplane.domain.facets import Tree, full_path
from confplane.services.changes.bulk import run_together
from confplane.services.changes.callers import Caller
from confplane.services.changes.commit import ChangeRun
from confplane.services.changes.edits import ChangeJob, Draft, NoChange
from confplane.services.changes.runner import ChangeRunner
from confplane.services.ports.store import Marker
from confplane.services.ports.transactions import (
    Committed,
    Conflict,
    EntityWrite,
    Guarded,
    Transaction,
    TransactionUnknown,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from confplane.services.ports.cluster_states import LayoutCheck
    from confplane.services.ports.store import ClusterStore
    from confplane.services.ports.trail import AuditLog, Claim, Intent, Outcome
    from confplane.services.ports.transactions import CommitResult, Write

REVISION = 77


def entity(name: str) -> Entity:
    return Entity.from_id(f"user={name}")


def committed(transaction: Transaction) -> Committed:
    return Committed(REVISION, 1_000, (), dict.fromkeys(paths_of(transaction), 0))


def paths_of(transaction: Transaction) -> list[str]:
    return [write.path for writes in transaction.writes for write in writes]


def lost(_: Transaction) -> TransactionUnknown:
    return TransactionUnknown()


def refused(name: str) -> Any:
    """The change of this entity is refused."""
    return lambda transaction: Conflict(change_of(transaction, name))


def change_of(transaction: Transaction, name: str) -> UUID | None:
    both = zip(transaction.changes, transaction.writes, strict=True)
    [found] = [change.change_id for change, writes in both if writes[0].path.endswith(f"/{name}")]
    return None if len(transaction.changes) == 1 else found


class World:
    """A store and a trail in one, and what happened on them in order."""

    name = "c"
    accepted, incarnation = True, 1

    def __init__(self, *answers: Any) -> None:
        self.answers = list(answers)
        """To transactions, in their order; then all commit."""
        self.transactions: list[Transaction] = []
        self.intended: list[list[Intent]] = []
        self.claims: list[Sequence[Any]] = []
        self.concluded: list[list[Outcome]] = []
        self.released: list[UUID] = []
        self.settled: list[UUID] = []
        """Changes whose markers were asked for."""
        self.confirmed: list[list[str]] = []
        self.admitted: list[int] = []
        self.open = asyncio.Event()
        """Set, transactions are answered at once."""
        self.open.set()
        self.held: Callable[[Transaction], bool] = lambda _: False
        """Transactions whose answers are held back until :attr:`go_on` is set."""
        self.go_on = asyncio.Event()
        self.deadlines: list[float] = []
        """Of the transactions."""
        self.decided: Counter[str] = Counter()
        self.unchanged: dict[str, ConfplaneError | None] = {}
        """Entities that are as asked, with the error that this is."""
        self.unchanged_again: dict[str, ConfplaneError | None] = {}
        """The same, once they are decided again."""
        self.stale: set[str] = set()
        """Of these, those that are otherwise in ZooKeeper."""
        self.room: int | None = None
        self.unknown_topics: frozenset[str] = frozenset()
        self.unstorable: set[str] = set()
        self.fits = True
        self.markers = self
        self.markers_committed: bool | None = None
        self.layouts: dict[str, LayoutCheck] = {}
        self.shares: dict[str, float] = {}
        """Entity -> the share of a transaction's size that its change takes."""
        self._ids = 0

    # -- the store

    def writer(self) -> str:
        return "w"

    def new_change_id(self) -> UUID:
        self._ids += 1
        return UUID(int=self._ids)

    async def check_admission(
        self, writes: Sequence[Write], _deadline: float, *, guarded: Guarded, changes: int
    ) -> float:
        assert guarded is Guarded.CALLER
        assert changes == len(writes)
        self.admitted.append(changes)
        await asyncio.sleep(0)
        if self.room is not None and len(writes) > self.room:
            raise ThrottledError("full")
        unknown = self.unknown_topics & {write.path.rpartition("/")[2] for write in writes}
        if unknown:
            raise UnknownTopicError(f"no {sorted(unknown)}", topics=frozenset(unknown))
        return self.shares.get(writes[0].path.rpartition("/")[2], 0.01)

    async def commit(self, transaction: Transaction, deadline: float) -> CommitResult:
        self.transactions.append(transaction)
        self.deadlines.append(deadline)
        await asyncio.sleep(0)
        await self.open.wait()
        found: CommitResult | ConfplaneError = (self.answers.pop(0) if self.answers else committed)(transaction)
        if self.held(transaction):
            await self.go_on.wait()
        if isinstance(found, ConfplaneError):
            raise found
        if isinstance(found, Committed) and self.room is not None:
            self.room -= len(paths_of(transaction))
        return found

    async def confirm(
        self, writer: str, seen: Sequence[tuple[Tree, Entity, int | None]], _deadline: float, *, layout: Any
    ) -> int | None:
        assert (writer, layout) == ("w", None)
        names = [name(each) for _, each, _ in seen]
        self.confirmed.append(names)
        await asyncio.sleep(0)
        return None if self.stale & set(names) else REVISION

    async def get(self, _cluster: str, _change_id: UUID) -> None:
        """The trail has no outcome."""

    async def settle(self, change_id: UUID, _deadline: float) -> Marker | None:
        self.settled.append(change_id)
        if self.markers_committed is None:
            raise UnavailableError("away")
        submitted = (each for made in self.transactions for each in zip(made.changes, made.writes, strict=True))
        change, writes = next(each for each in submitted if each[0].change_id == change_id)
        versions = {write.path: 0 for write in writes}
        return Marker(change_id, self.markers_committed, change.attempt, REVISION, 1_000, versions)

    async def wait_for(self, _revision: int, _deadline: float) -> None:
        """The mirror is there."""

    def release(self, change_id: UUID) -> None:
        self.released.append(change_id)

    # -- the trail

    async def intend(self, intents: Sequence[Intent], claims: Sequence[Claim] = ()) -> None:
        self.intended.append(list(intents))
        self.claims.append(claims)
        await asyncio.sleep(0)
        if self.unstorable & set(entities(intents)):
            raise RuntimeError("not to be stored")

    async def conclude(self, outcomes: Sequence[Outcome]) -> bool:
        self.concluded.append(list(outcomes))
        return True

    # -- running

    def job(self, of: str, *, gate: asyncio.Event | None = None) -> ChangeJob[Any]:
        path = f"/config/users/{of}"

        async def decide(*, again: bool) -> Draft[Any] | NoChange[Any]:
            self.decided[f"{of} again" if again else of] += 1
            if gate is not None:
                await gate.wait()
            unchanged = self.unchanged_again if again else self.unchanged
            if of in unchanged:
                return NoChange(of, unchanged[of], ((Tree.CONFIG, entity(of), 3),))
            written = Entity.from_id(f"topic={of}") if of[0] == "t" else entity(of)
            write = EntityWrite(full_path(Tree.CONFIG, written), Tree.CONFIG, written, None, {})
            return Draft(of, (write,), cast("Any", (of,)), layout=self.layouts.get(of))

        return ChangeJob(decide, [path])

    async def run(self, *names: str, **more: Any) -> dict[str, ChangeRun[Any] | Exception]:
        """Run changes of these entities together, and return how each ended."""
        runner = more.pop("runner", None) or self.runner()
        olga = Caller.operator("User:olga", "here", "r-1", time.monotonic() + more.pop("seconds", 60))
        caller = replace(olga, run=more.pop("key", None), **more)
        ends = await run_together(runner, cast("ClusterStore", self), [self.job(of) for of in names], caller)
        await runner.drain(60)
        assert not runner._turns
        assert next(iter(runner.metrics())).value == 0
        return {of: end.result() for of, end in zip(names, ends, strict=True)}

    def runner(self, **more: Any) -> ChangeRunner:
        return ChangeRunner(cast("AuditLog", self), **more)

    def sent(self) -> list[list[tuple[str, int]]]:
        """Of each transaction, its changes by entity, with their attempts."""
        return [
            [
                (writes[0].path.rpartition("/")[2], change.attempt)
                for change, writes in zip(transaction.changes, transaction.writes, strict=True)
            ]
            for transaction in self.transactions
        ]


def name(of: Entity) -> str:
    return of.id.partition("=")[2]


def entities(intents: Sequence[Intent]) -> list[str]:
    """The entities in the intents of these tests."""
    return [cast("str", intent.entities[0]) for intent in intents]


def ok(ended: ChangeRun[Any] | Exception) -> bool:
    return isinstance(ended, ChangeRun) and ended.committed is not None and ended.revision == REVISION
