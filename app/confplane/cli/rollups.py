"""``confplane rollups run`` and ``export``, on Spark."""

from __future__ import annotations

from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import partial
from typing import TYPE_CHECKING, Any, Final

import typer
from uuid_utils.compat import uuid7

from confplane.audit.rollup_runs import RollupRuns
from confplane.cli import callers
from confplane.cli.output import emit, is_json, print_error, print_table, say
from confplane.cli.rollup_options import check_past
from confplane.cli.spark_session import show_progress, spark_session
from confplane.cli.times import datetime_of
from confplane.devstack.errors import DevStackError
from confplane.domain.errors import ConfplaneError, NotFoundError, UnavailableError
from confplane.rollups.errors import SparkFailedError, spark_errors
from confplane.rollups.exports import manifest
from confplane.rollups.exports.columns import LEAST_KEY_BYTES, REMOVABLE, ExportAlterations
from confplane.rollups.exports.exporter import Exporter, exclusive_export
from confplane.rollups.exports.reading import count_rows, read_lake
from confplane.rollups.java_settings import ROWS, is_small
from confplane.rollups.jobs import JOBS, integrity
from confplane.rollups.origin import Origin
from confplane.rollups.reading import NotInReadingError
from confplane.rollups.runner import RunOptions, runner
from confplane.rollups.session import stages_of
from confplane.rollups.sinks.files import Files, check_writable
from confplane.rollups.sources.tables import TABLES
from confplane.rollups.sources.usage import Measurements, read_usage
from confplane.rollups.standby import standby_dsn
from confplane.rollups.stores import read

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence
    from datetime import datetime
    from pathlib import Path
    from uuid import UUID

    from confplane.domain.teams import Teams
    from confplane.rollups.exports.manifest import Manifest
    from confplane.rollups.job import Job
    from confplane.rollups.reading import Reading
    from confplane.rollups.runner import FinishedRun, Runner
    from confplane.rollups.session import StageProgress
    from confplane.rollups.stores import Side
    from confplane.settings import Settings


_MISMATCHED: Final = 4
_OF_POSTGRES: Final = frozenset({*TABLES, "registrations", "other_topics", "other_znodes"})
"""Frames that are, or may be, read from Postgres."""


@dataclass(frozen=True, slots=True)
class RollupRunOptions:
    """The options of the command: the rollups to run, and their run options."""

    names: Sequence[str]
    master: str | None = None
    since: datetime | None = None
    full: bool = False
    as_of: datetime | None = None
    output: str | None = None
    source: str | None = None
    """The lake to read instead of the stores."""
    read_dsn: str | None = None
    """The standby to read in place of Postgres."""
    max_connections: int | None = None
    """The most connections to Postgres at a time, six or more."""
    capacity: Mapping[str, float] = field(default_factory=dict)
    teams: Teams | None = None
    other: str | None = None
    """A cluster of the settings, or a time (ISO 8601), to compare the cluster with."""
    usage: str | None = None
    """The path of measurements, or of queries for Prometheus."""
    fails_on_mismatch: bool = False
    """Return a separate exit code if ``integrity`` finds mismatches that are not pending."""
    archives_classes: bool = True
    """Keep and use a class-data archive of Java if the cluster is small."""


@dataclass(frozen=True, slots=True)
class _JobResult:
    """The result of one job: a finished run, or the reason why it failed."""

    name: str
    finished: FinishedRun | None = None
    why_not: str = ""
    is_refused: bool = False
    """True if the options ask for something that the job does not support. This is not a failure."""


def run(settings: Settings, cluster: str, options: RollupRunOptions) -> int:
    """Run the jobs, print their results, and return the exit code."""
    ended: list[_JobResult] = []
    mismatches = 0
    try:
        primary = settings.postgres.dsn
        source, jobs = origin(settings, cluster, options.read_dsn), [JOBS[name] for name in options.names]
        other = None if options.other is None else _side(settings, options.other, cluster)
        # Checked before Java is started: no job can run without it.
        RollupRuns(primary.get_secret_value(), cluster).current(options.names[0])
        if options.output is not None:
            check_writable(options.output)
        measured = None if options.usage is None else Measurements.of(options.usage)
        small = _is_small(source, jobs, options) and (measured is None or measured.is_small)
        with spark_session(settings, options.master, small=small, archives_classes=options.archives_classes) as spark:
            with spark_errors():
                usage = None if measured is None else read_usage(spark, measured)
            with (
                spark_errors(),
                _reading(spark, source, jobs, options, other=other, usage=usage) as reading,
                runner(
                    spark, reading, primary, most_parts=most_parts(options.max_connections, kinds_read(jobs))
                ) as made,
            ):
                ended = _run_all(
                    made, options, partial(stages_of, spark), folds=not small, traceback=settings.log_level == "debug"
                )
            _show(ended)
            mismatches = _mismatches(settings, cluster, ended) if options.fails_on_mismatch else 0
    except (NotFoundError, ValueError) as error:
        return _not_run(error, callers.INVALID)
    except (ConfplaneError, DevStackError) as error:
        if not ended:
            return _not_run(error, callers.FAILED)
        return print_error(f"The mismatches were not counted: {error}", callers.FAILED)
    except (SparkFailedError, RuntimeError) as error:
        if settings.log_level == "debug":
            raise
        return _not_run(reason(error), callers.FAILED)
    if all(each.finished for each in ended):
        return _MISMATCHED if mismatches else callers.DONE
    return callers.INVALID if len(ended) == 1 and ended[0].is_refused else callers.FAILED


def _is_small(source: Origin, jobs: Sequence[Job], options: RollupRunOptions) -> bool:
    """Return True if the jobs read little.

    Raises:
        UnreadableLakeError: The lake has nothing of the cluster that the jobs need.
        UnavailableError: Postgres or ZooKeeper is unavailable.
    """
    if options.source is None:
        reads_znodes = options.as_of is None and any("znodes" in job.inputs for job in jobs)
        return is_small(source, reads_znodes=reads_znodes)
    rows = count_rows(options.source, source.name, jobs)
    return rows is not None and rows <= ROWS


def _mismatches(settings: Settings, cluster: str, ended: Sequence[_JobResult]) -> int:
    """Print and return the number of mismatches that integrity found, except pending ones."""
    runs = RollupRuns(settings.postgres.dsn.get_secret_value(), cluster)
    found = (each.finished for each in ended if each.name == integrity.JOB.name)
    mismatches = sum(runs.count(each.run.id, {"pending": False}) for each in found if each is not None)
    if mismatches:
        say(
            f"integrity: {callers.pluralize(mismatches, 'mismatch', 'mismatches')} that will not resolve by themselves;"
            f" `confplane rollups show integrity --cluster {cluster} --where pending=false` lists all",
            err=True,
        )
    return mismatches


def _side(settings: Settings, given: str, cluster: str) -> Side:
    """Read the other side of a comparison: a cluster of the settings, or a time with its offset.

    Raises:
        ValueError: The text is neither, or names the cluster itself.
    """
    if given in settings.clusters and given != cluster:
        return Origin.of(settings, given)
    try:
        found = datetime_of(given, "--with")
    except typer.BadParameter as error:
        others = ", ".join(sorted(settings.clusters.keys() - {cluster})) or "none"
        raise ValueError(f"--with: {error.message} Or name another cluster of the settings ({others}).") from None
    return check_past(found, "--with")


@contextmanager
def _reading(
    spark: Any,
    source: Origin,
    jobs: Sequence[Job],
    options: RollupRunOptions,
    *,
    other: Side | None,
    usage: Any,
) -> Iterator[Reading]:
    if options.source is not None:
        yield read_lake(spark, options.source, source.name, jobs, source.cluster.catalogs())
        return
    with read(
        spark,
        source,
        jobs=jobs,
        as_of=options.as_of,
        other=other,
        usage=usage,
        most_parts=most_parts(options.max_connections, kinds_read(jobs)),
    ) as (reading, _):
        yield reading


def origin(settings: Settings, cluster: str, read_dsn: str | None) -> Origin:
    """Return the stores that a command reads: those of the settings, or a standby instead of their Postgres.

    Raises:
        NotFoundError: The settings have no such cluster.
        ValueError: As of :func:`standby_dsn`.
    """
    read_from = None if read_dsn is None else standby_dsn(read_dsn, settings.postgres.dsn)
    return Origin.of(settings, cluster, read=read_from)


def most_parts(max_connections: int | None, kinds: int) -> int | None:
    """Return the maximum number of tasks that may read or write rows of one kind concurrently; None for no limit.

    Args:
        max_connections: The maximum number of connections to Postgres. A command needs three in addition to those of
            its tasks: for the reading, for the lock, and a short one.
        kinds: The number of kinds of rows that tasks read concurrently.
    """
    return None if max_connections is None else (max_connections - 3) // kinds


def kinds_read(jobs: Sequence[Job]) -> int:
    """Return how many kinds of Postgres rows the tasks of one job read concurrently: frames, and the previous run."""
    return max(len(_OF_POSTGRES & {*job.inputs}) + (job.incremental or job.fold is not None) for job in jobs) or 1


def _run_all(
    made: Runner,
    options: RollupRunOptions,
    watch: Callable[[UUID], Mapping[int, StageProgress]],
    *,
    folds: bool,
    traceback: bool,
) -> list[_JobResult]:
    run_options = RunOptions(
        callers.caller("").principal,
        full=options.full,
        since=options.since,
        capacity=options.capacity,
        teams=options.teams,
        output=options.output,
        folds=folds,
    )
    ended = []
    for number, name in enumerate(options.names, 1):
        run_id = uuid7()
        with show_progress(partial(watch, run_id), f"{name} ({number} of {len(options.names)})"):
            try:
                ended.append(_JobResult(name, made.run(JOBS[name], run_options, run_id=run_id)))
            except NotInReadingError as error:
                ended.append(_JobResult(name, why_not=str(error), is_refused=True))
            except UnavailableError as error:
                # Every other job would fail in the same way.
                ended += [_JobResult(each, why_not=reason(error)) for each in options.names[number - 1 :]]
                break
            except (ConfplaneError, SparkFailedError) as error:
                if traceback:
                    raise
                ended.append(_JobResult(name, why_not=reason(error)))
    return ended


def _show(ended: Sequence[_JobResult]) -> None:
    """Print a row for each job, and on standard error the reasons of jobs without a run."""
    rows = [
        (each.name, "-", "-", "-", "not run" if each.is_refused else "failed")
        if (found := each.finished) is None
        else (each.name, f"{found.run.rows:,}", f"{found.seconds:.1f}", str(found.run.id), _note(found))
        for each in ended
    ]
    if is_json():
        for each in ended:
            emit(**_result_view(each))
        return
    print_table(("ROLLUP", "ROWS", "SECONDS", "RUN", ""), rows, right=("ROWS", "SECONDS"))
    for each in ended:
        if each.finished is not None and each.finished.path is not None:
            say(f"{each.name}: {each.finished.path}")
    for each in ended:
        if each.finished is None:
            say(f"{each.name}: {each.why_not}", err=True)


def _result_view(each: _JobResult) -> dict[str, object]:
    found = each.finished
    if found is None:
        return {"rollup": each.name, "state": "not-run" if each.is_refused else "failed", "error": each.why_not}
    run = {"id": str(found.run.id), "rows": found.run.rows, "seconds": round(found.seconds, 1), "path": found.path}
    return {"rollup": each.name, "state": "complete", "isCurrent": found.is_current, **run}


def _note(found: FinishedRun) -> str:
    notes = []
    if not found.is_current:
        notes.append("not current: another run is of a later time")
    if found.run.folded is not None:
        notes.append(f"built on the fold of the run before, up to revision {found.run.folded}")
    elif found.run.previous is not None:
        notes.append("built on the run before")
    return "; ".join(notes)


def reason(error: BaseException) -> str:
    """Return the reason for a failure in readable form."""
    if isinstance(error, ConfplaneError):
        return str(error)
    return f"{error} (CONFPLANE_LOG_LEVEL=debug shows more)"


def _not_run(why: object, code: int) -> int:
    return print_error(f"Not run: {why}", code)


@dataclass(frozen=True, slots=True)
class RollupExportOptions:
    """The options of the command."""

    names: Sequence[str]
    output: str
    alterations: ExportAlterations
    master: str | None = None
    full: bool = False
    read_dsn: str | None = None
    """The standby to read instead of Postgres."""
    max_connections: int | None = None
    """Maximum number of concurrent connections to Postgres, six or more."""
    archives_classes: bool = True
    """Keep and use a class-data archive of Java if the cluster is small."""


def read_alterations(without: str, key: Path | None) -> ExportAlterations:
    """Return the alterations that the options specify.

    Raises:
        typer.BadParameter: A column can't be omitted, or the key is too short.
    """
    columns = sorted({each.strip() for each in without.split(",")} - {""})
    unknown = [each for each in columns if each not in REMOVABLE]
    if unknown:
        raise typer.BadParameter(
            f"{unknown[0]!r} can't be left out. Available: {', '.join(REMOVABLE)}.", param_hint="--without"
        )
    if key is None:
        return ExportAlterations(tuple(columns))
    try:
        found = key.read_bytes().strip()
    except OSError as error:
        raise typer.BadParameter(f"{key}: {error.strerror}", param_hint="--pseudonyms") from None
    if len(found) < LEAST_KEY_BYTES:
        raise typer.BadParameter(f"{key}: the key has fewer than {LEAST_KEY_BYTES} bytes", param_hint="--pseudonyms")
    return ExportAlterations(tuple(columns), found)


def export(settings: Settings, cluster: str, options: RollupExportOptions) -> int:
    """Export, print what was exported, and return the exit code."""
    try:
        source = origin(settings, cluster, options.read_dsn)
        manifest.check_root(options.output)
        check_writable(options.output)
        # Not started only to learn that another export is under way.
        with exclusive_export(settings.postgres.dsn, cluster):
            pass
        reads_znodes = "znodes" in options.names
        small = is_small(source, reads_znodes=reads_znodes)
        with spark_session(settings, options.master, small=small, archives_classes=options.archives_classes) as spark:
            # A file system that does not answer does not keep others from exporting.
            with spark_errors():
                manifest.read(Files(spark, options.output), options.output.rstrip("/"), cluster)
            # Znodes are read together with the moment, or not at all.
            jobs: Sequence[Job] | None = None if reads_znodes else []
            parts = most_parts(options.max_connections, 1)
            with (
                exclusive_export(settings.postgres.dsn, cluster),
                spark_errors(),
                read(spark, source, jobs=jobs, most_parts=parts) as (reading, stores),
            ):
                exporter = Exporter(spark, options.output, reading, stores, options.alterations)
                done = exporter.export(options.names, full=options.full)
    except (NotFoundError, ValueError) as error:
        return _not_exported(str(error), callers.INVALID)
    except (ConfplaneError, DevStackError, SparkFailedError, RuntimeError) as error:
        if settings.log_level == "debug":
            raise
        return _not_exported(reason(error), callers.FAILED)
    _show_exports(done, options.names)
    return callers.DONE


def _show_exports(done: Manifest, names: Sequence[str]) -> None:
    for name in names:
        found = done.datasets[name]
        written = [each for each in found.days if each.export_id == found.export_id]
        rows, new = sum(each.rows for each in found.days), sum(each.rows for each in written)
        emit(name=name, rows=rows, written=new, days=len(found.days), daysWritten=len(written))
        say(f"{name}: {rows:,} rows, {new:,} of them written now, in {len(written)} of {len(found.days)} days")


def _not_exported(why: str, code: int) -> int:
    return print_error(f"Not exported: {why}", code)
