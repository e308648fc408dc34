"""The frames of a reading that was written to files."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Final

from pyspark.sql import functions as F  # noqa: N812 - the name that Spark's own pages use

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from pyspark.sql import Column, DataFrame

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
