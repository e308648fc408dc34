"""Tokens and grants, the history of both, and the user for whom a change was made."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op
from sqlalchemy.dialects import postgresql

revision = "0009"
down_revision = "0008"

TEXTS = sa.Text(collation="C")
CONTENT = ("principal", "permission", "cluster", "operation", "role", "resource", "pattern", "name")
NEEDED = {"principal", "permission", "pattern", "name"}


def upgrade() -> None:
    op.add_column("intents", sa.Column("behalf_of", sa.Text()))
    op.create_table(
        "access_version",
        sa.Column("only", sa.Boolean(), server_default="true", nullable=False),
        sa.Column("version", sa.BigInteger(), nullable=False),
        sa.CheckConstraint('"only"', name=op.f("ck_access_version_one_row")),
        sa.PrimaryKeyConstraint("only", name=op.f("pk_access_version")),
        comment="The version of tokens and grants together; each change of one raises it",
    )
    op.execute("INSERT INTO access_version (version) VALUES (0)")
    op.create_table(
        "tokens",
        sa.Column("id", sa.UUID(), nullable=False),
        sa.Column("digest", sa.LargeBinary(), nullable=False),
        sa.Column("principal", TEXTS, nullable=False),
        sa.Column("groups", postgresql.ARRAY(sa.Text()), nullable=False),
        sa.Column("owner", sa.Text()),
        sa.Column("note", sa.Text()),
        sa.Column("narrowing", postgresql.JSONB()),
        sa.Column("created_at", sa.DateTime(timezone=True), nullable=False),
        sa.Column("created_by", sa.Text(), nullable=False),
        sa.Column("expires_at", sa.DateTime(timezone=True), nullable=False),
        sa.Column("revoked_at", sa.DateTime(timezone=True)),
        sa.Column("last_used_at", sa.DateTime(timezone=True)),
        sa.Column("replaces", sa.UUID()),
        sa.Column("version", sa.BigInteger(), nullable=False),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_tokens")),
        sa.UniqueConstraint("digest", name=op.f("uq_tokens_digest")),
        comment="API tokens, each as the SHA-256 of its text",
    )
    op.create_index("ix_tokens_version", "tokens", ["version"])
    op.create_index("ix_tokens_principal_id", "tokens", ["principal", "id"])
    op.create_table(
        "grants",
        sa.Column("id", sa.UUID(), nullable=False),
        *(sa.Column(name, TEXTS, nullable=name not in NEEDED) for name in CONTENT),
        sa.Column("note", sa.Text()),
        sa.Column("created_at", sa.DateTime(timezone=True), nullable=False),
        sa.Column("created_by", sa.Text(), nullable=False),
        sa.Column("removed_at", sa.DateTime(timezone=True)),
        sa.Column("change_id", sa.UUID(), nullable=False),
        sa.Column("version", sa.BigInteger(), nullable=False),
        sa.CheckConstraint("num_nulls(operation, role) = 1", name=op.f("ck_grants_one_right")),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_grants")),
        comment="Who may do what; a removed grant stays, so that every process learns of its end",
    )
    op.create_index("ix_grants_version", "grants", ["version"])
    op.create_index("ix_grants_principal_id", "grants", ["principal", "id"])
    op.create_index(
        "uq_grants_content",
        "grants",
        [name if name in NEEDED else sa.text(f"coalesce({name}, '')") for name in CONTENT],
        unique=True,
        postgresql_where=sa.text("removed_at IS NULL"),
    )
    op.create_table(
        "access_changes",
        sa.Column("id", sa.UUID(), nullable=False),
        sa.Column("kind", TEXTS, nullable=False),
        sa.Column("principal", TEXTS, nullable=False),
        sa.Column("source", sa.Text(), nullable=False),
        sa.Column("subject", TEXTS, nullable=False),
        sa.Column("request_id", sa.Text()),
        sa.Column("behalf_of", sa.Text()),
        sa.Column("reason", sa.Text()),
        sa.Column("ticket", sa.Text()),
        sa.Column("before", postgresql.JSONB()),
        sa.Column("after", postgresql.JSONB()),
        sa.Column("count", sa.Integer(), server_default="1", nullable=False),
        sa.Column("recorded_at", sa.DateTime(timezone=True), server_default=sa.func.now(), nullable=False),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_access_changes")),
        comment="Changes of tokens and grants, each written in its own transaction, and sums of security events",
    )
    for column in ("kind", "principal", "subject"):
        op.create_index(f"ix_access_changes_{column}_id", "access_changes", [column, "id"])
    op.create_index("ix_access_changes_recorded_at", "access_changes", ["recorded_at"])
    op.execute(
        "CREATE TRIGGER append_only BEFORE UPDATE OR DELETE OR TRUNCATE ON access_changes"
        " FOR EACH STATEMENT EXECUTE FUNCTION refuse_to_alter_the_trail()"
    )
    op.execute("ALTER TABLE access_changes ENABLE ALWAYS TRIGGER append_only")


def downgrade() -> None:
    raise NotImplementedError("The trail is never taken away: there is no way back from this migration")
