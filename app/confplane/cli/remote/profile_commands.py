"""The subcommands of ``confplane profiles`` and their help. Their imports are made when they run."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from confplane.cli.command_group import CommandGroup
from confplane.cli.remote import completion

commands = CommandGroup(add_completion=False)
profiles = CommandGroup(
    name="profiles",
    help="Profiles: services by name, each with a cluster and the place of a token.",
    no_args_is_help=True,
    rich_markup_mode="markdown",
)
commands.add_typer(profiles)

_CODES = "Exit codes: 0 done; 2 the file of profiles can't be used, or there is no such profile."
_Name = Annotated[
    str,
    typer.Argument(metavar="NAME", help="The profile.", show_default=False, autocompletion=completion.profile_names),
]


@profiles.command("list", epilog=f"Example:\n\n    confplane profiles list\n\n{_CODES}")
def list_profiles() -> None:
    """Show all profiles, the current profile with a star."""
    from confplane.cli.remote import edit_profiles as command  # noqa: PLC0415 - see the module's docstring

    raise command.run(command.show)


@profiles.command(
    "set",
    epilog="Examples:\n\n"
    "    confplane profiles set portal --url https://confplane.example.com --cluster payments --token-file token\n\n"
    "    confplane profiles set people --url https://confplane.example.com --client-id confplane-cli\n\n"
    "    confplane profiles set ci --url https://confplane.example.com --token-command 'vault kv get -field=token ci'"
    f"\n\n{_CODES}",
)
def set_profile(  # noqa: PLR0913 - one argument an option is typer's way
    name: _Name,
    url: Annotated[str, typer.Option(metavar="URL", help="The service, without /v1.", show_default=False)],
    *,
    cluster: Annotated[str, typer.Option(metavar="NAME", help="The cluster of commands.")] = "default",
    token_file: Annotated[
        Path | None, typer.Option(metavar="FILE", help="The file with the token.", show_default=False)
    ] = None,
    token_command: Annotated[
        str | None,
        typer.Option(
            metavar="COMMAND",
            help="A program and its arguments, quoted as in a shell; it prints the token.",
            show_default=False,
        ),
    ] = None,
    client_id: Annotated[
        str | None,
        typer.Option(metavar="ID", help="The client of `confplane login` at the service's issuer.", show_default=False),
    ] = None,
    issuer: Annotated[
        str | None,
        typer.Option(metavar="URL", help="The issuer of a login.", show_default="the service's only issuer"),
    ] = None,
    scope: Annotated[
        str | None,
        typer.Option(metavar="SCOPES", help="The scopes of a login.", show_default="openid offline_access"),
    ] = None,
    resource: Annotated[
        str | None,
        typer.Option(
            metavar="URI", help="The resource of a login (RFC 8707), if the issuer wants one.", show_default=False
        ),
    ] = None,
    ca_file: Annotated[
        Path | None, typer.Option(metavar="FILE", help="Authorities to trust, as PEM.", show_default="the system's")
    ] = None,
    certificate_file: Annotated[
        Path | None, typer.Option(metavar="FILE", help="A client certificate, as PEM.", show_default=False)
    ] = None,
    key_file: Annotated[
        Path | None, typer.Option(metavar="FILE", help="The certificate's key, as PEM.", show_default=False)
    ] = None,
) -> None:
    """Write a profile, or replace it. The first profile becomes the current profile.

    The file has the place of the token and never the token.
    """
    from confplane.cli.remote import edit_profiles as command  # noqa: PLC0415 - see the module's docstring
    from confplane.cli.remote.profiles import Profile  # noqa: PLC0415 - as above

    made = Profile(
        url,
        cluster=cluster,
        token_file=token_file,
        client_id=client_id,
        issuer=issuer,
        scope=scope,
        resource=resource,
        ca_file=ca_file,
        certificate_file=certificate_file,
        key_file=key_file,
    )
    raise command.run(lambda: command.put(name, made, token_command))


@profiles.command(epilog=f"Example:\n\n    confplane profiles use production\n\n{_CODES}")
def use(name: _Name) -> None:
    """Make a profile the current profile, which commands use without `--profile`."""
    from confplane.cli.remote import edit_profiles as command  # noqa: PLC0415 - see the module's docstring

    raise command.run(lambda: command.use(name))


@profiles.command(epilog=f"Example:\n\n    confplane profiles remove production\n\n{_CODES}")
def remove(name: _Name) -> None:
    """Remove a profile. Its token's file stays."""
    from confplane.cli.remote import edit_profiles as command  # noqa: PLC0415 - see the module's docstring

    raise command.run(lambda: command.remove(name))
