"""Reports of clients on the configs that they have taken over, shared by all replicas and forgotten after a while."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op
from sqlalchemy.dialects import postgresql

revision = "0014"
down_revision = "0013"


def upgrade() -> None:
    name = sa.Text(collation="C")
    op.create_table(
        "applied_reports",
        sa.Column("cluster", name, nullable=False),
        sa.Column("entity_id", name, nullable=False),
        sa.Column("instance_id", name, nullable=False),
        sa.Column("software_name", sa.Text(), nullable=False),
        sa.Column("software_version", sa.Text(), nullable=False),
        sa.Column("applied_revision", sa.BigInteger(), nullable=False),
        sa.Column("refused", postgresql.JSONB(), nullable=False),
        sa.Column("reported_at", sa.DateTime(timezone=True), nullable=False),
        sa.Column("version", sa.BigInteger(), sa.Identity(), nullable=False),
        sa.PrimaryKeyConstraint("cluster", "entity_id", "instance_id", name=op.f("pk_applied_reports")),
        comment="The last report of each running client on the client configs that it has taken over",
    )
    op.create_index("ix_applied_reports_version", "applied_reports", ["version"])


def downgrade() -> None:
    raise NotImplementedError("There is no way back from this migration: an earlier release ignores the table")
