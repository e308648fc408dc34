"""Readings kept as Parquet, on any file system that Hadoop knows: for a lake, and to run jobs on them again.

A snapshot is a directory with one of Parquet files per frame, and ``reading``, one line of JSON. That file is written
last: a directory without it is no snapshot.
"""

from __future__ import annotations

import json
from contextlib import contextmanager
from datetime import datetime
from typing import TYPE_CHECKING, Final

from pyspark.errors import AnalysisException

from confplane.domain.releases import ON_ZOOKEEPER
from confplane.rollups import schemas
from confplane.rollups.file_frames import FileFrames
from confplane.rollups.reading import NotInReadingError, reading_of

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.types import StructType

    from confplane.rollups.reading import Reading

_FORMAT: Final = 2
_FRAMES: Final[dict[str, StructType]] = {
    "changes": schemas.CHANGES,
    "refused_attempts": schemas.REFUSED_ATTEMPTS,
    "registration_events": schemas.REGISTRATION_EVENTS,
    "reports": schemas.REPORTS,
    "states": schemas.STATES,
    "topics": schemas.TOPICS,
    "znodes": schemas.ZNODES,
}
_ABOUT: Final = "reading"


class NoSnapshotError(ValueError):
    """A path holds no snapshot that can be read; the message says why."""


def save_snapshot(spark: SparkSession, reading: Reading, path: str) -> None:
    """Write all frames of a reading.

    Args:
        spark: The session of the reading.
        reading: A reading of all frames. A reading of the past has no znodes and no states, and leaves them out.
        path: A directory that does not exist, on any file system that Hadoop knows.

    Raises:
        pyspark.errors.AnalysisException: ``path`` exists.
    """
    frames = []
    for name, schema in _FRAMES.items():
        try:
            frame = reading.frame(name, schema.names)
        except NotInReadingError:
            continue
        frame.write.mode("errorifexists").parquet(f"{path}/{name}")
        frames.append(name)
    options = {**reading.options, "as_of": reading.as_of.isoformat()}
    about = {
        "format": _FORMAT, "cluster": reading.cluster, "options": options, "frames": frames,
        "registration_id": reading.position["registration_id"],
    }  # fmt: skip
    spark.createDataFrame([(json.dumps(about),)], "value string").coalesce(1).write.text(f"{path}/{_ABOUT}")


@contextmanager
def read_snapshot(spark: SparkSession, path: str) -> Iterator[Reading]:
    """Read a snapshot of :func:`save_snapshot`.

    Raises:
        NoSnapshotError: The path has no snapshot, an unfinished one, or one of another format.
    """
    try:
        lines = spark.read.text(f"{path}/{_ABOUT}").collect()
    except AnalysisException:
        raise NoSnapshotError(
            f"{path} is no snapshot, or one that was not finished: save it anew, to another path"
        ) from None
    about = json.loads(lines[0]["value"]) if len(lines) == 1 else {}
    if about.get("format") != _FORMAT:
        raise NoSnapshotError(f"{path} has a format that is not known here")
    options = {**about["options"], "as_of": datetime.fromisoformat(about["options"]["as_of"])}
    if "znodes" in about["frames"]:
        # Earlier releases of Confplane noted none, and read all configs by this release's catalog.
        options.setdefault("release", ON_ZOOKEEPER)

    def read(name: str, columns: Sequence[str], low: object) -> DataFrame:
        del columns, low
        if name not in about["frames"]:
            raise NotInReadingError(f"There are no {name} in the snapshot {path}")
        return spark.read.schema(_FRAMES[name]).parquet(f"{path}/{name}")

    yield reading_of(about["cluster"], options, int(about["registration_id"]), FileFrames(read))
