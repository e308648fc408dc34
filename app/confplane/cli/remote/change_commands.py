"""The subcommands that change configs over the API, and their help. Their imports are made when they run."""

from __future__ import annotations

from typing import Annotated

import typer

from confplane.cli.command_group import CommandGroup
from confplane.cli.remote import completion
from confplane.cli.remote.options import (
    WRITE_CODES,
    AsJson,
    ClusterName,
    EntityName,
    ProfileName,
    Reason,
    Ticket,
    ValidateOnly,
    WaitApplied,
)

commands = CommandGroup(add_completion=False)

_QuotasEtag = Annotated[
    str | None,
    typer.Option(
        metavar="ETAG", help="Only if the quotas still have this ETag, of `confplane get --json`.", show_default=False
    ),
]
_ConfigsEtag = Annotated[
    str | None,
    typer.Option(
        metavar="ETAG", help="Only if the configs still have this ETag, of `confplane get --json`.", show_default=False
    ),
]


@commands.command(
    "set",
    epilog="Examples:\n\n"
    "    confplane set user=alice producer_byte_rate=1048576 acks=all --reason 'more load'\n\n"
    "    confplane set topic=orders retention.ms=86400000 --validate-only\n\n"
    "    confplane set broker=0 ssl.keystore.password\n\n"
    f"{WRITE_CODES}",
)
def put(  # noqa: PLR0913 - one argument an option is typer's way
    entity: EntityName,
    values: Annotated[
        list[str],
        typer.Argument(
            metavar="KEY=VALUE",
            help="Keys and values. KEY=@FILE is the file's text, KEY=@- that of standard input; for KEY alone the value"
            " is asked for, and not shown.",
            show_default=False,
            autocompletion=completion.keys_to_set,
        ),
    ],
    *,
    validate_only: ValidateOnly = False,
    reason: Reason = None,
    ticket: Ticket = None,
    quotas_etag: _QuotasEtag = None,
    configs_etag: _ConfigsEtag = None,
    wait_applied: WaitApplied = None,
    as_json: AsJson = False,
    cluster: ClusterName = None,
    profile: ProfileName = None,
) -> None:
    """Set keys of an entity, in one change; other keys stay as they are.

    Keys that are quotas become quotas, and all others configs. Shown are the values before and after.
    """
    from confplane.cli.remote import alter as command  # noqa: PLC0415 - see the module's docstring
    from confplane.cli.remote.changes import ChangeOptions  # noqa: PLC0415 - as above
    from confplane.cli.remote.session import run  # noqa: PLC0415 - as above

    options = ChangeOptions(validate_only, reason, ticket, quotas_etag, configs_etag, wait_applied)
    raise run(profile, cluster, lambda client: command.put(client, entity, values, options, as_json=as_json))


@commands.command(
    epilog="Examples:\n\n"
    "    confplane delete user=alice producer_byte_rate --ticket OPS-12\n\n"
    "    confplane delete topic=orders --all\n\n"
    f"{WRITE_CODES}"
)
def delete(  # noqa: PLR0913 - one argument an option is typer's way
    entity: EntityName,
    keys: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="KEY",
            help="The keys to remove.",
            show_default=False,
            autocompletion=completion.keys_that_are_set,
        ),
    ] = None,
    *,
    everything: Annotated[bool, typer.Option("--all", help="Remove all keys of the entity.")] = False,
    validate_only: ValidateOnly = False,
    reason: Reason = None,
    ticket: Ticket = None,
    quotas_etag: _QuotasEtag = None,
    configs_etag: _ConfigsEtag = None,
    wait_applied: WaitApplied = None,
    as_json: AsJson = False,
    cluster: ClusterName = None,
    profile: ProfileName = None,
) -> None:
    """Remove keys of an entity, in one change. A key that is not set is refused.

    `--all` removes the keys that the command has read, and nothing where somebody changes them meanwhile.
    """
    from confplane.cli.remote import alter as command  # noqa: PLC0415 - see the module's docstring
    from confplane.cli.remote.changes import ChangeOptions  # noqa: PLC0415 - as above
    from confplane.cli.remote.session import run  # noqa: PLC0415 - as above

    options = ChangeOptions(validate_only, reason, ticket, quotas_etag, configs_etag, wait_applied)
    raise run(
        profile,
        cluster,
        lambda client: command.delete(client, entity, keys or (), options, everything=everything, as_json=as_json),
    )
