"""The states of entities in Kafka clusters, as far as this service changed them: the table ``target_states``.

Each statement that changes a row locks it, and skips rows with a newer revision of the znode. So two concurrent
leaders, one of which lost the leadership, can't revert each other's newer values.

Each value in ``sent`` has the number of its deliveries that may still arrive (``open``). A delivery adds one before it
is sent, and subtracts it at its known outcome, unless another delivery of the entity began in between: that one may
have arrived first. A value of an earlier release has no number, and counts as one. A value that the cluster accepted
has a metadata offset after its acceptance (``taken``).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

import orjson
from sqlalchemy import Text, bindparam, text
from sqlalchemy.dialects.postgresql import ARRAY

from confplane.audit.statements import INTENT, INTO_THE_TRAIL, KEYS
from confplane.audit.tables import LEFT_ALONE, TO_BE_SENT
from confplane.domain.entities import EntityType
from confplane.services.ports.applying import (
    FINGERPRINT,
    AlterApplied,
    AlterRefused,
    Author,
    BaseValue,
    DriftCause,
    DriftRecord,
    RefusedValue,
    TargetState,
)
from confplane.services.ports.kafka import kraft_type_of_entity_type
from confplane.services.ports.trail import FOLLOWING

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping, Sequence

    from sqlalchemy import Row, TextClause

    from confplane.audit.database import Database
    from confplane.services.ports.applying import Correction, Delivery, DeliveryOutcome, LostUpdate
    from confplane.services.ports.kafka import KraftEntityType

_DAY_S: Final = 86_400
_MOST_SENT: Final = 200
"""Maximum number of sent values that are stored per entity."""

_PUT_BACK_ERROR: Final = "Put back: the Kafka cluster gets the value of this service again"
_LOST_UPDATE_ERROR: Final = (
    "Overwritten: a change of the same key was waiting here, and the Kafka cluster gets its value"
)
MOST_CHANGES: Final = 100
"""Maximum number of changes per entity that are searched for the author of a key."""

_UNENDED: Final = "coalesce(CAST(item ->> 'open' AS integer), 1)"
_OF_TODAY: Final = "CAST(item ->> 'at' AS double precision) > extract(epoch FROM now()) - :day_s"

_LOAD: Final = text(f"""
SELECT entity_id, sent_mzxid, applied_mzxid, applied_offset, applied, refused_code, refused_text, reapply, drift,
  put_back_at, topic_id, base, claim IS NOT NULL AS under_way, (
  SELECT coalesce(jsonb_agg(jsonb_build_array(
    item -> 'key', item -> 'value', {_UNENDED}, CAST(item ->> 'taken' AS bigint)) ORDER BY number), '[]')
  FROM jsonb_array_elements(sent) WITH ORDINALITY AS item(item, number) WHERE {_OF_TODAY}
) AS sent
FROM target_states WHERE cluster = :cluster AND entity_id = ANY(:ids)
""").bindparams(bindparam("ids", type_=ARRAY(Text)))  # noqa: S608 - constants

# In the order of ids, so that two statements lock rows in the same order. A value that is sent again moves to the end,
# and values without an outcome are kept in preference to others. A key that was changed here is no longer contested.
# The statement may be repeated: a delivery id (``claim``) that is stored already counts once.
_BEGIN: Final = text(f"""
INSERT INTO target_states AS known (cluster, entity_id, sent_mzxid, topic_id, claim, sent)
SELECT :cluster, entity_id, mzxid, topic_id, id, (
  SELECT coalesce(jsonb_agg(jsonb_build_object(
    'key', key, 'value', value, 'at', extract(epoch FROM clock_timestamp()), 'open', 1)), '[]')
  FROM jsonb_each(given."values")
)
FROM jsonb_to_recordset(CAST(:rows AS jsonb)) AS given(
  entity_id text, mzxid bigint, topic_id text, id uuid, "values" jsonb)
ORDER BY entity_id COLLATE "C"
ON CONFLICT (cluster, entity_id) DO UPDATE SET
  sent_mzxid = excluded.sent_mzxid, topic_id = excluded.topic_id, claim = excluded.claim, sent_at = now(),
  refused_code = NULL, refused_text = NULL,
  drift = CASE WHEN excluded.sent_mzxid > known.sent_mzxid
    THEN known.drift - ARRAY(SELECT item ->> 'key' FROM jsonb_array_elements(excluded.sent) AS item)
    ELSE known.drift END,
  put_back_at = CASE WHEN excluded.sent_mzxid > known.sent_mzxid
    THEN known.put_back_at - ARRAY(SELECT item ->> 'key' FROM jsonb_array_elements(excluded.sent) AS item)
    ELSE known.put_back_at END,
  sent = CASE WHEN known.claim = excluded.claim THEN known.sent ELSE (
    SELECT coalesce(jsonb_agg(item ORDER BY number), '[]') FROM (
      SELECT item, number FROM jsonb_array_elements(known.sent) WITH ORDINALITY AS old(item, number)
      WHERE {_OF_TODAY} AND NOT EXISTS (
        SELECT FROM jsonb_array_elements(excluded.sent) AS new(item)
        WHERE new.item -> 'key' = old.item -> 'key' AND new.item -> 'value' = old.item -> 'value'
      )
      ORDER BY {_UNENDED} > 0 DESC, number DESC LIMIT :most
    ) AS kept
  ) || (
    SELECT coalesce(jsonb_agg(new.item || jsonb_build_object('open', 1 + coalesce((
      SELECT max({_UNENDED}) FROM jsonb_array_elements(known.sent) AS old(item)
      WHERE {_OF_TODAY} AND new.item -> 'key' = old.item -> 'key' AND new.item -> 'value' = old.item -> 'value'
    ), 0)) ORDER BY number), '[]')
    FROM jsonb_array_elements(excluded.sent) WITH ORDINALITY AS new(item, number)
  ) END
WHERE known.sent_mzxid <= excluded.sent_mzxid AND coalesce(known.topic_id = excluded.topic_id, true)
  AND (known.sent_mzxid < excluded.sent_mzxid OR (known.refused_code IS NULL
    AND (known.applied_mzxid IS DISTINCT FROM known.sent_mzxid OR known.reapply <> '[]')))
RETURNING entity_id
""")  # noqa: S608 - constants


def _ended(values: str, noted: str = "'{}'") -> str:
    """Return SQL for ``sent`` with one delivery less that may still arrive, for some keys with their values.

    Args:
        values: SQL for the keys with their values.
        noted: SQL for what is stored with each of them.
    """
    return f"""(
    SELECT coalesce(jsonb_agg(
      CASE WHEN item -> 'value' = {values} -> (item ->> 'key')
        THEN item || {noted} || jsonb_build_object('open', greatest({_UNENDED} - 1, 0)) ELSE item END
      ORDER BY number), '[]')
    FROM jsonb_array_elements(known.sent) WITH ORDINALITY AS item(item, number)
  )"""  # noqa: S608 - a constant


_LOCKED: Final = """, locked AS MATERIALIZED (
  SELECT entity_id FROM target_states
  WHERE cluster = :cluster AND entity_id IN (SELECT entity_id FROM given)
  ORDER BY entity_id FOR UPDATE
)
"""
"""SQL that locks the rows of ``given`` in the order of ids."""
_TAKEN: Final = """CASE WHEN taken AND given.drift -> (item ->> 'key') IS NULL
  THEN jsonb_build_object('taken', given."offset") ELSE '{}' END"""
_ACCEPTED: Final = """given."values" - ARRAY(SELECT jsonb_object_keys(given.drift))"""

# An outcome is not flushed to disk: if a crash of Postgres loses it, the outcome is unknown, and the values are sent
# again. Later durable statements include it, because Postgres has one log. An outcome removes the delivery id
# (``claim``), so that a repeated statement has no effect. A refusal keeps the values that the cluster accepted before.
_END: Final = text(f"""
WITH at_once AS MATERIALIZED (
  SELECT set_config('synchronous_commit', 'off', true) AS level
), given AS MATERIALIZED (
  SELECT * FROM jsonb_to_recordset(CAST(:rows AS jsonb)) AS given(
    entity_id text, mzxid bigint, claim uuid, "values" jsonb, taken boolean, "offset" bigint, code integer, said text,
    drift jsonb)
){_LOCKED}UPDATE target_states AS known SET
  claim = NULL,
  sent = {_ended('given."values"', _TAKEN)},
  applied_mzxid = CASE WHEN taken THEN given.mzxid ELSE known.applied_mzxid END,
  applied_offset = greatest(known.applied_offset, given."offset"),
  applied = CASE WHEN taken THEN known.applied || ({_ACCEPTED}) ELSE known.applied END,
  drift = CASE WHEN taken THEN known.drift || given.drift ELSE known.drift END,
  reapply = CASE WHEN taken THEN known.reapply - ARRAY(SELECT jsonb_object_keys(given."values"))
    ELSE known.reapply END,
  base = CASE WHEN taken THEN known.base - ARRAY(SELECT jsonb_object_keys(given."values")) ELSE known.base END,
  refused_code = code, refused_text = said
FROM given JOIN locked USING (entity_id), at_once
WHERE known.cluster = :cluster AND known.entity_id = given.entity_id AND known.claim = given.claim
""")  # noqa: S608 - constants

# The last part of a statement that moves rows in ``moved``, as ``asked`` says: the rows of the trail, in one statement
# with the move, so that two leaders write one row. The rows are not committed changes.
_WITH_ROWS: Final = f""", given AS MATERIALIZED (
  SELECT intent.* FROM asked JOIN moved USING (entity_id)
  CROSS JOIN LATERAL jsonb_to_record(asked.intent) AS intent({INTENT})
  WHERE asked.intent IS NOT NULL
){INTO_THE_TRAIL.rstrip()}, new_keys AS ({KEYS}), new_outcomes AS (
  INSERT INTO outcomes (change_id, attempt, cluster, committed, time, versions, error)
  SELECT
    change_id, attempt, cluster, false, to_timestamp(CAST(observed ->> 'at_ms' AS bigint) / 1000.0), '{{}}', :error
  FROM given
  ON CONFLICT DO NOTHING
)
SELECT entity_id FROM moved
"""  # noqa: S608 - constants

# An external change, or a stale in-flight write, moves the base. The row is unchanged since the poll: no delivery
# began since, and none is due.
_CORRECT: Final = text(f"""
WITH asked AS MATERIALIZED (
  SELECT * FROM jsonb_to_recordset(CAST(:rows AS jsonb)) AS row(
    entity_id text, mzxid bigint, "offset" bigint, reapply jsonb, drift jsonb, put_back_at jsonb, topic_id text,
    late jsonb, base jsonb, intent jsonb)
), moved AS (
  INSERT INTO target_states AS known (
    cluster, entity_id, sent_mzxid, sent, applied_mzxid, reapply, drift, put_back_at, topic_id, base)
  SELECT :cluster, entity_id, mzxid, '[]', mzxid, reapply, drift, put_back_at, topic_id, base
  FROM asked ORDER BY entity_id COLLATE "C"
  ON CONFLICT (cluster, entity_id) DO UPDATE SET
    sent_mzxid = excluded.sent_mzxid, applied_mzxid = excluded.applied_mzxid, reapply = excluded.reapply,
    drift = excluded.drift, put_back_at = excluded.put_back_at, topic_id = excluded.topic_id, base = excluded.base,
    claim = NULL, sent = {_ended("(SELECT late FROM asked WHERE asked.entity_id = known.entity_id)")}
  WHERE known.sent_mzxid <= excluded.sent_mzxid AND known.applied_mzxid = known.sent_mzxid AND known.reapply = '[]'
    AND known.refused_code IS NULL AND coalesce(known.topic_id = excluded.topic_id, true) AND known.applied_offset <= (
      SELECT "offset" FROM asked WHERE asked.entity_id = known.entity_id
    )
  RETURNING entity_id
){_WITH_ROWS}""")  # noqa: S608 - constants

# The base is unchanged since the poll. An entity without a delivery gets a row that has nothing to send.
_RECORD_LOST_UPDATES: Final = text(f"""
WITH asked AS MATERIALIZED (
  SELECT * FROM jsonb_to_recordset(CAST(:rows AS jsonb)) AS row(
    entity_id text, "offset" bigint, was jsonb, base jsonb, topic_id text, intent jsonb)
), moved AS (
  INSERT INTO target_states AS known (cluster, entity_id, sent_mzxid, sent, applied_mzxid, topic_id, base)
  SELECT :cluster, entity_id, 0, '[]', 0, topic_id, base
  FROM asked ORDER BY entity_id COLLATE "C"
  ON CONFLICT (cluster, entity_id) DO UPDATE SET base = excluded.base
  WHERE coalesce(known.topic_id = excluded.topic_id, true) AND EXISTS (
    SELECT FROM asked
    WHERE asked.entity_id = known.entity_id AND known.base = asked.was AND known.applied_offset <= asked."offset"
  )
  RETURNING entity_id
){_WITH_ROWS}""")  # noqa: S608 - constants

# No poll shows the value of a secret, so its refusal stays. A refusal ends only if the poll found the refused revision
# equal, and not a later one.
_CLEAR_DRIFT: Final = text("""
UPDATE target_states SET
  drift = (
    SELECT coalesce(jsonb_object_agg(key, value), '{}') FROM jsonb_each(drift)
    WHERE starts_with(value -> 'refused' ->> 'value', :fingerprint)
  ),
  refused_code = NULL, refused_text = NULL,
  applied_mzxid = CASE WHEN refused_code IS NULL THEN applied_mzxid ELSE sent_mzxid END
FROM jsonb_each(CAST(:revisions AS jsonb)) AS given(id, revision)
WHERE cluster = :cluster AND entity_id = given.id AND (drift <> '{}' OR refused_code IS NOT NULL)
  AND applied_offset <= :offset AND (refused_code IS NULL OR (
    coalesce(CAST(given.revision #>> '{}' AS bigint), sent_mzxid) = sent_mzxid AND NOT EXISTS (
      SELECT FROM jsonb_array_elements(sent) AS item WHERE starts_with(item ->> 'value', :fingerprint)
    )
  ))
""")

_DROP: Final = text("""
DELETE FROM target_states USING jsonb_each_text(CAST(:topic_ids AS jsonb)) AS gone(entity_id, topic_id)
WHERE target_states.cluster = :cluster AND target_states.entity_id = gone.entity_id
  AND target_states.topic_id = gone.topic_id
""")

_REAPPLY: Final = text(f"""
WITH given AS MATERIALIZED (
  SELECT * FROM jsonb_to_recordset(CAST(:rows AS jsonb)) AS given(entity_id text, keys jsonb)
){_LOCKED}UPDATE target_states AS known SET
  reapply = (known.reapply - ARRAY(SELECT jsonb_array_elements_text(given.keys))) || given.keys,
  drift = known.drift - ARRAY(SELECT jsonb_array_elements_text(given.keys)),
  put_back_at = known.put_back_at - ARRAY(SELECT jsonb_array_elements_text(given.keys)),
  refused_code = NULL, refused_text = NULL
FROM given JOIN locked USING (entity_id)
WHERE known.cluster = :cluster AND known.entity_id = given.entity_id
""")  # noqa: S608 - constants

# The same condition as that of the index.
_UNDELIVERED: Final = text(f"SELECT entity_id FROM target_states WHERE cluster = :cluster AND {TO_BE_SENT.text}")  # noqa: S608 - a constant
_DRIFTING: Final = text(f"""
SELECT entity_id FROM target_states WHERE cluster = :cluster AND {TO_BE_SENT.text}
UNION
SELECT entity_id FROM target_states WHERE cluster = :cluster AND {LEFT_ALONE.text}
""")  # noqa: S608 - constants

# The number of changes that are read per entity is limited, because an entity may have any number of them.
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
        SELECT applied_mzxid FROM target_states
        WHERE target_states.cluster = :cluster AND target_states.entity_id = asked.entity_id
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

_OF_TYPES: Final = "cluster = :cluster AND substring(entity_id FROM '^[a-z-]+') = ANY(:types)"
_MAY_ARRIVE: Final = f"""(
  SELECT coalesce(jsonb_agg(item ORDER BY number), '[]')
  FROM jsonb_array_elements(sent) WITH ORDINALITY AS item(item, number) WHERE {_OF_TODAY} AND {_UNENDED} > 0
)"""  # noqa: S608 - constants
# Values that may still arrive are kept for any ensemble. An outcome from before finds no delivery id (``claim``).
_FORGET: Final = [
    text(each).bindparams(bindparam("types", type_=ARRAY(Text)))
    for each in (
        f"DELETE FROM target_states WHERE {_OF_TYPES} AND {_MAY_ARRIVE} = '[]'",  # noqa: S608 - constants
        f"""
UPDATE target_states SET sent_mzxid = 0, applied_mzxid = 0, applied_offset = -1, applied = '{{}}', sent = {_MAY_ARRIVE},
  refused_code = NULL, refused_text = NULL, reapply = '[]', drift = '{{}}', put_back_at = '{{}}', claim = NULL,
  base = '{{}}'
WHERE {_OF_TYPES}
""",  # noqa: S608 - constants
    )
]


class PostgresTargetStates:
    """Implements :class:`confplane.services.ports.applying.TargetStates`."""

    def __init__(self, database: Database) -> None:
        self._database = database

    async def load(self, cluster: str, entity_ids: Sequence[str]) -> dict[str, TargetState]:
        """Return the states of some entities."""
        rows = await self._database.rows(_LOAD, cluster=cluster, ids=list(entity_ids), day_s=_DAY_S)
        return {row.entity_id: _state(row) for row in rows}

    async def begin(self, cluster: str, deliveries: Sequence[Delivery]) -> set[str]:
        """Make deliveries durable."""
        given: dict[str, Any] = {"rows": _json(deliveries), "day_s": _DAY_S, "most": _MOST_SENT}
        return set(await self._database.scalars(_BEGIN, cluster=cluster, **given))

    async def end(self, cluster: str, outcomes: Sequence[DeliveryOutcome]) -> None:
        """Record the outcomes of deliveries."""
        await self._database.execute(_END, cluster=cluster, rows=_json([_row(each) for each in outcomes]))

    async def correct(self, cluster: str, corrections: Sequence[Correction]) -> set[str]:
        """Record the decisions on external changes."""
        return await self._move(_CORRECT, cluster, corrections, _PUT_BACK_ERROR)

    async def record_lost_updates(self, cluster: str, changes: Sequence[LostUpdate]) -> set[str]:
        """Record lost external updates."""
        return await self._move(_RECORD_LOST_UPDATES, cluster, changes, _LOST_UPDATE_ERROR)

    async def _move(
        self, statement: TextClause, cluster: str, moves: Sequence[Correction | LostUpdate], error: str
    ) -> set[str]:
        if not moves:
            return set()
        return set(await self._database.scalars(statement, cluster=cluster, rows=_json(moves), error=error))

    async def values_before(
        self, cluster: str, keys: Mapping[str, Collection[str]]
    ) -> dict[tuple[str, str], str | None]:
        """Return the values before the changes that the cluster has not accepted yet."""
        found = await self._of_keys(_VALUES_BEFORE, cluster, keys, following=list(FOLLOWING))
        return {(row.entity_id, row.key): row.value for row in found}

    async def keys_in_open_changes(self, cluster: str, keys: Mapping[str, Collection[str]]) -> set[tuple[str, str]]:
        """Return the keys in changes that the cluster has not accepted yet."""
        found = await self._of_keys(_KEYS_IN_OPEN_CHANGES, cluster, keys, following=list(FOLLOWING))
        return {(row.entity_id, row.key) for row in found}

    async def clear_drift(self, cluster: str, revisions: Mapping[str, int | None], offset: int) -> None:
        """Drop the drift and the refusals of some entities that a poll found equal."""
        given: dict[str, Any] = {"revisions": _json(dict(revisions)), "offset": offset, "fingerprint": FINGERPRINT}
        await self._database.execute(_CLEAR_DRIFT, cluster=cluster, **given)

    async def drop(self, cluster: str, topic_ids: Mapping[str, str]) -> None:
        """Drop the states of topics that are gone."""
        if topic_ids:
            await self._database.execute(_DROP, cluster=cluster, topic_ids=_json(topic_ids))

    async def reapply(self, cluster: str, keys: Mapping[str, Collection[str]]) -> None:
        """Mark keys to send again."""
        rows = [{"entity_id": entity_id, "keys": sorted(each)} for entity_id, each in keys.items()]
        await self._database.execute(_REAPPLY, cluster=cluster, rows=_json(rows))

    async def undelivered(self, cluster: str) -> list[str]:
        """Return the entities with a due or open delivery."""
        return await self._database.scalars(_UNDELIVERED, cluster=cluster)

    async def drifting_entities(self, cluster: str) -> list[str]:
        """Return the entities that are open, refused, or left alone."""
        return await self._database.scalars(_DRIFTING, cluster=cluster)

    async def authors(self, cluster: str, keys: Mapping[str, Collection[str]]) -> dict[tuple[str, str], Author]:
        """Return the authors of the newest changes of keys."""
        found = await self._of_keys(_AUTHORS, cluster, keys)
        return {(row.entity_id, row.key): Author(row.principal, round(row.time.timestamp() * 1000)) for row in found}

    async def _of_keys(
        self, statement: TextClause, cluster: str, keys: Mapping[str, Collection[str]], **more: Any
    ) -> Sequence[Row[Any]]:
        """Return the rows of a statement on the newest changes of keys, by entity id."""
        asked = [{"entity_id": entity_id, "key": key} for entity_id, each in keys.items() for key in each]
        parameters = {"cluster": cluster, "rows": _json(asked), "most": MOST_CHANGES}
        return await self._database.rows(statement, **parameters, **more) if asked else ()

    async def forget(self, cluster: str, entity_types: Collection[KraftEntityType]) -> None:
        """Drop the states of some of a cluster's entity types."""
        types = [kind.value for kind in EntityType if kraft_type_of_entity_type(kind) in entity_types]
        for statement in _FORGET:
            await self._database.execute(statement, cluster=cluster, types=types, day_s=_DAY_S)


def _json(value: object) -> str:
    return orjson.dumps(value).decode()


def _row(result: DeliveryOutcome) -> dict[str, Any]:
    delivery, outcome = result.delivery, result.outcome
    refused = outcome if isinstance(outcome, AlterRefused) else None
    return {
        "entity_id": delivery.entity_id,
        "mzxid": delivery.mzxid,
        "claim": delivery.id,
        "values": delivery.values,
        "taken": isinstance(outcome, AlterApplied),
        "offset": result.offset,
        "code": None if refused is None else refused.code,
        "said": None if refused is None else refused.text,
        "drift": result.drift,
    }


def _state(row: Row[Any]) -> TargetState:
    sent: dict[str, list[str | None]] = {}
    uncertain: dict[str, list[str | None]] = {}
    taken_at: dict[str, int] = {}
    for key, value, unended, taken in row.sent:
        sent.setdefault(key, []).append(value)
        if taken is not None and key in row.applied and row.applied[key] == value:
            taken_at[key] = taken
        if unended:
            uncertain.setdefault(key, []).append(value)
            if taken is None:
                # Sent after the accepted value, and may have arrived since.
                taken_at.pop(key, None)
    refused = None if row.refused_code is None else AlterRefused(row.refused_code, row.refused_text or "")
    return TargetState(
        row.entity_id,
        row.sent_mzxid,
        row.applied_mzxid,
        row.applied_offset,
        row.applied,
        sent,
        uncertain,
        refused,
        frozenset(row.reapply),
        {
            key: DriftRecord(
                DriftCause(each["cause"]),
                each["theirs"],
                each["since_ms"],
                RefusedValue(**each["refused"]) if each.get("refused") else None,
            )
            for key, each in row.drift.items()
        },
        row.put_back_at,
        row.topic_id,
        {key: BaseValue(each["value"], each["offset"]) for key, each in row.base.items()},
        taken_at,
        row.under_way,
    )
