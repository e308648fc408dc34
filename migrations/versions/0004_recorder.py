"""The recorder of changes made by others: what it has accounted for, and its rows in the trail."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op
from sqlalchemy.dialects import postgresql

revision = "0004"
down_revision = "0003"

INDEX = "ix_outcomes_cluster_revision"


def upgrade() -> None:
    # First, and without a lock that would hold up writes: when it has to give up, the next run finds all as it was.
    with op.get_context().autocommit_block():
        op.drop_index(INDEX, "outcomes", if_exists=True, postgresql_concurrently=True)
        op.create_index(
            INDEX,
            "outcomes",
            ["cluster", "revision"],
            postgresql_where=sa.text("committed"),
            postgresql_concurrently=True,
        )
    name = sa.Text(collation="C")
    op.add_column("intents", sa.Column("kind", sa.Text(), server_default="change", nullable=False))
    op.add_column("intents", sa.Column("writes", sa.Integer()))
    op.create_table(
        "entity_states",
        sa.Column("cluster", name, nullable=False),
        sa.Column("tree", name, nullable=False),
        sa.Column("entity_id", name, nullable=False),
        sa.Column("present", sa.Boolean(), nullable=False),
        sa.Column("czxid", sa.BigInteger(), nullable=False),
        sa.Column("version", sa.Integer(), nullable=False),
        sa.Column("mzxid", sa.BigInteger(), nullable=False),
        sa.Column("content", postgresql.JSONB(), nullable=False),
        sa.Column("accounted_at", sa.DateTime(timezone=True), server_default=sa.func.now(), nullable=False),
        sa.PrimaryKeyConstraint("cluster", "tree", "entity_id", name=op.f("pk_entity_states")),
        comment="The last state of each entity that the trail explains; a position, which moves",
    )
    # Room in each page, so that a state which moves stays in it and its index is left alone.
    op.execute("ALTER TABLE entity_states SET (fillfactor = 80)")
    op.create_table(
        "watermarks",
        sa.Column("cluster", name, nullable=False),
        sa.Column("revision", sa.BigInteger(), nullable=False),
        sa.Column("complete", sa.Boolean(), nullable=False),
        sa.Column("recorded_at", sa.DateTime(timezone=True), server_default=sa.func.now(), nullable=False),
        sa.PrimaryKeyConstraint("cluster", name=op.f("pk_watermarks")),
        comment="Up to which revision the trail of a cluster is complete; a position, which moves",
    )


def downgrade() -> None:
    raise NotImplementedError("The trail is never taken away: there is no way back from this migration")
