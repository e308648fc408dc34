"""An index of external changes and put-backs by the time at which they were recorded, for the feed."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0030"
down_revision = "0027"

INDEX = "ix_intents_from_outside"


def upgrade() -> None:
    # CONCURRENTLY, so that the service can write during the migration. An interrupted run leaves an invalid index.
    with op.get_context().autocommit_block():
        op.drop_index(INDEX, "intents", if_exists=True, postgresql_concurrently=True)
        op.create_index(
            INDEX,
            "intents",
            ["cluster", "recorded_at"],
            postgresql_where=sa.text("kind IN ('external', 'put-back')"),
            postgresql_concurrently=True,
        )


def downgrade() -> None:
    with op.get_context().autocommit_block():
        op.drop_index(INDEX, "intents", if_exists=True, postgresql_concurrently=True)
