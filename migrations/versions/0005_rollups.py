"""The runs of the rollups, and the rows that they made."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op
from sqlalchemy.dialects import postgresql

revision = "0005"
down_revision = "0004"


def upgrade() -> None:
    name = sa.Text(collation="C")
    op.create_table(
        "rollup_runs",
        sa.Column("id", sa.UUID(), nullable=False),
        sa.Column("cluster", name, nullable=False),
        sa.Column("job", name, nullable=False),
        sa.Column("state", sa.Text(), nullable=False),
        sa.Column("attempt", sa.Integer(), server_default="1", nullable=False),
        sa.Column("as_of", sa.DateTime(timezone=True), nullable=False),
        sa.Column("position", postgresql.JSONB(), nullable=False),
        sa.Column("previous", sa.UUID()),
        sa.Column("principal", sa.Text(), nullable=False),
        sa.Column("started_at", sa.DateTime(timezone=True), server_default=sa.func.now(), nullable=False),
        sa.Column("finished_at", sa.DateTime(timezone=True)),
        sa.Column("row_count", sa.BigInteger()),
        sa.Column("error", sa.Text()),
        sa.CheckConstraint("state IN ('running', 'complete', 'failed')", name=op.f("ck_rollup_runs_state_is_known")),
        sa.CheckConstraint(
            "state <> 'complete' OR num_nulls(finished_at, row_count) = 0",
            name=op.f("ck_rollup_runs_complete_is_whole"),
        ),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_rollup_runs")),
        comment="Runs of the rollups; the complete one with the latest as_of is a job's current one",
    )
    op.create_index("ix_rollup_runs_cluster_job_as_of_id", "rollup_runs", ["cluster", "job", "as_of", "id"])
    op.create_table(
        "rollup_parts",
        sa.Column("run_id", sa.UUID(), nullable=False),
        sa.Column("part", sa.Integer(), nullable=False),
        sa.Column("row_count", sa.BigInteger(), nullable=False),
        sa.PrimaryKeyConstraint("run_id", "part", name=op.f("pk_rollup_parts")),
        comment="Which parts of a run are written, each in one transaction with its rows",
    )
    op.create_table(
        "rollup_rows",
        sa.Column("run_id", sa.UUID(), nullable=False),
        sa.Column("part", sa.Integer(), nullable=False),
        sa.Column("ordinal", sa.Integer(), nullable=False),
        sa.Column("entity_id", name),
        sa.Column("item", postgresql.JSONB(), nullable=False),
        comment="The rows of runs, in the order of (part, ordinal)",
    )
    op.create_index("ix_rollup_rows_run_id_part_ordinal", "rollup_rows", ["run_id", "part", "ordinal"])
    op.create_index(
        "ix_rollup_rows_entity",
        "rollup_rows",
        ["run_id", "entity_id", "part", "ordinal"],
        postgresql_where=sa.text("entity_id IS NOT NULL"),
    )


def downgrade() -> None:
    raise NotImplementedError("The trail is never taken away: there is no way back from this migration")
