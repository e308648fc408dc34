"""The effective values of each config across brokers, and across topics, with the entities that deviate from most.

One row per entity type, config key and effective value. The keys are those that any entity of the type sets, or the
default of all brokers; a key of one row has the same value everywhere.

The columns are described in domain/rollups.py. ``value`` is in the form of its type, so that ``compact, delete`` is
``compact,delete``. Secrets whose encoder's secret is not known have no fingerprint, and are one row. ``examples`` has
up to :data:`EXAMPLES` ids, the first in order, and none for rank 1.

The effective value on a broker is its own, over the default of all brokers, over Kafka's (KIP-226). Entries that
brokers ignore count as not set. The effective value on a topic is its own, over the default of all brokers for the
corresponding broker config, over Kafka's. Brokers' own files are not known here: a value that they set, below the
dynamic levels, is treated as Kafka's default. Values of single brokers do not count for topics, since partitions move.

Brokers are those with their own entry. Topics are all topics with a znode, which brokers create with the topic. Of a
cluster without ZooKeeper they are those in its table of topics, and those with configs of their own: the emptied znode
of a topic that is gone stays. Znodes that can't be read are omitted.

Costs a row per topic and key, counted by value; a Python function runs once per broker, and once per different value.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from pyspark.sql import Window
from pyspark.sql import functions as F  # noqa: N812 - the name that Spark's own pages use

from confplane.domain.broker_levels import DynamicLevel
from confplane.domain.entities import EntityType
from confplane.domain.facets import Tree
from confplane.domain.rollups import ROLLUPS
from confplane.rollups.columns import drop_ignored, effective, entity_type, first_ids, first_of, is_named
from confplane.rollups.job import Job
from confplane.rollups.schemas import CONFIG, TEXTS
from confplane.services.ports.observed_topics import OUTDATED

if TYPE_CHECKING:
    from datetime import datetime

    from pyspark.sql import Column, DataFrame

    from confplane.domain.extra_keys import Catalogs

EXAMPLES: Final = 20

_KEY: Final = ("entity_type", "config_key")
_VALUE: Final = ("state", "value", "fingerprint")
_BROKER: Final = EntityType.BROKER.value
_TOPIC: Final = EntityType.TOPIC.value


def transform(
    *, znodes: DataFrame, topics: DataFrame, catalogs: Catalogs, release: str, on_zookeeper: bool, as_of: datetime
) -> DataFrame:
    """Return the rows; see the module."""
    named = znodes.where(F.col("tree") == Tree.CONFIG.value).where("entity_id IS NOT NULL")
    if not on_zookeeper:
        is_topic = entity_type(F.col("entity_id")) == _TOPIC
        named = named.where(~is_topic | (F.size("config") > 0) | F.col("undecodable") | F.col("forbidden"))
    nothing = F.create_map().cast(CONFIG)
    without_znode = topics.join(named, "entity_id", "left_anti").select(
        F.lit(_TOPIC).alias("entity_type"), "entity_id", nothing.alias("config"), nothing.alias("fingerprints")
    )
    nodes = (
        named.where("NOT undecodable AND NOT forbidden")
        .where(entity_type(F.col("entity_id")).isin(_BROKER, _TOPIC))
        .select(entity_type(F.col("entity_id")).alias("entity_type"), "entity_id", "config", "fingerprints")
        .unionByName(without_znode)
        .persist()
    )
    outdated = topics.agg(F.max("polled_at").alias("polled_at")).select(
        F.when(F.col("polled_at") < F.lit(as_of - OUTDATED), F.col("polled_at")).alias("topics_as_of")
    )
    of_brokers = nodes.where(F.col("entity_type") == _BROKER)
    default = (
        of_brokers.where(F.col("entity_id") == _BROKER)
        .agg(F.first("config").alias("config"), F.first("fingerprints").alias("fingerprints"))
        .select(
            _or_nothing(drop_ignored("config", DynamicLevel.DEFAULT, catalogs, release)).alias("default_config"),
            _or_nothing(F.col("fingerprints")).alias("default_fingerprints"),
        )
    )
    brokers = of_brokers.where(is_named(F.col("entity_id"), EntityType.BROKER)).withColumn(
        "config", drop_ignored("config", DynamicLevel.BROKER, catalogs, release)
    )
    entities = brokers.unionByName(nodes.where(F.col("entity_type") == _TOPIC))
    found = _with_values(entities, default)
    # For each text: the number of entities that set it, and the first of them. Entities that set none are one group.
    texts = (*_KEY, "is_own", "stored", "fingerprint")
    of_texts = (
        found.groupBy(*texts)
        .agg(F.count("*").alias("entities"), first_ids(F.col("entity_id"), EXAMPLES).alias("examples"))
        .crossJoin(F.broadcast(default.select("default_config")))
        .withColumn(
            "effective", effective(*_KEY, "is_own", "stored", "default_config", catalogs=catalogs, release=release)
        )
    )
    of_values = (
        of_texts.select(*_KEY, "effective.*", "fingerprint", "is_own", "entities", "examples")
        .groupBy(*_KEY, *_VALUE)
        .agg(
            F.sum("entities").alias("entities"),
            F.sum(F.when(F.col("is_own"), F.col("entities")).otherwise(0)).alias("own"),
            first_of(F.col("examples"), EXAMPLES).alias("examples"),
        )
    )
    by_count = Window.partitionBy(*_KEY).orderBy(F.desc("entities"), *_VALUE)
    rank = F.row_number().over(by_count)
    return (
        of_values.withColumns({"rank": rank, "total": F.sum("entities").over(Window.partitionBy(*_KEY))})
        .withColumn("examples", F.when(F.col("rank") > 1, F.col("examples")).otherwise(F.array().cast(TEXTS)))
        .crossJoin(F.broadcast(outdated))
        .withColumn("topics_as_of", F.when(F.col("entity_type") == _TOPIC, F.col("topics_as_of")))
    )


def _with_values(entities: DataFrame, default: DataFrame) -> DataFrame:
    """Return a row per entity and key: its own value, or for a broker the default of all brokers."""
    of_default = default.select(
        F.lit(_BROKER).alias("entity_type"), F.explode(F.map_keys("default_config")).alias("key")
    )
    keys = (
        entities.select("entity_type", F.explode(F.map_keys("config")).alias("key"))
        .unionByName(of_default)
        .distinct()
        .withColumnRenamed("key", "config_key")
        .crossJoin(default)
    )
    key, is_broker = F.col("config_key"), F.col("entity_type") == _BROKER
    is_own = F.map_contains_key("config", key)
    has_default = is_broker & F.map_contains_key("default_config", key)
    return entities.join(F.broadcast(keys), "entity_type").select(
        *_KEY,
        "entity_id",
        is_own.alias("is_own"),
        F.when(is_own, F.col("config")[key]).alias("stored"),
        F.when(is_own, F.col("fingerprints")[key])
        .when(has_default, F.col("default_fingerprints")[key])
        .alias("fingerprint"),
    )


def _or_nothing(values: Column) -> Column:
    return F.coalesce(values, F.create_map().cast(CONFIG))


JOB: Final = Job(
    rollup=ROLLUPS["drift"],
    inputs={
        "znodes": ("tree", "entity_id", "config", "fingerprints", "undecodable", "forbidden"),
        "topics": ("entity_id", "polled_at"),
    },
    transform=transform,
    options=frozenset({"as_of", "catalogs", "on_zookeeper", "release"}),
)
