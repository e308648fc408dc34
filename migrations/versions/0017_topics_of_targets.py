"""The id of the topic that a state in a Kafka cluster is of."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0017"
down_revision = "0016"


def upgrade() -> None:
    op.add_column("target_states", sa.Column("topic_id", sa.Text()))


def downgrade() -> None:
    raise NotImplementedError("There is no way back from this migration: an earlier release ignores the column")
