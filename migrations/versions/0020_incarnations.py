"""The incarnations of stores: a restored ZooKeeper uses revisions again."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0020"
down_revision = "0019"


def upgrade() -> None:
    # With a constant default no row is rewritten. The release before this one leaves the column to the default.
    op.add_column("outcomes", sa.Column("incarnation", sa.Integer(), server_default="1", nullable=False))


def downgrade() -> None:
    raise NotImplementedError("The trail is never taken away: there is no way back from this migration")
