"""Checks and tests policy files."""

from __future__ import annotations

from typing import TYPE_CHECKING

from confplane.cli.output import emit, print_error, say
from confplane.policy import PolicySettingsError, read_policy
from confplane.policy.cases import run_cases

if TYPE_CHECKING:
    from pathlib import Path

_FAILED = 1


def check(file: Path) -> int:
    """Check a policy file, and return the exit code."""
    try:
        document = read_policy(file)
    except PolicySettingsError as error:
        return _refuse(error)
    say(f"{file}: {len(document.rules)} rules, all valid")
    emit(file=str(file), rules=[rule.name for rule in document.rules])
    return 0


def test(file: Path) -> int:
    """Run test cases, and return the exit code."""
    try:
        results = list(run_cases(file))
    except PolicySettingsError as error:
        return _refuse(error)
    failed = [each for each in results if each.failure is not None]
    for each in failed:
        say(f"{file}:{each.line}: {each.name}: {each.failure}")
    for each in results:
        emit(name=each.name, line=each.line, decision=each.decision, failure=each.failure)
    say(f"{len(results)} cases, {len(failed)} failed")
    return _FAILED if failed else 0


def _refuse(error: PolicySettingsError) -> int:
    for problem in error.problems:
        print_error(problem, _FAILED)
    return _FAILED
