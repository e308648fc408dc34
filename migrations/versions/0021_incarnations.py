"""The incarnations of stores: a restored ZooKeeper uses revisions again."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0021"
down_revision = "0020"


def upgrade() -> None:
    # With a constant default no row is rewritten. The release before this one leaves the column to the default.
    op.add_column("outcomes", sa.Column("incarnation", sa.Integer(), server_default="1", nullable=False))
    op.create_table(
        "store_positions",
        sa.Column("cluster", sa.Text(collation="C"), nullable=False),
        sa.Column("incarnation", sa.Integer(), nullable=False),
        sa.Column("id", sa.Text(), nullable=False),
        sa.Column("cversion", sa.Integer(), nullable=False),
        sa.Column("pzxid", sa.BigInteger(), nullable=False),
        sa.Column("rejected", sa.Text()),
        sa.Column("recorded_at", sa.DateTime(timezone=True), server_default=sa.func.now(), nullable=False),
        sa.PrimaryKeyConstraint("cluster", name=op.f("pk_store_positions")),
        comment="The incarnation of each cluster's ZooKeeper, and its last known position; a position, which moves",
    )


def downgrade() -> None:
    raise NotImplementedError("The trail is never taken away: there is no way back from this migration")
