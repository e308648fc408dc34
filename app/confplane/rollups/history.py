"""The history of a cluster's changes in Postgres: short index queries, run by the driver."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from pyspark.sql import functions as F  # noqa: N812 - the name that Spark's own pages use

from confplane.rollups.folding import ENTITY, of_znodes, tree_of
from confplane.rollups.schemas import COMMITTED, OTHER_ZNODES
from confplane.rollups.sources.postgres import literal
from confplane.rollups.sources.tables import time_of
from confplane.services.ports.trail import EXTERNAL

if TYPE_CHECKING:
    from datetime import datetime

    from pyspark.sql import Column, DataFrame

    from confplane.rollups.sources.postgres import ReadOnlyTransaction
    from confplane.rollups.sources.tables import TableScope


@dataclass(frozen=True, slots=True)
class PostgresHistory:
    """The changes of a moment; see :class:`confplane.rollups.reading.History`."""

    _postgres: ReadOnlyTransaction
    _scope: TableScope

    def oldest(self, recorded_since: datetime) -> datetime | None:
        """Return the time of the oldest change or refused attempt with a row that was recorded since then."""
        recorded = f"recorded_at >= {literal(recorded_since)}"
        return _begin(
            self._first_id("intents", recorded),
            self._first_id("outcomes", recorded),
            self._first_id("refused_attempts", recorded, key="id"),
        )

    def lowest_revision(self, recorded_since: datetime) -> int | None:
        """Return the lowest revision of the changes that received their outcome since then."""
        query = f"SELECT min(revision) {self._rows('outcomes')} AND committed"
        [(found,)] = self._postgres.rows(f"{query} AND recorded_at >= {literal(recorded_since)}")
        return None if found is None else int(found)

    def first_above(self, revision: int) -> datetime | None:
        """Return the start time of the oldest change with a higher revision."""
        return _begin(self._first_id("outcomes", f"committed AND revision > {literal(revision)}"))

    def last_until(self, time: datetime) -> int | None:
        """Return the highest revision up to a time."""
        # Found from above, by the index of revisions.
        query = f"SELECT revision {self._rows('outcomes')} AND committed AND time <= {literal(time)}"
        found = self._postgres.rows(f"{query} ORDER BY revision DESC LIMIT 1")
        return int(found[0][0]) if found else None

    def _first_id(self, table: str, condition: str, *, key: str = "change_id") -> str | None:
        [(first,)] = self._postgres.rows(f"SELECT min({key}::text) {self._rows(table)} AND {condition}")
        return None if first is None else str(first)

    def _rows(self, table: str) -> str:
        until = "" if self._scope.as_of is None else f" AND recorded_at <= {literal(self._scope.as_of)}"
        return f"FROM {table} WHERE cluster = {literal(self._scope.cluster)}{until}"


def _begin(*ids: str | None) -> datetime | None:
    return min((time_of(each) for each in ids if each is not None), default=None)


# The znodes of an earlier time, by the trail: the same rule as the API's ``?at=``, for all entities at once.
#
# The content of a znode is that after its last change up to the time. Before the first known change, it is the content
# on which that change was made. A znode without any change is unchanged until now, unless it was written since: in that
# case its content at the time is not known. Within a run of external writes, the content is that before the run. The
# content of a znode that an external write left unreadable is not known either.

CHANGE_COLUMNS: Final = (
    "path", "entity_id", "facet", "kind", "reason", "outcome", "revision", "time", "version_read", "version", "keys",
    "before", "after",
)  # fmt: skip
"""Columns of the changes that :func:`znodes_at` reads."""
ZNODE_COLUMNS: Final = (*OTHER_ZNODES.names, "mtime")
"""Columns of the znodes that :func:`znodes_at` reads."""


def znodes_at(changes: DataFrame, znodes: DataFrame, at: datetime) -> DataFrame:
    """Return the znodes of a time, with the schema ``OTHER_ZNODES``.

    The trail has neither values nor fingerprints of secrets: a secret that was not altered since has its current
    fingerprint, and any other secret has null. Entities whose content is not known are ``undecodable``.

    Args:
        changes: All changes, with :data:`CHANGE_COLUMNS`.
        znodes: The znodes as they are, with :data:`ZNODE_COLUMNS`.
        at: The time, by ZooKeeper's clock.

    Costs one shuffle of a row per entity, and holds the different sets of keys of an entity's later changes in memory.
    """
    is_later = F.col("time") > F.lit(at)
    left = F.struct(
        F.col("after").alias("config"),
        F.col("version").isNotNull().alias("present"),
        _is_unreadable().alias("unreadable"),
    )
    found = F.struct(
        F.col("before").alias("config"),
        F.col("version_read").isNotNull().alias("present"),
        F.expr("false").alias("unreadable"),
    )
    revision = F.col("revision")
    then = (
        of_znodes(changes)
        .where(F.col("outcome") == COMMITTED)
        .withColumn("tree", tree_of(F.col("path")))
        .groupBy(*ENTITY)
        .agg(
            F.max_by(F.when(~is_later, left), F.when(~is_later, revision)).alias("left"),
            F.min_by(F.when(is_later, found), F.when(is_later, revision)).alias("found"),
            F.array_distinct(F.flatten(F.collect_set(F.when(is_later, F.col("keys"))))).alias("altered"),
        )
        .select(*ENTITY, F.coalesce("left", "found").alias("then"), "altered")
    )
    now = znodes.where("entity_id IS NOT NULL").withColumnRenamed("config", "config_now")
    has_changes, is_unwritten = F.col("then").isNotNull(), F.col("mtime") <= F.lit(at)
    return (
        now.join(then, list(ENTITY), "full")
        .where(F.coalesce(F.col("then.present"), F.expr("true")))
        .select(
            *ENTITY,
            F.when(has_changes, F.col("then.config")).otherwise(F.col("config_now")).alias("config"),
            "altered",
            F.col("fingerprints").alias("known"),
            F.when(has_changes, F.col("then.unreadable"))
            .otherwise(F.col("undecodable") | ~is_unwritten)
            .alias("undecodable"),
            (~has_changes & F.col("forbidden")).alias("forbidden"),
        )
        .withColumn("fingerprints", _fingerprints())
        .select(*OTHER_ZNODES.names)
    )


def _is_unreadable() -> Column:
    """Return an expression that is true for an external change that left a znode whose content can't be read.

    The reason of an external change is the defect of the znode.
    """
    return (F.col("kind") == EXTERNAL) & F.col("reason").isNotNull() & (F.size("after") == 0)


def _fingerprints() -> Column:
    """Return secret -> fingerprint: the keys with hidden values that were altered since, or have a fingerprint now."""
    altered = F.coalesce("altered", F.array())
    known = F.coalesce("known", F.create_map())
    hidden = F.map_filter(
        "config",
        lambda key, value: value.isNull() & (F.array_contains(altered, key) | F.map_contains_key(known, key)),
    )
    return F.transform_values(hidden, lambda key, _: F.when(~F.array_contains(altered, key), known[key]))
