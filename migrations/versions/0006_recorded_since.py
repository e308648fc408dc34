"""Since when the trail of a cluster is complete, and a short way to the states of entities that are gone."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0006"
down_revision = "0005"

INDEX = "ix_entity_states_absent"


def upgrade() -> None:
    # First, and without a lock that would hold up writes: when it has to give up, the next run finds all as it was.
    with op.get_context().autocommit_block():
        op.drop_index(INDEX, "entity_states", if_exists=True, postgresql_concurrently=True)
        # Of columns that stay as they are while a state moves, so that it still moves within its page.
        op.create_index(
            INDEX,
            "entity_states",
            ["cluster", "tree", "entity_id"],
            postgresql_where=sa.text("NOT present"),
            postgresql_concurrently=True,
        )
    op.add_column("watermarks", sa.Column("since", sa.BigInteger()))
    op.add_column("watermarks", sa.Column("since_at", sa.DateTime(timezone=True)))


def downgrade() -> None:
    raise NotImplementedError("The trail is never taken away: there is no way back from this migration")
