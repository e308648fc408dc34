"""Requests with an Idempotency-Key, and the changes that they made. Kept for a day, so these tables are no history."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op
from sqlalchemy.dialects import postgresql

revision = "0003"
down_revision = "0002"


def upgrade() -> None:
    name = sa.Text(collation="C")
    op.create_table(
        "request_keys",
        sa.Column("key", name, nullable=False),
        sa.Column("id", sa.UUID(), nullable=False),
        sa.Column("holder", sa.UUID(), nullable=False),
        sa.Column("cluster", name, nullable=False),
        sa.Column("body", name, nullable=False),
        sa.Column("writer", sa.Text(), nullable=False),
        sa.Column("until", sa.DateTime(timezone=True), nullable=False),
        sa.Column("status", sa.Integer()),
        sa.Column("headers", postgresql.JSONB()),
        sa.Column("answer", sa.Text()),
        sa.Column("recorded_at", sa.DateTime(timezone=True), server_default=sa.func.now(), nullable=False),
        sa.CheckConstraint(
            "num_nulls(status, headers, answer) IN (0, 3)", name=op.f("ck_request_keys_answer_is_whole")
        ),
        sa.PrimaryKeyConstraint("key", name=op.f("pk_request_keys")),
        sa.UniqueConstraint("id", name=op.f("uq_request_keys_id")),
        comment="Requests with an Idempotency-Key: whose turn it is, until when, and the answer; purged after a day",
    )
    op.create_index("ix_request_keys_recorded_at", "request_keys", ["recorded_at"])
    op.create_table(
        "request_changes",
        sa.Column("key_id", sa.UUID(), nullable=False),
        sa.Column("change_id", sa.UUID(), nullable=False),
        sa.Column("attempt", sa.Integer(), nullable=False),
        sa.Column("results", postgresql.JSONB(), nullable=False),
        sa.PrimaryKeyConstraint("key_id", "change_id", "attempt", name=op.f("pk_request_changes")),
        comment="The changes of those requests, and what each would be answered with; purged with them",
    )


def downgrade() -> None:
    raise NotImplementedError("The trail is never taken away: there is no way back from this migration")
