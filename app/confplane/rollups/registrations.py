"""Current registrations, from the events in which they were recorded."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from pyspark.sql import functions as F  # noqa: N812 - the name that Spark's own pages use

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

_SOFTWARE: Final = ("entity_id", "software_name", "software_version", "supported_configs")
EVENT_COLUMNS: Final = ("id", "event", *_SOFTWARE, "seen_at")
"""Columns of the events that the functions below read."""
_START: Final = -1
"""An id below that of every event, for rows of an earlier run."""


def current_registrations(events: DataFrame) -> DataFrame:
    """Return the current registrations: entity_id, software_name, software_version, supported_configs (sorted).

    Args:
        events: All rows of ``REGISTRATION_EVENTS``, with :data:`EVENT_COLUMNS` at least.

    Costs as much as :func:`uncleared`.
    """
    return uncleared(events).select(*_SOFTWARE).distinct()


def uncleared(events: DataFrame, previous: DataFrame | None = None) -> DataFrame:
    """Return the ``seen`` events that no later event cleared.

    Args:
        events: Rows of ``REGISTRATION_EVENTS``, with :data:`EVENT_COLUMNS` at least.
        previous: Rows of the job ``compatibility`` from before the first event, which are returned too unless they are
            cleared; None for no rows.

    Returns:
        Rows with ``id``, the software's columns, ``common_configs``, ``first_seen`` and ``last_seen``.

    Costs one pass over the events, which stay in Spark's cache during the run. Clearings are few, and are joined by
    broadcast.
    """
    # Used several times, and reading them again would query Postgres again.
    events = events.persist()
    seen_at, configs = F.col("seen_at"), F.col("supported_configs")
    seen = events.where("event = 'seen'").select(
        "id",
        *_SOFTWARE,
        configs.alias("common_configs"),
        seen_at.alias("first_seen"),
        seen_at.alias("last_seen"),
    )
    if previous is not None:
        seen = seen.unionByName(previous.withColumn("id", F.lit(_START).cast("long")).select(*seen.columns))
    cleared = events.where("event = 'cleared'")
    of_entity = cleared.where("entity_id IS NOT NULL").groupBy("entity_id").agg(F.max("id").alias("cleared_entity"))
    of_all = cleared.where("entity_id IS NULL").agg(F.max("id").alias("cleared_all"))
    return (
        seen.join(F.broadcast(of_entity), "entity_id", "left")
        .crossJoin(F.broadcast(of_all))
        .where(f"id > coalesce(greatest(cleared_entity, cleared_all), {_START - 1})")
    )
