"""The configs that the software of each client supports and has applied, with the times of the registrations.

One row per entity, software and version that is registered and was not cleared (KIP-649).

The columns are described in domain/rollups.py. ``supported_configs`` and ``common_configs`` may differ because producer
and consumer of one version do.

Incremental and exact: ids of events are in the order of their commits, and first, last, union and intersection can be
continued from the previous run. A clearing drops the earlier run's rows of its entity, or all. Reports are those of the
moment and are not continued.

Costs one pass over the new events, which stay in Spark's cache during the run, one over the earlier rows and one over
the reports; and two shuffles by entity.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from pyspark.sql import functions as F  # noqa: N812 - the name that Spark's own pages use

from confplane.domain.rollups import ROLLUPS
from confplane.rollups.job import Job
from confplane.rollups.reading import EVENT_COLUMNS, uncleared
from confplane.rollups.schemas import TEXTS

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame

_KEY: Final = ROLLUPS["compatibility"].key


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
    """Return the rows with the columns that follow from the events."""
    return (
        uncleared(registration_events, previous)
        .groupBy(*_KEY)
        .agg(
            _sorted(F.flatten(F.collect_set("supported_configs"))).alias("supported_configs"),
            _sorted(_intersection(F.collect_set("common_configs"))).alias("common_configs"),
            F.min("first_seen").alias("first_seen"),
            F.max("last_seen").alias("last_seen"),
        )
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
    rollup=ROLLUPS["compatibility"],
    inputs={
        "registration_events": EVENT_COLUMNS,
        "reports": (*_KEY, "applied_revision", "refused_configs"),
    },
    transform=transform,
    incremental=True,
)
