"""The configs that the software of each client supports and has applied, with the times of the registrations.

One row per entity, software and version that is registered and was not cleared (KIP-649).

==================== ==================================================================================================
``entity_id``        ``user=alice,client-id=billing``, or ``user=alice`` of clients without a client-id
``software_name``    as the client gave it
``software_version`` as the client gave it
``supported_configs`` sorted; the configs that at least one of its clients supports
``common_configs``   sorted; those that all of them support: producer and consumer of one version differ
``first_seen``       and ``last_seen``: UTC, at a day's resolution between them: a client is recorded once a day
``instances``        number of its running clients that report their applied configs; the reports are not verified
``applied_revision`` the earliest revision whose configs one of these uses; null if none reports
``refused_configs``  sorted; the configs that at least one of these refuses
==================== ==================================================================================================

Incremental and exact: ids of events are in the order of their commits, and first, last, union and intersection can be
continued from the previous run. A clearing drops the earlier run's rows of its entity, or all. Reports are those of the
moment and are not continued.

Costs one pass over the new events, which stay in Spark's cache during the run, one over the earlier rows and one over
the reports; and two shuffles by entity.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from pyspark.sql import functions as F  # noqa: N812 - the name that Spark's own pages use
from pyspark.sql.types import LongType, StringType, StructField, StructType, TimestampType

from confplane.rollups.job import Job
from confplane.rollups.schemas import TEXTS

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame

OUTPUT: Final = StructType(
    [
        StructField("entity_id", StringType(), nullable=False),
        StructField("software_name", StringType(), nullable=False),
        StructField("software_version", StringType(), nullable=False),
        StructField("supported_configs", TEXTS, nullable=False),
        StructField("common_configs", TEXTS, nullable=False),
        StructField("first_seen", TimestampType(), nullable=False),
        StructField("last_seen", TimestampType(), nullable=False),
        StructField("instances", LongType(), nullable=False),
        StructField("applied_revision", LongType()),
        StructField("refused_configs", TEXTS, nullable=False),
    ]
)

_KEY: Final = ("entity_id", "software_name", "software_version")
_EARLIER: Final = -1
"""The id for rows of an earlier run: below that of every event."""


_REGISTERED: Final = (*_KEY, "supported_configs", "common_configs", "first_seen", "last_seen")
"""The columns that follow from the events."""


def transform(
    *, registration_events: DataFrame, reports: DataFrame, previous: DataFrame | None = None, since: object = None
) -> DataFrame:
    """Return the rows; see the module."""
    del since  # events are distinguished by their ids
    rows = _registered(registration_events, previous).join(_reported(reports), [*_KEY], "left")
    return rows.withColumns(
        {
            "instances": F.coalesce("instances", F.lit(0)),
            "refused_configs": F.coalesce("refused_configs", F.array().cast(TEXTS)),
        }
    )


def _registered(registration_events: DataFrame, previous: DataFrame | None) -> DataFrame:
    """Return the rows with the columns of :data:`_REGISTERED`."""
    # Used several times, and reading them again would query Postgres again.
    events = registration_events.persist()
    seen = events.where("event = 'seen'").select(
        "id",
        *_KEY,
        "supported_configs",
        F.col("supported_configs").alias("common_configs"),
        F.col("seen_at").alias("first_seen"),
        F.col("seen_at").alias("last_seen"),
    )
    if previous is not None:
        earlier = previous.select(F.lit(_EARLIER).cast("long").alias("id"), *_REGISTERED)
        seen = seen.unionByName(earlier)
    cleared = events.where("event = 'cleared'")
    of_entity = cleared.where("entity_id IS NOT NULL").groupBy("entity_id").agg(F.max("id").alias("cleared_entity"))
    of_all = cleared.where("entity_id IS NULL").agg(F.max("id").alias("cleared_all"))
    latest = (
        seen.join(F.broadcast(of_entity), "entity_id", "left")
        .crossJoin(F.broadcast(of_all))
        .where("id > coalesce(greatest(cleared_entity, cleared_all), -2)")
    )
    return latest.groupBy(*_KEY).agg(
        _sorted(F.flatten(F.collect_set("supported_configs"))).alias("supported_configs"),
        _sorted(_intersection(F.collect_set("common_configs"))).alias("common_configs"),
        F.min("first_seen").alias("first_seen"),
        F.max("last_seen").alias("last_seen"),
    )


def _reported(reports: DataFrame) -> DataFrame:
    """Return the reports of the running clients of each entity and software."""
    return reports.groupBy(*_KEY).agg(
        F.count("*").alias("instances"),
        F.min("applied_revision").alias("applied_revision"),
        _sorted(F.flatten(F.collect_set("refused_configs"))).alias("refused_configs"),
    )


def _sorted(texts: Column) -> Column:
    return F.array_sort(F.array_distinct(texts))


def _intersection(sets: Column) -> Column:
    return F.aggregate(F.slice(sets, 2, F.size(sets)), sets[0], F.array_intersect)


JOB: Final = Job(
    name="compatibility",
    inputs={
        "registration_events": (
            "id", "event", "entity_id", "software_name", "software_version", "supported_configs", "seen_at"
        ),
        "reports": (*_KEY, "applied_revision", "refused_configs"),
    },
    output=OUTPUT,
    key=_KEY,
    transform=transform,
    incremental=True,
)  # fmt: skip
