"""The changes that named keys of entities in a Kafka cluster, in the trail: their authors, and what is open.

The number of changes that are read per entity is limited, because an entity may have any number of them.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from sqlalchemy import Text, bindparam, text
from sqlalchemy.dialects.postgresql import ARRAY
from typing_extensions import override

from confplane.audit.target_state_rows import to_json
from confplane.services.ports.applying import Author, TargetStates
from confplane.services.ports.trail import FOLLOWING

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping, Sequence

    from sqlalchemy import Row, TextClause

    from confplane.audit.database import Database

MOST_CHANGES: Final = 100
"""Maximum number of changes per entity that are searched for a key."""

_AUTHORS: Final = text("""
SELECT asked.entity_id, asked.key, found.principal, found."time"
FROM jsonb_to_recordset(CAST(:rows AS jsonb)) AS asked(entity_id text, key text)
CROSS JOIN LATERAL (
  SELECT intents.principal, outcomes."time" FROM (
    SELECT change_id, attempt, keys FROM intent_entities
    WHERE cluster = :cluster AND entity_id = asked.entity_id ORDER BY change_id DESC LIMIT :most
  ) AS newest
  JOIN outcomes USING (change_id, attempt) JOIN intents USING (change_id, attempt)
  WHERE asked.key = ANY(newest.keys) AND outcomes.committed
  ORDER BY newest.change_id DESC LIMIT 1
) AS found
""")


def _of_changes(found: str) -> TextClause:
    """Return a statement that queries each key's newest changes.

    A change has one outcome, that of its last attempt. An intent is stored before its change is made, so an intent
    without an outcome may belong to a change that is delivered already.

    Args:
        found: SQL for the result, from ``newest`` and ``ended``; a key without a row is left out.
    """
    return text(f"""
SELECT asked.entity_id, asked.key, found.*
FROM jsonb_to_recordset(CAST(:rows AS jsonb)) AS asked(entity_id text, key text)
CROSS JOIN LATERAL (
  WITH newest AS MATERIALIZED (
    SELECT change_id, attempt, keys, before, after FROM intent_entities
    WHERE cluster = :cluster AND entity_id = asked.entity_id ORDER BY change_id DESC LIMIT :most
  ), ended AS MATERIALIZED (
    SELECT newest.keys, newest.before, newest.after, outcomes.committed, outcomes.revision,
      intents.kind = ANY(:following) OR (
      outcomes.revision <= (
        SELECT max(applied_mzxid) FROM (
          SELECT cluster, entity_id, applied_mzxid FROM applied_entities
          UNION ALL SELECT cluster, entity_id, applied_mzxid FROM target_states
        ) AS states WHERE states.cluster = :cluster AND states.entity_id = asked.entity_id
      )
    ) AS taken
    FROM newest JOIN intents USING (change_id, attempt) LEFT JOIN outcomes USING (change_id)
    WHERE outcomes.attempt IS NULL OR outcomes.attempt = newest.attempt
  )
  {found}
) AS found
""").bindparams(bindparam("following", type_=ARRAY(Text)))  # noqa: S608 - constants


_ALL_READ: Final = "((SELECT count(*) FROM newest) < :most OR EXISTS (SELECT FROM ended WHERE committed AND taken))"
"""SQL for: no more changes are open than are read."""

# The value comes from the first change that the cluster has not accepted yet, after the last change that followed the
# cluster. There is no result for an entity with a change without an outcome, or with more open changes than are read,
# and none for a key that the change had neither before nor after: only the cluster had it.
_VALUES_BEFORE: Final = _of_changes(f"""
  SELECT "value" FROM (SELECT before ->> asked.key AS "value", before || after AS whole FROM ended
  WHERE committed AND asked.key = ANY(keys) AND NOT coalesce(taken, false)
    AND revision > coalesce((SELECT max(revision) FROM ended WHERE committed AND taken), 0)
    AND NOT EXISTS (SELECT FROM ended WHERE committed IS NULL)
    AND {_ALL_READ}
  ORDER BY revision LIMIT 1) AS oldest WHERE jsonb_exists(whole, asked.key)
""")  # noqa: S608 - constants

# If an entity has more open changes than are read, each of its keys counts as named.
_KEYS_IN_OPEN_CHANGES: Final = _of_changes(f"""
  SELECT WHERE NOT {_ALL_READ} OR EXISTS (
    SELECT FROM ended
    WHERE asked.key = ANY(keys) AND (committed IS NULL OR (committed AND NOT coalesce(taken, false)))
  )
""")  # noqa: S608 - constants


class KeyChanges(TargetStates):
    """The queries on changes of keys."""

    def __init__(self, database: Database) -> None:
        self._database = database

    @override
    async def authors(self, cluster: str, keys: Mapping[str, Collection[str]]) -> dict[tuple[str, str], Author]:
        found = await self._query(_AUTHORS, cluster, keys)
        return {(row.entity_id, row.key): Author(row.principal, round(row.time.timestamp() * 1000)) for row in found}

    @override
    async def values_before(
        self, cluster: str, keys: Mapping[str, Collection[str]]
    ) -> dict[tuple[str, str], str | None]:
        found = await self._query(_VALUES_BEFORE, cluster, keys, following=list(FOLLOWING))
        return {(row.entity_id, row.key): row.value for row in found}

    @override
    async def keys_in_open_changes(self, cluster: str, keys: Mapping[str, Collection[str]]) -> set[tuple[str, str]]:
        found = await self._query(_KEYS_IN_OPEN_CHANGES, cluster, keys, following=list(FOLLOWING))
        return {(row.entity_id, row.key) for row in found}

    async def _query(
        self, statement: TextClause, cluster: str, keys: Mapping[str, Collection[str]], **more: Any
    ) -> Sequence[Row[Any]]:
        asked = [{"entity_id": entity_id, "key": key} for entity_id, each in keys.items() for key in each]
        given = {"cluster": cluster, "rows": to_json(asked), "most": MOST_CHANGES}
        return await self._database.rows(statement, **given, **more) if asked else ()
