"""The rules of `make test-all` and of `.ci/run` about tests that fail: tests/suites.py on runs that are made up."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Final, cast

import pytest

from tests import suites
from tests.suites import Outcome, Recorder, Run, Summary, refusal, run_again, table

ROOT: Final = Path(__file__).parents[2]
PROOF: Final = "tests/faults/test_faults.py::test_twenty_rounds"
NO_ONE: Final[frozenset[str]] = frozenset()


def failed(test: str = "tests/kraft/test_log.py::test_a", *, proof: bool = False, environment: bool = False) -> Outcome:
    return Outcome(test, "failed", 1.0, proof=proof, environment=environment)


def passed(test: str) -> Run:
    return Run(0, [Outcome(test, "passed", 1.0)])


def test_the_makefile_has_the_same_gate() -> None:
    line = f"GATE := {' '.join(f'tests/{folder}' for folder in suites.GATE)}\n"
    assert line in (ROOT / "Makefile").read_text()


@pytest.mark.parametrize(
    ("run", "reason"),
    [
        pytest.param(Run(0, []), None, id="nothing failed"),
        pytest.param(Run(1, [failed()] * 8), None, id="eight"),
        pytest.param(Run(2, [failed()] * 9), "More than 8 tests failed.", id="nine"),
        pytest.param(Run(1, [failed(PROOF, proof=True)]), f"Proofs are never run again: {PROOF}", id="a proof"),
        pytest.param(Run(1, [failed(PROOF, proof=True, environment=True)]), None, id="a proof without servers"),
        pytest.param(Run(1, [failed()], "No kraft."), "No kraft.", id="a fault of all"),
        pytest.param(Run(2, []), "pytest ended with exit code 2 before it had run all tests.", id="interrupted"),
        pytest.param(Run(3, [failed()]), "pytest ended with exit code 3 before it had run all tests.", id="an exit"),
        pytest.param(Run(1, []), "pytest failed, but no test did.", id="no list"),
    ],
)
def test_when_a_run_has_failed_without_a_second_attempt(run: Run, reason: str | None) -> None:
    assert refusal(run, NO_ONE) == reason


@pytest.mark.parametrize("listed", ["tests/kraft/test_log.py::test_a", "tests/kraft/test_log.py::test_a[one-2]"])
def test_a_test_that_is_known_to_be_flaky_fails_the_run(listed: str) -> None:
    run = Run(1, [failed("tests/kraft/test_log.py::test_a[one-2]")])
    reason = refusal(run, frozenset({listed}))
    assert reason
    assert reason.endswith(": tests/kraft/test_log.py::test_a[one-2]")
    assert refusal(run, frozenset({"tests/kraft/test_log.py::test_b"})) is None


A, B, C = (f"tests/kraft/test_log.py::test_{name}" for name in "abc")


def test_failed_tests_are_run_again_up_to_twice() -> None:
    runs = {A: [passed(A)], B: [Run(1, [failed(B)]), passed(B)], C: [Run(1, [failed(C)]), Run(1, [failed(C)])]}
    summary = run_again([failed(A), failed(B), failed(C)], lambda test: runs[test].pop(0))
    assert summary == Summary(flaky=[A, B], broken=[C])
    assert runs == {A: [], B: [], C: []}


@pytest.mark.parametrize(
    "again",
    [
        pytest.param(Run(0, [Outcome(A, "skipped", 0.0)]), id="skipped"),
        pytest.param(Run(0, []), id="not found"),
        pytest.param(Run(1, [Outcome(A, "passed", 0.0)]), id="an error after it"),
    ],
)
def test_only_a_test_that_was_run_has_passed(again: Run) -> None:
    assert run_again([failed(A)], lambda _: again) == Summary(broken=[A])


@pytest.mark.parametrize(
    ("again", "summary"),
    [
        pytest.param(passed(PROOF), Summary(repeated=[PROOF]), id="it holds"),
        pytest.param(Run(1, [failed(PROOF, proof=True)]), Summary(broken=[PROOF]), id="it fails"),
        pytest.param(
            Run(1, [failed(PROOF, proof=True, environment=True)]), Summary(incomplete=[PROOF]), id="still no servers"
        ),
    ],
)
def test_a_proof_without_servers_is_started_once_more(again: Run, summary: Summary) -> None:
    attempts = [again]
    assert run_again([failed(PROOF, proof=True, environment=True)], lambda _: attempts.pop()) == summary
    assert attempts == []


def test_the_table_has_a_row_for_each_suite() -> None:
    text = table([
        Outcome(A, "passed", 1.25),
        Outcome(B, "failed", 1.0),
        Outcome("tests/unit/test_a.py::test_a", "skipped", 61.0),
    ])  # fmt: skip
    assert text.splitlines() == [
        "suite           passed  failed  skipped  test time",
        "kraft                1       1        0        2 s",
        "properties           0       0        1       61 s",
    ]


def test_a_failure_is_printed_at_once() -> None:
    printed: list[str] = []
    terminal = SimpleNamespace(ensure_newline=lambda: None, write_line=printed.append)
    config = SimpleNamespace(pluginmanager=SimpleNamespace(getplugin={"terminalreporter": terminal}.get))
    recorder = Recorder(cast("pytest.Config", config))
    for outcome, text in (("passed", None), ("failed", "\n".join(f"line {number}" for number in range(1, 61)))):
        recorder.pytest_runtest_logreport(
            pytest.TestReport(A, ("test_log.py", 1, "a"), {}, outcome, text, "call", duration=61)  # type: ignore[arg-type] # of a literal
        )
    (found,) = printed
    assert found.splitlines()[:2] == [f"FAILED {A} after 61 s, minute 0", "line 21"]
    assert found.endswith("line 60")
