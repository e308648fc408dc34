"""Indexes that find the changes whose id is far from their time, because a clock was."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0008"
down_revision = "0007"

_ID_MS = "('x' || left(change_id::text, 8) || substr(change_id::text, 10, 4))::bit(48)::bigint"
_OFF = f"{{}} - to_timestamp({_ID_MS} / 1000.0::float8)"
_FAR = f"CASE WHEN {_OFF} NOT BETWEEN interval '-60 s' AND interval '60 s' THEN 1 END = 1"
INDEXES = {
    "ix_intents_far": ("intents", "recorded_at", f"kind = 'change' AND {_FAR.format('recorded_at')}"),
    "ix_outcomes_far": ("outcomes", "time", _FAR.format('"time"')),
}


def upgrade() -> None:
    # Without a lock that would hold up writes: a running service goes on while a large index is built.
    with op.get_context().autocommit_block():
        for name, (table, moment, far) in INDEXES.items():
            # What an interrupted run left is no index to be used.
            op.drop_index(name, table, if_exists=True, postgresql_concurrently=True)
            op.create_index(
                name,
                table,
                ["cluster", moment, "change_id"],
                postgresql_where=sa.text(far),
                postgresql_concurrently=True,
            )


def downgrade() -> None:
    raise NotImplementedError("The trail is never taken away: there is no way back from this migration")
