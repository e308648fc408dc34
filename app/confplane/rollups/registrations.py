"""Current registrations, from the events in which they were recorded."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from pyspark.sql import functions as F  # noqa: N812 - the name that Spark's own pages use

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

_SOFTWARE: Final = ("entity_id", "software_name", "software_version", "supported_configs")
EVENT_COLUMNS: Final = ("id", "event", *_SOFTWARE, "seen_at")
"""Columns of the events that :func:`current_registrations` reads."""
_START: Final = -1
"""An id below that of every event, for rows of an earlier run."""


def current_registrations(events: DataFrame, previous: DataFrame | None = None) -> DataFrame:
    """Return the current registrations, one row per entity, software, version and set of supported configs.

    Args:
        events: Rows of ``REGISTRATION_EVENTS``, with :data:`EVENT_COLUMNS` at least.
        previous: The registrations before the first event, as returned by this function; None for no registrations.

    Returns:
        Their columns are entity_id, software_name, software_version, supported_configs (sorted), first_seen and
        last_seen. Entities are ``user=`` or ``user=,client-id=``.

    Costs one pass over the events, which stay in Spark's cache during the run, and one shuffle of the ``seen`` events
    by entity. Clearings are few, and are joined by broadcast.
    """
    events = events.persist()
    seen = events.where("event = 'seen'").select(
        "id", *_SOFTWARE, F.col("seen_at").alias("first_seen"), F.col("seen_at").alias("last_seen")
    )
    if previous is not None:
        known = previous.select(F.lit(_START).cast("bigint").alias("id"), *_SOFTWARE, "first_seen", "last_seen")
        seen = seen.unionByName(known)
    cleared = events.where("event = 'cleared'")
    of_entity = cleared.where("entity_id IS NOT NULL").groupBy("entity_id").agg(F.max("id").alias("entity_cleared"))
    of_all = cleared.where("entity_id IS NULL").agg(F.coalesce(F.max("id"), F.lit(_START - 1)).alias("all_cleared"))
    return (
        seen.join(F.broadcast(of_entity), "entity_id", "left")
        .crossJoin(F.broadcast(of_all))
        .where("id > coalesce(entity_cleared, all_cleared) AND id > all_cleared")
        .groupBy(*_SOFTWARE)
        .agg(F.min("first_seen").alias("first_seen"), F.max("last_seen").alias("last_seen"))
        .select(*_SOFTWARE, "first_seen", "last_seen")
    )
