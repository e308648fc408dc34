"""States per key of what this service changed in a Kafka cluster without ZooKeeper, and the deliveries.

The rows of ``target_states`` stay where they are: the first leader of a release that knows these tables moves them.
"""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op
from sqlalchemy.dialects.postgresql import ARRAY, UUID

revision = "0037"
down_revision = "0036"

ENTITIES = "applied_entities"
KEYS = "applied_keys"
DELIVERIES = "deliveries"
KEY_HASH = sa.text("hashtextextended(key, 0)")


def upgrade() -> None:
    name = sa.Text(collation="C")
    time = sa.DateTime(timezone=True)
    op.create_table(
        ENTITIES,
        sa.Column("cluster", name, nullable=False),
        sa.Column("entity_id", name, nullable=False),
        sa.Column("sent_mzxid", sa.BigInteger(), server_default="0", nullable=False),
        sa.Column("applied_mzxid", sa.BigInteger(), server_default="0", nullable=False),
        sa.Column("applied_offset", sa.BigInteger(), server_default="-1", nullable=False),
        sa.Column("topic_id", sa.Text()),
        sa.Column("delivery_id", UUID()),
        sa.Column("refused_code", sa.Integer()),
        sa.Column("refused_text", sa.Text()),
        sa.PrimaryKeyConstraint("cluster", "entity_id", name=op.f("pk_applied_entities")),
        comment="The revisions of each entity that a Kafka cluster was sent, and has taken; a position, which moves",
    )
    op.create_index(
        "ix_applied_entities_open",
        ENTITIES,
        ["cluster", "entity_id"],
        postgresql_where=sa.text("refused_code IS NULL AND applied_mzxid <> sent_mzxid"),
    )
    op.create_index(
        "ix_applied_entities_refused",
        ENTITIES,
        ["cluster", "entity_id"],
        postgresql_where=sa.text("refused_code IS NOT NULL"),
    )
    op.create_table(
        KEYS,
        sa.Column("cluster", name, nullable=False),
        sa.Column("entity_id", name, nullable=False),
        sa.Column("key", name, nullable=False),
        sa.Column("state", sa.Text(), nullable=False),
        sa.Column("taken", sa.Boolean(), server_default="false", nullable=False),
        sa.Column("value", sa.Text()),
        sa.Column("offset", sa.BigInteger()),
        sa.Column("delivered_at", time),
        sa.Column("theirs", sa.Text()),
        sa.Column("since", time),
        sa.Column("refused_value", sa.Text()),
        sa.Column("refused_code", sa.Integer()),
        sa.Column("refused_text", sa.Text()),
        sa.Column("refused_absent", sa.Boolean()),
        sa.Column("put_back_at", ARRAY(time), server_default="{}", nullable=False),
        sa.Column("base_value", sa.Text()),
        sa.Column("base_offset", sa.BigInteger()),
        comment="The state of each key that this service changed in a Kafka cluster; a position, which moves",
    )
    op.create_index("uq_applied_keys", KEYS, ["cluster", "entity_id", KEY_HASH], unique=True)
    op.create_index(
        "ix_applied_keys_differing",
        KEYS,
        ["cluster", "entity_id"],
        postgresql_where=sa.text("state NOT IN ('applied', 'observed')"),
    )
    op.create_table(
        DELIVERIES,
        sa.Column("cluster", name, nullable=False),
        sa.Column("entity_id", name, nullable=False),
        sa.Column("mzxid", sa.BigInteger(), nullable=False),
        sa.Column("id", UUID(), nullable=False),
        sa.Column("key", name, nullable=False),
        sa.Column("value", sa.Text()),
        sa.Column("sent_at", time, server_default=sa.func.clock_timestamp(), nullable=False),
        sa.Column("outcome", sa.Text()),
        sa.Column("offset", sa.BigInteger()),
        sa.Column("ended_at", time),
        comment="The values sent to Kafka clusters, with their outcomes; rows of more than 30 days are removed",
    )
    op.create_index("uq_deliveries", DELIVERIES, ["cluster", "entity_id", "mzxid", "id", KEY_HASH], unique=True)
    op.create_index(
        "ix_deliveries_unknown",
        DELIVERIES,
        ["cluster", "entity_id"],
        postgresql_where=sa.text("outcome IS NULL"),
    )
    op.create_index("ix_deliveries_sent_at", DELIVERIES, ["sent_at"])
    for table in (KEYS, DELIVERIES):
        # Without a primary key, a publication of all tables would refuse to update rows.
        op.execute(f"ALTER TABLE {table} REPLICA IDENTITY FULL")


def downgrade() -> None:
    raise NotImplementedError("There is no way back from this migration: an earlier release ignores the tables")
