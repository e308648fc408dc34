"""The tables of the trail and the registrations, of Idempotency-Keys, recorder and rollups, and of tokens and grants.

All tables are append-only, enforced by triggers that the migrations create, except for :data:`TRANSIENT`,
:data:`POSITIONS` and :data:`CURRENT`. Rows of registrations expire (``audit/registrations.py``), and the triggers of
``refused_attempts`` allow the removal of rows of more than 90 days.

Every primary key of the trail contains the change id, so that range partitioning by it remains possible. Change ids are
UUIDv7: they are ordered by time, and the first 48 bits are a time in milliseconds, by ZooKeeper's clock or the clock of
the process that made the id. So a search by time reads a range of ids, and in addition the few changes whose ids are
far from their times because a clock was wrong. Two indexes contain only those. Another index on a time finds the rows
written since a given time of Postgres's own clock.

There are no foreign keys: rows that belong together are written by one statement, and an outcome may have no intent (a
marker found in ZooKeeper after Postgres lost data).
"""

from __future__ import annotations

from typing import Final

from sqlalchemy import (
    BigInteger,
    Boolean,
    CheckConstraint,
    Column,
    Date,
    DateTime,
    Identity,
    Index,
    Integer,
    LargeBinary,
    MetaData,
    Table,
    Text,
    UniqueConstraint,
    func,
    text,
)
from sqlalchemy.dialects.postgresql import ARRAY, JSONB, UUID

metadata: Final = MetaData(
    naming_convention={
        "ix": "ix_%(table_name)s_%(column_0_N_name)s",
        "uq": "uq_%(table_name)s_%(column_0_N_name)s",
        "ck": "ck_%(table_name)s_%(constraint_name)s",
        "fk": "fk_%(table_name)s_%(column_0_N_name)s_%(referred_table_name)s",
        "pk": "pk_%(table_name)s",
    }
)


def _name(name: str, *, primary_key: bool = False) -> Column[str]:
    # Code-point order, for any locale of the database: cursors compare names in SQL and in Python.
    return Column(name, Text(collation="C"), primary_key=primary_key, nullable=False)


def _recorded_at() -> Column[object]:
    return Column("recorded_at", DateTime(timezone=True), nullable=False, server_default=func.now())


FAR_S: Final = 60
"""Maximum number of seconds between the time in a change's id and the change's time; beyond it the id is *far*."""
_ID_MS: Final = "('x' || left(change_id::text, 8) || substr(change_id::text, 10, 4))::bit(48)::bigint"


def _far(moment: str) -> str:
    # An equality, so that Postgres expects few rows to match: it would expect most rows to pass the comparison itself.
    off = f"{moment} - to_timestamp({_ID_MS} / 1000.0::float8)"
    return f"CASE WHEN {off} NOT BETWEEN interval '-{FAR_S} s' AND interval '{FAR_S} s' THEN 1 END = 1"


FAR_INTENT: Final = text(f"kind IN ('change', 'reload', 'import', 'observed') AND {_far('recorded_at')}")
"""An intent of the writing path whose id is far from the time at which Postgres recorded it. The recorder's kinds have
outcomes with times."""
FAR_OUTCOME: Final = text(_far('"time"'))
"""An outcome whose change's id is far from its time."""

WAITING_STATES: Final = "('open', 'approved', 'scheduled', 'applying')"
"""SQL for the states of change requests that the leader or people have to attend to."""

FROM_OUTSIDE: Final = text("kind IN ('external', 'put-back')")
"""An intent of the changes that the feed looks up by the time at which they were recorded."""

intents: Final = Table(
    "intents",
    metadata,
    Column("change_id", UUID, primary_key=True),
    Column("attempt", Integer, primary_key=True),
    _name("cluster"),
    _name("principal"),
    Column("writer", Text, nullable=False),
    Column("source", Text, nullable=False),
    Column("request_id", Text, nullable=False),
    Column("reason", Text),
    Column("ticket", Text),
    _recorded_at(),
    Column("kind", Text, nullable=False, server_default="change"),
    Column("writes", Integer),
    Column("behalf_of", Text),
    Column("observed", JSONB),
    Column("reverts", ARRAY(UUID)),
    Column("revert_at", DateTime(timezone=True)),
    Column("ends", UUID),
    Column("applies", UUID),
    Index(None, "cluster", "change_id"),
    Index(None, "cluster", "principal", "change_id"),
    Index(None, "cluster", "request_id", "change_id"),
    Index(None, "cluster", "recorded_at"),
    Index("ix_intents_from_outside", "cluster", "recorded_at", postgresql_where=FROM_OUTSIDE),
    Index("ix_intents_far", "cluster", "recorded_at", "change_id", postgresql_where=FAR_INTENT),
    Index("ix_intents_temporary", "cluster", "recorded_at", postgresql_where=text("revert_at IS NOT NULL")),
    Index("ix_intents_ends", "ends", postgresql_where=text("ends IS NOT NULL")),
    Index("ix_intents_applies", "applies", postgresql_where=text("applies IS NOT NULL")),
    comment="One row per attempt of a change, durable before its ZooKeeper transaction is submitted",
)

intent_entities: Final = Table(
    "intent_entities",
    metadata,
    Column("change_id", UUID, primary_key=True),
    Column("attempt", Integer, primary_key=True),
    Column("position", Integer, primary_key=True),
    _name("cluster"),
    _name("entity_id"),
    Column("facet", Text, nullable=False),
    Column("path", Text, nullable=False),
    Column("version_read", Integer),
    Column("czxid_read", BigInteger),
    Column("keys", ARRAY(Text), nullable=False),
    Column("ops", JSONB, nullable=False),
    Column("before", JSONB, nullable=False),
    Column("after", JSONB, nullable=False),
    Column("claim", JSONB),
    Index(None, "cluster", "entity_id", "change_id"),
    comment="The entities of an intent, several in an atomic batch: what was read, asked, and to be stored",
)

# A table, because a GIN index on intent_entities.keys finds a key but not its newest changes, and nearly every change
# names one of a handful of keys.
change_keys: Final = Table(
    "change_keys",
    metadata,
    _name("cluster", primary_key=True),
    _name("key", primary_key=True),
    Column("change_id", UUID, primary_key=True),
    comment="Which changes meant to alter a key, in any of their attempts",
)

outcomes: Final = Table(
    "outcomes",
    metadata,
    Column("change_id", UUID, primary_key=True),
    Column("attempt", Integer, nullable=False),
    _name("cluster"),
    Column("committed", Boolean, nullable=False),
    Column("revision", BigInteger),
    Column("time", DateTime(timezone=True)),
    Column("versions", JSONB, nullable=False),
    Column("error_code", Integer),
    Column("error", Text),
    _recorded_at(),
    Column("remade", JSONB),
    Column("incarnation", Integer, nullable=False, server_default=text("1")),
    CheckConstraint("NOT committed OR (revision IS NOT NULL AND time IS NOT NULL)", name="committed_is_whole"),
    Index("ix_outcomes_rejected", "cluster", "change_id", postgresql_where=text("NOT committed")),
    Index("ix_outcomes_cluster_revision", "cluster", "revision", postgresql_where=text("committed")),
    Index("ix_outcomes_far", "cluster", "time", "change_id", postgresql_where=FAR_OUTCOME),
    comment="How a change ended; the first outcome stands",
)

refused_attempts: Final = Table(
    "refused_attempts",
    metadata,
    Column("id", UUID, primary_key=True),
    _name("cluster"),
    _name("principal"),
    Column("behalf_of", Text),
    _name("operation"),
    Column("entity_id", Text(collation="C")),
    Column("keys", ARRAY(Text), nullable=False),
    Column("error_code", Integer, nullable=False),
    _name("problem"),
    Column("request_id", Text),
    Column("count", Integer, nullable=False),
    _recorded_at(),
    Index(None, "cluster", "id"),
    Index(None, "cluster", "entity_id", "id", postgresql_where=text("entity_id IS NOT NULL")),
    Index(None, "cluster", "principal", "id"),
    Index(None, "cluster", "request_id", "id", postgresql_where=text("request_id IS NOT NULL")),
    Index(None, "recorded_at"),
    comment="Writes that were refused before they were begun, without values; kept for 90 days",
)

registrations: Final = Table(
    "registrations",
    metadata,
    Column("id", BigInteger, Identity(always=True), primary_key=True),
    _name("event"),
    _name("cluster"),
    Column("entity_id", Text(collation="C")),
    Column("software_name", Text(collation="C")),
    Column("software_version", Text(collation="C")),
    Column("supported_configs", ARRAY(Text(collation="C"))),
    Column("seen_at", DateTime(timezone=True)),
    Column("seen_on", Date),
    Column("principal", Text),
    Column("request_id", Text),
    _recorded_at(),
    CheckConstraint(
        "CASE event"
        " WHEN 'seen' THEN"
        " num_nulls(entity_id, software_name, software_version, supported_configs, seen_at, seen_on) = 0"
        " WHEN 'cleared' THEN num_nulls(principal, request_id) = 0"
        " ELSE false END",
        name="event_is_whole",
    ),
    Index("ix_registrations_seen", "cluster", "entity_id", "seen_on", postgresql_where=text("event = 'seen'")),
    Index("ix_registrations_cleared", "cluster", "entity_id", "id", postgresql_where=text("event = 'cleared'")),
    comment="Which configs a client software supports, at most one row a day for each; and who cleared them when",
)

applied_reports: Final = Table(
    "applied_reports",
    metadata,
    _name("cluster", primary_key=True),
    _name("entity_id", primary_key=True),
    _name("instance_id", primary_key=True),
    Column("software_name", Text, nullable=False),
    Column("software_version", Text, nullable=False),
    Column("applied_revision", BigInteger, nullable=False),
    Column("refused", JSONB, nullable=False),
    Column("reported_at", DateTime(timezone=True), nullable=False),
    Column("version", BigInteger, Identity(), nullable=False),
    Index(None, "version"),
    comment="The last report of each running client on the client configs that it has taken over",
)

request_keys: Final = Table(
    "request_keys",
    metadata,
    _name("key", primary_key=True),
    Column("id", UUID, nullable=False),
    Column("holder", UUID, nullable=False),
    _name("cluster"),
    _name("body"),
    Column("writer", Text, nullable=False),
    Column("until", DateTime(timezone=True), nullable=False),
    Column("status", Integer),
    Column("headers", JSONB),
    Column("answer", Text),
    _recorded_at(),
    Column("needs", ARRAY(Text)),
    CheckConstraint("num_nulls(status, headers, answer) IN (0, 3)", name="answer_is_whole"),
    UniqueConstraint("id"),
    Index(None, "recorded_at"),
    comment="Requests with an Idempotency-Key: whose turn it is, until when, and the answer; purged after a day",
)

request_changes: Final = Table(
    "request_changes",
    metadata,
    Column("key_id", UUID, primary_key=True),
    Column("change_id", UUID, primary_key=True),
    Column("attempt", Integer, primary_key=True),
    Column("results", JSONB, nullable=False),
    comment="The changes of those requests, and what each would be answered with; purged with them",
)

entity_states: Final = Table(
    "entity_states",
    metadata,
    _name("cluster", primary_key=True),
    _name("tree", primary_key=True),
    _name("entity_id", primary_key=True),
    Column("present", Boolean, nullable=False),
    Column("czxid", BigInteger, nullable=False),
    Column("version", Integer, nullable=False),
    Column("mzxid", BigInteger, nullable=False),
    Column("content", JSONB, nullable=False),
    Column("accounted_at", DateTime(timezone=True), nullable=False, server_default=func.now()),
    Column("first_version", Integer),
    Column("first_czxid", BigInteger),
    Column("owners", JSONB),
    Column("labels", JSONB),
    Index("ix_entity_states_owned", "cluster", "tree", "entity_id", postgresql_where=text("owners IS NOT NULL")),
    Index("ix_entity_states_absent", "cluster", "tree", "entity_id", postgresql_where=text("NOT present")),
    comment="The last state of each entity that the trail explains; a position, which moves",
)

watermarks: Final = Table(
    "watermarks",
    metadata,
    _name("cluster", primary_key=True),
    Column("revision", BigInteger, nullable=False),
    Column("complete", Boolean, nullable=False),
    _recorded_at(),
    Column("since", BigInteger),
    Column("since_at", DateTime(timezone=True)),
    comment="Up to which revision the trail of a cluster is complete; a position, which moves",
)

store_positions: Final = Table(
    "store_positions",
    metadata,
    _name("cluster", primary_key=True),
    Column("incarnation", Integer, nullable=False),
    Column("id", Text, nullable=False),
    Column("cversion", Integer, nullable=False),
    Column("pzxid", BigInteger, nullable=False),
    Column("rejected", Text),
    _recorded_at(),
    comment="The incarnation of each cluster's ZooKeeper, and its last known position; a position, which moves",
)

OPEN: Final = text("refused_code IS NULL AND applied_mzxid <> sent_mzxid")
"""An entity with a revision that was sent and has no outcome yet, or that must be sent again."""
REFUSED: Final = text("refused_code IS NOT NULL")
"""An entity whose values the Kafka cluster refused as a whole."""
DIFFERING: Final = text("state NOT IN ('applied', 'observed')")
"""A key that is to be sent again, or that differs from the Kafka cluster and is left alone."""
UNKNOWN: Final = text("outcome IS NULL")
"""A delivery without a known outcome."""

applied_entities: Final = Table(
    "applied_entities",
    metadata,
    _name("cluster", primary_key=True),
    _name("entity_id", primary_key=True),
    Column("sent_mzxid", BigInteger, nullable=False, server_default="0"),
    Column("applied_mzxid", BigInteger, nullable=False, server_default="0"),
    Column("applied_offset", BigInteger, nullable=False, server_default="-1"),
    Column("topic_id", Text),
    Column("delivery_id", UUID),
    Column("refused_code", Integer),
    Column("refused_text", Text),
    Index("ix_applied_entities_open", "cluster", "entity_id", postgresql_where=OPEN),
    Index("ix_applied_entities_refused", "cluster", "entity_id", postgresql_where=REFUSED),
    comment="The revisions of each entity that a Kafka cluster was sent, and has taken; a position, which moves",
)
"""``delivery_id`` is that of the newest delivery if it has no outcome."""

UNIQUE_KEY: Final = "(cluster, entity_id, hashtextextended(key, 0))"
"""SQL for the unique columns of ``applied_keys``. A Kafka cluster may have keys that are longer than an index takes."""
_KEY_HASH: Final = text("hashtextextended(key, 0)")

applied_keys: Final = Table(
    "applied_keys",
    metadata,
    _name("cluster"),
    _name("entity_id"),
    _name("key"),
    Column("state", Text, nullable=False),
    Column("taken", Boolean, nullable=False, server_default="false"),
    Column("value", Text),
    Column("offset", BigInteger),
    Column("delivered_at", DateTime(timezone=True)),
    Column("theirs", Text),
    Column("since", DateTime(timezone=True)),
    Column("refused_value", Text),
    Column("refused_code", Integer),
    Column("refused_text", Text),
    Column("refused_absent", Boolean),
    Column("put_back_at", ARRAY(DateTime(timezone=True)), nullable=False, server_default="{}"),
    Column("base_value", Text),
    Column("base_offset", BigInteger),
    Index("uq_applied_keys", "cluster", "entity_id", _KEY_HASH, unique=True),
    Index("ix_applied_keys_differing", "cluster", "entity_id", postgresql_where=DIFFERING),
    comment="The state of each key that this service changed in a Kafka cluster; a position, which moves",
)
"""The columns, by subject:

- ``state``: ``applied`` (the cluster has taken a value), ``observed`` (it has not), ``resend``, ``refused``,
  ``contested`` or ``extra``;
- ``taken``, ``value``, ``offset``, ``delivered_at``: the value that the cluster has taken, NULL for a removal, a
  metadata offset after that, and the time of its delivery. A secret's fingerprint replaces its value everywhere;
- ``theirs``, ``since``: the cluster's value of a key that is left alone, and since when;
- ``refused_...``: the value that the cluster refused, with its answer;
- ``put_back_at``: the recent times at which the key was put back;
- ``base_...``: the cluster's value that a queued change replaces, if a poll recorded it."""

deliveries: Final = Table(
    "deliveries",
    metadata,
    _name("cluster"),
    _name("entity_id"),
    Column("mzxid", BigInteger, nullable=False),
    Column("id", UUID, nullable=False),
    _name("key"),
    Column("value", Text),
    Column("sent_at", DateTime(timezone=True), nullable=False, server_default=func.clock_timestamp()),
    Column("outcome", Text),
    Column("offset", BigInteger),
    Column("ended_at", DateTime(timezone=True)),
    Index("uq_deliveries", "cluster", "entity_id", "mzxid", "id", _KEY_HASH, unique=True),
    Index("ix_deliveries_unknown", "cluster", "entity_id", postgresql_where=UNKNOWN),
    Index("ix_deliveries_sent_at", "sent_at"),
    comment="The values sent to Kafka clusters, with their outcomes; rows of more than 30 days are removed",
)
"""``outcome`` is ``applied``, ``refused``, ``not-sent``, ``late`` (a stale in-flight write, which arrived) or
``outdated`` (the topic is gone). NULL: it is unknown, and the value may arrive within a day of ``sent_at``."""

target_states: Final = Table(
    "target_states",
    metadata,
    _name("cluster", primary_key=True),
    _name("entity_id", primary_key=True),
    Column("sent_mzxid", BigInteger, nullable=False),
    Column("sent_at", DateTime(timezone=True), nullable=False, server_default=func.now()),
    Column("sent", JSONB, nullable=False),
    Column("applied_mzxid", BigInteger),
    Column("applied_offset", BigInteger, nullable=False, server_default="-1"),
    Column("applied", JSONB, nullable=False, server_default="{}"),
    Column("refused_code", Integer),
    Column("refused_text", Text),
    Column("reapply", JSONB, nullable=False, server_default="[]"),
    Column("drift", JSONB, nullable=False, server_default="{}"),
    Column("put_back_at", JSONB, nullable=False, server_default="{}"),
    Column("topic_id", Text),
    Column("claim", UUID),
    Column("base", JSONB, nullable=False, server_default="{}"),
    Index(
        "ix_target_states_to_be_sent",
        "cluster",
        "entity_id",
        postgresql_where=text(
            "refused_code IS NULL AND (applied_mzxid IS DISTINCT FROM sent_mzxid OR reapply <> '[]')"
        ),
    ),
    Index(
        "ix_target_states_left_alone",
        "cluster",
        "entity_id",
        postgresql_where=text("refused_code IS NOT NULL OR drift <> '{}'"),
    ),
    comment="Values sent to a Kafka cluster, and its last known state, of each entity; a position, which moves",
)
"""The states of earlier releases, whose rows the leader moves (``audit/earlier_states.py``). Drop the table once no
release that writes it can be upgraded from."""

topic_polls: Final = Table(
    "topic_polls",
    metadata,
    _name("cluster", primary_key=True),
    Column("version", BigInteger, nullable=False),
    Column("polled_at", DateTime(timezone=True)),
    Column("topics", BigInteger, nullable=False),
    comment="The last poll of the names of each cluster's topics; a position, which moves",
)

observed_topics: Final = Table(
    "observed_topics",
    metadata,
    _name("cluster", primary_key=True),
    _name("name", primary_key=True),
    Column("topic_id", Text, nullable=False),
    comment="The topics of each Kafka cluster without ZooKeeper as of that poll; a position, which moves",
)

rollup_runs: Final = Table(
    "rollup_runs",
    metadata,
    Column("id", UUID, primary_key=True),
    _name("cluster"),
    _name("job"),
    Column("state", Text, nullable=False),
    Column("attempt", Integer, nullable=False, server_default="1"),
    Column("as_of", DateTime(timezone=True), nullable=False),
    Column("position", JSONB, nullable=False),
    Column("previous", UUID),
    Column("principal", Text, nullable=False),
    Column("started_at", DateTime(timezone=True), nullable=False, server_default=func.now()),
    Column("finished_at", DateTime(timezone=True)),
    Column("row_count", BigInteger),
    Column("error", Text),
    CheckConstraint("state IN ('running', 'complete', 'failed')", name="state_is_known"),
    CheckConstraint("state <> 'complete' OR num_nulls(finished_at, row_count) = 0", name="complete_is_whole"),
    Index(None, "cluster", "job", "as_of", "id"),
    comment="Runs of the rollups; the complete one with the latest as_of is a job's current one",
)

rollup_parts: Final = Table(
    "rollup_parts",
    metadata,
    Column("run_id", UUID, primary_key=True),
    Column("part", Integer, primary_key=True),
    Column("row_count", BigInteger, nullable=False),
    Column("partition", Integer, nullable=False, server_default="0"),
    comment="Which parts of a run are written, each in one transaction with its rows",
)

# No unique key prevents a second attempt at a part: with one, the second attempt would wait for the first, even if the
# first hangs. Both write concurrently, and the key of rollup_parts decides which of them commits.
rollup_rows: Final = Table(
    "rollup_rows",
    metadata,
    Column("partition", Integer, nullable=False, server_default="0"),
    Column("run_id", UUID, nullable=False),
    Column("part", Integer, nullable=False),
    Column("ordinal", Integer, nullable=False),
    Column("entity_id", Text(collation="C")),
    Column("item", JSONB, nullable=False),
    Index(None, "run_id", "part", "ordinal"),
    Index(
        "ix_rollup_rows_entity",
        *("run_id", "entity_id", "part", "ordinal"),
        postgresql_where=text("entity_id IS NOT NULL"),
    ),
    comment="The rows of runs, in the order of (part, ordinal); each run in a partition of its own",
    postgresql_partition_by="LIST (partition)",
)

rollup_partitions: Final = Table(
    "rollup_partitions",
    metadata,
    Column("number", Integer, Identity(always=True), primary_key=True),
    Column("run_id", UUID),
    Column("attempt", Integer),
    comment="The partitions of rollup_rows for single runs, each with the attempt that has it; null: it is free",
)

FUNCTIONS: Final = (
    "add_rollup_partition()",
    "empty_rollup_partition(integer)",
    "expire_registrations(bigint, integer)",
    "expire_refused_attempts()",
)
"""Functions that the service's role may call, with the rights of the owner (``audit/rollup_runs.py``,
``audit/registrations.py``, ``audit/refusals.py``)."""

access_version: Final = Table(
    "access_version",
    metadata,
    Column("only", Boolean, primary_key=True, server_default=text("true")),
    Column("version", BigInteger, nullable=False),
    Column("tokens_from", DateTime(timezone=True)),
    Column("lost_changes", ARRAY(UUID), nullable=False, server_default="{}"),
    CheckConstraint('"only"', name="one_row"),
    comment="The version of tokens and grants together; each change of one raises it",
)

tokens: Final = Table(
    "tokens",
    metadata,
    Column("id", UUID, primary_key=True),
    Column("digest", LargeBinary, nullable=False),
    _name("principal"),
    Column("groups", ARRAY(Text), nullable=False),
    Column("owner", Text),
    Column("note", Text),
    Column("narrowing", JSONB),
    Column("created_at", DateTime(timezone=True), nullable=False),
    Column("created_by", Text, nullable=False),
    Column("expires_at", DateTime(timezone=True), nullable=False),
    Column("revoked_at", DateTime(timezone=True)),
    Column("last_used_at", DateTime(timezone=True)),
    Column("replaces", UUID),
    Column("version", BigInteger, nullable=False),
    Column("created_with", UUID),
    UniqueConstraint("digest"),
    Index(None, "version"),
    Index(None, "principal", "id"),
    Index(None, "created_with", postgresql_where=text("created_with IS NOT NULL")),
    comment="API tokens, each as the SHA-256 of its text",
)

_GRANT_CONTENT: Final = (
    *("principal", "permission", text("coalesce(cluster, '')"), text("coalesce(operation, '')")),
    *(text("coalesce(role, '')"), text("coalesce(resource, '')"), "pattern", "name"),
)

grants: Final = Table(
    "grants",
    metadata,
    Column("id", UUID, primary_key=True),
    _name("principal"),
    _name("permission"),
    Column("cluster", Text(collation="C")),
    Column("operation", Text(collation="C")),
    Column("role", Text(collation="C")),
    Column("resource", Text(collation="C")),
    _name("pattern"),
    _name("name"),
    Column("note", Text),
    Column("created_at", DateTime(timezone=True), nullable=False),
    Column("created_by", Text, nullable=False),
    Column("removed_at", DateTime(timezone=True)),
    Column("change_id", UUID, nullable=False),
    Column("version", BigInteger, nullable=False),
    Column("hidden", Boolean, server_default=text("false"), nullable=False),
    CheckConstraint("num_nulls(operation, role) = 1", name="one_right"),
    Index(None, "version"),
    Index(None, "principal", "id"),
    Index("uq_grants_content", *_GRANT_CONTENT, unique=True, postgresql_where=text("removed_at IS NULL")),
    Index("uq_grants_hidden_content", *_GRANT_CONTENT, unique=True, postgresql_where=text("hidden")),
    comment="Who may do what; a removed grant stays, so that every process learns of its end",
)

access_changes: Final = Table(
    "access_changes",
    metadata,
    Column("id", UUID, primary_key=True),
    _name("kind"),
    _name("principal"),
    Column("source", Text, nullable=False),
    _name("subject"),
    Column("request_id", Text),
    Column("behalf_of", Text),
    Column("reason", Text),
    Column("ticket", Text),
    Column("before", JSONB),
    Column("after", JSONB),
    Column("count", Integer, nullable=False, server_default="1"),
    _recorded_at(),
    Index(None, "kind", "id"),
    Index(None, "principal", "id"),
    Index(None, "subject", "id"),
    Index(None, "recorded_at"),
    comment="Changes of tokens and grants, each written in its own transaction, and sums of security events",
)

console_sessions: Final = Table(
    "console_sessions",
    metadata,
    Column("digest", LargeBinary, primary_key=True),
    Column("token", LargeBinary, nullable=False),
    _name("principal"),
    Column("created_at", DateTime(timezone=True), nullable=False, server_default=func.now()),
    Column("expires_at", DateTime(timezone=True), nullable=False),
    Column("used_at", DateTime(timezone=True), nullable=False, server_default=func.now()),
    Index(None, "expires_at"),
    Index(None, "used_at"),
    comment="Sessions of the web console: the SHA-256 of the id, and the token, sealed under console_key_file",
)

manifest_runs: Final = Table(
    "manifest_runs",
    metadata,
    _name("cluster", primary_key=True),
    _name("plan_id", primary_key=True),
    Column("request_id", Text, nullable=False),
    Column("writer", Text, nullable=False),
    Column("until", DateTime(timezone=True), nullable=False),
    Column("bases", LargeBinary, nullable=False),
    _recorded_at(),
    Column("owner", Text(collation="C")),
    UniqueConstraint("cluster", "owner"),
    Index(None, "recorded_at"),
    comment="Applies of manifests: the versions of the plan, and the end of the turn; purged after a day",
)

webhooks: Final = Table(
    "webhooks",
    metadata,
    Column("id", UUID, primary_key=True),
    _name("cluster"),
    _name("name"),
    Column("slot", Integer, nullable=False),
    _name("owner"),
    Column("owner_slot", Integer, nullable=False),
    Column("groups", ARRAY(Text), nullable=False),
    Column("by_token", Boolean, nullable=False),
    Column("format", Text, nullable=False),
    Column("filter", JSONB, nullable=False),
    Column("shown_url", Text, nullable=False),
    Column("sealed", LargeBinary, nullable=False),
    Column("note", Text),
    Column("created_at", DateTime(timezone=True), nullable=False),
    Column("created_by", Text, nullable=False),
    Column("change_id", UUID, nullable=False),
    Column("revision", BigInteger, nullable=False, server_default="1"),
    Column("position", Text, nullable=False),
    Column("parked_at", DateTime(timezone=True)),
    Column("parked_reason", Text),
    Column("failing_since", DateTime(timezone=True)),
    Column("attempts", Integer, nullable=False, server_default="0"),
    Column("next_attempt_at", DateTime(timezone=True)),
    Column("last_delivered_at", DateTime(timezone=True)),
    UniqueConstraint("cluster", "name", name="uq_webhooks_cluster_name"),
    UniqueConstraint("cluster", "slot", name="uq_webhooks_cluster_slot"),
    UniqueConstraint("owner", "owner_slot", name="uq_webhooks_owner_owner_slot"),
    CheckConstraint("slot BETWEEN 1 AND 100", name="slot"),
    CheckConstraint("owner_slot BETWEEN 1 AND 10", name="owner_slot"),
    comment="Subscriptions of webhooks; URL and signing secrets are sealed under webhooks.key_file. Slots bound their"
    " number",
)

webhook_deliveries: Final = Table(
    "webhook_deliveries",
    metadata,
    Column("id", BigInteger, Identity(always=True), primary_key=True),
    Column("webhook_id", UUID, nullable=False),
    Column("event_id", Text, nullable=False),
    Column("event_type", Text, nullable=False),
    Column("attempt", Integer, nullable=False),
    Column("at", DateTime(timezone=True), nullable=False),
    Column("duration_ms", Integer, nullable=False),
    Column("status", Integer),
    Column("error", Text),
    Index(None, "webhook_id", "id"),
    comment="The last deliveries of each webhook",
)

schedules: Final = Table(
    "schedules",
    metadata,
    Column("change_id", UUID, primary_key=True),
    _name("cluster"),
    Column("revert_at", DateTime(timezone=True), nullable=False),
    Column("state", Text, nullable=False, server_default="active"),
    Column("fallbacks", JSONB, nullable=False, server_default=text("'{}'")),
    Column("end_id", UUID),
    Column("kept", JSONB, nullable=False, server_default=text("'[]'")),
    Column("error", Text),
    Column("ended_at", DateTime(timezone=True)),
    CheckConstraint("state IN ('active', 'ending', 'ended', 'ended-partly')", name="state"),
    Index(None, "cluster", "revert_at", postgresql_where=text("ended_at IS NULL")),
    Index(None, "cluster", "change_id"),
    comment="Committed changes with an end, which the leader finds in intents.revert_at, and how they ended",
)

schedule_pauses: Final = Table(
    "schedule_pauses",
    metadata,
    _name("cluster", primary_key=True),
    _name("principal"),
    Column("reason", Text, nullable=False),
    Column("since", DateTime(timezone=True), nullable=False, server_default=func.now()),
    comment="Clusters in which no temporary change ends for now",
)

change_requests: Final = Table(
    "change_requests",
    metadata,
    Column("id", UUID, primary_key=True),
    _name("cluster"),
    Column("state", Text, nullable=False),
    Column("version", Integer, nullable=False),
    Column("revision", Integer, nullable=False),
    Column("entity_ids", ARRAY(Text), nullable=False),
    Column("created_at", DateTime(timezone=True), nullable=False),
    Column("expires_at", DateTime(timezone=True)),
    Column("apply_at", DateTime(timezone=True)),
    Column("content", JSONB, nullable=False),
    Index(None, "cluster", "id"),
    Index("ix_change_requests_waiting", "cluster", postgresql_where=text(f"state IN {WAITING_STATES}")),
    comment="Change requests as they are now; what happened to them is in change_request_events",
)

change_request_revisions: Final = Table(
    "change_request_revisions",
    metadata,
    Column("request_id", UUID, primary_key=True),
    Column("revision", Integer, primary_key=True),
    Column("digest", Text, nullable=False),
    Column("draft", JSONB, nullable=False),
    comment="The contents of change requests: edits with the versions on which they were decided, without secrets",
)

change_request_events: Final = Table(
    "change_request_events",
    metadata,
    Column("id", UUID, primary_key=True),
    Column("request_id", UUID, nullable=False),
    Column("action", Text, nullable=False),
    Column("revision", Integer, nullable=False),
    Column("state", Text, nullable=False),
    Column("at", DateTime(timezone=True), nullable=False),
    Column("principal", Text),
    Column("behalf_of", Text),
    Column("text", Text),
    Column("cluster", Text(collation="C")),
    Column("number", BigInteger),
    Index(None, "request_id", "id"),
    Index(
        "ix_change_request_events_cluster_number",
        "cluster",
        "number",
        unique=True,
        postgresql_where=text("number IS NOT NULL"),
    ),
    comment="What happened to change requests, and comments; append-only",
)

change_request_numbers: Final = Table(
    "change_request_numbers",
    metadata,
    _name("cluster", primary_key=True),
    Column("number", BigInteger, nullable=False),
    comment="The number of the newest event of a change request in the feed",
)

TRANSIENT: Final = (
    applied_reports,
    console_sessions,
    deliveries,
    manifest_runs,
    request_changes,
    request_keys,
    rollup_partitions,
    rollup_parts,
    rollup_rows,
    rollup_runs,
    webhook_deliveries,
)
"""Tables whose rows are removed after some time. What they say about changes is in the trail as well, and stays there.
So the service's role may update and delete their rows."""

POSITIONS: Final = (
    applied_entities,
    applied_keys,
    change_request_numbers,
    change_requests,
    entity_states,
    observed_topics,
    schedule_pauses,
    schedules,
    store_positions,
    target_states,
    topic_polls,
    watermarks,
    webhooks,
)
"""Tables whose rows the service's role may update and delete. To all tables except these, :data:`TRANSIENT` and
:data:`CURRENT` it may only add rows."""

CURRENT: Final = (access_version, grants, tokens)
"""Tables of the tokens and grants as they are now, whose rows the service's role may update. Their history is in
``access_changes``, to which it may only add."""
