"""``confplane profiles``: shows and changes the file of profiles."""

from __future__ import annotations

import shlex
from functools import wraps
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, ParamSpec

import typer

from confplane.cli.command_group import CommandGroup
from confplane.cli.output import emit, is_json, print_json, print_table, say
from confplane.cli.remote import completion, session
from confplane.cli.remote.options import AsJson, AsLines
from confplane.cli.remote.profiles import Profile, ProfileError, Profiles, check_url, file

if TYPE_CHECKING:
    from collections.abc import Callable

P = ParamSpec("P")

commands = CommandGroup()
profiles = commands.subgroup("profiles")

_CODES = "Exit codes: 0 done; 2 the file of profiles can't be used, or the profile does not exist."
_Name = Annotated[str, typer.Argument(metavar="NAME", help="The profile.", autocompletion=completion.profile_names)]


def _on_file(change: Callable[P, None]) -> Callable[P, None]:
    """Run a command on the file; print the reason for a failure, and exit with its code."""

    @wraps(change)
    def command(*arguments: P.args, **options: P.kwargs) -> None:
        def work() -> int:
            change(*arguments, **options)
            return session.DONE

        raise typer.Exit(session.code_of(work))

    return command


@profiles.command("list", epilog=f"Example:\n\n    confplane profiles list\n\n{_CODES}")
@_on_file
def list_profiles(*, as_json: AsLines = False) -> None:
    """Show all profiles, the current profile with a star."""
    stored = Profiles.read()
    if is_json():
        for name, each in stored.named.items():
            print_json(
                {
                    "name": name,
                    "url": each.url,
                    "cluster": each.cluster,
                    "tokenSource": each.token_source,
                    "current": name == stored.current,
                }
            )
        return
    if not stored.named:
        say(f"There is no profile in {file()}; write one with `confplane profiles set NAME --url URL`", err=True)
        return
    print_table(
        ("NAME", "CURRENT", "URL", "CLUSTER", "TOKEN"),
        [
            (name, "*" if name == stored.current else "", each.url, each.cluster, each.token_source)
            for name, each in stored.named.items()
        ],
    )


@profiles.command(
    "set",
    epilog="Examples:\n\n"
    "    confplane profiles set portal --url https://confplane.example.com --cluster payments --token-file token\n\n"
    "    confplane profiles set people --url https://confplane.example.com --client-id confplane-cli\n\n"
    "    confplane profiles set ci --url https://confplane.example.com --token-command 'vault kv get -field=token ci'"
    f"\n\n{_CODES}",
)
@_on_file
def set_profile(
    name: _Name,
    url: Annotated[str, typer.Option(metavar="URL", help="The service, without /v1.")],
    *,
    cluster: Annotated[str, typer.Option(metavar="NAME", help="The cluster of commands.")] = "default",
    token_file: Annotated[Path | None, typer.Option(metavar="FILE", help="The file with the token.")] = None,
    token_command: Annotated[
        str | None,
        typer.Option(metavar="COMMAND", help="A program and its arguments, quoted as in a shell; it prints the token."),
    ] = None,
    client_id: Annotated[
        str | None, typer.Option(metavar="ID", help="The client of `confplane login` at the service's issuer.")
    ] = None,
    issuer: Annotated[
        str | None,
        typer.Option(metavar="URL", help="The issuer of a login.", show_default="the service's only issuer"),
    ] = None,
    scope: Annotated[
        str | None,
        typer.Option(metavar="SCOPES", help="The scopes that a login requests.", show_default="openid offline_access"),
    ] = None,
    resource: Annotated[
        str | None, typer.Option(metavar="URI", help="The resource of a login (RFC 8707), if the issuer requires one.")
    ] = None,
    ca_file: Annotated[
        Path | None, typer.Option(metavar="FILE", help="Authorities to trust, as PEM.", show_default="the system's")
    ] = None,
    certificate_file: Annotated[Path | None, typer.Option(metavar="FILE", help="A client certificate, as PEM.")] = None,
    key_file: Annotated[Path | None, typer.Option(metavar="FILE", help="The certificate's key, as PEM.")] = None,
    as_json: AsJson = False,
) -> None:
    """Write a profile, or replace it. The first profile becomes the current profile.

    The file names the source of the token and never contains the token.
    """
    check_url(url, "--url")
    if sum(each is not None for each in (token_file, token_command, client_id)) > 1:
        raise ProfileError("Give one of --token-file, --token-command and --client-id")
    try:
        command = None if token_command is None else tuple(shlex.split(token_command))
    except ValueError as error:
        raise ProfileError(f"--token-command can't be read: {error}") from None
    if command == ():
        raise ProfileError("--token-command is empty")
    stored = Profiles.read()
    # Commands run in any directory, so paths are absolute.
    made = Profile(
        url,
        cluster=cluster,
        token_file=_absolute(token_file),
        token_command=command,
        client_id=client_id,
        issuer=issuer,
        scope=scope,
        resource=resource,
        ca_file=_absolute(ca_file),
        certificate_file=_absolute(certificate_file),
        key_file=_absolute(key_file),
    )
    Profiles(stored.current or name, stored.named | {name: made}).write()
    emit(name=name, file=str(file()), current=stored.current or name)
    say(f"Wrote the profile {name} to {file()}")


@profiles.command(epilog=f"Example:\n\n    confplane profiles use production\n\n{_CODES}")
@_on_file
def use(name: _Name, *, as_json: AsJson = False) -> None:
    """Make a profile the current profile, which commands use without `--profile`."""
    stored = Profiles.read()
    stored.named_or_raise(name)
    Profiles(name, stored.named).write()
    emit(name=name, file=str(file()), current=name)
    say(f"The current profile is {name}")


@profiles.command(epilog=f"Example:\n\n    confplane profiles remove production\n\n{_CODES}")
@_on_file
def remove(name: _Name, *, as_json: AsJson = False) -> None:
    """Remove a profile. The file of its token is kept."""
    stored = Profiles.read()
    stored.named_or_raise(name)
    left = {each: profile for each, profile in stored.named.items() if each != name}
    current = None if stored.current == name else stored.current
    Profiles(current, left).write()
    emit(name=name, file=str(file()), current=current)
    say(f"Removed the profile {name}")


def _absolute(path: Path | None) -> Path | None:
    return None if path is None else path.absolute()
