"""Which znodes of a change others had deleted and made again since they were read."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op
from sqlalchemy.dialects.postgresql import JSONB

revision = "0007"
down_revision = "0006"


def upgrade() -> None:
    op.add_column("outcomes", sa.Column("remade", JSONB()))


def downgrade() -> None:
    raise NotImplementedError("The trail is never taken away: there is no way back from this migration")
