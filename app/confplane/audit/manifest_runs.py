"""The runs of plans in Postgres."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from sqlalchemy import Text, bindparam, text
from typing_extensions import override

from confplane.services.ports.manifest_runs import ManifestRun, ManifestRuns

if TYPE_CHECKING:
    from confplane.audit.database import Database

_FIND: Final = text("""
SELECT request_id, writer, bases, until > now() AS in_time FROM manifest_runs
WHERE cluster = :cluster AND plan_id = :plan_id
""")
_REPLACED: Final = (bindparam("replaced", type_=Text), bindparam("ended", type_=Text))
# The statement may be sent again after a lost reply. Request ids are chosen by clients, who may use one for many plans.
_BEGIN: Final = text("""
INSERT INTO manifest_runs (cluster, plan_id, request_id, writer, bases, until)
VALUES (:cluster, :plan_id, :request_id, :writer, :bases, now() + make_interval(secs => :seconds))
ON CONFLICT (cluster, plan_id) DO UPDATE SET
  request_id = EXCLUDED.request_id, writer = EXCLUDED.writer, bases = EXCLUDED.bases, until = EXCLUDED.until,
  recorded_at = now()
WHERE (manifest_runs.request_id, manifest_runs.writer) = (EXCLUDED.request_id, EXCLUDED.writer)
  OR manifest_runs.request_id = :replaced AND (manifest_runs.until <= now() OR manifest_runs.writer = :ended)
""").bindparams(*_REPLACED)
# The unique index on the owner decides between concurrent runs of one owner.
_BEGIN_OF_OWNER: Final = text("""
INSERT INTO manifest_runs (cluster, plan_id, request_id, writer, bases, until, owner)
VALUES (:cluster, :plan_id, :request_id, :writer, :bases, now() + make_interval(secs => :seconds), :owner)
ON CONFLICT (cluster, owner) DO UPDATE SET
  plan_id = EXCLUDED.plan_id, request_id = EXCLUDED.request_id, writer = EXCLUDED.writer, bases = EXCLUDED.bases,
  until = EXCLUDED.until, recorded_at = now()
WHERE (manifest_runs.plan_id, manifest_runs.request_id, manifest_runs.writer)
    = (EXCLUDED.plan_id, EXCLUDED.request_id, EXCLUDED.writer)
  OR manifest_runs.until <= now() AND manifest_runs.plan_id <> EXCLUDED.plan_id
  OR manifest_runs.plan_id = EXCLUDED.plan_id AND manifest_runs.request_id = :replaced
    AND (manifest_runs.until <= now() OR manifest_runs.writer = :ended)
""").bindparams(*_REPLACED)
# This statement may be sent again too.
_RESUME: Final = text("""
UPDATE manifest_runs SET until = now() + make_interval(secs => :seconds), writer = :writer
WHERE cluster = :cluster AND plan_id = :plan_id AND (until <= now() OR writer IN (:ended, :writer))
""")
_END: Final = text("""
UPDATE manifest_runs SET until = now() WHERE cluster = :cluster AND plan_id = :plan_id AND writer = :writer
""")
_PURGE: Final = text("""
DELETE FROM manifest_runs WHERE recorded_at < now() - interval '1 day' AND until <= now()
""")


class PostgresManifestRuns(ManifestRuns):
    """The runs of manifests, in Postgres."""

    def __init__(self, database: Database) -> None:
        self._database = database

    @override
    async def find(self, cluster: str, plan_id: str) -> ManifestRun | None:
        row = await self._database.row(_FIND, cluster=cluster, plan_id=plan_id)
        if row is None:
            return None
        return ManifestRun(cluster, plan_id, row.request_id, row.writer, bytes(row.bases), row.in_time)

    @override
    async def begin(self, run: ManifestRun, seconds: float, *, replaced: ManifestRun | None = None) -> bool:
        await self._database.execute(_PURGE)
        given = {
            "cluster": run.cluster,
            "plan_id": run.plan_id,
            "request_id": run.request_id,
            "writer": run.writer,
            "bases": run.bases,
            "seconds": seconds,
            "replaced": None if replaced is None else replaced.request_id,
            "ended": None if replaced is None else _ended_writer(replaced),
        }
        if run.owner is None:
            return await self._database.execute(_BEGIN, **given) > 0
        return await self._database.execute(_BEGIN_OF_OWNER, **given, owner=run.owner) > 0

    @override
    async def resume(self, run: ManifestRun, writer: str, seconds: float) -> bool:
        given = {"cluster": run.cluster, "plan_id": run.plan_id, "ended": _ended_writer(run)}
        return await self._database.execute(_RESUME, **given, writer=writer, seconds=seconds) > 0

    @override
    async def end(self, run: ManifestRun) -> None:
        await self._database.execute(_END, cluster=run.cluster, plan_id=run.plan_id, writer=run.writer)


def _ended_writer(run: ManifestRun) -> str | None:
    """Return the writer of a run that ended before the run's time was up; None if the time is up."""
    return run.writer if run.in_time else None
