"""The use of quotas by clients, as measured by monitoring: which clients are throttled or far below their quota.

One row per quota key and measured budget (the clients that share a quota), and one per quota key for all of them. Each
broker counts quotas by itself, so a measurement is that of one broker: of several rows of one time and client, for
example from several brokers, the largest counts.

The columns are described in domain/rollups.py. More exactly:

- ``budget`` is the client itself if it has no quota.
- ``state``: ``throttled`` is at the quota in :data:`OFTEN` of the time or more; ``distant`` never above :data:`DISTANT`
  of it.
- ``mean``, ``p95`` and ``peak`` are of all clients of the budget together; the percentile is interpolated.
- ``throttled_share`` counts times with a use of :data:`AT` of the quota or more: a throttled client's rate is held
  about the quota.
- ``proposed`` is in whole units of byte rates and in hundredths of the others: of ``throttled`` :data:`RAISE` times the
  quota; of ``distant`` and ``unlimited`` :data:`ROOM` times the peak.

Clients of one budget are added up if they were measured at the same times, for example by one exporter.

Costs two shuffles of the measurements, the joins of :func:`confplane.rollups.levels.deciding_entries` for the measured
clients, and memory for the distinct values of one budget at a time, for its percentile.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from pyspark.sql import functions as F  # noqa: N812 - the name that Spark's own pages use
from pyspark.sql.types import StringType

from confplane.domain.entities import Entity, EntityType
from confplane.domain.rollups import ROLLUPS
from confplane.rollups.columns import client_part, entity_type, exact_sum, name, user_id
from confplane.rollups.job import Job
from confplane.rollups.levels import (
    CLIENT_QUOTAS,
    DEFAULT_LEVELS,
    INTEGRAL,
    by_key,
    capacities,
    deciding_entries,
    number_of,
    quota_entries,
    sharers,
)
from confplane.rollups.schemas import USAGE

if TYPE_CHECKING:
    from collections.abc import Mapping

    from pyspark.sql import Column, DataFrame

AT: Final = 0.95
OFTEN: Final = 0.01
DISTANT: Final = 0.5
RAISE: Final = 1.5
ROOM: Final = 2.0
_P95: Final = 0.95

_QUOTA: Final = ("quota", "level", "source")


def transform(*, usage: DataFrame, znodes: DataFrame, capacity: Mapping[str, float]) -> DataFrame:
    """Return the rows; see the module."""
    names = ("user", "client_id")
    measured = (
        usage.where(F.col("metric").isin(*CLIENT_QUOTAS))
        .groupBy(*(F.coalesce(each, F.lit("")).alias(each) for each in names), "metric", "time")
        .agg(F.max("value").alias("value"))
        .persist()
    )
    clients = measured.select(*names).distinct().withColumn("entity_id", _entity_id(*names)).persist()
    entity_id = F.col("entity_id")
    parts = clients.select(entity_id, user_id(entity_id).alias("user"), client_part(entity_id).alias("client"))
    quotas = by_key(deciding_entries(parts, quota_entries(znodes))).select(
        "entity_id",
        "config_key",
        F.coalesce(sharers(), entity_id).alias("budget"),
        number_of(F.col("stored")).alias("quota"),
        "level",
        "source",
    )
    used = (
        measured.join(clients, list(names))
        .withColumnRenamed("metric", "config_key")
        .join(quotas, ["entity_id", "config_key"])
        .persist()
    )
    of_budgets = _summed(used, "budget", *_QUOTA)
    promised = of_budgets.groupBy("config_key").agg(exact_sum(F.col("quota")).alias("quota"))
    of_all = _summed(used).join(promised, "config_key").withColumns(
        {"budget": F.lit(""), "level": F.lit(None).cast("int"), "source": F.lit(None).cast("string")}
    )  # fmt: skip
    limit = capacities(capacity)
    return (
        of_budgets.unionByName(of_all)
        .withColumn("state", _state())
        .withColumn("throttled_share", F.when(F.col("state") != "total", F.col("throttled_share")))
        .withColumns({"capacity": limit, "share": F.when(limit > 0, F.col("quota") / limit)})
        .withColumn("proposed", _proposed())
        .withColumn("proposal", F.when(F.col("proposed").isNotNull(), _proposal(F.col("budget"))))
        .withColumn("default_proposal", F.when(_is_throttled_by_default(), _proposal(F.col("source"))))
    )


def _summed(used: DataFrame, *of: str) -> DataFrame:
    """Return statistics over all times of the use of each group of clients, added up at each time."""
    key = ("config_key", *of)
    quota = F.col("quota") if "quota" in of else F.lit(None).cast("double")
    clients = used.groupBy(*key).agg(F.count_distinct("entity_id").alias("clients"))
    at_times = used.groupBy(*key, "time").agg(exact_sum(F.col("value")).alias("used"))
    figures = at_times.groupBy(*key).agg(
        F.count("*").alias("samples"),
        (exact_sum(F.col("used")) / F.count("*")).alias("mean"),
        F.percentile("used", F.lit(_P95)).alias("p95"),
        F.max("used").alias("peak"),
        F.avg((F.col("used") >= AT * quota).cast("double")).alias("throttled_share"),
    )
    same = [figures[each].eqNullSafe(clients[each]) for each in key]
    return figures.join(clients, same).select(*(figures[each] for each in figures.columns), "clients")


def _state() -> Column:
    quota = F.col("quota")
    return (
        F.when(F.col("budget") == "", "total")
        .when(F.col("level").isNull(), "unlimited")
        .when(quota.isNull(), "unreadable")
        .when(F.col("throttled_share") >= OFTEN, "throttled")
        .when(F.col("peak") <= DISTANT * quota, "distant")
        .otherwise("within")
    )


def _proposed() -> Column:
    state = F.col("state")
    wanted = F.when(state == "throttled", RAISE * F.col("quota")).when(
        state.isin("distant", "unlimited"), ROOM * F.col("peak")
    )
    hundredths = F.ceil(wanted * 100).cast("double") / 100
    rounded = F.when(F.col("config_key").isin(*INTEGRAL), F.ceil(wanted).cast("double")).otherwise(hundredths)
    return F.when((rounded > 0) & (rounded < float(2**53)), rounded)


def _is_throttled_by_default() -> Column:
    """Return an expression that is true if a proposed raise is of a quota that a default entry sets."""
    is_of_default = F.col("level").isin(*DEFAULT_LEVELS)
    return (F.col("state") == "throttled") & F.col("proposed").isNotNull() & is_of_default


def _proposal(entity_id: Column) -> Column:
    """Return the body of the alter that sets the proposed quota for an entity."""
    components = [
        F.when(
            F.array_contains(F.split(entity_type(entity_id), ","), F.lit(kind.value)),
            F.struct(F.lit(kind.value).alias("entityType"), name(entity_id, kind).alias("entityName")),
        )
        for kind in (EntityType.USER, EntityType.CLIENT_ID)
    ]
    entity = F.filter(F.array(*components), lambda each: each.isNotNull())
    proposed = F.col("proposed")
    bodies = (_body(entity, value) for value in (proposed.cast("long"), proposed))
    whole, decimal = bodies
    return F.when(F.col("config_key").isin(*INTEGRAL), whole).otherwise(decimal)


def _body(entity: Column, value: Column) -> Column:
    op = F.struct(F.col("config_key").alias("key"), value.alias("value"))
    entry = F.struct(entity.alias("entity"), F.array(op).alias("ops"))
    # The name of a default is null.
    return F.to_json(F.struct(F.array(entry).alias("entries")), {"ignoreNullFields": "false"})


@F.udf(returnType=StringType(), useArrow=False)
def _entity_id(user: str, client_id: str) -> str:
    components = {EntityType.USER: user, EntityType.CLIENT_ID: client_id}
    return Entity(tuple((kind, given) for kind, given in components.items() if given)).id


JOB: Final = Job(
    rollup=ROLLUPS["usage"],
    inputs={
        "usage": tuple(USAGE.names),
        "znodes": ("tree", "entity_id", "config", "undecodable", "forbidden"),
    },
    transform=transform,
    options=frozenset({"capacity"}),
)
