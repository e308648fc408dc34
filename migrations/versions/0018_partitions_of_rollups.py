"""Partitions of the rows of rollups: a run has one of its own, which is emptied at once when the run goes."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op
from sqlalchemy.dialects import postgresql

revision = "0018"
down_revision = "0017"

TABLE, SHARED, CHECK = "rollup_rows", "rollup_rows_0", "ck_rollup_rows_shared"
INDEXES = ("ix_rollup_rows_run_id_part_ordinal", "ix_rollup_rows_entity")

# The rights of the service pass to the new table in the same transaction, so that a running service notices nothing.
RIGHTS = f"""
DO $$
DECLARE
  held record;
BEGIN
  FOR held IN
    SELECT grantee::regrole AS role, privilege_type AS privilege
    FROM pg_class, aclexplode(relacl)
    WHERE pg_class.oid = '{SHARED}'::regclass AND grantee <> relowner AND grantee <> 0
  LOOP
    EXECUTE format('GRANT %s ON {TABLE} TO %s', held.privilege, held.role);
    EXECUTE format('REVOKE %s ON {SHARED} FROM %s', held.privilege, held.role);
  END LOOP;
END
$$
"""  # noqa: S608 - of constants

# Run with the rights of the owner, so that the service's role needs none of them.
ADD = """
CREATE OR REPLACE FUNCTION add_rollup_partition() RETURNS integer
LANGUAGE plpgsql SECURITY DEFINER SET search_path = SCHEMA, pg_temp AS $$
DECLARE
  added integer;
BEGIN
  INSERT INTO rollup_partitions DEFAULT VALUES RETURNING number INTO added;
  -- Not CREATE TABLE ... PARTITION OF: that would wait for all who read or write any run.
  EXECUTE format('CREATE TABLE rollup_rows_%s (LIKE rollup_rows INCLUDING ALL)', added);
  EXECUTE format('ALTER TABLE rollup_rows ATTACH PARTITION rollup_rows_%1$s FOR VALUES IN (%1$s)', added);
  RETURN added;
END
$$
"""
EMPTY = """
CREATE OR REPLACE FUNCTION empty_rollup_partition(number integer) RETURNS void
LANGUAGE plpgsql SECURITY DEFINER SET search_path = SCHEMA, pg_temp SET lock_timeout = '500ms' AS $$
BEGIN
  EXECUTE format('TRUNCATE rollup_rows_%s', number);
END
$$
"""
FUNCTIONS = {"add_rollup_partition()": ADD, "empty_rollup_partition(integer)": EMPTY}


def upgrade() -> None:
    # First what reads all rows, without a lock that would hold up others: with this check the rows need not be read
    # again below. Each statement is committed by itself, so each can be repeated.
    with op.get_context().autocommit_block():
        op.execute(f"ALTER TABLE {TABLE} ADD COLUMN IF NOT EXISTS partition integer NOT NULL DEFAULT 0")
        op.execute(f"ALTER TABLE {TABLE} DROP CONSTRAINT IF EXISTS {CHECK}")
        op.execute(f"ALTER TABLE {TABLE} ADD CONSTRAINT {CHECK} CHECK (partition = 0) NOT VALID")
        op.execute(f"ALTER TABLE {TABLE} VALIDATE CONSTRAINT {CHECK}")
    name = sa.Text(collation="C")
    op.rename_table(TABLE, SHARED)
    for index in INDEXES:
        op.execute(f"ALTER INDEX {index} RENAME TO {index}_0")
    op.create_table(
        TABLE,
        sa.Column("partition", sa.Integer(), server_default="0", nullable=False),
        sa.Column("run_id", sa.UUID(), nullable=False),
        sa.Column("part", sa.Integer(), nullable=False),
        sa.Column("ordinal", sa.Integer(), nullable=False),
        sa.Column("entity_id", name),
        sa.Column("item", postgresql.JSONB(), nullable=False),
        comment="The rows of runs, in the order of (part, ordinal); each run in a partition of its own",
        postgresql_partition_by="LIST (partition)",
    )
    op.create_index(INDEXES[0], TABLE, ["run_id", "part", "ordinal"])
    op.create_index(
        INDEXES[1],
        TABLE,
        ["run_id", "entity_id", "part", "ordinal"],
        postgresql_where=sa.text("entity_id IS NOT NULL"),
    )
    op.execute(f"ALTER TABLE {TABLE} ATTACH PARTITION {SHARED} FOR VALUES IN (0)")
    op.execute(f"ALTER TABLE {SHARED} DROP CONSTRAINT {CHECK}")
    op.execute(RIGHTS)
    op.add_column("rollup_parts", sa.Column("partition", sa.Integer(), server_default="0", nullable=False))
    op.create_table(
        "rollup_partitions",
        sa.Column("number", sa.Integer(), sa.Identity(always=True), nullable=False),
        sa.Column("run_id", sa.UUID()),
        sa.Column("attempt", sa.Integer()),
        sa.PrimaryKeyConstraint("number", name=op.f("pk_rollup_partitions")),
        comment="The partitions of rollup_rows for single runs, each with the attempt that has it; null: it is free",
    )
    schema = op.get_bind().scalar(sa.text("SELECT quote_ident(current_schema())"))
    for function, made in FUNCTIONS.items():
        op.execute(made.replace("SCHEMA", schema))
        op.execute(f"REVOKE ALL ON FUNCTION {function} FROM PUBLIC")


def downgrade() -> None:
    raise NotImplementedError("There is no way back from this migration: an earlier release reads and writes the table")
