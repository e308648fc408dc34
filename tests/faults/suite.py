"""One run: start everything, let clients write while faults are injected, wait for quiet, collect, check."""

from __future__ import annotations

import asyncio
import random
import time
from collections import Counter
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Final

from tests.faults.collect import NotQuietError, collect, until_quiet
from tests.faults.faults import start_again
from tests.faults.feed_reader import FeedReader
from tests.faults.history import InjectedFault, Recorder, Violation, save_run
from tests.faults.report import Report
from tests.faults.schedule import LONGEST_S, Schedule
from tests.faults.topology import REPLICAS, Topology, answer
from tests.faults.workload import CLIENTS, Workload

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
        seed: The seed of all choices.
        rounds: The number of faults to inject.
        directory: A new or empty directory for everything that the run leaves.
        clients: The number of clients.
        pause_s: The average pause between two requests of a client.
        gap_s: The longest pause between the begin of a fault and the choice of the next.
        longest_s: The longest duration of a fault.
        replicas: The number of replicas of Confplane.
        only: Parts of the names of the kinds of faults to choose from; empty for all.
        disk_full: Whether Postgres's disk may be filled; needs the right to mount.
    """

    seed: int
    rounds: int
    directory: Path
    clients: int = CLIENTS
    pause_s: float = 1.0
    gap_s: float = 2.0
    longest_s: float = LONGEST_S
    replicas: int = REPLICAS
    only: tuple[str, ...] = ()
    disk_full: bool = False


@dataclass(slots=True)
class _Rounds:
    """The current faults, and the earlier ones."""

    log: Path
    """A line for each begin, injection and end of a fault."""
    faults: list[InjectedFault] = field(default_factory=list)
    injected: Counter[str] = field(default_factory=Counter)
    running: dict[asyncio.Task[None], Fault] = field(default_factory=dict)
    failures: list[BaseException] = field(default_factory=list)

    @property
    def count(self) -> int:
        return self.injected.total()

    def note(self, fault: Fault, moment: str) -> None:
        now = datetime.now(UTC).isoformat(timespec="milliseconds")
        with self.log.open("a", encoding="utf-8") as file:
            file.write(f"{now} {time.monotonic():.3f} {moment}: {fault.kind} {sorted(fault.targets)}\n")


async def run(
    plan: Plan, check: Callable[[Run], list[Violation]], *, on_progress: Callable[[str, int], None] | None = None
) -> Report:
    """Make a run, write ``report.json``, ``run.json``, ``faults.log`` and the history, and return the report.

    Args:
        plan: The parameters.
        check: Finds the violations.
        on_progress: Called with the current action and the number of completed rounds.

    Raises:
        DevStackError: A server could not be started.
    """
    tell = on_progress or (lambda _action, _rounds: None)
    plan.directory.mkdir(parents=True, exist_ok=True)
    history = plan.directory / "history.jsonl"
    report = Report(seeds=[plan.seed])
    tell("starting", 0)
    async with Topology(plan.directory, replicas=plan.replicas, disk_full=plan.disk_full) as topology:
        baseline = await _baseline(topology)
        reader = FeedReader([(each.url, each.service.token) for each in topology.replicas], seed=plan.seed)
        with history.open("w", encoding="utf-8") as file:
            recorder = Recorder(file)
            workload = Workload(topology, recorder, seed=plan.seed, pause_s=plan.pause_s, clients=plan.clients)
            await reader.start()
            workload.start()
            began = time.monotonic()
            schedule = _schedule(plan, topology)
            rounds = _Rounds(plan.directory / "faults.log")
            try:
                await asyncio.sleep(_WARM_UP_S)
                await _inject(plan, schedule, rounds, tell, workload)
            finally:
                await asyncio.gather(*rounds.running, return_exceptions=True)
                report.seconds = round(time.monotonic() - began, 1)
                ended = time.monotonic()
                tell("waiting for the clients", rounds.count)
                await workload.stop()
            if rounds.failures:
                raise rounds.failures[0]
        reached = Counter(step for replica in topology.replicas for step in replica.steps())
        report.count_faults(schedule.possible(), rounds.injected, schedule.missed, reached)
        report.count_calls(recorder)
        tell("waiting for quiet", rounds.count)
        violations = [Violation("the schedule", f"could not be injected: {name}") for name in schedule.unmet]
        violations += await _restart_ended(topology)
        quiet_s: float | None = None
        try:
            await until_quiet(topology, QUIET_S)
            quiet_s = time.monotonic() - ended
        except NotQuietError as error:
            violations.append(Violation("quiet", str(error)))
        await reader.stop()
        tell("collecting", rounds.count)
        found = replace(
            await collect(
                topology, history, seed=plan.seed, quiet_s=quiet_s, baseline_zxid=baseline, faults=rounds.faults
            ),
            feed=tuple(reader.events),
            feed_refusals=tuple(reader.refusals),
        )
    save_run(found, plan.directory / "run.json")
    report.count_run(found)
    tell("checking", rounds.count)
    violations += await asyncio.to_thread(check, found)
    report.violations = [str(violation) for violation in violations]
    report.save(plan.directory / "report.json")
    return report


async def _baseline(topology: Topology) -> int:
    """Wait until the recorder knows the cluster, and return the revision from which it records.

    It accepts earlier writes as they are.
    """
    await until_quiet(topology, QUIET_S)
    stat = await answer(topology.zk.set_async("/controller_epoch", b"1"), 30)
    return int(stat.mzxid)


def _schedule(plan: Plan, topology: Topology) -> Schedule:
    """Return the schedule.

    Raises:
        ValueError: No kind of fault is left to choose from.
    """
    chooser = random.Random(f"{plan.seed} faults")  # noqa: S311 - a seed gives the same run again
    schedule = Schedule(topology, chooser, rounds=plan.rounds, longest_s=plan.longest_s, only=plan.only)
    if schedule.exhausted:
        raise ValueError(f"no kind of fault has {' or '.join(map(repr, plan.only))} in its name")
    return schedule


async def _inject(
    plan: Plan, schedule: Schedule, rounds: _Rounds, tell: Callable[[str, int], None], workload: Workload
) -> None:
    """Inject all faults."""
    chooser = random.Random(f"{plan.seed} pauses")  # noqa: S311 - as above
    while rounds.count + len(rounds.running) < plan.rounds or rounds.running:
        if workload.failures or rounds.failures or (schedule.exhausted and not rounds.running):
            break
        complete = rounds.count + len(rounds.running) >= plan.rounds or schedule.exhausted
        if len(rounds.running) >= _AT_ONCE or complete:
            await asyncio.wait(rounds.running, return_when=asyncio.FIRST_COMPLETED)
            continue
        busy = frozenset().union(*(fault.targets for fault in rounds.running.values()))
        fault = await schedule.choose(busy, plan.rounds - rounds.count - len(rounds.running))
        if fault is None:
            await asyncio.sleep(0.5)
            continue
        tell(fault.kind, rounds.count)
        task = asyncio.create_task(_one(fault, rounds, schedule))
        rounds.running[task] = fault
        task.add_done_callback(lambda task: _ended(task, rounds))
        if chooser.random() < 0.4:
            await asyncio.wait({task})
        await asyncio.sleep(chooser.uniform(0.1, plan.gap_s))


async def _one(fault: Fault, rounds: _Rounds, schedule: Schedule) -> None:
    """Begin and end one fault."""
    rounds.note(fault, "begin")
    try:
        injected = await fault.begin()
    except BaseException:
        await fault.end()
        raise
    began = time.monotonic()
    rounds.note(fault, "injected" if injected else "missed")
    schedule.record(fault, injected=injected)
    if injected:
        try:
            await asyncio.sleep(fault.seconds)
        finally:
            rounds.faults.append(InjectedFault(fault.kind, tuple(sorted(fault.targets)), began, time.monotonic()))
            await fault.end()
            rounds.note(fault, "end")
        rounds.injected[fault.kind] += 1


def _ended(task: asyncio.Task[None], rounds: _Rounds) -> None:
    rounds.running.pop(task)
    if not task.cancelled() and (error := task.exception()) is not None:
        rounds.failures.append(error)


async def _restart_ended(topology: Topology) -> list[Violation]:
    """Start servers that ended by themselves, as they may after such faults. Confplane may not."""
    for server in (*topology.ensemble.members, topology.postgres):
        if not server.running():
            await asyncio.to_thread(server.kill)
            await asyncio.to_thread(start_again, server)
    ended = [replica for replica in topology.replicas if not replica.service.running]
    for replica in ended:
        await replica.kill()
        replica.start()
    return [Violation("a process continues", f"Confplane {replica.number} ended by itself") for replica in ended]
