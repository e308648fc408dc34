"""Applies of manifests that are under way, or that a refusal has ended."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0027"
down_revision = "0026"

TABLE = "manifest_runs"


def upgrade() -> None:
    op.create_table(
        TABLE,
        sa.Column("cluster", sa.Text(collation="C"), nullable=False),
        sa.Column("plan_id", sa.Text(collation="C"), nullable=False),
        sa.Column("request_id", sa.Text(), nullable=False),
        sa.Column("writer", sa.Text(), nullable=False),
        sa.Column("until", sa.DateTime(timezone=True), nullable=False),
        sa.Column("bases", sa.LargeBinary(), nullable=False),
        sa.Column("recorded_at", sa.DateTime(timezone=True), server_default=sa.func.now(), nullable=False),
        sa.PrimaryKeyConstraint("cluster", "plan_id", name=op.f("pk_manifest_runs")),
        comment="Applies of manifests: the versions of the plan, and the end of the turn; purged after a day",
    )
    op.create_index("ix_manifest_runs_recorded_at", TABLE, ["recorded_at"])


def downgrade() -> None:
    op.drop_table(TABLE)
