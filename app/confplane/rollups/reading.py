"""Readings: one moment of one cluster, as the frames of the jobs."""

from __future__ import annotations

from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any, Final, Protocol

from pyspark.sql import functions as F  # noqa: N812 - the name that Spark's own pages use

from confplane.domain.facets import Tree
from confplane.domain.releases import ON_ZOOKEEPER

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from pyspark.sql import DataFrame

    from confplane.rollups.job import Job


_SOFTWARE: Final = ("entity_id", "software_name", "software_version", "supported_configs")
EVENT_COLUMNS: Final = ("id", "event", *_SOFTWARE, "seen_at")
"""Columns of the events that the functions below read."""
_START: Final = -1
"""An id below that of every event, for rows of an earlier run."""


def current_registrations(events: DataFrame) -> DataFrame:
    """Return the current registrations: entity_id, software_name, software_version, supported_configs (sorted).

    Args:
        events: All rows of ``REGISTRATION_EVENTS``, with :data:`EVENT_COLUMNS` at least.

    Costs as much as :func:`uncleared`.
    """
    return uncleared(events).select(*_SOFTWARE).distinct()


def uncleared(events: DataFrame, previous: DataFrame | None = None) -> DataFrame:
    """Return the ``seen`` events that no later event cleared.

    Args:
        events: Rows of ``REGISTRATION_EVENTS``, with :data:`EVENT_COLUMNS` at least.
        previous: Rows of the job ``compatibility`` from before the first event, which are returned too unless they are
            cleared; None for no rows.

    Returns:
        Rows with ``id``, the software's columns, ``common_configs``, ``first_seen`` and ``last_seen``.

    Costs one pass over the events, which stay in Spark's cache during the run. Clearings are few, and are joined by
    broadcast.
    """
    # Used several times, and reading them again would query Postgres again.
    events = events.persist()
    seen_at, configs = F.col("seen_at"), F.col("supported_configs")
    seen = events.where("event = 'seen'").select(
        "id",
        *_SOFTWARE,
        configs.alias("common_configs"),
        seen_at.alias("first_seen"),
        seen_at.alias("last_seen"),
    )
    if previous is not None:
        seen = seen.unionByName(previous.withColumn("id", F.lit(_START).cast("long")).select(*seen.columns))
    cleared = events.where("event = 'cleared'")
    of_entity = cleared.where("entity_id IS NOT NULL").groupBy("entity_id").agg(F.max("id").alias("cleared_entity"))
    of_all = cleared.where("entity_id IS NULL").agg(F.max("id").alias("cleared_all"))
    return (
        seen.join(F.broadcast(of_entity), "entity_id", "left")
        .crossJoin(F.broadcast(of_all))
        .where(f"id > coalesce(greatest(cleared_entity, cleared_all), {_START - 1})")
    )


LATE: Final = timedelta(days=1)
"""The longest time from a row's ``recorded_at``, the start of its transaction, until the row is visible."""
UNSETTLED: Final = timedelta(days=3)
"""The age up to which changes are excluded from the fold for the next run. A change that is recorded later than this,
less :data:`LATE`, after its commit costs one run from the beginning."""


_NEVER: Final = 2**63


class NotInReadingError(ValueError):
    """A job needs a part that this reading lacks; the message is for the person who asked for the run."""


class History(Protocol):
    """Queries about the changes of a reading, without their contents."""

    def oldest(self, recorded_since: datetime) -> datetime | None:
        """Return the lowest ``created_at`` of what was recorded then or later: intents, outcomes, refused attempts."""

    def lowest_revision(self, recorded_since: datetime) -> int | None:
        """Return the lowest revision of the changes with an outcome recorded then or later."""

    def first_above(self, revision: int) -> datetime | None:
        """Return the lowest ``created_at`` of the changes with a revision above this one."""

    def last_until(self, time: datetime) -> int | None:
        """Return the highest revision of the changes that committed up to a time, by ZooKeeper's clock."""


class Frames(Protocol):
    """The source of a reading's frames."""

    @property
    def history(self) -> History:
        """The changes' history."""

    def frame(self, name: str, columns: Sequence[str], low: int | datetime | None = None) -> DataFrame:
        """Return columns of a frame; ``low`` is the least ``id`` of events, or the least ``created_at`` otherwise.

        Raises:
            NotInReadingError: There is no such frame here.
        """


@dataclass(frozen=True, slots=True)
class Reading:
    """One moment of one cluster.

    Attributes:
        cluster: The cluster's name.
        as_of: The moment, aware.
        options: Options of jobs (``job.OPTIONS``), except ``capacity`` and ``teams``. Without znodes, there is no
            ``ceiling``, no ``floor``, no ``horizon``, no ``on_zookeeper`` and no ``release``, and ``newest_version`` is
            None, as in positions of earlier releases; ``client_config_trees`` has both trees.
        position: The position of this run as JSON, stored with its rows and passed to :meth:`frames` by the next run:
            ``as_of`` (ISO 8601), ``registration_id``, ``begin``, ``floor``, ``horizon``, ``watermark`` (decimal strings
            or null).
    """

    cluster: str
    as_of: datetime
    options: Mapping[str, Any]
    position: Mapping[str, Any]
    _frames: Frames = field(repr=False)
    _registrations: dict[str, DataFrame] = field(default_factory=dict, repr=False)
    """The current registrations, once a job has requested them: all jobs of a run share one pass over the events."""

    def frames(
        self, job: Job, previous: Mapping[str, Any] | None = None
    ) -> tuple[dict[str, DataFrame], datetime | None]:
        """Return the frames of a job, with exactly the columns that the job names.

        Args:
            job: The job.
            previous: The position of a run that the job may build on.

        Returns:
            The frames, and the start of the changes in a run that builds on the previous one (``since`` of an
            incremental :class:`Job`, or of :class:`confplane.rollups.job.CarriedFold`). The start is None for a run
            from the beginning: the job never builds on earlier runs, there is no earlier run, or the rows or the fold
            of that run are not of this history.

        Raises:
            NotInReadingError: The job needs frames that this reading lacks.
        """
        since = None
        if previous is not None:
            since = self._since(previous) if job.incremental else self._unfolded(previous) if job.fold else None
        lows: dict[str, int | datetime] = {}
        if since is not None and previous is not None:
            lows = {
                "changes": since - timedelta(days=job.lookback_days),
                "refused_attempts": since,
                "registration_events": int(previous["registration_id"]) + 1,
            }
        return {name: self.frame(name, columns, lows.get(name)) for name, columns in job.inputs.items()}, since

    def frame(self, name: str, columns: Sequence[str], low: int | datetime | None = None) -> DataFrame:
        """Return columns of one frame.

        Args:
            name: The frame; see rollups/schemas.py.
            columns: Columns of the frame, in this order.
            low: The least ``id`` of registration events, or the least ``created_at`` of other rows.

        Raises:
            NotInReadingError: The frame is not in this reading.
        """
        if name == "registrations":
            if name not in self._registrations:
                events = self._frames.frame("registration_events", EVENT_COLUMNS)
                self._registrations[name] = current_registrations(events).persist()
            return self._registrations[name].select(*columns)
        return self._frames.frame(name, columns, low)

    def settled(self) -> int | None:
        """Return the revision up to which this run folds the changes for the next run; None if there is none."""
        last, floor = self._frames.history.last_until(self.as_of - UNSETTLED), self.options.get("floor")
        return None if last is None or floor is None else min(last, floor)

    def _unfolded(self, previous: Mapping[str, Any]) -> datetime | None:
        """Return the time of the first change that the fold of an earlier run lacks.

        Returns None if the fold is not one of this trail: changes of lower revisions were recorded since, the trail
        begins at another revision, or ZooKeeper went back.
        """
        fold, then = previous.get("fold"), datetime.fromisoformat(previous["as_of"])
        floor = self.options.get("floor")
        if fold is None or floor is None or then > self.as_of:
            return None
        revision = int(fold["revision"])
        late = self._frames.history.lowest_revision(then - LATE)
        if previous.get("begin") != self.position["begin"] or floor < revision or (late or _NEVER) <= revision:
            return None
        found = (self._frames.history.oldest(then - LATE), self._frames.history.first_above(revision))
        return min((each for each in found if each is not None), default=then).astimezone(UTC)

    def _since(self, previous: Mapping[str, Any]) -> datetime | None:
        then = datetime.fromisoformat(previous["as_of"])
        if then > self.as_of or int(previous["registration_id"]) > int(self.position["registration_id"]):
            return None  # the position is later, or the tables were restored
        oldest = self._frames.history.oldest(then - LATE)
        first = then if oldest is None else min(oldest, then)
        return first.astimezone(UTC).replace(hour=0, minute=0, second=0, microsecond=0)


def reading_of(cluster: str, options: Mapping[str, Any], registration_id: int, frames: Frames) -> Reading:
    """Return a reading; its position is made from its options."""
    # Earlier releases exported no on_zookeeper.
    of_release = {"on_zookeeper": options["release"] == ON_ZOOKEEPER} if "release" in options else {}
    # Nor did they export the layout.
    trees = [Tree.CLIENT_CONFIGS, Tree.CONFIG]
    options = {"newest_version": None, "client_config_trees": trees, **of_release, **options}
    revisions = {name: options.get(name) for name in ("begin", "floor", "horizon", "watermark")}
    position = {
        "as_of": options["as_of"].isoformat(),
        "registration_id": str(registration_id),
        **{name: None if revision is None else str(revision) for name, revision in revisions.items()},
    }
    return Reading(cluster, options["as_of"], options, position, frames)
