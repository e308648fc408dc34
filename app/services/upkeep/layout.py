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

from app.domain.changes import difference, stored
from app.domain.entities import Entity
from app.domain.errors import (
    AlreadyExistsError,
    BodyTooLargeError,
    ConcurrentChangeError,
    ConfplaneError,
    CorruptZnodeError,
    ThrottledError,
    UnavailableError,
    WriteOutcome,
)
from app.domain.facets import full_path
from app.services.changes.draft import Draft, Unchanged
from app.services.changes.states import StateChange, draft
from app.services.collections import LAYOUT_PATH
from app.services.ports.cluster_states import Layout, LayoutCheck
from app.services.ports.trail import IntentEntity
from app.services.ports.transactions import EntityWrite

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Sequence

    from app.domain.changes import Node
    from app.domain.facets import Tree
    from app.services.changes.callers import Caller
    from app.services.changes.runner import ChangeRunner
    from app.services.collections import Collection

_LayoutChange = StateChange[Layout | None]

KEY: Final = "client_configs_layout"
_CHANGE_S: Final = 30.0
"""Seconds for each entity."""
_PAUSE_S: Final = 5.0
"""Between two looks at whether the brokers have taken notice of enough changes."""
_CONTENDED: Final = "Others kept changing the layout until the deadline; nothing was applied"
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
        runner: Runs the changes.
        configs: The cluster's ``client-configs``.
    """

    def __init__(self, runner: ChangeRunner, configs: Collection) -> None:
        self._runner = runner
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
            ConfplaneError: As ``ChangeRunner.run``; another changed the layout meanwhile.
        """
        return await self._set(survey, Layout(survey.target, survey.source), caller)

    async def end(self, survey: Survey, caller: Caller) -> int:
        """Have it stored that all client configs are where they were to go; return the znode's version."""
        return await self._set(survey, Layout(survey.target), caller)

    async def _set(self, survey: Survey, wanted: Layout, caller: Caller) -> int:
        store = self._store

        async def decide(*, again: bool) -> Draft[_LayoutChange] | Unchanged[_LayoutChange]:
            del again  # it is always read from ZooKeeper
            state = await store.read_layout(caller.deadline)
            if state.version != survey.version:
                raise ConcurrentChangeError(
                    f"Another command changed the layout of cluster {store.name} meanwhile; look at it again",
                    outcome=WriteOutcome.NOT_APPLIED,
                )
            change: _LayoutChange = StateChange(state.layout, wanted)
            if change.before == change.after:
                return Unchanged(change)
            return draft(LAYOUT_PATH, KEY, change, version=state.version, czxid=state.czxid, guarded=True)

        ended = await self._runner.run(store, decide, caller, contended=_CONTENDED)
        return survey.version if ended.committed is None else ended.committed.versions[LAYOUT_PATH]

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
        entity = Entity.from_id(entity_id)
        while True:
            deadline = time.monotonic() + _CHANGE_S
            move = _Move(self._configs, entity, source, LayoutCheck(version), deadline, discard=discard)
            contended = f"Others kept changing {entity_id} until the deadline; it is where it was"
            try:
                ended = await self._runner.run(
                    self._store, move.decide, replace(caller, deadline=deadline), contended=contended
                )
            except ThrottledError:
                await asyncio.sleep(_PAUSE_S)
            except ConfplaneError as error:
                return MoveResult(entity_id, error=error)
            else:
                return MoveResult(entity_id, ended.decided, None if ended.change_id is None else str(ended.change_id))


class _Move:
    """One entity's move, or the end of what nobody reads of it: what is decided at each attempt."""

    def __init__(
        self,
        configs: Collection,
        entity: Entity,
        source: Tree,
        layout: LayoutCheck,
        deadline: float,
        *,
        discard: bool,
    ) -> None:
        self._configs = configs
        self._store = configs.store
        self._entity = entity
        self._source = source
        self._layout = layout
        self._deadline = deadline
        self._discard = discard

    async def decide(self, *, again: bool) -> Draft[tuple[str, ...]] | Unchanged[tuple[str, ...]]:
        """Decide one attempt by what both znodes have; ``decided`` is the keys that move."""
        entity, source, target = self._entity, self._source, self._source.other
        if again:
            await self._check_layout()
        # In this order, so that what moves meanwhile is not missed in the mirror.
        nodes = {tree: await self._store.read(tree, entity, self._deadline) for tree in (target, source)}
        for tree, node in nodes.items():
            if node is not None and node.defect is not None:
                raise CorruptZnodeError(full_path(tree, entity), node.defect, outcome=WriteOutcome.NOT_APPLIED)
        before = {tree: stored(node) for tree, node in nodes.items()}
        moved = self._configs.own(entity, before[source])
        if not moved:
            return Unchanged(())
        after = {source: {key: value for key, value in before[source].items() if key not in moved}}
        if not self._discard and not self._configs.own(entity, before[target]):
            # What is there already is what is read; whoever wrote to the source since, nobody has seen it.
            after[target] = before[target] | moved
        sides = [_Side(tree, nodes[tree], before[tree], after[tree]) for tree in after if after[tree] != before[tree]]
        return Draft(
            tuple(moved),
            writes=tuple(side.write(entity) for side in sides),
            entities=tuple(self._recorded(side) for side in sides),
            layout=self._layout,
        )

    async def _check_layout(self) -> None:
        """Tell a znode that others changed from a layout that they changed."""
        if (await self._store.read_layout(self._deadline)).version != self._layout.version:
            raise UnavailableError("Another command changed the layout meanwhile; what was moved is moved")

    def _recorded(self, side: _Side) -> IntentEntity:
        configs, entity = self._configs, self._entity
        op: dict[str, Any] = {"op": "DISCARD"} if self._discard else {"op": "MOVE", "to": self._source.other.layout}
        return IntentEntity(
            entity_id=entity.id,
            facet=configs.name.value,
            path=full_path(side.tree, entity),
            version_read=None if side.node is None else side.node.version,
            czxid_read=None if side.node is None else side.node.czxid,
            keys=tuple(item.key for item in difference(side.before, side.after)),
            ops=(op,),
            before=configs.redact(side.tree, entity.id, side.before),
            after=configs.redact(side.tree, entity.id, side.after),
        )


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
            None if node is None else node.czxid,
        )


def _and_more(names: Sequence[str]) -> str:
    return f" (and {len(names) - 1} more)" if len(names) > 1 else ""
