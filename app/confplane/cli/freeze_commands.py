"""``confplane freeze`` and ``thaw``, over the API or on the stores."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any

import typer

from confplane.cli.command_group import CommandGroup
from confplane.cli.options import Local, SettingsFile, is_local, load_settings
from confplane.cli.output import echo, is_json, print_json
from confplane.cli.remote.options import WRITE_CODES, AsJson, ClusterName, ProfileName, Ticket
from confplane.cli.remote.session import DONE, run

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

    from confplane.client import AsyncConfplane

commands = CommandGroup()


@commands.command(
    epilog=f'Example:\n\n    confplane freeze --cluster payments --reason "upgrade to 3.9, CHG-1234"\n\n{WRITE_CODES}'
)
def freeze(
    *,
    reason: Annotated[
        str,
        typer.Option(metavar="TEXT", help="The reason. Every refused write shows it, and it is stored in the trail."),
    ],
    ticket: Ticket = None,
    as_json: AsJson = False,
    cluster: ClusterName = None,
    profile: ProfileName = None,
    local: Local = False,
    settings_file: SettingsFile = None,
) -> None:
    """Stop all writes to a cluster's configs, until `confplane thaw`.

    Use it during an upgrade, or to try Confplane on a live cluster without writes. Once the command has ended, no write
    through Confplane commits: every process that serves the cluster answers 409 with the reason, its author and its
    time. Reads continue. Writes by brokers and by Kafka's own tools are not stopped.
    """
    _change("freeze", reason, ticket, cluster, profile, local=local, settings_file=settings_file)


@commands.command(epilog=f'Example:\n\n    confplane thaw --cluster payments --reason "upgraded"\n\n{WRITE_CODES}')
def thaw(
    *,
    reason: Annotated[str, typer.Option(metavar="TEXT", help="The reason, which is stored in the trail.")],
    ticket: Ticket = None,
    as_json: AsJson = False,
    cluster: ClusterName = None,
    profile: ProfileName = None,
    local: Local = False,
    settings_file: SettingsFile = None,
) -> None:
    """Allow writes to a frozen cluster's configs again."""
    _change("thaw", reason, ticket, cluster, profile, local=local, settings_file=settings_file)


def _change(
    verb: str,
    reason: str,
    ticket: str | None,
    cluster: str | None,
    profile: str | None,
    *,
    local: bool,
    settings_file: Path | None,
) -> None:
    if is_local(local, settings_file, profile):
        if cluster is None:
            raise typer.BadParameter("Name a cluster of the settings.", param_hint="--cluster")
        from confplane.cli import callers, store

        change = store.freeze if verb == "freeze" else store.thaw
        settings, caller = load_settings(settings_file), callers.caller(reason, ticket)

        async def change_here() -> int:
            return _show(verb, cluster, await change(settings, cluster, reason, caller))

        raise typer.Exit(callers.run(change_here(), f"The {verb} failed"))

    async def request(client: AsyncConfplane) -> int:
        terms: Any = {"ticket": ticket}
        change = client.clusters.freeze if verb == "freeze" else client.clusters.thaw
        return _show(verb, client.cluster, (await change(reason, **terms)).body)

    raise run(profile, cluster, request)


def _show(verb: str, cluster: str, state: Mapping[str, Any]) -> int:
    """Print the state after a change in the form of the API."""
    if is_json():
        print_json(state)
        return DONE
    if state["changeId"] is not None:
        done = "frozen" if verb == "freeze" else "thawed"
        echo(f"Cluster {cluster} is {done} as of revision {state['revision']} (change {state['changeId']})")
    elif (freeze := state["after"]) is not None:
        by = f"since {freeze['since']} by {freeze['principal']}: {freeze['reason']}"
        echo(f"Cluster {cluster} was already frozen for this reason, {by}")
    else:
        echo(f"Cluster {cluster} was not frozen; nothing to do")
    if (rest := state["applying"]) is not None:
        if not rest["rested"] or rest["pending"] is None:
            echo(
                "The leader did not confirm in time that deliveries to the Kafka cluster stopped; one may be in flight"
            )
        elif rest["pending"]:
            echo(
                f"Nothing is sent to the Kafka cluster before the thaw. Entities that wait for it: {rest['pending']};"
                " `confplane drift list` lists them"
            )
        else:
            echo("Nothing is sent to the Kafka cluster before the thaw. Every change is applied")
    return DONE
