"""The entities that a changed default would affect, and those that an entry of their own protects.

One row per default and config key.

The columns are described in domain/rollups.py. The defaults are:

- of quotas, ``user``, ``client-id`` and ``user,client-id``, whether or not anything is set there, and each
  ``user=x,client-id`` and ``user,client-id=x`` that sets the key;
- of client configs, each ``user=x`` that sets the key, the default of that user's client-ids (KIP-649; default users
  and default client-ids reach no client);
- of configs, ``broker``, the default of all brokers (KIP-226).

Brokers are those with their own entry. Values in their files are below the dynamic default, so they hide nothing.
Entries that brokers ignore count as not set. Topics that set nothing themselves follow their brokers; see ``drift``.

Costs as much as :func:`confplane.rollups.levels.deciding_entries`, and one row per client and default that applies to
it, counted by default. The znodes and the deciding entries of each client stay in Spark's cache during the run.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from pyspark.sql import functions as F  # noqa: N812 - the name that Spark's own pages use

from confplane.domain.broker_levels import DynamicLevel
from confplane.domain.client_configs import SUPPORTED_CONFIGS
from confplane.domain.entities import EntityType
from confplane.domain.facets import FacetName, Tree
from confplane.domain.quotas import QUOTA_KEYS
from confplane.domain.rollups import ROLLUPS
from confplane.rollups.columns import drop_ignored, entity_type, first_ids, first_of, is_named, user_id
from confplane.rollups.job import Job
from confplane.rollups.levels import (
    CLIENT_QUOTAS,
    EVERYWHERE,
    by_key,
    deciding_entries,
    quota_entries,
    registered_clients,
)
from confplane.rollups.schemas import TEXTS

if TYPE_CHECKING:
    from collections.abc import Sequence

    from pyspark.sql import DataFrame

    from confplane.domain.extra_keys import Catalogs

EXAMPLES: Final = 20

_KEY: Final = ROLLUPS["impact"].key
_LEVEL_OF_USER: Final = 2
_LEVEL_OF_CLIENT: Final = 4
"""The quota levels of the default client-id of one user, and of one client-id under the default user."""
_NOWHERE: Final = 9
"""The level of a quota that is not set anywhere."""
_SCRAM: Final = ("SCRAM-SHA-256", "SCRAM-SHA-512")


def transform(
    *,
    registrations: DataFrame,
    znodes: DataFrame,
    catalogs: Catalogs,
    release: str,
    client_config_trees: Sequence[str],
) -> DataFrame:
    """Return the rows; see the module."""
    # Both are used several times, and every read would query ZooKeeper and Postgres again.
    readable = (
        znodes.where("entity_id IS NOT NULL AND NOT undecodable AND NOT forbidden")
        .select("tree", "entity_id", "config", "undecodable", "forbidden")
        .persist()
    )
    clients = registrations.groupBy("entity_id").agg(
        F.array_distinct(F.flatten(F.collect_set("supported_configs"))).alias("supports")
    )
    entries = quota_entries(readable)
    decided = (
        by_key(deciding_entries(registered_clients(registrations), entries))
        .withColumn("decider", F.coalesce("level", F.lit(_NOWHERE)))
        .drop("level", "source", "stored")
        .persist()
    )
    defaults = entries.select(F.col("source").alias("default_id"), F.explode("quotas").alias("config_key", "value"))
    brokers = readable.where(F.col("tree") == Tree.CONFIG.value)
    default = brokers.where(F.col("entity_id") == EntityType.BROKER.value).withColumn(
        "config", drop_ignored("config", DynamicLevel.DEFAULT, catalogs, release)
    )
    named = brokers.where(is_named(F.col("entity_id"), EntityType.BROKER)).withColumn(
        "config", drop_ignored("config", DynamicLevel.BROKER, catalogs, release)
    )
    client_configs = _client_configs(readable, client_config_trees)
    of_users = client_configs.where(~F.contains("default_id", F.lit(",")))
    listed = _set_for_some(defaults), of_users, _of_brokers(default)
    under = (
        _under_quotas(decided),
        _under_client_configs(clients, client_configs, of_users),
        _under_brokers(named, listed[2]),
    )
    return _of_every_client(decided, defaults).unionByName(_counted(_union(under), _union(listed)))


# -- client quotas


def _of_every_client(decided: DataFrame, defaults: DataFrame) -> DataFrame:
    """Return the rows of the three defaults that apply to all clients, set or not, even without clients.

    Only the counts of clients by deciding level are needed, so each client is read once.
    """
    # By key and deciding level: the level of an unlimited quota is after all others.
    counts = decided.groupBy("config_key", "decider").agg(
        F.count("*").alias("clients"), first_ids(F.col("entity_id"), EXAMPLES).alias("examples")
    )
    levels = decided.sparkSession.createDataFrame(
        [(level, default_id, key) for level, default_id in EVERYWHERE.items() for key in CLIENT_QUOTAS],
        "level int, default_id string, config_key string",
    )
    affected = F.col("decider") >= F.col("level")
    clients = F.coalesce("clients", F.lit(0))
    return (
        levels.join(counts, "config_key", "left")
        .groupBy("default_id", "config_key")
        .agg(
            F.sum(F.when(affected, clients).otherwise(0)).alias("affected"),
            F.sum(F.when(affected, 0).otherwise(clients)).alias("overridden"),
            first_of(F.when(affected, F.col("examples")), EXAMPLES).alias("examples"),
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


def _set_for_some(defaults: DataFrame) -> DataFrame:
    """Return the set defaults of one user's client-ids, and of one client-id's users."""
    named_user = is_named(F.col("default_id"), EntityType.USER)
    named_client = is_named(F.col("default_id"), EntityType.CLIENT_ID)
    of_pairs = defaults.where(entity_type(F.col("default_id")) == "user,client-id")
    return of_pairs.where(named_user != named_client).select(
        F.lit(FacetName.CLIENT_QUOTAS.value).alias("facet"), "default_id", "config_key", "value"
    )  # fmt: skip


def _under_quotas(decided: DataFrame) -> DataFrame:
    of_user = F.concat("user", F.lit(f",{EntityType.CLIENT_ID.value}"))
    of_client = F.concat(F.lit(f"{EntityType.USER.value},"), "client")
    sides = (of_user, "has_user", _LEVEL_OF_USER), (of_client, "has_client", _LEVEL_OF_CLIENT)
    under = [
        F.struct(id_.alias("default_id"), F.col(is_set).alias("is_set"), (F.col("decider") >= level).alias("affected"))
        for id_, is_set, level in sides
    ]
    return (
        decided.where("has_user OR has_client")
        .select(
            F.lit(FacetName.CLIENT_QUOTAS.value).alias("facet"), "config_key", "entity_id", F.inline(F.array(*under))
        )
        .where("is_set")
        .select(*_KEY, "entity_id", "affected", F.expr("true").alias("supported"))
    )


# -- client configs


def _client_configs(znodes: DataFrame, trees: Sequence[str]) -> DataFrame:
    """Return the configs of users, which are the defaults of their client-ids, and those of these client-ids.

    Each entity counts with the first of the trees in which it has any.
    """
    place = F.array_position(F.array(*map(F.lit, trees)), F.col("tree"))
    owned = F.map_filter(
        "config",
        lambda key, value: ~key.isin(*QUOTA_KEYS, *_SCRAM, SUPPORTED_CONFIGS) & value.isNotNull(),
    )
    return (
        znodes.where(entity_type(F.col("entity_id")).isin("user", "user,client-id"))
        .where(is_named(F.col("entity_id"), EntityType.USER))
        .select("entity_id", owned.alias("config"), place.alias("place"))
        .where((F.col("place") > 0) & (F.size("config") > 0))
        .groupBy("entity_id")
        .agg(F.min_by("config", "place").alias("config"))
        .select(
            F.lit(FacetName.CLIENT_CONFIGS.value).alias("facet"),
            F.col("entity_id").alias("default_id"),
            F.explode("config").alias("config_key", "value"),
        )
    )


def _under_client_configs(clients: DataFrame, configs: DataFrame, listed: DataFrame) -> DataFrame:
    own = configs.where(F.contains("default_id", F.lit(","))).select(
        F.col("default_id").alias("entity_id"), "config_key", F.expr("true").alias("own")
    )
    return (
        clients.withColumn("default_id", user_id(F.col("entity_id")))
        .join(listed, "default_id")
        .join(own, ["entity_id", "config_key"], "left")
        .select(
            *_KEY,
            "entity_id",
            F.col("own").isNull().alias("affected"),
            F.array_contains("supports", F.col("config_key")).alias("supported"),
        )
    )


# -- brokers


def _of_brokers(default: DataFrame) -> DataFrame:
    return default.select(
        F.lit(FacetName.CONFIGS.value).alias("facet"),
        F.col("entity_id").alias("default_id"),
        F.explode("config").alias("config_key", "value"),
    )


def _under_brokers(brokers: DataFrame, listed: DataFrame) -> DataFrame:
    return brokers.crossJoin(F.broadcast(listed)).select(
        *_KEY,
        "entity_id",
        (~F.map_contains_key("config", F.col("config_key"))).alias("affected"),
        F.expr("true").alias("supported"),
    )


# -- all


def _union(frames: tuple[DataFrame, ...]) -> DataFrame:
    first, *others = frames
    for each in others:
        first = first.unionByName(each)
    return first


def _counted(under: DataFrame, listed: DataFrame) -> DataFrame:
    """Count the clients under each default; defaults without clients have a row as well."""
    affected = F.col("affected")
    totals = under.groupBy(*_KEY).agg(
        F.count_if(affected).alias("affected"),
        F.count_if(~affected).alias("overridden"),
        F.count_if(affected & ~F.col("supported")).alias("unsupported"),
        first_ids(F.when(affected, F.col("entity_id")), EXAMPLES).alias("examples"),
    )
    zero = F.lit(0).cast("long")
    return listed.join(totals, list(_KEY), "left").select(
        *_KEY,
        "value",
        *(F.coalesce(name, zero).alias(name) for name in ("affected", "overridden", "unsupported")),
        F.coalesce("examples", F.array().cast(TEXTS)).alias("examples"),
    )


JOB: Final = Job(
    rollup=ROLLUPS["impact"],
    inputs={
        "registrations": ("entity_id", "supported_configs"),
        "znodes": ("tree", "entity_id", "config", "undecodable", "forbidden"),
    },
    transform=transform,
    options=frozenset({"catalogs", "client_config_trees", "release"}),
)
