"""What a run reads: one moment of one cluster, as the frames that jobs take.

The moment is kept as long as the context lasts, and all frames are of it, whenever they are read.
"""

from __future__ import annotations

import tempfile
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, Protocol

from pyspark.sql.types import StructType

from app.rollups import schemas
from app.rollups.registered import current
from app.rollups.sources import trail
from app.rollups.sources.postgres import connected, literal
from app.rollups.sources.tables import TABLES, Cut, first_id_at, time_of
from app.rollups.sources.trail import Moment, TrailSource, bounds, trail_options

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from pyspark.sql import DataFrame, SparkSession

    from app.rollups.job import Job
    from app.rollups.origin import Origin
    from app.rollups.sources.postgres import Connection

_LATE: Final = timedelta(days=1)
"""How long after its ``recorded_at`` a row may become visible: that is when its transaction began."""


class NotInReadingError(ValueError):
    """A job needs what this reading does not have; the message is for the person who asked for the run."""


class Frames(Protocol):
    """Where a reading's frames come from."""

    def frame(self, name: str, columns: Sequence[str], *, low: int | datetime | None = None) -> DataFrame:
        """Return columns of a frame; ``low`` is the least ``id`` or ``created_at``.

        Raises:
            NotInReadingError: There is no such frame here.
        """

    def oldest(self, recorded_since: datetime) -> datetime | None:
        """Return the least ``created_at`` of the changes that have an intent or an outcome of that time or later."""


@dataclass(frozen=True, slots=True)
class Reading:
    """One moment of one cluster.

    Attributes:
        cluster: Its name.
        as_of: The moment, aware.
        options: What jobs ask for (``job.OPTIONS``), but for ``capacity``.
        position: JSON. Where this run is, to be kept with what it publishes and handed to :meth:`frames` by the next:
            ``as_of`` (ISO 8601), ``registration_id``, ``floor``, ``horizon``, ``watermark`` (decimal strings or null).
    """

    cluster: str
    as_of: datetime
    options: Mapping[str, Any]
    position: Mapping[str, Any]
    _frames: Frames = field(repr=False)

    def frames(
        self, job: Job, previous: Mapping[str, Any] | None = None
    ) -> tuple[dict[str, DataFrame], datetime | None]:
        """Return the frames that a job takes, with exactly the columns that it names.

        Args:
            job: The job.
            previous: The position of a run that the job's rows can be built on.

        Returns:
            The frames, and the ``since`` of an incremental run (see :class:`Job`). It is None where the run is one
            from the beginning after all: the job is not incremental, there is no run before, or that one saw what is
            not there any more.

        Raises:
            NotInReadingError: It needs frames that this reading does not have.
        """
        since = self._since(previous) if previous is not None and job.incremental else None
        lows: dict[str, int | datetime] = {}
        if since is not None and previous is not None:
            lows = {
                "changes": since - timedelta(days=job.lookback_days),
                "registration_events": int(previous["registration_id"]) + 1,
            }
        frames = {name: self._frame(name, columns, lows.get(name)) for name, columns in job.inputs.items()}
        return frames, since

    def _frame(self, name: str, columns: Sequence[str], low: int | datetime | None) -> DataFrame:
        if name == "registrations":
            events = self._frames.frame("registration_events", schemas.REGISTRATION_EVENTS.names)
            return current(events).select(*columns)
        return self._frames.frame(name, columns, low=low)

    def _since(self, previous: Mapping[str, Any]) -> datetime | None:
        then = datetime.fromisoformat(previous["as_of"])
        if then > self.as_of or int(previous["registration_id"]) > int(self.position["registration_id"]):
            return None  # it is of later, or the tables are older than they were
        oldest = self._frames.oldest(then - _LATE)
        first = then if oldest is None else min(oldest, then)
        return first.astimezone(UTC).replace(hour=0, minute=0, second=0, microsecond=0)


@contextmanager
def read(
    spark: SparkSession, origin: Origin, *, as_of: datetime | None = None, scratch: Path | None = None
) -> Iterator[Reading]:
    """Take one moment of a cluster, and keep it until the context ends.

    Args:
        spark: From :func:`app.rollups.session.session`.
        origin: What to read from.
        as_of: A moment of the past, aware; None for now. Trail and registrations can be read as they were; znodes and
            the recorder's states can't.
        scratch: Where to put a file that only the driver reads; None for the system's directory of such files.

    Raises:
        UnavailableError: Postgres is away.
        ValueError: ``as_of`` is to come.
    """
    spark.dataSource.register(TrailSource)
    with tempfile.TemporaryDirectory(prefix="confplane-", dir=scratch) as directory, connected(origin.dsn) as postgres:
        file = Path(directory) / "origin.json"
        origin.save(file)
        moment, now = _moment(postgres, origin.name, as_of)
        begin, watermark = _revisions(postgres, moment.cut)
        yield Reading(
            cluster=origin.name,
            as_of=now if as_of is None else as_of,
            options={"as_of": now if as_of is None else as_of, "begin": begin, "watermark": watermark},
            position={
                "as_of": (now if as_of is None else as_of).isoformat(),
                "registration_id": str(moment.cut.last_registration),
                "floor": None,
                "horizon": None,
                "watermark": None if watermark is None else str(watermark),
            },
            _frames=_Stores(spark, file, postgres, moment),
        )


def _moment(postgres: Connection, cluster: str, as_of: datetime | None) -> tuple[Moment, datetime]:
    """Return the snapshot of a transaction, and its time by Postgres's clock."""
    [(snapshot, now)] = postgres.rows("SELECT pg_export_snapshot(), clock_timestamp()")
    if as_of is not None and as_of > now:
        raise ValueError(f"{as_of.isoformat()} is to come: it is {now.isoformat()}")
    events = f"FROM registrations WHERE cluster = {literal(cluster)}"
    # Ids are in the order of commits, so that a run which goes on from here misses nothing.
    query = f"SELECT coalesce(max(id), 0) {events}"
    if as_of is not None:
        query = f"SELECT coalesce((SELECT min(id) - 1 {events} AND recorded_at > {literal(as_of)}), ({query}))"
    [(last,)] = postgres.rows(query)
    return Moment(snapshot, Cut(cluster, as_of, last)), now


def _revisions(postgres: Connection, cut: Cut) -> tuple[int | None, int | None]:
    """Return the first revision of the trail, and the recorder's watermark once it is complete."""
    cluster = literal(cut.cluster)
    until = "" if cut.as_of is None else f" AND recorded_at <= {literal(cut.as_of)}"
    [(begin,)] = postgres.rows(f"SELECT min(revision) FROM outcomes WHERE cluster = {cluster} AND committed{until}")  # noqa: S608 - literals, quoted
    found = postgres.rows(f"SELECT revision FROM watermarks WHERE cluster = {cluster} AND complete")  # noqa: S608 - a literal, quoted
    return begin, found[0][0] if found and cut.as_of is None else None


class _Stores:
    """Frames out of Postgres and ZooKeeper themselves."""

    def __init__(self, spark: SparkSession, file: Path, postgres: Connection, moment: Moment) -> None:
        self._spark = spark
        self._file = file
        self._postgres = postgres
        self._moment = moment
        self._bounds: dict[str, list[str]] = {}

    def frame(self, name: str, columns: Sequence[str], *, low: int | datetime | None = None) -> DataFrame:
        table = TABLES.get(name)
        if table is None:
            raise NotInReadingError(f"There are no {name} in this reading")
        if name == "states" and self._moment.cut.as_of is not None:
            raise NotInReadingError("The recorder's states are known as they are now, and not of any time before")
        if name not in self._bounds:
            parallelism = self._spark.sparkContext.defaultParallelism
            self._bounds[name] = bounds(self._postgres, table, self._moment.cut, parallelism)
        key = first_id_at(low) if isinstance(low, datetime) else None if low is None else str(low)
        return (
            self._spark.read.format(trail.NAME)
            .options(**trail_options(self._file, name, self._moment, self._bounds[name], key))
            .schema(StructType([table.schema[column] for column in columns]))
            .load()
        )

    def oldest(self, recorded_since: datetime) -> datetime | None:
        cut = self._moment.cut
        until = "" if cut.as_of is None else f" AND recorded_at <= {literal(cut.as_of)}"
        rows = f"WHERE cluster = {literal(cut.cluster)} AND recorded_at >= {literal(recorded_since)}{until}"
        found = [
            first
            for table in ("intents", "outcomes")
            for (first,) in self._postgres.rows(f"SELECT min(change_id::text) FROM {table} {rows}")  # noqa: S608 - literals, quoted
            if first is not None
        ]
        return time_of(min(found)) if found else None
