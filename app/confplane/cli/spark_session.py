"""The Spark session of ``confplane rollups run`` and ``export``, and their progress."""

from __future__ import annotations

import os
import sys
import threading
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from confplane.cli.output import bars, echo
from confplane.devstack.java import find_java
from confplane.rollups import java_settings
from confplane.rollups.class_archive import ClassArchive
from confplane.rollups.errors import spark_errors
from confplane.rollups.java_settings import SETTINGS, java_options, join_java_options, names_archive
from confplane.rollups.session import is_running, session, submitted

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping

    from confplane.rollups.session import StageProgress
    from confplane.settings import Settings


_LOGGING: Final = Path(__file__).parents[1] / "rollups" / "log4j2.properties"
_LEVEL: Final = "spark.log.level"


@contextmanager
def spark_session(settings: Settings, master: str | None, *, small: bool, archives_classes: bool) -> Iterator[Any]:
    """Return the Spark session of a command, or that of spark-submit if there is one, for the duration of a block.

    Args:
        settings: The service's.
        master: As of :func:`session`.
        small: The command reads little (rollups/java_settings.py), which matters only if Spark runs on this machine
            alone.
        archives_classes: Use an archive of Java's classes if the command reads little, and make one at the end of the
            block if there is none.

    Raises:
        DevStackError: There is no Java.
        RuntimeError: Java did not start.
        SparkFailedError: Spark did not start.
    """
    archive = _archive(master) if small and archives_classes else None
    with spark_errors():
        spark = _start(settings, master, small=small, archive=archive)
    if archive is None or archive.is_made:
        yield spark
        return
    with archive.kept(spark):
        yield spark
        echo("Done; keeping Java's classes, once, for later runs (not with --no-class-archive)", err=True)


def _archive(master: str | None) -> ClassArchive | None:
    """Return the class-data archive for the Java of a run that reads little, or None if none can be used."""
    is_ours = not submitted() and not is_running()
    return ClassArchive.of(find_java()) if is_ours and _is_local(master) and not names_archive() else None


def _is_local(master: str | None) -> bool:
    return master is None or master.startswith("local")


def _start(settings: Settings, master: str | None, *, small: bool, archive: ClassArchive | None) -> Any:
    quiet = {} if settings.log_level == "debug" else {_LEVEL: "ERROR"}
    if submitted():
        # spark-submit logs each step of each task otherwise. Its own options take precedence.
        return session(master, defaults=quiet)
    java = find_java()
    _use(java)
    options = [f"-Dlog4j2.configurationFile={_LOGGING.as_uri()}"]
    given = dict(quiet)
    if _is_local(master):
        if small:
            given |= SETTINGS
            options += java_options()
        else:
            java_settings.set_limit(java)
    if archive is not None:
        options += archive.options()
    return session(master, settings={"spark.driver.extraJavaOptions": join_java_options(options), **given})


def _use(java: Path) -> None:
    """Make Spark's script run this Java, which is the first on the PATH unless JAVA_HOME has it."""
    home = os.environ.get("JAVA_HOME")
    if home and Path(home, "bin", "java") != java:
        del os.environ["JAVA_HOME"]


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
    done = threading.Event()
    if sys.stderr.isatty():
        follow = _bar(stages, title, done)
    else:
        echo(title, err=True)
        follow = _lines(stages, title, done)
    follower = threading.Thread(target=follow, name="progress", daemon=True)
    follower.start()
    try:
        yield
    finally:
        done.set()
        follower.join()


def _bar(stages: Callable[[], Mapping[int, StageProgress]], title: str, done: threading.Event) -> Callable[[], None]:
    def follow() -> None:
        with bars(transient=True) as progress:
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
                echo(f"{title}: stage {place}, {stage.done} of {stage.tasks} tasks", err=True)
                shown.add(number)
            known |= running

    return follow
