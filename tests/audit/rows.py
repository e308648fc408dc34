"""Intents and outcomes for tests, and what stands in the tables."""

from __future__ import annotations

from typing import Any
from uuid import UUID

import psycopg
from uuid_utils.compat import uuid7

from confplane.services.ports.trail import Intent, IntentEntity, Outcome

TABLES = (
    *("access_changes", "change_keys", "change_request_events", "change_request_revisions", "intent_entities"),
    *("intents", "outcomes", "registrations"),
)
"""Of what is recorded for good."""
EXPIRING = ("refused_attempts",)
"""Of what is recorded, and removed by the owner's function once it is old."""
TRANSIENT = (
    *("applied_reports", "console_sessions", "deliveries", "manifest_runs", "request_changes", "request_keys"),
    *("rollup_partitions", "rollup_parts", "rollup_rows", "rollup_runs", "webhook_deliveries"),
)
POSITIONS = (
    *(
        "applied_entities",
        "applied_keys",
        "change_request_numbers",
        "change_requests",
        "entity_states",
        "observed_topics",
        "schedule_pauses",
        "schedules",
        "store_positions",
        "target_states",
    ),
    *("topic_polls", "watermarks", "webhooks"),
)
CURRENT = ("access_version", "grants", "tokens")
"""Tables that are no history; the service may update them."""


def change_id(time_ms: int, number: int) -> UUID:
    """A UUIDv7 of that millisecond, the number-th in it."""
    return UUID(int=time_ms << 80 | 0x7 << 76 | 0x2 << 62 | number)


def entity(entity_id: str = "user=alice", *keys: str, **overrides: Any) -> IntentEntity:
    given: dict[str, Any] = {
        "entity_id": entity_id,
        "facet": "client-quotas",
        "path": f"/config/{entity_id}",
        "version_read": 3,
        "czxid_read": 2**40,
        "keys": keys or ("producer_byte_rate",),
        "ops": (
            {"key": "producer_byte_rate", "op": "SET", "value": 1024},
            {"key": "request_percentage", "op": "DELETE", "value": None},
        ),
        "before": {"producer_byte_rate": None, "request_percentage": "12.5"},
        "after": {"producer_byte_rate": "1024"},
    }
    return IntentEntity(**{**given, **overrides})


def intent(id_: UUID | None = None, *entities: IntentEntity, **overrides: Any) -> Intent:
    given: dict[str, Any] = {
        "change_id": id_ or uuid7(),
        "attempt": 1,
        "cluster": "payments",
        "writer": "w-1",
        "principal": "User:admin",
        "source": "10.0.0.9",
        "request_id": "r-1",
        "reason": "as agreed\nwith «Zoë» 🐘",
        "ticket": None,
        "entities": entities or (entity(),),
    }
    return Intent(**{**given, **overrides})


def committed(of: Intent, **overrides: Any) -> Outcome:
    given: dict[str, Any] = {
        "change_id": of.change_id,
        "attempt": of.attempt,
        "cluster": of.cluster,
        "committed": True,
        "revision": 2**41 + 7,
        "time_ms": 1_763_682_000_123,
        "versions": {one.path: 4 for one in of.entities},
    }
    return Outcome(**{**given, **overrides})


def rejected(of: Intent) -> Outcome:
    return Outcome(of.change_id, of.attempt, of.cluster, committed=False, error_code=95, error="changed meanwhile")


def fetch(dsn: str, sql: str, *parameters: object) -> list[tuple[Any, ...]]:
    """Run a query on a connection of its own."""
    with psycopg.connect(dsn, autocommit=True) as connection:
        return connection.execute(sql, parameters).fetchall()


def run(dsn: str, sql: str) -> None:
    """Run a statement on a connection of its own."""
    with psycopg.connect(dsn, autocommit=True) as connection:
        connection.execute(sql)


def past_the_trigger(dsn: str, table: str, sql: str) -> None:
    """Run a statement that the trigger of an append-only table forbids."""
    run(
        dsn,
        f"ALTER TABLE {table} DISABLE TRIGGER append_only; {sql};ALTER TABLE {table} ENABLE ALWAYS TRIGGER append_only",
    )


def age(dsn: str, table: str, seconds: int) -> None:
    """Make the rows of a table look older."""
    past_the_trigger(dsn, table, f"UPDATE {table} SET recorded_at = recorded_at - interval '{seconds} s'")  # noqa: S608 - literals at every call


def count(dsn: str, table: str) -> int:
    number: int = fetch(dsn, f"SELECT count(*) FROM {table}")[0][0]  # noqa: S608 - a literal at every call
    return number
