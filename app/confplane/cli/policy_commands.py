"""The subcommands that check and test policy files, and their help. Their imports are made when they run."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from confplane.cli.command_group import CommandGroup, PipelineCommand
from confplane.cli.options import AsJson

commands = CommandGroup()
policy = commands.subgroup("policy")
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
    from confplane.cli import policy as command

    raise typer.Exit(command.check(file))


@policy.command(
    "test",
    cls=PipelineCommand,
    epilog="Example:\n\n    confplane policy test cases.yaml\n\n"
    + _CODES.format(good="all decisions are as expected", bad="one is not, or a file is not valid"),
)
def run_cases(
    cases: Annotated[Path, typer.Argument(metavar="CASES", exists=True, dir_okay=False)],
    *,
    as_json: AsJson = False,
) -> None:
    """Decide changes by a policy file, and compare the decisions with the expected ones.

    CASES is a YAML file that names the policy file and has the changes (docs/policies.md, "Tests"). The command needs
    no service, and asks no plug-ins.
    """
    from confplane.cli import policy as command

    raise typer.Exit(command.test(cases))
