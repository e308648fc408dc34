"""The subcommand ``load``, and its help. Its imports are made when it runs."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from confplane.cli.command_group import CommandGroup
from confplane.cli.remote.options import AsLines, ClusterName, ProfileName, Reason, Ticket, ValidateOnly, WaitApplied

commands = CommandGroup(add_completion=False)


@commands.command(
    epilog="Examples:\n\n"
    "    confplane load payments.yaml --validate-only\n\n"
    '    confplane load payments.yaml --cluster payments-copy --reason "CHG-1234"\n\n'
    "Exit codes: 0 loaded; 1 an entity was refused, or not applied in time, or the service did not answer; 2 the file,"
    " the arguments or the profile are not valid, and nothing was set; 3 the answer to a write was lost: load the file"
    " again."
)
def load(
    file: Annotated[Path, typer.Argument(metavar="FILE", help="The file; - is standard input.", show_default=False)],
    *,
    validate_only: ValidateOnly = False,
    reason: Reason = None,
    ticket: Ticket = None,
    wait_applied: WaitApplied = None,
    as_json: AsLines = False,
    cluster: ClusterName = None,
    profile: ProfileName = None,
) -> None:
    """Set the quotas and configs of a file that `confplane export` wrote.

    Keys that the file does not name stay as they are, and so do those with null, the place of a secret. The first
    refusal ends the load, but not a dry run. A file may be loaded again: what is equal already is no change.
    """
    from confplane.cli.remote import load as command  # noqa: PLC0415 - see the module's docstring
    from confplane.cli.remote.changes import ChangeOptions  # noqa: PLC0415 - as above
    from confplane.cli.remote.session import run  # noqa: PLC0415 - as above

    options = ChangeOptions(validate_only, reason, ticket, wait_applied_ms=wait_applied)
    raise run(profile, cluster, lambda client: command.load(client, file, options, as_json=as_json))
