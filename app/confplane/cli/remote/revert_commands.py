"""The subcommand that reverts changes over the API, and its help. Its imports are made when it runs."""

from __future__ import annotations

from typing import Annotated

import typer

from confplane.cli.command_group import CommandGroup
from confplane.cli.remote.options import (
    AsJson,
    ClusterName,
    ProfileName,
    Reason,
    Since,
    Ticket,
    Until,
    ValidateOnly,
    WaitApplied,
)

commands = CommandGroup(add_completion=False)


@commands.command(
    epilog="Examples:\n\n"
    "    confplane revert --change 019a9c5e-7b2c-7d11-8a52-5d0c6f7e9b10\n\n"
    "    confplane revert --principal User:deployer --since 30m --reason 'a wrong rollout'\n\n"
    "    confplane revert user=alice --to 2h --validate-only\n\n"
    "Exit codes: 0 done; 1 refused, in whole or in part, or not confirmed, or the service did not answer; 2 the"
    " arguments or the profile are not valid; 3 the answer to a write was lost, and it may be done or not."
)
def revert(  # noqa: PLR0913 - one argument an option is typer's way
    entity: Annotated[
        str | None,
        typer.Argument(metavar="ENTITY", help="An entity that goes back to the moment --to.", show_default=False),
    ] = None,
    *,
    change: Annotated[
        str | None, typer.Option(metavar="ID", help="Revert this change, as `history` shows it.", show_default=False)
    ] = None,
    request_id: Annotated[
        str | None, typer.Option(metavar="ID", help="Revert all changes of this request.", show_default=False)
    ] = None,
    principal: Annotated[
        str | None,
        typer.Option(
            metavar="PRINCIPAL", help="Revert all changes of this principal since --since.", show_default=False
        ),
    ] = None,
    since: Since = None,
    until: Until = None,
    to: Annotated[
        str | None,
        typer.Option(
            metavar="MOMENT",
            help="The moment of ENTITY: a revision, 2026-01-31T12:00:00Z, or a time ago such as 30m.",
            show_default=False,
        ),
    ] = None,
    key: Annotated[
        list[str] | None,
        typer.Option(metavar="KEY", help="Revert this key of the changes alone; may be repeated.", show_default=False),
    ] = None,
    force: Annotated[bool, typer.Option("--force", help="Revert over later changes of the same keys.")] = False,
    yes: Annotated[bool, typer.Option("--yes", help="Do not ask.")] = False,
    validate_only: ValidateOnly = False,
    reason: Reason = None,
    ticket: Ticket = None,
    wait_applied: WaitApplied = None,
    as_json: AsJson = False,
    cluster: ClusterName = None,
    profile: ProfileName = None,
) -> None:
    """Undo changes: give each key its value before them. Shows first what will change, then asks.

    Later changes of the same keys refuse a revert, and are named. Without a terminal `--yes` is needed.
    """
    from confplane.cli.remote import revert as command  # noqa: PLC0415 - see the module's docstring
    from confplane.cli.remote.session import run  # noqa: PLC0415 - as above

    target = command.RevertTarget(entity, to, change, request_id, principal, since, until, tuple(key or ()))
    options = command.RevertOptions(force, reason, ticket, wait_applied)
    mode = command.RevertMode(yes, validate_only, as_json)
    raise run(profile, cluster, lambda client: command.revert(client, target, options, mode))
