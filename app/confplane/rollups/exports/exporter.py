"""Exports one moment of a cluster to a lake: each row once, by day, with all rows becoming visible together.

::

    OUTPUT/export=trail/cluster=payments/day=2026-01-31/export_id=UUID/*.parquet
    OUTPUT/_exports/payments.json            the manifest, replaced last
    OUTPUT/_schemas/export=trail/1.json      the columns by version, as JSON Schema

An export rewrites each changed day completely, in a new directory, so that a day is always one set of sorted files,
regardless of the number of exports with its rows. The manifest then names the new directories instead of the old ones,
which remain for a day for readers that already use them. Files of a killed export are removed by the next export.

Each task writes the rows that it reads: parts are ranges of the sort key, and thus of days of the trail. A day is not
limited to a single task.
"""

from __future__ import annotations

import json
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Final
from uuid import NAMESPACE_URL, uuid5

from pyspark.errors import AnalysisException
from pyspark.sql import functions as F  # noqa: N812 - the name that Spark's own pages use
from uuid_utils.compat import uuid7

from confplane.audit.rollup_runs import RollupRuns
from confplane.rollups import schemas
from confplane.rollups.exports import changed_days, manifest
from confplane.rollups.exports.columns import export_schema
from confplane.rollups.exports.manifest import Dataset, Day, Manifest
from confplane.rollups.sinks.files import Files
from confplane.rollups.sinks.parquet import UNMARKED

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from pydantic import SecretStr
    from pyspark.sql import Column, DataFrame, SparkSession

    from confplane.rollups.exports.columns import ExportAlterations
    from confplane.rollups.reading import Reading
    from confplane.rollups.stores import StoreFrames

NAMES: Final = ("trail", "registrations", "znodes")
"""The exports, by their names on the command line. The recorder's states belong to the trail."""

KEPT: Final = timedelta(days=1)
"""The time for which superseded files are kept: longer than any job that reads them."""
_FILE_ROWS: Final = "2000000"
_KEYS: Final = {
    "trail": ("change_id", "position"),
    "registrations": ("id",),
    "znodes": ("tree", "path"),
    "states": ("tree", "entity_id"),
}


@contextmanager
def exclusive_export(dsn: SecretStr, cluster: str) -> Iterator[None]:
    """Lock the exports of a cluster during a block.

    Args:
        dsn: The connection string of the primary, with the service's role.
        cluster: The cluster.

    Raises:
        ConcurrentChangeError: Another process is exporting the cluster.
        UnavailableError: Postgres is unavailable.
    """
    held = uuid5(NAMESPACE_URL, f"urn:confplane:exports:{cluster}")
    with RollupRuns(dsn.get_secret_value(), cluster).held(held, "An export of this cluster is under way already"):
        yield


class Exporter:
    """Exports a moment, within a block of :func:`exclusive_export`.

    Args:
        spark: The session.
        root: The directory of the lake.
        reading: The moment.
        stores: The frames of the reading.
        altered: The alterations of the trail.

    Raises:
        UnreadableLakeError: Spark could not read from a directory of this name.
    """

    def __init__(
        self, spark: SparkSession, root: str, reading: Reading, stores: StoreFrames, altered: ExportAlterations
    ) -> None:
        manifest.check_root(root)
        self._spark = spark
        self._root = root.rstrip("/")
        self._files = Files(spark, root)
        self._reading = reading
        self._stores = stores
        self._altered = altered
        self._export_id = str(uuid7())
        self._under_way = f"{self._root}/_exports/{reading.cluster}.under_way"

    def export(self, names: Sequence[str], *, full: bool = False) -> Manifest:
        """Export the changes since the last exports, or everything, and return the new manifest.

        Raises:
            UnreadableLakeError: The lake was exported with other alterations or by another release, or its moment is
            later than that of the reading.
        """
        cluster = self._reading.cluster
        before = manifest.read(self._files, self._root, cluster) or Manifest(cluster)
        known = {} if full else before.datasets
        self._check_moment([each for name, each in known.items() if name in names])
        if "trail" in names:
            self._check_alterations(known.get("trail"))
        # In another history of Postgres, rows of the lake may be missing and replaced by later rows.
        history = changed_days.history(self._stores.postgres, cluster)
        earlier = {
            name: each for name, each in known.items() if history.items() <= {**history, **each.position}.items()
        }
        if self._files.exists(self._under_way):
            self._remove_all_but(before)
        self._files.touch(self._under_way)
        made: dict[str, Dataset] = {}
        for name in names:
            if name == "trail":
                made |= {
                    "trail": self._trail(earlier.get("trail")),
                    "states": self._whole("states", schemas.STATES.names),
                }
            elif name == "registrations":
                made["registrations"] = self._registrations(earlier.get(name))
            else:
                made[name] = self._whole(name, schemas.ZNODES.names)
        # By the clock of this process, because a lagging standby has an earlier moment.
        now = datetime.now(UTC)
        after = before.with_exports(made, now, now - KEPT)
        for name in made:
            described = json.dumps(export_schema(name), ensure_ascii=False, indent=2) + "\n"
            self._files.update(f"{self._root}/_schemas/export={name}/{manifest.VERSION}.json", described)
        manifest.write(self._files, self._root, after)
        for each in {*before.superseded} - {*after.superseded}:
            self._files.delete(self._directory(each.name, str(each.day), each.export_id))
        self._files.delete(self._under_way)
        return after

    def _trail(self, before: Dataset | None) -> Dataset:
        days = None
        if before is not None:
            open_days = [each.day for each in before.days if each.open]
            days = changed_days.changed_days(
                self._stores.postgres, self._reading.cluster, before.position, before.as_of, open_days
            )
        if before is None or days is None:
            return self._dataset(self._write("trail", self._reading.frame("changes", schemas.CHANGES.names)))
        written = self._write("trail", self._stores.changes_of(days)) if days else ()
        return self._dataset((*(each for each in before.days if each.day not in days), *written))

    def _registrations(self, before: Dataset | None) -> Dataset:
        columns = schemas.REGISTRATION_EVENTS.names
        last = 0 if before is None else int(before.position["registration_id"])
        # An id above the highest one means that Postgres was restored since then.
        if before is None or last > int(self._reading.position["registration_id"]):
            return self._dataset(self._write("registrations", self._reading.frame("registration_events", columns)))
        new = self._reading.frame("registration_events", columns, last + 1).persist()
        days = {day for (day,) in new.select(_day_of("registrations", self._reading)).distinct().collect()}
        earlier = [
            self._directory("registrations", str(each.day), each.export_id) for each in before.days if each.day in days
        ]
        if earlier:
            new = new.unionByName(self._spark.read.schema(schemas.REGISTRATION_EVENTS).parquet(*earlier))
        written = self._write("registrations", new) if days else ()
        return self._dataset((*(each for each in before.days if each.day not in days), *written))

    def _whole(self, name: str, columns: Sequence[str]) -> Dataset:
        return self._dataset(self._write(name, self._reading.frame(name, columns)))

    def _write(self, name: str, frame: DataFrame) -> tuple[Day, ...]:
        """Write rows, and count them in the files."""
        place = f"{self._root}/export={name}/cluster={self._reading.cluster}"
        rows = self._altered.of(frame) if name == "trail" else frame
        (
            rows.withColumns({"day": _day_of(name, self._reading), "export_id": F.lit(self._export_id)})
            .sortWithinPartitions("day", *_KEYS[name])
            .write.mode("append")
            .options(**UNMARKED, maxRecordsPerFile=_FILE_ROWS)
            .partitionBy("day", "export_id")
            .parquet(place)
        )
        try:
            written = self._spark.read.option("basePath", place).parquet(f"{place}/day=*/export_id={self._export_id}")
        except AnalysisException as error:
            if error.getCondition() == "PATH_NOT_FOUND":
                return ()  # no row, no file
            raise
        is_open = F.col("outcome") == schemas.OPEN if name == "trail" else F.lit(False)  # noqa: FBT003 - a value
        counted = written.groupBy("day").agg(F.count("*"), F.count_if(is_open)).orderBy("day")
        return tuple(Day(day, self._export_id, rows, is_open) for day, rows, is_open in counted.collect())

    def _dataset(self, days: Sequence[Day]) -> Dataset:
        reading = self._reading
        position = changed_days.position(self._stores.postgres, reading.cluster)
        return Dataset(
            self._export_id,
            reading.as_of,
            {name: value for name, value in reading.options.items() if name not in {"as_of", "catalogs"}},
            {**position, "registration_id": reading.position["registration_id"]},
            self._altered.without,
            self._altered.pseudonyms,
            tuple(sorted(days, key=lambda each: each.day)),
        )

    def _check_moment(self, before: Sequence[Dataset]) -> None:
        """Check that the lake does not go back in time: a lagging standby lacks rows that the lake has."""
        newest = max((each.as_of for each in before), default=self._reading.as_of)
        if newest > self._reading.as_of:
            raise manifest.UnreadableLakeError(
                f"The lake is of {newest.isoformat()} already, and this reading of {self._reading.as_of.isoformat()}:"
                " read the primary, or a standby that does not lag, or export all again with --full"
            )

    def _check_alterations(self, before: Dataset | None) -> None:
        if before is None:
            return
        if before.version != manifest.VERSION:
            raise manifest.UnreadableLakeError("Another release exported this trail. Export it again with --full")
        if (before.without, before.pseudonyms) != (self._altered.without, self._altered.pseudonyms):
            raise manifest.UnreadableLakeError(
                "This trail was exported with another --without or another key of --pseudonyms: give the same, or"
                " export it again with --full"
            )

    def _directory(self, name: str, day: str, export_id: str) -> str:
        return f"{self._root}/export={name}/cluster={self._reading.cluster}/day={day}/export_id={export_id}"

    def _remove_all_but(self, named: Manifest) -> None:
        """Remove the files of killed exports: all files that the manifest does not name."""
        kept = {(each.name, str(each.day), each.export_id) for each in named.superseded}
        kept |= {(name, str(each.day), each.export_id) for name, found in named.datasets.items() for each in found.days}
        for name in _KEYS:
            place = f"{self._root}/export={name}/cluster={self._reading.cluster}"
            for day in self._files.names(place):
                if day.startswith("_"):
                    self._files.delete(f"{place}/{day}")
                    continue
                for export in self._files.names(f"{place}/{day}"):
                    if (name, day.removeprefix("day="), export.removeprefix("export_id=")) not in kept:
                        self._files.delete(f"{place}/{day}/{export}")


def _day_of(name: str, reading: Reading) -> Column:
    """Return the UTC day of a row; for complete copies, that of the export."""
    match name:
        case "trail":
            return F.to_date("created_at")
        case "registrations":
            return F.to_date("recorded_at")
    return F.lit(reading.as_of.astimezone(UTC).date())
