"""Rows of registrations expire: those that neither the first nor the last time of a registration needs."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0023"
down_revision = "0022"

TABLE = "registrations"
REFUSE = "EXECUTE FUNCTION refuse_to_alter_the_trail()"
KEPT = "interval '30 days'"

# By the day, so that the index finds an early and a late row at once, however many an entity has.
OTHER = f"""
      SELECT FROM {TABLE} AS other
      WHERE other.event = 'seen' AND other.cluster = old.cluster AND other.entity_id = old.entity_id
        AND other.software_name = old.software_name AND other.software_version = old.software_version
        AND other.supported_configs = old.supported_configs
        AND other.id > coalesce((
          SELECT max(cleared.id) FROM {TABLE} AS cleared
          WHERE cleared.event = 'cleared' AND cleared.cluster = old.cluster
            AND (cleared.entity_id = old.entity_id OR cleared.entity_id IS NULL)
        ), 0)
"""  # noqa: S608 - of constants

# Run with the rights of the owner: the service's role may not delete. A row of 30 days is deleted if a clearing
# hides it, or if the registration has an earlier and a later row. A later row must have a higher id as
# well: the highest id of the table, from which exports and rollups continue, is never deleted.
EXPIRE = f"""
CREATE OR REPLACE FUNCTION expire_registrations(after bigint, size integer) RETURNS bigint
LANGUAGE plpgsql SECURITY DEFINER SET search_path = SCHEMA, pg_temp AS $$
DECLARE
  reached record;
BEGIN
  SELECT max(id) AS id, max(recorded_at) AS recorded_at, count(*) AS number INTO reached
  FROM (SELECT id, recorded_at FROM {TABLE} WHERE id > after ORDER BY id LIMIT size) AS piece;
  DELETE FROM {TABLE} AS old
  WHERE old.id > after AND old.id <= reached.id AND old.event = 'seen' AND old.recorded_at <= now() - {KEPT} AND (
    EXISTS (
      SELECT FROM {TABLE} AS cleared
      WHERE cleared.event = 'cleared' AND cleared.cluster = old.cluster AND cleared.entity_id = old.entity_id
        AND cleared.id > old.id)
    OR EXISTS (
      SELECT FROM {TABLE} AS cleared
      WHERE cleared.event = 'cleared' AND cleared.cluster = old.cluster AND cleared.entity_id IS NULL
        AND cleared.id > old.id)
    OR EXISTS ({OTHER} AND other.seen_on <= old.seen_on AND (other.seen_at, other.id) < (old.seen_at, old.id))
    AND EXISTS ({OTHER} AND other.seen_on >= old.seen_on AND other.seen_at >= old.seen_at AND other.id > old.id)
  );
  RETURN CASE WHEN reached.number = size AND reached.recorded_at <= now() - {KEPT} THEN reached.id END;
END
$$
"""  # noqa: S608 - of constants


def upgrade() -> None:
    # Nobody alters a row, and nobody deletes one that is needed: the owner neither.
    op.execute(f"DROP TRIGGER append_only ON {TABLE}")
    op.execute(f"CREATE TRIGGER append_only BEFORE UPDATE OR TRUNCATE ON {TABLE} FOR EACH STATEMENT {REFUSE}")
    op.execute(
        f"CREATE TRIGGER append_only_kept BEFORE DELETE ON {TABLE} FOR EACH ROW"
        f" WHEN (OLD.event <> 'seen' OR OLD.recorded_at > now() - {KEPT}) {REFUSE}"
    )
    for trigger in ("append_only", "append_only_kept"):
        op.execute(f"ALTER TABLE {TABLE} ENABLE ALWAYS TRIGGER {trigger}")
    schema = op.get_bind().scalar(sa.text("SELECT quote_ident(current_schema())"))
    op.execute(EXPIRE.replace("SCHEMA", schema))
    op.execute("REVOKE ALL ON FUNCTION expire_registrations(bigint, integer) FROM PUBLIC")


def downgrade() -> None:
    raise NotImplementedError("There is no way back from this migration: rows that expired are gone")
