"""The subcommands that read configs over the API, and their help. Their imports are made when they run."""

from __future__ import annotations

import typer

from app.cli.remote.options import AsJson, ClusterName, EntityName, ProfileName

commands = typer.Typer(add_completion=False)


@commands.command(
    epilog="Examples:\n\n"
    "    confplane get user=alice\n\n"
    "    confplane get topic=orders --cluster payments --json\n\n"
    "Exit codes: 0 shown; 1 nothing is set on the entity, or the service refused or did not answer; 2 the arguments or"
    " the profile are not valid."
)
def get(
    entity: EntityName, *, as_json: AsJson = False, cluster: ClusterName = None, profile: ProfileName = None
) -> None:
    """Show the quotas and configs that are set on an entity.

    Secrets are shown as `(hidden)`, in JSON as null.
    """
    from app.cli.remote import get as command  # noqa: PLC0415 - see the module's docstring
    from app.cli.remote.session import run  # noqa: PLC0415 - as above

    raise run(profile, cluster, lambda client: command.get(client, entity, as_json=as_json))
