"""Prints the figures of performance: ``python -m tests.bench``, or ``make bench``.

Each figure stands beside its reference, measured in turn with it in the same run, because on a shared machine only the
ratio means something. Nothing is asserted about time.
"""

from __future__ import annotations

import argparse
import os
import platform
import sys
import tempfile
import time
from importlib.metadata import version
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tests.bench import (
    access,
    alters,
    applied,
    backups,
    bulk,
    concurrent_work,
    configs,
    console,
    feed,
    hostile,
    idle,
    kafka,
    kraft,
    kraft_applied,
    latency,
    manifests,
    mirror,
    picture,
    reads,
    rollups,
    sources,
)
from tests.bench.rounds import progress, table
from tests.bench.world import running_world
from tests.support import tools

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from tests.bench.rounds import Figure
    from tests.bench.world import World

_SMALL = 10_000
_KAFKA = "kafka"
_ROLLUPS = "rollups"


def main() -> None:
    """Measure what is asked for and print the table."""
    parser = argparse.ArgumentParser(prog="python -m tests.bench", description=__doc__)
    parser.add_argument("--rounds", type=int, default=5, help="measurements of each side of a figure (5)")
    parser.add_argument("--seconds", type=float, default=3.0, help="length of one measurement of a rate (3)")
    parser.add_argument("--entities", type=int, default=100_000, help="entities of the large cluster (100000)")
    parser.add_argument("--changes", type=int, default=200, help="changes a round whose latency is measured (200)")
    parser.add_argument("--bulk", type=int, default=1000, help="entities of one large alter (1000)")
    parser.add_argument("--events", type=int, default=1_000_000, help="changes of the larger made-up trail (1000000)")
    parser.add_argument("--consumers", type=int, default=10_000, help="idle consumers of the feed (10000)")
    parser.add_argument("--clusters", type=int, default=30, help="idle clusters of one process (30)")
    parser.add_argument("--output", type=Path, help="a file that the result is written to besides")
    parser.add_argument("--picture", type=Path, help="a PNG of the figures beside Kafka's")
    parser.add_argument(
        "only",
        nargs="*",
        help="some of: reads access applied alters backups bulk beside load memory console feed hostile idle latency"
        " manifests rollups kafka configs kraft kraft-applied",
    )
    options = parser.parse_args()
    rounds: int = options.rounds
    measures: dict[str, Callable[[World], Iterator[Figure]]] = {
        "reads": lambda world: reads.measure(world, rounds=rounds, seconds=options.seconds),
        "access": lambda world: access.measure(world, rounds=rounds, seconds=options.seconds),
        "applied": lambda world: applied.measure(
            world, rounds=rounds, seconds=options.seconds, entities=options.entities
        ),
        "alters": lambda world: alters.measure(world, rounds=rounds, seconds=options.seconds),
        "backups": lambda world: backups.measure(world, entities=options.entities),
        "bulk": lambda world: bulk.measure(world, rounds=rounds, entities=options.entities, bulk=options.bulk),
        "bulk-holds": lambda world: bulk.holds(world, rounds=rounds, bulk=options.bulk),
        "beside": lambda world: concurrent_work.measure(
            world, rounds=rounds, seconds=options.seconds, entities=options.entities, bulk=options.bulk
        ),
        "load": lambda world: mirror.load(world, rounds=rounds, entities=options.entities),
        "memory": lambda world: mirror.memory(world, rounds=rounds, entities=options.entities),
        "console": lambda world: console.measure(world, rounds=rounds, entities=options.entities),
        "feed": lambda world: feed.measure(world, rounds=rounds, changes=options.changes),
        "feed-idle": lambda world: feed.idle(
            world, rounds=rounds, seconds=options.seconds, consumers=options.consumers
        ),
        "feed-snapshot": lambda world: feed.snapshot(world, rounds=rounds, entities=options.entities),
        "hostile": lambda world: hostile.measure(
            world, rounds=rounds, seconds=options.seconds, entities=options.entities
        ),
        "idle": lambda world: idle.measure(world, clusters=options.clusters, seconds=20 * options.seconds),
        "manifests": lambda world: manifests.measure(world, rounds=rounds, entities=options.entities),
        "latency": lambda world: latency.measure(world, rounds=rounds, changes=options.changes),
    }
    measures |= {
        f"{_ROLLUPS}-jobs": lambda world: rollups.measure(world.directory, rounds=rounds, events=options.events),
        f"{_ROLLUPS}-sources": lambda world: sources.measure(
            world, rounds=rounds, events=options.events, entities=options.entities
        ),
    }
    measures |= _side_by_side(options)
    unknown = set(options.only) - measures.keys() - {_KAFKA, _ROLLUPS}
    if unknown:
        parser.error(f"there is no {', '.join(sorted(unknown))}; there are {_KAFKA}, {_ROLLUPS}, {', '.join(measures)}")
    wanted = [name for name in measures if not options.only or {name, name.partition("-")[0]} & set(options.only)]
    begun = time.monotonic()
    figures: list[Figure] = []
    # A node takes some 600 bytes of ZooKeeper's heap.
    heap = f"{1 + options.entities * 4 // 1_000_000}g"
    with (
        tempfile.TemporaryDirectory(prefix="confplane-bench-") as directory,
        running_world(Path(directory), heap) as world,
    ):
        for name in wanted:
            progress.print(f"{name} ({time.monotonic() - begun:.0f} s since the start)")
            figures += measures[name](world)
    load = ", ".join(f"{value:.1f}" for value in os.getloadavg())
    result = f"{_machine()}\nRounds: {rounds}; load average at the end: {load}.\n\n{table(figures)}\n"
    sys.stdout.write(result)
    if options.output is not None:
        options.output.write_text(result)
    beside_kafka = [figure for figure in figures if figure.reference_name == kafka.REFERENCE]
    if options.picture is not None and beside_kafka:
        picture.draw(beside_kafka, options.picture)


def _side_by_side(options: argparse.Namespace) -> dict[str, Callable[[World], Iterator[Figure]]]:
    """Return what is measured beside a Kafka broker, each with its name; ``kafka`` stands for all of it."""
    rounds: int = options.rounds
    sizes = sorted({min(_SMALL, options.entities), options.entities})

    def measured(
        measure: Callable[..., Iterator[Figure]], *, kafka: Callable[[], Path] = tools.kafka_class_path, **sized: Any
    ) -> Callable[[World], Iterator[Figure]]:
        def run(world: World) -> Iterator[Figure]:
            try:
                class_path = kafka().read_text()
            except tools.ToolMissingError as missing:
                progress.print(f"  skipped: {missing}")
                return
            yield from measure(world, class_path, rounds=rounds, **sized)

        return run

    return {
        f"{_KAFKA}-one": measured(kafka.one, seconds=options.seconds),
        f"{_KAFKA}-many": measured(kafka.many, entities=options.bulk),
        f"{_KAFKA}-seen": measured(kafka.visibility, changes=options.changes),
        **{f"{_KAFKA}-all-{size}": measured(kafka.everything, entities=size) for size in sizes},
        f"{_KAFKA}-start": measured(kafka.start, entities=options.entities),
        "configs": measured(configs.measure),
        "kraft-applied": measured(kraft_applied.measure, kafka=tools.kraft_class_path, seconds=options.seconds),
        "kraft": measured(
            kraft.measure,
            kafka=tools.kraft_class_path,
            seconds=options.seconds,
            entities=options.entities,
            changes=options.changes,
        ),
    }


def _machine() -> str:
    models = [line.partition(":")[2].strip() for line in _lines("/proc/cpuinfo") if line.startswith("model name")]
    packages = ", ".join(f"{name} {version(name)}" for name in ("uvicorn", "uvloop", "starlette", "fastapi", "kazoo"))
    return (
        f"{os.cpu_count()} cores ({models[0] if models else platform.machine()}), {platform.system()}"
        f" {platform.release()}; Python {platform.python_version()}, {packages}."
    )


def _lines(path: str) -> list[str]:
    try:
        return Path(path).read_text().splitlines()
    except OSError:
        return []


if __name__ == "__main__":
    main()
