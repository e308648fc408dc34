"""``confplane rollups sample-data``: a made-up cluster as a snapshot, for trying the rollups out and for benches."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import typer
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

from app.rollups.sample.files import write
from app.rollups.sample.trail import Plan

if TYPE_CHECKING:
    from pathlib import Path

_DONE: Final = 0
_FAILED: Final = 1


def run(directory: Path, *, entities: int, events: int, seed: int) -> int:
    """Write the snapshot, and return the exit code.

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
        totals = {"changes": events, "registration_events": events // 2, "znodes": None, "states": None}
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
