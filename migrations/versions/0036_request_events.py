"""Numbers of the events of change requests: their order in the feed of a cluster."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0036"
down_revision = "0035"

EVENTS = "change_request_events"
NUMBERS = "change_request_numbers"
BY_NUMBER = "ix_change_request_events_cluster_number"


def upgrade() -> None:
    # An interrupted run may have made all except the index. Events of the time before have no number.
    op.add_column(EVENTS, sa.Column("cluster", sa.Text(collation="C")), if_not_exists=True)
    op.add_column(EVENTS, sa.Column("number", sa.BigInteger()), if_not_exists=True)
    op.create_table(
        NUMBERS,
        sa.Column("cluster", sa.Text(collation="C"), nullable=False),
        sa.Column("number", sa.BigInteger(), nullable=False),
        sa.PrimaryKeyConstraint("cluster", name=op.f("pk_change_request_numbers")),
        comment="The number of the newest event of a change request in the feed",
        if_not_exists=True,
    )
    # CONCURRENTLY, so that the service can write during the migration. An interrupted run leaves an invalid index.
    with op.get_context().autocommit_block():
        op.drop_index(BY_NUMBER, EVENTS, if_exists=True, postgresql_concurrently=True)
        op.create_index(
            BY_NUMBER,
            EVENTS,
            ["cluster", "number"],
            unique=True,
            postgresql_where=sa.text("number IS NOT NULL"),
            postgresql_concurrently=True,
        )


def downgrade() -> None:
    with op.get_context().autocommit_block():
        op.drop_index(BY_NUMBER, EVENTS, if_exists=True, postgresql_concurrently=True)
    op.drop_table(NUMBERS)
    op.drop_column(EVENTS, "number")
    op.drop_column(EVENTS, "cluster")
