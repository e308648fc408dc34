"""``python -m tests.faults``: the fault suite's command."""

from __future__ import annotations

import argparse
import asyncio
import logging
import shutil
import sys
import tempfile
from pathlib import Path

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

from tests.faults.checker import check
from tests.faults.history import load_run
from tests.faults.report import Report, load_report, merged
from tests.faults.suite import Plan, run

_DESCRIPTION = """\
Three ZooKeeper servers, one Postgres, three Confplane processes and a hundred clients run
under random faults: processes are killed and paused, also at each step of the write protocol;
ZooKeeper servers are partitioned; connections are cut, slowed and lose requests or responses;
sessions are ended by another client; notifications are deleted; controllers move. Each client
records its requests and the responses. When no work is left, a checker compares that history,
the trail, the znodes and ZooKeeper's own logs.

A round is one fault. The seed chooses the faults; their effects depend on timing as well, so
a seed gives a similar run again, not the same one.
"""
_EPILOG = """\
examples:
  python -m tests.faults --seed 7 --rounds 20
  python -m tests.faults --seed 1 --rounds 100 --output /var/tmp/faults-1 --keep
  python -m tests.faults --only partitioned --only "session expired" --rounds 30
  python -m tests.faults --merge /var/tmp/faults-*/report.json
  python -m tests.faults --check /var/tmp/faults-1/run.json     check a run again

exit status: 0 when nothing was found, 1 when something was, 2 when the run could not be made.
A run that found something keeps its directory: history.jsonl (each call), faults.log (the faults
and their times), run.json (the input of the checker), report.json, and the logs of all processes.
"""


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog="python -m tests.faults",
        description=_DESCRIPTION,
        epilog=_EPILOG,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--seed", type=int, default=1, help="seed of all choices (default: 1)")
    parser.add_argument("--rounds", type=int, default=20, help="number of faults (default: 20)")
    parser.add_argument("--clients", type=int, default=100, help="concurrent clients (default: 100)")
    parser.add_argument(
        "--pause", type=float, default=1.0, metavar="S", help="a client's average pause between requests (default: 1.0)"
    )
    parser.add_argument(
        "--gap",
        type=float,
        default=2.0,
        metavar="S",
        help="longest pause between the begins of two faults (default: 2.0)",
    )
    parser.add_argument("--replicas", type=int, default=3, help="Confplane processes (default: 3)")
    parser.add_argument(
        "--only",
        action="append",
        default=[],
        metavar="TEXT",
        help="choose only faults whose kind contains this text, as reports spell it; can be repeated",
    )
    parser.add_argument("--output", type=Path, metavar="DIR", help="a new directory (default: a temporary one)")
    parser.add_argument("--keep", action="store_true", help="keep the directory even if nothing was found")
    parser.add_argument(
        "--disk-full",
        action="store_true",
        help="also fill Postgres's disk: its data are in a tmpfs of their own, which only root can mount",
    )
    parser.add_argument("--merge", nargs="+", type=Path, metavar="REPORT", help="print reports of runs as one")
    parser.add_argument("--check", type=Path, metavar="RUN", help="check a kept run.json again")
    arguments = parser.parse_args()
    if min(arguments.rounds, arguments.clients, arguments.replicas) < 1:
        parser.error("--rounds, --clients and --replicas must be at least 1")
    if arguments.output is not None and arguments.output.exists() and any(arguments.output.iterdir()):
        parser.error(f"{arguments.output} is not empty. Name a new directory")
    return arguments


def _run(arguments: argparse.Namespace, console: Console) -> int:
    directory: Path = (arguments.output or Path(tempfile.mkdtemp(prefix="confplane-faults-"))).absolute()
    plan = Plan(
        seed=arguments.seed,
        rounds=arguments.rounds,
        directory=directory,
        clients=arguments.clients,
        pause_s=arguments.pause,
        gap_s=arguments.gap,
        replicas=arguments.replicas,
        only=tuple(arguments.only),
        disk_full=arguments.disk_full,
    )
    columns = (BarColumn(), MofNCompleteColumn(), TimeElapsedColumn(), TextColumn("{task.description}"))
    with Progress(*columns, console=console) as progress:
        task = progress.add_task("starting", total=plan.rounds)
        report = asyncio.run(
            run(plan, check, on_progress=lambda what, rounds: progress.update(task, description=what, completed=rounds))
        )
    console.print(str(report), markup=False, highlight=False, soft_wrap=True)
    if report.violations or arguments.keep or arguments.output is not None:
        console.print(f"kept in {directory}", markup=False, highlight=False, soft_wrap=True)
    else:
        shutil.rmtree(directory)
    return 1 if report.violations else 0


def _merge(paths: list[Path], console: Console) -> int:
    report: Report = merged(load_report(path) for path in paths)
    console.print(str(report), markup=False, highlight=False, soft_wrap=True)
    return 1 if report.violations else 0


def _check(path: Path, console: Console) -> int:
    found = check(load_run(path))
    for violation in found:
        console.print(str(violation), markup=False, highlight=False, soft_wrap=True)
    console.print(f"{len(found)} violations", highlight=False)
    return 1 if found else 0


def main() -> int:
    """Run the command."""
    arguments = _arguments()
    logging.getLogger("kazoo").setLevel(logging.CRITICAL)
    console = Console()
    if arguments.merge:
        return _merge(arguments.merge, console)
    if arguments.check:
        return _check(arguments.check, console)
    try:
        return _run(arguments, console)
    except Exception:  # noqa: BLE001 - any error has to be shown
        console.print_exception()
        return 2


if __name__ == "__main__":
    sys.exit(main())
