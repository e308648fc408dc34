"""The subcommands of ``confplane target`` and their help. Their imports are made when they run."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from confplane.cli.command_group import CommandGroup
from confplane.cli.options import Apply, AsJson, ClusterName, SettingsFile, load_settings
from confplane.services.ports.kafka import KraftEntityType

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

commands = CommandGroup()
target = commands.subgroup("target")

_CODES = "Exit codes: 0 done; 1 not done, or not all; 2 invalid options or settings"
Reason = Annotated[str, typer.Option("--reason", metavar="TEXT", help="The reason, which is stored in the trail.")]
Types = Annotated[
    list[KraftEntityType] | None,
    typer.Option("--type", help="An entity type. May be repeated. Without this option, all types are changed."),
]


@target.command(
    epilog="Example:\n\n    confplane target status --cluster payments\n\n"
    "Exit codes: 0 shown; 1 ZooKeeper or Postgres did not answer; 2 invalid options or settings."
)
def status(cluster: ClusterName, *, as_json: AsJson = False, settings_file: SettingsFile = None) -> None:
    """Show the target of a cluster, and how fresh the copy of each part is.

    Each part has the time of its last poll, and what it lacks: a permission, a broker, a working connection. Names
    that ZooKeeper can't hold, and keys whose values the cluster hides, are counted and listed.

    The command reads the report of the leading process and sends nothing to Kafka. Without a leader the report is old:
    start the service.
    """
    from confplane.cli import target as command

    raise typer.Exit(command.status(load_settings(settings_file), cluster))


@target.command(
    epilog="Example:\n\n    confplane target check --cluster payments\n\n"
    "Exit codes: 0 everything can be followed; 1 not everything, or the cluster is away; 2 invalid options or settings."
)
def check(cluster: ClusterName, *, as_json: AsJson = False, settings_file: SettingsFile = None) -> None:
    """Try each describe and each alter on the Kafka cluster, and report what can be followed and written.

    Needs the setting `kafka` of the cluster, and no target. For client quotas, topics, brokers, groups and client
    metrics the command prints `full`, `read only` or `none`, with the missing right in Kafka's words. Alters are tried
    with no keys and as `validateOnly`: nothing is changed. A part that is not permitted is left out.

    Without the right to describe the quorum (DESCRIBE on CLUSTER), strong reads have no barrier. They wait until their
    broker has fetched changes twice, at least a second.
    """
    from confplane.cli import target as command

    raise typer.Exit(command.check(load_settings(settings_file), cluster))


@target.command(
    "import",
    epilog="Examples:\n\n"
    "    confplane target import --cluster payments\n\n"
    "    confplane target import --cluster payments --apply\n\n"
    f"{_CODES}; 3 a reply was lost, run the command again.",
)
def import_(
    cluster: ClusterName, *, apply: Apply = False, as_json: AsJson = False, settings_file: SettingsFile = None
) -> None:
    """Import the quotas and configs of a Kafka cluster, and follow the cluster from then on.

    Without `--apply` the command shows what it would do. With `--apply` it stores the cluster's id as the target, and
    makes the copy in ZooKeeper that of the cluster: in changes of up to 25 entities, in the trail with the kind
    `import`. Quotas and configs that are in the copy and not in the cluster are removed from the copy. The Kafka
    cluster itself is asked for descriptions, and never written to.

    An interrupted import leaves a part of the work done: run the command again to do the rest. From its start on,
    quotas and configs of this cluster can't be written by clients. Client configs can.

    The command works on ZooKeeper, Postgres and Kafka directly, with the service's settings; the service need not run.
    """
    from confplane.cli import target as command

    raise typer.Exit(command.import_(load_settings(settings_file), cluster, apply=apply))


def _add_mode(action: str, text: str, *examples: str) -> None:
    """Add a command that changes the mode of a cluster or of some of its entity types."""
    shown = "\n\n".join(f"    confplane target {action} --cluster payments {each}" for each in examples)

    @target.command(action, help=text, epilog=f"Example{'s' * (len(examples) > 1)}:\n\n{shown}\n\n{_CODES}.")
    def change_mode(
        cluster: ClusterName,
        reason: Reason,
        types: Types = None,
        *,
        as_json: AsJson = False,
        settings_file: SettingsFile = None,
    ) -> None:
        _change(action, cluster, reason, settings_file, types or ())


_add_mode(
    "adopt",
    """Accept writes of quotas and configs, and apply them to the Kafka cluster.

    A write is committed here, and in the trail, as on a cluster with ZooKeeper; within a moment the leader sends it to
    the Kafka cluster. `confplane target status` shows the changes that wait, and those that the cluster refused.
    External changes in the cluster are copied, as before.

    Needs a complete import, and the right ALTER_CONFIGS on CLUSTER, on TOPIC and on GROUP. `confplane target observe`
    ends it.
    """,
    '--reason "quotas as code"',
)
_add_mode(
    "enforce",
    """Accept writes of quotas and configs, as `adopt` does, and revert external changes.

    An external change in the Kafka cluster is reverted once a poll finds it. The trail has it with both values and the
    kind put-back. A key that was reverted three times in ten minutes is left alone, and listed as contested by
    `confplane drift list` and `confplane target status`. A key that was never set here is left alone too, as extra.

    Needs what `adopt` needs. `confplane target adopt` or `observe` ends it.
    """,
    '--reason "quotas as code"',
    '--type topics --reason "topics as code"',
)
_add_mode(
    "observe",
    """Refuse writes of quotas and configs again, and send nothing more to the Kafka cluster.

    Changes that the cluster has not applied by then are undone in the copy, with rows in the trail.
    """,
    '--reason "a drill"',
)


@target.command(epilog=f'Example:\n\n    confplane target pause --cluster payments --reason "a drill"\n\n{_CODES}.')
def pause(cluster: ClusterName, reason: Reason, *, as_json: AsJson = False, settings_file: SettingsFile = None) -> None:
    """Stop following the Kafka cluster, and send it nothing; the copy stays as it is.

    All processes stop before the command ends. Changes in the cluster are found and recorded after `resume`, and writes
    in the meantime (mode adopt) are applied then.
    """
    _change("pause", cluster, reason, settings_file)


@target.command(epilog=f'Example:\n\n    confplane target resume --cluster payments --reason "drill over"\n\n{_CODES}.')
def resume(
    cluster: ClusterName, reason: Reason, *, as_json: AsJson = False, settings_file: SettingsFile = None
) -> None:
    """Follow the Kafka cluster again after `pause`. Changes made in the meantime are recorded."""
    _change("resume", cluster, reason, settings_file)


def _change(
    action: str, cluster: str, reason: str, settings_file: Path | None, types: Sequence[KraftEntityType] = ()
) -> None:
    from confplane.cli import target as command

    raise typer.Exit(command.change(load_settings(settings_file), cluster, reason, action, types))
