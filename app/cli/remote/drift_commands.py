"""The subcommands of ``confplane drift`` and their help. Their imports are made when they run."""

from __future__ import annotations

import typer

from app.cli.remote.options import READ_CODES, AsLines, ClusterName, ProfileName

commands = typer.Typer(add_completion=False)
drift = typer.Typer(
    name="drift",
    help="Differences between a Kafka cluster without ZooKeeper (Kafka 4) and what callers wrote here.",
    no_args_is_help=True,
    rich_markup_mode="markdown",
)
commands.add_typer(drift)


@drift.command("list", epilog=f"Example:\n\n    confplane drift list --cluster payments\n\n{READ_CODES}")
def list_drift(*, as_json: AsLines = False, cluster: ClusterName = None, profile: ProfileName = None) -> None:
    """List the keys whose values in the Kafka cluster differ, with both values, and who made the change when.

    `pending` is on its way, `refused` was refused by the cluster, `extra` was set there by others and never here.
    """
    from app.cli.remote import drift as command  # noqa: PLC0415 - see the module's docstring
    from app.cli.remote.session import run  # noqa: PLC0415 - as above

    raise run(profile, cluster, lambda client: command.listed(client, as_json=as_json))
