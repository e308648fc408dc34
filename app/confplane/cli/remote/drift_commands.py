"""The subcommands of ``confplane drift`` and their help. Their imports are made when they run."""

from __future__ import annotations

from typing import Annotated

import typer

from confplane.cli.command_group import CommandGroup
from confplane.cli.remote import completion
from confplane.cli.remote.options import (
    READ_CODES,
    WRITE_CODES,
    AsJson,
    AsLines,
    ClusterName,
    ProfileName,
    Reason,
    Ticket,
    ValidateOnly,
)

commands = CommandGroup(add_completion=False)
drift = CommandGroup(
    name="drift",
    help="Differences between a Kafka cluster without ZooKeeper (Kafka 4) and what callers wrote here.",
    no_args_is_help=True,
    rich_markup_mode="markdown",
)
commands.add_typer(drift)

_Entities = Annotated[
    list[str],
    typer.Argument(metavar="ENTITY...", help="The entities.", show_default=False, autocompletion=completion.entity_ids),
]
_Keys = Annotated[
    list[str] | None,
    typer.Option("--key", metavar="KEY", help="This key alone; may be repeated.", show_default="all that differ"),
]


@drift.command("list", epilog=f"Example:\n\n    confplane drift list --cluster payments\n\n{READ_CODES}")
def list_drift(*, as_json: AsLines = False, cluster: ClusterName = None, profile: ProfileName = None) -> None:
    """List the keys whose values in the Kafka cluster differ, with both values, and who made the change when.

    `pending` is on its way, `refused` was refused by the cluster, `extra` was set there by others and never here.
    """
    from confplane.cli.remote import drift as command  # noqa: PLC0415 - see the module's docstring
    from confplane.cli.remote.session import run  # noqa: PLC0415 - as above

    raise run(profile, cluster, lambda client: command.list_drift(client, as_json=as_json))


@drift.command(
    epilog="Examples:\n\n"
    "    confplane drift adopt user=alice --reason 'the operator is right'\n\n"
    "    confplane drift adopt user=alice user=bob --key producer_byte_rate --validate-only\n\n"
    f"{WRITE_CODES}"
)
def adopt(
    entities: _Entities,
    *,
    key: _Keys = None,
    validate_only: ValidateOnly = False,
    reason: Reason = None,
    ticket: Ticket = None,
    as_json: AsJson = False,
    cluster: ClusterName = None,
    profile: ProfileName = None,
) -> None:
    """Give keys that differ the value that the Kafka cluster has, each entity in a change of its own."""
    from confplane.cli.remote import drift as command  # noqa: PLC0415 - see the module's docstring
    from confplane.cli.remote.session import run  # noqa: PLC0415 - as above

    given = command.DriftOptions(tuple(entities), tuple(key or ()), validate_only, reason, ticket)
    raise run(profile, cluster, lambda client: command.adopt(client, given, as_json=as_json))


@drift.command(
    epilog="Example:\n\n    confplane drift reapply user=alice --cluster payments\n\n"
    "Exit codes: 0 done; 1 refused, or the service did not answer; 2 the arguments or the profile are not valid."
)
def reapply(
    entities: _Entities,
    *,
    key: _Keys = None,
    validate_only: ValidateOnly = False,
    as_json: AsJson = False,
    cluster: ClusterName = None,
    profile: ProfileName = None,
) -> None:
    """Have what the Kafka cluster refused, and what is contested, sent to it again."""
    from confplane.cli.remote import drift as command  # noqa: PLC0415 - see the module's docstring
    from confplane.cli.remote.session import run  # noqa: PLC0415 - as above

    given = command.DriftOptions(tuple(entities), tuple(key or ()), validate_only)
    raise run(profile, cluster, lambda client: command.reapply(client, given, as_json=as_json))
