"""The first state of each entity that the recorder took: the begin of the chain of versions that the trail explains."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0012"
down_revision = "0011"


def upgrade() -> None:
    op.add_column("entity_states", sa.Column("first_version", sa.Integer()))
    op.add_column("entity_states", sa.Column("first_czxid", sa.BigInteger()))


def downgrade() -> None:
    raise NotImplementedError("The trail is never taken away: there is no way back from this migration")
