"""The sources of the rollups: rows a second, out of Postgres and ZooKeeper, beside the least that reads the same.

``python -m tests.bench.sources JSON`` is one reader: Spark, which throws the rows away, or ADBC on one connection, which
leaves the columns as Postgres sends them. Either reads a frame when it is told its name.
"""

from __future__ import annotations

import json
import os
import sys
from contextlib import ExitStack
from datetime import UTC, datetime
from pathlib import Path
from typing import IO, TYPE_CHECKING, Final

import psycopg
from pydantic import SecretStr

from confplane.rollups.sources.postgres import open_transaction
from confplane.rollups.sources.tables import TABLES, KeyRange, TableScope
from tests.bench.rounds import Figure, alternate, column, progress
from tests.bench.turns import own_output, serve, worker
from tests.bench.world import probe
from tests.support.servers import make_migrated

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from tests.bench.world import World

_CLUSTER: Final = "bench"
_ZNODES: Final = "znodes"
_MEMORY: Final = "2g"
_FILL: Final = Path(__file__).with_name("trail.sql")


def measure(world: World, *, rounds: int, events: int, entities: int) -> Iterator[Figure]:
    """Yield how fast the frames of Postgres, of so many rows each, and the znodes are read."""
    cores = min(2, os.cpu_count() or 1)
    dsn, connect = _trail(world, events), world.filled(entities)
    stores = {"dsn": dsn, "connect": connect}
    with ExitStack() as stack:
        many = stack.enter_context(worker("sources", reader="spark", cores=cores, **stores))
        one = stack.enter_context(worker("sources", reader="spark", cores=1, **stores))
        raw = stack.enter_context(worker("sources", reader="adbc", cores=1, **stores))
        for name in ("changes", "registration_events"):
            yield from _compared(name, events, rounds, cores, many, one, "one connection of ADBC, same query", raw)
        gets = "the same nodes by pipelined kazoo gets"
        yield from _compared(
            _ZNODES, entities, rounds, cores, many, one, gets, lambda _: probe("mirror", connect=connect, gets=entities)
        )


def _compared(
    frame: str,
    rows: int,
    rounds: int,
    cores: int,
    many: Callable[[str], float],
    one: Callable[[str], float],
    raw_name: str,
    raw: Callable[[str], float],
) -> Iterator[Figure]:
    for reader in (many, one):
        reader(frame)  # what it compiles the rounds have
    ours, single, reference = alternate(
        f"{frame}, rows/s: Spark on {cores} cores | on one | {raw_name}",
        rounds,
        *[lambda _, reader=reader: (rows / reader(frame),) for reader in (many, one, raw)],
    )
    title = f"Source of `{frame}`, {rows:,} rows"
    yield Figure(f"{title}, {cores} cores", "rows/s", column(ours), raw_name, column(reference))
    yield Figure(f"{title}, one core", "rows/s", column(single), raw_name, column(reference))


def _trail(world: World, events: int) -> str:
    """Make a database with a trail of so many changes and registrations; return the service's DSN."""
    database = make_migrated(world.postgres)
    with (
        progress.status(f"  writing {events:,} changes and registrations to Postgres"),
        psycopg.connect(database.owner_dsn, autocommit=True) as connection,
    ):
        for statement in _FILL.read_bytes().split(b";\n"):
            connection.execute(statement, {"cluster": _CLUSTER, "events": events} if b"%" in statement else None)
    return database.service_dsn


def _adbc(dsn: str, replies: IO[str]) -> None:
    def run(name: str) -> None:
        table = TABLES[name]
        with open_transaction(SecretStr(dsn)) as connection:
            [(last,)] = connection.rows("SELECT coalesce(max(id), 0) FROM registrations")
            query = table.query(table.schema.names, TableScope(_CLUSTER, None, last, datetime.now(UTC)), KeyRange())
            if not sum(batch.num_rows for batch in connection.batches(query)):
                raise AssertionError(f"There are no {name}")

    serve(run, replies)


def _spark(dsn: str, connect: str, cores: int, replies: IO[str]) -> None:
    from confplane.rollups import stores  # noqa: PLC0415 - ADBC's process has no use for it
    from confplane.rollups.origin import Origin  # noqa: PLC0415 - as above
    from confplane.rollups.session import session  # noqa: PLC0415 - as above
    from confplane.settings import ClusterSettings  # noqa: PLC0415 - as above

    spark = session(f"local[{cores}]", name="bench", settings={"spark.driver.memory": _MEMORY})
    spark.sparkContext.setLogLevel("ERROR")
    origin = Origin(_CLUSTER, ClusterSettings(zookeeper=connect), SecretStr(dsn))

    def run(name: str) -> None:
        # A reading of all frames has read the znodes when it begins.
        with stores.read(spark, origin, jobs=None if name == _ZNODES else []) as (reading, _):
            if name != _ZNODES:
                frame = reading.frame(name, TABLES[name].schema.names)
                frame.write.format("noop").mode("overwrite").save()

    serve(run, replies)
    spark.stop()


if __name__ == "__main__":
    asked = json.loads(sys.argv[1])
    if asked["reader"] == "adbc":
        _adbc(asked["dsn"], own_output())
    else:
        _spark(asked["dsn"], asked["connect"], asked["cores"], own_output())
