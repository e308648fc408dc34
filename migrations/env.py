"""Runs the migrations on the connection that ``confplane.audit.migrate`` opened, each in a transaction of its own."""

from __future__ import annotations

from alembic import context

from confplane.audit.tables import metadata

if context.is_offline_mode():
    raise SystemExit("Migrations run on a live database only: use `confplane migrate`")

context.configure(
    connection=context.config.attributes["connection"],
    target_metadata=metadata,
    compare_server_default=True,
    transaction_per_migration=True,
)
with context.begin_transaction():
    context.run_migrations()
