"""Reloads: the index of ids far from their times has the kind of changes that load files again."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0035"
down_revision = "0034"

_ID_MS = "('x' || left(change_id::text, 8) || substr(change_id::text, 10, 4))::bit(48)::bigint"
_OFF = f"recorded_at - to_timestamp({_ID_MS} / 1000.0::float8)"
_FAR = f"CASE WHEN {_OFF} NOT BETWEEN interval '-60 s' AND interval '60 s' THEN 1 END = 1"
_INDEX, _NEW = "ix_intents_far", "ix_intents_far_new"


def upgrade() -> None:
    _replace("kind IN ('change', 'reload', 'import', 'observed')")


def downgrade() -> None:
    _replace("kind IN ('change', 'import', 'observed')")


def _replace(kinds: str) -> None:
    # CONCURRENTLY, so that the service can write during the migration. Each statement is committed by itself, and can
    # be repeated: an interrupted run leaves an invalid index.
    with op.get_context().autocommit_block():
        op.drop_index(_NEW, "intents", if_exists=True, postgresql_concurrently=True)
        op.create_index(
            _NEW,
            "intents",
            ["cluster", "recorded_at", "change_id"],
            postgresql_where=sa.text(f"{kinds} AND {_FAR}"),
            postgresql_concurrently=True,
        )
        op.drop_index(_INDEX, "intents", if_exists=True, postgresql_concurrently=True)
        op.execute(sa.text(f"ALTER INDEX {_NEW} RENAME TO {_INDEX}"))
