"""Changes that revert others name these; and changes are found by their request."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0013"
down_revision = "0012"

_INDEX = "ix_intents_cluster_request_id_change_id"


def upgrade() -> None:
    # Without a lock that would hold up writes: a running service goes on while a large index is built. Each statement
    # is committed by itself, so each can be repeated.
    with op.get_context().autocommit_block():
        op.execute(sa.text("ALTER TABLE intents ADD COLUMN IF NOT EXISTS reverts uuid[]"))
        # What an interrupted run left is no index to be used.
        op.drop_index(_INDEX, "intents", if_exists=True, postgresql_concurrently=True)
        op.create_index(_INDEX, "intents", ["cluster", "request_id", "change_id"], postgresql_concurrently=True)


def downgrade() -> None:
    raise NotImplementedError("The trail is never taken away: there is no way back from this migration")
