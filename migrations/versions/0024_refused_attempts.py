"""Refused attempts: writes that were refused before they were begun. Nobody alters them, and they expire."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op
from sqlalchemy.dialects import postgresql

revision = "0024"
down_revision = "0023"

TABLE = "refused_attempts"
AGE = "interval '90 days'"

# Run with the rights of the owner: the service's role can remove nothing else, and nothing earlier.
EXPIRE = f"""
CREATE OR REPLACE FUNCTION expire_refused_attempts() RETURNS integer
LANGUAGE plpgsql SECURITY DEFINER SET search_path = SCHEMA, pg_temp AS $$
DECLARE
  removed integer;
BEGIN
  DELETE FROM {TABLE} WHERE id IN (
    SELECT id FROM {TABLE} WHERE recorded_at < now() - {AGE} ORDER BY recorded_at LIMIT 2000 FOR UPDATE SKIP LOCKED
  );
  GET DIAGNOSTICS removed = ROW_COUNT;
  RETURN removed;
END
$$
"""  # noqa: S608 - of constants


def upgrade() -> None:
    name = sa.Text(collation="C")
    op.create_table(
        TABLE,
        sa.Column("id", sa.UUID(), nullable=False),
        sa.Column("cluster", name, nullable=False),
        sa.Column("principal", name, nullable=False),
        sa.Column("behalf_of", sa.Text()),
        sa.Column("operation", name, nullable=False),
        sa.Column("entity_id", name),
        sa.Column("keys", postgresql.ARRAY(sa.Text()), nullable=False),
        sa.Column("error_code", sa.Integer(), nullable=False),
        sa.Column("problem", name, nullable=False),
        sa.Column("request_id", sa.Text()),
        sa.Column("count", sa.Integer(), nullable=False),
        sa.Column("recorded_at", sa.DateTime(timezone=True), server_default=sa.func.now(), nullable=False),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_refused_attempts")),
        comment="Writes that were refused before they were begun, without values; kept for 90 days",
    )
    op.create_index("ix_refused_attempts_cluster_id", TABLE, ["cluster", "id"])
    for column in ("entity_id", "request_id"):
        op.create_index(
            f"ix_refused_attempts_cluster_{column}_id",
            TABLE,
            ["cluster", column, "id"],
            postgresql_where=sa.text(f"{column} IS NOT NULL"),
        )
    op.create_index("ix_refused_attempts_cluster_principal_id", TABLE, ["cluster", "principal", "id"])
    op.create_index("ix_refused_attempts_recorded_at", TABLE, ["recorded_at"])
    for trigger, event in (
        ("append_only", "BEFORE UPDATE OR TRUNCATE ON {} FOR EACH STATEMENT"),
        ("kept", f"BEFORE DELETE ON {{}} FOR EACH ROW WHEN (OLD.recorded_at >= now() - {AGE})"),
    ):
        op.execute(f"CREATE TRIGGER {trigger} {event.format(TABLE)} EXECUTE FUNCTION refuse_to_alter_the_trail()")
        # ALWAYS: session_replication_role = replica doesn't turn it off.
        op.execute(f"ALTER TABLE {TABLE} ENABLE ALWAYS TRIGGER {trigger}")
    schema = op.get_bind().scalar(sa.text("SELECT quote_ident(current_schema())"))
    op.execute(EXPIRE.replace("SCHEMA", schema))
    op.execute("REVOKE ALL ON FUNCTION expire_refused_attempts() FROM PUBLIC")


def downgrade() -> None:
    raise NotImplementedError("There is no way back from this migration: an earlier release ignores the table")
