"""States of the entities that this service changed in a Kafka cluster without ZooKeeper."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op
from sqlalchemy.dialects import postgresql

revision = "0015"
down_revision = "0014"


def upgrade() -> None:
    name = sa.Text(collation="C")
    op.create_table(
        "target_states",
        sa.Column("cluster", name, nullable=False),
        sa.Column("entity_id", name, nullable=False),
        sa.Column("sent_mzxid", sa.BigInteger(), nullable=False),
        sa.Column("sent_at", sa.DateTime(timezone=True), server_default=sa.func.now(), nullable=False),
        sa.Column("sent", postgresql.JSONB(), nullable=False),
        sa.Column("applied_mzxid", sa.BigInteger()),
        sa.Column("applied_offset", sa.BigInteger(), server_default="-1", nullable=False),
        sa.Column("applied", postgresql.JSONB(), server_default="{}", nullable=False),
        sa.Column("refused_code", sa.Integer()),
        sa.Column("refused_text", sa.Text()),
        sa.PrimaryKeyConstraint("cluster", "entity_id", name=op.f("pk_target_states")),
        comment="Values sent to a Kafka cluster, and its last known state, of each entity; a position, which moves",
    )


def downgrade() -> None:
    raise NotImplementedError("There is no way back from this migration: an earlier release ignores the table")
