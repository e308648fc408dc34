"""Changes by day, principal and config key: how many, how many were refused and why, and how many were reverted.

One row per UTC day, principal, kind of change, entity type, config key and error code.

The columns are described in domain/rollups.py. More exactly:

- ``day`` is the date of the time in the change's id: of its start; for an external change, of its write.
- ``kind`` is ``change``, ``reload``, ``import``, ``observed``, ``put-back``, ``external`` or ``recovered``.
- ``config_key`` is empty for a change that gave no key another value (compaction, moves between layouts).
- Several refused attempts without keys that are stored as one row count each, under the empty key.
- ``reverted_keys`` counts keys set back to the state before a change of the same entity's key that was committed before
  and began at most :data:`WINDOW_DAYS` days earlier. Absence is a state like any value. Values that the trail does not
  have (secrets) are never a revert, and neither is a move between layouts, nor a reload of a file.

Incremental: the days from ``since`` on are counted again from the changes of these days and of the window before them,
and all earlier days are kept. So changes that are recorded or settled late are counted on the right day. The teams of
all days are those of this run.

Costs one pass over the changes, one shuffle of two narrow rows per change and key and a few more, sorted by revision
within the states of a key. The history of an entity is never held in memory. The work for an entity with very many
changes is divided: a task has at most the changes of :data:`SPAN_DAYS` days that found or left a key in one state.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from pyspark.sql import Window
from pyspark.sql import functions as F  # noqa: N812 - the name that Spark's own pages use
from pyspark.sql.types import LongType

from confplane.domain.errors import KafkaCode
from confplane.domain.rollups import ROLLUPS
from confplane.domain.teams import ANY
from confplane.rollups.columns import entity_type
from confplane.rollups.job import Job
from confplane.rollups.schemas import COMMITTED, OPEN, REJECTED
from confplane.services.ports.trail import CHANGE, WHOLE_OPS

if TYPE_CHECKING:
    from datetime import datetime

    from pyspark.sql import Column, DataFrame

    from confplane.domain.teams import Teams

WINDOW_DAYS: Final = 7
"""Days after a change in which setting it back counts as a revert."""

SPAN_DAYS: Final = 28
"""The days of a span. A change can set back those of its own span and of the window before; so the end of a span is
also evaluated in the next one."""
_SKEW_DAYS: Final = 1
"""The longest time by which a change may begin before another one and commit after it, with a margin."""

_KEY: Final = ROLLUPS["activity"].key
_COUNTS: Final = ("committed_keys", "rejected_keys", "open_keys", "reverted_keys")


def transform(
    *,
    changes: DataFrame,
    refused_attempts: DataFrame,
    teams: Teams | None = None,
    previous: DataFrame | None = None,
    since: datetime | None = None,
) -> DataFrame:
    """Return the rows; see the module."""
    # A move between layouts gives no key another value. It removes the keys from one tree, and may add them to the
    # other: of these two rows the first counts, once.
    is_move, is_second = _is_move(), F.cardinality("after") > F.cardinality("before")
    altered = changes.where(~(is_move & is_second)).select(
        "principal",
        "kind",
        "path",
        "created_at",
        "revision",
        "outcome",
        _refusal().alias("error_code"),
        entity_type(F.col("entity_id")).alias("entity_type"),
        F.explode_outer(F.when(~is_move, F.col("keys"))).alias("config_key"),
        "before",
        "after",
    )
    is_committed = F.col("outcome") == COMMITTED
    created, day = F.col("created_at"), F.expr("INTERVAL 1 DAY")
    # A reload of a file gives its key no other value: it sets nothing back, and nothing sets it back.
    is_set = ~_state("before").eqNullSafe(_state("after"))
    left = _side(F.when(is_set, _state("after")), _span(created), is_result=True)
    # The states of a key before and after each change. Ordered by revision, those of one state of one key are
    # neighbours. So the last "before" above an "after" is the change that it sets back.
    spans = F.array_distinct(
        F.array(_span(created), _span(created + WINDOW_DAYS * day), _span(created - _SKEW_DAYS * day))
    )
    found = F.transform(spans, lambda span: _side(F.when(is_set, _state("before")), span, is_result=False))
    sides = F.when(is_committed, F.array_append(found, left)).otherwise(F.array(left))
    steps = altered.withColumn("side", F.explode(sides)).drop("before", "after")
    of_state = Window.partitionBy("path", "config_key", "side.state", "side.span").orderBy("revision")
    left_behind = F.max(F.when(~F.col("side.is_result"), F.col("created_at"))).over(
        of_state.rowsBetween(Window.unboundedPreceding, -1)
    )
    results = (
        steps.withColumn("left_behind", left_behind)
        .where("side.is_result")
        .withColumn("day", F.to_date("created_at"))
        .withColumn("config_key", F.coalesce("config_key", F.lit("")))
    )
    if since is not None:
        results = results.where(F.col("day") >= F.lit(since.date()))
    reverts = (
        is_committed
        & F.col("side.state").isNotNull()
        & (F.col("left_behind") >= F.col("created_at") - F.expr(f"INTERVAL {WINDOW_DAYS} DAYS"))
    )
    counted = results.groupBy(*_KEY).agg(
        F.count_if(is_committed).alias("committed_keys"),
        F.count_if(F.col("outcome") == REJECTED).alias("rejected_keys"),
        F.count_if(F.col("outcome") == OPEN).alias("open_keys"),
        F.count_if(reverts).alias("reverted_keys"),
    )
    of_both = counted.unionByName(_refused(refused_attempts)).groupBy(*_KEY)
    counted = of_both.agg(*(F.sum(name).alias(name) for name in _COUNTS))
    if previous is not None and since is not None:
        counted = counted.unionByName(previous.drop("team").where(F.col("day") < F.lit(since.date())))
    return counted.withColumn("team", _team(teams))


def _refused(attempts: DataFrame) -> DataFrame:
    """Return the counts of refused attempts, in rows that are not unique."""
    of_none = F.lit(0).cast(LongType())
    return attempts.select(
        F.to_date("created_at").alias("day"),
        "principal",
        F.lit(CHANGE).alias("kind"),
        F.coalesce(entity_type(F.col("entity_id")), F.lit("")).alias("entity_type"),
        F.explode_outer("keys").alias("config_key"),
        "error_code",
        of_none.alias("committed_keys"),
        F.col("count").cast(LongType()).alias("rejected_keys"),
        of_none.alias("open_keys"),
        of_none.alias("reverted_keys"),
    ).fillna({"config_key": ""})


def _is_move() -> Column:
    """Return an expression that is true for a move between layouts: its one op stands for all keys of a facet."""
    # Quotes within a JSON string are escaped, so that no key or value has this form.
    return F.col("ops").rlike(rf'"op": ?"({"|".join(sorted(WHOLE_OPS))})"')


def _refusal() -> Column:
    """Return the error code of a rejected change, and NONE for all other changes."""
    named = F.coalesce("error_code", F.lit(int(KafkaCode.UNKNOWN_SERVER_ERROR)))
    return F.when(F.col("outcome") == REJECTED, named).otherwise(F.lit(int(KafkaCode.NONE)))


def _team(teams: Teams | None) -> Column:
    """Return the team of a principal: by its exact name, by the first matching pattern, or the default."""
    if teams is None:
        return F.lit(None).cast("string")
    principal = F.col("principal")
    named = [F.when(principal.isin(*names), F.lit(team)) for team, names in teams.names]
    fitting = [F.when(principal.like(_like(pattern)), F.lit(team)) for pattern, team in teams.patterns]
    return F.coalesce(*named, *fitting, F.lit(teams.default))


def _like(pattern: str) -> str:
    """Return a pattern in the form of SQL's LIKE."""
    for special in ("\\", "%", "_"):
        pattern = pattern.replace(special, f"\\{special}")
    return pattern.replace(ANY, "%")


def _span(time: Column) -> Column:
    """Return the number of the span of a time."""
    return F.floor(F.unix_seconds(time) / (SPAN_DAYS * 86_400))


def _side(state: Column, span: Column, *, is_result: bool) -> Column:
    return F.struct(state.alias("state"), span.alias("span"), F.lit(is_result).alias("is_result"))


def _state(config: str) -> Column:
    """Return the state of a key in a map: ``=value``, ``-`` if it is absent, null if its value is not known."""
    key = F.col("config_key")
    value = F.concat(F.lit("="), F.col(config)[key])
    return F.when(F.map_contains_key(config, key), value).when(key.isNotNull(), F.lit("-"))


JOB: Final = Job(
    rollup=ROLLUPS["activity"],
    inputs={
        "changes": (
            "principal", "kind", "entity_id", "path", "created_at", "revision", "outcome", "error_code", "keys",
            "ops", "before", "after",
        ),
        "refused_attempts": ("created_at", "principal", "entity_id", "keys", "error_code", "count"),
    },
    transform=transform,
    incremental=True,
    lookback_days=WINDOW_DAYS,
    options=frozenset({"teams"}),
)  # fmt: skip
