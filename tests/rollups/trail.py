"""A small trail with everything that is odd, and what the frames of it are, worked out row by row in Python."""

from __future__ import annotations

import asyncio
import json
from collections import Counter
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any

import psycopg
from psycopg.rows import dict_row

from confplane.audit import Database, PostgresAuditLog
from confplane.services.ports.trail import RELOAD
from tests.audit.rows import change_id, committed, entity, intent, rejected, run

if TYPE_CHECKING:
    from collections.abc import Iterable

    from pyspark.sql import DataFrame

    from confplane.services.ports.trail import Intent, Outcome

CLUSTER = "payments"
START_MS = 1_770_000_000_000
ODD = 'O\'Brien \\ "x" \t\n{} é 🐘'
EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
REPORTED_SINCE = datetime(2026, 1, 1, tzinfo=UTC)
"""Between the time of the report that is forgotten and the times of all others."""


def write(dsn: str, intents: Iterable[Intent], outcomes: Iterable[Outcome] = ()) -> None:
    """Write intents, then outcomes, as the service does."""

    async def write_all() -> None:
        pool = Database(dsn, 4)
        log = PostgresAuditLog(pool)
        try:
            await log.intend(list(intents))
            assert await log.conclude(list(outcomes))
        finally:
            await log.close()
            await pool.close()

    asyncio.run(write_all())


def own(number: int, *entities: Any, **more: Any) -> Intent:
    """The number-th change."""
    return intent(change_id(START_MS + number * 1_000, number), *entities, **{"cluster": CLUSTER, **more})


def fill(dsn: str) -> None:
    """Write one of each kind."""
    batch = [entity(f"user=u{number}", before={}, after={"a": ODD}) for number in range(3)]
    first, again = own(2, *batch), own(2, *batch[1:], attempt=2, reason=None)
    plain = own(1, entity("user=~7E", ODD, before={ODD: ODD}, after={ODD: None}, path=f"/config/{ODD}"), reason=ODD)
    same = {"producer_byte_rate": "1"}
    alone = own(4, entity(before=same, after=same), kind=RELOAD)
    refused, twice = own(3), own(5, entity(version_read=None, czxid_read=None, keys=()))
    retried = own(5, entity("user=twice"), attempt=2)
    freeze = own(6, entity("freeze", facet="freeze", path="/confplane/freeze", ops=(), before={}, after={}))
    elsewhere = own(7, cluster="elsewhere")
    done = [
        committed(plain, revision=1, versions={f"/config/{ODD}": 7}),
        committed(again, versions={each.path: number for number, each in enumerate(batch[1:])}),
        rejected(refused),
        committed(freeze, versions={}),
        committed(elsewhere),
    ]
    write(dsn, [plain, first, refused, alone, twice, freeze, elsewhere])
    write(dsn, [again, retried], done)
    run(
        dsn,
        f"""
        INSERT INTO intents (change_id, attempt, cluster, principal, writer, source, request_id, kind, writes)
        VALUES ('{change_id(START_MS + 1_500, 8)}', 1, '{CLUSTER}', 'External:unknown', '', 'zookeeper', '', 'external', 3);
        INSERT INTO intent_entities (change_id, attempt, position, cluster, entity_id, facet, path, version_read,
          czxid_read, keys, ops, before, after)
        VALUES ('{change_id(START_MS + 1_500, 8)}', 1, 0, '{CLUSTER}', 'topic=t', 'node', '/config/topics/t', 2, 9,
          '{{"NULL",a b,"c,d"}}', '[]', '{{"k": null}}', '{{}}');
        INSERT INTO outcomes (change_id, attempt, cluster, committed, revision, time, versions)
        VALUES ('{change_id(START_MS + 1_500, 8)}', 1, '{CLUSTER}', true, {2**62}, '2026-02-02 02:02:02.002Z', '{{}}');
        INSERT INTO registrations (event, cluster, entity_id, software_name, software_version, supported_configs, seen_at, seen_on)
        SELECT 'seen', cluster, 'user=' || chr(97 + n % 5), 'lib', '1.' || n, CASE n % 3 WHEN 0 THEN '{{}}'::text[]
          ELSE ARRAY['acks', 'NULL', 'é'',x'] END, timestamptz '2026-01-01Z' + n * interval '1 hour 1 microsecond', '2026-01-01'
        FROM generate_series(1, 40) AS n, unnest(ARRAY['{CLUSTER}', 'elsewhere']) AS cluster;
        INSERT INTO registrations (event, cluster, entity_id, principal, request_id)
        VALUES ('cleared', '{CLUSTER}', 'user=a', 'p', 'r'), ('cleared', '{CLUSTER}', NULL, 'p', 'r');
        INSERT INTO registrations (event, cluster, entity_id, software_name, software_version, supported_configs, seen_at, seen_on)
        SELECT 'seen', '{CLUSTER}', 'user=u' || n, 'lib', '2', ARRAY['acks'], now(), current_date FROM generate_series(1, 5) AS n;
        INSERT INTO refused_attempts (id, cluster, principal, operation, entity_id, keys, error_code, problem, request_id, count)
        SELECT given.id, '{CLUSTER}', 'User:x', 'putClientQuotas', given.entity_id, given.keys, 44, 'policy-violation', 'r', given.count
        FROM (VALUES
          (uuid '{change_id(START_MS + 9_000, 1)}', 'user=~7E', ARRAY['NULL', 'é'',x'], 1),
          (uuid '{change_id(START_MS + 9_000, 2)}', NULL, '{{}}'::text[], 9940)
        ) AS given(id, entity_id, keys, count);
        INSERT INTO refused_attempts (id, cluster, principal, operation, keys, error_code, problem, count)
        VALUES ('{change_id(START_MS, 3)}', 'elsewhere', 'User:x', 'o', '{{}}', 44, 'p', 1);
        INSERT INTO applied_reports (cluster, entity_id, instance_id, software_name, software_version, applied_revision,
          refused, reported_at)
        SELECT cluster, 'user=u' || n, 'i' || n, 'lib', '2', {2**61} + n, CASE n % 2 WHEN 0 THEN '[]'::jsonb
          ELSE '[["acks", "a reason"], ["é'',x", ""]]' END, CASE n WHEN 9 THEN timestamptz '2025-12-31Z' ELSE timestamptz '2999-01-01Z' END
        FROM generate_series(1, 9) AS n, unnest(ARRAY['{CLUSTER}', 'elsewhere']) AS cluster;
        INSERT INTO entity_states (cluster, tree, entity_id, present, czxid, version, mzxid, content)
        SELECT cluster, tree, 'user=' || n, n % 2 = 0, n, n, {2**61} + n, jsonb_build_object('k', n::text, 's', NULL)
        FROM generate_series(1, 9) AS n, unnest(ARRAY['{CLUSTER}', 'elsewhere']) AS cluster,
          unnest(ARRAY['/config', '/confplane/client-configs']) AS tree;
        """,  # noqa: S608 - constants of this module
    )


def tables(dsn: str, cluster: str, as_of: datetime | None = None) -> dict[str, list[dict[str, Any]]]:
    """The rows of a cluster in the tables, up to a moment."""
    with psycopg.connect(dsn, row_factory=dict_row) as connection:
        found = {
            table: connection.execute(f"SELECT * FROM {table} WHERE cluster = %s", (cluster,)).fetchall()  # noqa: S608 - literals
            for table in (
                "intents",
                "intent_entities",
                "outcomes",
                "registrations",
                "entity_states",
                "applied_reports",
                "refused_attempts",
            )
        }
    return {
        table: [row for row in rows if as_of is None or row.get("recorded_at", as_of) <= as_of]
        for table, rows in found.items()
    }


def expected(dsn: str, name: str, cluster: str = CLUSTER, as_of: datetime | None = None) -> list[dict[str, Any]]:
    """The rows of a frame."""
    found = tables(dsn, cluster, as_of)
    if name == "states":
        return [
            _without(row, "cluster", "accounted_at", "first_version", "first_czxid", "owners", "labels")
            for row in found["entity_states"]
        ]
    if name == "refused_attempts":
        return [
            {
                **_without(row, "cluster", "behalf_of", "operation", "problem", "request_id", "recorded_at"),
                "id": str(row["id"]),
                "created_at": EPOCH + timedelta(milliseconds=row["id"].int >> 80),
            }
            for row in found["refused_attempts"]
        ]
    if name == "reports":
        return [
            {
                **_without(row, "cluster", "version", "refused", "reported_at"),
                "refused_configs": [key for key, _ in row["refused"]],
            }
            for row in found["applied_reports"]
            if row["reported_at"] >= REPORTED_SINCE
        ]
    if name == "registration_events":
        return [_without(row, "cluster", "seen_on", "principal", "request_id") for row in found["registrations"]]
    outcomes = {row["change_id"]: row for row in found["outcomes"]}
    last: dict[Any, int] = {}
    for row in found["intents"]:
        last[row["change_id"]] = max(row["attempt"], last.get(row["change_id"], 0))
    rows = []
    for made in found["intents"]:
        outcome = outcomes.get(made["change_id"])
        if made["attempt"] != (outcome["attempt"] if outcome else last[made["change_id"]]):
            continue
        rows += [
            _change(made, each, outcome)
            for each in found["intent_entities"]
            if (each["change_id"], each["attempt"]) == (made["change_id"], made["attempt"])
        ]
    return rows


def _change(made: dict[str, Any], each: dict[str, Any], outcome: dict[str, Any] | None) -> dict[str, Any]:
    done = outcome is not None and outcome["committed"]
    ended = outcome or {}
    return {
        **_without(made, "cluster", "writer", "behalf_of", "observed", "reverts", "revert_at", "ends", "applies"),
        **_without(each, "cluster", "claim"),
        "change_id": str(made["change_id"]),
        "created_at": EPOCH + timedelta(milliseconds=made["change_id"].int >> 80),
        "outcome": "open" if outcome is None else "committed" if done else "rejected",
        "revision": ended["revision"] if done else None,
        "time": ended["time"] if done else None,
        "version": ended["versions"].get(each["path"]) if done else None,
        "error_code": ended.get("error_code"),
        "error": ended.get("error"),
        "concluded_at": ended.get("recorded_at"),
    }


def _without(row: dict[str, Any], *names: str) -> dict[str, Any]:
    return {name: value for name, value in row.items() if name not in names}


def collected(frame: DataFrame) -> list[dict[str, Any]]:
    """The rows of a frame; times in UTC."""
    return [
        {name: value.astimezone(UTC) if isinstance(value, datetime) else value for name, value in row.asDict().items()}
        for row in frame.collect()
    ]


def same(found: list[dict[str, Any]], wanted: list[dict[str, Any]]) -> bool:
    """Assert that the rows are the same in whatever order."""
    have, want = Counter(map(_text, found)), Counter(map(_text, wanted))
    assert have == want, (sorted((have - want).elements())[:2], sorted((want - have).elements())[:2])
    return True


def _text(row: dict[str, Any]) -> str:
    return repr({name: _plain(name, row[name]) for name in sorted(row)})


def _plain(name: str, value: Any) -> Any:
    if name == "ops" and isinstance(value, str):
        return json.loads(value)
    if isinstance(value, datetime):
        return value.isoformat()
    if isinstance(value, dict):
        return sorted(value.items())
    return value
