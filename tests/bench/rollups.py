"""The rollups: how long Spark takes, on one core and on two, at one size and ten times that; and DuckDB beside it.

``python -m tests.bench.rollups JSON`` is one engine, which runs a job on a made-up cluster when it is told both. All read
the same Parquet and throw the rows away. DuckDB runs the references of the tests, which answer the same
question; ``drift`` and ``integrity`` have none that is SQL alone.
"""

from __future__ import annotations

import json
import os
import sys
import time
from contextlib import ExitStack
from pathlib import Path
from typing import TYPE_CHECKING, Final

import duckdb

from tests.bench.rounds import Figure, alternate, column, progress
from tests.bench.sample.files import write
from tests.bench.sample.trail import Plan
from tests.bench.turns import own_output, serve, worker

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from typing import IO

_JOBS: Final = ("compatibility", "drift", "impact", "quotas", "activity", "integrity")
_REFERENCED: Final = ("compatibility", "impact", "quotas", "activity")
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
                rates[name].append([size / each for each in ours])
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

    def run(task: str) -> None:
        name, sample = _asked(task)
        about = json.loads((sample / "reading" / "part-00000.txt").read_text())["options"]
        rows = samples.run(name, samples.frames(spark, sample), capacity=_CAPACITY, **about)
        rows.write.format("noop").mode("overwrite").save()
        spark.catalog.clearCache()

    serve(run, replies)
    spark.stop()


def _duckdb(cores: int, replies: IO[str]) -> None:
    from tests.rollups import samples  # noqa: PLC0415 - not when only listed

    def run(task: str) -> None:
        name, sample = _asked(task)
        with duckdb.connect(config={"threads": cores, "memory_limit": _MEMORY.replace("g", "GB")}) as database:
            database.execute(f"CREATE TABLE found AS {samples.prepare(database, name, sample, _CAPACITY)}")

    serve(run, replies)


def _asked(task: str) -> tuple[str, Path]:
    asked = json.loads(task)
    return asked["job"], Path(asked["sample"])


if __name__ == "__main__":
    given = json.loads(sys.argv[1])
    {"spark": _spark, "duckdb": _duckdb}[given["engine"]](given["cores"], own_output())
