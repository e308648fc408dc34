"""A reading of a lake's exports: jobs run on it as on the stores, without any query to the stores."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Final

from pyspark.sql import functions as F  # noqa: N812 - the name that Spark's own pages use

from confplane.rollups import schemas
from confplane.rollups.exports import manifest
from confplane.rollups.exports.columns import EXPORTED
from confplane.rollups.exports.manifest import UnreadableLakeError
from confplane.rollups.reading import NotInReadingError, reading_of
from confplane.rollups.sinks.files import Files, local_path

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from pyspark.sql import Column, DataFrame, SparkSession

    from confplane.domain.extra_keys import Catalogs
    from confplane.rollups.exports.manifest import Dataset, Manifest
    from confplane.rollups.job import Job
    from confplane.rollups.reading import Reading


_LOW: Final = {"changes": "created_at", "refused_attempts": "created_at", "registration_events": "id"}


@dataclass(frozen=True, slots=True)
class FileFrames:
    """The frames of files; see :class:`confplane.rollups.reading.Frames`.

    Attributes:
        read: (frame, columns, low) -> the frame with at least these columns, and possibly with rows below ``low``.
            Raises ``NotInReadingError`` if there is no such frame.
    """

    read: Callable[[str, Sequence[str], int | datetime | None], DataFrame]

    def frame(self, name: str, columns: Sequence[str], low: int | datetime | None = None) -> DataFrame:
        """Return columns of a frame."""
        needed = columns if low is None else [*dict.fromkeys([*columns, _LOW[name]])]
        frame = self.read(name, needed, low)
        if low is not None:
            frame = frame.where(F.col(_LOW[name]) >= F.lit(low))
        return frame.select(*columns)

    @property
    def history(self) -> FileHistory:
        """The changes' history."""
        return FileHistory(self)


@dataclass(frozen=True, slots=True)
class FileHistory:
    """The changes of the files, as :class:`confplane.rollups.reading.History`. Each read uses a few of all columns."""

    _frames: FileFrames

    def oldest(self, recorded_since: datetime) -> datetime | None:
        """Return the start time of the oldest change that was recorded, or received its outcome, since then."""
        since = F.lit(recorded_since)
        return self._begin((F.col("recorded_at") >= since) | (F.col("concluded_at") >= since))

    def lowest_revision(self, recorded_since: datetime) -> int | None:
        """Return the lowest revision of the changes that received their outcome since then."""
        return self._one(F.col("concluded_at") >= F.lit(recorded_since), F.min("revision"))

    def first_above(self, revision: int) -> datetime | None:
        """Return the start time of the oldest change with a higher revision."""
        return self._begin(F.col("revision") > revision)

    def last_until(self, time: datetime) -> int | None:
        """Return the highest revision up to a time."""
        return self._one(F.col("time") <= F.lit(time), F.max("revision"))

    def _begin(self, condition: Column) -> datetime | None:
        found = self._one(condition, F.unix_micros(F.min("created_at")))
        return None if found is None else _at(found)

    def _one(self, condition: Column, of: Column) -> int | None:
        changes = self._frames.frame("changes", ("created_at", "recorded_at", "concluded_at", "revision", "time"))
        [(found,)] = changes.where(condition).agg(of).collect()
        return None if found is None else int(found)


def _at(microseconds: int) -> datetime:
    seconds, rest = divmod(microseconds, 1_000_000)
    return datetime.fromtimestamp(seconds, UTC).replace(microsecond=rest)


_EXPORTS: Final = {
    "changes": "trail",
    "registration_events": "registrations",
    "states": "states",
    "znodes": "znodes",
}
"""Frame -> the export that has it."""
_EMPTY: Final = {
    "refused_attempts": schemas.REFUSED_ATTEMPTS,
    "reports": schemas.REPORTS,
    "topics": schemas.TOPICS,
}
"""Frames of rows that expire, or change without a trace. A lake has none."""
_EXPORT_OF: Final = {"registrations": "registrations", **_EXPORTS}


def count_rows(root: str, cluster: str, jobs: Sequence[Job]) -> int | None:
    """Return the number of rows that jobs read of a lake on this machine; None if only Spark can read the lake.

    Raises:
        UnreadableLakeError: The lake has nothing of the cluster that these jobs need.
    """
    manifest.check_root(root)
    base = root.rstrip("/")
    place = local_path(base)
    if place is None:
        return None
    file = Path(manifest.path_of(str(place), cluster))
    try:
        text = file.read_text(encoding="utf-8")
    except (FileNotFoundError, NotADirectoryError):
        text = None
    except OSError as error:
        raise UnreadableLakeError(f"{file} can't be read: {error.strerror}") from None
    found = None if text is None else manifest.parse(text, str(file))
    return sum(day.rows for each in _needed(found, jobs, base, cluster).values() for day in each.days)


def read_lake(spark: SparkSession, root: str, cluster: str, jobs: Sequence[Job], catalogs: Catalogs) -> Reading:
    """Return a reading of the newest moment of a cluster in a lake.

    Args:
        spark: The session.
        root: The directory of the lake.
        cluster: The cluster.
        jobs: The jobs of the reading. Exports that no job needs may be of another moment.
        catalogs: The definitions of the cluster's configs.

    Raises:
        UnreadableLakeError: The lake has nothing of the cluster that these jobs need.
    """
    manifest.check_root(root)
    base = root.rstrip("/")
    found = manifest.read(Files(spark, root), base, cluster)
    datasets = _needed(found, jobs, base, cluster)
    newest = max(datasets.values(), key=lambda each: each.as_of)

    def read(name: str, columns: Sequence[str], low: int | datetime | None) -> DataFrame:
        if name in _EMPTY:
            return spark.createDataFrame([], _EMPTY[name])
        if name not in _EXPORTS:
            raise NotInReadingError(f"There are no {name} in a lake")
        export = _EXPORTS[name]
        schema, _ = EXPORTED[export]
        dataset = datasets.get(export)
        if dataset is None or dataset.as_of != newest.as_of:
            raise NotInReadingError(
                f"The lake's {export} are of another moment than the rest, or are missing: run"
                " `confplane rollups export all`"
            )
        _check(dataset, columns)
        first = None if low is None or isinstance(low, int) else low.date()
        paths = [
            f"{base}/export={export}/cluster={cluster}/day={each.day}/export_id={each.export_id}"
            for each in dataset.days
            if first is None or each.day >= first
        ]
        return spark.read.schema(schema).parquet(*paths) if paths else spark.createDataFrame([], schema)

    options = {**newest.options, "as_of": newest.as_of, "catalogs": catalogs}
    return reading_of(cluster, options, int(newest.position["registration_id"]), FileFrames(read))


def _needed(found: Manifest | None, jobs: Sequence[Job], root: str, cluster: str) -> dict[str, Dataset]:
    """Return the exports that jobs read."""
    needed = {_EXPORT_OF[frame] for job in jobs for frame in job.inputs if frame in _EXPORT_OF}
    datasets = {} if found is None else {name: each for name, each in found.datasets.items() if name in needed}
    if not datasets:
        raise UnreadableLakeError(f"{root} has no exports of {cluster}: run `confplane rollups export all` first")
    return datasets


def _check(dataset: Dataset, columns: Sequence[str]) -> None:
    if dataset.version != manifest.VERSION:
        raise NotInReadingError("Another release made this export. Export it again with --full")
    if dataset.pseudonyms is not None and "principal" in columns:
        raise NotInReadingError("The principals in this lake are pseudonyms, and its results are not the cluster's")
