"""The subcommands about the service, the caller and the trail, and their help. Their imports are made when they run."""

from __future__ import annotations

from typing import Annotated

import typer

from confplane.cli.command_group import CommandGroup
from confplane.cli.remote.options import READ_CODES, AsJson, AsLines, ClusterName, Limit, ProfileName, Since, Until

commands = CommandGroup(add_completion=False)


@commands.command(epilog=f"Example:\n\n    confplane whoami --profile production\n\n{READ_CODES}")
def whoami(*, as_json: AsJson = False, cluster: ClusterName = None, profile: ProfileName = None) -> None:
    """Show the principal of the token that is used, the place of the token, and the grants that count."""
    from confplane.cli.remote import about, profiles, session  # noqa: PLC0415 - see the module's docstring

    def work() -> int:
        chosen = profiles.choose_profile(profile, cluster)
        return session.run_with_client(profile, cluster, lambda client: about.whoami(client, chosen, as_json=as_json))

    raise typer.Exit(session.code_of(work))


@commands.command(epilog=f"Example:\n\n    confplane clusters --json\n\n{READ_CODES}")
def clusters(*, as_json: AsLines = False, profile: ProfileName = None) -> None:
    """List the clusters of the service, each with its state and its warnings."""
    from confplane.cli.remote import about, session  # noqa: PLC0415 - see the module's docstring

    raise session.run(profile, None, lambda client: about.clusters(client, as_json=as_json))


@commands.command(
    epilog="Examples:\n\n"
    "    confplane audit --entity user=alice --since 1d\n\n"
    "    confplane audit --principal User:olga --outcome rejected --json\n\n"
    "    confplane audit --refused --since 1d\n\n"
    "    confplane audit 019a9c5e-7b2c-7d11-8a52-5d0c6f7e9b10\n\n"
    f"{READ_CODES}"
)
def audit(  # noqa: PLR0913 - one argument an option is typer's way
    change: Annotated[
        str | None, typer.Argument(metavar="CHANGE", help="The id of one change.", show_default="a search")
    ] = None,
    *,
    entity: Annotated[
        str | None,
        typer.Option(
            metavar="ENTITY", help="Changes of this entity; `cluster` for freezes, thaws and moves.", show_default=False
        ),
    ] = None,
    key: Annotated[
        str | None, typer.Option(metavar="KEY", help="Changes that altered this key.", show_default=False)
    ] = None,
    principal: Annotated[
        str | None, typer.Option(metavar="PRINCIPAL", help="Changes by this principal.", show_default=False)
    ] = None,
    since: Since = None,
    until: Until = None,
    outcome: Annotated[
        str | None,
        typer.Option(metavar="OUTCOME", help="Changes that are committed, rejected or open.", show_default=False),
    ] = None,
    refused: Annotated[
        bool, typer.Option("--refused", help="Writes that were refused before they were begun, instead of changes.")
    ] = False,
    limit: Limit = 20,
    as_json: AsLines = False,
    cluster: ClusterName = None,
    profile: ProfileName = None,
) -> None:
    """Search the trail of all changes, newest first, or show one change with its values before and after."""
    from confplane.cli.remote import audit as command  # noqa: PLC0415 - see the module's docstring
    from confplane.cli.remote.session import run  # noqa: PLC0415 - as above

    wanted = (entity, key, principal, since, until, outcome)
    if change is not None:
        if refused or any(each is not None for each in wanted):
            raise typer.BadParameter("A change is shown whole: leave the options of a search out")
        raise run(profile, cluster, lambda client: command.show(client, change, as_json=as_json))
    if refused and outcome is not None:
        raise typer.BadParameter("Refused attempts have no outcome: leave --outcome or --refused out")
    search = command.AuditSearch(*wanted)
    run_search = command.search_refused if refused else command.search
    raise run(profile, cluster, lambda client: run_search(client, search, limit=limit, as_json=as_json))


@commands.command(
    epilog="Examples:\n\n"
    "    confplane profiles set people --url https://confplane.example.com --client-id confplane-cli\n\n"
    "    confplane login --profile people\n\n"
    "Exit codes: 0 logged in; 1 the service or the issuer refused or did not answer; 2 the profile is not valid."
)
def login(*, profile: ProfileName = None) -> None:
    """Log in at the issuer of the service, in any browser, and keep the tokens.

    The profile names the client of the issuer. The tokens are kept in a file that only you can read, and are renewed
    as long as the issuer does so.
    """
    from confplane.cli.remote import login as command  # noqa: PLC0415 - see the module's docstring
    from confplane.cli.remote import profiles, session  # noqa: PLC0415 - as above

    raise typer.Exit(session.code_of(lambda: command.login(profiles.choose_profile(profile, None))))


@commands.command(
    epilog="Example:\n\n    confplane logout --profile people\n\n"
    "Exit codes: 0 logged out; 1 the tokens are removed here, but not ended at the issuer; 2 the profile is not valid."
)
def logout(*, profile: ProfileName = None) -> None:
    """End the tokens of a login at the issuer, and remove them."""
    from confplane.cli.remote import login as command  # noqa: PLC0415 - see the module's docstring
    from confplane.cli.remote import profiles, session  # noqa: PLC0415 - as above

    raise typer.Exit(session.code_of(lambda: command.logout(profiles.choose_profile(profile, None))))
