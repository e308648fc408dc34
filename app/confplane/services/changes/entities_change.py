"""One change of entities: the decision of its edits at each attempt, and their results at the end.

The edits of a change may be of several facets. Client quotas and client configs in the layout ``shared`` have one
znode; their drafts become one write of that znode, and one row of the trail. Each facet changes only its own keys, so
neither draft depends on the other. The facts that rules depend on besides the drafts are read once for all edits of a
request.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from confplane.domain.changes import Node
from confplane.domain.entities import Entity, EntityType
from confplane.domain.errors import ConfplaneError, UnavailableError, UnknownTopicError
from confplane.domain.facets import FacetName, Tree, full_path
from confplane.domain.risks import MIN_INSYNC
from confplane.services.changes.edits import ChangeJob, Draft, EditResult, NoChange, not_attempted
from confplane.services.changes.entity_drafts import EntityDraft, RuleCheck, taken_over
from confplane.services.cooperative_yielding import TimeSlice
from confplane.services.ports.history import Znode
from confplane.services.ports.trail import CHANGE, CLIENTS, MOST_REVERTS, RELOAD, IntentEntity
from confplane.services.reads.config_levels import NOTHING_PLANNED

if TYPE_CHECKING:
    from collections.abc import Iterable
    from uuid import UUID

    from confplane.domain.facets import Rank
    from confplane.services.changes.callers import Caller
    from confplane.services.changes.commit import ChangeRun
    from confplane.services.changes.edits import Edit
    from confplane.services.changes.entity_drafts import AlterRules, DecideEntity, Planned
    from confplane.services.cluster_facet import ClusterFacet
    from confplane.services.ports.cluster_states import LayoutCheck
    from confplane.services.ports.ownerships import Ownerships
    from confplane.services.ports.trail import AuditLog

Drafts = Sequence[EntityDraft]
"""The drafts of the edits of a change, in their order, up to the first that failed."""

_REMADE: Final = (
    "The znode was deleted and created again externally during this change; its external content was overwritten"
)
_Nodes = dict[Znode, Node | UnavailableError | None]


class PreparedEdit(NamedTuple):
    """One edit of a change, ready to be decided."""

    cluster_facet: ClusterFacet
    edit: Edit
    decide: DecideEntity
    rules: AlterRules

    @property
    def rank(self) -> Rank | None:
        """The entity's rank in its facet; None if no check reads the result of this edit."""
        return self.cluster_facet.facet.rank(self.edit.entity)

    def is_measured(self, caller: Caller) -> bool:
        """Return True if a rule about the edit depends on the size of the request."""
        name, entity = self.cluster_facet.name.value, self.edit.entity
        return not caller.is_exempt and self.rules.policies.measures(name, entity, caller.principal, caller.behalf_of)

    def needs_owners(self, caller: Caller) -> bool:
        """Return True if a rule about the edit depends on the owners of keys."""
        name, entity = self.cluster_facet.name.value, self.edit.entity
        return self.rules.policies.asks_for_owners(name, entity, caller.principal, caller.behalf_of)


class RuleFactsReader:
    """Reads the facts of requests. One instance serves all clusters of a process.

    Args:
        audit: Has the changes of the last hour.
        ownerships: The owners as the trail explains them.
    """

    def __init__(self, audit: AuditLog, ownerships: Ownerships) -> None:
        self._audit = audit
        self._ownerships = ownerships

    async def read(self, items: Sequence[PreparedEdit], caller: Caller) -> RuleCheck:
        """Return the check of some edits of a cluster, with the facts that the rules about them depend on.

        Raises:
            UnavailableError: Postgres is unavailable.
        """
        owners = await self._owners([item for item in items if item.needs_owners(caller)], caller)
        measured = any(item.is_measured(caller) for item in items)
        return RuleCheck(caller, await self._altered(items, owners, caller) if measured else frozenset(), owners)

    async def _altered(
        self, items: Sequence[PreparedEdit], owners: Mapping[Znode, Mapping[str, str]], caller: Caller
    ) -> frozenset[tuple[str, Entity]]:
        """Return the facets and entities that edits alter, and those that their author altered in the last hour."""
        time_slice = TimeSlice()
        found = set(caller.altered)
        for item in items:
            if time_slice.due:
                await time_slice.pause()
            if taken_over(item.cluster_facet, item.edit, owners) or await _alters(item):
                found.add((item.cluster_facet.name.value, item.edit.entity))
        with caller.preparing():
            recent = await self._audit.altered(items[0].cluster_facet.store.name, caller.author)
        return frozenset(found | {(facet, Entity.from_id(entity_id)) for facet, entity_id in recent})

    async def _owners(self, items: Sequence[PreparedEdit], caller: Caller) -> Mapping[Znode, Mapping[str, str]]:
        if not items:
            return {}
        # Facets may share a znode.
        znodes = {Znode(item.cluster_facet.tree, item.edit.entity.id) for item in items}
        with caller.preparing():
            states = await self._ownerships.known(items[0].cluster_facet.store.name, list(znodes))
        return {znode: state.ownership.owners for znode, state in states.items()}


async def _alters(item: PreparedEdit) -> bool:
    """Return False if an edit leaves the entity as the mirror has it. An edit that can't be decided counts."""
    try:
        placed = item.cluster_facet.placed()
        draft = await item.decide(placed, placed.get(item.edit.entity.id), NOTHING_PLANNED)
    except ConfplaneError:
        return True
    return bool(draft.diff)


class EntitiesChange:
    """One change of entities of a cluster; decided at each attempt.

    Args:
        items: The edits, at least one, no two of one entity and facet.
        check: Checks the drafts.

    Attributes:
        items: The edits.
    """

    __slots__ = ("_check", "items")

    def __init__(self, items: Sequence[PreparedEdit], check: RuleCheck) -> None:
        self.items = items
        self._check = check

    def job(self, planned: Planned = NOTHING_PLANNED) -> ChangeJob[Drafts]:
        """Return the change to run, given the results of earlier edits of the same request that checks read."""
        # Once for each entity: changes of one entity run in turn, also if they are in different trees.
        paths = list(dict.fromkeys([full_path(Tree.CONFIG, item.edit.entity) for item in self.items]))
        return ChangeJob(partial(self._decide, planned), paths, waits=self._waits)

    @property
    def _waits(self) -> bool:
        """True if the edits need a dry run on a Kafka cluster, or a read of ZooKeeper."""
        return any(
            item.rules.dry_run is not None
            or (item.rules.risks is not None and any(op.key == MIN_INSYNC for op in item.edit.ops))
            for item in self.items
        )

    @property
    def rank(self) -> Rank | None:
        """The rank of the entity, which has one in one facet at most."""
        return next((rank for item in self.items if (rank := item.rank) is not None), None)

    def made(self, drafts: Sequence[EntityDraft]) -> tuple[str, Mapping[str, str]] | None:
        """Return the entity and its resulting map, as later checks read it; None if no check does."""
        for item, draft in zip(self.items, drafts, strict=True):
            if item.rank is not None:
                return item.edit.entity.id, draft.after
        return None

    def results(self, ended: ChangeRun[Drafts] | ConfplaneError) -> list[EditResult]:
        """Return the results of the edits, given the end of the change."""
        if isinstance(ended, ConfplaneError):
            return [EditResult(item.edit, _error_of(ended, item.edit)) for item in self.items]
        drafts, committed = ended.decided, ended.committed
        if ended.error is not None:
            return [
                EditResult(item.edit, ended.error if index == len(drafts) else not_attempted())
                for index, item in enumerate(self.items)
            ]
        if committed is None:
            return [_result(draft, draft.node, ended.revision) for draft in drafts]
        nodes = dict(zip(_by_znode(drafts), committed.nodes, strict=True))
        results = []
        for draft in drafts:
            change_id = ended.change_id if draft.has_effect else None
            remade = draft.has_effect and draft.path in committed.remade
            node = nodes.get(draft.path, draft.node)
            results.append(_result(draft, node, committed.revision, change_id, remade=remade))
        return results

    async def _decide(self, earlier: Planned, *, again: bool) -> Draft[Drafts] | NoChange[Drafts]:
        """Decide one attempt; see :data:`~confplane.services.changes.edits.Decide`."""
        placed, unplaced = self._placed()
        nodes = await self._read(placed, again=again)
        drafts: list[EntityDraft] = []
        planned = dict(earlier)
        quotas: dict[str, Mapping[str, str]] = {}
        time_slice = TimeSlice()
        for item, cluster_facet in zip(self.items, placed, strict=False):
            if time_slice.due:
                await time_slice.pause()
            entity = item.edit.entity
            is_quotas = cluster_facet.name is FacetName.CLIENT_QUOTAS
            try:
                node = nodes[Znode(cluster_facet.tree, entity.id)]
                draft = await self._draft(item, cluster_facet, node, planned)
                draft = await self._check.admit(item.rules, draft, quotas if is_quotas else planned)
            except ConfplaneError as error:
                return self._unchanged(placed[: len(drafts) + 1], nodes, drafts, error)
            if item.rank is not None:
                planned[entity.id] = draft.after
            if is_quotas:
                quotas[entity.id] = draft.after
            drafts.append(draft)
        if unplaced is not None:
            return NoChange(drafts, unplaced)
        drafts, refusal = await self._dry_run(drafts)
        if refusal is not None:
            return self._unchanged(placed[: len(drafts) + 1], nodes, drafts, refusal)
        drafts = _merged(drafts)
        changed = _by_znode(drafts)
        if not changed:
            return self._unchanged(placed, nodes, drafts, None)
        return Draft(
            drafts,
            writes=tuple(first.write() for first, *_ in changed.values()),
            entities=tuple(map(_row, changed.values())),
            answers=() if self._check.caller.run is None else tuple(draft.answer() for draft in drafts),
            layout=_layout(placed),
            kind=_kind(drafts),
            reverts=_reverts(draft for drafts in changed.values() for draft in drafts),
        )

    def _placed(self) -> tuple[list[ClusterFacet], ConfplaneError | None]:
        """Return the facet of each edit with its tree, up to the first that has none now, and the error of that one.

        Each attempt looks for the tree: client configs may have moved since an earlier one.
        """
        places: dict[ClusterFacet, ClusterFacet] = {}
        placed: list[ClusterFacet] = []
        for item in self.items:
            found = places.get(item.cluster_facet)
            if found is None:
                try:
                    found = places[item.cluster_facet] = item.cluster_facet.placed()
                except ConfplaneError as error:
                    return placed, error
            placed.append(found)
        return placed, None

    async def _read(self, placed: Sequence[ClusterFacet], *, again: bool) -> _Nodes:
        """Return the node of each znode; a first attempt is decided on the mirror."""
        entities = [item.edit.entity for item in self.items[: len(placed)]]
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
            found = await placed[0].store.read_many(tree, list(some.values()), self._check.caller.deadline)
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
        return draft

    async def _dry_run(self, drafts: list[EntityDraft]) -> tuple[list[EntityDraft], ConfplaneError | None]:
        """Dry-run drafts on the Kafka cluster; return them with its warnings, up to the first that it would refuse."""

        async def ask(item: PreparedEdit, draft: EntityDraft) -> EntityDraft:
            if item.rules.dry_run is None or not draft.diff:
                return draft
            keys = [difference.key for difference in draft.diff]
            asked = await item.rules.dry_run(draft.edit.entity, draft.after, keys, draft.edit.pointer)
            return replace(draft, warnings=(*draft.warnings, *asked.warnings), topic_id=asked.topic_id)

        if not self._waits:
            return drafts, None
        asked: list[EntityDraft] = []
        for found in await asyncio.gather(*map(ask, self.items, drafts), return_exceptions=True):
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
        drafts: list[EntityDraft],
        error: ConfplaneError | None,
    ) -> NoChange[Drafts]:
        """Return the decision to write nothing, which rests on the nodes of the edits up to the last placed one."""
        seen: dict[Znode, tuple[Tree, Entity, int | None]] = {}
        for cluster_facet, item in zip(placed, self.items, strict=False):
            znode = Znode(cluster_facet.tree, item.edit.entity.id)
            node = nodes[znode]
            if not isinstance(node, UnavailableError):
                seen[znode] = cluster_facet.tree, item.edit.entity, None if node is None else node.version
        return NoChange(drafts, error, tuple(seen.values()), _layout(placed))


def _kind(drafts: Iterable[EntityDraft]) -> str:
    """Return the kind of a change: a reload gives no key another value, and no key another owner."""
    if any(draft.edit.claims or not all(item.is_reload for item in draft.diff) for draft in drafts):
        return CHANGE
    return RELOAD


def _layout(placed: Sequence[ClusterFacet]) -> LayoutCheck | None:
    return next((cluster_facet.layout for cluster_facet in placed if cluster_facet.layout is not None), None)


def _reverts(drafts: Iterable[EntityDraft]) -> tuple[UUID, ...]:
    """Return the changes that drafts revert, each once, the latest :data:`MOST_REVERTS` of them."""
    # The ids begin with the time of their changes.
    return tuple(sorted({each for draft in drafts for each in draft.edit.reverts})[-MOST_REVERTS:])


# ---------------------------------------------------------------- facets that share a znode


def _merged(drafts: list[EntityDraft]) -> list[EntityDraft]:
    """Return drafts, of which those of one znode have the map that all of them together leave."""
    if len({draft.path for draft in drafts}) == len(drafts):
        return drafts
    left: dict[str, dict[str, str]] = {}
    for draft in drafts:
        after = left.setdefault(draft.path, dict(draft.before))
        for item in draft.diff:
            if item.key in draft.after:
                after[item.key] = draft.after[item.key]
            else:
                del after[item.key]
    return [replace(draft, after=left[draft.path]) for draft in drafts]


def _by_znode(drafts: Sequence[EntityDraft]) -> dict[str, list[EntityDraft]]:
    """Return the drafts with an effect, by the paths of their znodes."""
    found: dict[str, list[EntityDraft]] = {}
    for draft in drafts:
        if draft.has_effect:
            found.setdefault(draft.path, []).append(draft)
    return found


def _row(drafts: Sequence[EntityDraft]) -> IntentEntity:
    """Return the row of the trail for the drafts of one znode."""
    rows = [draft.intent() for draft in drafts]
    if len(rows) == 1:
        return rows[0]
    keys, ops = (key for row in rows for key in row.keys), (op for row in rows for op in row.ops)
    return replace(rows[0], facet=CLIENTS, keys=tuple(keys), ops=tuple(ops), claim=_claim(rows))


def _claim(rows: Sequence[IntentEntity]) -> dict[str, Any] | None:
    """Return the claim of rows of one znode: they are of one manifest, which has one owner."""
    claims = [row.claim for row in rows if row.claim is not None]
    return {**claims[0], "keys": [key for claim in claims for key in claim["keys"]]} if claims else None


# ---------------------------------------------------------------- results


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
        requirements=draft.requirements,
    )


def _error_of(error: ConfplaneError, edit: Edit) -> ConfplaneError:
    """Return the error of one edit of a change that ended with an error."""
    if not isinstance(error, UnknownTopicError):
        return error
    # An absent topic: its own error, or that of another edit in its batch.
    if edit.entity.get(EntityType.TOPIC) not in error.topics:
        return not_attempted()
    return UnknownTopicError(error.detail, topics=error.topics, pointer=edit.pointer, outcome=error.outcome)
