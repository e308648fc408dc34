"""The last known position of each cluster's ZooKeeper, by which a restored one is noticed."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from sqlalchemy import Uuid, bindparam, text
from typing_extensions import override

from confplane.services.ports.incarnation import KnownPosition, StorePositions, TrailState
from confplane.services.ports.trail import FIRST_INCARNATION

if TYPE_CHECKING:
    from uuid import UUID

    from confplane.audit.database import Database
    from confplane.services.ports.cluster_states import Incarnation
    from confplane.services.ports.incarnation import StorePosition

CURRENT_INCARNATION: Final = "coalesce((SELECT incarnation FROM store_positions WHERE cluster = :cluster), 1)"
"""SQL of a cluster's current incarnation. The rows of other incarnations have revisions of another store."""

_RECENT: Final = 1_000
"""Maximum number of changes among which the last one of this service is searched."""

# Rows of the recorder prove nothing: only changes of this service have markers. The timeline is the first part of the
# name of a WAL file.
_STATE: Final = text(f"""
SELECT
  (SELECT to_jsonb(store_positions) FROM store_positions WHERE cluster = :cluster) AS store,
  (SELECT coalesce(max(revision), 0) FROM (
    SELECT revision, change_id, attempt FROM outcomes
    WHERE cluster = :cluster AND committed AND incarnation = {CURRENT_INCARNATION}
    ORDER BY revision DESC LIMIT {_RECENT}
  ) AS recent WHERE EXISTS (
    SELECT FROM intents WHERE change_id = recent.change_id AND attempt = recent.attempt
      AND kind IN ('change', 'reload', 'import', 'observed') OFFSET 0
  )) AS last_commit,
  (SELECT change_id FROM intents WHERE cluster = :cluster ORDER BY change_id DESC LIMIT 1) AS newest_change,
  CASE WHEN NOT pg_is_in_recovery() THEN
    CAST(CAST('x' || left(pg_walfile_name(pg_current_wal_lsn()), 8) AS bit(32)) AS integer)
  END AS timeline
""")  # noqa: S608 - constants

# A recovered change was lost: other rows of its time may be lost as well.
_HAS: Final = text("""
SELECT EXISTS (
  SELECT FROM intents WHERE cluster = :cluster AND change_id = :change_id AND kind <> 'recovered'
)
""")

# Once for each change: after a confirmation the same change does not bring the rejection back.
_DISTRUST: Final = text("""
UPDATE access_version SET tokens_from = now(), lost_changes = lost_changes || :change_id, version = version + 1
WHERE NOT :change_id = ANY(lost_changes)
""").bindparams(bindparam("change_id", type_=Uuid))
_CONFIRMED: Final = text("""
SELECT tokens_from IS NULL AND :change_id = ANY(lost_changes) FROM access_version
""").bindparams(bindparam("change_id", type_=Uuid))

_SAVE: Final = text("""
INSERT INTO store_positions AS known (cluster, incarnation, id, cversion, pzxid)
VALUES (:cluster, :number, :id, :cversion, :pzxid)
ON CONFLICT (cluster) DO UPDATE SET cversion = excluded.cversion, pzxid = excluded.pzxid, recorded_at = now()
WHERE (known.incarnation, known.id) = (excluded.incarnation, excluded.id) AND known.pzxid <= excluded.pzxid
""")

# A trail whose store was restored before a process of this release knew it has the first incarnation, without an id.
_REJECT: Final = text("""
INSERT INTO store_positions AS known (cluster, incarnation, id, cversion, pzxid, rejected)
VALUES (:cluster, :number, :id, 0, 0, :reason)
ON CONFLICT (cluster) DO UPDATE SET rejected = coalesce(known.rejected, excluded.rejected)
WHERE (known.incarnation, known.id) = (excluded.incarnation, excluded.id)
""")

_ADOPT: Final = text("""
WITH adopted AS (
  INSERT INTO store_positions (cluster, incarnation, id, cversion, pzxid)
  VALUES (:cluster, :number, :id, :cversion, :pzxid)
  ON CONFLICT (cluster) DO UPDATE SET
    incarnation = excluded.incarnation, id = excluded.id, cversion = excluded.cversion, pzxid = excluded.pzxid,
    rejected = NULL, recorded_at = now()
  RETURNING cluster
)
UPDATE watermarks SET revision = :revision, since = :revision, since_at = now(), recorded_at = now()
FROM adopted WHERE watermarks.cluster = adopted.cluster
""")


class PostgresStorePositions(StorePositions):
    """The positions of stores, in Postgres."""

    def __init__(self, database: Database) -> None:
        self._database = database

    @override
    async def read(self, cluster: str) -> TrailState:
        row = await self._database.row(_STATE, cluster=cluster)
        assert row is not None  # noqa: S101 - an aggregate
        stored = row.store
        known = (
            None
            if stored is None
            else KnownPosition(*(stored[name] for name in ("incarnation", "id", "cversion", "pzxid", "rejected")))
        )
        return TrailState(known, row.last_commit, row.newest_change, row.timeline)

    @override
    async def has(self, cluster: str, change_id: UUID) -> bool:
        [found] = await self._database.scalars(_HAS, cluster=cluster, change_id=change_id)
        return bool(found)

    @override
    async def distrust(self, change_id: UUID) -> bool:
        await self._database.execute(_DISTRUST, change_id=change_id)
        return await self.confirmed(change_id)

    @override
    async def confirmed(self, change_id: UUID) -> bool:
        [found] = await self._database.scalars(_CONFIRMED, change_id=change_id)
        return bool(found)

    @override
    async def save(self, cluster: str, incarnation: Incarnation, position: StorePosition) -> None:
        await self._database.execute(_SAVE, **_given(cluster, incarnation, position))

    @override
    async def reject(self, cluster: str, known: KnownPosition | None, reason: str) -> None:
        number, id_ = (FIRST_INCARNATION, "") if known is None else (known.number, known.id)
        await self._database.execute(_REJECT, cluster=cluster, number=number, id=id_, reason=reason)

    @override
    async def adopt(self, cluster: str, incarnation: Incarnation, position: StorePosition) -> None:
        await self._database.execute(_ADOPT, **_given(cluster, incarnation, position), revision=position.revision)


def _given(cluster: str, incarnation: Incarnation, position: StorePosition) -> dict[str, Any]:
    return {
        "cluster": cluster,
        "number": incarnation.number,
        "id": incarnation.id,
        "cversion": position.cversion,
        "pzxid": position.pzxid,
    }
