"""History: the changes of an entity, its content at a past time, and that of whole lists.

If the znode was not written since the given time, its content comes from the mirror, otherwise from the first change
after that time (services/reads/past.py). So the cost of a read depends on the number of changes since.
"""

from __future__ import annotations

import re
from bisect import bisect_right
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Final, NamedTuple
from uuid import UUID

from confplane.domain.access.operations import Operation
from confplane.domain.changes import stored
from confplane.domain.entities import Entity
from confplane.domain.errors import CorruptZnodeError
from confplane.domain.etags import digest
from confplane.domain.facets import Tree, full_path, shown_value
from confplane.services.ports.history import Znode
from confplane.services.ports.pages import PAGE_BYTES
from confplane.services.ports.trail import CLIENTS, END_OF_HISTORY, WHOLE_OPS, HistoryPlace, HistoryPosition
from confplane.services.reads.describe import (
    SLICE,
    ListQuery,
    decode_token,
    encode_token,
    nothing_declared,
    selected,
    span,
)
from confplane.services.reads.layouts import Layouts, layouts_of
from confplane.services.reads.past import PastState, current, past_of
from confplane.services.reads.point_in_time import (
    PATIENCE_S,
    PointInTime,
    PointInTimeResolver,
    unrecorded,
    unrecorded_error,
)

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence
    from datetime import datetime

    from confplane.domain.facets import JsonValue
    from confplane.services.cluster_facet import ClusterFacet
    from confplane.services.ports.history import TrailHistory
    from confplane.services.ports.trail import AuditLog, AuditRecord, IntentEntity
    from confplane.services.reads.describe import DescribeService

_AT_ONCE: Final = 100
"""Znodes of a list whose changes one statement reads."""
_MAX_VISITED: Final = 2_000
"""Entities after which a page of a list ends: up to a few seconds on a busy Postgres, if all were changed since."""
_ROUNDS: Final = 5
"""Pages of the trail that one page of a history may read; the other facets' changes are left out."""
_OF_EARLIER_RELEASES: Final = re.compile("[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}")
_OF_SEVERAL: Final = ("node", CLIENTS)
"""The facets of changes that may be of several facets."""


@dataclass(frozen=True, slots=True)
class PastEntity:
    """The content of an entity in a facet at a moment."""

    entity_id: str
    revision: int
    declared: Mapping[str, JsonValue]
    """Secrets are None; keys of unknown values are left out."""
    not_kept: tuple[str, ...]
    """Keys that were set to values that the trail does not keep: secrets, and values that nobody saw."""
    exact: bool = True
    low: int | None = None
    high: int | None = None
    """The bounds of a run of external writes; see :class:`~confplane.services.reads.past.PastState`."""

    @property
    def etag(self) -> str:
        """An ETag of the content and of its exactness."""
        known = {f"at {self.revision}": f"{self.exact} {self.low} {self.high} {self.not_kept}"}
        return digest({**known, **self.declared})


@dataclass(frozen=True, slots=True)
class PastPage:
    """One page of a list at a moment, ordered by id. It may be empty and yet have a token."""

    revision: int
    items: list[PastEntity]
    next_page_token: str | None
    skipped: list[str]
    visited: int
    """The number of entities that were read for the page, whether or not they are in it."""


class _Candidates(NamedTuple):
    """Ids that may be in a list, in order."""

    ids: list[str]
    visited: list[str]
    """The candidates, and the ids that the filters leave out."""
    end: str | None
    """The id from which to continue; None: these are the last."""


@dataclass(frozen=True, slots=True)
class ValueChange:
    """One key's values before and after, as JSON answers them; None is absent, or not kept."""

    key: str
    before: JsonValue
    after: JsonValue
    not_kept: bool = False
    """True if a value is not kept: a secret's, or one that nobody saw."""


@dataclass(frozen=True, slots=True)
class HistoryEntry:
    """One change of an entity in a facet."""

    record: AuditRecord
    revision: int
    time_ms: int
    changes: tuple[ValueChange, ...]
    moved: bool = False
    """True for a move to another layout, or the removal of unread configs from one."""


@dataclass(frozen=True, slots=True)
class EntityDiff:
    """An entity at two moments, and the keys that differ."""

    before: PastEntity
    after: PastEntity
    changes: tuple[ValueChange, ...]


class HistoryService:
    """Reads the past. One instance serves all clusters of a process.

    Every coroutine raises ``UnavailableError`` if a store is unavailable.

    Args:
        trail: The trail as a history of znodes.
        audit: The trail as changes.
        describe: Selects the entities of lists.
        patience_s: Maximum number of seconds that a time waits for external writes to be recorded.
        max_visited: The number of entities after which a page of a list ends.
    """

    def __init__(
        self,
        trail: TrailHistory,
        audit: AuditLog,
        describe: DescribeService,
        *,
        patience_s: float = PATIENCE_S,
        max_visited: int = _MAX_VISITED,
    ) -> None:
        self._trail = trail
        self._audit = audit
        self._describe = describe
        self._max_visited = max_visited
        self._moments = PointInTimeResolver(trail, patience_s=patience_s)

    # ------------------------------------------------------------ one entity

    async def entity(
        self, cluster_facet: ClusterFacet, entity: Entity, at: int | datetime, deadline: float, *, name: str = "at"
    ) -> PastEntity:
        """Return the content of an entity at a moment; nothing declared if it had none.

        Args:
            cluster_facet: The facet, as the caller may read it.
            entity: The entity.
            at: The revision or the time.
            deadline: The deadline on the clock of ``time.monotonic()``.
            name: The name of the parameter, for errors.

        Raises:
            ForbiddenError: The caller may not describe the entity.
            InvalidRequestError: The facet has no entities of this type; or as :meth:`PointInTimeResolver.find`.
            BeforeHistoryError: As :meth:`PointInTimeResolver.find`.
            CorruptZnodeError: The znode could not be read then.
        """
        _check(cluster_facet, entity)
        moment = await self._moments.find(cluster_facet.store, at, deadline, name=name)
        trees = (await layouts_of(self._audit, cluster_facet)).at(moment.revision)
        [past] = await self._pasts(cluster_facet.whole, trees, [entity.id], moment)
        if isinstance(past, CorruptZnodeError):
            raise past
        return past

    async def existing(
        self, cluster_facet: ClusterFacet, entity: Entity, at: int | datetime, deadline: float
    ) -> PastEntity:
        """Return the content of an entity at a moment, as :meth:`entity`.

        Raises:
            NothingSetError: The entity declared nothing in the facet then.
        """
        found = await self.entity(cluster_facet, entity, at, deadline)
        if not (found.declared or found.not_kept):
            raise nothing_declared(cluster_facet, entity)
        return found

    async def diff(
        self,
        cluster_facet: ClusterFacet,
        entity: Entity,
        before: int | datetime,
        after: int | datetime,
        deadline: float,
    ) -> EntityDiff:
        """Return an entity at two moments, and the keys that differ. Raises the errors of :meth:`entity`."""
        first = await self.entity(cluster_facet, entity, before, deadline, name="from")
        second = await self.entity(cluster_facet, entity, after, deadline, name="to")
        changes = []
        for key in sorted({*first.declared, *first.not_kept, *second.declared, *second.not_kept}):
            old, new = first.declared.get(key), second.declared.get(key)
            not_kept = key in first.not_kept or key in second.not_kept
            if not_kept or old != new:
                changes.append(ValueChange(key, old, new, not_kept))
        return EntityDiff(first, second, tuple(changes))

    # ------------------------------------------------------------ lists

    async def page(
        self, cluster_facet: ClusterFacet, query: ListQuery, at: int | datetime, deadline: float
    ) -> PastPage:
        """Return one page of a facet's entities at a moment. All pages of a list are of the first page's moment.

        Raises:
            InvalidRequestError: The page token is not valid; or as :meth:`PointInTimeResolver.find`.
            InvalidEntityIdError: ``id`` is not an entity id.
            ForbiddenError: ``id`` names an entity that the caller may not describe.
            BeforeHistoryError: As :meth:`PointInTimeResolver.find`.
        """
        after: str | None = None
        if query.id is not None:
            _check_visible(cluster_facet, Entity.from_id(query.id, pointer="id"))
        if query.page_token is not None:
            at, after = _decoded(query.page_token)
        moment = await self._moments.find(cluster_facet.store, at, deadline)
        trees = (await layouts_of(self._audit, cluster_facet)).at(moment.revision)
        items: list[PastEntity] = []
        skipped: list[str] = []
        size = visited = 0
        visible = cluster_facet.visible
        wanted = min(query.page_size + 1, SLICE)
        while True:
            ids, walked, end = await self._candidates(
                cluster_facet, query, trees, moment, after=after, size=wanted, deadline=deadline
            )
            for start in range(0, len(ids), _AT_ONCE):
                some = ids[start : start + _AT_ONCE]
                for past in await self._pasts(cluster_facet.whole, trees, some, moment):
                    if isinstance(past, CorruptZnodeError):
                        skipped.append(past.path)
                        continue
                    keys = {*past.declared, *past.not_kept}
                    if not (keys if query.key is None else query.key in keys):
                        continue
                    size += len(past.entity_id) + sum(len(key) + len(str(past.declared.get(key))) for key in keys)
                    if len(items) == query.page_size or (items and size > PAGE_BYTES):
                        last = items[-1].entity_id
                        visited += bisect_right(walked, last)
                        return PastPage(moment.revision, items, _token(moment, last), skipped, visited)
                    items.append(past)
            visited += len(walked)
            if end is None or (visited >= self._max_visited and (visible is None or end in visible)):
                token = None if end is None else _token(moment, end)
                return PastPage(moment.revision, items, token, skipped, visited)
            after, wanted = end, SLICE

    async def _candidates(
        self,
        cluster_facet: ClusterFacet,
        query: ListQuery,
        trees: Sequence[Tree],
        moment: PointInTime,
        *,
        after: str | None,
        size: int,
        deadline: float,
    ) -> _Candidates:
        """Return the next ids that may be in a list, by the next ``size`` of the mirror and of the trail.

        These are the entities with keys now, and the entities that were changed since.

        Raises:
            UnavailableError: A store is unavailable, or external writes are not recorded far enough.
        """
        store, visible = cluster_facet.store, cluster_facet.visible
        within = span(query) if visible is None else span(query) & visible
        ends: list[str] = []
        found: set[str] = set()
        walked: set[str] = set()
        for tree in trees:
            ids: list[str] = []
            async for node in self._describe.candidates(_in_tree(cluster_facet, tree), query, after):
                ids.append(node.id)
                if len(ids) == size:
                    ends.append(node.id)
                    break
            found.update(ids)
        # A write that the walk met before its row is in the trail, is in the journal from here on.
        await store.catch_up(deadline)
        pending = unrecorded(store, moment.recorded)
        if pending is None:
            raise unrecorded_error(store, moment.recorded)
        for tree in trees if within else ():
            recorded = await self._trail.walked(
                store.name, tree, moment.revision, after=after, size=size, within=within
            )
            if len(recorded) == size:
                # A hidden entity only if there is no other, because the end becomes a page token.
                ends.append(max((each for each in recorded if each in within), default=max(recorded)))
            walked.update(recorded)
            found.update(entity_id for entity_id, changed in recorded.items() if changed)
        found.update(
            znode.entity_id
            for znode in pending
            if znode.tree in trees and (after is None or znode.entity_id > after) and znode.entity_id in within
        )
        end = min(ends, default=None)
        of_facet = cluster_facet.facet.entity_types
        ids = sorted(each for each in found if end is None or each <= end)
        entities = ((each, Entity.from_id(each)) for each in ids)
        return _Candidates(
            [each for each, entity in entities if of_facet.issuperset(entity.types) and selected(entity, query)],
            sorted(each for each in walked | found if end is None or each <= end),
            end,
        )

    # ------------------------------------------------------------ the states of znodes

    async def _pasts(
        self, cluster_facet: ClusterFacet, trees: Sequence[Tree], ids: Sequence[str], moment: PointInTime
    ) -> list[PastEntity | CorruptZnodeError]:
        """Return the content of entities at a moment, in their order, or the reason why it could not be read."""
        store, revision = cluster_facet.store, moment.revision
        znodes = [Znode(tree, entity_id) for entity_id in ids for tree in trees]
        # The mirror first: whatever it has of later writes, the trail gets afterwards.
        nodes = {znode: store.get(*znode) for znode in znodes}
        asked = [znode for znode, node in nodes.items() if node is None or moment.precedes(node)]
        around = dict(zip(asked, await self._trail.around(store.name, asked, revision), strict=True)) if asked else {}
        pasts: dict[Znode, PastState] = {}
        for znode, node in nodes.items():
            content = cluster_facet.redact(znode.tree, znode.entity_id, stored(node))
            if node is not None and not moment.precedes(node):
                pasts[znode] = current(node, content)
            else:
                pasts[znode] = past_of(node, content, around[znode], moment.since)
        return [
            _declared(
                cluster_facet,
                Entity.from_id(entity_id),
                revision,
                [(tree, pasts[Znode(tree, entity_id)]) for tree in trees],
            )
            for entity_id in ids
        ]

    # ------------------------------------------------------------ changes

    async def changes(
        self, cluster_facet: ClusterFacet, entity: Entity, *, page_size: int, page_token: str | None
    ) -> tuple[list[HistoryEntry], str | None]:
        """Return a page of an entity's committed changes in a facet, the last one first, and the next page's token.

        They are sorted by revision. A page may be short and yet have a token: its work is bounded.

        Raises:
            ForbiddenError: The caller may not describe the entity.
            InvalidRequestError: The facet has no entities of this type, or the page token is not valid.
            UnavailableError: Postgres is unavailable.
        """
        _check(cluster_facet, entity)
        position = None if page_token is None else _history_position(page_token)
        layouts = await layouts_of(self._audit, cluster_facet)
        items: list[HistoryEntry] = []
        for _ in range(_ROUNDS):
            records, position = await self._audit.history(
                cluster_facet.store.name, entity.id, page_size=page_size - len(items), after=position
            )
            items += [item for record in records if (item := _item(cluster_facet, entity, record, layouts)) is not None]
            if position is None or len(items) >= page_size:
                break
        return items, None if position is None else _history_token(position)


def _check(cluster_facet: ClusterFacet, entity: Entity) -> None:
    _check_visible(cluster_facet, entity)
    cluster_facet.facet.check_entity(entity)


def _check_visible(cluster_facet: ClusterFacet, entity: Entity) -> None:
    if cluster_facet.access is not None:
        cluster_facet.access.require(cluster_facet.store.name, Operation.DESCRIBE_CONFIGS, entity.id)


def _in_tree(cluster_facet: ClusterFacet, tree: Tree) -> ClusterFacet:
    """Return a cluster facet whose keys are in a given tree, with the same bounds."""
    whole = replace(cluster_facet.whole, root=tree, laid_out=False)
    return whole if cluster_facet.access is None else whole.visible_to(cluster_facet.access)


def _declared(
    cluster_facet: ClusterFacet, entity: Entity, revision: int, sides: Sequence[tuple[Tree, PastState]]
) -> PastEntity | CorruptZnodeError:
    """Return what an entity declared, by its znodes in the trees that were read then."""
    owns = cluster_facet.facet.owns
    tree, past = next(
        (each for each in sides if each[1].defect is not None or any(owns(entity, key) for key in each[1].content)),
        sides[0],
    )
    if past.defect is not None:
        return CorruptZnodeError(full_path(tree, entity), past.defect)
    declared: dict[str, JsonValue] = {}
    not_kept: list[str] = []
    for key in sorted(past.content):
        if not owns(entity, key):
            continue
        value = past.content[key]
        if value is None:
            not_kept.append(key)
            if cluster_facet.facet.is_secret(entity, key):
                declared[key] = None
            continue
        try:
            declared[key] = cluster_facet.facet.decode(entity, key, value)
        except ValueError as error:
            return CorruptZnodeError(full_path(tree, entity), f"holds a value that can't be read: {error}")
    # A run in the one tree may have hidden a state of the other.
    vague = next((side for _, side in sides if not side.exact), past)
    return PastEntity(entity.id, revision, declared, tuple(not_kept), vague.exact, vague.low, vague.high)


def _item(cluster_facet: ClusterFacet, entity: Entity, record: AuditRecord, layouts: Layouts) -> HistoryEntry | None:
    """Return a change of an entity in a facet; None for a change of only other facets."""
    outcome = record.outcome
    if outcome is None or outcome.revision is None or outcome.time_ms is None:
        return None
    when = outcome.revision, outcome.time_ms
    facet = cluster_facet.name.value
    rows = [row for row in record.intent.entities if row.entity_id == entity.id and row.facet in {facet, *_OF_SEVERAL}]
    if any(op.get("op") in WHOLE_OPS for row in rows for op in row.ops):
        return HistoryEntry(record, *when, (), moved=True)
    trees = layouts.at(outcome.revision, outcome.incarnation)
    read = {full_path(tree, entity) for tree in trees}
    changes = tuple(change for row in rows if row.path in read for change in _key_changes(cluster_facet, entity, row))
    return HistoryEntry(record, *when, changes) if changes else None


def _key_changes(cluster_facet: ClusterFacet, entity: Entity, row: IntentEntity) -> Iterator[ValueChange]:
    for key in row.keys:
        if cluster_facet.facet.owns(entity, key):
            not_kept = any(key in side and side[key] is None for side in (row.before, row.after))
            before, after = (
                shown_value(cluster_facet.facet, entity, key, side.get(key)) for side in (row.before, row.after)
            )
            yield ValueChange(key, before, after, not_kept)


def _token(moment: PointInTime, entity_id: str) -> str:
    """Return the token of the page after an id."""
    return encode_token(f"{moment.revision}@{entity_id}")


def _decoded(token: str) -> tuple[int, str]:
    return decode_token(token, _position)


def _position(text: str) -> tuple[int, str]:
    """Return the revision and the id of a page token's text.

    Raises:
        ValueError: The text is no such token's.
    """
    revision, _, entity_id = text.partition("@")
    if not (revision.isascii() and revision.isdigit()) or Entity.from_id(entity_id).id != entity_id:
        raise ValueError(text)
    return int(revision), entity_id


def _history_token(position: HistoryPosition) -> str:
    return encode_token("@".join(map(str, (*position.place, position.ceiling))))


def _history_position(token: str) -> HistoryPosition:
    if _OF_EARLIER_RELEASES.fullmatch(token):
        # Such histories were sorted by change id: the next page has lower ids.
        return HistoryPosition(END_OF_HISTORY, UUID(int=max(UUID(token).int - 1, 0)))
    return decode_token(token, _parsed_position)


def _parsed_position(text: str) -> HistoryPosition:
    """Return the position of a page token's text.

    Raises:
        ValueError: The text is not that of a position.
    """
    incarnation, revision, change_id, ceiling = text.split("@")
    position = HistoryPosition(HistoryPlace(int(incarnation), int(revision), UUID(change_id)), UUID(ceiling))
    if any(not 0 <= given <= most for given, most in zip(position.place[:2], END_OF_HISTORY[:2], strict=True)):
        raise ValueError(text)
    return position
