"""``confplane tokens``: API tokens, over the API. On Postgres: the first token, and the commands after a restore."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from contextlib import nullcontext
from datetime import datetime, timedelta, timezone
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any
from uuid import UUID

import typer

from confplane.cli.command_group import CommandGroup
from confplane.cli.options import Local, SettingsFile, id_argument, is_local, load_settings
from confplane.cli.output import echo, is_json, print_error, print_items, print_json
from confplane.cli.remote.options import READ_CODES, WRITE_CODES, AsJson, ProfileName, Reason, Ticket, served, terms
from confplane.cli.remote.session import DONE, FAILED, run
from confplane.cli.times import datetime_of, duration_of
from confplane.domain.access.operations import Operation
from confplane.domain.texts import rfc3339
from confplane.files import atomic_write

if TYPE_CHECKING:
    from contextlib import AbstractContextManager
    from typing import TextIO

    from confplane.client import AsyncConfplane

commands = CommandGroup()
tokens = commands.subgroup("tokens")

_LOCAL_CODES = (
    "Exit codes: 0 done; 1 not done, because Postgres is not available; 2 the options or the settings are not valid."
)
_Id = Annotated[UUID, id_argument("token")]
_Output = Annotated[
    Path | None,
    typer.Option(
        "--output",
        metavar="FILE",
        dir_okay=False,
        help="Write the token to this file, which only its owner can read. An existing file is replaced.",
        show_default="standard output",
    ),
]
_ExpiresIn = Annotated[
    str | None, typer.Option("--expires-in", metavar="AGE", help="The token's lifetime: a number and s, m, h or d.")
]


@tokens.command(
    "list",
    epilog="Examples:\n\n"
    "    confplane tokens list\n\n"
    f"    confplane tokens list --principal User:payments-portal --json\n\n{READ_CODES}",
)
@served(as_lines=True, in_cluster=False)
async def list_tokens(
    client: AsyncConfplane,
    principal: Annotated[str | None, typer.Option(metavar="User:NAME", help="Only tokens of this user.")] = None,
) -> None:
    """List API tokens without their secrets, oldest first. Expired and revoked tokens are included."""
    members = ("id", "principal", "status", "expiresAt", "lastUsedAt", "owner", "note")
    await print_items(
        aiter(client.tokens.list(principal=principal, page_size=1000)),
        ("ID", "PRINCIPAL", "STATUS", "EXPIRES", "LAST USED", "OWNER", "NOTE"),
        lambda token: [[str({**token}[member] or "-") for member in members]],
        noun="tokens",
        empty="There are no such tokens that you may see.",
    )


@tokens.command(
    "create",
    epilog="Examples:\n\n"
    "    confplane tokens create --principal User:payments-portal --group Group:payments --output portal-token\n\n"
    "    confplane tokens create --principal User:payments-ci --expires-in 12h --read-only --cluster payments\n\n"
    f"    confplane tokens create --principal User:olga --local    (the first token)\n\n{WRITE_CODES}",
)
def create_token(
    principal: Annotated[str, typer.Option(metavar="User:NAME", help="The user of requests with the token.")],
    *,
    group: Annotated[
        list[str] | None, typer.Option(metavar="Group:NAME", help="A group of the user. May be repeated.")
    ] = None,
    owner: Annotated[
        str | None,
        typer.Option(
            metavar="TEXT",
            help="The person or team responsible for the token. Tokens of one owner count as one person where two must"
            " agree.",
            show_default="the creator; with --local the principal",
        ),
    ] = None,
    note: Annotated[str | None, typer.Option(metavar="TEXT", help="A note for people.")] = None,
    expires_in: _ExpiresIn = None,
    read_only: Annotated[bool, typer.Option("--read-only", help="Allow only reads.")] = False,
    cluster: Annotated[
        list[str] | None, typer.Option(metavar="NAME", help="Allow only this cluster. May be repeated.")
    ] = None,
    operation: Annotated[
        list[Operation] | None,
        typer.Option(help="Allow only this operation, and the operations that it includes. May be repeated."),
    ] = None,
    output: _Output = None,
    reason: Reason = None,
    ticket: Ticket = None,
    as_json: AsJson = False,
    profile: ProfileName = None,
    local: Local = False,
    settings_file: SettingsFile = None,
) -> None:
    """Create an API token and print it. It can't be shown again.

    A token has the rights that grants give its principal, its groups and everybody, within its own limits
    (`--read-only`, `--cluster`, `--operation`). Only the SHA-256 of a token is stored.
    """
    lifetime_s = None if expires_in is None else duration_of(expires_in, "--expires-in")
    _check(output)
    limits = {"readOnly": read_only, "clusters": cluster, "operations": operation}
    limits = {name: value for name, value in limits.items() if value}
    body = {"principal": principal, "groups": group or [], "owner": owner, "note": note, "narrowing": limits or None}
    if is_local(local, settings_file, profile):
        from confplane.cli import access, callers

        settings, caller = load_settings(settings_file), callers.caller(reason, ticket)
        issued = _issue(lambda: access.create_token(settings, body, lifetime_s, caller), output)
        raise typer.Exit(callers.run(issued, "Not created"))

    async def created(client: AsyncConfplane) -> Mapping[str, Any]:
        new: Any = body | {"expiresAt": _after(lifetime_s)}
        return (await client.tokens.create(new, **terms(reason, ticket))).body

    raise run(profile, None, lambda client: _issue(lambda: created(client), output))


@tokens.command(
    "rotate",
    epilog="Example:\n\n"
    "    confplane tokens rotate 019a9c5e-7b2c-7d11-8a52-5d0c6f7e9b10 --overlap 1d --output portal-token\n\n"
    f"{WRITE_CODES}",
)
@served(in_cluster=False)
async def rotate_token(
    client: AsyncConfplane,
    token_id: _Id,
    *,
    overlap: Annotated[
        str,
        typer.Option(metavar="AGE", help="How long the old token stays valid: a number and s, m, h or d; 30d at most."),
    ] = "1d",
    expires_in: _ExpiresIn = None,
    output: _Output = None,
    reason: Reason = None,
    ticket: Ticket = None,
) -> int:
    """Replace an API token by a new one and print the new one. It can't be shown again.

    The new token has the principal, groups, owner, note and limits of the old one, and its lifetime unless
    `--expires-in` is given. Responses to requests with a token announce its expiry 14 days before
    (`Confplane-Token-Expires`).
    """
    overlap_s = duration_of(overlap, "--overlap")
    lifetime_s = None if expires_in is None else duration_of(expires_in, "--expires-in")
    _check(output)

    given = {"overlap_s": overlap_s, "expires_at": _after(lifetime_s), **terms(reason, ticket)}

    async def rotated() -> Mapping[str, Any]:
        return (await client.tokens.rotate(str(token_id), **given)).body

    code = await _issue(rotated, output)
    if code == DONE:
        old = (await client.tokens.get(str(token_id))).body
        echo(f"The old token {old['id']} is valid until {old['expiresAt']}", err=True)
    return code


@tokens.command(
    "revoke",
    epilog="Example:\n\n"
    f'    confplane tokens revoke 019a9c5e-7b2c-7d11-8a52-5d0c6f7e9b10 --reason "leaked"\n\n{WRITE_CODES}',
)
@served(in_cluster=False)
async def revoke_token(
    client: AsyncConfplane,
    token_id: _Id,
    *,
    with_created: Annotated[
        bool,
        typer.Option("--with-created", help="Also revoke the tokens created with it, directly or indirectly."),
    ] = False,
    reason: Reason = None,
    ticket: Ticket = None,
) -> None:
    """Revoke an API token permanently. Every process rejects it within two seconds.

    Without `--with-created` the command prints how many active tokens were created with it. If the token leaked, these
    may have leaked too.
    """
    token = (await client.tokens.revoke(str(token_id), with_created=with_created, **terms(reason, ticket))).body
    if is_json():
        print_json(token)
        return
    echo(f"Revoked the token {token['id']} of {token['principal']}; every process rejects it within two seconds")
    if token["createdRevoked"]:
        echo(f"Tokens created with it that are revoked too: {token['createdRevoked']}")
    if token["createdActive"]:
        echo(
            f"Active tokens that were created with it: {token['createdActive']}."
            f" `confplane tokens revoke {token['id']} --with-created` revokes them too.",
            err=True,
        )


@tokens.command(
    "confirm",
    epilog=f'Example:\n\n    confplane tokens confirm --reason "checked after the restore, INC-7"\n\n{_LOCAL_CODES}',
)
def confirm_tokens(
    *, reason: Reason = None, ticket: Ticket = None, as_json: AsJson = False, settings_file: SettingsFile = None
) -> None:
    """Accept the API tokens of a restored Postgres again.

    A Postgres that was restored to an earlier time has lost later revocations, and removals of grants. When the service
    notices this, it rejects all tokens created before. Revoke again what was revoked since the backup, with the admin
    token, check the grants, and then run this command. `confplane tokens invalidate` revokes all tokens instead.

    The command uses Postgres directly, with the service's settings; the service need not run.
    """
    from confplane.cli import access, callers

    settings, caller = load_settings(settings_file), callers.caller(reason, ticket)
    raise typer.Exit(access.confirm_tokens(settings, caller))


@tokens.command(
    "invalidate",
    epilog="Example:\n\n"
    '    confplane tokens invalidate --issued-before 2026-11-27T09:00:00Z --reason "restored, INC-7"\n\n'
    f"{_LOCAL_CODES}",
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
    reason: Reason = None,
    ticket: Ticket = None,
    as_json: AsJson = False,
    settings_file: SettingsFile = None,
) -> None:
    """Permanently revoke all API tokens that were created before a time.

    After a restore of Postgres to an earlier time, this replaces `confplane tokens confirm`.

    The command uses Postgres directly, with the service's settings; the service need not run.
    """
    before = datetime_of(issued_before, "--issued-before")
    from confplane.cli import access, callers

    settings, caller = load_settings(settings_file), callers.caller(reason, ticket)
    raise typer.Exit(access.invalidate_tokens(settings, before, caller))


async def _issue(request: Callable[[], Awaitable[Mapping[str, Any]]], output: Path | None) -> int:
    """Request a token, write its text, and return the exit code.

    The file is created before the token, so that no token is lost if the file can't be created.
    """
    opened: AbstractContextManager[TextIO | None] = nullcontext()
    try:
        if output is not None:
            opened = atomic_write(output, mode=0o600)
        with opened as file:
            made = await request()
            if file is not None:
                file.write(f"{made['token']}\n")
    except OSError as error:
        return print_error(
            f"{output} can't be written: {error.strerror}. If `confplane tokens list` shows a new token, revoke it.",
            FAILED,
        )
    if is_json():
        print_json({name: value for name, value in made.items() if name != "token" or output is None})
    elif output is None:
        echo(made["token"])
    place = "it can't be shown again" if output is None else f"it is in {output}"
    echo(f"The token {made['id']} of {made['principal']} is valid until {made['expiresAt']}; {place}", err=True)
    return DONE


def _after(seconds: int | None) -> str | None:
    return None if seconds is None else rfc3339(datetime.now(timezone.utc) + timedelta(seconds=seconds))


def _check(output: Path | None) -> None:
    """Refuse to replace a device such as ``/dev/stdout`` by a file."""
    if output is not None and output.exists() and not output.is_file():
        raise typer.BadParameter(
            f"{output} is not a regular file. Omit the option to print the token.", param_hint="--output"
        )
