"""Temporary changes: the times at which changes end, the changes that end them, and how far each of them is."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op
from sqlalchemy.dialects.postgresql import JSONB, UUID

revision = "0032"
down_revision = "0031"

SCHEDULES = "schedules"
PAUSES = "schedule_pauses"
TEMPORARY = "ix_intents_temporary"
ENDS = "ix_intents_ends"


def upgrade() -> None:
    # An interrupted run may have made all except the indexes.
    op.add_column("intents", sa.Column("revert_at", sa.DateTime(timezone=True)), if_not_exists=True)
    op.add_column("intents", sa.Column("ends", UUID()), if_not_exists=True)
    op.create_table(
        SCHEDULES,
        sa.Column("change_id", UUID(), nullable=False),
        sa.Column("cluster", sa.Text(collation="C"), nullable=False),
        sa.Column("revert_at", sa.DateTime(timezone=True), nullable=False),
        sa.Column("state", sa.Text(), server_default="active", nullable=False),
        sa.Column("fallbacks", JSONB(), server_default=sa.text("'{}'"), nullable=False),
        sa.Column("end_id", UUID(), nullable=True),
        sa.Column("kept", JSONB(), server_default=sa.text("'[]'"), nullable=False),
        sa.Column("error", sa.Text(), nullable=True),
        sa.Column("ended_at", sa.DateTime(timezone=True), nullable=True),
        sa.PrimaryKeyConstraint("change_id", name=op.f("pk_schedules")),
        sa.CheckConstraint("state IN ('active', 'ending', 'ended', 'ended-partly')", name=op.f("ck_schedules_state")),
        comment="Committed changes with an end, which the leader finds in intents.revert_at, and how they ended",
        if_not_exists=True,
    )
    op.create_index(
        "ix_schedules_cluster_revert_at",
        SCHEDULES,
        ["cluster", "revert_at"],
        postgresql_where=sa.text("ended_at IS NULL"),
        if_not_exists=True,
    )
    op.create_index("ix_schedules_cluster_change_id", SCHEDULES, ["cluster", "change_id"], if_not_exists=True)
    op.create_table(
        PAUSES,
        sa.Column("cluster", sa.Text(collation="C"), nullable=False),
        sa.Column("principal", sa.Text(collation="C"), nullable=False),
        sa.Column("reason", sa.Text(), nullable=False),
        sa.Column("since", sa.DateTime(timezone=True), server_default=sa.func.now(), nullable=False),
        sa.PrimaryKeyConstraint("cluster", name=op.f("pk_schedule_pauses")),
        comment="Clusters in which no temporary change ends for now",
        if_not_exists=True,
    )
    # CONCURRENTLY, so that the service can write during the migration. An interrupted run leaves an invalid index.
    with op.get_context().autocommit_block():
        for name, columns, where in (
            (TEMPORARY, ["cluster", "recorded_at"], "revert_at IS NOT NULL"),
            (ENDS, ["ends"], "ends IS NOT NULL"),
        ):
            op.drop_index(name, "intents", if_exists=True, postgresql_concurrently=True)
            op.create_index(name, "intents", columns, postgresql_where=sa.text(where), postgresql_concurrently=True)


def downgrade() -> None:
    with op.get_context().autocommit_block():
        for name in (ENDS, TEMPORARY):
            op.drop_index(name, "intents", if_exists=True, postgresql_concurrently=True)
    op.drop_table(PAUSES)
    op.drop_table(SCHEDULES)
    op.drop_column("intents", "ends")
    op.drop_column("intents", "revert_at")
