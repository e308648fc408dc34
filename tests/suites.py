"""Runs the tests beyond the gate: ``python -m tests.suites [PYTEST ARGUMENTS]``, or ``make suites``.

The property tests of the gate are run again with a new seed, which is printed; ``CONFPLANE_TEST_SEED`` sets it. At most
eight tests that fail are run again, each alone and with the seed, up to twice. A test that passes then is reported as
flaky and must be added to ``tests/flaky.txt``: a test in that file is never run again. Neither is a proof, a test with
the marker ``proof``. Only if its servers did not start it is started once more.

The module is also the plugin of pytest that writes what :func:`main` reads.
"""

from __future__ import annotations

import contextlib
import json
import os
import random
import signal
import subprocess
import sys
import tempfile
import time
from collections import Counter, defaultdict
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import pytest

from confplane.devstack.errors import DevStackError

if TYPE_CHECKING:
    from collections.abc import Callable, Generator, Sequence

ROOT: Final = Path(__file__).resolve().parents[1]
FLAKY: Final = ROOT / "tests" / "flaky.txt"
GATE: Final = ("unit", "store", "audit", "contract", "integration")
"""The folders of ``make test``."""
SEED_VARIABLE: Final = "CONFPLANE_TEST_SEED"
RERUN_AT_MOST: Final = 8
ATTEMPTS: Final = 2
_GRACE_S: Final = 10
_SHOWN_LINES: Final = 40
_RANKS: Final = ("passed", "skipped", "failed")


@dataclass(slots=True)
class Outcome:
    """The end of a test. ``environment`` says that it failed because its servers did not start."""

    test: str
    outcome: str
    seconds: float
    proof: bool = False
    environment: bool = False

    @property
    def suite(self) -> str:
        """The folder of the test; property tests of the gate are a suite of their own."""
        folder = Path(self.test.partition("::")[0]).parts[1]
        return "properties" if folder in GATE else folder


@dataclass(slots=True)
class Run:
    """One run of pytest: its exit code, the outcome of each test, and what broke all of it, if anything did."""

    exit_code: int = 0
    outcomes: list[Outcome] = field(default_factory=list)
    fault: str | None = None

    @property
    def failed(self) -> list[Outcome]:
        """The tests that failed."""
        return [each for each in self.outcomes if each.outcome == "failed"]


def refusal(run: Run, flaky: frozenset[str]) -> str | None:
    """Return why a run has failed without a second attempt, or nothing."""
    failed = run.failed
    proofs = [each.test for each in failed if each.proof and not each.environment]
    known = [each.test for each in failed if flaky & {each.test, each.test.partition("[")[0]}]
    reasons = {
        run.fault or "": run.fault is not None,
        f"More than {RERUN_AT_MOST} tests failed.": len(failed) > RERUN_AT_MOST,
        f"pytest ended with exit code {run.exit_code} before it had run all tests.": run.exit_code not in {0, 1},
        "pytest failed, but no test did.": run.exit_code == 1 and not failed,
        f"Proofs are never run again: {', '.join(proofs)}": proofs,
        f"Listed in tests/flaky.txt, so fix, move to `make test-long` or delete: {', '.join(known)}": known,
    }
    return next((reason for reason, applies in reasons.items() if applies), None)


@dataclass(slots=True)
class Summary:
    """The results of the second attempts."""

    flaky: list[str] = field(default_factory=list)
    broken: list[str] = field(default_factory=list)
    repeated: list[str] = field(default_factory=list)
    """Proofs that were started once more, and then held."""
    incomplete: list[str] = field(default_factory=list)
    """Proofs that were started twice without a result."""


def run_again(failed: Sequence[Outcome], attempt: Callable[[str], Run]) -> Summary:
    """Run each failed test again, alone, and sum up the results.

    Args:
        failed: Failed tests that may be run again.
        attempt: Runs one test.
    """
    summary = Summary()
    for each in failed:
        run = attempt(each.test)
        if each.proof:
            environment = any(one.environment for one in run.failed)
            ended = (summary.broken, summary.incomplete)[environment]
            (summary.repeated if _passed(run) else ended).append(each.test)
            continue
        for _ in range(ATTEMPTS - 1):
            if not _passed(run):
                run = attempt(each.test)
        (summary.flaky if _passed(run) else summary.broken).append(each.test)
    return summary


def _passed(run: Run) -> bool:
    return run.exit_code == 0 and [each.outcome for each in run.outcomes] == ["passed"]


def table(outcomes: Sequence[Outcome]) -> str:
    """Return the table of suites: tests by outcome, and the sum of their times."""
    counts: defaultdict[str, Counter[str]] = defaultdict(Counter)
    seconds: defaultdict[str, float] = defaultdict(float)
    for each in outcomes:
        counts[each.suite][each.outcome] += 1
        seconds[each.suite] += each.seconds
    rows = [f"{'suite':<14}{'passed':>8}{'failed':>8}{'skipped':>9}{'test time':>11}"]
    rows += [
        f"{name:<14}{of['passed']:>8}{of['failed']:>8}{of['skipped']:>9}{seconds[name]:>9.0f} s"
        for name, of in sorted(counts.items())
    ]
    return "\n".join(rows)


class Recorder:
    """The plugin: selects the tests beyond the gate, and writes how each ended."""

    def __init__(self, config: pytest.Config) -> None:
        self._config = config
        self._run = Run()
        self._outcomes: dict[str, Outcome] = {}
        self._broken_fixture: str | None = None
        self._began = time.monotonic()

    def pytest_collection_modifyitems(self, config: pytest.Config, items: list[pytest.Item]) -> None:
        """Deselect the tests of the gate, except for property tests."""
        kept: list[pytest.Item] = []
        deselected: list[pytest.Item] = []
        for item in items:
            (deselected if _of_gate(item) and not _is_property(item) else kept).append(item)
        items[:] = kept
        config.hook.pytest_deselected(items=deselected)

    @pytest.hookimpl(wrapper=True)
    def pytest_fixture_setup(self, fixturedef: pytest.FixtureDef[Any]) -> Generator[None, object, object]:
        """Note the name of a session fixture that fails."""
        try:
            return (yield)
        except (Exception, pytest.fail.Exception):
            if fixturedef.scope == "session":
                self._broken_fixture = fixturedef.argname
            raise

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_makereport(
        self, item: pytest.Item, call: pytest.CallInfo[None]
    ) -> Generator[None, pytest.TestReport, pytest.TestReport]:
        """Add to the report of a parallel process what :meth:`pytest_runtest_logreport` needs."""
        report = yield
        proof = item.get_closest_marker("proof") is not None
        report.user_properties.append(("proof", proof))
        if report.failed and call.excinfo is not None:
            environment = call.when == "setup" or call.excinfo.errisinstance(DevStackError)
            report.user_properties.append(("environment", environment))
            if self._broken_fixture is not None and not proof:
                report.user_properties.append(("session fixture", self._broken_fixture))
        return report

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        """Note the outcome of a phase. End the run if a session fixture failed."""
        known = dict(report.user_properties)
        outcome = self._outcomes.setdefault(report.nodeid, Outcome(report.nodeid, "passed", 0.0))
        outcome.seconds += report.duration
        outcome.outcome = max(outcome.outcome, report.outcome, key=_RANKS.index)
        outcome.proof = bool(known.get("proof"))
        outcome.environment |= bool(known.get("environment"))
        if report.failed and not hasattr(self._config, "workerinput"):
            self._show(report)
        if "session fixture" in known and self._run.fault is None:
            self._run.fault = f"The session fixture {known['session fixture']!r} failed."
            parallel = self._config.pluginmanager.getplugin("dsession")
            (parallel or self._session).shouldstop = self._run.fault

    def _show(self, report: pytest.TestReport) -> None:
        """Print a failure at once: a run that is ended from outside prints no summary."""
        terminal = self._config.pluginmanager.getplugin("terminalreporter")
        if terminal is not None:
            end = "\n".join(report.longreprtext.splitlines()[-_SHOWN_LINES:])
            terminal.ensure_newline()
            minutes = (time.monotonic() - self._began) / 60
            terminal.write_line(f"FAILED {report.nodeid} after {report.duration:.0f} s, minute {minutes:.0f}\n{end}")

    def pytest_collectreport(self, report: pytest.CollectReport) -> None:
        """Note a file that cannot be collected."""
        if report.failed:
            self._run.fault = f"{report.nodeid} could not be collected."

    def pytest_sessionstart(self, session: pytest.Session) -> None:
        """Keep the session, which can be ended."""
        self._session = session

    def pytest_sessionfinish(self, exitstatus: int) -> None:
        """Write the file, in the process that hands out the tests."""
        if not hasattr(self._config, "workerinput"):
            self._run.exit_code = int(exitstatus)
            self._run.outcomes = list(self._outcomes.values())
            Path(self._config.getoption("outcomes")).write_text(json.dumps(asdict(self._run)), "utf-8")


def _of_gate(item: pytest.Item) -> bool:
    return item.path.is_relative_to(ROOT / "tests") and item.path.relative_to(ROOT / "tests").parts[0] in GATE


def _is_property(item: pytest.Item) -> bool:
    return bool(getattr(getattr(item, "obj", None), "is_hypothesis_test", False))


def pytest_addoption(parser: pytest.Parser) -> None:
    """Add the option of the file with the outcomes."""
    parser.addoption("--outcomes", metavar="FILE", help="write how each test ended, as JSON")


def pytest_configure(config: pytest.Config) -> None:
    """Register the plugin."""
    config.pluginmanager.register(Recorder(config), "outcomes")


def run_pytest(arguments: Sequence[str]) -> Run:
    """Run pytest in a process group of its own, and end what it leaves running."""
    with tempfile.TemporaryDirectory() as directory:
        file = Path(directory) / "outcomes.json"
        process = subprocess.Popen(
            [sys.executable, "-m", "pytest", "-p", "tests.suites", "--outcomes", str(file), *arguments],
            cwd=ROOT,
            stdin=subprocess.DEVNULL,
            process_group=0,
        )
        try:
            code = process.wait()
        finally:
            _end_group(process)
        if not file.exists():
            return Run(exit_code=code or 1)
        found = json.loads(file.read_text("utf-8"))
        return Run(code, [Outcome(**each) for each in found["outcomes"]], found["fault"])


def _end_group(process: subprocess.Popen[bytes]) -> None:
    """Terminate the group, and kill it if it is still there after ten seconds."""
    end = time.monotonic() + _GRACE_S
    with contextlib.suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGTERM)
        while time.monotonic() < end:
            process.poll()
            os.killpg(process.pid, 0)
            time.sleep(0.1)
        os.killpg(process.pid, signal.SIGKILL)


def _say(text: str) -> None:
    sys.stdout.write(f"{text}\n")
    sys.stdout.flush()  # pytest writes to the same file


def main(arguments: Sequence[str]) -> int:
    """Run the tests, and those that fail again. Return 0, 1 if some failed, or 2 if a proof had no result."""
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(128 + signal.SIGTERM))
    seed = os.environ.get(SEED_VARIABLE) or str(random.SystemRandom().randrange(2**32))
    seeded = ["--hypothesis-profile", "new-seeds", "--hypothesis-seed", seed, "-m", "not long"]
    _say(f"Seed of the property tests: {seed}")
    started = time.monotonic()
    slowest = ["--durations", "25", "--durations-min", "20"]
    run = run_pytest([*seeded, *slowest, "--maxfail", str(RERUN_AT_MOST + 1), *arguments])
    _say(f"\n{table(run.outcomes)}\n{(time.monotonic() - started) / 60:.1f} minutes, seed {seed}")
    flaky = frozenset(line.split()[0] for line in FLAKY.read_text("utf-8").splitlines() if line and line[0] != "#")
    if reason := refusal(run, flaky):
        _say(f"\nFailed: {reason}")
        return 1

    def attempt(test: str) -> Run:
        _say(f"\nRunning alone: {test}")
        return run_pytest([*seeded, test])

    summary = run_again(run.failed, attempt)
    for title, tests in (
        ("Flaky: failed in the whole run and passed alone. Add them to tests/flaky.txt", summary.flaky),
        ("Proofs that were started twice, because their servers did not start the first time", summary.repeated),
        ("Failed again, alone", summary.broken),
        ("Incomplete: the servers of these proofs did not start, twice", summary.incomplete),
    ):
        if tests:
            _say("\n  ".join([f"\n{title}:", *tests]))
    return 1 if summary.broken else 2 if summary.incomplete else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
