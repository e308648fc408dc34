"""Does the trail, folded up, come to what ZooKeeper holds?

One row per mismatch; none where all is well.

================== ====================================================================================================
``tree``           ``/config`` or ``/confplane/client-configs``
``entity_id``      whose znode
``kind``           what is wrong, as below
``config_key``     of ``content`` the key; empty otherwise
``trail_revision`` of the last change that counts, of ``gap`` of the change behind it; 0 where there is none
``change_id``      of that change
``expected``       of ``content``: the value by the trail; null where it tells none, or has the key absent
``found``          of ``content``: the value in ZooKeeper; null where it is a secret, or absent
``trail_version``  the znode's version by the trail (of ``gap``: before the gap); null where it should be absent
``version``        the znode's version as it is (of ``gap``: as the change behind it read it); null where it is absent
``znode_revision`` the znode's mzxid; null where it is absent
``pending``        it may go away by itself: a change of this entity has no outcome yet, or the recorder has not got to
                   the revision of the znode
================== ====================================================================================================

===================== =================================================================================================
``no_trail``          a znode with content that the trail does not know, though it was made after the trail began, or
                      that the trail knows as deleted
``no_znode``          the trail tells of content, and there is no znode
``content``           a key is there by one and not by the other, or has another value
``version``           the content is as it should be, and the count of writes, or the znode's creation, is not
``gap``               a change was made on a state that no change before it left: a row is missing between them
``state``             the recorder accounted for a state whose content no row of the trail explains
===================== =================================================================================================

How it folds. Each change tells the whole map of its znode, and on which (czxid, version) it was made, so the last one
tells what should be there. It does not tell values of other facets' keys: those are as the last change of their facet
left them, provided that all changes since then join on to each other. Of secrets and keys of no facet it is compared
that they are there. Where the recorder keeps states, one that is later than the last change counts, if its content is
the same: others wrote the node as it was. For an entity without changes its state alone counts.

What it takes no notice of: znodes without content that the trail does not know, which are parents of others; znodes
from before the trail began, of which nothing is known; forbidden ones, and paths that are no entity's. Where nobody
records what others write, their writes are found here: as ``content`` and ``version``, and as ``gap`` for ever.

Nobody has to stop for it. A znode is compared with the changes up to its own mzxid, and at least with those up to the
option ``floor``, which every read has seen. What committed later is left aside.

A missing row is found by what follows it. If all rows of an entity are missing, and the recorder has its state, it
looks like one that was there before.

Costs one shuffle of all changes by entity, sorted by revision, with running values only; after that one row per entity,
joined with the znodes and the states.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from pyspark.sql import functions as F  # noqa: N812 - the name that Spark's own pages use
from pyspark.sql.types import BooleanType, IntegerType, LongType, StringType, StructField, StructType

from app.rollups.folding import ENTITY, content_of, folded, last_of, nothing, same_content
from app.rollups.job import Job

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame

_MISMATCH: Final = (
    StructField("kind", StringType(), nullable=False),
    StructField("config_key", StringType(), nullable=False),
    StructField("trail_revision", LongType(), nullable=False),
    StructField("change_id", StringType()),
    StructField("expected", StringType()),
    StructField("found", StringType()),
    StructField("trail_version", IntegerType()),
    StructField("version", IntegerType()),
)

OUTPUT: Final = StructType(
    [
        StructField("tree", StringType(), nullable=False),
        StructField("entity_id", StringType(), nullable=False),
        *_MISMATCH,
        StructField("znode_revision", LongType()),
        StructField("pending", BooleanType(), nullable=False),
    ]
)


def transform(
    *,
    changes: DataFrame,
    znodes: DataFrame,
    states: DataFrame,
    begin: int | None,
    floor: int,
    horizon: int,
    watermark: int | None,
) -> DataFrame:
    """Return the rows; see the module."""
    node = F.struct("config", "version", "czxid", "mzxid", "undecodable", "forbidden")
    found = znodes.where("entity_id IS NOT NULL").select(*ENTITY, node.alias("node"))
    known = states.select(*ENTITY, F.struct("present", "czxid", "version", "mzxid", "content").alias("state"))
    entities = folded(changes, floor, begin).join(known, list(ENTITY), "full").join(found, list(ENTITY), "full")
    settled = horizon if watermark is None else min(watermark, horizon)
    pending = _sure(F.col("is_open")) | _sure(F.col("node.mzxid") > settled)
    none = F.array().cast(f"array<{StructType([*_MISMATCH]).simpleString()}>")
    mismatches = F.concat(
        F.coalesce(F.transform("gaps", _gap), none),
        F.when(F.col("unexplained"), F.array(_row("state"))).otherwise(none),
        F.when(_sure(F.col("node.forbidden")), none).otherwise(_compared(none, floor, begin, watermark)),
    )
    # The outer form, because of the inner one Spark infers filters that repeat the whole expression, and it takes a
    # minute over planning that.
    return (
        _expected(entities, floor)
        .withColumn("mismatches", mismatches)
        .select(
            *ENTITY, F.inline_outer("mismatches"), F.col("node.mzxid").alias("znode_revision"), pending.alias("pending")
        )
    )


def _expected(entities: DataFrame, floor: int) -> DataFrame:
    """Add what should be there.

    ``known``: whether anything says so; ``unexplained``: the recorder's state has a content that the trail has not;
    ``present, content, version, czxid``; ``since``: the revision; ``change_id``.
    """
    node, state, last = F.col("node"), F.col("state"), F.col("last")
    # Of an absent node, that it was read after the floor is all that is known.
    seen = F.when(node.isNull(), F.lit(2**63 - 1)).otherwise(F.greatest(node["mzxid"], F.lit(floor)))
    same_state = (state["present"] == last["version"].isNotNull()) & (
        ~state["present"] | ((state["version"] == last["version"]) & (state["czxid"] == last["czxid"]))
    )
    by_trail = F.when(last["version"].isNotNull(), content_of(last)).otherwise(nothing())
    by_state = F.when(state["present"], state["content"]).otherwise(nothing())
    counts = F.col("state_counts")
    unexplained = counts & last.isNotNull() & ~same_content(F.col("by_trail"), by_state)
    return (
        entities.withColumn("last", last_of(F.col("tail"), seen))
        .withColumn("by_trail", by_trail)
        .withColumn(
            "state_counts",
            _sure(state["mzxid"] <= seen)
            & (last.isNull() | (_sure(state["mzxid"] > last["revision"]) & ~_sure(same_state))),
        )
        .withColumn("unexplained", unexplained)
        .select(
            *ENTITY,
            "node",
            "gaps",
            "is_open",
            "unexplained",
            (counts | last.isNotNull()).alias("known"),
            F.when(counts, state["present"]).otherwise(last["version"].isNotNull()).alias("present"),
            F.when(counts & (last.isNull() | F.col("unexplained")), by_state)
            .otherwise(F.col("by_trail"))
            .alias("content"),
            F.when(~counts, last["version"]).when(state["present"], state["version"]).alias("version"),
            F.when(counts, state["czxid"]).otherwise(last["czxid"]).alias("czxid"),
            F.when(counts, state["mzxid"]).otherwise(last["revision"]).alias("since"),
            last["revision"].alias("trail_revision"),
            last["change_id"].alias("change_id"),
        )
    )


def _compared(none: Column, floor: int, begin: int | None, watermark: int | None) -> Column:
    """Return what is wrong with a znode, as an array of mismatches."""
    node, content = F.col("node"), F.col("content")
    is_there = node.isNotNull()
    has_content = F.size(node["config"]) > 0
    # Where the recorder has a state of every entity, one that has none came later. Else it is as old as its node.
    unknown = (
        F.expr("true")
        if watermark is not None
        else _sure(node["czxid"] > begin)
        if begin is not None
        else F.expr("false")
    )
    differing = _differing(content, node["config"])
    differs = F.when(F.col("present") & is_there & ~node["undecodable"], differing).otherwise(F.array())
    other_version = (node["version"] != F.col("version")) | (node["czxid"] != F.col("czxid"))
    no_trail = is_there & has_content & F.when(F.col("known"), ~F.col("present")).otherwise(unknown)
    no_znode = ~is_there & F.col("present") & (F.size(content) > 0) & (F.col("since") <= floor)
    return (
        F.when(no_trail, F.array(_row("no_trail")))
        .when(no_znode, F.array(_row("no_znode")))
        .when(F.size(differs) > 0, F.transform(differs, lambda key: _row("content", key)))
        .when(is_there & F.col("present") & other_version, F.array(_row("version")))
        .otherwise(none)
    )


def _differing(content: Column, config: Column) -> Column:
    """Return the keys that only one of two maps has, or whose values differ where both tell them."""
    return F.filter(
        F.array_union(F.map_keys(content), F.map_keys(config)),
        lambda key: (
            (F.map_contains_key(content, key) != F.map_contains_key(config, key)) | _sure(content[key] != config[key])
        ),
    )


def _row(kind: str, key: Column | None = None) -> Column:
    text = F.lit(None).cast("string")
    return F.struct(
        F.lit(kind).alias("kind"),
        (F.lit("") if key is None else key).alias("config_key"),
        F.coalesce("trail_revision", F.lit(0)).cast("long").alias("trail_revision"),
        F.col("change_id").alias("change_id"),
        (text if key is None else F.col("content")[key]).alias("expected"),
        (text if key is None else F.col("node.config")[key]).alias("found"),
        F.when(F.col("present"), F.col("version")).alias("trail_version"),
        F.col("node.version").alias("version"),
    )


def _gap(gap: Column) -> Column:
    text = F.lit(None).cast("string")
    return F.struct(
        F.lit("gap").alias("kind"),
        F.lit("").alias("config_key"),
        gap["revision"].alias("trail_revision"),
        gap["change_id"].alias("change_id"),
        text.alias("expected"),
        text.alias("found"),
        gap["left_version"].alias("trail_version"),
        gap["read_version"].alias("version"),
    )


def _sure(condition: Column) -> Column:
    """Take what can't be told for false."""
    return F.coalesce(condition, F.expr("false"))


JOB: Final = Job(
    name="integrity",
    inputs={
        "changes": (
            "change_id", "entity_id", "facet", "path", "version_read", "czxid_read", "before", "after", "outcome",
            "revision", "version",
        ),
        "states": ("tree", "entity_id", "present", "czxid", "version", "mzxid", "content"),
        "znodes": (
            "tree", "entity_id", "config", "version", "czxid", "mzxid", "undecodable", "forbidden"
        ),
    },
    output=OUTPUT,
    key=(*ENTITY, "kind", "config_key", "trail_revision"),
    transform=transform,
    options=frozenset({"begin", "floor", "horizon", "watermark"}),
)  # fmt: skip
