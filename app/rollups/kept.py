"""The frames of a reading that was written to files."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Final

from pyspark.sql import functions as F  # noqa: N812 - the name that Spark's own pages use

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from pyspark.sql import DataFrame

_LOW: Final = {"changes": "created_at", "registration_events": "id"}


@dataclass(frozen=True, slots=True)
class KeptFrames:
    """The frames; see :class:`app.rollups.reading.Frames`.

    Attributes:
        read: (frame, columns, low) -> the frame with these columns at least, and with rows below ``low`` maybe. Raises
            ``NotInReadingError`` where there is no such frame.
    """

    read: Callable[[str, Sequence[str], int | datetime | None], DataFrame]

    def frame(self, name: str, columns: Sequence[str], low: int | datetime | None = None) -> DataFrame:
        """Return columns of a frame."""
        needed = columns if low is None else [*dict.fromkeys([*columns, _LOW[name]])]
        frame = self.read(name, needed, low)
        if low is not None:
            frame = frame.where(F.col(_LOW[name]) >= F.lit(low))
        return frame.select(*columns)

    def oldest(self, recorded_since: datetime) -> datetime | None:
        """Return the begin of the oldest change that was recorded, or got its outcome, since then."""
        since = F.lit(recorded_since)
        changes = self.frame("changes", ("created_at", "recorded_at", "concluded_at"))
        recorded = changes.where((F.col("recorded_at") >= since) | (F.col("concluded_at") >= since))
        first = F.unix_micros(F.min("created_at"))
        [(found,)] = recorded.agg(first).collect()
        return None if found is None else _at(found)


def _at(microseconds: int) -> datetime:
    seconds, rest = divmod(microseconds, 1_000_000)
    return datetime.fromtimestamp(seconds, UTC).replace(microsecond=rest)
