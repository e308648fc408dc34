"""Moves a cluster's client configs from one layout to the other (docs/writes-design.md, "Layout of client configs").

The layout's znode names the destination, and the tree that may still have some of the configs. From then on no process
writes client configs, and all processes read both trees. Each entity is then moved: one change, one transaction on both
of its znodes. At the end the znode says that the move is complete. A run that was cut short at any step can be run
again, in either direction.

Alter policies are not asked, since no config gets another value.
"""

from __future__ import annotations

import asyncio
import time
from dataclasses import dataclass, replace
from itertools import islice
from typing import TYPE_CHECKING, Final

from confplane.domain.changes import stored
from confplane.domain.entities import Entity
from confplane.domain.errors import (
    AlreadyExistsError,
    BodyTooLargeError,
    ConcurrentChangeError,
    ConfplaneError,
    CorruptZnodeError,
    InvalidRequestError,
    ThrottledError,
    UnavailableError,
    WriteOutcome,
)
from confplane.domain.facets import full_path
from confplane.services.changes.edits import ChangeJob, Draft, Edit, NoChange
from confplane.services.changes.entity_drafts import EntityDraft
from confplane.services.changes.states import decide_state
from confplane.services.cluster_facet import LAYOUT_PATH
from confplane.services.ports.cluster_states import Layout, LayoutCheck
from confplane.services.ports.transactions import Guarded

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Sequence

    from confplane.domain.changes import Node
    from confplane.domain.facets import Tree
    from confplane.services.changes.callers import Caller
    from confplane.services.changes.runner import ChangeRunner
    from confplane.services.cluster_facet import ClusterFacet
    from confplane.services.ports.cluster_states import StoredState

_CHANGE_S: Final = 30.0
"""Seconds for each entity."""
_PAUSE_S: Final = 5.0
"""Seconds between two checks of whether the brokers have processed enough notifications."""
_CONTENDED: Final = "Other writers kept changing the layout until the deadline; nothing was applied"
_CONCURRENCY: Final = 32
_OF_ONE: Final = (BodyTooLargeError, ConcurrentChangeError, CorruptZnodeError, InvalidRequestError)
"""Errors that concern only one entity."""


@dataclass(frozen=True, slots=True)
class LayoutSurvey:
    """The state of both trees before a move, as of one moment."""

    version: int
    """The version of the layout's znode."""
    current: Layout
    settled: bool
    """True if the cluster's layout is stored; False if it comes from the settings."""
    target: Tree
    entity_ids: tuple[str, ...]
    """The entities with client configs in the tree to move from."""
    unread: tuple[str, ...] = ()
    """The entities with client configs in the tree that nobody reads; none during a move."""
    unreadable: tuple[str, ...] = ()
    """Paths of znodes that can't be read or written, and so block a move."""

    @property
    def done(self) -> bool:
        """True if all client configs are in the target, and the target is stored as the layout."""
        return self.settled and self.current == Layout(self.target)

    @property
    def source(self) -> Tree:
        """The tree to move from."""
        return self.target.other


@dataclass(frozen=True, slots=True)
class MoveResult:
    """The result for one entity."""

    entity_id: str
    keys: tuple[str, ...] = ()
    change_id: str | None = None
    """The id of the change; None if nothing was written."""
    error: ConfplaneError | None = None


class LayoutService:
    """Moves the client configs of one cluster.

    Args:
        runner: Runs the changes.
        configs: The cluster's ``client-configs``.
    """

    def __init__(self, runner: ChangeRunner, configs: ClusterFacet) -> None:
        self._runner = runner
        self._configs = configs
        self._store = configs.store

    async def survey(self, target: Tree, deadline: float) -> LayoutSurvey:
        """Return the state of both trees, as of the moment of the call.

        Raises:
            UnavailableError: ZooKeeper is unavailable.
            CorruptZnodeError: The layout's znode can't be read.
        """
        await self._store.catch_up(deadline)
        state = await self._store.read_state(Layout, deadline)
        current = state.value or Layout(self._configs.tree)
        here, there = self._nodes(current.tree), self._nodes(current.tree.other)
        moving = current.source is not None
        leaving = here if target is not current.tree else there if moving else []
        found = {node.id: stored(node) for node in here}
        return LayoutSurvey(
            state.version,
            current,
            state.value is not None,
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

    def check(self, survey: LayoutSurvey) -> None:
        """Refuse a move that could not end, or that would mix two sets of client configs.

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

    async def begin(self, survey: LayoutSurvey, caller: Caller) -> int:
        """Begin the move to the target, unless it has begun already; return the znode's version.

        After the return no process writes client configs, and each process finds the moved ones.

        Raises:
            ConfplaneError: As ``ChangeRunner.run``; or another command changed the layout in the meantime.
        """
        return await self._set(survey, Layout(survey.target, survey.source), caller)

    async def end(self, survey: LayoutSurvey, caller: Caller) -> int:
        """Store the target as the layout, with the move complete; return the znode's version."""
        return await self._set(survey, Layout(survey.target), caller)

    async def _set(self, survey: LayoutSurvey, wanted: Layout, caller: Caller) -> int:
        store = self._store

        def after(state: StoredState[Layout]) -> Layout:
            if state.version != survey.version:
                raise ConcurrentChangeError(
                    f"Another command changed the layout of cluster {store.name} in the meantime. Read it again.",
                    outcome=WriteOutcome.NOT_APPLIED,
                )
            return wanted

        decide = decide_state(store, Layout, after, caller.deadline, guarded=Guarded.CALLER)
        ended = await self._runner.run(store, ChangeJob(decide, contended=_CONTENDED), caller)
        return survey.version if ended.committed is None else ended.committed.versions[LAYOUT_PATH]

    async def move(
        self, survey: LayoutSurvey, version: int, caller: Caller, *, discard: bool = False
    ) -> AsyncIterator[MoveResult]:
        """Move entities, or discard their unread client configs, and yield the result of each.

        Args:
            survey: The survey; an entity without client configs by now is left as it is.
            version: The version of the layout's znode, which must not change during the move.
            caller: The caller; each entity has a deadline of its own.
            discard: Remove the client configs of the unread tree, instead of a move.

        Raises:
            ConfplaneError: No further work is possible now: a store is away, the cluster is frozen, another command
                changed the layout. Yielded results remain valid.
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
            move = _EntityMove(self._configs, entity, source, LayoutCheck(version), deadline, discard=discard)
            contended = f"Other writers kept changing {entity_id} until the deadline; it is where it was"
            try:
                job = ChangeJob(move.decide, contended=contended)
                ended = await self._runner.run(self._store, job, replace(caller, deadline=deadline))
            except ThrottledError:
                await asyncio.sleep(_PAUSE_S)
            except ConfplaneError as error:
                return MoveResult(entity_id, error=error)
            else:
                return MoveResult(entity_id, ended.decided, None if ended.change_id is None else str(ended.change_id))


class _EntityMove:
    """One entity's move, or the removal of its unread client configs; decided at each attempt."""

    def __init__(
        self,
        configs: ClusterFacet,
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

    async def decide(self, *, again: bool) -> Draft[tuple[str, ...]] | NoChange[tuple[str, ...]]:
        """Decide one attempt by what both znodes have; ``decided`` is the keys that move."""
        entity, source, target = self._entity, self._source, self._source.other
        if again:
            await self._check_layout()
        # The target first, so that an entity moved in the meantime is not missed in the mirror.
        nodes = {tree: await self._store.read(tree, entity, self._deadline) for tree in (target, source)}
        for tree, node in nodes.items():
            if node is not None and node.defect is not None:
                raise CorruptZnodeError(full_path(tree, entity), node.defect, outcome=WriteOutcome.NOT_APPLIED)
        before = {tree: stored(node) for tree, node in nodes.items()}
        moved = self._configs.own(entity, before[source])
        if not moved:
            return NoChange(())
        after = {source: {key: value for key, value in before[source].items() if key not in moved}}
        if not self._discard and not self._configs.own(entity, before[target]):
            # Configs in the target are the effective ones; nobody has read later writes to the source.
            after[target] = before[target] | moved
        op = {"op": "DISCARD"} if self._discard else {"op": "MOVE", "to": target.layout}
        writes, rows = [], []
        for tree in (each for each in after if after[each] != before[each]):
            side = replace(self._configs, root=tree, laid_out=False)
            made = EntityDraft.of(side, Edit(entity, ()), nodes[tree], after[tree], [])
            writes.append(made.write())
            rows.append(replace(made, recorded_ops=(op,)).intent())
        return Draft(tuple(moved), writes=tuple(writes), entities=tuple(rows), layout=self._layout)

    async def _check_layout(self) -> None:
        """Raise an error if the layout changed; a conflict may come from another znode of the transaction."""
        if (await self._store.read_state(Layout, self._deadline)).version != self._layout.version:
            raise UnavailableError(
                "Another command changed the layout in the meantime. Entities that were moved stay moved."
            )


def _and_more(names: Sequence[str]) -> str:
    return f" (and {len(names) - 1} more)" if len(names) > 1 else ""
