"""Mismatches between the folded trail and ZooKeeper's znodes.

One row per mismatch; no rows if everything matches.

The columns are described in domain/rollups.py. More exactly:

- ``trail_revision`` and ``change_id`` are, of ``gap`` and ``altered``, those of the change after it; of ``rewound``,
  the revision is the highest that the trail or the recorder has.
- ``expected`` and ``found`` are null for a secret, and if the key is absent.
- ``trail_version`` and ``version`` are null if the znode should be, or is, absent; of ``gap`` they are the versions
  before the gap and as the change after it read it.

Pending are, unless they are ``rewound`` or ``altered``:

- mismatches of an entity with a change that has no outcome yet;
- of a znode whose revision the recorder has not reached;
- ``content``, ``version`` and ``no_trail`` of a znode that was written in the last :data:`UNNOTIFIED` before the run,
  after the recorder's state: the writer may have sent no notification, and the recorder finds such writes when it next
  reads all znodes. This compares ZooKeeper's clock with that of Postgres;
- of an absent znode that the recorder's state still has: it finds such deletions in the same way, and their time is not
  known. Also if a change of a revision that the recorder has not reached wrote the znode;
- with a standby that is behind, of each absent znode, and of each znode of a revision that the standby has not reached.

``no_trail``          a znode with content that the trail does not know, though it was made after the trail began, or
                      that the trail knows as deleted
``no_znode``          the trail has content, and there is no znode
``content``           only one of trail and znode has the key, or their values differ
``version``           the content is right, and the count of writes, or the znode's creation, is not
``gap``               a change was made on a state that no change before it left: a row is missing between them. Of an
                      entity the newest thousand, together with ``altered``
``altered``           a change found another content than the change before it left, although both have the same
                      version of the znode: one of the two rows was altered. One row per key. ``before`` of the first
                      row of an entity is compared only if the change created the znode, and nothing tells who made a
                      change, why, and for which ticket
``state``             the recorder holds a state whose content no row of the trail explains: another than the last row
                      left, or of a znode that was made while it recorded, and has no row at all
``rewound``           a change, or the recorder's state, has a revision that ZooKeeper has not reached: it was restored
                      from an older state, or another ensemble took its place (docs/backup.md)
===================== =================================================================================================
=======
The kinds of mismatches are described in docs/rollups.md.

The folding: each change has the whole map of its znode, and the (czxid, version) that it was made on, so the last
change gives the expected state. Secrets and keys of no facet are compared only by their presence. If the recorder has
states, a state later than the last change counts if its content is the same: an external write did not change the
content. For an entity without changes, only its state counts.

Not reported: znodes without content that the trail does not know, which are parents of other znodes; znodes from before
the start of the trail, about which nothing is known; forbidden znodes, and paths that do not belong to an entity. If
external writes are not recorded, they are reported here: as ``content`` and ``version``, and permanently as ``gap``.

Writers need not stop during the run. A znode is compared with the changes up to its own mzxid, and at least with those
up to the option ``floor``, which every read includes. Later commits are ignored.

Revisions above the option ``ceiling`` belong to a ZooKeeper that no longer exists: their states are not compared. Once
the new zxids have passed them, they can't be distinguished, and show as other mismatches.

A missing row is found by the change after it, and the last one by the recorder's state. If all rows of an entity are
missing, its state shows the loss by the znode's czxid, if that is above the option ``recorded_since``. An older znode
cannot be distinguished from one that was never written. If an external writer deleted such a znode and created it again
with the same content before the recorder read it, there is no row: it shows as ``state``, and the next change as one
after a ``gap``.

Costs one shuffle of all changes by entity, sorted by revision, with running values only; after that one row per entity,
joined with the znodes and the states. If a znode was written very often, the changes are first folded in ranges, so
that the work for an entity is divided into several tasks (:mod:`confplane.rollups.folding`). A run that builds on the
fold of the previous run reads only later changes, and returns the same rows, with one exception: it does not find rows
that were altered or removed after they were folded. A run from the beginning finds these too.
"""

from __future__ import annotations

from datetime import timedelta
from typing import TYPE_CHECKING, Final

from pyspark.sql import functions as F  # noqa: N812 - the name that Spark's own pages use
from pyspark.sql.types import StructType

from confplane.domain.rollups import ROLLUPS
from confplane.rollups.folding import (
    ENTITY,
    FOLD,
    differing_keys,
    empty_map,
    fold_changes,
    last_of,
    newest_gaps,
    next_fold,
    same_content,
)
from confplane.rollups.job import Job
from confplane.rollups.schemas import row_type
from confplane.services.recorder.record import UNNOTIFIED_INTERVAL_S

if TYPE_CHECKING:
    from collections.abc import Callable
    from datetime import datetime

    from pyspark.sql import Column, DataFrame

    from confplane.rollups.job import CarriedFold

_NO_END: Final = 2**63 - 1
_REWOUND: Final = "rewound"
_ALTERED: Final = "altered"
_OF_ZNODES: Final = ("content", "version", "no_trail")
"""The kinds of mismatches between the expected state and a znode that exists."""
UNNOTIFIED: Final = timedelta(seconds=2.5 * UNNOTIFIED_INTERVAL_S)
"""The time in which the recorder finds a write without a notification: an interval of up to 1.1 times its mean, and one
more if another process became the leader."""

_MISMATCH: Final = StructType(row_type(ROLLUPS["integrity"]).fields[2:-2])
"""The columns of a mismatch, without those of its entity and znode."""


def transform(  # noqa: PLR0913 - one argument for each input and option
    *,
    changes: DataFrame,
    znodes: DataFrame,
    states: DataFrame,
    begin: int | None,
    as_of: datetime,
    ceiling: int,
    floor: int,
    horizon: int,
    recorded_since: int | None,
    watermark: int | None,
    newest_version: int | None = None,
    carried: CarriedFold | None = None,
    settled: int | None = None,
) -> tuple[DataFrame, DataFrame | None]:
    """Return the rows, and the fold for the next run; see the module."""
    node = F.struct("config", "version", "czxid", "mzxid", "mtime", "undecodable", "forbidden")
    found = znodes.where("entity_id IS NOT NULL").select(*ENTITY, node.alias("node"))
    known = states.select(*ENTITY, F.struct("present", "czxid", "version", "mzxid", "content").alias("state"))
    trail = fold_changes(
        changes, floor, ceiling, begin, carried=carried, settled=settled, newest_version=newest_version
    )
    if settled is not None:
        trail = trail.persist()
    entities = trail.join(known, list(ENTITY), "full").join(found, list(ENTITY), "full")
    reached = horizon if watermark is None else min(watermark, horizon)
    unseen = _sure(F.col("node.mzxid") > reached)
    unnotified = F.expr("false")
    if watermark is not None:
        is_recent = F.col("node.mtime") > F.lit(as_of - UNNOTIFIED)
        unnotified = _sure(is_recent & (F.coalesce("state.mzxid", F.lit(0)) < F.col("node.mzxid")))
        # The recorder has not seen the deletion while it still has the state.
        unseen |= F.col("node").isNull() & _sure(F.col("state.present"))
    if reached < horizon:
        written = F.exists("tail", lambda each: each["revision"].between(reached + 1, ceiling))
        unseen |= F.col("node").isNull() & _sure(written)
    if horizon < floor:
        # A lagging standby: an absent znode may have been deleted by a change that it lacks.
        unseen |= F.col("node").isNull()
    pending = _sure(F.size("open") > 0) | unseen

    def mismatches(entity: Column) -> Column:
        expected = _expected(entity, recorded_since)
        return _let(expected, lambda expected: _mismatches(entity, expected, floor, begin, watermark))

    tail, seen = F.col("tail"), _counted_revision(floor, ceiling)
    given = F.struct(
        "node",
        F.when(F.col("state.mzxid") <= ceiling, F.col("state")).alias("state"),
        newest_gaps(F.col("gaps")).alias("gaps"),
        last_of(tail, F.lit(0), seen).alias("last"),
        seen.alias("seen"),
        _lost(last_of(tail, F.lit(ceiling), F.lit(_NO_END)), F.col("state"), ceiling).alias("lost"),
    )
    rows = entities.withColumn("mismatch", F.explode(_let(given, mismatches))).select(
        *ENTITY,
        "mismatch.*",
        F.col("node.mzxid").alias("znode_revision"),
        (
            ~F.col("mismatch.kind").isin(_REWOUND, _ALTERED)
            & (pending | (unnotified & F.col("mismatch.kind").isin(*_OF_ZNODES)))
        ).alias("pending"),
    )
    return rows, None if settled is None else next_fold(trail, settled)


def _counted_revision(floor: int, ceiling: int) -> Column:
    """Return the revision up to which changes count for a znode; for an absent znode, the ``ceiling``."""
    node = F.col("node")
    return F.when(node.isNull(), F.lit(ceiling)).otherwise(F.greatest(node["mzxid"], F.lit(floor)))


def _lost(change: Column, state: Column, ceiling: int) -> Column:
    """Return the change or state above all revisions of ZooKeeper; null if there is none.

    Args:
        change: The last such change, or null.
        state: The recorder's state, or null.
        ceiling: The revision that ZooKeeper has reached.
    """
    is_above = _sure(state["mzxid"] > ceiling)
    return F.when(
        change.isNotNull() | is_above,
        F.struct(
            F.greatest(change["revision"], F.when(is_above, state["mzxid"])).alias("trail_revision"),
            change["change_id"].alias("change_id"),
            F.when(change.isNotNull(), change["version"]).when(state["present"], state["version"]).alias("version"),
        ),
    )


def _let(value: Column, body: Callable[[Column], Column]) -> Column:
    """Return an expression in which a value is computed once, for any number of uses.

    If the value were repeated at each place, Spark's planner would need minutes for the resulting tree.
    """
    return F.get(F.transform(F.array(value), body), F.lit(0))


def _expected(entity: Column, recorded_since: int | None) -> Column:
    """Return the expected state.

    ``known``: whether the trail or a state gives one; ``unexplained``: the recorder's state has a content that the
    trail lacks; ``present, content, version, czxid``; ``since``: the revision of the state; ``trail_revision,
    change_id``.
    """
    state, last = entity["state"], entity["last"]
    same_state = (state["present"] == last["version"].isNotNull()) & (
        ~state["present"]
        | ((state["version"] == last["version"]) & F.coalesce(state["czxid"] == last["czxid"], F.expr("true")))
    )
    contents = F.struct(
        F.when(last["version"].isNotNull(), last["config"]).otherwise(empty_map()).alias("by_trail"),
        F.when(state["present"], state["content"]).otherwise(empty_map()).alias("by_state"),
        (
            _sure(state["mzxid"] <= entity["seen"])
            & (last.isNull() | (_sure(state["mzxid"] > last["revision"]) & ~_sure(same_state)))
        ).alias("state_counts"),
    )

    # The content of a znode that was created while external writes were recorded must come from a row.
    made_since = F.expr("false")
    if recorded_since is not None:
        made_since = _sure(state["present"] & (state["czxid"] > recorded_since))

    def expected(both: Column) -> Column:
        counts = both["state_counts"]
        needs_row = last.isNotNull() | made_since
        unexplained = counts & needs_row & ~same_content(both["by_trail"], both["by_state"])
        content = F.when(counts & (last.isNull() | unexplained), both["by_state"]).otherwise(both["by_trail"])
        return F.struct(
            (counts | last.isNotNull()).alias("known"),
            unexplained.alias("unexplained"),
            F.when(counts, state["present"]).otherwise(last["version"].isNotNull()).alias("present"),
            content.alias("content"),
            F.when(~counts, last["version"]).when(state["present"], state["version"]).alias("version"),
            F.when(counts | (last["czxid"].isNull() & _sure(state["version"] == last["version"])), state["czxid"])
            .otherwise(last["czxid"])
            .alias("czxid"),
            F.when(counts, state["mzxid"]).otherwise(last["revision"]).alias("since"),
            last["revision"].alias("trail_revision"),
            last["change_id"].alias("change_id"),
        )

    return _let(contents, expected)


def _mismatches(entity: Column, expected: Column, floor: int, begin: int | None, watermark: int | None) -> Column:
    """Return the mismatches of an entity as an array."""
    none = F.array().cast(f"array<{_MISMATCH.simpleString()}>")
    node, content, present = entity["node"], expected["content"], expected["present"]
    is_there = node.isNotNull()
    unknown = F.expr("true")
    if watermark is None:
        # Without a state of every entity, the age of a znode decides whether the trail should know it.
        unknown = F.expr("false") if begin is None else _sure(node["czxid"] > begin)
    should_be_absent = F.when(expected["known"], ~present).otherwise(unknown)
    no_trail = is_there & (F.size(node["config"]) > 0) & should_be_absent
    no_znode = ~is_there & present & (F.size(content) > 0) & (expected["since"] <= floor)
    other_version = (node["version"] != expected["version"]) | (node["czxid"] != expected["czxid"])
    is_read = is_there & present & ~_sure(node["undecodable"])
    differing = F.transform(
        F.when(is_read, differing_keys(content, node["config"])).otherwise(F.array()),
        lambda key: _row("content", entity, expected, key),
    )
    compared = _let(
        differing,
        lambda rows: (
            F.when(F.size(rows) > 0, rows)
            .when(no_trail, F.array(_row("no_trail", entity, expected)))
            .when(no_znode, F.array(_row("no_znode", entity, expected)))
            .when(is_there & present & other_version, F.array(_row("version", entity, expected)))
            .otherwise(none)
        ),
    )
    return F.concat(
        F.coalesce(F.flatten(F.transform(entity["gaps"], _gap)), none),
        F.when(entity["lost"].isNotNull(), F.array(_rewound(entity))).otherwise(none),
        F.when(expected["unexplained"], F.array(_row("state", entity, expected))).otherwise(none),
        F.when(_sure(node["forbidden"]), none).otherwise(compared),
    )


def _row(kind: str, entity: Column, expected: Column, key: Column | None = None) -> Column:
    text = F.lit(None).cast("string")
    return F.struct(
        F.lit(kind).alias("kind"),
        (F.lit("") if key is None else key).alias("config_key"),
        F.coalesce(expected["trail_revision"], F.lit(0).cast("long")).alias("trail_revision"),
        expected["change_id"].alias("change_id"),
        (text if key is None else expected["content"][key]).alias("expected"),
        (text if key is None else entity["node"]["config"][key]).alias("found"),
        F.when(expected["present"], expected["version"]).alias("trail_version"),
        entity["node"]["version"].alias("version"),
    )


def _rewound(entity: Column) -> Column:
    text, lost = F.lit(None).cast("string"), entity["lost"]
    return F.struct(
        F.lit(_REWOUND).alias("kind"),
        F.lit("").alias("config_key"),
        lost["trail_revision"].alias("trail_revision"),
        lost["change_id"].alias("change_id"),
        text.alias("expected"),
        text.alias("found"),
        lost["version"].alias("trail_version"),
        entity["node"]["version"].alias("version"),
    )


def _gap(gap: Column) -> Column:
    """Return the mismatches of a gap: one, or one per altered key."""
    text = F.lit(None).cast("string")

    def row(kind: str, key: Column, left: Column, read: Column) -> Column:
        return F.struct(
            F.lit(kind).alias("kind"),
            key.alias("config_key"),
            gap["revision"].alias("trail_revision"),
            gap["change_id"].alias("change_id"),
            left.alias("expected"),
            read.alias("found"),
            gap["left_version"].alias("trail_version"),
            gap["read_version"].alias("version"),
        )

    altered = F.transform(
        gap["altered"], lambda each: row(_ALTERED, each["config_key"], each["left_value"], each["read_value"])
    )
    return F.when(F.size(altered) > 0, altered).otherwise(F.array(row("gap", F.lit(""), text, text)))


def _sure(condition: Column) -> Column:
    """Treat unknown as false."""
    return F.coalesce(condition, F.expr("false"))


JOB: Final = Job(
    rollup=ROLLUPS["integrity"],
    inputs={
        "changes": (
            "change_id", "entity_id", "facet", "path", "version_read", "czxid_read", "writes", "before", "after",
            "outcome", "revision", "version",
        ),
        "states": ("tree", "entity_id", "present", "czxid", "version", "mzxid", "content"),
        "znodes": (
            "tree", "entity_id", "config", "version", "czxid", "mzxid", "mtime", "undecodable", "forbidden"
        ),
    },
    transform=transform,
    options=frozenset(
        {"as_of", "begin", "ceiling", "floor", "horizon", "newest_version", "recorded_since", "watermark"}
    ),
    fold=FOLD,
)  # fmt: skip
