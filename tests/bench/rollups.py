"""The rollups: how long Spark takes, on one core and on two, at one size and ten times that; and DuckDB beside it.

Besides: a run that continues beside a run from the beginning, and the most memory that each engine had.

Also the step of an incremental run beside a run from the beginning, and the most memory that each engine has had.

``python -m tests.bench.rollups JSON`` is one engine, which runs a job on a made-up cluster when it is told both. All read
the same Parquet and throw the rows away. DuckDB runs the references of the tests, which answer the same
question; ``drift`` and ``integrity`` have none that is SQL alone.
"""

from __future__ import annotations

import json
import os
import sys
import time
from contextlib import ExitStack, suppress
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Final

import duckdb
import psutil

from tests.bench.rounds import Figure, alternate, column, progress
from tests.bench.sample.files import write
from tests.bench.sample.trail import Plan
from tests.bench.turns import own_output, serve, worker

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from typing import IO

    from pyspark.sql import SparkSession

_JOBS: Final = ("compatibility", "drift", "impact", "quotas", "activity", "integrity")
_REFERENCED: Final = ("compatibility", "impact", "quotas", "activity")
_INCREMENTAL: Final = ("compatibility", "activity")
_STEP: Final = 100_000
"""The changes that are new to a run that continues; a tenth of them all at most."""
_EVENTS_OF_ENTITY: Final = 10
_MEMORY: Final = "2g"
"""Of Spark's heap, and of DuckDB; three of them are there at a time."""
_CAPACITY: Final = {"producer_byte_rate": 1e9}


def measure(directory: Path, *, rounds: int, events: int) -> Iterator[Figure]:
    """Yield the seconds of each job; made-up clusters are left in ``directory``."""
    cores = min(2, os.cpu_count() or 1)
    rates: dict[str, list[list[float]]] = {name: [] for name in _JOBS}
    sizes = sorted({max(1, events // 10), events})
    with ExitStack() as stack:
        engines = [
            stack.enter_context(worker("rollups", engine=engine, cores=used))
            for engine, used in (("spark", cores), ("spark", 1), ("duckdb", cores))
        ]
        for size in sizes:
            sample = directory / f"rollups-{size}"
            begun = time.monotonic()
            with progress.status(f"  making up {size:,} changes"):
                write(Plan(entities=max(100, size // _EVENTS_OF_ENTITY), events=size), sample)
            seconds = time.monotonic() - begun
            yield Figure(
                f"Rollups: make up {size:,} changes and {size // 2:,} registrations", "rows/s", [1.5 * size / seconds]
            )
            for name in _JOBS:
                ours, *references = _in_turn(engines, name, sample, cores, rounds, warm=size == sizes[0])
                title = f"Rollup `{name}`, {size:,} changes, {cores} cores"
                for reference_name, reference in zip(
                    ("Spark on one core", "DuckDB, same rows"), references, strict=False
                ):
                    yield Figure(title, "s", ours, reference_name, reference, decimals=1, less_is_better=True)
                if name in _INCREMENTAL:
                    step = min(_STEP, size // 10)
                    task = json.dumps({"job": name, "sample": str(sample), "step": step})
                    title = f"Rollup `{name}`: the last {step:,} of {size:,} changes, {cores} cores"
                    steps = [engines[0](task) for _ in range(rounds)]
                    yield Figure(title, "s", steps, "from the beginning", ours, decimals=1, less_is_better=True)
                rates[name].append([size / each for each in ours])
        for name, engine in zip((f"Spark, {cores} cores", "Spark, one core", "DuckDB"), engines, strict=True):
            yield Figure(f"Rollups: most memory at a time, {name}", "MB", [engine(json.dumps({"memory": True}))])
    for name in _JOBS if len(sizes) > 1 else ():
        small, large = rates[name]
        yield Figure(f"Rollup `{name}`, {sizes[1]:,} changes: changes a second", "/s", large, f"{sizes[0]:,}", small)


def _in_turn(
    engines: list[Callable[[str], float]], name: str, sample: Path, cores: int, rounds: int, *, warm: bool
) -> list[list[float]]:
    """Return the seconds of a job by Spark on all cores, on one, and by DuckDB where it has the reference."""
    task = json.dumps({"job": name, "sample": str(sample)})
    sides = engines if name in _REFERENCED else engines[:2]
    # A round at the smaller size is left out: it compiles what all others use.
    for engine in sides if warm else ():
        engine(task)
    found = alternate(
        f"{name}, {sample.name}, s: Spark on {cores} cores | on one | DuckDB",
        rounds,
        *[_side(engine, task) for engine in sides],
        decimals=1,
    )
    return [column(samples) for samples in found]


def _side(engine: Callable[[str], float], task: str) -> Callable[[int], tuple[float]]:
    return lambda _: (engine(task),)


def _spark(cores: int, replies: IO[str]) -> None:
    from app.rollups.session import session  # noqa: PLC0415 - DuckDB's process has no use for it
    from tests.rollups import samples  # noqa: PLC0415 - as above

    settings = {"spark.driver.memory": _MEMORY, "spark.sql.shuffle.partitions": str(2 * cores)}
    spark = session(f"local[{cores}]", name="bench", settings=settings)
    spark.sparkContext.setLogLevel("ERROR")

    def run(task: str) -> float | None:
        asked = json.loads(task)
        if "memory" in asked:
            return _most_memory()
        name, sample = asked["job"], Path(asked["sample"])
        if "step" in asked:
            return _step(spark, name, sample, asked["step"])
        about = json.loads((sample / "reading" / "part-00000.txt").read_text())["options"]
        rows = samples.run(name, samples.frames(spark, sample), capacity=_CAPACITY, **about)
        rows.write.format("noop").mode("overwrite").save()
        spark.catalog.clearCache()
        return None

    serve(run, replies)
    spark.stop()


def _duckdb(cores: int, replies: IO[str]) -> None:
    from tests.rollups import samples  # noqa: PLC0415 - not when only listed

    def run(task: str) -> float | None:
        asked = json.loads(task)
        if "memory" in asked:
            return _most_memory()
        name, sample = asked["job"], Path(asked["sample"])
        with duckdb.connect(config={"threads": cores, "memory_limit": _MEMORY.replace("g", "GB")}) as database:
            database.execute(f"CREATE TABLE found AS {samples.prepare(database, name, sample, _CAPACITY)}")
        return None

    serve(run, replies)


def _step(spark: SparkSession, name: str, sample: Path, step: int) -> float:
    """Return the seconds of a run that continues where the newest changes were not there yet."""
    from pyspark.sql import functions as F  # noqa: N812, PLC0415 - DuckDB's process has no use for it

    from app.rollups.jobs import JOBS  # noqa: PLC0415 - as above
    from tests.rollups import samples  # noqa: PLC0415 - as above

    job, given = JOBS[name], samples.frames(spark, sample)
    options = {"teams": samples.TEAMS} if "teams" in job.options else {}
    newest = F.percentile_approx(F.unix_micros("recorded_at"), F.lit(1 - step / given["changes"].count()))
    [(micros,)] = given["changes"].agg(newest).collect()
    then = datetime.fromtimestamp(micros / 1e6, UTC)
    kept = sample / f"before-{name}"
    if not kept.exists():
        inputs, _ = samples.seen(job, given, None, then)
        job(**inputs, **options, previous=None, since=None).write.parquet(str(kept))
        spark.catalog.clearCache()
    previous = spark.read.schema(job.output).parquet(str(kept))
    # A run asks Postgres' index for the oldest change that is new.
    inputs, since = samples.seen(job, given, then, None)
    begun = time.monotonic()
    job(**inputs, **options, previous=previous, since=since).write.format("noop").mode("overwrite").save()
    seconds = time.monotonic() - begun
    spark.catalog.clearCache()
    return seconds


def _most_memory() -> float:
    """Return the most memory that this process and those that it started have had, in MB."""
    there = psutil.Process()
    found = 0
    for each in (there, *there.children(recursive=True)):
        with suppress(FileNotFoundError):
            status = Path(f"/proc/{each.pid}/status").read_text()
            found += int(status.partition("VmHWM:")[2].split()[0])
    return found / 1000


if __name__ == "__main__":
    given = json.loads(sys.argv[1])
    {"spark": _spark, "duckdb": _duckdb}[given["engine"]](given["cores"], own_output())
