"""Ownership: the owners of keys, in the state of each entity, and the claims of the changes that explain it."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op
from sqlalchemy.dialects.postgresql import JSONB

revision = "0034"
down_revision = "0033"

OWNED = "ix_entity_states_owned"
RUNS = "manifest_runs"
OF_OWNER = "uq_manifest_runs_cluster_owner"


def upgrade() -> None:
    # An interrupted run may have made all except the index.
    op.add_column("intent_entities", sa.Column("claim", JSONB()), if_not_exists=True)
    op.add_column("entity_states", sa.Column("owners", JSONB()), if_not_exists=True)
    op.add_column("entity_states", sa.Column("labels", JSONB()), if_not_exists=True)
    op.add_column(RUNS, sa.Column("owner", sa.Text(collation="C")), if_not_exists=True)
    # An interrupted run may have made it, and there is no IF NOT EXISTS for constraints. The table is small.
    op.execute(sa.text(f"ALTER TABLE {RUNS} DROP CONSTRAINT IF EXISTS {OF_OWNER}"))
    op.create_unique_constraint(op.f(OF_OWNER), RUNS, ["cluster", "owner"])
    # CONCURRENTLY, so that the service can write during the migration. An interrupted run leaves an invalid index.
    with op.get_context().autocommit_block():
        op.drop_index(OWNED, "entity_states", if_exists=True, postgresql_concurrently=True)
        op.create_index(
            OWNED,
            "entity_states",
            ["cluster", "tree", "entity_id"],
            postgresql_where=sa.text("owners IS NOT NULL"),
            postgresql_concurrently=True,
        )


def downgrade() -> None:
    with op.get_context().autocommit_block():
        op.drop_index(OWNED, "entity_states", if_exists=True, postgresql_concurrently=True)
    op.drop_constraint(op.f(OF_OWNER), RUNS)
    op.drop_column(RUNS, "owner")
    op.drop_column("entity_states", "labels")
    op.drop_column("entity_states", "owners")
    op.drop_column("intent_entities", "claim")
