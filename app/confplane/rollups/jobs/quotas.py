"""The quotas of each registered client, and their totals.

One row per registered client and quota key, and one per quota key for the whole cluster. Each broker counts quotas by
itself (KIP-13, KIP-55), so the totals are the maximum load of one broker, and a capacity is that of one broker.

================ ======================================================================================================
``config_key``   ``producer_byte_rate``, ``consumer_byte_rate`` (bytes per second), ``request_percentage`` (percent of
                 one thread's time), ``controller_mutation_rate`` (partition mutations per second)
``entity_id``    the client; empty in the row of the cluster
``value``        of a client its quota, null if it is unlimited; of the cluster the sum over all budgets, exact
                 to nine digits after the point
``level``        of a client, the level of its quota's entry, 1 to 8 as numbered in KIP-55; null if it is unlimited
``source``       of a client, the id of that entry
``budget``       of a client, the id of those that share the quota: the pair itself, its user, or its client-id
``clients``      number of clients: 1, or all
``unlimited``    number of clients without a quota
``unreadable``   number of clients whose stored quota is not a number; brokers keep the quota from before, or none
``budgets``      number of quotas in the sum: clients that share a quota count once
``capacity``     capacity of a broker, as given to the run; null if none was given
``share``        ``value / capacity``; above 1 the quotas exceed the capacity
================ ======================================================================================================

Costs as much as :func:`confplane.rollups.levels.deciding_entries`, and one shuffle of a row per budget. The entries and
the deciding entry of each client stay in Spark's cache during the run.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from pyspark.sql import functions as F  # noqa: N812 - the name that Spark's own pages use
from pyspark.sql.types import DoubleType, IntegerType, LongType, StringType, StructField, StructType

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

OUTPUT: Final = StructType(
    [
        StructField("config_key", StringType(), nullable=False),
        StructField("entity_id", StringType(), nullable=False),
        StructField("value", DoubleType()),
        StructField("level", IntegerType()),
        StructField("source", StringType()),
        StructField("budget", StringType()),
        StructField("clients", LongType(), nullable=False),
        StructField("unlimited", LongType(), nullable=False),
        StructField("unreadable", LongType(), nullable=False),
        StructField("budgets", LongType(), nullable=False),
        StructField("capacity", DoubleType()),
        StructField("share", DoubleType()),
    ]
)


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
    name="quotas",
    inputs={
        "registrations": ("entity_id",),
        "znodes": ("tree", "entity_id", "config", "undecodable", "forbidden"),
    },
    output=OUTPUT,
    key=("config_key", "entity_id"),
    transform=transform,
    options=frozenset({"capacity"}),
)
