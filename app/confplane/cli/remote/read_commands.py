"""The subcommands that read configs over the API, and their help. Their imports are made when they run."""

from __future__ import annotations

from typing import Annotated

import typer

from confplane.cli.command_group import CommandGroup
from confplane.cli.remote.options import (
    READ_CODES,
    AsJson,
    AsLines,
    At,
    ClusterName,
    EntityName,
    Key,
    Limit,
    OptionalEntity,
    ProfileName,
)

commands = CommandGroup(add_completion=False)


@commands.command(
    epilog="Examples:\n\n"
    "    confplane get user=alice\n\n"
    "    confplane get topic=orders --cluster payments --at 2h\n\n"
    "    confplane get --type topic --key retention.ms\n\n"
    "    confplane get --not-applied\n\n"
    "Exit codes: 0 shown; 1 nothing is set on the entity, an entity of the list can't be read, or the service refused"
    " or did not answer; 2 the arguments or the profile are not valid."
)
def get(  # noqa: PLR0913 - one argument an option is typer's way
    entity: OptionalEntity = None,
    *,
    kind: Annotated[
        str | None,
        typer.Option(
            "--type", metavar="TYPE", help="List entities of this type, or of `user,client-id`.", show_default=False
        ),
    ] = None,
    user: Annotated[
        str | None,
        typer.Option(metavar="NAME", help="List entities of this user; '' is the default user.", show_default=False),
    ] = None,
    client_id: Annotated[
        str | None,
        typer.Option(
            metavar="NAME", help="List entities of this client-id; '' is the default client-id.", show_default=False
        ),
    ] = None,
    key: Annotated[
        str | None, typer.Option(metavar="KEY", help="List entities that set this key.", show_default=False)
    ] = None,
    not_applied: Annotated[
        bool,
        typer.Option(
            "--not-applied", help="List client configs that some clients, as they say, do not run with, or refuse."
        ),
    ] = False,
    at: At = None,
    as_json: AsLines = False,
    cluster: ClusterName = None,
    profile: ProfileName = None,
) -> None:
    """Show the quotas and configs that are set on an entity, or list entities.

    Without ENTITY all entities with quotas or configs are listed, as the options select them. Secrets are shown as
    `(hidden)`, in JSON as null. The JSON of an entity has the ETags that `confplane set` takes.
    """
    from confplane.cli.remote import get as command  # noqa: PLC0415 - see the module's docstring
    from confplane.cli.remote.list_entities import list_entities  # noqa: PLC0415 - as above
    from confplane.cli.remote.selection import EntitySelection  # noqa: PLC0415 - as above
    from confplane.cli.remote.session import run  # noqa: PLC0415 - as above

    if entity is None:
        names = {"user": user, "client-id": client_id}
        raise run(
            profile,
            cluster,
            lambda client: list_entities(
                client, EntitySelection(names, kind, key, at=at, not_applied=not_applied), as_json=as_json
            ),
        )
    if not_applied or not all(each is None for each in (kind, user, client_id, key)):
        raise typer.BadParameter("--type, --user, --client-id, --key and --not-applied are for lists: leave ENTITY out")
    raise run(profile, cluster, lambda client: command.get(client, entity, at=at, as_json=as_json))


@commands.command(
    epilog="Examples:\n\n"
    "    confplane effective user=alice,client-id=billing\n\n"
    "    confplane effective topic=orders --key retention.ms\n\n"
    f"{READ_CODES}"
)
def effective(
    entity: EntityName,
    *,
    key: Key = None,
    everything: Annotated[bool, typer.Option("--all", help="Show Kafka's own defaults too.")] = False,
    as_json: AsJson = False,
    cluster: ClusterName = None,
    profile: ProfileName = None,
) -> None:
    """Show the values that are in effect for an entity, each with the level that it is from.

    Levels are entities for quotas and client configs, and Kafka's sources for configs of topics and brokers.
    """
    from confplane.cli.remote import effective as command  # noqa: PLC0415 - see the module's docstring
    from confplane.cli.remote.session import run  # noqa: PLC0415 - as above

    raise run(
        profile,
        cluster,
        lambda client: command.effective(client, entity, key=key, everything=everything, as_json=as_json),
    )


@commands.command(
    epilog="Examples:\n\n"
    "    confplane history user=alice\n\n"
    "    confplane history topic=orders --limit 1 --json\n\n"
    f"{READ_CODES}"
)
def history(
    entity: EntityName,
    *,
    limit: Limit = 20,
    as_json: AsLines = False,
    cluster: ClusterName = None,
    profile: ProfileName = None,
) -> None:
    """Show the changes of an entity, newest first: who changed which key, from which value to which, and why.

    Changes that others made past the service are marked `(external)`.
    """
    from confplane.cli.remote import past as command  # noqa: PLC0415 - see the module's docstring
    from confplane.cli.remote.session import run  # noqa: PLC0415 - as above

    raise run(profile, cluster, lambda client: command.history(client, entity, limit=limit, as_json=as_json))


@commands.command(
    epilog="Examples:\n\n"
    "    confplane diff user=alice --from 2h\n\n"
    "    confplane diff topic=orders --from 8589934635 --to 2026-01-31T12:00:00Z\n\n"
    f"{READ_CODES}"
)
def diff(
    entity: EntityName,
    *,
    before: Annotated[
        str,
        typer.Option(
            "--from",
            metavar="MOMENT",
            help="The first moment: a revision, 2026-01-31T12:00:00Z, or a time ago such as 30m.",
            show_default=False,
        ),
    ],
    after: Annotated[
        str | None,
        typer.Option("--to", metavar="MOMENT", help="The second moment; as --from.", show_default="now"),
    ] = None,
    as_json: AsJson = False,
    cluster: ClusterName = None,
    profile: ProfileName = None,
) -> None:
    """Show the keys of an entity that differ between two moments."""
    from confplane.cli.remote import past as command  # noqa: PLC0415 - see the module's docstring
    from confplane.cli.remote.session import run  # noqa: PLC0415 - as above

    raise run(
        profile, cluster, lambda client: command.diff(client, entity, before=before, after=after, as_json=as_json)
    )
