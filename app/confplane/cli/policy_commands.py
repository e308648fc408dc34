"""The subcommands that check and test policy files, and their help. Their imports are made when they run."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from confplane.cli.command_group import CommandGroup, PipelineCommand
from confplane.cli.options import AsJson
from confplane.cli.output import emit, print_error, say

if TYPE_CHECKING:
    from confplane.policy import PolicySettingsError

commands = CommandGroup()
policy = commands.subgroup("policy")
_FAILED = 1
_CODES = "Exit codes: 0 {good}; 1 {bad}; 64 the arguments are not valid."


@policy.command(
    "check",
    cls=PipelineCommand,
    epilog="Example:\n\n    confplane policy check policy.yaml\n\n"
    + _CODES.format(good="the file is valid", bad="it is not, or can't be read"),
)
def check_file(
    file: Annotated[Path, typer.Argument(metavar="FILE", exists=True, dir_okay=False)],
    *,
    as_json: AsJson = False,
) -> None:
    """Check a policy file, and print each mistake with its line.

    The command needs no service. A service refuses the same files, at start and when the file changes.
    """
    from confplane.policy import PolicySettingsError, read_policy

    try:
        document = read_policy(file)
    except PolicySettingsError as error:
        raise _refusal(error) from None
    say(f"{file}: {len(document.rules)} rules, all valid")
    emit(file=str(file), rules=[rule.name for rule in document.rules])


@policy.command(
    "test",
    cls=PipelineCommand,
    epilog="Example:\n\n    confplane policy test cases.yaml\n\n"
    + _CODES.format(good="all decisions are as expected", bad="one is not, or a file is not valid"),
)
def check_cases(
    cases: Annotated[Path, typer.Argument(metavar="CASES", exists=True, dir_okay=False)],
    *,
    as_json: AsJson = False,
) -> None:
    """Decide changes by a policy file, and compare the decisions with the expected ones.

    CASES is a YAML file that names the policy file and has the changes (docs/policies.md, "Tests"). The command needs
    no service, and asks no plug-ins.
    """
    from confplane.policy import PolicySettingsError
    from confplane.policy.cases import run_cases

    try:
        results = list(run_cases(cases))
    except PolicySettingsError as error:
        raise _refusal(error) from None
    failed = [each for each in results if each.failure is not None]
    for each in failed:
        say(f"{cases}:{each.line}: {each.name}: {each.failure}")
    for each in results:
        emit(name=each.name, line=each.line, decision=each.decision, failure=each.failure)
    say(f"{len(results)} cases, {len(failed)} failed")
    if failed:
        raise typer.Exit(_FAILED)


def _refusal(error: PolicySettingsError) -> typer.Exit:
    for problem in error.problems:
        print_error(problem, _FAILED)
    return typer.Exit(_FAILED)
