"""The states of entities and keys in Kafka clusters, and the deliveries to them, in tables.

Each transaction locks the rows of its entities first, in the order of ids, and changes only those whose conditions
still hold: no row with a newer revision of the znode. So two concurrent leaders, one of which lost the leadership,
can't revert each other's newer values. Each transaction may be repeated. A delivery is begun by one statement and ended
by one, because they are most of its cost.

A delivery has one row for each key. It is written before the request, and has no outcome until the cluster's answer is
known. If another delivery of the entity began in between, the answer is ignored, because the earlier one may arrive
last. A value without an outcome may arrive within a day.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, TypeVar

from typing_extensions import override

from confplane.audit import earlier_states
from confplane.audit import target_state_statements as sql
from confplane.audit.key_changes import KeyChanges
from confplane.audit.statements import INSERT_INTENTS
from confplane.audit.target_state_rows import drift_row, key_rows, outcome_row, state_of, to_json
from confplane.domain.entities import EntityType
from confplane.services.ports.applying import FINGERPRINT, NO_STATE
from confplane.services.ports.kafka import kraft_type_of_entity_type

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Collection, Iterable, Mapping, Sequence

    from sqlalchemy import TextClause

    from confplane.audit.database import Pipeline
    from confplane.services.ports.applying import (
        Correction,
        Delivery,
        DeliveryOutcome,
        LostUpdate,
        TargetState,
    )
    from confplane.services.ports.kafka import KraftEntityType


_D = TypeVar("_D", bound="Correction | LostUpdate")


class PostgresTargetStates(KeyChanges):
    """The states, deliveries and their queries in Postgres."""

    @override
    async def load(self, cluster: str, entity_ids: Sequence[str]) -> dict[str, TargetState]:
        rows: Sequence[Any] = await self._database.prepared(sql.LOAD, cluster=cluster, ids=list(entity_ids))
        if rows[0].has_earlier:
            rows = await self._database.rows(sql.LOAD_WITH_EARLIER, cluster=cluster, ids=list(entity_ids))
        found = {row.entity_id: state_of(row) for row in rows if row.entity_id is not None}
        return dict.fromkeys(entity_ids, NO_STATE) | found

    @override
    async def begin(self, cluster: str, deliveries: Sequence[Delivery]) -> set[str]:
        ids = [each.entity_id for each in deliveries]
        begun = await self._database.prepared(sql.BEGIN, cluster=cluster, ids=ids, rows=to_json(deliveries))
        return {row.entity_id for row in begun}

    @override
    async def end(self, cluster: str, outcomes: Sequence[DeliveryOutcome]) -> None:
        ended = {
            "cluster": cluster,
            "ids": [each.delivery.entity_id for each in outcomes],
            "rows": to_json([outcome_row(each) for each in outcomes]),
        }
        refused = [
            {"entity_id": each.delivery.entity_id, "id": each.delivery.id, "key": key, **drift_row(drift)}
            for each in outcomes
            for key, drift in each.drift.items()
        ]

        async def work(pipeline: Pipeline) -> None:
            send = _Statements(pipeline, cluster)
            await send.lock(ended["ids"])
            await send.all(sql.REFUSE_KEYS, refused)
            await pipeline.send(sql.END, **ended)

        if refused:
            await self._database.atomically(work)
        else:
            await self._database.prepared(sql.END, **ended)

    @override
    async def correct(self, cluster: str, corrections: Sequence[Correction]) -> set[str]:

        async def record(send: _Statements, made: Sequence[Correction]) -> None:
            late = [
                {"entity_id": each.entity_id, "key": key, "value": value}
                for each in made
                for key, value in each.late.items()
            ]
            await send.all(sql.ARRIVE, late)
            await send.of_ids(sql.CLEAR_KEYS, [each.entity_id for each in made])
            await send.all(sql.PUT_KEYS, [row for each in made for row in key_rows(each)])

        return await self._decide(cluster, corrections, record, sql.CORRECT, sql.PUT_BACK_ERROR)

    @override
    async def record_lost_updates(self, cluster: str, changes: Sequence[LostUpdate]) -> set[str]:

        async def record(send: _Statements, made: Sequence[LostUpdate]) -> None:
            bases = [
                {"entity_id": each.entity_id, "key": key, "base_value": base.value, "base_offset": base.offset}
                for each in made
                for key, base in each.base.items()
            ]
            await send.of_ids(sql.CLEAR_BASES, [each.entity_id for each in made])
            await send.all(sql.PUT_BASES, bases)

        return await self._decide(cluster, changes, record, sql.LOSE, sql.LOST_UPDATE_ERROR)

    async def _decide(
        self,
        cluster: str,
        decisions: Sequence[_D],
        record: Callable[[_Statements, Sequence[_D]], Awaitable[None]],
        condition: TextClause,
        error: str,
    ) -> set[str]:
        """Record the decisions on entities whose conditions hold, with their rows of the trail; return the entities.

        Args:
            cluster: The cluster.
            decisions: One decision for each entity.
            record: Sends the statements that record decisions.
            condition: The statement that changes and returns the entities.
            error: The error in the rows, which are not committed changes.
        """
        given = {each.entity_id: each for each in decisions}

        async def work(pipeline: Pipeline) -> set[str]:
            send = _Statements(pipeline, cluster)
            await send.of_ids(sql.ADD, sorted(given))
            await send.lock(given)
            moved = set(await send.changed(condition, decisions))
            made = [given[each] for each in moved]
            await record(send, made)
            intents = [each.intent for each in made if each.intent is not None]
            await send.all(INSERT_INTENTS, intents)
            await send.all(sql.REJECT, intents, error=error)
            return moved

        return await self._database.atomically(work) if decisions else set()

    @override
    async def clear_drift(self, cluster: str, revisions: Mapping[str, int | None], offset: int) -> None:

        async def work(pipeline: Pipeline) -> None:
            send = _Statements(pipeline, cluster)
            await send.lock(revisions)
            rows = [{"entity_id": entity_id, "mzxid": mzxid} for entity_id, mzxid in revisions.items()]
            equal = await send.changed(sql.EQUAL, rows, offset=offset, fingerprint=FINGERPRINT)
            await send.of_ids(sql.EQUAL_KEYS, equal, fingerprint=FINGERPRINT)

        await self._database.atomically(work)

    @override
    async def drop(self, cluster: str, topic_ids: Mapping[str, str]) -> None:

        async def work(pipeline: Pipeline) -> None:
            found = await pipeline.send(sql.DROP, cluster=cluster, topic_ids=to_json(topic_ids))
            dropped = [entity_id for (entity_id,) in await found.fetchall()]
            for statement in (sql.DROP_KEYS, sql.DROP_DELIVERIES) if dropped else ():
                await pipeline.send(statement, cluster=cluster, ids=dropped)

        if topic_ids:
            await self._database.atomically(work)

    @override
    async def reapply(self, cluster: str, keys: Mapping[str, Collection[str]]) -> None:

        async def work(pipeline: Pipeline) -> None:
            send = _Statements(pipeline, cluster)
            await send.lock(keys)
            await send.of_ids(sql.REAPPLY, keys)
            rows = [{"entity_id": entity_id, "key": key} for entity_id in keys for key in keys[entity_id]]
            await send.all(sql.REAPPLY_KEYS, rows)

        await self._database.atomically(work)

    @override
    async def undelivered(self, cluster: str) -> list[str]:
        return await self._database.scalars(sql.UNDELIVERED, cluster=cluster)

    @override
    async def drifting_entities(self, cluster: str) -> list[str]:
        return await self._database.scalars(sql.DRIFTING, cluster=cluster)

    @override
    async def forget(
        self, cluster: str, entity_types: Collection[KraftEntityType], revisions: Mapping[str, int]
    ) -> None:
        types = [kind.value for kind in EntityType if kraft_type_of_entity_type(kind) in entity_types]
        kept = to_json([{"entity_id": entity_id, "mzxid": mzxid} for entity_id, mzxid in revisions.items()])

        async def work(pipeline: Pipeline) -> None:
            for statement in (earlier_states.FORGET, *sql.FORGET):
                await pipeline.send(statement, cluster=cluster, types=types, kept=kept)

        await self._database.atomically(work)

    @override
    async def expire(self, cluster: str) -> None:
        while await self._database.execute(sql.EXPIRE, cluster=cluster) == sql.EXPIRED_AT_ONCE:
            pass

    @override
    async def move_earlier(self, cluster: str) -> int:
        return await earlier_states.move(self._database, cluster)


class _Statements:
    """The statements of one transaction on the states of one cluster."""

    def __init__(self, pipeline: Pipeline, cluster: str) -> None:
        self._pipeline = pipeline
        self._cluster = cluster

    async def lock(self, entity_ids: Iterable[str]) -> None:
        """Lock the rows of entities."""
        await self.of_ids(sql.LOCK, sorted(entity_ids))

    async def of_ids(self, statement: TextClause, entity_ids: Iterable[str], **more: Any) -> None:
        """Send one statement on some entities."""
        await self._pipeline.send(statement, cluster=self._cluster, ids=list(entity_ids), **more)

    async def all(self, statement: TextClause, rows: Sequence[object], **more: Any) -> None:
        """Send one statement on some rows."""
        if rows:
            await self._pipeline.send(statement, cluster=self._cluster, rows=to_json(rows), **more)

    async def changed(self, statement: TextClause, rows: Sequence[object], **more: Any) -> list[str]:
        """Send one statement on some rows, of which it reads what it needs; return the ids of the changed entities."""
        found = await self._pipeline.send(statement, cluster=self._cluster, rows=to_json(rows), **more)
        return [entity_id for (entity_id,) in await found.fetchall()]
