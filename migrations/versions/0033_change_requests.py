"""Change requests: proposed changes with their contents, approvals and events, and the changes that apply them."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op
from sqlalchemy.dialects.postgresql import ARRAY, JSONB, UUID

revision = "0033"
down_revision = "0032"

REQUESTS = "change_requests"
REVISIONS = "change_request_revisions"
EVENTS = "change_request_events"
APPLIES = "ix_intents_applies"


def upgrade() -> None:
    # An interrupted run may have made all except the index of the intents.
    op.add_column("intents", sa.Column("applies", UUID()), if_not_exists=True)
    op.create_table(
        REQUESTS,
        sa.Column("id", UUID(), nullable=False),
        sa.Column("cluster", sa.Text(collation="C"), nullable=False),
        sa.Column("state", sa.Text(), nullable=False),
        sa.Column("version", sa.Integer(), nullable=False),
        sa.Column("revision", sa.Integer(), nullable=False),
        sa.Column("entity_ids", ARRAY(sa.Text()), nullable=False),
        sa.Column("created_at", sa.DateTime(timezone=True), nullable=False),
        sa.Column("expires_at", sa.DateTime(timezone=True), nullable=True),
        sa.Column("apply_at", sa.DateTime(timezone=True), nullable=True),
        sa.Column("content", JSONB(), nullable=False),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_change_requests")),
        comment="Change requests as they are now; what happened to them is in change_request_events",
        if_not_exists=True,
    )
    op.create_index("ix_change_requests_cluster_id", REQUESTS, ["cluster", "id"], if_not_exists=True)
    op.create_index(
        "ix_change_requests_waiting",
        REQUESTS,
        ["cluster"],
        postgresql_where=sa.text("state IN ('open', 'approved', 'scheduled', 'applying')"),
        if_not_exists=True,
    )
    op.create_table(
        REVISIONS,
        sa.Column("request_id", UUID(), nullable=False),
        sa.Column("revision", sa.Integer(), nullable=False),
        sa.Column("digest", sa.Text(), nullable=False),
        sa.Column("draft", JSONB(), nullable=False),
        sa.PrimaryKeyConstraint("request_id", "revision", name=op.f("pk_change_request_revisions")),
        comment="The contents of change requests: edits with the versions on which they were decided, without secrets",
        if_not_exists=True,
    )
    op.create_table(
        EVENTS,
        sa.Column("id", UUID(), nullable=False),
        sa.Column("request_id", UUID(), nullable=False),
        sa.Column("action", sa.Text(), nullable=False),
        sa.Column("revision", sa.Integer(), nullable=False),
        sa.Column("state", sa.Text(), nullable=False),
        sa.Column("at", sa.DateTime(timezone=True), nullable=False),
        sa.Column("principal", sa.Text(), nullable=True),
        sa.Column("behalf_of", sa.Text(), nullable=True),
        sa.Column("text", sa.Text(), nullable=True),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_change_request_events")),
        comment="What happened to change requests, and comments; append-only",
        if_not_exists=True,
    )
    op.create_index("ix_change_request_events_request_id_id", EVENTS, ["request_id", "id"], if_not_exists=True)
    for table in (REVISIONS, EVENTS):
        op.execute(
            f"CREATE OR REPLACE TRIGGER append_only BEFORE UPDATE OR DELETE OR TRUNCATE ON {table}"
            " FOR EACH STATEMENT EXECUTE FUNCTION refuse_to_alter_the_trail()"
        )
        op.execute(f"ALTER TABLE {table} ENABLE ALWAYS TRIGGER append_only")
    # CONCURRENTLY, so that the service can write during the migration. An interrupted run leaves an invalid index.
    with op.get_context().autocommit_block():
        op.drop_index(APPLIES, "intents", if_exists=True, postgresql_concurrently=True)
        op.create_index(
            APPLIES,
            "intents",
            ["applies"],
            postgresql_where=sa.text("applies IS NOT NULL"),
            postgresql_concurrently=True,
        )


def downgrade() -> None:
    raise NotImplementedError("Approvals are never taken away: there is no way back from this migration")
