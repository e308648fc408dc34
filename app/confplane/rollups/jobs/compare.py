"""Two clusters, or one cluster at two times, key by key: the entries that only one side has, and those that differ.

One row per entity and config key with a difference; none if the sides are equal. This side is the current state of the
run's cluster. The other side is the current state of another cluster, or the same cluster at an earlier time, by its
trail.

The columns are described in domain/rollups.py. Topics of one side only are listed if all topics of both sides are
known: from the znodes of a cluster on ZooKeeper, or from the table of topics of another one, unless that is outdated.
Such a table has no past. Its topics are complemented by those with configs of their own, as in ``drift``. An entity is
``unknown`` also if its state at an earlier time does not follow from the trail; none of its keys is compared.
``same_effective`` is null where a secret decides.

Both trees of a cluster are combined, so that clusters of different layouts can be compared. A client config that both
trees have counts with its value in the separate tree. Hidden values without a fingerprint (SCRAM credentials, keys of
no facet) are compared only by their presence. Fingerprints of both clusters are made under the name of this one: equal
fingerprints mean equal secrets, and different ones also come from different encoder secrets. Values are compared as
they are stored.

The effective value is that of the job ``drift``, each side with its own default of all brokers.

Costs one shuffle of a row per entity and key of each side, and two calls of a Python function per difference, which
return at once for clients.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from pyspark.sql import functions as F  # noqa: N812 - the name that Spark's own pages use

from confplane.domain.broker_levels import DynamicLevel
from confplane.domain.entities import EntityType
from confplane.domain.facets import Tree
from confplane.domain.rollups import ROLLUPS
from confplane.rollups.columns import drop_ignored, effective, entity_type
from confplane.rollups.folding import empty_map
from confplane.rollups.job import Job
from confplane.rollups.schemas import OTHER_ZNODES, TOPICS
from confplane.services.ports.observed_topics import OUTDATED

if TYPE_CHECKING:
    from datetime import datetime

    from pyspark.sql import Column, DataFrame

    from confplane.domain.extra_keys import Catalogs

    _Definitions = tuple[Catalogs, str]

_KEY: Final = ROLLUPS["compare"].key
_BROKER: Final = EntityType.BROKER.value
_TOPIC: Final = EntityType.TOPIC.value


def transform(  # noqa: PLR0913 - one argument for each input and option
    *,
    znodes: DataFrame,
    other_znodes: DataFrame,
    topics: DataFrame,
    other_topics: DataFrame,
    other: str,
    catalogs: Catalogs,
    release: str,
    on_zookeeper: bool,
    other_catalogs: Catalogs,
    other_release: str,
    other_on_zookeeper: bool,
    as_of: datetime,
) -> DataFrame:
    """Return the rows; see the module."""
    definitions, other_definitions = (catalogs, release), (other_catalogs, other_release)
    unknown = _unknown(znodes).unionByName(_unknown(other_znodes)).distinct()
    here = _entries(znodes, topics, on_zookeeper=on_zookeeper).withColumnRenamed("entry", "here")
    there = _entries(other_znodes, other_topics, on_zookeeper=other_on_zookeeper).withColumnRenamed("entry", "there")
    has_all_topics = _has_all(topics, "all_here", on_zookeeper=on_zookeeper, as_of=as_of).crossJoin(
        _has_all(other_topics, "all_there", on_zookeeper=other_on_zookeeper, as_of=as_of)
    )
    differences = (
        here.join(there, list(_KEY), "full")
        .withColumn("kind", _kind())
        .where("kind IS NOT NULL")
        .crossJoin(F.broadcast(has_all_topics))
        .where("config_key != '' OR (all_here AND all_there)")
        .join(unknown, "entity_id", "left_anti")
    )
    defaults = _default(znodes, "default_here", definitions).crossJoin(
        _default(other_znodes, "default_there", other_definitions)
    )
    with_defaults = (
        differences.crossJoin(F.broadcast(defaults))
        .withColumn("type", _type_with_effective())
        .withColumns({f"default_{side}": _beneath(f"default_{side}") for side in ("here", "there")})
        .withColumns({f"own_{side}": F.col(side).isNotNull() for side in ("here", "there")})
        .withColumns({f"text_{side}": F.col(side)["value"] for side in ("here", "there")})
    )
    rows = with_defaults.select(
        *_KEY,
        "kind",
        F.col("here.value").alias("value"),
        F.col("here.fingerprint").alias("fingerprint"),
        F.col("there.value").alias("other_value"),
        F.col("there.fingerprint").alias("other_fingerprint"),
        _same_effective(definitions, other_definitions).alias("same_effective"),
    )
    none = F.lit(None).cast("string")
    not_compared = unknown.select(
        "entity_id", F.lit("").alias("config_key"), F.lit("unknown").alias("kind"),
        *(none.alias(name) for name in ("value", "fingerprint", "other_value", "other_fingerprint")),
        F.lit(None).cast("boolean").alias("same_effective"),
    )  # fmt: skip
    return rows.unionByName(not_compared).withColumn("other", F.lit(other))


def _entries(znodes: DataFrame, topics: DataFrame, *, on_zookeeper: bool) -> DataFrame:
    """Return a row per entity and set key, and one with an empty key for each topic.

    ``entry`` is ``struct(value, fingerprint, has_fingerprint)``.
    """
    keys = F.map_keys("config")
    is_topic = entity_type(F.col("entity_id")) == _TOPIC
    if not on_zookeeper:
        # The emptied znode of a topic that is gone stays.
        is_topic &= F.size("config") > 0
    keys = F.when(is_topic, F.concat(keys, F.array(F.lit("")))).otherwise(keys)
    key = F.col("config_key")
    entry = F.struct(
        F.col("config")[key].alias("value"),
        F.col("fingerprints")[key].alias("fingerprint"),
        F.map_contains_key("fingerprints", key).alias("has_fingerprint"),
    )
    of_znodes = _readable(znodes).select("entity_id", "tree", "config", "fingerprints")
    nothing = (
        F.lit(Tree.CONFIG.value).alias("tree"),
        *(empty_map().alias(name) for name in ("config", "fingerprints")),
    )
    of_topics = topics.select("entity_id", *nothing, F.lit("").alias("config_key"))
    return (
        of_znodes.withColumn("config_key", F.explode(keys))
        .unionByName(of_topics)
        .select(*_KEY, "tree", entry.alias("entry"))
        .groupBy(*_KEY)
        .agg(F.max_by("entry", F.col("tree") == Tree.CLIENT_CONFIGS.value).alias("entry"))
    )


def _has_all(topics: DataFrame, name: str, *, on_zookeeper: bool, as_of: datetime) -> DataFrame:
    """Return one row: True if all topics of a side are known."""
    is_current = F.coalesce(F.max("polled_at") >= F.lit(as_of - OUTDATED), F.expr("false"))
    return topics.agg((F.lit(on_zookeeper) | is_current).alias(name))


def _readable(znodes: DataFrame) -> DataFrame:
    return znodes.where("entity_id IS NOT NULL AND NOT undecodable AND NOT forbidden")


def _unknown(znodes: DataFrame) -> DataFrame:
    return znodes.where("entity_id IS NOT NULL AND (undecodable OR forbidden)").select("entity_id").distinct()


def _kind() -> Column:
    """Return the kind of a difference between the columns ``here`` and ``there``; null if there is none."""
    here, there = F.col("here"), F.col("there")
    known = here["value"].isNotNull() & there["value"].isNotNull()
    both_hidden = here["value"].isNull() & there["value"].isNull()
    same_secret = F.coalesce(here["fingerprint"] == there["fingerprint"], F.expr("false"))
    has_fingerprint = here["has_fingerprint"] | there["has_fingerprint"]
    return (
        F.when(there.isNull(), "only_here")
        .when(here.isNull(), "only_there")
        .when(F.col("config_key") == "", None)
        .when(known & (here["value"] == there["value"]), None)
        .when(both_hidden & (same_secret | ~has_fingerprint), None)
        .when(both_hidden, "secret")
        .otherwise("differs")
    )


def _default(znodes: DataFrame, name: str, definitions: _Definitions) -> DataFrame:
    """Return one row: the default of all brokers, a map."""
    found = _readable(znodes).where((F.col("entity_id") == _BROKER) & (F.col("tree") == Tree.CONFIG.value))
    return found.agg(F.first("config").alias("config")).select(
        F.coalesce(drop_ignored("config", DynamicLevel.DEFAULT, *definitions), empty_map()).alias(name)
    )


def _type_with_effective() -> Column:
    """Return the type of the entity of a row with effective values; null for clients and for the row of a topic."""
    kind = entity_type(F.col("entity_id"))
    return F.when(kind.isin(_BROKER, _TOPIC) & (F.col("config_key") != ""), kind)


def _beneath(default: str) -> Column:
    """Return the default below an entity's own entries; below the default of all brokers there are only Kafka's.

    Null if there are no effective values, because Spark passes each row to Python and a default has many entries.
    """
    own = F.when(F.col("entity_id") == _BROKER, empty_map()).otherwise(F.col(default))
    return F.when(F.col("type").isNotNull(), own)


def _same_effective(definitions: _Definitions, other_definitions: _Definitions) -> Column:
    here, there = (
        effective("type", "config_key", f"own_{side}", f"text_{side}", f"default_{side}", catalogs=of, release=release)
        for side, (of, release) in (("here", definitions), ("there", other_definitions))
    )
    is_known = (here["state"] != "secret") & (there["state"] != "secret")
    same = (here["state"] == there["state"]) & here["value"].eqNullSafe(there["value"])
    return F.when(is_known, same)


JOB: Final = Job(
    rollup=ROLLUPS["compare"],
    inputs={
        **dict.fromkeys(("znodes", "other_znodes"), tuple(OTHER_ZNODES.names)),
        **dict.fromkeys(("topics", "other_topics"), tuple(TOPICS.names)),
    },
    transform=transform,
    options=frozenset(
        {
            *("as_of", "catalogs", "on_zookeeper", "release"),
            *("other", "other_catalogs", "other_on_zookeeper", "other_release"),
        }
    ),
)
