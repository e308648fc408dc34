"""The quotas of each registered client, and their totals.

One row per registered client and quota key, and one per quota key for the whole cluster. Each broker counts quotas by
itself (KIP-13, KIP-55), so the totals are the maximum load of one broker, and a capacity is that of one broker.

The columns are described in domain/rollups.py. The sum in the row of the cluster is exact to nine digits after the
point, and counts the quota of clients that share one once. Brokers keep the quota from before, or none, for an
``unreadable`` one.

Costs as much as :func:`confplane.rollups.levels.deciding_entries`, and one shuffle of a row per budget. The entries and
the deciding entry of each client stay in Spark's cache during the run.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from pyspark.sql import functions as F  # noqa: N812 - the name that Spark's own pages use

from confplane.domain.rollups import ROLLUPS
from confplane.rollups.columns import exact_sum
from confplane.rollups.job import Job
from confplane.rollups.levels import (
    by_key,
    capacities,
    deciding_entries,
    number_of,
    quota_entries,
    registered_clients,
    sharers,
)

if TYPE_CHECKING:
    from collections.abc import Mapping

    from pyspark.sql import DataFrame


def transform(*, registrations: DataFrame, znodes: DataFrame, capacity: Mapping[str, float]) -> DataFrame:
    """Return the rows; see the module."""
    entries = quota_entries(znodes).persist()
    decided = (
        by_key(deciding_entries(registered_clients(registrations), entries)).drop("has_user", "has_client").persist()
    )
    clients = decided.select(
        "config_key",
        "entity_id",
        number_of(F.col("stored")).alias("value"),
        "level",
        "source",
        sharers().alias("budget"),
        F.lit(1).cast("long").alias("clients"),
        F.col("level").isNull().cast("long").alias("unlimited"),
        (F.col("level").isNotNull() & number_of(F.col("stored")).isNull()).cast("long").alias("unreadable"),
        number_of(F.col("stored")).isNotNull().cast("long").alias("budgets"),
    )
    # A budget has one quota for all its clients, so they have the same source. Clients without a quota are one group
    # per key.
    budgets = clients.groupBy("config_key", "source", F.when(F.col("value").isNotNull(), F.col("budget"))).agg(
        F.first("value").alias("value"),
        F.sum("clients").alias("clients"),
        F.sum("unlimited").alias("unlimited"),
        F.sum("unreadable").alias("unreadable"),
        F.max("budgets").alias("budgets"),
    )
    totals = budgets.groupBy("config_key").agg(
        F.lit("").alias("entity_id"),
        exact_sum(F.col("value")).alias("value"),
        F.lit(None).cast("int").alias("level"),
        F.lit(None).cast("string").alias("source"),
        F.lit(None).cast("string").alias("budget"),
        *(F.sum(name).alias(name) for name in ("clients", "unlimited", "unreadable", "budgets")),
    )
    limit = capacities(capacity)
    return clients.unionByName(totals).select(
        "*", limit.alias("capacity"), F.when(limit > 0, F.col("value") / limit).alias("share")
    )


JOB: Final = Job(
    rollup=ROLLUPS["quotas"],
    inputs={
        "registrations": ("entity_id",),
        "znodes": ("tree", "entity_id", "config", "undecodable", "forbidden"),
    },
    transform=transform,
    options=frozenset({"capacity"}),
)
