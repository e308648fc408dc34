"""Alter: from an edit to a committed znode with its trail.

The order is what makes config and trail agree (docs/architecture.md, "One write")::

    encode ── plan ── admission ── intent (Postgres) ── transaction (ZooKeeper) ── outcome (Postgres) ── answer
               ▲                                              │
               └───────────── conflict: read again ───────────┘

ZooKeeper's transaction is the commit point. No intent, no transaction; no answer "applied" without the transaction; a
lost reply is never followed by another attempt, because the first may still be applied: it is settled.

All attempts of a change are made under one ZooKeeper session, that of the first. So once its writer node is gone the
change can't commit any more, and whoever settles it need not know whether another attempt is on its way.
"""

from __future__ import annotations

import asyncio
import time
from collections import ChainMap, Counter
from typing import TYPE_CHECKING, Any

from app.domain.entities import EntityType
from app.domain.errors import (
    ConcurrentChangeError,
    ConfplaneError,
    InvalidRequestError,
    KafkaCode,
    NotAttemptedError,
    OutcomeUnknownError,
    UnavailableError,
    UnknownTopicError,
    WriteOutcome,
)
from app.services.edits import NOTHING_PLANNED, Edit, EditResult, Plan
from app.services.figures import Figure
from app.services.order import chains
from app.services.outcomes import conclude_rejected, conclude_written, is_remade
from app.services.pace import Pace, in_slices
from app.services.policies import PolicyRequest
from app.services.ports import Committed, Conflict, Intent, SessionEnded, Transaction, full_path
from app.services.settle import committed, settle_own

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from app.domain.changes import Node
    from app.services.clusters import Caller, Collection
    from app.services.order import Stage
    from app.services.ports import AuditLog

_Prepared = tuple[Edit, Any]
"""An edit with what its facet's planner made of it."""

_NONE = KafkaCode.NONE.name
_REMADE = "Others deleted the znode and made it again during this change; what they wrote into it was overwritten"
_CONCURRENCY = 256
"""Changes of one request under way at once: enough to fill ZooKeeper's pipeline, and bounded."""


class _Queues:
    """Writes of this process to one entity wait for each other here instead of in conflicts."""

    def __init__(self) -> None:
        self.waiting: dict[str, tuple[asyncio.Lock, int]] = {}

    def turn(self, keys: Sequence[str], deadline: float) -> _Turn:
        """Return a context in which nobody else of this process writes to these entities.

        Raises:
            ConcurrentChangeError: On entering, when the turn did not come by the deadline.
        """
        # In one order, so that batches can't wait for each other in a ring.
        return _Turn(self.waiting, sorted(keys) if len(keys) > 1 else keys, deadline)


class _Turn:
    """One change's turn at the entities that it writes."""

    def __init__(self, waiting: dict[str, tuple[asyncio.Lock, int]], keys: Sequence[str], deadline: float) -> None:
        self._waiting = waiting
        self._keys = keys
        self._deadline = deadline
        self._held: list[tuple[str, asyncio.Lock]] = []

    async def __aenter__(self) -> None:
        for key in self._keys:
            lock, users = self._waiting.get(key) or (asyncio.Lock(), 0)
            self._waiting[key] = (lock, users + 1)
            try:
                await self._acquire(lock)
            except BaseException:
                self._leave(key)
                self._release()
                raise
            self._held.append((key, lock))

    async def __aexit__(self, *_: object) -> None:
        self._release()

    async def _acquire(self, lock: asyncio.Lock) -> None:
        if not lock.locked():
            await lock.acquire()
            return
        try:
            async with asyncio.timeout(self._deadline - time.monotonic()):
                await lock.acquire()
        except TimeoutError:
            raise ConcurrentChangeError(
                "Other writes to the same entity took until the deadline; nothing was applied, try again",
                outcome=WriteOutcome.NOT_APPLIED,
                retry_after_s=1,
            ) from None

    def _release(self) -> None:
        for key, lock in self._held:
            lock.release()
            self._leave(key)

    def _leave(self, key: str) -> None:
        lock, users = self._waiting[key]
        if users == 1:
            del self._waiting[key]
        else:
            self._waiting[key] = (lock, users - 1)


class AlterService:
    """Runs edits. One instance serves all clusters of a process."""

    def __init__(self, audit: AuditLog) -> None:
        self._audit = audit
        self._queues = _Queues()
        self._running: set[asyncio.Task[list[EditResult]]] = set()
        self._results: Counter[tuple[str, str, str, str]] = Counter()

    async def alter(
        self,
        collection: Collection,
        edits: Sequence[Edit | EditResult],
        caller: Caller,
        *,
        validate_only: bool = False,
        atomic: bool = False,
    ) -> list[EditResult]:
        """Run edits and return one result each, in order.

        Args:
            collection: The facet of a cluster that is altered.
            edits: The edits; one that could not even be formed stands as its failed result.
            caller: Who asks.
            validate_only: Go the same way up to the write, and answer what it would have done.
            atomic: All in one transaction, one change, one revision; when one fails, the others are not attempted.

        Each result carries its own error. An entity named twice fails in every place it is named. Edits whose checks
        read each other's entity run in the order given, so that each is checked against what those before it made.
        """
        run = caller.run
        if run is None:
            results = await self._alter(collection, edits, caller, validate_only=validate_only, atomic=atomic)
            self._count(collection, results, validate_only=validate_only)
            return results
        # What an earlier run of the same request applied is not done again.
        given = [edit if isinstance(edit, EditResult) else run.result(collection, edit) or edit for edit in edits]
        if atomic and all(isinstance(edit, EditResult) and edit.error is None for edit in given):
            return [edit for edit in given if isinstance(edit, EditResult)]
        results = await self._alter(collection, given, caller, validate_only=validate_only, atomic=atomic)
        done = [result for result, edit in zip(results, given, strict=True) if result is not edit]
        run.note(done)
        self._count(collection, done, validate_only=validate_only)
        return results

    def _count(self, collection: Collection, results: Sequence[EditResult], *, validate_only: bool) -> None:
        """Count how edits ended, by Kafka's names of errors."""
        cluster, facet = collection.store.name, collection.name.value
        for result in results:
            if (error := result.error) is not None:
                ended = (error.outcome or WriteOutcome.NOT_APPLIED).value, error.code.name
            elif validate_only:
                ended = "validated", _NONE
            else:
                ended = "unchanged" if result.change_id is None else "applied", _NONE
            self._results[cluster, facet, *ended] += 1

    def figures(self) -> Iterator[Figure]:
        """Return the figures."""
        yield Figure("changes_in_flight", len(self._running))
        for labels, number in self._results.items():
            yield Figure("alter_results", number, labels)

    async def _alter(
        self,
        collection: Collection,
        edits: Sequence[Edit | EditResult],
        caller: Caller,
        *,
        validate_only: bool,
        atomic: bool,
    ) -> list[EditResult]:
        repeated = _repeated(edits) if len(edits) > 1 else frozenset()
        prepared = await in_slices(lambda edit: self._prepare(collection, edit, repeated), edits)
        if atomic:
            return await self._atomic(collection, prepared, caller, validate_only=validate_only)
        if len(prepared) == 1 and not isinstance(prepared[0], EditResult):
            return await self._shielded(collection, [prepared[0]], caller, validate_only=validate_only)
        return await self._one_by_one(collection, prepared, caller, validate_only=validate_only)

    async def _one_by_one(
        self,
        collection: Collection,
        prepared: Sequence[_Prepared | EditResult],
        caller: Caller,
        *,
        validate_only: bool,
    ) -> list[EditResult]:
        """Run each edit as a change of its own, all at once but for those that read each other's entity."""
        slots = asyncio.Semaphore(_CONCURRENCY)
        results: dict[int, EditResult] = {}
        to_run: dict[int, _Prepared] = {}
        for position, item in enumerate(prepared):
            if isinstance(item, EditResult):
                results[position] = item
            else:
                to_run[position] = item

        async def one(position: int, planned: Mapping[str, Mapping[str, str]]) -> None:
            async with slots:
                [results[position]] = await self._shielded(
                    collection, [to_run[position]], caller, validate_only=validate_only, planned=planned
                )

        async def one_after_another(stages: Sequence[Stage]) -> None:
            made: dict[str, dict[str, Mapping[str, str]]] = {stage.rank: {} for stage in stages}
            for stage in stages:
                # What edits of other ranks made. From the mirror it could not be had under ``validateOnly``.
                planned = ChainMap(*(maps for rank, maps in made.items() if rank != stage.rank))
                await asyncio.gather(*(one(position, planned) for position in stage.positions))
                ended = (results[position] for position in stage.positions)
                made[stage.rank] |= {result.edit.entity.id: result.after for result in ended if result.error is None}

        of_entities = ((position, edit.entity) for position, (edit, _) in to_run.items())
        waiting = iter(chains(collection.facet, of_entities))

        async def run_some() -> None:
            # Not a task for each chain: the first step of 10,000 tasks would be one of the loop's.
            for stages in waiting:
                await one_after_another(stages)

        await asyncio.gather(*(run_some() for _ in range(min(_CONCURRENCY, len(to_run)))))
        return [results[position] for position in range(len(prepared))]

    def _prepare(
        self, collection: Collection, edit: Edit | EditResult, repeated: frozenset[str]
    ) -> _Prepared | EditResult:
        """Check what can be checked before anything stored is looked at."""
        if isinstance(edit, EditResult):
            return edit
        try:
            if edit.entity.id in repeated:
                raise InvalidRequestError(
                    f"{edit.entity.id} is named more than once in this request", pointer=edit.pointer
                )
            collection.placed()
            return edit, collection.planner.encode(collection, edit)
        except ConfplaneError as error:
            return EditResult(edit, error)

    async def drain(self, timeout_s: float) -> None:
        """Wait for changes under way, so that a stop leaves no intent without its outcome."""
        if self._running:
            await asyncio.wait(self._running, timeout=timeout_s)

    async def _atomic(
        self,
        collection: Collection,
        prepared: Sequence[_Prepared | EditResult],
        caller: Caller,
        *,
        validate_only: bool,
    ) -> list[EditResult]:
        items = [item for item in prepared if not isinstance(item, EditResult)]
        if len(items) == len(prepared):
            return await self._shielded(collection, items, caller, validate_only=validate_only) if items else []
        return [
            item if isinstance(item, EditResult) and item.error else EditResult(_edit(item), _not_attempted())
            for item in prepared
        ]

    async def _shielded(
        self,
        collection: Collection,
        items: Sequence[_Prepared],
        caller: Caller,
        *,
        validate_only: bool,
        planned: Mapping[str, Mapping[str, str]] = NOTHING_PLANNED,
    ) -> list[EditResult]:
        """Run one change in a task of its own: a caller that goes away can't cut it between intent and outcome."""
        task = asyncio.create_task(self._change(collection, items, caller, planned, validate_only=validate_only))
        self._running.add(task)
        task.add_done_callback(self._running.discard)
        return await asyncio.shield(task)

    async def _change(
        self,
        collection: Collection,
        items: Sequence[_Prepared],
        caller: Caller,
        planned: Mapping[str, Mapping[str, str]],
        *,
        validate_only: bool,
    ) -> list[EditResult]:
        cluster = collection.store.name
        try:
            if time.monotonic() >= caller.deadline:
                raise UnavailableError(
                    "The request's deadline passed before this entry was begun; nothing of it was applied. Send it"
                    " again, in a request of fewer entries",
                    outcome=WriteOutcome.NOT_APPLIED,
                    retry_after_s=1,
                )
            collection = collection.placed()
            keys = [f"{cluster}{full_path(collection.tree, edit.entity)}" for edit, _ in items]
            collection.store.writer()  # without a session nobody queues for an entity
            async with self._queues.turn(keys, caller.deadline):
                change = _Change(self._audit, collection, items, caller, planned, validate_only=validate_only)
                return await change.run()
        except UnknownTopicError as error:
            return [EditResult(edit, _of_topic(error, edit)) for edit, _ in items]
        except ConfplaneError as error:
            return [EditResult(edit, error) for edit, _ in items]


class _Change:
    """One change through its attempts."""

    def __init__(
        self,
        audit: AuditLog,
        collection: Collection,
        items: Sequence[_Prepared],
        caller: Caller,
        planned: Mapping[str, Mapping[str, str]],
        *,
        validate_only: bool,
    ) -> None:
        self._audit = audit
        self._collection = collection
        self._store = collection.store
        self._items = items
        self._caller = caller
        self._planned = planned
        self._validate_only = validate_only
        self._id = self._store.new_change_id()
        self._began = time.monotonic()
        self._attempt = 0
        self._writer: str | None = None
        self._settled = False

    async def run(self) -> list[EditResult]:
        """Try until committed, refused for good, or out of time."""
        try:
            return await self._attempts()
        except OutcomeUnknownError:
            raise  # its intent stays open until someone settles it
        except ConfplaneError as error:
            # Every attempt that was submitted has been refused by ZooKeeper, and the last was not submitted at all.
            error.outcome = error.outcome or WriteOutcome.NOT_APPLIED
            await self._reject(error)
            raise

    async def _attempts(self) -> list[EditResult]:
        nodes = [self._collection.get(edit.entity.id) for edit, _ in self._items]
        while (results := await self._try(nodes)) is None:
            if time.monotonic() >= self._caller.deadline:
                raise ConcurrentChangeError(
                    "Others kept changing the same entity until the deadline; nothing was applied, try again",
                    retry_after_s=1,
                )
            # Client configs may be elsewhere by now.
            self._collection = self._collection.placed()
            tree = self._collection.tree
            nodes = await asyncio.gather(
                *(self._store.read(tree, edit.entity, self._caller.deadline) for edit, _ in self._items)
            )
        return results

    async def _try(self, nodes: Sequence[Node | None]) -> list[EditResult] | None:
        """Make one attempt; None means that something was not as read and the next may be made."""
        writer = self._store.writer()
        plans, failed = await self._plan(nodes)
        if failed is not None or not any(item.diff for item in plans):
            return await self._end_unchanged(writer, nodes, plans, failed)
        changed = [item for item in plans if item.diff]
        writes = tuple(item.write(self._collection) for item in changed)
        await self._store.check_admission(writes, self._caller.deadline)
        if self._validate_only:
            return [_result(item, None, item.node, None) for item in plans]
        caller = self._caller
        if self._writer not in {None, writer}:
            raise UnavailableError(
                "The ZooKeeper session was replaced between two attempts; nothing was applied, try again",
                retry_after_s=1,
            )
        self._writer = writer
        intent = Intent(
            change_id=self._id,
            attempt=self._attempt + 1,
            cluster=self._store.name,
            writer=writer,
            principal=caller.principal,
            source=caller.source,
            request_id=caller.request_id,
            reason=caller.reason,
            ticket=caller.ticket,
            entities=tuple(item.intent(self._collection) for item in changed),
        )
        # Where this fails nothing is submitted. Its row may be there all the same, and is then settled as aborted.
        claim = None if caller.run is None else caller.run.claim(self._collection, plans, caller.deadline)
        await self._audit.intend([intent], claim)
        self._attempt = intent.attempt
        transaction = Transaction(
            self._id,
            self._attempt,
            writer,
            writes,
            caller.principal,
            caller.request_id,
            self._collection.layout,
        )
        result = await self._store.commit(transaction, caller.deadline)
        if isinstance(result, Conflict):
            return None
        if isinstance(result, SessionEnded):
            raise UnavailableError(
                f"ZooKeeper refused the write: {result.reason}; nothing was applied, try again", retry_after_s=1
            )
        if not isinstance(result, Committed):
            result = await self._settle(transaction, changed)
        else:
            await self._conclude(result, changed)
        return self._results(result, plans)

    async def _settle(self, transaction: Transaction, changed: Sequence[Plan]) -> Committed:
        """Find out what became of a transaction whose reply was lost, until the deadline."""
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
            raise UnavailableError(
                "ZooKeeper's reply was lost, and the write was settled as aborted; nothing was applied, try again",
                retry_after_s=1,
            )
        return committed(outcome, transaction.writes, [item.node for item in changed])

    async def _plan(self, nodes: Sequence[Node | None]) -> tuple[list[Plan], tuple[int, ConfplaneError] | None]:
        plans: list[Plan] = []
        planned = dict(self._planned)
        pace = Pace()
        for index, ((edit, encoded), node) in enumerate(zip(self._items, nodes, strict=True)):
            if pace.due:
                await pace.rest()
            try:
                item = await self._collection.planner.plan(self._collection, edit, encoded, node, planned=planned)
                if item.diff and self._collection.policies:
                    self._check_policies(item)
            except ConfplaneError as error:
                return plans, (index, error)
            planned[edit.entity.id] = item.after
            plans.append(item)
        return plans, None

    def _check_policies(self, item: Plan) -> None:
        collection, entity, after = self._collection, item.edit.entity, item.after
        before = {} if item.node is None else item.node.config
        told, tree = collection.told, collection.tree
        shown = told(tree, entity.id, after)
        changed = {difference.key for difference in item.diff}
        owns = collection.facet.owns
        collection.policies.check(
            PolicyRequest(
                cluster=self._store.name,
                principal=self._caller.principal,
                facet=collection.name.value,
                entity=entity,
                set={key: shown[key] for key in changed & after.keys()},
                removed=frozenset(changed - after.keys()),
                before={key: value for key, value in told(tree, entity.id, before).items() if owns(entity, key)},
                after={key: value for key, value in shown.items() if owns(entity, key)},
                validate_only=self._validate_only,
                pointers={op.key: op.pointer for op in item.edit.ops if op.pointer is not None},
            )
        )

    async def _end_unchanged(
        self,
        writer: str,
        nodes: Sequence[Node | None],
        plans: Sequence[Plan],
        failed: tuple[int, ConfplaneError] | None,
    ) -> list[EditResult] | None:
        """End without a change, once ZooKeeper has confirmed the state that led to it."""
        expectations = [
            (self._collection.tree, edit.entity, None if node is None else node.version)
            for (edit, _), node in zip(self._items, nodes, strict=True)
        ]
        if failed is not None:
            expectations = expectations[: failed[0] + 1]
        revision = await self._store.confirm(
            writer, expectations, self._caller.deadline, layout=self._collection.layout
        )
        if revision is None:
            return None
        if failed is None:
            if self._attempt:
                await self._reject(None)
            return [_result(item, None, item.node, item.node.mzxid if item.node else revision) for item in plans]
        index, error = failed
        error.outcome = error.outcome or WriteOutcome.NOT_APPLIED
        await self._reject(error)
        return [
            EditResult(edit, error if position == index else _not_attempted())
            for position, (edit, _) in enumerate(self._items)
        ]

    async def _conclude(self, result: Committed, changed: Sequence[Plan]) -> None:
        tree = self._collection.tree
        read = [(full_path(tree, item.edit.entity), item.node) for item in changed]
        await conclude_written(self._audit, self._store, self._id, self._attempt, result, read)

    def _results(self, result: Committed, plans: Sequence[Plan]) -> list[EditResult]:
        after = {node.id: node for node in result.nodes}
        return [
            _result(item, str(self._id), after[item.edit.entity.id], result.revision)
            if item.diff
            else _result(item, None, item.node, item.node.mzxid if item.node else result.revision)
            for item in plans
        ]

    async def _reject(self, error: ConfplaneError | None) -> None:
        """Close a change that has intents and, for certain, no effect."""
        if not self._attempt or self._settled:
            return
        code, text = (0, "The entity already was as asked") if error is None else (int(error.code), error.detail)
        await conclude_rejected(self._audit, self._store, self._id, self._attempt, code, text)


def _result(item: Plan, change_id: str | None, node: Node | None, revision: int | None) -> EditResult:
    warnings = item.warnings
    if node is not None and is_remade(item.node, node):
        warnings = (*warnings, _REMADE)
    return EditResult(
        item.edit,
        change_id=change_id,
        revision=revision,
        diff=item.diff,
        warnings=warnings,
        node=node,
        created=item.created,
        after=item.after,
    )


def _of_topic(error: UnknownTopicError, edit: Edit) -> ConfplaneError:
    """Return what a topic that is not there is to one edit: its own fault, or that of another in its batch."""
    if edit.entity.get(EntityType.TOPIC) not in error.topics:
        return _not_attempted()
    return UnknownTopicError(error.detail, topics=error.topics, pointer=edit.pointer, outcome=error.outcome)


def _not_attempted() -> NotAttemptedError:
    return NotAttemptedError(
        "Another entry of this atomic batch failed; nothing was applied", outcome=WriteOutcome.NOT_APPLIED
    )


def _edit(item: _Prepared | EditResult) -> Edit:
    return item.edit if isinstance(item, EditResult) else item[0]


def _repeated(edits: Sequence[Edit | EditResult]) -> frozenset[str]:
    """Return the ids of the entities that are named more than once, be it by an edit that could not be formed."""
    entities = [edit.entity if isinstance(edit, Edit) else edit.edit.entity for edit in edits]
    # One without components stands for what no entity could be made of.
    named = Counter(entity.id for entity in entities if entity.components)
    return frozenset(name for name, times in named.items() if times > 1)
