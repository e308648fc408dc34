"""A reading of the stores themselves: Postgres at one moment, and the znodes just before it."""

from __future__ import annotations

import contextlib
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any, Final

from py4j.protocol import Py4JError
from pyspark import StorageLevel
from pyspark.sql import functions as F  # noqa: N812 - the name that Spark's own pages use
from pyspark.sql.types import StructType

from confplane.rollups import history, schemas, standby
from confplane.rollups.history import PostgresHistory
from confplane.rollups.origin import Origin
from confplane.rollups.reading import EVENT_COLUMNS, NotInReadingError, reading_of
from confplane.rollups.source_binding import register
from confplane.rollups.sources import trail, znodes
from confplane.rollups.sources.postgres import literal, open_transaction
from confplane.rollups.sources.tables import TABLES, KeyRange, TableScope, first_id_at
from confplane.services.ports.applied import KEPT_S
from confplane.store.scan import Scanner

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence
    from datetime import date

    from pyspark.sql import DataFrame, SparkSession

    from confplane.domain.facets import Tree
    from confplane.rollups.job import Job
    from confplane.rollups.reading import Reading
    from confplane.rollups.sources.postgres import ReadOnlyTransaction
    from confplane.rollups.sources.trail import PostgresSnapshot
    from confplane.services.ports.cluster_states import Layout
    from confplane.store.scan import KafkaRelease

_ZNODES: Final = "znodes"
_OTHER_ZNODES: Final = "other_znodes"
_OTHER_TOPICS: Final = "other_topics"
_USAGE: Final = "usage"
_CURRENT: Final = {"states": "The recorder's states", "topics": "Topics"}
"""Frames of Postgres without a past, and what they are in a message."""
_MZXID: Final = "mzxid"
_VERSION: Final = "version"
_DAY: Final = timedelta(days=1)

Side = Origin | datetime
"""The other side of a comparison: another cluster, or an earlier time of the same one, aware."""


@contextmanager
def read(
    spark: SparkSession,
    origin: Origin,
    *,
    jobs: Sequence[Job] | None = None,
    as_of: datetime | None = None,
    other: Side | None = None,
    usage: DataFrame | None = None,
    most_parts: int | None = None,
) -> Iterator[tuple[Reading, StoreFrames]]:
    """Open a reading of one moment of a cluster, and the frames of its stores; keep both until the context ends.

    The znodes are read once, now, and persisted by Spark. Frames of Postgres are read on request, as of this moment.

    Args:
        spark: From :func:`confplane.rollups.session.session`.
        origin: The stores to read.
        jobs: The jobs of the reading, so that only the znodes and columns that these need are read; None for all
            frames. If none of them needs znodes, ZooKeeper may be unavailable.
        as_of: A moment of the past, aware; None for now. Trail and registrations can be read as of then; znodes and the
            recorder's states can't, and there are no reports.
        other: The other side of the job ``compare``.
        usage: The measurements of the job ``usage``, of the schema ``USAGE``.
        most_parts: The maximum number of parts of a frame of Postgres, each of which needs a connection; None for no
            limit.

    Raises:
        UnavailableError: Postgres or ZooKeeper is unavailable.
        ValueError: ``as_of`` or ``other`` is in the future, or later than the data of a standby.
    """
    with ExitStack() as stack:
        columns = _columns_of_znodes(jobs, _ZNODES)
        if isinstance(other, datetime):
            columns = columns and [*columns, *(name for name in history.ZNODE_COLUMNS if name not in columns)]
        found = None if as_of is not None or not columns else stack.enter_context(_znodes(spark, origin, columns))
        beside: DataFrame | datetime | None = None
        other_kafka = None if found is None else found.kafka
        if isinstance(other, Origin) and (columns := _columns_of_znodes(jobs, _OTHER_ZNODES)):
            read_there = stack.enter_context(_znodes(spark, other, columns, fingerprinted_as=origin.name))
            beside, other_kafka = read_there.frame, read_there.kafka
        # After the znodes were read, so that a standby that keeps up has the trail of all of them.
        known = None if origin.primary is None else standby.wait_for_replay(origin.dsn, origin.primary)
        postgres = stack.enter_context(open_transaction(origin.dsn))
        moment, now = _moment(postgres, origin.name, as_of, known)
        options: dict[str, Any] = {"as_of": now if as_of is None else as_of, **_revisions(postgres, moment.scope)}
        if other is not None:
            options["other"] = other.name if isinstance(other, Origin) else other.astimezone(UTC).isoformat()
            if other_kafka is not None:
                options |= {"other_release": other_kafka.name, "other_on_zookeeper": other_kafka.on_zookeeper}
            options["other_catalogs"] = (other if isinstance(other, Origin) else origin).cluster.catalogs()
        if found is not None:
            ceiling = found.scanner.revision(found.horizon)
            horizon = found.horizon if known is None else min(found.horizon, _newest_revision(postgres, origin.name))
            options |= {"ceiling": ceiling, "floor": found.floor, "horizon": horizon}
            options |= {"catalogs": origin.cluster.catalogs(), "release": found.kafka.name}
            options["on_zookeeper"] = found.kafka.on_zookeeper
            options["newest_version"] = found.newest_version
            options["client_config_trees"] = found.client_config_trees
        source = register(spark, trail.TrailSource, origin=origin.for_tasks())
        if isinstance(other, datetime):
            _check_known(postgres, origin.name, other, now)
            beside = other
        cluster = other.name if isinstance(other, Origin) else None
        frames = StoreFrames(
            spark, source, postgres, moment, found, beside, cluster, usage, _passes(jobs or (), other), most_parts
        )
        yield reading_of(origin.name, options, moment.scope.last_registration, frames), frames


def _check_known(postgres: ReadOnlyTransaction, cluster: str, at: datetime, now: datetime) -> None:
    """Check that the trail has every write since a time."""
    if at > now:
        raise ValueError(f"{at.isoformat()} is to come: it is {now.isoformat()}")
    [(since,)] = postgres.rows(f"SELECT max(since_at) FROM watermarks WHERE cluster = {literal(cluster)}")  # noqa: S608 - a literal, quoted
    if since is None:
        raise ValueError(
            f"The trail of cluster {cluster} has no external changes yet. The recorder adds them after its first"
            " complete round, unless the setting record_external_changes is off"
        )
    if at < since:
        raise ValueError(f"The trail of cluster {cluster} knows all writes since {since.isoformat()}, and not before")


def _columns_of_znodes(jobs: Sequence[Job] | None, frame: str) -> list[str]:
    if jobs is None:
        return schemas.ZNODES.names
    asked = {column for job in jobs for column in job.inputs.get(frame, ())}
    return [name for name in schemas.ZNODES.names if name in asked or (asked and name == _MZXID)]


def _passes(jobs: Sequence[Job], other: Side | None) -> dict[str, list[Sequence[str]]]:
    """Return for each frame of Postgres the columns of each pass over it that the jobs may need."""
    found: dict[str, list[Sequence[str]]] = {
        name: [job.inputs[name] for job in jobs if name in job.inputs] for name in TABLES
    }
    if any("registrations" in job.inputs for job in jobs):
        found["registration_events"].append(EVENT_COLUMNS)
    if isinstance(other, datetime) and any(_OTHER_ZNODES in job.inputs for job in jobs):
        found["changes"].append(history.CHANGE_COLUMNS)
    return found


@dataclass(frozen=True, slots=True)
class _ZnodeScan:
    """The znodes as read."""

    scanner: Scanner
    frame: DataFrame
    kafka: KafkaRelease
    client_config_trees: Sequence[Tree]
    floor: int
    horizon: int
    newest_version: int | None


@contextmanager
def _znodes(
    spark: SparkSession, origin: Origin, columns: Sequence[str], *, fingerprinted_as: str | None = None
) -> Iterator[_ZnodeScan]:
    scanner = Scanner.of(origin.name, origin.cluster)
    floor = scanner.revision()
    kafka, layout = scanner.release(floor), scanner.layout(floor)
    parallelism = spark.sparkContext.defaultParallelism
    frame = (
        spark.read.format(register(spark, znodes.ZnodesSource, origin=origin.for_tasks()))
        .options(**znodes.znodes_options(floor, parallelism, kafka.name, fingerprinted_as or origin.name))
        .schema(StructType([schemas.ZNODES[name] for name in columns]))
        .load()
        .persist(StorageLevel.MEMORY_AND_DISK)
    )
    try:
        # Reads all znodes. Persisted rows may be lost with a worker, and are read again in that case.
        version = F.max(_VERSION) if _VERSION in columns else F.lit(None)
        [(newest, newest_version)] = frame.agg(F.max(_MZXID), version).collect()
        trees = _trees(layout, scanner.layout(newest or floor))
        # Intents are durable before their transactions, so all commits so far have their intents in the snapshot below.
        yield _ZnodeScan(scanner, frame, kafka, trees, floor, max(scanner.revision(floor), newest or 0), newest_version)
    finally:
        with contextlib.suppress(Py4JError):  # Java may have ended, and the rows with it
            frame.unpersist()


def _trees(before: Layout, after: Layout) -> list[Tree]:
    """Return the trees with client configs in use, by the layouts before and after the znodes were read."""
    is_settled = before == after and after.source is None
    return [after.tree] if is_settled else [after.tree, after.tree.other]


def _moment(
    postgres: ReadOnlyTransaction, cluster: str, as_of: datetime | None, known: datetime | None
) -> tuple[PostgresSnapshot, datetime]:
    """Return the snapshot of a transaction, and its time: by Postgres's clock, or up to which it is complete."""
    [(snapshot, now)] = postgres.rows("SELECT pg_export_snapshot(), clock_timestamp()")
    if known is not None:
        now = min(now, known)
        if as_of is not None and as_of > now:
            raise ValueError(f"The standby has nothing later than {now.isoformat()}")
    if as_of is not None and as_of > now:
        raise ValueError(f"{as_of.isoformat()} is to come: it is {now.isoformat()}")
    events = f"FROM registrations WHERE cluster = {literal(cluster)}"
    # Ids are in the order of commits, so that the next run, which continues from here, misses nothing.
    query = f"SELECT coalesce(max(id), 0) {events}"
    if as_of is not None:
        query = f"SELECT coalesce((SELECT min(id) - 1 {events} AND recorded_at > {literal(as_of)}), ({query}))"
    [(last,)] = postgres.rows(query)
    now = now.astimezone(UTC)
    return trail.PostgresSnapshot(snapshot, TableScope(cluster, as_of, last, now - timedelta(seconds=KEPT_S))), now


def _revisions(postgres: ReadOnlyTransaction, scope: TableScope) -> dict[str, int | None]:
    """Return the first revision of the trail, the recorder's watermark, and the revision since which it is complete."""
    cluster = literal(scope.cluster)
    until = "" if scope.as_of is None else f" AND recorded_at <= {literal(scope.as_of)}"
    [(begin,)] = postgres.rows(f"SELECT min(revision) FROM outcomes WHERE cluster = {cluster} AND committed{until}")  # noqa: S608 - literals, quoted
    found = postgres.rows(f"SELECT revision, since FROM watermarks WHERE cluster = {cluster} AND complete")  # noqa: S608 - a literal, quoted
    watermark, since = found[0] if found and scope.as_of is None else (None, None)
    return {"begin": begin, "recorded_since": since, "watermark": watermark}


def _newest_revision(postgres: ReadOnlyTransaction, cluster: str) -> int:
    """Return the highest revision whose outcome, or finding of the recorder, is in a snapshot; 0 for none.

    A change's outcome is committed after the intents of all changes before it in ZooKeeper, and the recorder's
    watermark after all changes that it covers. So every commit up to this revision has its intent in the snapshot.
    """
    name = literal(cluster)
    [(newest,)] = postgres.rows(
        f"SELECT greatest((SELECT max(revision) FROM outcomes WHERE cluster = {name} AND committed),"  # noqa: S608 - a literal, quoted
        f" (SELECT revision FROM watermarks WHERE cluster = {name} AND complete))"
    )
    return int(newest or 0)


@dataclass(frozen=True, slots=True)
class StoreFrames:
    """The frames of the stores; see :class:`confplane.rollups.reading.Frames`."""

    _spark: SparkSession
    _source: str
    postgres: ReadOnlyTransaction
    """A transaction at the moment."""
    _moment: PostgresSnapshot
    _znodes: _ZnodeScan | None
    _other: DataFrame | datetime | None
    _other_cluster: str | None
    _usage: DataFrame | None
    _passes: Mapping[str, list[Sequence[str]]]
    """Frame of Postgres -> the columns of each remaining pass. If several need all rows, they share one pass, whose
    rows Spark persists, on disk if memory is short."""
    _most_parts: int | None
    _kept: dict[str, DataFrame] = field(default_factory=dict)
    _bounds: dict[tuple[str, str | None], list[str]] = field(default_factory=dict)
    """Frame and least key -> the keys at which its parts begin."""

    def frame(self, name: str, columns: Sequence[str], low: int | datetime | None = None) -> DataFrame:
        """Return columns of a frame."""
        if name == _ZNODES:
            return self._of_znodes(columns)
        if name in {_OTHER_ZNODES, _OTHER_TOPICS}:
            return self._of_the_other_side(name).select(*columns)
        if name == _USAGE:
            if self._usage is None:
                raise NotInReadingError("There are no measurements: --usage names a file of them")
            return self._usage.select(*columns)
        if name in _CURRENT and self._moment.scope.as_of is not None:
            raise NotInReadingError(f"{_CURRENT[name]} are known as they are now, and not of any time before")
        if name == "reports" and self._moment.scope.as_of is not None:
            return self._spark.createDataFrame([], schemas.REPORTS).select(*columns)
        passes = self._passes[name]
        if columns in passes:
            passes.remove(columns)
        if low is None and name not in self._kept and passes:
            wanted = {*columns, *(column for each in passes for column in each)}
            shared = [column for column in TABLES[name].schema.names if column in wanted]
            self._kept[name] = self._of_postgres(name, shared).persist(StorageLevel.MEMORY_AND_DISK)
        if low is None and name in self._kept and {*columns} <= {*self._kept[name].columns}:
            kept = self._kept[name]
            # Unchanged if possible, so that a job that persists it too does not keep a second copy.
            return kept if kept.columns == list(columns) else kept.select(*columns)
        return self._of_postgres(name, columns, low)

    def _of_postgres(self, name: str, columns: Sequence[str], low: int | datetime | None = None) -> DataFrame:
        key = first_id_at(low) if isinstance(low, datetime) else None if low is None else str(low)
        return self._ranges(name, columns, self._bounds_of(name, key), KeyRange(key))

    def _other_topics(self) -> DataFrame:
        """Return the topics of another cluster; none of an earlier time, at which they are not known."""
        if self._other_cluster is None:
            return self._spark.createDataFrame([], schemas.TOPICS)
        moment = replace(self._moment, scope=replace(self._moment.scope, cluster=self._other_cluster))
        pages = trail.TablePages(self.postgres, TABLES["topics"], moment.scope)
        bounds = trail.bounds(pages, self._spark.sparkContext.defaultParallelism)
        options = trail.trail_options("topics", moment, bounds, KeyRange(), most_parts=self._most_parts)
        return self._load("topics", schemas.TOPICS.names, options)

    def _bounds_of(self, name: str, low: str | None) -> list[str]:
        if (name, low) not in self._bounds:
            parallelism = self._spark.sparkContext.defaultParallelism
            pages = trail.TablePages(self.postgres, TABLES[name], self._moment.scope)
            self._bounds[name, low] = trail.bounds(pages, parallelism, low)
        return self._bounds[name, low]

    def changes_of(self, days: Iterable[date]) -> DataFrame:
        """Return the changes whose ``created_at`` is on some days, UTC.

        Each day has at least one part, and a large day has several parts of even size. For the newest days up to a gap,
        which have many new rows, the bounds come from a sample of the table. For the days before the gap, they come
        from the index.
        """
        begins = [datetime(day.year, day.month, day.day, tzinfo=UTC) for day in sorted(days)]
        ranges = [KeyRange(first_id_at(begin), first_id_at(begin + _DAY)) for begin in begins]
        newest = len(begins) - 1
        while newest and begins[newest] - begins[newest - 1] == _DAY:
            newest -= 1
        bounds = [key for each in ranges[:newest] for key in trail.index_bounds(self.postgres, TABLES["changes"], each)]
        bounds += self._bounds_of("changes", ranges[newest].low)
        return self._ranges("changes", schemas.CHANGES.names, bounds, *ranges)

    def _ranges(self, name: str, columns: Sequence[str], begins: Sequence[str], *ranges: KeyRange) -> DataFrame:
        options = trail.trail_options(name, self._moment, begins, *ranges, most_parts=self._most_parts)
        return self._load(name, columns, options)

    def _load(self, name: str, columns: Sequence[str], options: Mapping[str, Any]) -> DataFrame:
        schema = StructType([TABLES[name].schema[column] for column in columns])
        return self._spark.read.format(self._source).options(**options).schema(schema).load()

    def _of_znodes(self, columns: Sequence[str]) -> DataFrame:
        if self._moment.scope.as_of is not None:
            raise NotInReadingError("Znodes are known as they are now, and not of any time before")
        if self._znodes is None:
            raise NotInReadingError("Znodes were not read: none of the jobs that were named needs them")
        return self._znodes.frame.select(*columns)

    def _of_the_other_side(self, name: str) -> DataFrame:
        if self._other is None:
            raise NotInReadingError("There is nothing to compare with: --with names a cluster or a time")
        if name == _OTHER_TOPICS:
            return self._other_topics()
        if isinstance(self._other, datetime):
            changes = self.frame("changes", history.CHANGE_COLUMNS)
            return history.znodes_at(changes, self._of_znodes(history.ZNODE_COLUMNS), self._other)
        return self._other

    @property
    def history(self) -> PostgresHistory:
        """The changes' history, up to the moment."""
        return PostgresHistory(self.postgres, self._moment.scope)
