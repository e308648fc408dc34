"""The subcommand ``confplane doctor``, and its help. Its imports are made when it runs."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from confplane.cli.command_group import CommandGroup, PipelineCommand
from confplane.cli.options import AsJson, SettingsFile, load_settings

commands = CommandGroup()


@commands.command(
    cls=PipelineCommand,
    epilog="Examples:\n\n"
    "    confplane doctor\n\n"
    "    confplane doctor --json --bundle confplane-support.zip\n\n"
    "Exit codes: 0 there are no findings; 1 there are errors; 2 there are warnings only; 64 the options are not valid.",
)
def doctor(
    *,
    bundle: Annotated[
        Path | None,
        typer.Option(
            metavar="FILE",
            help="Write the findings, the facts, the settings and the versions to a new zip file, without secrets.",
        ),
    ] = None,
    as_json: AsJson = False,
    settings_file: SettingsFile = None,
) -> None:
    """Check settings, stores, rights, clocks, certificates and tokens, and show the command that fixes each problem.

    The command works on ZooKeeper, Postgres and Kafka directly, with the service's settings; the service may run. It
    repairs nothing. See docs/doctor.md.
    """
    from confplane.cli import doctor as command

    raise typer.Exit(command.doctor(load_settings(settings_file), bundle))
