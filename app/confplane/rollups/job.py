"""Jobs: pure functions of frames, with the facts that their callers need.

Each module of :mod:`confplane.rollups.jobs` ends with ``JOB = Job(...)``. A transform takes its frames and options by
name, reads nothing else, and starts no Spark action; the runner reads the frames, publishes the returned rows, and
counts them. A transform persists the frames that it uses several times, and the runner clears Spark's cache after the
last job.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final

from confplane.rollups.schemas import row_type

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from datetime import datetime

    from pyspark.sql import DataFrame
    from pyspark.sql.types import StructType

    from confplane.domain.rollups import Rollup

OPTIONS: Final = frozenset(
    {
        "as_of",
        "begin",
        "capacity",
        "catalogs",
        "ceiling",
        "client_config_trees",
        "floor",
        "horizon",
        "newest_version",
        "on_zookeeper",
        "other",
        "other_catalogs",
        "other_on_zookeeper",
        "other_release",
        "recorded_since",
        "release",
        "teams",
        "watermark",
    }
)
"""Options that a transform may request by their names in ``Job.options``.

``as_of``
    ``datetime``, aware: the moment that the run describes; nothing that was recorded after it is in the frames.
``begin``
    ``int`` or None: the revision of the first change of the trail that committed; None if there is none.
``capacity``
    ``Mapping[str, float]``: quota key -> the capacity of one broker, in the quota's unit; empty if not given.
``catalogs``
    ``Catalogs``: the definitions of the cluster's configs, with the keys that its settings declare.
``ceiling``
    ``int``: a zxid that was read after the snapshot of Postgres: no change in ``changes`` and no state in ``states`` is
    of a later revision, unless ZooKeeper went back to an older state, or was replaced by another ensemble.
``client_config_trees``
    ``Sequence[str]``: the trees with client configs in use. Each entity counts with the first of them in which it has
    any. There are two during a move of the layout, with its destination first.
``floor``
    ``int``: a zxid that was determined before the first znode was read. Every znode, as read, includes every commit up
    to it.
``horizon``
    ``int``: a zxid. Every change that committed up to it has its intent in ``changes`` (and, unless that is open, its
    outcome). A znode whose ``mzxid`` is above it may have been written by a change that is not in ``changes``. Below
    ``floor`` only if the run reads a lagging standby.
``newest_version``
    ``int`` or None: the highest version of any znode in ``znodes``; None if it is not known.
``on_zookeeper``
    ``bool``: the cluster runs on ZooKeeper, so that ``znodes`` has all topics; the release does not tell, because 3.9
    also runs without.
``other``
    ``str``: the side that the run's cluster is compared with: the name of another cluster, or a time (ISO 8601, UTC).
``other_catalogs``
    ``Catalogs``: the definitions of the other side's configs.
``other_on_zookeeper``
    ``bool``: ``on_zookeeper`` of the other side.
``other_release``
    ``str``: the release of the other side's Kafka.
``recorded_since``
    ``int`` or None: the revision since which the recorder has a row for each content that external writers left: by
    then it had a state of every entity (``watermarks.since``). None if ``watermark`` is None or the revision was not
    recorded.
``release``
    ``str``: the release of the cluster's Kafka, "3.9" or "4.4", whose catalog defines the configs of ``znodes``.
``teams``
    ``Teams`` or None (:mod:`confplane.domain.teams`): the teams of principals; None if not given.
``watermark``
    ``int`` or None: the revision up to which the recorder has explained all external writes, once it has a state of
    every entity (``watermarks``, if ``complete``); None if it never ran or has not reached that point.
"""


@dataclass(frozen=True, slots=True)
class Fold:
    """The fold of a job: its changes up to a revision, summarized in a few rows, which each run passes to the next.

    Attributes:
        schema: The schema of its rows.
        version: The version of the schema and of its meaning: a run builds only on folds of this version.
    """

    schema: StructType
    version: int


@dataclass(frozen=True, slots=True)
class CarriedFold:
    """The fold of the previous run, on which the current run builds.

    Attributes:
        rows: Its rows.
        revision: The revision up to which it has all changes.
        since: The time at which ``changes`` begins, aware: the frame includes all changes of later revisions, and all
            that were recorded, or received their outcome, since that run.
    """

    rows: DataFrame = field(repr=False)
    revision: int
    since: datetime


@dataclass(frozen=True, slots=True)
class Job:
    """One rollup.

    Attributes:
        rollup: The name, the columns of the rows and their key.
        inputs: Frame -> the columns of it that the transform reads; it is given these and no others. Frames are
            ``changes``, ``other_topics``, ``other_znodes``, ``refused_attempts``, ``registration_events``,
            ``registrations``, ``reports``, ``states``, ``topics``, ``usage`` and ``znodes`` (rollups/schemas.py).
        transform: ``transform(changes=..., znodes=..., as_of=...)``: the frames of ``inputs`` and the ``options`` by
            name; returns rows of the schema ``output`` in any order.
        incremental: The transform also takes ``previous`` and ``since``. On a run from the beginning both are None.
            Otherwise ``previous`` has the rows of the run to build on (schema ``output``), ``registration_events`` only
            the events after that run, and ``changes`` and ``refused_attempts`` exactly those whose ``created_at`` is
            not before ``since``: a UTC midnight, early enough to include every row that is new or received its outcome.
            The result has all rows, including those kept from ``previous``.
        lookback_days: For an incremental job: ``changes`` begins that many days before ``since``.
        options: Names of :data:`OPTIONS`.
        fold: The fold that each run passes to the next. The transform then takes two more arguments: ``carried``, the
            :class:`CarriedFold` of the previous run, or None for a run that reads all changes; and ``settled``, the
            revision up to which it folds the changes for the next run, at most ``floor``, or None. It returns the rows
            and that fold, or None.
    """

    rollup: Rollup
    inputs: Mapping[str, tuple[str, ...]]
    transform: Callable[..., Any] = field(repr=False)
    incremental: bool = False
    lookback_days: int = 0
    options: frozenset[str] = frozenset()
    fold: Fold | None = None

    @property
    def name(self) -> str:
        """The name in the command and in the URL."""
        return self.rollup.name

    @property
    def output(self) -> StructType:
        """The schema of the rows."""
        return row_type(self.rollup)

    @property
    def key(self) -> tuple[str, ...]:
        """The columns that together identify a row, in the order of the rows. They are never null."""
        return self.rollup.key

    def __call__(self, **given: Any) -> DataFrame:
        """Return the rows, their columns in the order of the schema."""
        return self.evaluate(**given)[0]

    def evaluate(self, **given: Any) -> tuple[DataFrame, DataFrame | None]:
        """Return the rows, and the fold for the next run or None; their columns in the order of the schemas."""
        if self.fold is None:
            return self.transform(**given).select(*self.output.names), None
        rows, fold = self.transform(**given)
        return rows.select(*self.output.names), None if fold is None else fold.select(*self.fold.schema.names)
