"""The subcommands with Kafka's own command lines, and their help. Their imports are made when they run."""

from __future__ import annotations

import typer

from confplane.cli.command_group import CommandGroup
from confplane.cli.remote.options import ClusterName, ProfileName

commands = CommandGroup(add_completion=False)


@commands.command(
    # The command parses all words itself, because Kafka's tool parses them by other rules than typer.
    add_help_option=False,
    context_settings={"ignore_unknown_options": True, "allow_extra_args": True, "help_option_names": []},
)
def configs(context: typer.Context) -> None:
    """Describe and change configs with the options of kafka-configs.sh."""
    from confplane.cli.remote.configs.command import run  # noqa: PLC0415 - see the module's docstring

    raise typer.Exit(run(context.args))


@commands.command(
    epilog="Example:\n\n"
    "    confplane shell --cluster payments\n\n"
    "    confplane> --describe --user alice\n\n"
    "Exit codes: 0 at the end; 1 the service could not be reached at the start; 2 the profile is not valid. Without a"
    " terminal: those of `confplane configs`, of the first line that failed."
)
def shell(*, cluster: ClusterName = None, profile: ProfileName = None) -> None:
    """Run command lines of `confplane configs` one after another, on one connection.

    On a terminal lines can be edited and completed, and a failed line does not end the shell. Without a terminal the
    lines come from standard input, and the first that fails ends the shell with its exit code. `help` shows the
    options, `exit` and Ctrl-D end the shell.
    """
    from confplane.cli.remote.configs.shell import run  # noqa: PLC0415 - as above

    raise typer.Exit(run(profile, cluster))
