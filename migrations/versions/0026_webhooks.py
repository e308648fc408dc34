"""Webhooks: subscriptions and their last deliveries."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op
from sqlalchemy.dialects.postgresql import ARRAY, JSONB, UUID

revision = "0026"
down_revision = "0025"

TABLE, DELIVERIES = "webhooks", "webhook_deliveries"


def upgrade() -> None:
    op.create_table(
        TABLE,
        sa.Column("id", UUID(), nullable=False),
        sa.Column("cluster", sa.Text(collation="C"), nullable=False),
        sa.Column("name", sa.Text(collation="C"), nullable=False),
        sa.Column("slot", sa.Integer(), nullable=False),
        sa.Column("owner", sa.Text(collation="C"), nullable=False),
        sa.Column("owner_slot", sa.Integer(), nullable=False),
        sa.Column("groups", ARRAY(sa.Text()), nullable=False),
        sa.Column("by_token", sa.Boolean(), nullable=False),
        sa.Column("format", sa.Text(), nullable=False),
        sa.Column("filter", JSONB(), nullable=False),
        sa.Column("shown_url", sa.Text(), nullable=False),
        sa.Column("sealed", sa.LargeBinary(), nullable=False),
        sa.Column("note", sa.Text(), nullable=True),
        sa.Column("created_at", sa.DateTime(timezone=True), nullable=False),
        sa.Column("created_by", sa.Text(), nullable=False),
        sa.Column("change_id", UUID(), nullable=False),
        sa.Column("revision", sa.BigInteger(), server_default="1", nullable=False),
        sa.Column("position", sa.Text(), nullable=False),
        sa.Column("parked_at", sa.DateTime(timezone=True), nullable=True),
        sa.Column("parked_reason", sa.Text(), nullable=True),
        sa.Column("failing_since", sa.DateTime(timezone=True), nullable=True),
        sa.Column("attempts", sa.Integer(), server_default="0", nullable=False),
        sa.Column("next_attempt_at", sa.DateTime(timezone=True), nullable=True),
        sa.Column("last_delivered_at", sa.DateTime(timezone=True), nullable=True),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_webhooks")),
        sa.UniqueConstraint("cluster", "name", name=op.f("uq_webhooks_cluster_name")),
        sa.UniqueConstraint("cluster", "slot", name=op.f("uq_webhooks_cluster_slot")),
        sa.UniqueConstraint("owner", "owner_slot", name=op.f("uq_webhooks_owner_owner_slot")),
        sa.CheckConstraint("slot BETWEEN 1 AND 100", name=op.f("ck_webhooks_slot")),
        sa.CheckConstraint("owner_slot BETWEEN 1 AND 10", name=op.f("ck_webhooks_owner_slot")),
        comment="Subscriptions of webhooks; URL and signing secrets are sealed under webhooks.key_file. Slots bound"
        " their number",
    )
    op.create_table(
        DELIVERIES,
        sa.Column("id", sa.BigInteger(), sa.Identity(always=True), nullable=False),
        sa.Column("webhook_id", UUID(), nullable=False),
        sa.Column("event_id", sa.Text(), nullable=False),
        sa.Column("event_type", sa.Text(), nullable=False),
        sa.Column("attempt", sa.Integer(), nullable=False),
        sa.Column("at", sa.DateTime(timezone=True), nullable=False),
        sa.Column("duration_ms", sa.Integer(), nullable=False),
        sa.Column("status", sa.Integer(), nullable=True),
        sa.Column("error", sa.Text(), nullable=True),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_webhook_deliveries")),
        comment="The last deliveries of each webhook",
    )
    op.create_index("ix_webhook_deliveries_webhook_id_id", DELIVERIES, ["webhook_id", "id"])


def downgrade() -> None:
    op.drop_table(DELIVERIES)
    op.drop_table(TABLE)
