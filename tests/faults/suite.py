"""One run: start it all, let clients write while faults come and go, wait for quiet, collect, check."""

from __future__ import annotations

import asyncio
import random
import time
from collections import Counter
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Final

from tests.faults import kinds
from tests.faults.collect import NotQuietError, collect, until_quiet
from tests.faults.faults import LONGEST_S, Chooser, start_again
from tests.faults.history import Recorder, Strike, Violation, save_run
from tests.faults.report import Report, tally
from tests.faults.topology import Topology, answer
from tests.faults.workload import CLIENTS, Workload
from tests.support.stepping import STEPS

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from tests.faults.faults import Fault
    from tests.faults.history import Run

QUIET_S: Final = 300.0
"""Seconds until all is quiet at the latest, on a machine that does much else besides."""
_AT_ONCE: Final = 3
"""Faults that may overlap."""
_WARM_UP_S: Final = 1.0


@dataclass(frozen=True, slots=True)
class Plan:
    """The parameters of a run.

    Attributes:
        seed: Of all that is chosen.
        rounds: Faults that must strike.
        directory: Everything is below it; must not be there, or be empty.
        clients: How many.
        pause_s: Between two requests of a client, on average.
        gap_s: Between the begin of a fault and the choice of the next, at most.
        longest_s: Of a fault.
        disk_full: Whether Postgres's disk may become full; needs the right to mount.
    """

    seed: int
    rounds: int
    directory: Path
    clients: int = CLIENTS
    pause_s: float = 1.0
    gap_s: float = 2.0
    longest_s: float = LONGEST_S
    disk_full: bool = False


@dataclass(slots=True)
class _Rounds:
    """The faults under way, and those that were."""

    log: Path
    """A line for each begin, strike and end of a fault."""
    strikes: list[Strike] = field(default_factory=list)
    struck: Counter[str] = field(default_factory=Counter)
    missed: int = 0
    running: dict[asyncio.Task[None], Fault] = field(default_factory=dict)
    failures: list[BaseException] = field(default_factory=list)

    @property
    def count(self) -> int:
        return self.struck.total()

    def note(self, fault: Fault, moment: str) -> None:
        now = datetime.now(UTC).isoformat(timespec="milliseconds")
        with self.log.open("a", encoding="utf-8") as file:
            file.write(f"{now} {time.monotonic():.3f} {moment}: {fault.kind} {sorted(fault.targets)}\n")


async def run(
    plan: Plan, check: Callable[[Run], list[Violation]], *, told: Callable[[str, int], None] | None = None
) -> Report:
    """Make a run, write ``report.json``, ``run.json``, ``faults.log`` and the history, and return the report.

    Args:
        plan: What to do.
        check: What finds violations.
        told: Is told what happens, and how many rounds are done.

    Raises:
        DevStackError: A server could not be started.
    """
    tell = told or (lambda _what, _rounds: None)
    plan.directory.mkdir(parents=True, exist_ok=True)
    history = plan.directory / "history.jsonl"
    report = Report(seeds=[plan.seed])
    tell("starting", 0)
    async with Topology(plan.directory, disk_full=plan.disk_full) as topology:
        baseline = await _baseline(topology)
        with history.open("w", encoding="utf-8") as file:
            recorder = Recorder(file)
            workload = Workload(topology, recorder, seed=plan.seed, pause_s=plan.pause_s, clients=plan.clients)
            workload.start()
            began = time.monotonic()
            rounds = _Rounds(plan.directory / "faults.log")
            try:
                await asyncio.sleep(_WARM_UP_S)
                unmet = await _strike(plan, topology, rounds, tell, workload)
            finally:
                await asyncio.gather(*rounds.running, return_exceptions=True)
                report.seconds = round(time.monotonic() - began, 1)
                ended = time.monotonic()
                tell("waiting for the clients", rounds.count)
                await workload.stop()
            if rounds.failures:
                raise rounds.failures[0]
        report.rounds, report.missed, report.faults = rounds.count, rounds.missed, tally(kinds.ALL, rounds.struck)
        report.steps = tally(STEPS, Counter(step for replica in topology.replicas for step in replica.steps_met()))
        report.calls, report.writes = recorder.calls, recorder.writes
        report.acknowledged, report.unknown = recorder.acknowledged, recorder.unknown
        tell("waiting for quiet", rounds.count)
        violations = [Violation("the schedule", f"in no try: {what}") for what in unmet] + await _mend(topology)
        quiet_s: float | None = None
        try:
            await until_quiet(topology, QUIET_S)
            quiet_s = time.monotonic() - ended
        except NotQuietError as error:
            violations.append(Violation("quiet", str(error)))
        tell("collecting", rounds.count)
        found = await collect(
            topology, history, seed=plan.seed, quiet_s=quiet_s, baseline_zxid=baseline, faults=rounds.strikes
        )
    save_run(found, plan.directory / "run.json")
    report.count_run(found)
    tell("checking", rounds.count)
    violations += await asyncio.to_thread(check, found)
    report.violations = [str(violation) for violation in violations]
    report.save(plan.directory / "report.json")
    return report


async def _baseline(topology: Topology) -> int:
    """Wait until the recorder has met the cluster, and return the revision from which it records.

    What is written before that is taken as it is.
    """
    await until_quiet(topology, QUIET_S)
    stat = await answer(topology.zk.set_async("/controller_epoch", b"1"), 30)
    return int(stat.mzxid)


async def _strike(
    plan: Plan, topology: Topology, rounds: _Rounds, tell: Callable[[str, int], None], workload: Workload
) -> list[str]:
    """Have all faults strike, and return what the run must have and never met."""
    chooser = random.Random(f"{plan.seed} faults")  # noqa: S311 - a seed gives the same run again
    faults = Chooser(topology, chooser, rounds=plan.rounds, longest_s=plan.longest_s)
    while rounds.count + len(rounds.running) < plan.rounds or rounds.running:
        if workload.failures or rounds.failures:
            break
        if len(rounds.running) >= _AT_ONCE or rounds.count + len(rounds.running) >= plan.rounds:
            await asyncio.wait(rounds.running, return_when=asyncio.FIRST_COMPLETED)
            continue
        busy = frozenset().union(*(fault.targets for fault in rounds.running.values()))
        fault = await faults.choose(busy, plan.rounds - rounds.count - len(rounds.running))
        if fault is None:
            await asyncio.sleep(0.5)
            continue
        tell(fault.kind, rounds.count)
        task = asyncio.create_task(_one(fault, rounds, faults))
        rounds.running[task] = fault
        task.add_done_callback(lambda task: _ended(task, rounds))
        if chooser.random() < 0.4:
            await asyncio.wait({task})
        await asyncio.sleep(chooser.uniform(0.1, plan.gap_s))
    return faults.unmet


async def _one(fault: Fault, rounds: _Rounds, faults: Chooser) -> None:
    """See one fault through."""
    if fault.kind not in kinds.ALL:
        raise ValueError(f"{fault.kind} is not among the kinds of faults")
    rounds.note(fault, "begin")
    try:
        struck = await fault.begin()
    except BaseException:
        await fault.end()
        raise
    began = time.monotonic()
    rounds.note(fault, "struck" if struck else "missed")
    faults.struck(fault, hit=struck)
    if struck:
        try:
            await asyncio.sleep(fault.seconds)
        finally:
            rounds.strikes.append(Strike(fault.kind, tuple(sorted(fault.targets)), began, time.monotonic()))
            await fault.end()
            rounds.note(fault, "end")
        rounds.struck[fault.kind] += 1
    else:
        rounds.missed += 1


def _ended(task: asyncio.Task[None], rounds: _Rounds) -> None:
    rounds.running.pop(task)
    if not task.cancelled() and (error := task.exception()) is not None:
        rounds.failures.append(error)


async def _mend(topology: Topology) -> list[Violation]:
    """Start servers that have ended by themselves, as they may after all that was done to them. Confplane may not."""
    for server in (*topology.ensemble.members, topology.postgres):
        if not server.running():
            await asyncio.to_thread(server.kill)
            await asyncio.to_thread(start_again, server)
    ended = [replica for replica in topology.replicas if not replica.service.running]
    for replica in ended:
        await replica.kill()
        replica.start()
    return [Violation("a process goes on", f"Confplane {replica.number} ended by itself") for replica in ended]
