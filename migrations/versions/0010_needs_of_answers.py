"""The grants that a stored answer of an Idempotency-Key needs before it is given again."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op
from sqlalchemy.dialects.postgresql import ARRAY

revision = "0010"
down_revision = "0009"


def upgrade() -> None:
    op.add_column("request_keys", sa.Column("needs", ARRAY(sa.Text())))


def downgrade() -> None:
    raise NotImplementedError("The trail is never taken away: there is no way back from this migration")
