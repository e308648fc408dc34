"""The folded trail: the state that each znode should have, and the gaps between changes that do not fit together.

At a gap a row is missing, or, if the change was made on exactly the version that the change before it left, one of the
two rows was altered: then the gap has the keys that differ.

A run passes the fold up to a revision to the next run, with a row per entity (:data:`FOLD`). There it represents all
changes up to that revision: the last of them, the gaps among them, and the changes that had no outcome.

If a znode was written very often, each history is first folded in ranges that tasks share: ranges of the versions of a
znode, and ranges of zxids in which znodes were created. Both increase with the revision, so the changes of a range are
neighbours. Of each range, the first and the last change and the significant ones remain, and are joined entity by
entity. The result is the same, unless the range of a row contradicts its revision. Such a row was altered: it shows as
a gap at its position, but the change after it does not always show as one.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from pyspark.sql import Window
from pyspark.sql import functions as F  # noqa: N812 - the name that Spark's own pages use
from pyspark.sql.types import ArrayType, IntegerType, LongType, StringType, StructField, StructType

from confplane.domain.facets import FacetName, Tree
from confplane.rollups.job import Fold
from confplane.rollups.schemas import COMMITTED, CONFIG, OPEN, TEXTS
from confplane.rollups.sources.tables import first_id_at
from confplane.services.ports.recording import FACET as WHOLE_NODE
from confplane.services.ports.trail import CLIENTS

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame

    from confplane.rollups.job import CarriedFold

ENTITY: Final = ("tree", "entity_id")

_LEFT: Final = StructType(
    [
        StructField("revision", LongType(), nullable=False),
        StructField("change_id", StringType(), nullable=False),
        StructField("version", IntegerType()),
        StructField("czxid", LongType()),
        StructField("config", CONFIG, nullable=False),
    ]
)
_DIFFERENCE: Final = StructType(
    [
        StructField("config_key", StringType(), nullable=False),
        StructField("left_value", StringType()),
        StructField("read_value", StringType()),
    ]
)
_GAP: Final = StructType(
    [
        StructField("revision", LongType(), nullable=False),
        StructField("change_id", StringType(), nullable=False),
        StructField("left_version", IntegerType()),
        StructField("read_version", IntegerType()),
        StructField("altered", ArrayType(_DIFFERENCE, containsNull=False), nullable=False),
    ]
)
FOLD: Final = Fold(
    StructType(
        [
            StructField("tree", StringType(), nullable=False),
            StructField("entity_id", StringType(), nullable=False),
            StructField("last", _LEFT),
            StructField("gaps", ArrayType(_GAP, containsNull=False), nullable=False),
            StructField("open", TEXTS, nullable=False),
        ]
    ),
    version=2,
)
"""The fold up to a revision: the state after the last change up to it (null: there is none), the newest gaps up to it,
and the ids of the changes without an outcome."""

GAPS: Final = 1_000
"""Maximum number of gaps of an entity; the newest are kept. If a tool and the service write one entity in turn and the
tool's writes are not recorded, each change follows a gap."""

_CARRIED: Final = StructType([FOLD.schema["gaps"], FOLD.schema["open"]])
_FACETS: Final = (*(facet.value for facet in FacetName), CLIENTS, WHOLE_NODE)
_NEVER: Final = 2**62
_RANGE_BITS: Final = 17
"""Size of a range, in bits of versions and of zxids. For one entity, a range has 262,144 changes at most."""


def fold_changes(
    changes: DataFrame,
    floor: int,
    ceiling: int,
    begin: int | None,
    *,
    carried: CarriedFold | None = None,
    settled: int | None = None,
    newest_version: int | None = None,
) -> DataFrame:
    """Fold the trail, entity by entity.

    Args:
        changes: All changes, or those that a carried fold lacks, with the columns of the job ``integrity``.
        floor: Of the changes up to this revision, only the last one counts; later ones are kept individually.
        ceiling: Of the changes above this revision, only the last one is kept.
        begin: The revision of the first change of the trail.
        carried: The fold of an earlier run, whose revision is not above ``floor``; None for no fold.
        settled: The revision of the fold for the next run, not above ``floor``; None for no fold.
        newest_version: The highest version of any znode; None if it is not known. If it fits into a single range, the
            changes are not divided.

    Returns:
        ``tree, entity_id``
        ``tail``: the states after those changes: ``revision, change_id, version`` (null: removed), ``czxid`` (null:
        not known), ``config``.
        ``gaps``: changes made on a state that no earlier change produced: ``revision, change_id, left_version`` by the
        change before, ``read_version``, ``altered``: the keys that differ where the versions fit. They include those of
        :func:`newest_gaps`, overall and up to ``settled``.
        ``open``: the ids of the changes without an outcome.
        ``last``: the state after the last change up to ``settled``, null if there is none.

    Costs one shuffle of all changes of znodes, sorted by revision; if they are divided into ranges, another one of at
    least two changes per range. For each entity, only running values are kept.
    """
    of_nodes = of_znodes(changes).where(F.col("outcome").isin(COMMITTED, OPEN)).select(
        tree_of(F.col("path")).alias("tree"),
        "entity_id", "change_id", "outcome", "revision", "version_read", "czxid_read", "version", "before", "after",
        _czxid().alias("czxid"),
    )  # fmt: skip
    if carried is not None:
        unfolded = of_nodes.where((F.col("outcome") == OPEN) | (F.col("revision") > carried.revision))
        of_nodes = unfolded.unionByName(_as_changes(carried), allowMissingColumns=True)
    else:
        of_nodes = of_nodes.withColumn("carried", F.lit(None).cast(_CARRIED))
    is_committed, revision = F.col("outcome") == COMMITTED, F.col("revision")
    following = F.col("next_revision")
    is_last = following.isNull() | ((revision <= floor) & (following > floor))
    # Changes above the ceiling may be a complete history, and none of them is compared.
    in_tail = is_committed & (is_last | revision.between(floor + 1, ceiling))
    is_settled = F.expr("false")
    if settled is not None:
        is_settled = is_committed & (revision <= settled) & (following.isNull() | (following > settled))
    result = F.struct("revision", "change_id", "version", "czxid", F.col("after").alias("config"))
    left_version, read_version = F.col("previous.version"), F.col("version_read")
    gap = F.struct(
        "revision", "change_id", left_version.alias("left_version"), read_version.alias("read_version"),
        _altered().alias("altered"),
    )  # fmt: skip
    says = in_tail | F.col("is_gap") | ~is_committed | is_settled | F.col("carried").isNotNull()
    if newest_version is None or newest_version >> _RANGE_BITS:
        in_ranges = _linked(of_nodes, begin, *ENTITY, *_range())
        of_nodes = in_ranges.where(says | F.col("previous").isNull() | following.isNull())
    linked = _linked(of_nodes, begin, *ENTITY)
    return (
        linked.where(says)
        .withColumn("is_listed", _is_listed(settled))
        .groupBy(*ENTITY)
        .agg(
            F.collect_list(F.when(in_tail, result)).alias("tail"),
            F.concat(
                F.collect_list(F.when(F.col("is_listed"), gap)), F.flatten(F.collect_list("carried.gaps"))
            ).alias("gaps"),
            F.concat(
                F.collect_list(F.when(~is_committed, F.col("change_id"))), F.flatten(F.collect_list("carried.open"))
            ).alias("open"),
            F.first(F.when(is_settled, result), ignorenulls=True).alias("last"),
        )
    )  # fmt: skip


def _range() -> list[Column]:
    """Return the range of a change: that of its znode's creation zxid, and that of the version before the change."""
    version = F.col("version_read")
    created = F.coalesce(F.when(version.isNotNull(), F.col("czxid_read")), F.col("revision"))
    return [F.shiftright(each, _RANGE_BITS) for each in (created, F.coalesce(version, F.lit(0)))]


def _linked(changes: DataFrame, begin: int | None, *by: str | Column) -> DataFrame:
    """Return changes with the neighbours of each among those that agree in some columns.

    Args:
        changes: Changes. If they were linked before, the neighbours found then are kept.
        begin: The revision of the first change of the trail.
        *by: The columns.

    Returns:
        The changes with ``previous``, the state after the change before, ``next_revision``, the revision of the change
        after, ``joins_on`` and ``is_gap``.
    """
    # Open changes have no revision, so they are last and precede nothing.
    in_order = Window.partitionBy(*by).orderBy(F.asc_nulls_last("revision"))
    found = {
        "previous": F.lag(F.struct("version", "czxid", "after")).over(in_order),
        "next_revision": F.lead("revision").over(in_order),
    }
    known = {name: F.coalesce(name, each) if name in changes.columns else each for name, each in found.items()}
    return (
        changes.withColumns(known)
        .withColumn("joins_on", _joins_on())
        .withColumn("is_gap", F.col("carried").isNull() & _is_gap(begin))
    )


def next_fold(trail: DataFrame, settled: int) -> DataFrame:
    """Return the fold for the next run, with the schema :data:`FOLD`.

    Args:
        trail: The folded trail, of :func:`fold_changes` with the same ``settled``.
        settled: The revision of the fold.
    """
    gaps = F.filter("gaps", lambda gap: gap["revision"] <= settled)
    return trail.select(*ENTITY, "last", newest_gaps(gaps).alias("gaps"), "open").where(
        "last IS NOT NULL OR size(open) > 0"
    )


def newest_gaps(gaps: Column) -> Column:
    """Return the newest gaps of an entity, :data:`GAPS` at most, in descending order."""
    return F.slice(F.sort_array(gaps, asc=False), 1, GAPS)


def _is_listed(settled: int | None) -> Column:
    """Return an expression that is true for the newest gaps of an entity: of all, or of those up to a revision."""
    from_the_newest = Window.partitionBy(*ENTITY).orderBy(F.desc_nulls_first("revision"))

    def is_new(counts: Column) -> Column:
        return counts & (F.count_if(counts).over(from_the_newest) <= GAPS)

    is_gap = F.col("is_gap")
    return is_new(is_gap) if settled is None else is_new(is_gap) | is_new(is_gap & (F.col("revision") <= settled))


def _as_changes(carried: CarriedFold) -> DataFrame:
    """Return a carried fold as changes: the last one of each entity, with the gaps and open changes before it.

    For an entity without a last change, the row has no revision. Open changes that were read again are omitted: their
    ids are not below that of the first change that was read.
    """
    first_id, last = first_id_at(carried.since), F.col("last")
    still_open = F.filter("open", lambda change_id: change_id < first_id)
    return carried.rows.select(
        *ENTITY,
        last["change_id"].alias("change_id"),
        F.when(last.isNotNull(), F.lit(COMMITTED)).otherwise(F.lit(OPEN)).alias("outcome"),
        *(last[name].alias(name) for name in ("revision", "version", "czxid")),
        # In the range of the changes that follow it.
        last["version"].alias("version_read"),
        last["czxid"].alias("czxid_read"),
        last["config"].alias("after"),
        F.struct("gaps", still_open.alias("open")).alias("carried"),
    )


def of_znodes(changes: DataFrame) -> DataFrame:
    """Return the changes of entities' znodes, without those of freezes and layouts."""
    return changes.where(F.col("facet").isin(*_FACETS))


def tree_of(path: Column) -> Column:
    """Return the tree of a path."""
    separate = Tree.CLIENT_CONFIGS.value
    return F.when(F.startswith(path, F.lit(f"{separate}/")), F.lit(separate)).otherwise(F.lit(Tree.CONFIG.value))


def last_of(tail: Column, after: Column, up_to: Column) -> Column:
    """Return the last change of a tail between two revisions, including the second; null if there is none."""
    visible = F.filter(tail, lambda each: (each["revision"] > after) & (each["revision"] <= up_to))
    return F.aggregate(
        visible,
        F.get(visible, F.lit(0)),
        lambda found, each: F.when(each["revision"] > found["revision"], each).otherwise(found),
    )


def empty_map() -> Column:
    """Return a map without keys."""
    return F.create_map().cast(CONFIG)


def same_content(one: Column, other: Column) -> Column:
    """Return an expression that is true if two maps have the same keys, and the same values if both are known."""
    keys, others = F.map_keys(one), F.map_keys(other)
    return (
        (F.size(keys) == F.size(others))
        & (F.size(F.array_except(keys, others)) == 0)
        & F.forall(keys, lambda key: F.coalesce(one[key] == other[key], F.expr("true")))
    )


def differing_keys(one: Column, other: Column) -> Column:
    """Return the keys that only one of two maps has, or whose values differ where both are known."""
    return F.filter(
        F.array_union(F.map_keys(one), F.map_keys(other)),
        lambda key: (
            (F.map_contains_key(one, key) != F.map_contains_key(other, key))
            | F.coalesce(one[key] != other[key], F.expr("false"))
        ),
    )


def _czxid() -> Column:
    """Return the creation zxid of the znode after a change; null if the trail does not have it.

    A run of external writes that created the znode, possibly again, has more writes than versions, because the creation
    is one.
    """
    read, made = F.col("version_read"), F.col("writes") != F.col("version") - F.col("version_read")
    by_us = F.when(read.isNull(), F.col("revision")).otherwise(F.col("czxid_read"))
    by_others = F.when(read.isNotNull() & ~F.coalesce(made, F.expr("false")), F.col("czxid_read"))
    return F.when(F.col("writes").isNull(), by_us).otherwise(by_others)


def _joins_on() -> Column:
    """Return an expression that is true if a change was made on exactly the state after the previous change."""
    previous, version = F.col("previous"), F.col("version_read")
    return (
        F.when(F.col("outcome") == OPEN, F.expr("true"))
        .when(previous["version"].isNull(), version.isNull())  # there is no previous change, or it removed the znode
        .otherwise(
            F.coalesce(version == previous["version"], F.expr("false"))
            & F.coalesce(F.col("czxid_read") == previous["czxid"], F.expr("true"))
        )
    )


def _is_gap(begin: int | None) -> Column:
    """Return an expression that is true if the content before a change differs from the known content."""
    # Before the start of the trail, a znode may have had any content.
    is_known = (
        F.col("previous").isNotNull()
        | F.col("version_read").isNull()
        | (F.col("czxid_read") > (_NEVER if begin is None else begin))
    )
    return (F.col("outcome") == COMMITTED) & is_known & ~same_content(_left(), F.col("before"))


def _left() -> Column:
    """Return the content that the change before left; no keys if there is no such change, or it removed the znode."""
    previous = F.col("previous")
    return F.when(previous["version"].isNotNull(), previous["after"]).otherwise(empty_map())


def _altered() -> Column:
    """Return the keys that differ, with their values, if a change joins on the change before; otherwise none."""
    left, before = _left(), F.col("before")
    keys = F.when(F.col("joins_on"), differing_keys(left, before)).otherwise(F.array().cast(TEXTS))
    return F.transform(
        keys,
        lambda key: F.struct(key.alias("config_key"), left[key].alias("left_value"), before[key].alias("read_value")),
    )
