"""``python -m tests.bench.sample``: write a made-up cluster, for trying the rollups out and for benches.

It reads and writes nothing else, and needs the extra `spark` but no Java.
"""

from __future__ import annotations

from pathlib import Path  # noqa: TC003 - typer evaluates the annotations of commands
from typing import Annotated, Final

import typer
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

from tests.bench.sample.files import write
from tests.bench.sample.trail import Plan

_DONE: Final = 0
_FAILED: Final = 1

program = typer.Typer(pretty_exceptions_enable=False)


@program.command()
def main(
    *,
    output: Annotated[Path, typer.Option("--output", "-o", metavar="DIR", help="A new or empty directory.")],
    entities: Annotated[int, typer.Option(min=0, metavar="N", help="Number of entities.")] = 10_000,
    events: Annotated[
        int, typer.Option(min=0, metavar="M", help="Number of changes in the trail; half as many registrations.")
    ] = 100_000,
    seed: Annotated[int, typer.Option(metavar="S", help="The same seed makes the same data.")] = 1,
) -> None:
    """Make up a cluster of any size, in Parquet: months of changes, registrations, and the znodes."""
    raise typer.Exit(run(output, entities=entities, events=events, seed=seed))


def run(directory: Path, *, entities: int, events: int, seed: int) -> int:
    """Write it, and return the exit code.

    Args:
        directory: A new one, or an empty one.
        entities: How many there are.
        events: Changes in the trail.
        seed: The same one makes the same rows.
    """
    if directory.exists() and (not directory.is_dir() or any(directory.iterdir())):
        typer.echo(f"Not written: {directory} is there, and is not an empty directory", err=True)
        return _FAILED
    columns = TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn()
    with Progress(*columns, console=Console(stderr=True)) as progress:
        totals = {
            "changes": events, "refused_attempts": events // 10, "registration_events": events // 2, "reports": None,
            "znodes": None, "states": None,
        }  # fmt: skip
        tasks = {name: progress.add_task(name, total=total, start=False) for name, total in totals.items()}
        rows = dict.fromkeys(totals, 0)

        def told(name: str, count: int) -> None:
            if not rows[name]:
                progress.start_task(tasks[name])
            rows[name] += count
            progress.advance(tasks[name], count)

        try:
            write(Plan(entities, events, seed), directory, told)
        except OSError as error:
            typer.echo(f"Not written: {error.strerror} ({directory})", err=True)
            return _FAILED
    written = ", ".join(f"{count:,} {name.replace('_', ' ')}" for name, count in rows.items())
    typer.echo(f"{written} in {directory}")
    return _DONE


if __name__ == "__main__":
    program()
