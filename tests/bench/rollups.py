"""The rollups: how long Spark takes, on one core and on two, at one size and ten times that; and DuckDB beside it.

``python -m tests.bench.rollups JSON`` runs one engine on one made-up cluster and prints the seconds of each job, round by
round. Both read the same Parquet and throw the rows away. DuckDB runs the references of the tests, which answer the same
question; ``drift`` and ``integrity`` have none that is SQL alone.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import duckdb

from app.rollups.sample.files import write
from app.rollups.sample.trail import Plan
from tests.bench.rounds import Figure, progress

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

_JOBS: Final = ("compatibility", "drift", "impact", "quotas", "activity", "integrity")
_REFERENCED: Final = ("compatibility", "impact", "quotas", "activity")
_EVENTS_OF_ENTITY: Final = 10
_MEMORY: Final = "3g"
_CAPACITY: Final = {"producer_byte_rate": 1e9}


def measure(directory: Path, *, rounds: int, events: int) -> Iterator[Figure]:
    """Yield the seconds of each job; made-up clusters are left in ``directory``."""
    cores = min(2, os.cpu_count() or 1)
    times: dict[tuple[int, str, int], dict[str, list[float]]] = {}
    sizes = sorted({max(1, events // 10), events})
    for size in sizes:
        sample = directory / f"rollups-{size}"
        begun = time.monotonic()
        write(Plan(entities=max(100, size // _EVENTS_OF_ENTITY), events=size), sample)
        seconds = time.monotonic() - begun
        yield Figure(
            f"Rollups: make up {size:,} changes and {size // 2:,} registrations", "rows/s", [1.5 * size / seconds]
        )
        for engine, used in (("spark", 1), ("spark", cores), ("duckdb", cores)):
            times[size, engine, used] = _child(sample, engine=engine, cores=used, rounds=rounds)
            progress.print(f"  {engine}, {used} cores, {size:,} changes: {times[size, engine, used]}", soft_wrap=True)
    for size in sizes:
        ours, one = times[size, "spark", cores], times[size, "spark", 1]
        for name in _JOBS:
            title = f"Rollup `{name}`, {size:,} changes, {cores} cores"
            yield Figure(title, "s", ours[name], "Spark on one core", one[name], decimals=1, less_is_better=True)
            if name in _REFERENCED:
                duck = times[size, "duckdb", cores][name]
                yield Figure(title, "s", ours[name], "DuckDB, same rows", duck, decimals=1, less_is_better=True)
    for name in _JOBS if len(sizes) > 1 else ():
        small, large = (times[size, "spark", cores][name] for size in sizes)
        title = f"Rollup `{name}`, {sizes[1]:,} changes: rows a second"
        rates = [sizes[1] / each for each in large]
        yield Figure(title, "/s", rates, f"with {sizes[0]:,}", [sizes[0] / each for each in small])


def _child(sample: Path, **given: Any) -> dict[str, list[float]]:
    arguments = json.dumps({"sample": str(sample), **given})
    done = subprocess.run(
        [sys.executable, "-m", "tests.bench.rollups", arguments], check=True, stdout=subprocess.PIPE, text=True
    )
    found: dict[str, list[float]] = json.loads(done.stdout.splitlines()[-1])
    return found


def _timed(rounds: int, jobs: tuple[str, ...], run: Callable[[str], None]) -> dict[str, list[float]]:
    found: dict[str, list[float]] = {name: [] for name in jobs}
    # The first round is left out: it compiles what the others use.
    for number in range(rounds + 1):
        for name in jobs:
            begun = time.monotonic()
            run(name)
            if number:
                found[name].append(round(time.monotonic() - begun, 3))
    return found


def _spark(sample: Path, cores: int, rounds: int) -> dict[str, list[float]]:
    from app.rollups.session import session  # noqa: PLC0415 - DuckDB's process has no use for it
    from tests.rollups import samples  # noqa: PLC0415 - as above

    about = json.loads((sample / "reading" / "part-00000.txt").read_text())["options"]
    settings = {"spark.driver.memory": _MEMORY, "spark.sql.shuffle.partitions": str(2 * cores)}
    spark = session(f"local[{cores}]", name="bench", settings=settings)
    spark.sparkContext.setLogLevel("ERROR")

    def run(name: str) -> None:
        rows = samples.run(name, samples.frames(spark, sample), capacity=_CAPACITY, **about)
        rows.write.format("noop").mode("overwrite").save()
        spark.catalog.clearCache()

    try:
        return _timed(rounds, _JOBS, run)
    finally:
        spark.stop()


def _duckdb(sample: Path, cores: int, rounds: int) -> dict[str, list[float]]:
    from tests.rollups import samples  # noqa: PLC0415 - not when only listed

    def run(name: str) -> None:
        with duckdb.connect(config={"threads": cores, "memory_limit": _MEMORY.replace("g", "GB")}) as database:
            database.execute(f"CREATE TABLE found AS {samples.prepare(database, name, sample, _CAPACITY)}")

    return _timed(rounds, _REFERENCED, run)


if __name__ == "__main__":
    asked = json.loads(sys.argv[1])
    engine = {"spark": _spark, "duckdb": _duckdb}[asked["engine"]]
    sys.stdout.write(json.dumps(engine(Path(asked["sample"]), asked["cores"], asked["rounds"])) + "\n")
