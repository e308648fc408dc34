"""The topics of Kafka clusters without ZooKeeper, as the leader's polls list them."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0031"
down_revision = "0030"

POLLS = "topic_polls"
TOPICS = "observed_topics"


def upgrade() -> None:
    op.create_table(
        POLLS,
        sa.Column("cluster", sa.Text(collation="C"), nullable=False),
        sa.Column("version", sa.BigInteger(), nullable=False),
        sa.Column("polled_at", sa.DateTime(timezone=True)),
        sa.Column("topics", sa.BigInteger(), nullable=False),
        sa.PrimaryKeyConstraint("cluster", name=op.f("pk_topic_polls")),
        comment="The last poll of the names of each cluster's topics; a position, which moves",
    )
    op.create_table(
        TOPICS,
        sa.Column("cluster", sa.Text(collation="C"), nullable=False),
        sa.Column("name", sa.Text(collation="C"), nullable=False),
        sa.Column("topic_id", sa.Text(), nullable=False),
        sa.PrimaryKeyConstraint("cluster", "name", name=op.f("pk_observed_topics")),
        comment="The topics of each Kafka cluster without ZooKeeper as of that poll; a position, which moves",
    )


def downgrade() -> None:
    op.drop_table(TOPICS)
    op.drop_table(POLLS)
