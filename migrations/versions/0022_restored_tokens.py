"""Tokens of a restored Postgres: rejected until somebody has confirmed them, or revoked them."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op
from sqlalchemy.dialects import postgresql

revision = "0022"
down_revision = "0021"


def upgrade() -> None:
    # Processes of the release before this one ignore both columns, and admit such tokens.
    op.add_column("access_version", sa.Column("tokens_from", sa.DateTime(timezone=True)))
    op.add_column(
        "access_version",
        sa.Column("lost_changes", postgresql.ARRAY(sa.UUID()), server_default="{}", nullable=False),
    )


def downgrade() -> None:
    raise NotImplementedError("There is no way back from this migration: an earlier release ignores the columns")
