"""What is put back in a Kafka cluster without ZooKeeper, and what is left alone there."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op
from sqlalchemy.dialects import postgresql

revision = "0016"
down_revision = "0015"


def upgrade() -> None:
    for name, default in (("reapply", "[]"), ("drift", "{}"), ("put_back_at", "{}")):
        op.add_column("target_states", sa.Column(name, postgresql.JSONB(), server_default=default, nullable=False))
    op.create_index(
        "ix_target_states_to_be_sent",
        "target_states",
        ["cluster", "entity_id"],
        postgresql_where=sa.text(
            "refused_code IS NULL AND (applied_mzxid IS DISTINCT FROM sent_mzxid OR reapply <> '[]')"
        ),
    )
    op.create_index(
        "ix_target_states_left_alone",
        "target_states",
        ["cluster", "entity_id"],
        postgresql_where=sa.text("refused_code IS NOT NULL OR drift <> '{}'"),
    )


def downgrade() -> None:
    raise NotImplementedError("There is no way back from this migration: an earlier release ignores the columns")
