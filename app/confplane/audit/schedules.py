"""The schedules of temporary changes in Postgres. Each statement may be sent again after a lost reply."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

import orjson
from sqlalchemy import Text, Uuid, bindparam, text
from sqlalchemy.dialects.postgresql import ARRAY
from typing_extensions import override

from confplane.audit.access import HISTORY, ON_CONFLICT, changes_json
from confplane.audit.batcher import Batcher
from confplane.audit.database import from_row
from confplane.services.ports.schedules import (
    EndAttempts,
    EntityKey,
    Schedule,
    SchedulePause,
    ScheduleState,
    ScheduleStatus,
    ScheduleStore,
)

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from datetime import datetime
    from uuid import UUID

    from sqlalchemy import Row, TextClause

    from confplane.audit.database import Database
    from confplane.services.ports.access import AccessChange
    from confplane.services.ports.schedules import Fallbacks

_SEPARATOR: Final = "\n"
"""Between an entity id, which has no line breaks, and a key: that of a broker's listener may have any character."""


def _by_id(sql: str) -> TextClause:
    return text(sql).bindparams(bindparam("change_id", type_=Uuid))


# A change has several intents; the committed attempt counts.
_REGISTER: Final = """
INSERT INTO schedules (change_id, cluster, revert_at)
SELECT intents.change_id, intents.cluster, intents.revert_at
FROM intents JOIN outcomes USING (change_id, attempt)
WHERE intents.cluster = ANY(:clusters) AND intents.revert_at IS NOT NULL AND outcomes.committed
  AND NOT EXISTS (SELECT FROM schedules WHERE schedules.change_id = intents.change_id)
"""
_CLUSTERS: Final = bindparam("clusters", type_=ARRAY(Text))
_REGISTER_ALL: Final = text(f"{_REGISTER} ON CONFLICT DO NOTHING").bindparams(_CLUSTERS)
_REGISTER_NEW: Final = text(
    f"{_REGISTER} AND intents.recorded_at > now() - interval '1 day' ON CONFLICT DO NOTHING"
).bindparams(_CLUSTERS)
_STATUS: Final = text("""
SELECT pause.principal, pause.reason, pause.since, unended.active, unended.overdue, ARRAY(
  SELECT change_id FROM schedules
  WHERE cluster = wanted.cluster AND ended_at IS NULL AND (revert_at <= wanted.now OR state = 'ending')
  ORDER BY revert_at, change_id LIMIT wanted.most
) AS due
FROM jsonb_to_recordset(CAST(:wanted AS jsonb)) AS wanted(
  number integer, cluster text, now timestamptz, late timestamptz, most integer)
LEFT JOIN schedule_pauses AS pause ON pause.cluster = wanted.cluster
CROSS JOIN LATERAL (
  SELECT count(*) AS active, count(*) FILTER (WHERE revert_at < wanted.late) AS overdue
  FROM schedules WHERE cluster = wanted.cluster AND ended_at IS NULL
) AS unended
ORDER BY number
""")
_FIND: Final = """
SELECT schedules.*, intent.principal, intent.reason, ARRAY(
  SELECT DISTINCT entity_id FROM intent_entities WHERE change_id = schedules.change_id ORDER BY entity_id
) AS entity_ids, (SELECT revision FROM outcomes WHERE outcomes.change_id = end_id AND committed) AS end_revision
FROM schedules CROSS JOIN LATERAL (
  SELECT principal, reason FROM intents WHERE intents.change_id = schedules.change_id ORDER BY attempt DESC LIMIT 1
) AS intent
"""
_FIND_ONE: Final = _by_id(f"{_FIND} WHERE cluster = :cluster AND change_id = :change_id")
_LIST: Final = text(f"""
{_FIND} WHERE cluster = :cluster AND (ended_at IS NOT NULL) = :ended
  AND (CAST(:before AS uuid) IS NULL OR change_id < :before)
  AND (CAST(:entity_id AS text) IS NULL OR EXISTS (
    SELECT FROM intent_entities
    WHERE intent_entities.change_id = schedules.change_id AND entity_id = :entity_id))
ORDER BY change_id DESC LIMIT :most
""").bindparams(bindparam("before", type_=Uuid), bindparam("entity_id", type_=Text))
_STATES: Final = text("SELECT change_id, state FROM schedules WHERE change_id = ANY(:ids)").bindparams(
    bindparam("ids", type_=ARRAY(Uuid))
)
_BEGIN: Final = _by_id("""
UPDATE schedules SET state = 'ending' WHERE cluster = :cluster AND change_id = :change_id AND ended_at IS NULL
""")
_ATTEMPTS: Final = _by_id("""
SELECT intents.change_id, outcomes.committed FROM intents LEFT JOIN outcomes USING (change_id)
WHERE intents.ends = :change_id
""")
_DELAY: Final = _by_id("UPDATE schedules SET error = :error WHERE change_id = :change_id AND ended_at IS NULL")
# The rows are locked first, so that either all of them change or none: the end of a change above may begin meanwhile.
_PASS_ON: Final = _by_id("""
WITH given AS MATERIALIZED (
  SELECT * FROM jsonb_to_recordset(CAST(:passed AS jsonb)) AS row(change_id uuid, fallbacks jsonb)
), locked AS MATERIALIZED (
  SELECT change_id FROM schedules WHERE change_id IN (SELECT change_id FROM given) AND state = 'active'
  ORDER BY change_id FOR UPDATE
)
UPDATE schedules SET fallbacks = schedules.fallbacks || given.fallbacks
FROM given
WHERE schedules.change_id = given.change_id AND (SELECT count(*) FROM locked) = (SELECT count(*) FROM given)
  AND EXISTS (SELECT FROM schedules AS ending WHERE ending.change_id = :change_id AND ending.state = 'ending')
""")
# The end of a schedule that has ended is in the trail.
_FINISH: Final = _by_id("""
UPDATE schedules SET
  state = :state, end_id = :end_id, kept = CAST(:kept AS jsonb), error = NULL, ended_at = now()
WHERE change_id = :change_id AND state = 'ending'
  AND (:end_id IS NULL OR EXISTS (SELECT FROM outcomes WHERE change_id = :end_id AND committed))
""").bindparams(bindparam("end_id", type_=Uuid))
_PAUSE: Final = text(f"""
WITH paused AS (
  INSERT INTO schedule_pauses (cluster, principal, reason, since) VALUES (:cluster, :principal, :reason, :since)
  ON CONFLICT DO NOTHING RETURNING cluster
)
{HISTORY} WHERE EXISTS (SELECT FROM paused) {ON_CONFLICT}
""")  # noqa: S608 - constants
_RESUME: Final = text(f"""
WITH resumed AS (DELETE FROM schedule_pauses WHERE cluster = :cluster RETURNING cluster)
{HISTORY} WHERE EXISTS (SELECT FROM resumed) {ON_CONFLICT}
""")  # noqa: S608 - constants
_PAUSED: Final = text("SELECT principal, reason, since FROM schedule_pauses WHERE cluster = :cluster")


class PostgresSchedules(ScheduleStore):
    """Temporary changes, in Postgres."""

    def __init__(self, database: Database) -> None:
        self._database = database
        self._registers = Batcher(self._register)
        self._statuses = Batcher(self._status)

    @override
    async def register(self, cluster: str, *, everything: bool = False) -> None:
        await self._registers.request((cluster, everything))

    async def _register(self, wanted: Sequence[tuple[str, bool]]) -> Sequence[None]:
        for statement, everything in ((_REGISTER_ALL, True), (_REGISTER_NEW, False)):
            if clusters := [cluster for cluster, each in wanted if each is everything]:
                await self._database.execute(statement, clusters=clusters)
        return [None] * len(wanted)

    @override
    async def status(self, cluster: str, now: datetime, late: datetime, most: int) -> ScheduleStatus:
        return await self._statuses.request({"cluster": cluster, "now": now, "late": late, "most": most})

    async def _status(self, wanted: Sequence[Mapping[str, Any]]) -> list[ScheduleStatus]:
        given = orjson.dumps([{"number": number, **each} for number, each in enumerate(wanted)]).decode()
        return [
            ScheduleStatus(_pause(row), row.due, row.active, row.overdue)
            for row in await self._database.rows(_STATUS, wanted=given)
        ]

    @override
    async def find(self, cluster: str, change_id: UUID) -> Schedule | None:
        row = await self._database.row(_FIND_ONE, cluster=cluster, change_id=change_id)
        return None if row is None else _schedule(row)

    @override
    async def list(
        self, cluster: str, *, ended: bool, before: UUID | None, most: int, entity_id: str | None = None
    ) -> list[Schedule]:
        given = {"ended": ended, "before": before, "most": most, "entity_id": entity_id}
        return [_schedule(row) for row in await self._database.rows(_LIST, cluster=cluster, **given)]

    @override
    async def states(self, change_ids: Sequence[UUID]) -> dict[UUID, ScheduleState]:
        rows = await self._database.rows(_STATES, ids=list(change_ids)) if change_ids else ()
        return {row.change_id: ScheduleState(row.state) for row in rows}

    @override
    async def begin(self, cluster: str, change_id: UUID) -> Schedule | None:
        await self._database.execute(_BEGIN, cluster=cluster, change_id=change_id)
        found = await self.find(cluster, change_id)
        return found if found is not None and found.state is ScheduleState.ENDING else None

    @override
    async def attempts(self, change_id: UUID) -> EndAttempts:
        rows = await self._database.rows(_ATTEMPTS, change_id=change_id)
        committed = next((row.change_id for row in rows if row.committed), None)
        return EndAttempts(committed, any(row.committed is None for row in rows))

    @override
    async def delay(self, change_id: UUID, error: str) -> None:
        await self._database.execute(_DELAY, change_id=change_id, error=error)

    @override
    async def pass_on(self, ending: Schedule, passed: Mapping[UUID, Fallbacks]) -> bool:
        rows = [
            {"change_id": str(above), "fallbacks": {_SEPARATOR.join(key): value for key, value in fallbacks.items()}}
            for above, fallbacks in passed.items()
        ]
        given = {"change_id": ending.change_id, "passed": orjson.dumps(rows).decode()}
        return await self._database.execute(_PASS_ON, **given) == len(passed)

    @override
    async def finish(self, ended: Schedule, end_id: UUID | None, kept: Sequence[EntityKey]) -> bool:
        await self._database.execute(
            _FINISH,
            change_id=ended.change_id,
            state=ScheduleState.ENDED_PARTLY if kept else ScheduleState.ENDED,
            end_id=end_id,
            kept=orjson.dumps([list(each) for each in kept]).decode(),
        )
        found = await self.states([ended.change_id])
        return found.get(ended.change_id) in {ScheduleState.ENDED, ScheduleState.ENDED_PARTLY}

    @override
    async def pause(self, cluster: str, pause: SchedulePause, change: AccessChange) -> SchedulePause:
        given = {"principal": pause.principal, "reason": pause.reason, "since": pause.since}
        await self._database.execute(_PAUSE, cluster=cluster, **given, changes=changes_json([change]))
        return await self.paused(cluster) or pause

    @override
    async def resume(self, cluster: str, change: AccessChange) -> bool:
        return await self._database.execute(_RESUME, cluster=cluster, changes=changes_json([change])) > 0

    @override
    async def paused(self, cluster: str) -> SchedulePause | None:
        row = await self._database.row(_PAUSED, cluster=cluster)
        return None if row is None else _pause(row)


def _pause(row: Row[Any]) -> SchedulePause | None:
    return None if row.since is None else SchedulePause(row.principal, row.reason, row.since)


def _schedule(row: Row[Any]) -> Schedule:
    return from_row(
        Schedule,
        row,
        entity_ids=tuple(row.entity_ids),
        state=ScheduleState(row.state),
        fallbacks={EntityKey(*name.split(_SEPARATOR, 1)): value for name, value in row.fallbacks.items()},
        kept=tuple(EntityKey(*each) for each in row.kept),
    )
