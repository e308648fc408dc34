"""Runs jobs: reads their frames, publishes their rows, and cleans up after failed runs."""

from __future__ import annotations

import contextlib
import time
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import datetime
from typing import TYPE_CHECKING, Any, Final

from py4j.protocol import Py4JError
from pyspark import StorageLevel
from uuid_utils.compat import uuid7

from confplane.audit.rollup_parts import fold_id
from confplane.audit.rollup_runs import RollupRuns
from confplane.domain.errors import ConcurrentChangeError, ConfplaneError
from confplane.rollups.errors import spark_errors
from confplane.rollups.job import CarriedFold
from confplane.rollups.sinks import parquet
from confplane.rollups.sinks.postgres import RunStore, sort_rows
from confplane.services.ports.rollups import RollupRun, RunState

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping
    from uuid import UUID

    from pydantic import SecretStr
    from pyspark.sql import DataFrame, SparkSession

    from confplane.audit.rollup_parts import RunAttempt
    from confplane.domain.teams import Teams
    from confplane.rollups.job import Fold, Job
    from confplane.rollups.reading import Reading

_VERSION: Final = "version"
"""The member of a position with the version of the columns, because those of the previous run may differ."""
_FOLD: Final = "fold"
"""The member of a position with the version and the revision of the run's fold."""


@dataclass(frozen=True, slots=True)
class RunOptions:
    """The options of a run.

    Attributes:
        principal: The caller.
        full: Start from the beginning, even if a job could continue from its current run.
        since: A UTC midnight: an incremental job counts again from this time on, at least.
        capacity: Quota key -> the capacity of one broker.
        teams: The teams of principals; None for none.
        output: The path for additional Parquet files, on any file system of Hadoop; None for no files.
        folds: True if a job that has a fold builds on that of the previous run, and passes one to the next. Not worth
            its cost if there are few changes.
    """

    principal: str
    full: bool = False
    since: datetime | None = None
    capacity: Mapping[str, float] = field(default_factory=dict)
    teams: Teams | None = None
    output: str | None = None
    folds: bool = True


@dataclass(frozen=True, slots=True)
class FinishedRun:
    """A run that is complete."""

    run: RollupRun
    seconds: float
    is_current: bool
    """False if a run of a later moment is already complete."""
    path: str | None
    """The path of its Parquet files."""


class Runner:
    """Runs the jobs of one reading, one after the other.

    Args:
        spark: From :func:`confplane.rollups.session.session`.
        reading: The jobs' reading.
        store: The store of their rows.
        runs: The runs of the cluster, in the same Postgres.
        most_parts: The maximum number of tasks that write rows concurrently; None for no limit.
    """

    def __init__(
        self,
        spark: SparkSession,
        reading: Reading,
        store: RunStore,
        runs: RollupRuns,
        *,
        most_parts: int | None = None,
    ) -> None:
        self._spark = spark
        self._reading = reading
        self._store = store
        self._runs = runs
        self._most_parts = most_parts

    def run(self, job: Job, options: RunOptions, *, run_id: UUID | None = None) -> FinishedRun:
        """Run a job, and return once its rows are published.

        Args:
            job: The job.
            options: The options of the run.
            run_id: The id of a run to make or to repeat. Nothing is done if it is complete. None for a new run.

        Raises:
            NotInReadingError: The reading lacks a part that the job needs.
            UnavailableError: A store is unavailable.
            ConcurrentChangeError: Another process is making this run, or gave it up.
            SparkFailedError: A task failed, or the cluster is unavailable.
        """
        with spark_errors():
            return self._run(job, options, run_id)

    def _run(self, job: Job, options: RunOptions, run_id: UUID | None) -> FinishedRun:
        began = time.monotonic()
        run_id = run_id or uuid7()
        output = None if options.output is None else self._output(job, options.output)
        self._runs.sweep(job.name)
        if output is not None:
            self._settle(output)
        folds = job.fold is not None and options.folds
        before = self._base(job) if (job.incremental or folds) and not options.full else None
        frames, since = self._reading.frames(job, None if before is None else _from(before.position, options.since))
        if since is None:
            before = None
        given = {**frames, **self._job_options(job, options)}
        position = {**self._reading.position, _VERSION: job.rollup.version}
        if job.fold is not None:
            given |= self._fold_options(job.fold, before, since, folds=folds)
            position |= _fold_position(job.fold, given["carried"], given["settled"])
        if job.incremental:
            given |= {"since": since, "previous": None if before is None else self._rows_of(job, before)}
        with self._runs.held(run_id):
            begun = self._runs.begin(
                run_id,
                job.name,
                as_of=self._reading.as_of,
                position=position,
                previous=None if before is None else before.id,
                principal=options.principal,
            )
            if isinstance(begun, RollupRun):
                return self._finished(begun, began, None)
            try:
                rows, fold = job.evaluate(**given)
                self._write(job, rows, run_id, begun, output)
                if fold is not None and job.fold is not None:
                    self._store.hand_on(fold, job.fold, run_id=run_id, attempt=begun)
                done = self._runs.complete(run_id)
            except BaseException as error:
                # The next run repeats an update or removal that failed here.
                with contextlib.suppress(ConfplaneError, Py4JError):
                    # The response to the completion may be lost, so a complete run keeps its files.
                    if self._runs.fail(run_id, reason(error)) and output is not None:
                        output.drop(run_id)
                raise
            path = None if output is None else output.publish(done)
        self._runs.purge(job.name)
        return self._finished(done, began, path)

    def _job_options(self, job: Job, options: RunOptions) -> dict[str, Any]:
        known = {**self._reading.options, "capacity": options.capacity, "teams": options.teams}
        return {name: known[name] for name in job.options}

    def _base(self, job: Job) -> RollupRun | None:
        """Return the run to build on: the current one, unless an earlier release made it, with other columns."""
        found = self._runs.current(job.name)
        if found is None or found.position.get(_VERSION, 1) != job.rollup.version:
            return None
        fold = found.position.get(_FOLD)
        is_alike = job.fold is None or (fold is not None and fold[_VERSION] == job.fold.version)
        return found if is_alike else None

    def _rows_of(self, job: Job, run: RollupRun) -> DataFrame:
        return self._store.rows(job.output, run_id=run.id, parts=self._runs.parts(run.id))

    def _fold_options(
        self, fold: Fold, before: RollupRun | None, since: datetime | None, *, folds: bool
    ) -> dict[str, Any]:
        """Return the fold to build on, and the revision of the fold for the next run; each may be None."""
        settled = self._reading.settled() if folds else None
        if before is None or since is None:
            return {"carried": None, "settled": settled}
        revision, lies_under = int(before.position[_FOLD]["revision"]), fold_id(before.id)
        rows = self._store.rows(fold.schema, run_id=lies_under, parts=self._runs.parts(lies_under))
        # The fold of the previous run has no states before its revision.
        return {"carried": CarriedFold(rows, revision, since), "settled": max(settled or revision, revision)}

    def _output(self, job: Job, root: str) -> parquet.Output:
        return parquet.Output(self._spark, root, self._reading.cluster, job.name)

    def _settle(self, output: parquet.Output) -> None:
        """Move the files of complete runs into place, and remove those of failed runs whose processes have ended.

        A run that this Postgres does not know may be running on another one that shares the lake.
        """
        for run_id in output.aside():
            with contextlib.suppress(ConcurrentChangeError), self._runs.held(run_id):
                found = self._runs.find(run_id)
                if found is not None and found.state is RunState.COMPLETE:
                    output.publish(found)
                elif output.is_forgotten(run_id) if found is None else found.state is RunState.FAILED:
                    output.drop(run_id)

    def _write(
        self, job: Job, frame: DataFrame, run_id: UUID, attempt: RunAttempt, output: parquet.Output | None
    ) -> None:
        """Write the rows to all their stores; Parquet first, so that all files are there once the run is complete."""
        # The job group identifies Spark's work for this run, to follow or cancel it.
        self._spark.sparkContext.setJobGroup(str(run_id), f"rollup {job.name}", interruptOnCancel=True)
        rows = sort_rows(frame, job, self._most_parts)
        if output is not None:
            rows = rows.persist(StorageLevel.MEMORY_AND_DISK)
        try:
            if output is not None:
                output.write(rows, run_id, self._reading.as_of)
            self._store.publish(rows, job, run_id=run_id, attempt=attempt)
        finally:
            if output is not None:
                rows.unpersist()

    def _finished(self, run: RollupRun, began: float, path: str | None) -> FinishedRun:
        current = self._runs.current(run.job)
        is_current = current is not None and current.id == run.id
        return FinishedRun(run, time.monotonic() - began, is_current, path)


@contextmanager
def runner(spark: SparkSession, reading: Reading, dsn: SecretStr, *, most_parts: int | None = None) -> Iterator[Runner]:
    """Return the runner of a reading's jobs, for the duration of a block.

    Args:
        spark: From :func:`confplane.rollups.session.session`.
        reading: The jobs' reading.
        dsn: The Postgres of the rows, with the service's role.
        most_parts: The maximum number of tasks that read or write the rows of a run concurrently; None for no limit.

    Raises:
        ValueError: ``dsn`` is not a connection string.
    """
    runs = RollupRuns(dsn.get_secret_value(), reading.cluster)
    try:
        yield Runner(spark, reading, RunStore(spark, dsn, most_parts), runs, most_parts=most_parts)
    finally:
        # Drops the persisted frames of transforms. Not done after each job, because the reading keeps its znodes there
        # for all jobs. If Java has ended, the frames are gone too.
        with contextlib.suppress(Py4JError):
            spark.catalog.clearCache()


def _fold_position(fold: Fold, carried: CarriedFold | None, settled: int | None) -> dict[str, Any]:
    """Return the members of a position that the next run needs for its fold, with the start of this run."""
    return {
        _FOLD: None if settled is None else {_VERSION: fold.version, "revision": str(settled)},
        "folded": None if carried is None else str(carried.revision),
    }


def _from(position: Mapping[str, Any], since: datetime | None) -> Mapping[str, Any]:
    """Return the position to continue from: that of the previous run, or an earlier one by request."""
    then = datetime.fromisoformat(position["as_of"])
    if since is None or since >= then:
        return position
    return {**position, "as_of": since.isoformat()}


def reason(error: BaseException) -> str:
    """Return the reason for a failure to store: messages of our own errors; of other errors only their type."""
    if isinstance(error, ConfplaneError):
        return str(error)
    if isinstance(error, KeyboardInterrupt):
        return "It was interrupted"
    return f"{type(error).__name__}; what the run wrote to its log says more"
