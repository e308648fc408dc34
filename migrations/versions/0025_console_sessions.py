"""Sessions of the web console."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0025"
down_revision = "0024"

TABLE = "console_sessions"


def upgrade() -> None:
    op.create_table(
        TABLE,
        sa.Column("digest", sa.LargeBinary(), nullable=False),
        sa.Column("token", sa.LargeBinary(), nullable=False),
        sa.Column("principal", sa.Text(collation="C"), nullable=False),
        sa.Column("created_at", sa.DateTime(timezone=True), server_default=sa.func.now(), nullable=False),
        sa.Column("expires_at", sa.DateTime(timezone=True), nullable=False),
        sa.Column("used_at", sa.DateTime(timezone=True), server_default=sa.func.now(), nullable=False),
        sa.PrimaryKeyConstraint("digest", name=op.f("pk_console_sessions")),
        comment="Sessions of the web console: the SHA-256 of the id, and the token, sealed under console_key_file",
    )
    op.create_index("ix_console_sessions_expires_at", TABLE, ["expires_at"])
    op.create_index("ix_console_sessions_used_at", TABLE, ["used_at"])


def downgrade() -> None:
    op.drop_table(TABLE)
