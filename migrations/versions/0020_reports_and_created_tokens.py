"""Grants of operations that earlier releases do not know, and the token with which another one was created.

A grant that is hidden looks removed to those releases.
"""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0020"
down_revision = "0019"

CONTENT = ("principal", "permission", "cluster", "operation", "role", "resource", "pattern", "name")
NEEDED = {"principal", "permission", "pattern", "name"}


def upgrade() -> None:
    op.add_column("grants", sa.Column("hidden", sa.Boolean(), server_default="false", nullable=False))
    op.create_index(
        "uq_grants_hidden_content",
        "grants",
        [name if name in NEEDED else sa.text(f"coalesce({name}, '')") for name in CONTENT],
        unique=True,
        postgresql_where=sa.text("hidden"),
    )
    op.add_column("tokens", sa.Column("created_with", sa.UUID()))
    op.create_index(
        "ix_tokens_created_with", "tokens", ["created_with"], postgresql_where=sa.text("created_with IS NOT NULL")
    )


def downgrade() -> None:
    raise NotImplementedError("There is no way back from this migration: an earlier release ignores the columns")
