"""Frames for tests, and the references that the jobs are compared with: plain SQL, run by DuckDB on the same rows.

Each reference in ``references`` is written from the definition of its job, and shares nothing with it.
"""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from pyspark.sql import functions as F  # noqa: N812
from pyspark.sql.types import TimestampType

from confplane.domain.extra_keys import Catalogs
from confplane.domain.facets import Tree
from confplane.domain.releases import ON_ZOOKEEPER
from confplane.domain.teams import Teams
from confplane.rollups import schemas
from confplane.rollups.jobs import JOBS
from confplane.rollups.reading import current_registrations
from tests.bench.sample.files import write_frame
from tests.rollups import effective
from tests.rollups.lake import limited

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    import duckdb
    from pyspark.sql import DataFrame, SparkSession

    from confplane.rollups.job import Job

REFERENCES: Final = Path(__file__).parent / "references"
STORED: Final = {
    "changes": schemas.CHANGES,
    "refused_attempts": schemas.REFUSED_ATTEMPTS,
    "registration_events": schemas.REGISTRATION_EVENTS,
    "reports": schemas.REPORTS,
    "znodes": schemas.ZNODES,
    "states": schemas.STATES,
    "topics": schemas.TOPICS,
}
"""Frames that are written down. ``registrations`` follows from the events."""

NOW: Final = datetime(2026, 2, 1, 12, tzinfo=UTC)

TEAMS: Final = Teams(
    "a default",
    names=(
        ("operations", ("User:admin", "User:zoë", "External:unknown")),
        ("Zoë's", ("User:bob", "User:CN=ops,O=Acme")),
    ),
    patterns=(("User:c*", "first"), ("User:*a*", "second"), ("User:car*", "never"), ("*_%\\*", "odd")),
)
"""Teams whose patterns overlap, with signs that other languages of patterns know."""

_VIEWS: Final = ("standing", "candidates", "quota_values")
"""The views that several references start from, in this order."""


def save(directory: Path, **rows: Sequence[tuple[Any, ...]]) -> Path:
    """Write frames by hand; those that are not given are empty. Times are microseconds since 1970."""
    for name, schema in STORED.items():
        write_frame(directory / name, schema, rows.get(name, ()))
    return directory


def frames(spark: SparkSession, directory: Path) -> dict[str, DataFrame]:
    """Read what was saved."""
    found = {name: spark.read.schema(schema).parquet(str(directory / name)) for name, schema in STORED.items()}
    return {**found, "registrations": current_registrations(found["registration_events"])}


def run(name: str, given: Mapping[str, DataFrame], **options: Any) -> DataFrame:
    """Run a job on the columns that it says it reads, now and on ZooKeeper unless the options say otherwise."""
    return made(name, given, **options)[0]


def made(name: str, given: Mapping[str, DataFrame], **options: Any) -> tuple[DataFrame, Any]:
    """Run a job as :func:`run`, and return its rows and its fold; ``carried`` and ``settled`` are among the options."""
    about = {"as_of": NOW, "catalogs": Catalogs(), "release": ON_ZOOKEEPER, "on_zookeeper": True, "teams": TEAMS}
    about["client_config_trees"] = (Tree.CLIENT_CONFIGS, Tree.CONFIG)
    job, options = JOBS[name], {**about, **options}
    inputs = {frame: given[frame].select(*columns) for frame, columns in job.inputs.items()}
    known = {*job.options, *(("carried", "settled") if job.fold is not None else ())}
    return job.evaluate(**inputs, **{key: value for key, value in options.items() if key in known})


def inputs_of(
    job: Job, given: Mapping[str, DataFrame], then: datetime | None, now: datetime | None
) -> tuple[dict[str, DataFrame], datetime | None]:
    """Return what a run at a moment is given that builds on one of an earlier moment, by the words of ``Job``.

    Args:
        job: The job.
        given: All frames, as of the end.
        then: The moment of the run before; None where there is none.
        now: The moment of the run; None for the end.
    """
    found, since = dict(given), None
    if now is not None:
        concluded = F.col("concluded_at") <= F.lit(now)
        found["changes"] = given["changes"].where(F.col("recorded_at") <= F.lit(now)).withColumns(
            {
                "outcome": F.when(concluded, F.col("outcome")).otherwise("open"),
                "revision": F.when(concluded, F.col("revision")),
            }
        )  # fmt: skip
        found["registration_events"] = given["registration_events"].where(F.col("recorded_at") <= F.lit(now))
        found["refused_attempts"] = given["refused_attempts"].where(F.col("created_at") <= F.lit(now))
    if then is not None:
        found["registration_events"] = found["registration_events"].where(F.col("recorded_at") > F.lit(then))
        new = (F.col("recorded_at") > F.lit(then)) | (F.col("concluded_at") > F.lit(then))
        [(oldest,)] = found["changes"].where(new).agg(F.min(F.unix_micros("created_at"))).collect()
        first = then if oldest is None else min(then, datetime.fromtimestamp(oldest / 1e6, UTC))
        since = first.replace(hour=0, minute=0, second=0, microsecond=0)
        created = F.col("created_at") >= F.lit(since - timedelta(days=job.lookback_days))
        found["changes"] = found["changes"].where(created)
        found["refused_attempts"] = found["refused_attempts"].where(F.col("created_at") >= F.lit(since))
    return {frame: found[frame].select(*columns) for frame, columns in job.inputs.items()}, since


def compare(name: str, rows: DataFrame, directory: Path, scratch: Path, capacity: Mapping[str, float]) -> int:
    """Compare a job's rows with its reference on the saved frames, exactly; return how many there are.

    Args:
        name: The job.
        rows: Its rows.
        directory: The directory of the frames.
        scratch: A directory for the rows.
        capacity: Quota key -> the capacity of one broker.
    """
    ours = str(scratch / name)
    rows.write.mode("overwrite").option("parquet.enable.dictionary", "false").parquet(ours)
    with limited() as database:
        query = prepare(database, name, directory, capacity)
        if name == "drift":
            effective.fill(database)
        database.execute(f"CREATE TABLE reference AS SELECT {_columns(name)} FROM ({query})")  # noqa: S608
        database.execute(f"CREATE VIEW ours AS SELECT {_columns(name)} FROM read_parquet('{ours}/*.parquet')")  # noqa: S608
        missing = database.execute("FROM reference EXCEPT ALL FROM ours LIMIT 5").fetchall()
        unexpected = database.execute("FROM ours EXCEPT ALL FROM reference LIMIT 5").fetchall()
        assert (missing, unexpected) == ([], [])
        return int(database.execute("SELECT count(*) FROM reference").fetchall()[0][0])


def _columns(name: str) -> str:
    return ", ".join(
        f"epoch_us({field.name}) AS {field.name}" if isinstance(field.dataType, TimestampType) else field.name
        for field in JOBS[name].output.fields
    )


def prepare(database: duckdb.DuckDBPyConnection, name: str, directory: Path, capacity: Mapping[str, float]) -> str:
    """Give a database what a job's reference reads, and return that reference."""
    for frame in STORED:
        database.execute(f"CREATE VIEW {frame} AS FROM read_parquet('{directory / frame}/*.parquet')")
    database.execute("CREATE TABLE capacities (config_key VARCHAR, capacity DOUBLE)")
    for item in capacity.items():
        database.execute("INSERT INTO capacities VALUES (?, ?)", item)
    database.execute("CREATE TABLE teams (rank INT, name VARCHAR, team VARCHAR)")
    exact = [(principal, team) for team, names in TEAMS.names for principal in names]
    for rank, entry in enumerate([*exact, *TEAMS.patterns, ("*", TEAMS.default)]):
        database.execute("INSERT INTO teams VALUES (?, ?, ?)", (rank, *entry))
    if name == "impact":
        effective.fill_broker_entries(database)
    query = (REFERENCES / f"{name}.sql").read_text()
    used, read = list[str](), query
    for view in reversed(_VIEWS):
        if view in read:
            used.insert(0, view)
            read += (REFERENCES / f"{view}.sql").read_text()
    for view in used:
        database.execute(f"CREATE TABLE {view} AS {(REFERENCES / f'{view}.sql').read_text()}")
    return query
