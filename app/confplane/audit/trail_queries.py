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

from sqlalchemy import Select, Text, Uuid, and_, any_, bindparam, cast, func, literal, select, union
from sqlalchemy.dialects.postgresql import ARRAY

from confplane.audit import visible
from confplane.audit.tables import FAR_INTENT, FAR_OUTCOME, FAR_S, change_keys, intent_entities, intents, outcomes
from confplane.domain.texts import storable
from confplane.services.ports.pages import PAGE_BYTES
from confplane.services.ports.trail import AuditRecord, Intent, IntentEntity, ObservedRange, Outcome

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from sqlalchemy import Column, ColumnElement, FromClause, Row, RowMapping, Table, TextClause
    from sqlalchemy.ext.asyncio import AsyncConnection

    from confplane.domain.access.ranges import NameRanges
    from confplane.services.ports.trail import AuditQuery

_LARGEST_WINDOW: Final = 4_096
MAX_EXAMINED: Final = 20_000
"""Maximum number of change ids that one page may read in rounds."""
OPEN_WINDOW: Final = 100_000
"""Maximum number of change ids that a search for open changes may read, each with an index lookup."""

_LARGE: Final = tuple(intent_entities.c["entity_id", "path", "ops", "before", "after"])
"""Columns of unlimited size."""
_ENTITY_ID: Final = "intent_entities.entity_id"
_ROW_BYTES: Final = 500
"""Bytes of all other columns of a change, or of an entity in a change."""
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
    if query.outcome == "open":
        return await _open_candidates(connection, query, before, window)
    statement = _window(query, before, window)
    ids = list((await connection.scalars(statement)).all())
    return ids, ids[-1] if len(ids) == window else None


async def _open_candidates(
    connection: AsyncConnection, query: AuditQuery, before: UUID | None, window: int
) -> tuple[list[UUID], UUID | None]:
    # Open changes are few and may be anywhere: a large window is searched at once for ids without an outcome.
    wide = _window(query, before, OPEN_WINDOW).cte("wide")
    # OFFSET 0 keeps this an index lookup for each id; as a join it may read the whole table of outcomes.
    settled = select(outcomes.c.change_id).where(outcomes.c.change_id == wide.c.change_id).offset(0).exists()
    unsettled = select(wide.c.change_id).where(~settled).order_by(wide.c.change_id.desc()).limit(window)
    lowest = select(wide.c.change_id).order_by(wide.c.change_id).limit(1)
    statement = select(
        func.array(unsettled.scalar_subquery()),
        select(func.count()).select_from(wide).scalar_subquery(),
        lowest.scalar_subquery(),
    )
    ids, size, floor = (await connection.execute(statement)).one()
    if len(ids) == window:
        return list(ids), ids[-1]
    return list(ids), floor if size == OPEN_WINDOW else None


def _window(query: AuditQuery, before: UUID | None, size: int) -> Select[UUID]:
    """Select the next ids from the index that fits the filters best."""
    source: Table = intents
    conditions: list[ColumnElement[bool]] = []
    if query.entity_id is not None:
        source = intent_entities
        conditions = [source.c.entity_id == query.entity_id]
    elif query.key is not None:
        source = change_keys
        conditions = [source.c.key == query.key]
    elif query.request_id is not None:
        conditions = [source.c.request_id == query.request_id]
    elif query.outcome == "rejected":
        source = outcomes
        conditions = [~source.c.committed]
    elif query.principal is not None:
        conditions = [source.c.principal == query.principal]
    conditions.append(source.c.cluster == query.cluster)
    if before is not None:
        conditions.append(source.c.change_id < before)
    if query.since is None and query.until is None:
        return _newest(source, conditions, size)
    if query.since is not None:
        conditions.append(source.c.change_id >= first_id_at(_shifted(query.since, -FAR_S)))
    if query.until is not None:
        conditions.append(source.c.change_id <= first_id_at(_shifted(query.until, FAR_S)))
    either = union(
        *(
            select(part.subquery().c.change_id)
            for part in (
                _newest(source, conditions, size),
                _far_ones(query, before, size, intents, intents.c.recorded_at, FAR_INTENT),
                _far_ones(query, before, size, outcomes, outcomes.c.time, FAR_OUTCOME),
            )
        )
    ).subquery()
    return select(either.c.change_id).order_by(either.c.change_id.desc()).limit(size)


def _newest(source: FromClause, conditions: Iterable[ColumnElement[bool]], size: int) -> Select[UUID]:
    return select(source.c.change_id).where(*conditions).distinct().order_by(source.c.change_id.desc()).limit(size)


def _far_ones(
    query: AuditQuery, before: UUID | None, size: int, source: Table, moment: Column[Any], far: TextClause
) -> Select[UUID]:
    """Select the next ids of the changes in the span of time whose ids are far from it."""
    conditions = [source.c.cluster == query.cluster, *_during(query, moment)]
    if before is not None:
        conditions.append(source.c.change_id < before)
    # OFFSET 0 makes Postgres read them by their own index; if the planner sees the order, it may scan all ids.
    found = select(source.c.change_id).where(far, *conditions).offset(0).subquery()
    return _newest(found, [], size)


def _during(query: AuditQuery, moment: ColumnElement[Any]) -> list[ColumnElement[bool]]:
    conditions = []
    if query.since is not None:
        conditions.append(moment >= query.since)
    if query.until is not None:
        conditions.append(moment < query.until)
    return conditions


def _shifted(moment: datetime, seconds: float) -> datetime:
    try:
        return moment + timedelta(seconds=seconds)
    except OverflowError:
        return moment


def _latest() -> Select[Any]:
    """Select the last attempts of the changes ``:ids``, each with its outcome."""
    attempts = intents.alias("attempts")
    last = select(func.max(attempts.c.attempt)).where(attempts.c.change_id == intents.c.change_id).scalar_subquery()
    return (
        select(
            intents,
            outcomes.c.attempt.label("final_attempt"),
            *outcomes.c["committed", "revision", "time", "versions", "error_code", "error", "remade", "incarnation"],
            outcomes.c.recorded_at.label("concluded_at"),
        )
        .outerjoin_from(intents, outcomes, intents.c.change_id == outcomes.c.change_id)
        .where(intents.c.change_id == any_(bindparam("ids", type_=ARRAY(Uuid))), intents.c.attempt == last)
    )


async def fitting(
    connection: AsyncConnection, query: AuditQuery, ids: list[UUID], *, limit: int
) -> list[tuple[UUID, int]]:
    """Return the given changes that match a query, newest first, each with its size on Postgres's disk in bytes.

    Reading these sizes costs Postgres nothing. Large values are compressed on disk.
    """
    latest = _latest().subquery("latest")
    stored = func.sum(sum((func.pg_column_size(column) for column in _LARGE), start=literal(0)))
    of_latest = and_(intent_entities.c.change_id == latest.c.change_id, intent_entities.c.attempt == latest.c.attempt)
    size = select(func.coalesce(stored, 0)).where(of_latest).scalar_subquery()
    versions = func.coalesce(func.pg_column_size(latest.c.versions), 0)
    statement = select(latest.c.change_id, (size + versions).label("stored")).where(latest.c.cluster == query.cluster)
    if query.principal is not None:
        statement = statement.where(latest.c.principal == query.principal)
    if query.request_id is not None:
        statement = statement.where(latest.c.request_id == query.request_id)
    statement = statement.where(*_during(query, func.coalesce(latest.c.time, latest.c.recorded_at)))
    if query.outcome == "open":
        statement = statement.where(latest.c.committed.is_(None))
    elif query.outcome is not None:
        statement = statement.where(latest.c.committed == (query.outcome == "committed"))
    entity_conditions: list[ColumnElement[bool] | TextClause] = []
    if query.entity_id is not None:
        entity_conditions.append(intent_entities.c.entity_id == query.entity_id)
    if query.key is not None:
        entity_conditions.append(literal(query.key) == any_(intent_entities.c["keys"]))
    if query.within is not None:
        # In one condition with the other filters: a filter never reveals anything about a hidden entity of the change.
        entity_conditions.append(visible.clause(_ENTITY_ID, query.within))
    if entity_conditions:
        of_this = and_(
            intent_entities.c.change_id == latest.c.change_id,
            intent_entities.c.attempt == latest.c.attempt,
        )
        statement = statement.where(select(intent_entities.c.position).where(of_this, *entity_conditions).exists())
    rows = await connection.execute(statement.order_by(latest.c.change_id.desc()).limit(limit), {"ids": ids})
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
    latest = _latest().subquery("latest")
    of_this = and_(intent_entities.c.change_id == latest.c.change_id, intent_entities.c.attempt == latest.c.attempt)
    partial: ColumnElement[bool] = literal(False)  # noqa: FBT003 - a value of a column
    if within is not None:
        partial = (
            select(intent_entities.c.position).where(of_this, visible.clause(_ENTITY_ID, within, hidden=True)).exists()
        )
    statement = (
        select(latest, partial.label("partial")).where(latest.c.cluster == cluster).order_by(latest.c.change_id.desc())
    )
    rows = (await connection.execute(statement, {"ids": ids})).all()
    if not rows:
        return []
    attempts = {row.change_id: row.attempt for row in rows}
    texts = sum((func.octet_length(cast(column, Text)) for column in _LARGE), start=literal(_ROW_BYTES))
    of_these = (
        select(intent_entities, texts.label("size"))
        .where(intent_entities.c.change_id == any_(bindparam("ids", type_=ARRAY(Uuid))))
        .order_by(*intent_entities.c["change_id", "attempt", "position"])
    )
    if within is not None:
        of_these = of_these.where(visible.clause(_ENTITY_ID, within))
    entities: dict[UUID, list[IntentEntity]] = {change_id: [] for change_id in attempts}
    sizes: dict[UUID, int] = dict.fromkeys(attempts, _ROW_BYTES)
    for entity in (await connection.execute(of_these, {"ids": list(attempts)})).mappings():
        if entity["attempt"] == attempts[entity["change_id"]]:
            entities[entity["change_id"]].append(_entity(entity))
            sizes[entity["change_id"]] += entity["size"]
    return [(_record(row, entities[row.change_id]), sizes[row.change_id]) for row in rows]


def _entity(row: RowMapping) -> IntentEntity:
    return IntentEntity(
        entity_id=row["entity_id"],
        facet=row["facet"],
        path=row["path"],
        version_read=row["version_read"],
        czxid_read=row["czxid_read"],
        keys=tuple(row["keys"]),
        ops=tuple(row["ops"]),
        before=row["before"],
        after=row["after"],
    )


def _record(row: Row[Any], entities: Iterable[IntentEntity]) -> AuditRecord:
    intent = Intent(
        change_id=row.change_id,
        attempt=row.attempt,
        cluster=row.cluster,
        writer=row.writer,
        principal=row.principal,
        source=row.source,
        request_id=row.request_id,
        reason=row.reason,
        ticket=row.ticket,
        entities=tuple(entities),
        behalf_of=row.behalf_of,
        kind=row.kind,
        observed=None if row.observed is None else ObservedRange(**row.observed),
        reverts=tuple(row.reverts or ()),
    )
    outcome = None
    if row.committed is not None:
        outcome = Outcome(
            change_id=row.change_id,
            attempt=row.final_attempt,
            cluster=row.cluster,
            committed=row.committed,
            revision=row.revision,
            time_ms=None if row.time is None else (row.time - _EPOCH) // _MILLISECOND,
            versions=row.versions,
            error_code=row.error_code,
            error=None if row.partial else row.error,
            remade=row.remade or {},
            incarnation=row.incarnation,
        )
    created = created_at(row.change_id)
    return AuditRecord(intent, created, outcome, row.concluded_at, row.writes, row.partial)
