"""The rollups: how long Spark takes, on one core and on two, at one size and ten times that; and DuckDB beside it.

Besides, in processor seconds: a run that continues beside a run from the beginning; and the most memory of each engine.

``python -m tests.bench.rollups JSON`` is one engine, which runs a job on a made-up cluster when it is told both. All read
the same Parquet and throw the rows away. DuckDB runs the references of the tests, which answer the same
question; ``drift``, ``integrity``, ``compare`` and ``usage`` have none that is SQL alone.
"""

from __future__ import annotations

import json
import os
import random
import sys
import time
from contextlib import ExitStack, suppress
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import duckdb
import psutil

from tests.bench.rounds import Figure, alternate, column, progress
from tests.bench.sample.files import OPTIONS, write
from tests.bench.sample.trail import Plan
from tests.bench.turns import own_output, serve, worker

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator
    from typing import IO

    import pyarrow as pa
    from pyspark.sql import DataFrame, SparkSession

_JOBS: Final = ("compatibility", "drift", "impact", "quotas", "activity", "integrity", "compare", "usage")
_REFERENCED: Final = ("compatibility", "impact", "quotas", "activity")
_CONTINUED: Final = ("compatibility", "activity", "integrity")
_STEP: Final = 100_000
"""The changes that are new to a run that continues; a tenth of them all at most."""
_EVENTS_OF_ENTITY: Final = 10
_MEMORY: Final = "2g"
"""Of Spark's heap, and of DuckDB; three of them are there at a time."""
_CAPACITY: Final = {"producer_byte_rate": 1e9}
_MINUTES: Final = 12
"""The minutes of made-up measurements."""


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
                ours, *references = _alternating(engines, name, sample, cores, rounds, warm=size == sizes[0])
                title = f"Rollup `{name}`, {size:,} changes, {cores} cores"
                for reference_name, reference in zip(
                    ("Spark on one core", "DuckDB, same rows"), references, strict=False
                ):
                    yield Figure(title, "s", ours, reference_name, reference, decimals=1, less_is_better=True)
                if name in _CONTINUED:
                    yield _continued(engines[0], name, sample, min(_STEP, size // 10), rounds)
                rates[name].append([size / each for each in ours])
        for name, engine in zip((f"Spark, {cores} cores", "Spark, one core", "DuckDB"), engines, strict=True):
            yield Figure(f"Rollups: most memory at a time, {name}", "MB", [engine(json.dumps({"memory": True}))])
    for name in _JOBS if len(sizes) > 1 else ():
        small, large = rates[name]
        yield Figure(f"Rollup `{name}`, {sizes[1]:,} changes: changes a second", "/s", large, f"{sizes[0]:,}", small)


def _continued(engine: Callable[[str], float], name: str, sample: Path, step: int, rounds: int) -> Figure:
    """Return the processor seconds of a run that continues, beside those of a run from the beginning."""
    job = {"job": name, "sample": str(sample), "processor": True}
    tasks = [json.dumps({**job, "step": step}), json.dumps(job)]
    title = f"Rollup `{name}`: the last {step:,} changes of {sample.name}, processor"
    found = alternate(title, rounds, *[_side(engine, task) for task in tasks], decimals=1)
    ours, whole = (column(samples) for samples in found)
    return Figure(title, "s", ours, "from the beginning", whole, decimals=1, less_is_better=True)


def _alternating(
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
    from confplane.rollups.session import session  # noqa: PLC0415 - DuckDB's process has no use for it

    settings = {"spark.driver.memory": _MEMORY, "spark.sql.shuffle.partitions": str(2 * cores)}
    spark = session(f"local[{cores}]", name="bench", settings=settings)
    spark.sparkContext.setLogLevel("ERROR")

    def run(task: str) -> float | None:
        asked = json.loads(task)
        if "memory" in asked:
            return _most_memory()
        name, sample, step = asked["job"], Path(asked["sample"]), asked.get("step")
        rows = _whole(spark, name, sample) if step is None else _step(spark, name, sample, step)
        begun = _processor()
        for each in rows:
            each.write.format("noop").mode("overwrite").save()
        spark.catalog.clearCache()
        return _processor() - begun if "processor" in asked else None

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


def _whole(spark: SparkSession, name: str, sample: Path) -> list[DataFrame]:
    """Return the rows of a run from the beginning, and its fold where it has one."""
    from confplane.domain.extra_keys import Catalogs  # noqa: PLC0415 - DuckDB's process has no use for it
    from confplane.domain.releases import ON_ZOOKEEPER  # noqa: PLC0415 - DuckDB's process has no use for it
    from confplane.rollups import history, schemas  # noqa: PLC0415 - as above
    from confplane.rollups.jobs import JOBS  # noqa: PLC0415 - as above
    from tests.rollups import samples  # noqa: PLC0415 - as above

    frames, options = samples.frames(spark, sample), _options(sample)
    if name == "compare":
        at = options["as_of"] - timedelta(days=60)
        frames["other_znodes"] = history.znodes_at(frames["changes"], frames["znodes"], at)
        frames["other_topics"] = frames["topics"]
        options |= {"other": at.isoformat(), "other_catalogs": Catalogs()}
        options |= {"other_release": ON_ZOOKEEPER, "other_on_zookeeper": True}
    elif name == "usage":
        frames["usage"] = spark.read.schema(schemas.USAGE).parquet(str(_usage(sample)))
    if JOBS[name].fold is None:
        return [samples.run(name, frames, capacity=_CAPACITY, **options)]
    rows, fold = samples.made(name, frames, carried=None, settled=options["floor"], **options)
    return [rows, fold]


def _options(sample: Path) -> dict[str, Any]:
    found: dict[str, Any] = json.loads((sample / OPTIONS).read_text())
    return {**found, "as_of": datetime.fromisoformat(found["as_of"])}


def _usage(sample: Path) -> Path:
    """Return the measurements of a sample, made up where there are none yet."""
    import pyarrow.parquet as pq  # noqa: PLC0415 - DuckDB's process has no use for it

    from confplane.rollups import schemas  # noqa: PLC0415 - as above

    found = sample / "usage.parquet"
    if not found.exists():
        entity_ids = pq.read_table(sample / "znodes", columns=["entity_id"])["entity_id"].to_pylist()
        table = _measured(entity_ids, random.Random(1))  # noqa: S311 - made-up data
        pq.write_table(table.rename_columns(schemas.USAGE.names), found)
    return found


def _measured(entity_ids: Iterable[str], chosen: random.Random) -> pa.Table:
    """Measurements of some clients on two brokers; the values are eighths."""
    import pyarrow as pa  # noqa: PLC0415 - DuckDB's process has no use for it

    from confplane.domain.entities import Entity  # noqa: PLC0415 - as above
    from tests.rollups.references import usage  # noqa: PLC0415 - as above

    found = [each for each in entity_ids if each.startswith(("user=", "client-id="))]
    rows: list[tuple[Any, ...]] = []
    for entity_id in chosen.sample(found, min(len(found), 20_000)):
        parts = dict(Entity.from_id(entity_id).components)
        if None in parts.values():
            continue
        named = {kind.value: name for kind, name in parts.items()}
        metric, most = chosen.choice(usage.KEYS), 8 * 10 ** chosen.randrange(1, 7)
        for minute in range(_MINUTES):
            at = datetime(2026, 5, 1, 12, minute, tzinfo=UTC)
            rows += [(at, named.get("user"), named.get("client-id"), metric, chosen.randrange(most) / 8) for _ in "ab"]
    kinds = (pa.timestamp("us", tz="UTC"), pa.string(), pa.string(), pa.string(), pa.float64())
    columns = zip(*rows, strict=True)
    arrays = [pa.array(column, kind) for column, kind in zip(columns, kinds, strict=True)]
    return pa.Table.from_arrays(arrays, names=["time", "user", "client-id", "metric", "value"])


def _step(spark: SparkSession, name: str, sample: Path, step: int) -> list[DataFrame]:
    """Return the rows, and the fold, of a run that continues where the newest changes were not there yet."""
    from pyspark.sql import functions as F  # noqa: N812, PLC0415 - DuckDB's process has no use for it

    from confplane.rollups.job import CarriedFold  # noqa: PLC0415 - as above
    from confplane.rollups.jobs import JOBS  # noqa: PLC0415 - as above
    from tests.rollups import samples  # noqa: PLC0415 - as above

    job, given, about = JOBS[name], samples.frames(spark, sample), _options(sample)
    newest = F.percentile_approx(F.unix_micros("recorded_at"), F.lit(1 - step / given["changes"].count()))
    [(micros,)] = given["changes"].agg(newest).collect()
    then = datetime.fromtimestamp(micros / 1e6, UTC)
    kept = sample / f"before-{name}"
    if job.fold is not None:
        # The changes of the three days before are read again.
        is_settled = F.col("time") <= F.lit(then - timedelta(days=3))
        [(settled,)] = given["changes"].where(is_settled).agg(F.max("revision")).collect()
        if not kept.exists():
            samples.made(name, given, carried=None, settled=settled, **about)[1].write.parquet(str(kept))
            spark.catalog.clearCache()
        [(first,)] = (
            given["changes"].where(F.col("revision") > settled).agg(F.unix_micros(F.min("created_at"))).collect()
        )
        unfolded = datetime.fromtimestamp(first / 1e6, UTC)
        carried = CarriedFold(spark.read.schema(job.fold.schema).parquet(str(kept)), settled, unfolded)
        later = {**given, "changes": given["changes"].where(F.col("created_at") >= F.lit(unfolded))}
        rows, fold = samples.made(name, later, carried=carried, settled=about["floor"], **about)
        return [rows, fold]
    options = {"teams": samples.TEAMS} if "teams" in job.options else {}
    if not kept.exists():
        inputs, _ = samples.inputs_of(job, given, None, then)
        job(**inputs, **options, previous=None, since=None).write.parquet(str(kept))
        spark.catalog.clearCache()
    previous = spark.read.schema(job.output).parquet(str(kept))
    # A run asks Postgres' index for the oldest change that is new.
    inputs, since = samples.inputs_of(job, given, then, None)
    return [job(**inputs, **options, previous=previous, since=since)]


def _processor() -> float:
    """Return the processor seconds of this process and of those that it started, those that ended among them."""
    there = psutil.Process()
    found = 0.0
    for each in (there, *there.children(recursive=True)):
        with suppress(psutil.NoSuchProcess):
            found += sum(each.cpu_times()[:4])
    return found


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
