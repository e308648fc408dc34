"""An index that finds the intents written since a moment, among which are the changes to settle."""

from __future__ import annotations

from alembic import op

revision = "0002"
down_revision = "0001"

INDEX = "ix_intents_cluster_recorded_at"


def upgrade() -> None:
    # Without a lock that would hold up writes: a running service goes on while a large index is built.
    with op.get_context().autocommit_block():
        # What an interrupted run left is no index to be used.
        op.drop_index(INDEX, "intents", if_exists=True, postgresql_concurrently=True)
        op.create_index(INDEX, "intents", ["cluster", "recorded_at"], postgresql_concurrently=True)


def downgrade() -> None:
    raise NotImplementedError("The trail is never taken away: there is no way back from this migration")
