"""The statements of searches of the trail, each built once for each set of filters.

A statement's objects form reference cycles: built for every request, they would wait for Python's garbage collector.
Parameters have the names of the filters; those of filters that a statement does not have are ignored.
"""

from __future__ import annotations

from functools import lru_cache
from typing import TYPE_CHECKING, Any, Final

from sqlalchemy import Integer, Select, Text, Uuid, and_, any_, bindparam, cast, func, literal, select, text, union
from sqlalchemy.dialects.postgresql import ARRAY

from confplane.audit import visible
from confplane.audit.tables import FAR_INTENT, FAR_OUTCOME, change_keys, intent_entities, intents, outcomes

if TYPE_CHECKING:
    from collections.abc import Iterable
    from uuid import UUID

    from sqlalchemy import Column, ColumnElement, FromClause, Table, TextClause

ROW_BYTES: Final = 500
"""Bytes of all other columns of a change, or of an entity in a change."""

_LARGE: Final = tuple(intent_entities.c["entity_id", "path", "ops", "before", "after"])
"""Columns of unlimited size."""
_ENTITY_ID: Final = "intent_entities.entity_id"
SPAN: Final = frozenset({"before", "since", "until"})
"""The filters that bound the ids of a window."""
_IDS: Final = bindparam("ids", type_=ARRAY(Uuid))
_SIZE: Final = bindparam("size", type_=Integer)
INDEXED: Final[dict[str, tuple[Any, ...]]] = {
    "entity_id": (intent_entities, intent_entities.c.entity_id == bindparam("entity_id")),
    "key": (change_keys, change_keys.c.key == bindparam("key")),
    "request_id": (intents, intents.c.request_id == bindparam("request_id")),
    "rejected": (outcomes, ~outcomes.c.committed),
    "principal": (intents, intents.c.principal == bindparam("principal")),
    "cluster": (intents,),
}
"""The filters with an index by change id, the most selective first: the table of each, and its condition."""

# The index of intents by time finds the hour. OFFSET 0 keeps the other tables index lookups.
ALTERED: Final = text("""
SELECT DISTINCT entity.facet, entity.entity_id
FROM intents AS intent CROSS JOIN LATERAL (
  SELECT facet, entity_id FROM intent_entities
  WHERE change_id = intent.change_id AND attempt = intent.attempt OFFSET 0
) AS entity
WHERE intent.cluster = :cluster AND intent.recorded_at > now() - interval '1 hour'
  AND intent.kind IN ('change', 'reload')
  AND coalesce(intent.behalf_of, intent.principal) = :author AND NOT EXISTS (
    SELECT FROM outcomes WHERE outcomes.change_id = intent.change_id AND NOT outcomes.committed OFFSET 0
  )
""")


@lru_cache
def open_window(by: str, span: frozenset[str]) -> Select[Any]:
    """Select the ids without an outcome, the number of ids read, and the lowest of these."""
    # Open changes are few and may be anywhere: a large window is searched at once for ids without an outcome.
    wide = window(by, span).cte("wide")
    # OFFSET 0 keeps this an index lookup for each id; as a join it may read the whole table of outcomes.
    settled = select(outcomes.c.change_id).where(outcomes.c.change_id == wide.c.change_id).offset(0).exists()
    unsettled = select(wide.c.change_id).where(~settled).order_by(wide.c.change_id.desc())
    lowest = select(wide.c.change_id).order_by(wide.c.change_id).limit(1)
    return select(
        func.array(unsettled.limit(bindparam("window", type_=Integer)).scalar_subquery()),
        select(func.count()).select_from(wide).scalar_subquery(),
        lowest.scalar_subquery(),
    )


@lru_cache
def window(by: str, span: frozenset[str]) -> Select[UUID]:
    """Select the next ``:size`` ids from the index of a filter.

    Args:
        by: The name of the filter in ``INDEXED``.
        span: Those of ``before``, ``since`` and ``until`` that are given.
    """
    source, *conditions = INDEXED[by]
    conditions.append(source.c.cluster == bindparam("cluster"))
    if "before" in span:
        conditions.append(source.c.change_id < bindparam("before"))
    if not span & {"since", "until"}:
        return _newest(source, conditions)
    if "since" in span:
        conditions.append(source.c.change_id >= bindparam("lowest"))
    if "until" in span:
        conditions.append(source.c.change_id <= bindparam("highest"))
    either = union(
        *(
            select(part.subquery().c.change_id)
            for part in (
                _newest(source, conditions),
                _far_ones(span, intents, intents.c.recorded_at, FAR_INTENT),
                _far_ones(span, outcomes, outcomes.c.time, FAR_OUTCOME),
            )
        )
    ).subquery()
    return select(either.c.change_id).order_by(either.c.change_id.desc()).limit(_SIZE)


def _newest(source: FromClause, conditions: Iterable[ColumnElement[bool]]) -> Select[UUID]:
    return select(source.c.change_id).where(*conditions).distinct().order_by(source.c.change_id.desc()).limit(_SIZE)


def _far_ones(span: frozenset[str], source: Table, moment: Column[Any], far: TextClause) -> Select[UUID]:
    """Select the next ids of the changes in the span of time whose ids are far from it."""
    conditions = [source.c.cluster == bindparam("cluster")]
    conditions += [condition for name, condition in _during(moment).items() if name in span]
    if "before" in span:
        conditions.append(source.c.change_id < bindparam("before"))
    # OFFSET 0 makes Postgres read them by their own index; if the planner sees the order, it may scan all ids.
    found = select(source.c.change_id).where(far, *conditions).offset(0).subquery()
    return _newest(found, [])


def _during(moment: ColumnElement[Any]) -> dict[str, ColumnElement[bool]]:
    return {"since": moment >= bindparam("since"), "until": moment < bindparam("until")}


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
        .where(intents.c.change_id == any_(_IDS), intents.c.attempt == last)
    )


@lru_cache
def fitting(filters: frozenset[str]) -> Select[Any]:
    """Select those of the changes ``:ids`` that match the named filters."""
    latest = _latest().subquery("latest")
    stored = func.sum(sum((func.pg_column_size(column) for column in _LARGE), start=literal(0)))
    of_latest = and_(intent_entities.c.change_id == latest.c.change_id, intent_entities.c.attempt == latest.c.attempt)
    size = select(func.coalesce(stored, 0)).where(of_latest).scalar_subquery()
    versions = func.coalesce(func.pg_column_size(latest.c.versions), 0)
    of_change = {
        "cluster": latest.c.cluster == bindparam("cluster"),
        "principal": latest.c.principal == bindparam("principal"),
        "request_id": latest.c.request_id == bindparam("request_id"),
        "open": latest.c.committed.is_(None),
        "committed": latest.c.committed.is_(True),
        "rejected": latest.c.committed.is_(False),
        **_during(func.coalesce(latest.c.time, latest.c.recorded_at)),
    }
    of_entity: dict[str, ColumnElement[bool] | TextClause] = {
        "entity_id": intent_entities.c.entity_id == bindparam("entity_id"),
        "key": bindparam("key", type_=Text) == any_(intent_entities.c["keys"]),
        # In one condition with the other filters: a filter never reveals anything about a hidden entity of the change.
        "visible_starts": visible.clause(_ENTITY_ID),
    }
    statement = select(latest.c.change_id, (size + versions).label("stored"))
    statement = statement.where(*(condition for name, condition in of_change.items() if name in filters))
    entity_conditions = [condition for name, condition in of_entity.items() if name in filters]
    if entity_conditions:
        statement = statement.where(select(intent_entities.c.position).where(of_latest, *entity_conditions).exists())
    return statement.order_by(latest.c.change_id.desc()).limit(bindparam("limit", type_=Integer))


@lru_cache
def whole(*, restricted: bool) -> tuple[Select[Any], Select[Any]]:
    """Return statements for the changes ``:ids``, and for their entities.

    Args:
        restricted: True if the caller may describe only some entities.
    """
    latest = _latest().subquery("latest")
    of_latest = and_(intent_entities.c.change_id == latest.c.change_id, intent_entities.c.attempt == latest.c.attempt)
    texts = sum((func.octet_length(cast(column, Text)) for column in _LARGE), start=literal(ROW_BYTES))
    entities = (
        select(intent_entities, texts.label("size"))
        .where(intent_entities.c.change_id == any_(_IDS))
        .order_by(*intent_entities.c["change_id", "attempt", "position"])
    )
    partial: ColumnElement[bool] = literal(False)  # noqa: FBT003 - a value of a column
    if restricted:
        entities = entities.where(visible.clause(_ENTITY_ID))
        hidden = select(intent_entities.c.position).where(of_latest, visible.clause(_ENTITY_ID, hidden=True))
        partial = hidden.exists()
    changes = select(latest, partial.label("partial")).where(latest.c.cluster == bindparam("cluster"))
    return changes.order_by(latest.c.change_id.desc()), entities
