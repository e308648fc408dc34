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
Three ZooKeeper servers, one Postgres, three Confplane processes and a hundred clients, and
faults at random: processes are killed and paused, also at each step of the write protocol,
lines are cut, slowed and made to lose requests or replies, sessions are ended by others,
controllers move. Each client writes down what it asked and was answered. Once all is quiet
again, a checker reads that history, the trail, the znodes and ZooKeeper's own logs.

A round is one fault. Faults are chosen by the seed; what they hit depends on timing as well,
so a seed gives the same kind of run again, not the very same one.
"""
_EPILOG = """\
examples:
  python -m tests.faults --seed 7 --rounds 20
  python -m tests.faults --seed 1 --rounds 100 --output /var/tmp/faults-1 --keep
  python -m tests.faults --merge /var/tmp/faults-*/report.json
  python -m tests.faults --check /var/tmp/faults-1/run.json     check a run again

exit status: 0 when nothing was found, 1 when something was, 2 when the run could not be made.
A run that found something keeps its directory: history.jsonl (each call), faults.log (when which
fault struck), run.json (all that the checker read), report.json, and the logs of all processes.
"""


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog="python -m tests.faults",
        description=_DESCRIPTION,
        epilog=_EPILOG,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--seed", type=int, default=1, help="of all choices (default: 1)")
    parser.add_argument("--rounds", type=int, default=20, help="how many faults (default: 20)")
    parser.add_argument("--clients", type=int, default=100, help="concurrent clients (default: 100)")
    parser.add_argument(
        "--pause", type=float, default=1.0, metavar="S", help="a client's pause between requests (default: 1.0)"
    )
    parser.add_argument(
        "--gap", type=float, default=2.0, metavar="S", help="between the begins of two faults, at most (default: 2.0)"
    )
    parser.add_argument("--output", type=Path, metavar="DIR", help="a new directory (default: one in the temporary)")
    parser.add_argument("--keep", action="store_true", help="keep the directory also when nothing was found")
    parser.add_argument(
        "--disk-full",
        action="store_true",
        help="fill Postgres's disk too: its data go to a tmpfs of their own, which root alone may mount",
    )
    parser.add_argument("--merge", nargs="+", type=Path, metavar="REPORT", help="print reports of runs as one")
    parser.add_argument("--check", type=Path, metavar="RUN", help="check a kept run.json again")
    arguments = parser.parse_args()
    if arguments.rounds < 1 or arguments.clients < 1:
        parser.error("--rounds and --clients are at least 1")
    if arguments.output is not None and arguments.output.exists() and any(arguments.output.iterdir()):
        parser.error(f"{arguments.output} is there already, and not empty")
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
        disk_full=arguments.disk_full,
    )
    columns = (BarColumn(), MofNCompleteColumn(), TimeElapsedColumn(), TextColumn("{task.description}"))
    with Progress(*columns, console=console) as progress:
        task = progress.add_task("starting", total=plan.rounds)
        report = asyncio.run(
            run(plan, check, told=lambda what, rounds: progress.update(task, description=what, completed=rounds))
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
    """Do what the command line says."""
    arguments = _arguments()
    logging.getLogger("kazoo").setLevel(logging.CRITICAL)
    console = Console()
    if arguments.merge:
        return _merge(arguments.merge, console)
    if arguments.check:
        return _check(arguments.check, console)
    try:
        return _run(arguments, console)
    except Exception:  # noqa: BLE001 - whatever it is, a person has to see it
        console.print_exception()
        return 2


if __name__ == "__main__":
    sys.exit(main())
