"""If a default were changed: who would see another value, and who would not because it has an entry of its own?

One row per default and config key.

================ ======================================================================================================
``facet``        ``client-quotas``, ``client-configs`` or ``configs``
``default_id``   of quotas: ``user``, ``client-id`` and ``user,client-id``, whether or not anything is set there, and
                 each ``user=x,client-id`` and ``user,client-id=x`` that sets the key. Of client configs: each
                 ``user=x`` that sets the key, the default of that user's client-ids (KIP-649; default users and
                 default client-ids reach no client). Of configs: ``broker``, the default of all brokers (KIP-226)
``config_key``   the key
``value``        what is set there now, as stored; null where nothing is, and for a secret
``affected``     how many would see another value, were this one changed: registered clients, or brokers
``overridden``   how many would not, because an entry that counts before this one sets the key
``unsupported``  of client configs, how many of the affected have registered no support for the key: they ignore it
``examples``     ids of up to :data:`EXAMPLES` of the affected, the first in order
================ ======================================================================================================

Brokers are those that have an entry of their own. What their files set is below the dynamic default, so it hides
nothing. Topics that set nothing themselves follow their brokers; see ``drift``.

Costs what :func:`app.rollups.levels.deciding` does, and a shuffle of a row per client and default that it falls under.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from pyspark.sql import Window
from pyspark.sql import functions as F  # noqa: N812 - the name that Spark's own pages use
from pyspark.sql.types import LongType, StringType, StructField, StructType

from app.domain.client_configs import SUPPORTED_CONFIGS
from app.domain.entities import EntityType
from app.domain.facets import FacetName, Tree
from app.domain.quotas import QUOTA_KEYS
from app.rollups.columns import client_part, entity_type, is_named, user_id
from app.rollups.job import Job
from app.rollups.levels import (
    CLIENT_QUOTAS,
    EVERYWHERE,
    by_key,
    deciding,
    quota_entries,
    registered_clients,
)
from app.rollups.schemas import TEXTS

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame

EXAMPLES: Final = 20

OUTPUT: Final = StructType(
    [
        StructField("facet", StringType(), nullable=False),
        StructField("default_id", StringType(), nullable=False),
        StructField("config_key", StringType(), nullable=False),
        StructField("value", StringType()),
        StructField("affected", LongType(), nullable=False),
        StructField("overridden", LongType(), nullable=False),
        StructField("unsupported", LongType(), nullable=False),
        StructField("examples", TEXTS, nullable=False),
    ]
)

_KEY: Final = ("facet", "default_id", "config_key")
_LEVEL_OF_USER: Final = 2
_LEVEL_OF_CLIENT: Final = 4
"""The quota levels of the default client-id of one user, and of one client-id under the default user."""
_NOWHERE: Final = 9
"""In place of the level of a quota that is set nowhere."""
_SCRAM: Final = ("SCRAM-SHA-256", "SCRAM-SHA-512")


def transform(*, registrations: DataFrame, znodes: DataFrame) -> DataFrame:
    """Return the rows; see the module."""
    readable = znodes.where("entity_id IS NOT NULL AND NOT undecodable AND NOT forbidden")
    return _of_quotas(registrations, readable).unionByName(
        _of_client_configs(registrations, readable)
    ).unionByName(_of_brokers(readable))  # fmt: skip


# -- client quotas


def _of_quotas(registrations: DataFrame, znodes: DataFrame) -> DataFrame:
    entries = quota_entries(znodes)
    decided = by_key(deciding(registered_clients(registrations), entries)).select(
        "entity_id", "user", "client", "config_key", "level"
    )
    defaults = entries.select(F.col("source").alias("default_id"), F.explode("quotas").alias("config_key", "value"))
    return _of_every_client(decided, defaults).unionByName(_of_some_clients(decided, defaults))


def _of_every_client(decided: DataFrame, defaults: DataFrame) -> DataFrame:
    """Tell of the three defaults that all clients fall under, whether or not they are set, and without clients too.

    Who decides what for how many is all that is needed of the clients, so each is looked at once.
    """
    # By key and deciding level: the level of what is unlimited is behind all others.
    ranked = decided.select("entity_id", "config_key", F.coalesce("level", F.lit(_NOWHERE)).alias("decider"))
    counts = ranked.groupBy("config_key", "decider").agg(F.count("*").alias("clients"))
    examples = _first(ranked, "config_key", "decider")
    levels = decided.sparkSession.createDataFrame(
        [(level, default_id, key) for level, default_id in EVERYWHERE.items() for key in CLIENT_QUOTAS],
        "level int, default_id string, config_key string",
    )
    affected = F.col("decider") >= F.col("level")
    clients = F.coalesce("clients", F.lit(0))
    return (
        levels.join(counts.join(examples, ["config_key", "decider"]), "config_key", "left")
        .groupBy("default_id", "config_key")
        .agg(
            F.sum(F.when(affected, clients).otherwise(0)).alias("affected"),
            F.sum(F.when(affected, 0).otherwise(clients)).alias("overridden"),
            _shortened(F.flatten(F.collect_list(F.when(affected, F.col("examples"))))).alias("examples"),
        )
        .join(defaults, ["default_id", "config_key"], "left")
        .select(
            F.lit(FacetName.CLIENT_QUOTAS.value).alias("facet"),
            "default_id",
            "config_key",
            "value",
            "affected",
            "overridden",
            F.lit(0).cast("long").alias("unsupported"),
            "examples",
        )
    )


def _of_some_clients(decided: DataFrame, defaults: DataFrame) -> DataFrame:
    """Tell of the defaults of one user's client-ids, and of one client-id's users, that are set."""
    named_user = is_named(F.col("default_id"), EntityType.USER)
    named_client = is_named(F.col("default_id"), EntityType.CLIENT_ID)
    listed = defaults.where(entity_type(F.col("default_id")) == "user,client-id").select(
        F.lit(FacetName.CLIENT_QUOTAS.value).alias("facet"), "default_id", "config_key", "value"
    )
    of_user = listed.where(named_user & ~named_client).withColumn("user", user_id(F.col("default_id")))
    of_client = listed.where(~named_user & named_client).withColumn("client", client_part(F.col("default_id")))
    clients = decided.withColumn("decider", F.coalesce("level", F.lit(_NOWHERE)))
    under = [
        clients.join(of_user, ["user", "config_key"]).withColumn("affected", F.col("decider") >= _LEVEL_OF_USER),
        clients.join(of_client, ["client", "config_key"]).withColumn("affected", F.col("decider") >= _LEVEL_OF_CLIENT),
    ]
    falls_under = [
        each.select(*_KEY, "value", "entity_id", "affected", F.expr("true").alias("supported")) for each in under
    ]
    return _counted(falls_under[0].unionByName(falls_under[1]), listed.where(named_user != named_client))


# -- client configs


def _of_client_configs(registrations: DataFrame, znodes: DataFrame) -> DataFrame:
    entries = (
        znodes.where(entity_type(F.col("entity_id")).isin("user", "user,client-id"))
        .where(is_named(F.col("entity_id"), EntityType.USER))
        .select(F.col("entity_id").alias("source"), F.explode("config").alias("config_key", "value"))
        .where(~F.col("config_key").isin(*QUOTA_KEYS, *_SCRAM, SUPPORTED_CONFIGS))
        .where("value IS NOT NULL")
    )
    defaults = entries.where(~F.contains("source", F.lit(","))).withColumnRenamed("source", "default_id")
    own = entries.where(F.contains("source", F.lit(","))).select(
        F.col("source").alias("entity_id"), "config_key", F.expr("true").alias("own")
    )
    supported = registrations.groupBy("entity_id").agg(
        F.array_distinct(F.flatten(F.collect_set("supported_configs"))).alias("supports")
    )
    clients = registered_clients(registrations).withColumnRenamed("user", "default_id").drop("client")
    under = (
        clients.join(supported, "entity_id")
        .join(defaults, "default_id")
        .join(own, ["entity_id", "config_key"], "left")
        .select(
            F.lit(FacetName.CLIENT_CONFIGS.value).alias("facet"),
            "default_id",
            "config_key",
            "value",
            "entity_id",
            F.col("own").isNull().alias("affected"),
            F.array_contains("supports", F.col("config_key")).alias("supported"),
        )
    )
    return _counted(under, defaults.select(F.lit(FacetName.CLIENT_CONFIGS.value).alias("facet"), *_KEY[1:], "value"))


# -- brokers


def _of_brokers(znodes: DataFrame) -> DataFrame:
    brokers = znodes.where(F.col("tree") == Tree.CONFIG.value).where(entity_type(F.col("entity_id")) == "broker")
    defaults = brokers.where(F.col("entity_id") == EntityType.BROKER.value).select(
        F.lit(FacetName.CONFIGS.value).alias("facet"),
        F.col("entity_id").alias("default_id"),
        F.explode("config").alias("config_key", "value"),
    )
    under = (
        brokers.where(is_named(F.col("entity_id"), EntityType.BROKER))
        .crossJoin(F.broadcast(defaults))
        .select(
            *_KEY,
            "value",
            "entity_id",
            (~F.map_contains_key("config", F.col("config_key"))).alias("affected"),
            F.expr("true").alias("supported"),
        )
    )
    return _counted(under, defaults)


def _counted(under: DataFrame, listed: DataFrame) -> DataFrame:
    """Count who falls under each default; defaults that nobody falls under have a row as well."""
    counts = under.groupBy(*_KEY).agg(
        F.count_if("affected").alias("affected"),
        F.count_if(~F.col("affected")).alias("overridden"),
        F.count_if(F.col("affected") & ~F.col("supported")).alias("unsupported"),
    )
    zero = F.lit(0).cast("long")
    return (
        listed.join(counts, list(_KEY), "left")
        .join(_first(under.where("affected"), *_KEY), list(_KEY), "left")
        .select(
            *_KEY,
            "value",
            *(F.coalesce(name, zero).alias(name) for name in ("affected", "overridden", "unsupported")),
            F.coalesce("examples", F.array().cast(TEXTS)).alias("examples"),
        )
    )


def _first(rows: DataFrame, *group: str) -> DataFrame:
    """Return the first entity ids of each group, in order, as ``examples``."""
    rank = F.row_number().over(Window.partitionBy(*group).orderBy("entity_id"))
    return (
        rows.select(*group, "entity_id", rank.alias("rank"))
        .where(F.col("rank") <= EXAMPLES)
        .groupBy(*group)
        .agg(_shortened(F.collect_list("entity_id")).alias("examples"))
    )


def _shortened(ids: Column) -> Column:
    return F.slice(F.array_sort(ids), 1, EXAMPLES)


JOB: Final = Job(
    name="impact",
    inputs={
        "registrations": ("entity_id", "supported_configs"),
        "znodes": ("tree", "entity_id", "config", "undecodable", "forbidden"),
    },
    output=OUTPUT,
    key=_KEY,
    transform=transform,
)
