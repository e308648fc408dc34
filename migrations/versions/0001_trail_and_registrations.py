"""The trail (intents, their entities and keys, outcomes) and the registrations of client software."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op
from sqlalchemy.dialects import postgresql

revision = "0001"
down_revision = None

TABLES = ("intents", "intent_entities", "change_keys", "outcomes", "registrations")

APPEND_ONLY = """
CREATE FUNCTION refuse_to_alter_the_trail() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
  RAISE EXCEPTION 'The table % is append-only: % is refused', TG_TABLE_NAME, TG_OP
    USING ERRCODE = 'restrict_violation', HINT = 'What was recorded stays; a correction is a row of its own.';
END
$$
"""


def upgrade() -> None:
    name = sa.Text(collation="C")
    op.create_table(
        "intents",
        sa.Column("change_id", sa.UUID(), nullable=False),
        sa.Column("attempt", sa.Integer(), nullable=False),
        sa.Column("cluster", name, nullable=False),
        sa.Column("principal", name, nullable=False),
        sa.Column("writer", sa.Text(), nullable=False),
        sa.Column("source", sa.Text(), nullable=False),
        sa.Column("request_id", sa.Text(), nullable=False),
        sa.Column("reason", sa.Text()),
        sa.Column("ticket", sa.Text()),
        sa.Column("recorded_at", sa.DateTime(timezone=True), server_default=sa.func.now(), nullable=False),
        sa.PrimaryKeyConstraint("change_id", "attempt", name=op.f("pk_intents")),
        comment="One row per attempt of a change, durable before its ZooKeeper transaction is submitted",
    )
    op.create_index("ix_intents_cluster_change_id", "intents", ["cluster", "change_id"])
    op.create_index("ix_intents_cluster_principal_change_id", "intents", ["cluster", "principal", "change_id"])
    op.create_table(
        "intent_entities",
        sa.Column("change_id", sa.UUID(), nullable=False),
        sa.Column("attempt", sa.Integer(), nullable=False),
        sa.Column("position", sa.Integer(), nullable=False),
        sa.Column("cluster", name, nullable=False),
        sa.Column("entity_id", name, nullable=False),
        sa.Column("facet", sa.Text(), nullable=False),
        sa.Column("path", sa.Text(), nullable=False),
        sa.Column("version_read", sa.Integer()),
        sa.Column("czxid_read", sa.BigInteger()),
        sa.Column("keys", postgresql.ARRAY(sa.Text()), nullable=False),
        sa.Column("ops", postgresql.JSONB(), nullable=False),
        sa.Column("before", postgresql.JSONB(), nullable=False),
        sa.Column("after", postgresql.JSONB(), nullable=False),
        sa.PrimaryKeyConstraint("change_id", "attempt", "position", name=op.f("pk_intent_entities")),
        comment="The entities of an intent, several in an atomic batch: what was read, asked, and to be stored",
    )
    op.create_index(
        "ix_intent_entities_cluster_entity_id_change_id", "intent_entities", ["cluster", "entity_id", "change_id"]
    )
    op.create_table(
        "change_keys",
        sa.Column("cluster", name, nullable=False),
        sa.Column("key", name, nullable=False),
        sa.Column("change_id", sa.UUID(), nullable=False),
        sa.PrimaryKeyConstraint("cluster", "key", "change_id", name=op.f("pk_change_keys")),
        comment="Which changes meant to alter a key, in any of their attempts",
    )
    op.create_table(
        "outcomes",
        sa.Column("change_id", sa.UUID(), nullable=False),
        sa.Column("attempt", sa.Integer(), nullable=False),
        sa.Column("cluster", name, nullable=False),
        sa.Column("committed", sa.Boolean(), nullable=False),
        sa.Column("revision", sa.BigInteger()),
        sa.Column("time", sa.DateTime(timezone=True)),
        sa.Column("versions", postgresql.JSONB(), nullable=False),
        sa.Column("error_code", sa.Integer()),
        sa.Column("error", sa.Text()),
        sa.Column("recorded_at", sa.DateTime(timezone=True), server_default=sa.func.now(), nullable=False),
        sa.CheckConstraint(
            "NOT committed OR (revision IS NOT NULL AND time IS NOT NULL)", name=op.f("ck_outcomes_committed_is_whole")
        ),
        sa.PrimaryKeyConstraint("change_id", name=op.f("pk_outcomes")),
        comment="How a change ended; the first outcome stands",
    )
    op.create_index(
        "ix_outcomes_rejected", "outcomes", ["cluster", "change_id"], postgresql_where=sa.text("NOT committed")
    )
    op.create_table(
        "registrations",
        sa.Column("id", sa.BigInteger(), sa.Identity(always=True), nullable=False),
        sa.Column("event", name, nullable=False),
        sa.Column("cluster", name, nullable=False),
        sa.Column("entity_id", name),
        sa.Column("software_name", name),
        sa.Column("software_version", name),
        sa.Column("supported_configs", postgresql.ARRAY(name)),
        sa.Column("seen_at", sa.DateTime(timezone=True)),
        sa.Column("seen_on", sa.Date()),
        sa.Column("principal", sa.Text()),
        sa.Column("request_id", sa.Text()),
        sa.Column("recorded_at", sa.DateTime(timezone=True), server_default=sa.func.now(), nullable=False),
        sa.CheckConstraint(
            "CASE event"
            " WHEN 'seen' THEN"
            " num_nulls(entity_id, software_name, software_version, supported_configs, seen_at, seen_on) = 0"
            " WHEN 'cleared' THEN num_nulls(principal, request_id) = 0"
            " ELSE false END",
            name=op.f("ck_registrations_event_is_whole"),
        ),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_registrations")),
        comment="Which configs a client software supports, at most one row a day for each; and who cleared them when",
    )
    op.create_index(
        "ix_registrations_seen",
        "registrations",
        ["cluster", "entity_id", "seen_on"],
        postgresql_where=sa.text("event = 'seen'"),
    )
    op.create_index(
        "ix_registrations_cleared",
        "registrations",
        ["cluster", "entity_id", "id"],
        postgresql_where=sa.text("event = 'cleared'"),
    )
    op.execute(APPEND_ONLY)
    for table in TABLES:
        op.execute(
            f"CREATE TRIGGER append_only BEFORE UPDATE OR DELETE OR TRUNCATE ON {table}"
            " FOR EACH STATEMENT EXECUTE FUNCTION refuse_to_alter_the_trail()"
        )
        # ALWAYS: session_replication_role = replica doesn't turn it off.
        op.execute(f"ALTER TABLE {table} ENABLE ALWAYS TRIGGER append_only")


def downgrade() -> None:
    raise NotImplementedError("The trail is never taken away: there is no way back from this migration")
