"""The progress of a run on standard error: a bar in a terminal, otherwise a line per job and per long stage."""

from __future__ import annotations

import threading
from contextlib import contextmanager
from typing import TYPE_CHECKING, Final

import typer
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, SpinnerColumn, TextColumn, TimeElapsedColumn

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping

    from confplane.rollups.progress import StageProgress

REFRESH_S: Final = 0.25
LONG_S: Final = 2.0
"""Seconds between two looks at the stages without a terminal: a stage that runs at both has a line."""


@contextmanager
def show_progress(stages: Callable[[], Mapping[int, StageProgress]], title: str) -> Iterator[None]:
    """Show the progress of a run during a block.

    Args:
        stages: Returns the stages known so far, by their numbers.
        title: The job, and its place among all.
    """
    console = Console(stderr=True)
    done = threading.Event()
    if console.is_terminal:
        follow = _bar(console, stages, title, done)
    else:
        typer.echo(title, err=True)
        follow = _lines(stages, title, done)
    follower = threading.Thread(target=follow, name="progress", daemon=True)
    follower.start()
    try:
        yield
    finally:
        done.set()
        follower.join()


def _bar(
    console: Console, stages: Callable[[], Mapping[int, StageProgress]], title: str, done: threading.Event
) -> Callable[[], None]:
    columns = (
        SpinnerColumn(),
        TextColumn("{task.description}"),
        BarColumn(),
        MofNCompleteColumn(),
        TextColumn("tasks"),
        TimeElapsedColumn(),
    )

    def follow() -> None:
        with Progress(*columns, console=console, transient=True) as progress:
            bar = progress.add_task(title, total=None)
            while not done.wait(REFRESH_S):
                if found := stages().values():
                    done_tasks, tasks = sum(each.done for each in found), sum(each.tasks for each in found)
                    progress.update(bar, completed=done_tasks, total=tasks)

    return follow


def _lines(stages: Callable[[], Mapping[int, StageProgress]], title: str, done: threading.Event) -> Callable[[], None]:
    def follow() -> None:
        known: set[int] = set()
        shown: set[int] = set()
        while not done.wait(LONG_S):
            found = stages()
            running = {number for number, stage in found.items() if stage.is_running}
            for number in sorted(running & known - shown):
                place, stage = sorted(found).index(number) + 1, found[number]
                typer.echo(f"{title}: stage {place}, {stage.done} of {stage.tasks} tasks", err=True)
                shown.add(number)
            known |= running

    return follow
