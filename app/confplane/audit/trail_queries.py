"""Searches of the trail: newest first, by keyset, with bounded work for any filters and any size of the tables.

A search runs in rounds. Each round reads the next window of change ids from the index that fits the filters best, then
reads those changes and applies all filters. (One statement with all filters would depend on the planner's estimates: a
wrong estimate scans a hundred million rows.) After a maximum number of ids the page ends, even if it is not full.

The time of a change is the time of its commit by ZooKeeper or, without a commit, the time at which Postgres recorded
its intent. The clocks of the processes that made the change do not count. The window of a time span has the ids near
the span, and the changes in the span whose ids are far from their times; these have indexes of their own.

For a caller that may describe only some entities, these are one more filter: hidden changes are skipped within the same
bounds.
"""

from __future__ import annotations

import math
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any, Final
from uuid import UUID

from confplane.audit import trail_statements, visible
from confplane.audit.database import from_row
from confplane.audit.tables import FAR_S
from confplane.domain.facets import FacetName
from confplane.domain.texts import storable
from confplane.services.ports.pages import PAGE_BYTES
from confplane.services.ports.trail import CLIENTS, AuditRecord, Intent, IntentEntity, ObservedRange, Outcome

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from sqlalchemy import Row
    from sqlalchemy.ext.asyncio import AsyncConnection

    from confplane.domain.access.ranges import NameRanges
    from confplane.services.ports.trail import AuditQuery

_FACETS: Final = {CLIENTS: (FacetName.CLIENT_QUOTAS.value, FacetName.CLIENT_CONFIGS.value)}
"""The facets of a row that has several."""
_LARGEST_WINDOW: Final = 4_096
MAX_EXAMINED: Final = 20_000
"""Maximum number of change ids that one page may read in rounds."""
OPEN_WINDOW: Final = 100_000
"""Maximum number of change ids that a search for open changes may read, each with an index lookup."""

_COMPRESSED: Final = 2_000
"""The size of a row, in bytes, from which Postgres compresses it."""
_COMPRESSION: Final = 20
"""The factor from a compressed row to its assumed size; the greatest possible factor is a hundred."""
_BATCH_BYTES: Final = 1024 * 1024
"""Expected bytes of the changes that one statement reads."""

_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)
_MILLISECOND: Final = timedelta(milliseconds=1)
TIME_SHIFT: Final = 80
"""Bits of a change id below its 48 bits of milliseconds."""


async def search(connection: AsyncConnection, query: AuditQuery) -> tuple[list[AuditRecord], UUID | None]:
    """Return a page and the cursor of the next one, or None at the end."""
    texts = (query.cluster, query.entity_id, query.key, query.principal, query.request_id)
    if not all(storable(given) for given in texts if given):
        return [], None
    if query.within is not None and not query.within:
        return [], None
    found: list[AuditRecord] = []
    before = query.before
    window = query.page_size + 1
    examined = 0
    room = PAGE_BYTES
    while True:
        ids, floor = await _candidates(connection, query, before, window)
        if ids:
            fits = await fitting(connection, query, ids, limit=query.page_size + 1 - len(found))
            more = await read_until(connection, query, fits[: query.page_size - len(found)], room, first=not found)
            found += [record for record, _ in more]
            room -= sum(size for _, size in more)
            if len(more) < len(fits):
                return found, found[-1].intent.change_id
        examined += window
        if floor is None or examined >= MAX_EXAMINED or query.outcome == "open":
            return found, floor
        before = floor
        window = min(window * 4, _LARGEST_WINDOW)


async def count(connection: AsyncConnection, query: AuditQuery, most: int) -> tuple[int, UUID | None]:
    """Count changes in the next window of ids, up to one above ``most``; return the id to continue from, or None."""
    if query.within is not None and not query.within:
        return 0, None
    texts = (query.cluster, query.entity_id, query.key, query.principal, query.request_id)
    if not all(storable(given) for given in texts if given):
        return 0, None
    ids, floor = await _candidates(connection, query, query.before, _LARGEST_WINDOW)
    found = await fitting(connection, query, ids, limit=most + 1) if ids else []
    return len(found), floor


async def get(
    connection: AsyncConnection, cluster: str, change_id: UUID, within: NameRanges | None
) -> AuditRecord | None:
    """Return one change."""
    records = await _read(connection, cluster, [change_id], within)
    if not records or (within is not None and not records[0][0].intent.entities):
        return None
    return records[0][0]


async def altered(connection: AsyncConnection, cluster: str, author: str) -> list[tuple[str, str]]:
    """Return the facets and ids of the entities that an author altered in the last hour, each once."""
    rows = await connection.execute(trail_statements.ALTERED, {"cluster": cluster, "author": author})
    return [(facet, row.entity_id) for row in rows for facet in _FACETS.get(row.facet, (row.facet,))]


def created_at(change_id: UUID) -> datetime:
    """Return the time in a change id."""
    return _EPOCH + (change_id.int >> TIME_SHIFT) * _MILLISECOND


def first_id_at(moment: datetime) -> UUID:
    """Return the lowest change id of a time: ids below it are earlier."""
    milliseconds = math.ceil((moment - _EPOCH) / _MILLISECOND)
    return UUID(int=min(max(milliseconds, 0), (1 << 48) - 1) << TIME_SHIFT)


async def _candidates(
    connection: AsyncConnection, query: AuditQuery, before: UUID | None, window: int
) -> tuple[list[UUID], UUID | None]:
    """Return the next change ids to read, and the id to continue from (None: these are the last)."""
    given = _filters(query)
    by = next(name for name in trail_statements.INDEXED if name in given)
    if before is not None:
        given["before"] = before
    span = trail_statements.SPAN.intersection(given)
    if query.since is not None:
        given["lowest"] = first_id_at(_shifted(query.since, -FAR_S))
    if query.until is not None:
        given["highest"] = first_id_at(_shifted(query.until, FAR_S))
    if query.outcome == "open":
        statement = trail_statements.open_window(by, span)
        rows = await connection.execute(statement, given | {"size": OPEN_WINDOW, "window": window})
        ids, size, floor = rows.one()
        if len(ids) == window:
            return list(ids), ids[-1]
        return list(ids), floor if size == OPEN_WINDOW else None
    ids = list((await connection.scalars(trail_statements.window(by, span), given | {"size": window})).all())
    return ids, ids[-1] if len(ids) == window else None


def _filters(query: AuditQuery) -> dict[str, Any]:
    """Return the parameters of the filters that are given. Their names select the statement."""
    names = ("cluster", "entity_id", "key", "principal", "request_id", "since", "until")
    given: dict[str, Any] = {name: getattr(query, name) for name in names}
    if query.within is not None:
        given |= visible.parameters(query.within)
    if query.outcome is not None:
        given[query.outcome] = True
    return {name: value for name, value in given.items() if value is not None}


def _shifted(moment: datetime, seconds: float) -> datetime:
    try:
        return moment + timedelta(seconds=seconds)
    except OverflowError:
        return moment


async def fitting(
    connection: AsyncConnection, query: AuditQuery, ids: list[UUID], *, limit: int
) -> list[tuple[UUID, int]]:
    """Return the given changes that match a query, newest first, each with its size on Postgres's disk in bytes.

    Reading these sizes costs Postgres nothing. Large values are compressed on disk.
    """
    given = _filters(query)
    rows = await connection.execute(trail_statements.fitting(frozenset(given)), given | {"ids": ids, "limit": limit})
    return [(row.change_id, int(row.stored)) for row in rows]


async def read_until(
    connection: AsyncConnection, query: AuditQuery, fitting: Sequence[tuple[UUID, int]], room: int, *, first: bool
) -> list[tuple[AuditRecord, int]]:
    """Read changes in the given order, a few at a time, until they fill the room in bytes.

    The change that exceeds the room is left out, unless it is the first.
    """
    read: list[tuple[AuditRecord, int]] = []
    place = 0
    while place < len(fitting):
        batch, expected = [fitting[place][0]], _expected(fitting[place][1])
        for change_id, stored in fitting[place + 1 :]:
            expected += _expected(stored)
            if expected > _BATCH_BYTES:
                break
            batch.append(change_id)
        records = {
            record.intent.change_id: (record, size)
            for record, size in await _read(connection, query.cluster, batch, query.within)
        }
        for record, size in (records[change_id] for change_id in batch if change_id in records):
            room -= size
            if room < 0 and (read or not first):
                return read
            read.append((record, size))
        place += len(batch)
    return read


def _expected(stored: int) -> int:
    """Return the expected size of a change in bytes, from its size on disk."""
    return stored if stored < _COMPRESSED else stored * _COMPRESSION


async def _read(
    connection: AsyncConnection, cluster: str, ids: list[UUID], within: NameRanges | None
) -> list[tuple[AuditRecord, int]]:
    """Return changes, newest first, with their entities in the ranges; each with its size as text in bytes."""
    changes, changed_entities = trail_statements.whole(restricted=within is not None)
    of_caller = {} if within is None else visible.parameters(within)
    rows = (await connection.execute(changes, {"cluster": cluster, "ids": ids, **of_caller})).all()
    if not rows:
        return []
    attempts = {row.change_id: row.attempt for row in rows}
    entities: dict[UUID, list[IntentEntity]] = {change_id: [] for change_id in attempts}
    sizes: dict[UUID, int] = dict.fromkeys(attempts, trail_statements.ROW_BYTES)
    found = await connection.execute(changed_entities, {"ids": list(attempts), **of_caller})
    for row in found:
        if row.attempt == attempts[row.change_id]:
            entity = from_row(IntentEntity, row, keys=tuple(row.keys), ops=tuple(row.ops), claim=None)
            entities[row.change_id].append(entity)
            sizes[row.change_id] += row.size
    return [(_record(row, entities[row.change_id]), sizes[row.change_id]) for row in rows]


def _record(row: Row[Any], entities: Iterable[IntentEntity]) -> AuditRecord:
    intent = from_row(
        Intent,
        row,
        entities=tuple(entities),
        observed=None if row.observed is None else ObservedRange(**row.observed),
        reverts=tuple(row.reverts or ()),
    )
    outcome = None
    if row.committed is not None:
        outcome = from_row(
            Outcome,
            row,
            attempt=row.final_attempt,
            time_ms=None if row.time is None else (row.time - _EPOCH) // _MILLISECOND,
            error=None if row.partial else row.error,
            remade=row.remade or {},
        )
    created = created_at(row.change_id)
    return AuditRecord(intent, created, outcome, row.concluded_at, row.writes, row.partial)
