"""The sending under way of an entity in a Kafka cluster, and what others set there while a change of ours waits."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op
from sqlalchemy.dialects import postgresql

revision = "0019"
down_revision = "0018"


def upgrade() -> None:
    op.add_column("target_states", sa.Column("claim", sa.UUID()))
    op.add_column("target_states", sa.Column("base", postgresql.JSONB(), server_default="{}", nullable=False))


def downgrade() -> None:
    raise NotImplementedError("There is no way back from this migration: an earlier release ignores the columns")
