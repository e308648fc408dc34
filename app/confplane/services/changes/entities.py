"""One change of entities: its decision at each attempt, and the results of its edits.

The edits may be of several facets. Client quotas and client configs in the layout ``shared`` have one znode; their
drafts become one write of that znode, and one row of the trail. Each facet changes only its own keys, so neither draft
depends on the other.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Final, NamedTuple

from confplane.domain.changes import Node, stored
from confplane.domain.entities import Entity, EntityType
from confplane.domain.errors import (
    ConfplaneError,
    NotAttemptedError,
    UnavailableError,
    UnknownTopicError,
    WriteOutcome,
)
from confplane.domain.facets import full_path
from confplane.services.changes.bulk import Planned
from confplane.services.changes.draft import Draft, NoChange
from confplane.services.changes.edits import Edit, EditResult, EntityDraft
from confplane.services.cluster_facet import ClusterFacet
from confplane.services.cooperative_yielding import TimeSlice
from confplane.services.policies import Policies, PolicyRequest
from confplane.services.ports.applying import DryRunResult
from confplane.services.ports.history import Znode
from confplane.services.ports.trail import CLIENTS, MOST_REVERTS
from confplane.services.reads.config_levels import NOTHING_PLANNED

if TYPE_CHECKING:
    from collections.abc import Iterable
    from uuid import UUID

    from confplane.domain.facets import Rank, Tree
    from confplane.services.changes.callers import Caller
    from confplane.services.changes.change import ChangeResult
    from confplane.services.ports.cluster_states import LayoutCheck
    from confplane.services.ports.trail import IntentEntity

DecideEntity = Callable[[ClusterFacet, Node | None, Planned], Awaitable[EntityDraft]]
"""Decides one entity's draft from its cluster facet, the node as read, and the maps planned before it."""

DryRunEdit = Callable[[Entity, Mapping[str, str], Sequence[str], str | None], Awaitable[DryRunResult]]
"""Validates new values of some keys of an entity with a dry run on a Kafka cluster without ZooKeeper, given the stored
map as it would be, the keys, and the JSON pointer to the entity. Raises the cluster's refusal."""

RefreshEntities = Callable[[Sequence[Entity], float], Awaitable[None]]
"""Refreshes entities from a Kafka cluster without ZooKeeper, until a deadline, so that the preconditions of a write are
compared with the configs of the cluster."""

_Nodes = dict[Znode, Node | UnavailableError | None]

_REMADE: Final = (
    "Others deleted the znode and made it again during this change; what they wrote into it was overwritten"
)


class PreparedEdit(NamedTuple):
    """One edit of a change, ready to be decided."""

    cluster_facet: ClusterFacet
    edit: Edit
    decide: DecideEntity
    policies: Policies
    """The policies that are asked about the draft."""
    dry_run: DryRunEdit | None = None
    """The dry run of the draft on the Kafka cluster, after the policies; None: there is no dry run."""

    @property
    def rank(self) -> Rank | None:
        """The entity's rank in its facet; None if no check reads the result of this edit."""
        return self.cluster_facet.facet.rank(self.edit.entity)


class PlacedDraft(NamedTuple):
    """The draft of one edit, with the cluster facet as it was placed for the attempt."""

    cluster_facet: ClusterFacet
    draft: EntityDraft
    path: str
    """The full path of the znode."""


@dataclass(frozen=True, slots=True)
class DecidedDrafts:
    """The drafts of the edits, up to the first that failed."""

    drafts: Sequence[PlacedDraft]


class EntitiesChange:
    """One change of entities of a cluster; decided at each attempt.

    Args:
        items: The edits, at least one, no two of one entity and facet.
        caller: The caller.
        planned: The results of earlier edits of the same request, as far as checks read them.
        validate_only: The policies are informed that nothing will be written.

    Attributes:
        paths: Full paths of the znodes, each once.
        waits: The edits need a dry run on a Kafka cluster.
    """

    def __init__(
        self,
        items: Sequence[PreparedEdit],
        caller: Caller,
        planned: Planned = NOTHING_PLANNED,
        *,
        validate_only: bool,
    ) -> None:
        self._items = items
        self._caller = caller
        self._planned = planned
        self._validate_only = validate_only
        self._store = items[0].cluster_facet.store
        self.paths = list(dict.fromkeys(full_path(item.cluster_facet.tree, item.edit.entity) for item in items))
        self.waits = any(item.dry_run is not None for item in items)

    async def decide(self, *, again: bool) -> Draft[DecidedDrafts] | NoChange[DecidedDrafts]:
        """Decide one attempt; see :data:`~confplane.services.changes.draft.Decide`."""
        # Client configs may have moved to the other tree since an earlier attempt.
        places = {
            cluster_facet: cluster_facet.placed()
            for cluster_facet in dict.fromkeys(item.cluster_facet for item in self._items)
        }
        placed = [places[item.cluster_facet] for item in self._items]
        nodes = await self._read(placed, again=again)
        drafts: list[PlacedDraft] = []
        planned = dict(self._planned)
        time_slice = TimeSlice()
        for item, cluster_facet in zip(self._items, placed, strict=True):
            if time_slice.due:
                await time_slice.pause()
            entity = item.edit.entity
            try:
                draft = await self._draft(item, cluster_facet, nodes[Znode(cluster_facet.tree, entity.id)], planned)
            except ConfplaneError as error:
                return self._unchanged(placed[: len(drafts) + 1], nodes, drafts, error)
            if item.rank is not None:
                planned[entity.id] = draft.after
            drafts.append(PlacedDraft(cluster_facet, draft, full_path(cluster_facet.tree, entity)))
        drafts, refusal = await self._dry_run(drafts)
        if refusal is not None:
            return self._unchanged(placed[: len(drafts) + 1], nodes, drafts, refusal)
        drafts = _merged(drafts)
        changed = _by_znode(drafts)
        if not changed:
            return self._unchanged(placed, nodes, drafts, None)
        return Draft(
            DecidedDrafts(drafts),
            writes=tuple(first.draft.write(first.cluster_facet) for first, *_ in changed.values()),
            entities=tuple(map(_row, changed.values())),
            answers=() if self._caller.run is None else tuple(each.draft.answer(each.cluster_facet) for each in drafts),
            layout=_layout(placed),
            reverts=_reverts(each for drafts in changed.values() for each in drafts),
        )

    async def _read(self, placed: Sequence[ClusterFacet], *, again: bool) -> _Nodes:
        """Return the node of each znode; a first attempt is decided on the mirror."""
        entities = [item.edit.entity for item in self._items]
        if not again:
            return {
                Znode(cluster_facet.tree, entity.id): cluster_facet.get(entity.id)
                for cluster_facet, entity in zip(placed, entities, strict=True)
            }
        wanted: dict[Tree, dict[str, Entity]] = {}
        for cluster_facet, entity in zip(placed, entities, strict=True):
            wanted.setdefault(cluster_facet.tree, {})[entity.id] = entity
        nodes: _Nodes = {}
        for tree, some in wanted.items():
            found = await self._store.read_many(tree, list(some.values()), self._caller.deadline)
            nodes |= {Znode(tree, entity_id): node for entity_id, node in zip(some, found, strict=True)}
        return nodes

    async def _draft(
        self, item: PreparedEdit, cluster_facet: ClusterFacet, node: Node | UnavailableError | None, planned: Planned
    ) -> EntityDraft:
        if isinstance(node, UnavailableError):
            raise node
        draft = await item.decide(cluster_facet, node, planned)
        if draft.diff and node is None:
            item.edit.entity.check_new(pointer=item.edit.pointer)
        if draft.diff and item.policies:
            self._check_policies(item.policies, cluster_facet, draft)
        return draft

    async def _dry_run(self, drafts: list[PlacedDraft]) -> tuple[list[PlacedDraft], ConfplaneError | None]:
        """Dry-run drafts on the Kafka cluster; return them with its warnings, up to the first that it would refuse."""

        async def ask(item: PreparedEdit, drafted: PlacedDraft) -> PlacedDraft:
            draft = drafted.draft
            if item.dry_run is None or not draft.diff:
                return drafted
            keys = [difference.key for difference in draft.diff]
            asked = await item.dry_run(draft.edit.entity, draft.after, keys, draft.edit.pointer)
            warnings = draft.warnings if asked.warning is None else (*draft.warnings, asked.warning)
            return drafted._replace(draft=replace(draft, warnings=warnings, topic_id=asked.topic_id))

        if not self.waits:
            return drafts, None
        asked: list[PlacedDraft] = []
        for found in await asyncio.gather(*map(ask, self._items, drafts), return_exceptions=True):
            if isinstance(found, ConfplaneError):
                return asked, found
            if isinstance(found, BaseException):
                raise found
            asked.append(found)
        return asked, None

    def _unchanged(
        self,
        placed: Sequence[ClusterFacet],
        nodes: _Nodes,
        drafts: Sequence[PlacedDraft],
        error: ConfplaneError | None,
    ) -> NoChange[DecidedDrafts]:
        """Return the decision to write nothing, which rests on the nodes of the edits up to the last placed one."""
        seen: dict[Znode, tuple[Tree, Entity, int | None]] = {}
        for cluster_facet, item in zip(placed, self._items, strict=False):
            znode = Znode(cluster_facet.tree, item.edit.entity.id)
            node = nodes[znode]
            if not isinstance(node, UnavailableError):
                seen[znode] = cluster_facet.tree, item.edit.entity, None if node is None else node.version
        return NoChange(DecidedDrafts(drafts), error, tuple(seen.values()), _layout(placed))

    def _check_policies(self, policies: Policies, cluster_facet: ClusterFacet, draft: EntityDraft) -> None:
        entity, after = draft.edit.entity, draft.after
        before = {} if draft.node is None else draft.node.config
        redact, tree = cluster_facet.redact, cluster_facet.tree
        shown = redact(tree, entity.id, after)
        changed = {difference.key for difference in draft.diff}
        owns = cluster_facet.facet.owns
        policies.check(
            PolicyRequest(
                cluster=cluster_facet.store.name,
                principal=self._caller.principal,
                facet=cluster_facet.name.value,
                entity=entity,
                set={key: shown[key] for key in changed & after.keys()},
                removed=frozenset(changed - after.keys()),
                before={key: value for key, value in redact(tree, entity.id, before).items() if owns(entity, key)},
                after={key: value for key, value in shown.items() if owns(entity, key)},
                validate_only=self._validate_only,
                pointers={op.key: op.pointer for op in draft.edit.ops if op.pointer is not None},
                behalf_of=self._caller.behalf_of,
            )
        )


def _layout(placed: Sequence[ClusterFacet]) -> LayoutCheck | None:
    return next((cluster_facet.layout for cluster_facet in placed if cluster_facet.layout is not None), None)


def _reverts(drafts: Iterable[PlacedDraft]) -> tuple[UUID, ...]:
    """Return the changes that drafts revert, each once, the latest :data:`MOST_REVERTS` of them."""
    # The ids begin with the time of their changes.
    return tuple(sorted({each for drafted in drafts for each in drafted.draft.edit.reverts})[-MOST_REVERTS:])


# ---------------------------------------------------------------- facets that share a znode


def _merged(drafts: list[PlacedDraft]) -> list[PlacedDraft]:
    """Return drafts, of which those of one znode have the map that all of them together leave."""
    if len({each.path for each in drafts}) == len(drafts):
        return drafts
    left: dict[str, dict[str, str]] = {}
    for _, draft, path in drafts:
        after = left.setdefault(path, stored(draft.node))
        for item in draft.diff:
            if item.key in draft.after:
                after[item.key] = draft.after[item.key]
            else:
                del after[item.key]
    return [each._replace(draft=replace(each.draft, after=left[each.path])) for each in drafts]


def _by_znode(drafts: Sequence[PlacedDraft]) -> dict[str, list[PlacedDraft]]:
    """Return the drafts with an effect, by the paths of their znodes."""
    found: dict[str, list[PlacedDraft]] = {}
    for each in drafts:
        if each.draft.diff:
            found.setdefault(each.path, []).append(each)
    return found


def _row(drafts: Sequence[PlacedDraft]) -> IntentEntity:
    """Return the row of the trail for the drafts of one znode."""
    rows = [draft.intent(cluster_facet) for cluster_facet, draft, _ in drafts]
    if len(rows) == 1:
        return rows[0]
    keys, ops = (key for row in rows for key in row.keys), (op for row in rows for op in row.ops)
    return replace(rows[0], facet=CLIENTS, keys=tuple(keys), ops=tuple(ops))


# ---------------------------------------------------------------- results


def results_of(ended: ChangeResult[DecidedDrafts], edits: Sequence[Edit]) -> list[EditResult]:
    """Return the results of a change's edits."""
    drafts = ended.decided.drafts
    if ended.error is not None:
        return [
            EditResult(edit, ended.error if index == len(drafts) else not_attempted())
            for index, edit in enumerate(edits)
        ]
    committed = ended.committed
    if committed is None:
        return [_result(draft, draft.node, ended.revision) for _, draft, _ in drafts]
    nodes = dict(zip(_by_znode(drafts), committed.nodes, strict=True))
    results = []
    for _, draft, path in drafts:
        node = nodes.get(path, draft.node)
        if draft.diff:
            remade = path in committed.remade
            results.append(_result(draft, node, committed.revision, ended.change_id, remade=remade))
        else:
            results.append(_result(draft, node, committed.revision))
    return results


def _result(
    draft: EntityDraft, node: Node | None, revision: int | None, change_id: UUID | None = None, *, remade: bool = False
) -> EditResult:
    """Return the result of an edit; ``revision`` is None if the edit was only validated."""
    return EditResult(
        draft.edit,
        change_id=None if change_id is None else str(change_id),
        revision=revision if revision is None or node is None else node.mzxid,
        diff=draft.diff,
        warnings=(*draft.warnings, _REMADE) if remade else draft.warnings,
        node=node,
        created=draft.created,
        after=draft.after,
    )


def failed(error: ConfplaneError, edits: Sequence[Edit]) -> list[EditResult]:
    """Return the results of the edits of a change that ended with an error."""
    if isinstance(error, UnknownTopicError):
        return [EditResult(edit, _of_topic(error, edit)) for edit in edits]
    return [EditResult(edit, error) for edit in edits]


def _of_topic(error: UnknownTopicError, edit: Edit) -> ConfplaneError:
    """Return the error of one edit for an absent topic: its own, or that of another edit in its batch."""
    if edit.entity.get(EntityType.TOPIC) not in error.topics:
        return not_attempted()
    return UnknownTopicError(error.detail, topics=error.topics, pointer=edit.pointer, outcome=error.outcome)


def not_attempted() -> NotAttemptedError:
    """Return the error of an edit whose change another edit made fail."""
    return NotAttemptedError(
        "Another entry of this atomic batch failed; nothing was applied", outcome=WriteOutcome.NOT_APPLIED
    )
