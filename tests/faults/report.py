"""The report of a run, and of several runs together."""

from __future__ import annotations

import json
from collections import Counter
from dataclasses import asdict, dataclass, field, fields
from typing import TYPE_CHECKING, Final

from tests.faults.history import UNNOTIFIED, Kind
from tests.faults.kinds import can_be_stale, reachable_steps

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence
    from pathlib import Path

    from tests.faults.history import Call, Recorder, Run

_STALE: Final = "reads reported as stale"
_HABITS: Final[dict[str, Callable[[Call], bool]]] = {
    "clients hung up": lambda call: call.failure == "TimeoutError",
    "requests sent again": lambda call: call.resend_of is not None,
    "responses replayed": lambda call: call.replayed,
    "requests for validation only": lambda call: call.validate_only and call.acknowledged,
    "temporary changes": lambda call: call.temporary and call.acknowledged,
    "temporary changes that were ended early": lambda call: call.ends is not None and call.acknowledged,
    "reverts": lambda call: call.reverts is not None and call.change_id is not None,
    "external writes without a notification": lambda call: call.failure == UNNOTIFIED,
    "external deletions": lambda call: call.kind is Kind.EXTERNAL and call.method == "DELETE" and call.acknowledged,
    _STALE: lambda call: call.kind is Kind.READ and call.stale_ms is not None,
}


@dataclass
class Report:
    """Actions and findings of a run; ``python -m tests.faults`` writes them as ``report.json``."""

    seeds: list[int]
    rounds: int = 0
    """Faults that were injected."""
    missed: dict[str, int] = field(default_factory=dict)
    """By kind, the faults that found nothing to be injected into; these are not rounds."""
    faults: dict[str, int] = field(default_factory=dict)
    """Rounds by kind of fault, of all kinds that the run could have."""
    steps: dict[str, int] = field(default_factory=dict)
    """The number of replicas that reached each step, of all steps that the run could reach."""
    habits: dict[str, int] = field(default_factory=dict)
    """Counts of demanding behaviour of clients and external writers, as far as the run could have it."""
    calls: int = 0
    """Requests and external writes."""
    writes: int = 0
    """Requests that meant to change something, sends of the same one counted once each."""
    acknowledged: int = 0
    """Of the writes: answered as done, in part at least."""
    unknown: int = 0
    """Of the writes: their client could not know whether they were applied."""
    changes: int = 0
    """Changes of Confplane in the trail that were committed."""
    rejected: int = 0
    """Changes in the trail that were not."""
    settled: int = 0
    """Of the rejected: closed by an abort marker, because their outcome was unknown."""
    external: int = 0
    """External changes in the trail."""
    seconds: float = 0.0
    """From the first fault to the end of the last."""
    quiet_s: list[float] = field(default_factory=list)
    """For each seed, the seconds from the end of the last fault until no work was left."""
    violations: list[str] = field(default_factory=list)

    @property
    def never(self) -> list[str]:
        """Kinds of faults, steps of the protocol and habits that the run tried and never had."""
        return [
            *(kind for kind, count in self.faults.items() if not count and self.missed.get(kind)),
            *(f"the step {step}" for step, count in self.steps.items() if not count),
            *(habit for habit, count in self.habits.items() if not count),
        ]

    @property
    def not_tried(self) -> list[str]:
        """The kinds of faults that the run could have had, and that its seed did not choose in so many rounds."""
        return [kind for kind, count in self.faults.items() if not count and not self.missed.get(kind)]

    def count_calls(self, recorder: Recorder) -> None:
        """Take over the counts of calls."""
        self.calls, self.writes = recorder.calls, recorder.writes
        self.acknowledged, self.unknown = recorder.acknowledged, recorder.unknown

    def count_faults(
        self, possible: Sequence[str], injected: Mapping[str, int], missed: Mapping[str, int], steps: Mapping[str, int]
    ) -> None:
        """Count the faults and the steps of a run whose ``seconds`` are known.

        Args:
            possible: The kinds of faults that it could have.
            injected: By kind, its rounds.
            missed: By kind, what found nothing to be injected into.
            steps: By step, the replicas that reached it.
        """
        self.rounds, self.missed = sum(injected.values()), dict(missed)
        self.faults = tally([*possible, *injected], injected)
        self.steps = tally([*reachable_steps(self.seconds), *steps], steps)

    def count_run(self, run: Run) -> None:
        """Count what a run left in the trail."""
        kinds = {intent.change_id: intent.kind for intent in run.intents}
        ended = Counter(
            "external" if kinds.get(outcome.change_id) == "external" else "changes"
            for outcome in run.outcomes
            if outcome.committed
        )
        self.changes, self.external = ended["changes"], ended["external"]
        self.rejected = sum(not outcome.committed for outcome in run.outcomes)
        self.settled = sum((outcome.error or "").startswith("Settled as aborted") for outcome in run.outcomes)
        habits = {habit: sum(map(has, run.calls)) for habit, has in _HABITS.items()}
        if not habits[_STALE] and not can_be_stale(self.faults):
            del habits[_STALE]
        self.habits = habits
        if run.quiet_s is not None:
            self.quiet_s = [round(run.quiet_s, 1)]

    def save(self, path: Path) -> None:
        """Write it."""
        path.write_text(
            json.dumps(asdict(self) | {"never": self.never, "not_tried": self.not_tried}, indent=2) + "\n",
            encoding="utf-8",
        )

    def __str__(self) -> str:
        """Return it as lines for a person."""
        seeds = ", ".join(map(str, self.seeds))
        lines = [
            f"seed {seeds}: {self.rounds} rounds in {self.seconds:.0f} s, {sum(self.missed.values())} missed",
            f"{self.calls} calls, {self.writes} writes, {self.acknowledged} acknowledged, {self.unknown} unknown",
            f"{self.changes} changes, {self.external} external, {self.rejected} rejected",
            f"{self.settled} of the rejected were settled by an abort marker",
            f"quiet after {', '.join(f'{seconds:g} s' for seconds in self.quiet_s) or 'never'}",
            *(f"  {count:4} {kind}" for kind, count in sorted(self.faults.items()) if count),
            f"steps: {', '.join(step for step, count in self.steps.items() if count)}",
            f"clients: {', '.join(f'{count} {habit}' for habit, count in self.habits.items() if count)}",
            f"never reached: {', '.join(self.never) or 'nothing'}",
            f"not tried in {self.rounds} rounds: {', '.join(self.not_tried) or 'nothing'}",
            f"{len(self.violations)} violations",
            *(f"  {violation}" for violation in self.violations[:50]),
        ]
        return "\n".join(lines)


def load_report(path: Path) -> Report:
    """Read a report."""
    members = json.loads(path.read_text(encoding="utf-8"))
    for derived in ("never", "not_tried"):
        members.pop(derived, None)
    return Report(**members)


def merged(reports: Iterable[Report]) -> Report:
    """Return several reports as one.

    Raises:
        ValueError: A seed is in two of them.
    """
    whole = Report(seeds=[])
    counted = ("missed", "faults", "steps", "habits")
    for report in reports:
        if set(report.seeds) & set(whole.seeds):
            raise ValueError(f"seed {', '.join(map(str, report.seeds))} is in two reports")
        for name in (item.name for item in fields(Report)):
            before, more = getattr(whole, name), getattr(report, name)
            setattr(whole, name, tally({**before, **more}, before, more) if name in counted else before + more)
    return whole


def tally(names: Iterable[str], *counts: Mapping[str, int]) -> dict[str, int]:
    """Return the sum of some counts, 0 of what was not counted."""
    return {name: sum(count.get(name, 0) for count in counts) for name in names}
