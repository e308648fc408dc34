"""Changes that follow an observed Kafka cluster: their place in its log, and the index of ids far from their times."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0011"
down_revision = "0010"

_ID_MS = "('x' || left(change_id::text, 8) || substr(change_id::text, 10, 4))::bit(48)::bigint"
_OFF = f"recorded_at - to_timestamp({_ID_MS} / 1000.0::float8)"
_FAR = f"CASE WHEN {_OFF} NOT BETWEEN interval '-60 s' AND interval '60 s' THEN 1 END = 1"
_INDEX, _NEW = "ix_intents_far", "ix_intents_far_new"


def upgrade() -> None:
    # Without a lock that would hold up writes: a running service goes on while a large index is built. Each statement
    # is committed by itself, so each can be repeated.
    with op.get_context().autocommit_block():
        op.execute(sa.text("ALTER TABLE intents ADD COLUMN IF NOT EXISTS observed jsonb"))
        # What an interrupted run left is no index to be used.
        op.drop_index(_NEW, "intents", if_exists=True, postgresql_concurrently=True)
        op.create_index(
            _NEW,
            "intents",
            ["cluster", "recorded_at", "change_id"],
            postgresql_where=sa.text(f"kind IN ('change', 'import', 'observed') AND {_FAR}"),
            postgresql_concurrently=True,
        )
        op.drop_index(_INDEX, "intents", if_exists=True, postgresql_concurrently=True)
        op.execute(sa.text(f"ALTER INDEX {_NEW} RENAME TO {_INDEX}"))


def downgrade() -> None:
    raise NotImplementedError("The trail is never taken away: there is no way back from this migration")
