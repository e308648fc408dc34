"""The subcommands of ``confplane tokens`` and ``confplane grants`` and their help.

Their imports are made when they run: see :mod:`confplane.cli.commands`.
"""

from __future__ import annotations

from pathlib import Path
from typing import Annotated
from uuid import UUID

import typer

from confplane.cli.command_group import CommandGroup
from confplane.cli.options import ClusterName, SettingsFile, load_settings
from confplane.cli.times import datetime_of, duration_of
from confplane.domain.access.operations import Operation, Permission, Role

_CODES = (
    "Exit codes: 0 done; 1 not done (Postgres is away, or a file can't be written); 2 the options or the settings are"
    " not valid, or there is no such {}."
)

commands = CommandGroup(add_completion=False)
tokens = CommandGroup(
    name="tokens",
    help="API tokens: credentials of users, portals, pipelines and applications (docs/access.md).",
    no_args_is_help=True,
    rich_markup_mode="markdown",
)
grants = CommandGroup(
    name="grants",
    help="Grants: who may do what (docs/access.md).",
    no_args_is_help=True,
    rich_markup_mode="markdown",
)
commands.add_typer(tokens)
commands.add_typer(grants)

_Reason = Annotated[
    str | None, typer.Option(metavar="TEXT", help="The reason, which the history keeps.", show_default=False)
]
_Ticket = Annotated[
    str | None, typer.Option(metavar="TEXT", help="A ticket's id, which the history keeps.", show_default=False)
]
_Note = Annotated[str | None, typer.Option(metavar="TEXT", help="A note for people.", show_default=False)]
_Output = Annotated[
    Path | None,
    typer.Option(
        metavar="FILE",
        dir_okay=False,
        help="The file for the token, which only its owner reads; an existing file is replaced.",
        show_default="standard output",
    ),
]
_ExpiresIn = Annotated[
    str | None,
    typer.Option(metavar="AGE", help="The token's lifetime: a number and s, m, h or d.", show_default=False),
]
_Json = Annotated[bool, typer.Option("--json", help="Print a JSON object a line, as the API has it.")]


@tokens.command(
    "create",
    epilog="Examples:\n\n"
    "    confplane tokens create --principal User:payments-portal --group Group:payments --output portal-token\n\n"
    "    confplane tokens create --principal User:payments-ci --expires-in 12h --read-only --cluster payments\n\n"
    + _CODES.format("cluster"),
)
def create_token(
    principal: Annotated[str, typer.Option(metavar="User:NAME", help="The user that requests with the token are of.")],
    *,
    group: Annotated[
        list[str] | None,
        typer.Option(metavar="Group:NAME", help="A group whose grants count too; may be repeated.", show_default=False),
    ] = None,
    owner: Annotated[
        str | None,
        typer.Option(
            metavar="TEXT",
            help="The person or team behind the token, who counts as one wherever two must agree.",
            show_default="the principal",
        ),
    ] = None,
    note: _Note = None,
    expires_in: _ExpiresIn = None,
    read_only: Annotated[bool, typer.Option("--read-only", help="Allow reads alone.")] = False,
    cluster: Annotated[
        list[str] | None,
        typer.Option(metavar="NAME", help="Allow this cluster alone; may be repeated.", show_default=False),
    ] = None,
    operation: Annotated[
        list[Operation] | None,
        typer.Option(
            help="Allow this operation alone, and those that it includes; may be repeated.", show_default=False
        ),
    ] = None,
    output: _Output = None,
    reason: _Reason = None,
    ticket: _Ticket = None,
    as_json: _Json = False,
    settings_file: SettingsFile = None,
) -> None:
    """Create an API token, and print it, this once and alone, on standard output.

    A token has the rights that grants give its principal, its groups and everybody, within its own limits
    (`--read-only`, `--cluster`, `--operation`). Postgres keeps its SHA-256; nobody can read the token again.

    The command works on Postgres directly, with the service's settings; the service need not run.
    """
    lifetime_s = None if expires_in is None else duration_of(expires_in, "--expires-in")
    _check(output)
    from confplane.cli import access as command
    from confplane.cli import callers
    from confplane.domain.access.identities import CredentialNarrowing
    from confplane.services.access_admin.tokens import NewToken

    narrowing = None
    if read_only or cluster or operation:
        narrowing = CredentialNarrowing(
            read_only,
            frozenset(cluster) if cluster else None,
            frozenset(operation) if operation else None,
        )
    wanted = NewToken(principal, tuple(group or ()), owner, note, narrowing=narrowing)
    settings, caller = load_settings(settings_file), callers.caller(reason, ticket)
    raise typer.Exit(
        command.create_token(settings, wanted, lifetime_s, command.TokenDestination(output, as_json), caller)
    )


@tokens.command(
    "list",
    epilog="Examples:\n\n"
    "    confplane tokens list\n\n"
    "    confplane tokens list --principal User:payments-portal --json\n\n" + _CODES.format("principal"),
)
def list_tokens(
    principal: Annotated[
        str | None, typer.Option(metavar="User:NAME", help="Only tokens of this user.", show_default=False)
    ] = None,
    *,
    as_json: _Json = False,
    settings_file: SettingsFile = None,
) -> None:
    """List API tokens without their secrets, expired and revoked ones too, oldest first."""
    from confplane.cli import access as command
    from confplane.cli import callers

    settings = load_settings(settings_file)
    listed = command.list_tokens(settings, principal, as_json=as_json, caller=callers.caller(None))
    raise typer.Exit(callers.run(listed, "Not listed"))


@tokens.command(
    "revoke",
    epilog="Example:\n\n"
    '    confplane tokens revoke 019a9c5e-7b2c-7d11-8a52-5d0c6f7e9b10 --reason "leaked"\n\n' + _CODES.format("token"),
)
def revoke_token(
    token_id: Annotated[UUID, typer.Argument(metavar="ID", help="The token's id, as the list has it.")],
    *,
    with_created: Annotated[
        bool,
        typer.Option("--with-created", help="Also revoke the tokens created with it, directly or through others."),
    ] = False,
    reason: _Reason = None,
    ticket: _Ticket = None,
    as_json: _Json = False,
    settings_file: SettingsFile = None,
) -> None:
    """Revoke an API token for good. Every process refuses the token within two seconds.

    Without `--with-created` the number of active tokens that were created with it is printed: whoever had the token may
    have them.

    The command works on Postgres directly, with the service's settings; the service need not run.
    """
    from confplane.cli import access as command
    from confplane.cli import callers

    settings = load_settings(settings_file)
    revoked = command.revoke_token(
        settings, token_id, callers.caller(reason, ticket), with_created=with_created, as_json=as_json
    )
    raise typer.Exit(callers.run(revoked, "Not revoked"))


@tokens.command(
    "confirm",
    epilog='Example:\n\n    confplane tokens confirm --reason "checked after the restore, INC-7"\n\n'
    + _CODES.format("token"),
)
def confirm_tokens(
    *,
    reason: _Reason = None,
    ticket: _Ticket = None,
    as_json: _Json = False,
    settings_file: SettingsFile = None,
) -> None:
    """Admit the API tokens of a restored Postgres.

    A Postgres that was restored to an earlier moment has lost later revocations, and removals of grants. When the
    service notices it, it rejects all tokens created before. Revoke again what was revoked since the backup, check the
    grants, and then run this command; `confplane tokens invalidate` revokes them all instead.

    The command works on Postgres directly, with the service's settings; the service need not run.
    """
    from confplane.cli import access as command
    from confplane.cli import callers

    confirmed = command.confirm_tokens(load_settings(settings_file), callers.caller(reason, ticket), as_json=as_json)
    raise typer.Exit(callers.run(confirmed, "Not confirmed"))


@tokens.command(
    "invalidate",
    epilog="Example:\n\n"
    '    confplane tokens invalidate --issued-before 2026-11-27T09:00:00Z --reason "restored, INC-7"\n\n'
    + _CODES.format("token"),
)
def invalidate_tokens(
    issued_before: Annotated[
        str,
        typer.Option(
            "--issued-before",
            metavar="TIME",
            help="A time that is not in the future: 2026-01-31T12:00:00Z, or a time ago such as 30m.",
        ),
    ],
    *,
    reason: _Reason = None,
    ticket: _Ticket = None,
    as_json: _Json = False,
    settings_file: SettingsFile = None,
) -> None:
    """Revoke all API tokens that were created before a time, for good.

    After a restore of Postgres to an earlier moment this replaces `confplane tokens confirm`.

    The command works on Postgres directly, with the service's settings; the service need not run.
    """
    before = datetime_of(issued_before, "--issued-before")
    from confplane.cli import access as command
    from confplane.cli import callers

    revoked = command.invalidate_tokens(
        load_settings(settings_file), before, callers.caller(reason, ticket), as_json=as_json
    )
    raise typer.Exit(callers.run(revoked, "Not revoked"))


@tokens.command(
    "rotate",
    epilog="Example:\n\n"
    "    confplane tokens rotate 019a9c5e-7b2c-7d11-8a52-5d0c6f7e9b10 --overlap 1d --output portal-token\n\n"
    + _CODES.format("token"),
)
def rotate_token(
    token_id: Annotated[UUID, typer.Argument(metavar="ID", help="The old token's id, as the list has it.")],
    *,
    overlap: Annotated[
        str,
        typer.Option(
            metavar="AGE", help="The time for which the old token stays valid: a number and s, m, h or d; 30d at most."
        ),
    ] = "1d",
    expires_in: _ExpiresIn = None,
    output: _Output = None,
    reason: _Reason = None,
    ticket: _Ticket = None,
    as_json: _Json = False,
    settings_file: SettingsFile = None,
) -> None:
    """Replace an API token by a new one, and print the new one, this once and alone, on standard output.

    The new token has the principal, groups, owner, note and limits of the old one, and without `--expires-in` its
    lifetime. Answers to requests with a token announce its end 14 days before (`Confplane-Token-Expires`).

    The command works on Postgres directly, with the service's settings; the service need not run.
    """
    overlap_s = duration_of(overlap, "--overlap")
    lifetime_s = None if expires_in is None else duration_of(expires_in, "--expires-in")
    _check(output)
    from confplane.cli import access as command
    from confplane.cli import callers

    settings, caller = load_settings(settings_file), callers.caller(reason, ticket)
    raise typer.Exit(
        command.rotate_token(
            settings, token_id, overlap_s, lifetime_s, command.TokenDestination(output, as_json), caller
        )
    )


@grants.command(
    "create",
    epilog="Examples:\n\n"
    "    confplane grants create --principal Group:payments --operation ALTER_CONFIGS --resource user:payments-"
    " --prefixed\n\n"
    "    confplane grants create --principal User:olga --role operator --cluster payments --reason CHG-1234\n\n"
    "    confplane grants create --principal 'User:*' --deny --operation ALTER_CONFIGS --resource topic:ledger\n\n"
    + _CODES.format("cluster"),
)
def create_grant(
    principal: Annotated[
        str, typer.Option(metavar="PRINCIPAL", help="User:NAME, Group:NAME, or User:* for every caller.")
    ],
    *,
    operation: Annotated[
        Operation | None,
        typer.Option(help="The operation, which grants those that it includes as well.", show_default=False),
    ] = None,
    role: Annotated[
        Role | None, typer.Option(help="A bundle of operations, instead of one operation.", show_default=False)
    ] = None,
    resource: Annotated[
        str | None,
        typer.Option(
            metavar="TYPE:NAME",
            help="The resource: cluster, user:NAME, topic:NAME, and so on; TYPE:* for every name, which is no default"
            " entity. Without the option a role is granted whole.",
            show_default=False,
        ),
    ] = None,
    prefixed: Annotated[bool, typer.Option("--prefixed", help="NAME is the begin of names.")] = False,
    deny: Annotated[bool, typer.Option("--deny", help="Deny; a deny goes before every allow.")] = False,
    cluster: Annotated[
        str | None, typer.Option(metavar="NAME", help="The cluster.", show_default="all clusters")
    ] = None,
    note: _Note = None,
    reason: _Reason = None,
    ticket: _Ticket = None,
    as_json: _Json = False,
    settings_file: SettingsFile = None,
) -> None:
    """Grant an operation or a role to a user, to a group or to everybody.

    A grant that is there already is found and not made again. Every process decides by a new grant within two seconds.

    The command works on Postgres directly, with the service's settings; the service need not run.
    """
    from confplane.cli import access as command
    from confplane.cli import callers
    from confplane.domain.errors import InvalidRequestError
    from confplane.services.access_admin.grants import NewGrant

    try:
        kind, pattern, name = command.resource_of(resource, prefixed=prefixed)
    except InvalidRequestError as error:
        raise typer.BadParameter(error.detail, param_hint="--resource") from None
    permission = Permission.DENY if deny else Permission.ALLOW
    wanted = NewGrant(principal, permission, cluster, operation, role, kind, pattern, name, note)
    settings = load_settings(settings_file)
    raise typer.Exit(
        callers.run(
            command.create_grant(settings, wanted, callers.caller(reason, ticket), as_json=as_json), "Not created"
        )
    )


@grants.command(
    "list",
    epilog="Examples:\n\n"
    "    confplane grants list\n\n"
    "    confplane grants list --principal Group:payments --json\n\n" + _CODES.format("cluster"),
)
def list_grants(
    principal: Annotated[
        str | None, typer.Option(metavar="PRINCIPAL", help="Only grants to this user or group.", show_default=False)
    ] = None,
    *,
    cluster: Annotated[
        str | None,
        typer.Option(
            metavar="NAME", help="Only grants of this cluster; those of all clusters are left out.", show_default=False
        ),
    ] = None,
    as_json: _Json = False,
    settings_file: SettingsFile = None,
) -> None:
    """List grants, oldest first."""
    from confplane.cli import access as command
    from confplane.cli import callers

    settings = load_settings(settings_file)
    listed = command.list_grants(settings, principal, cluster, as_json=as_json, caller=callers.caller(None))
    raise typer.Exit(callers.run(listed, "Not listed"))


@grants.command(
    "remove",
    epilog="Example:\n\n"
    '    confplane grants remove 019a9c5e-7b2c-7d11-8a52-5d0c6f7e9b10 --reason "left the team"\n\n'
    + _CODES.format("grant"),
)
def remove_grant(
    grant_id: Annotated[UUID, typer.Argument(metavar="ID", help="The grant's id, as the list has it.")],
    *,
    reason: _Reason = None,
    ticket: _Ticket = None,
    as_json: _Json = False,
    settings_file: SettingsFile = None,
) -> None:
    """Remove a grant. Every process decides without the grant within two seconds.

    The command works on Postgres directly, with the service's settings; the service need not run.
    """
    from confplane.cli import access as command
    from confplane.cli import callers

    settings = load_settings(settings_file)
    removed = command.remove_grant(settings, grant_id, callers.caller(reason, ticket), as_json=as_json)
    raise typer.Exit(callers.run(removed, "Not removed"))


@grants.command(
    "show",
    epilog="Examples:\n\n"
    "    confplane grants show --principal User:olga --group Group:payments --cluster payments\n\n"
    "    confplane grants show --group Group:payments --cluster payments\n\n" + _CODES.format("cluster"),
)
def show_grants(
    cluster: ClusterName,
    *,
    principal: Annotated[str | None, typer.Option(metavar="User:NAME", help="The user.", show_default=False)] = None,
    group: Annotated[
        str | None,
        typer.Option(metavar="Group:NAME", help="A group, by itself or with a user in it.", show_default=False),
    ] = None,
    as_json: _Json = False,
    settings_file: SettingsFile = None,
) -> None:
    """Show the rights of a user or group in a cluster, and the grants that give or deny them; denies come first."""
    from confplane.cli import access as command
    from confplane.cli import callers

    settings = load_settings(settings_file)
    shown = command.show_grants(settings, principal, group, cluster, callers.caller(None), as_json=as_json)
    raise typer.Exit(callers.run(shown, "Not shown"))


def _check(output: Path | None) -> None:
    """Refuse to put a file in the place of a device, which ``/dev/stdout`` is."""
    if output is not None and output.exists() and not output.is_file():
        raise typer.BadParameter("not a regular file; without the option the token is printed", param_hint="--output")
