"""``python -m tests.interop.differential``: play a seed's cases, or one of them again, and print what differs."""

from __future__ import annotations

import asyncio
import sys
import tempfile
import time
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from tests.interop.differential.both_sides import BothSides, run_both_sides
from tests.support import tools
from tests.support.servers import run_postgres, run_zookeeper

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tests.interop.differential.runner import Result


program = typer.Typer(pretty_exceptions_enable=False)


@program.command()
def main(
    seed: Annotated[list[int], typer.Option(help="Several are played one after the other")],
    cases: Annotated[int, typer.Option(help="Of each seed")] = 5000,
    step: Annotated[
        int | None, typer.Option(help="Play this one of the seed again, with those that lead to it")
    ] = None,
) -> None:
    """Play generated requests to Kafka and to Confplane; status 1 where a difference is none of the page's."""
    with tempfile.TemporaryDirectory(prefix="confplane-differential-") as directory, _started(Path(directory)) as both:
        failed = asyncio.run(_run(both, seed, cases, step))
    raise typer.Exit(int(failed))


async def _run(both: BothSides, seeds: list[int], cases: int, step: int | None) -> bool:
    failed = False
    async with both.runner() as runner:
        for seed in seeds:
            began = time.monotonic()
            result = await (runner.run(seed, cases, told=_tell) if step is None else runner.replay(seed, step))
            sys.stdout.write(f"seed {seed}: {result.cases} cases in {time.monotonic() - began:.0f} s\n")
            _print(result)
            failed = failed or bool(result.failures)
    return failed


def _tell(result: Result) -> None:
    if sys.stderr.isatty():
        sys.stderr.write(f"\r{result.cases} cases, {len(result.failures)} failures ")
        sys.stderr.flush()


def _print(result: Result) -> None:
    sys.stdout.write(f"{result.counts()}\n")
    for failure in result.failures:
        sys.stdout.write(f"\n{failure.report()}\n")


@contextmanager
def _started(directory: Path) -> Iterator[BothSides]:
    class_path = tools.kafka_class_path().read_text()
    with (
        contextmanager(run_zookeeper)(directory / "zookeeper") as zookeeper,
        contextmanager(run_postgres)(directory / "postgres") as postgres,
        run_both_sides(directory, hosts=zookeeper.hosts, postgres=postgres, class_path=class_path) as both,
    ):
        yield both


if __name__ == "__main__":
    program()
