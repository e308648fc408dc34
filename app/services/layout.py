"""Moving a cluster's client configs from one layout to the other (docs/architecture.md, "Layout of client configs").

The layout's znode says where they go and where some may be still. From then on no process writes client configs, and
all find each entity's where they are. Then each entity is moved: one change, one transaction on both of its znodes.
Last the znode says that all are there. So a run that was cut short at any step is just run again, in either direction.

Alter policies are not asked, since no config gets another value.
"""

from __future__ import annotations

import asyncio
import time
from dataclasses import dataclass, replace
from itertools import islice
from typing import TYPE_CHECKING, Any, Final

from app.domain.changes import difference
from app.domain.entities import Entity
from app.domain.errors import (
    AlreadyExistsError,
    BodyTooLargeError,
    ConcurrentChangeError,
    ConfplaneError,
    CorruptZnodeError,
    OutcomeUnknownError,
    ThrottledError,
    UnavailableError,
    WriteOutcome,
)
from app.services.clusters import LAYOUT_PATH
from app.services.edits import stored
from app.services.outcomes import conclude_rejected, conclude_written
from app.services.own_nodes import OwnChange, OwnNode
from app.services.ports import (
    Committed,
    Conflict,
    EntityWrite,
    Intent,
    IntentEntity,
    Layout,
    LayoutCheck,
    LayoutWrite,
    SessionEnded,
    Transaction,
    full_path,
)
from app.services.settle import settle_own

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Iterable, Sequence

    from app.domain.changes import Node
    from app.domain.facets import Tree
    from app.services.clusters import Caller, Collection
    from app.services.own_nodes import Attempt
    from app.services.ports import AuditLog, CommitResult

KEY: Final = "client_configs_layout"
_CHANGE_S: Final = 30.0
"""Seconds for each entity."""
_PAUSE_S: Final = 5.0
"""Between two looks at whether the brokers have taken notice of enough changes."""
_CONCURRENCY: Final = 32
_NAMED: Final = 5
_OF_ONE: Final = (BodyTooLargeError, ConcurrentChangeError, CorruptZnodeError)
"""Errors that say nothing about the next entity."""


@dataclass(frozen=True, slots=True)
class Survey:
    """What a move finds, as of a moment."""

    version: int
    """Of the layout's znode."""
    current: Layout
    settled: bool
    """Whether the cluster's layout is stored, and not only the settings'."""
    target: Tree
    entity_ids: tuple[str, ...]
    """Whose client configs are where they are to go from."""
    unread: tuple[str, ...] = ()
    """Whose client configs the tree has that nobody reads; while they are moved, there is none."""
    unreadable: tuple[str, ...] = ()
    """Paths of znodes that stand in the way."""

    @property
    def done(self) -> bool:
        """Whether all are where they are to be, and that is stored."""
        return self.settled and self.current == Layout(self.target)

    @property
    def source(self) -> Tree:
        """The tree that they go from."""
        return self.target.other


@dataclass(frozen=True, slots=True)
class MoveResult:
    """What became of one entity."""

    entity_id: str
    keys: tuple[str, ...] = ()
    change_id: str | None = None
    """None where nothing was written."""
    error: ConfplaneError | None = None


class LayoutService:
    """Moves the client configs of one cluster.

    Args:
        audit: The trail.
        configs: The cluster's ``client-configs``.
    """

    def __init__(self, audit: AuditLog, configs: Collection) -> None:
        self._audit = audit
        self._configs = configs
        self._store = configs.store

    async def survey(self, target: Tree, deadline: float) -> Survey:
        """Find out what is where, as of the moment of the call.

        Raises:
            UnavailableError: ZooKeeper is away.
            CorruptZnodeError: The layout's znode can't be read.
        """
        await self._store.catch_up(deadline)
        state = await self._store.read_layout(deadline)
        current = state.layout or Layout(self._configs.tree)
        here, there = self._nodes(current.tree), self._nodes(current.tree.other)
        moving = current.source is not None
        leaving = here if target is not current.tree else there if moving else []
        found = {node.id: stored(node) for node in here}
        return Survey(
            state.version,
            current,
            state.layout is not None,
            target,
            tuple(node.id for node in leaving if self._keys(node)),
            () if moving else tuple(node.id for node in there if self._differs(node, found.get(node.id, {}))),
            tuple(
                full_path(tree, Entity.from_id(node.id))
                for tree, nodes in ((current.tree, here), (current.tree.other, there))
                for node in nodes
                if node.defect is not None
            ),
        )

    def _nodes(self, tree: Tree) -> list[Node]:
        return list(self._store.with_keys(tree, self._configs.name.value))

    def _keys(self, node: Node) -> bool:
        return node.defect is None and bool(self._configs.own(Entity.from_id(node.id), node.config))

    def _differs(self, node: Node, other: dict[str, str]) -> bool:
        entity = Entity.from_id(node.id)
        return self._keys(node) and self._configs.own(entity, node.config) != self._configs.own(entity, other)

    def check(self, survey: Survey) -> None:
        """Refuse a move that could not end, or in which client configs would be mistaken for others.

        Raises:
            CorruptZnodeError: A znode can't be read or written.
            AlreadyExistsError: Both trees have client configs.
        """
        if survey.unreadable:
            raise CorruptZnodeError(
                survey.unreadable[0],
                f"can't be read or written{_and_more(survey.unreadable)}, so what it has can't be moved",
                outcome=WriteOutcome.NOT_APPLIED,
            )
        if survey.unread and survey.target is not survey.current.tree:
            raise AlreadyExistsError(
                f"Client configs are read from the layout {survey.current.tree.layout}, but {survey.target.layout} has"
                f" others already, which nobody reads, of {survey.unread[0]}{_and_more(survey.unread)}. Discard them"
                f" with --to {survey.current.tree.layout} --discard; or, if they are the right ones and no process has"
                " written client configs since, name that layout in the settings",
                outcome=WriteOutcome.NOT_APPLIED,
            )

    async def begin(self, survey: Survey, caller: Caller) -> int:
        """Have the cluster's client configs go to the target, unless they do already; return the znode's version.

        Once this has returned no process writes client configs, and each finds those that are moved.

        Raises:
            ConfplaneError: As :class:`~app.services.own_nodes.OwnChange`; another changed the layout meanwhile.
        """
        return await self._set(survey, Layout(survey.target, survey.source), caller)

    async def end(self, survey: Survey, caller: Caller) -> int:
        """Have it stored that all client configs are where they were to go; return the znode's version."""
        return await self._set(survey, Layout(survey.target), caller)

    async def _set(self, survey: Survey, wanted: Layout, caller: Caller) -> int:
        store, seen = self._store, survey.version

        async def read(deadline: float) -> tuple[int, Layout | None]:
            state = await store.read_layout(deadline)
            if state.version != survey.version:
                raise ConcurrentChangeError(
                    f"Another command changed the layout of cluster {store.name} meanwhile; look at it again",
                    outcome=WriteOutcome.NOT_APPLIED,
                )
            return state.version, state.layout

        async def write(attempt: Attempt[Layout | None]) -> CommitResult:
            nonlocal seen
            change = LayoutWrite(
                attempt.change_id,
                attempt.number,
                attempt.writer,
                attempt.expected,
                wanted,
                caller.principal,
                caller.request_id,
            )
            seen = attempt.expected + 1
            return await store.set_layout(change, caller.deadline)

        node = OwnNode(LAYOUT_PATH, KEY, read, write, _shown, "kept changing the layout")
        await OwnChange(self._audit, store, node, caller, reason=caller.reason).run(lambda _: wanted)
        return seen

    async def move(
        self, survey: Survey, version: int, caller: Caller, *, discard: bool = False
    ) -> AsyncIterator[MoveResult]:
        """Move entities, or discard what nobody reads of them, and yield what became of each.

        Args:
            survey: What to move; one whose client configs are not there any more is left as it is.
            version: Of the layout's znode, which must not change meanwhile.
            caller: Who asks; each entity has a deadline of its own.
            discard: Remove what the tree has that nobody reads, instead.

        Raises:
            ConfplaneError: Nothing more can be done now: a store is away, the cluster is frozen, another command
                changed the layout. What was yielded is done.
        """
        ids = iter(survey.unread if discard else survey.entity_ids)
        source = survey.current.tree.other if discard else survey.source
        while some := list(islice(ids, _CONCURRENCY)):
            for result in await asyncio.gather(
                *(self._one(each, source, version, caller, discard=discard) for each in some)
            ):
                if result.error is not None and not isinstance(result.error, _OF_ONE):
                    raise result.error
                yield result

    async def _one(self, entity_id: str, source: Tree, version: int, caller: Caller, *, discard: bool) -> MoveResult:
        while True:
            now = replace(caller, deadline=time.monotonic() + _CHANGE_S)
            change = _Move(self._audit, self._configs, Entity.from_id(entity_id), source, version, now)
            try:
                return await change.run(discard=discard)
            except ThrottledError:
                await asyncio.sleep(_PAUSE_S)
            except ConfplaneError as error:
                return MoveResult(entity_id, error=error)


class _Move:
    """One entity's move through its attempts."""

    def __init__(
        self, audit: AuditLog, configs: Collection, entity: Entity, source: Tree, version: int, caller: Caller
    ) -> None:
        self._audit = audit
        self._configs = configs
        self._store = configs.store
        self._entity = entity
        self._source = source
        self._layout = LayoutCheck(version)
        self._caller = caller
        self._id = self._store.new_change_id()
        self._began = time.monotonic()
        self._attempt = 0
        self._writer: str | None = None
        self._settled = False

    async def run(self, *, discard: bool) -> MoveResult:
        """Move it, or discard it; others may be writing to its znodes meanwhile."""
        try:
            while (result := await self._try(discard=discard)) is None:
                await self._check_layout()
                if time.monotonic() >= self._caller.deadline:
                    raise ConcurrentChangeError(
                        f"Others kept changing {self._entity.id} until the deadline; it is where it was"
                    )
        except OutcomeUnknownError:
            raise  # its intent stays open until someone settles it
        except ConfplaneError as error:
            await self._reject(int(error.code), error.detail)
            raise
        return result

    async def _check_layout(self) -> None:
        """Tell a znode that others changed from a layout that they changed."""
        if (await self._store.read_layout(self._caller.deadline)).version != self._layout.version:
            raise UnavailableError("Another command changed the layout meanwhile; what was moved is moved")

    async def _try(self, *, discard: bool) -> MoveResult | None:
        """Make one attempt; None means that something was not as read."""
        store, entity, deadline = self._store, self._entity, self._caller.deadline
        writer = store.writer()
        target = self._source.other
        # In this order, so that what moves meanwhile is not missed in the mirror.
        nodes = {tree: await store.read(tree, entity, deadline) for tree in (target, self._source)}
        for tree, node in nodes.items():
            if node is not None and node.defect is not None:
                raise CorruptZnodeError(full_path(tree, entity), node.defect, outcome=WriteOutcome.NOT_APPLIED)
        before = {tree: stored(node) for tree, node in nodes.items()}
        moved = self._configs.own(entity, before[self._source])
        if not moved:
            await self._reject(0, "It has been moved already")
            return MoveResult(entity.id)
        after = {self._source: {key: value for key, value in before[self._source].items() if key not in moved}}
        if not discard and not self._configs.own(entity, before[target]):
            # What is there already is what is read; whoever wrote to the source since, nobody has seen it.
            after[target] = before[target] | moved
        changes = [
            _Side(tree, nodes[tree], before[tree], wanted) for tree, wanted in after.items() if wanted != before[tree]
        ]
        writes = tuple(side.write(entity) for side in changes)
        await store.check_admission(writes, deadline)
        if self._writer not in {None, writer}:
            raise UnavailableError("The ZooKeeper session was replaced between two attempts; run it again")
        self._writer = writer
        await self._audit.intend([self._intent(self._attempt + 1, writer, changes, discard=discard)])
        self._attempt += 1
        caller = self._caller
        transaction = Transaction(
            self._id, self._attempt, writer, writes, caller.principal, caller.request_id, self._layout
        )
        result = await store.commit(transaction, deadline)
        if isinstance(result, Conflict):
            return None
        if isinstance(result, SessionEnded):
            raise UnavailableError(f"ZooKeeper refused: {result.reason}; run it again")
        if isinstance(result, Committed):
            await self._conclude(result, changes)
        else:
            await self._settle()
        return MoveResult(entity.id, tuple(moved), str(self._id))

    async def _settle(self) -> None:
        outcome = await settle_own(
            self._audit, self._store, self._id, self._attempt, began=self._began, deadline=self._caller.deadline
        )
        self._settled = True
        if not outcome.committed:
            raise UnavailableError("ZooKeeper's reply was lost; it was settled as aborted. Run it again")

    async def _conclude(self, result: Committed, changes: Sequence[_Side]) -> None:
        read = [(full_path(side.tree, self._entity), side.node) for side in changes]
        await conclude_written(self._audit, self._store, self._id, self._attempt, result, read)

    def _intent(self, attempt: int, writer: str, changes: Iterable[_Side], *, discard: bool) -> Intent:
        caller, entity = self._caller, self._entity
        op: dict[str, Any] = {"op": "DISCARD"} if discard else {"op": "MOVE", "to": self._source.other.layout}
        return Intent(
            change_id=self._id,
            attempt=attempt,
            cluster=self._store.name,
            writer=writer,
            principal=caller.principal,
            source=caller.source,
            request_id=caller.request_id,
            reason=caller.reason,
            ticket=caller.ticket,
            entities=tuple(
                IntentEntity(
                    entity_id=entity.id,
                    facet=self._configs.name.value,
                    path=full_path(side.tree, entity),
                    version_read=None if side.node is None else side.node.version,
                    czxid_read=None if side.node is None else side.node.czxid,
                    keys=tuple(item.key for item in difference(side.before, side.after)),
                    ops=(op,),
                    before=self._configs.told(side.tree, entity.id, side.before),
                    after=self._configs.told(side.tree, entity.id, side.after),
                )
                for side in changes
            ),
        )

    async def _reject(self, code: int, text: str) -> None:
        """Close a change that has intents and, for certain, no effect."""
        if self._attempt and not self._settled:
            await conclude_rejected(self._audit, self._store, self._id, self._attempt, code, text)


@dataclass(frozen=True, slots=True)
class _Side:
    """What becomes of an entity's znode in one of the trees."""

    tree: Tree
    node: Node | None
    before: dict[str, str]
    after: dict[str, str]

    def write(self, entity: Entity) -> EntityWrite:
        node = self.node
        return EntityWrite(
            self.tree,
            entity,
            None if node is None else node.version,
            self.after,
            None if node is None else node.extra,
        )


def _shown(layout: Layout | None) -> str | None:
    return None if layout is None else str(layout)


def _and_more(names: Sequence[str]) -> str:
    return f" (and {len(names) - 1} more)" if len(names) > 1 else ""
