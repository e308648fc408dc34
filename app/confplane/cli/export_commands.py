"""The subcommand ``export``, and its help. Its imports are made when it runs.

The form ``properties`` is read from ZooKeeper directly: a downgrade needs it while no service runs, and only ZooKeeper
has the values that brokers ignore. All other forms are read over the API.
"""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from confplane.cli.command_group import CommandGroup
from confplane.cli.options import SettingsFile
from confplane.cli.remote.options import At, ClusterName, ProfileName
from confplane.domain.entities import EntityKindName
from confplane.domain.enums import StrEnum

commands = CommandGroup()


class ExportFormat(StrEnum):
    """The form of an export."""

    YAML = "yaml"
    MANIFEST = "manifest"
    KAFKA_CONFIGS = "kafka-configs"
    TERRAFORM = "terraform"
    PROPERTIES = "properties"


def _name(option: str, help_text: str, metavar: str = "NAME") -> typer.models.OptionInfo:
    found: typer.models.OptionInfo = typer.Option(option, metavar=metavar, help=help_text)
    return found


@commands.command(
    epilog="Examples:\n\n"
    "    confplane export --output payments.yaml\n\n"
    "    confplane export --type topic --prefix orders\n\n"
    "    confplane export --format kafka-configs --output payments.sh\n\n"
    "    confplane export --format properties --cluster payments --broker 3 --output 3.properties\n\n"
    "Exit codes: 0 exported; 1 something could not be exported, the service or a store is not available, or the"
    " file can't be"
    " written; 2 the arguments, the profile or the settings are not valid.",
)
def export(
    *,
    export_format: Annotated[
        ExportFormat,
        typer.Option(
            "--format",
            help="yaml: for `confplane load`. manifest: for `confplane apply`. kafka-configs: a script of commands of"
            " Kafka's own tool. terraform: a configuration with import blocks."
            " properties: one broker's configs as in its server.properties.",
        ),
    ] = ExportFormat.YAML,
    output: Annotated[
        Path | None,
        typer.Option(
            metavar="FILE",
            dir_okay=False,
            help="The file; an existing file is replaced once the export is complete.",
            show_default="standard output",
        ),
    ] = None,
    kind: Annotated[EntityKindName | None, typer.Option("--type", help="Only entities of exactly these types.")] = None,
    user: Annotated[str | None, _name("--user", "Only this user and its client-ids; '' is the default user.")] = None,
    client_id: Annotated[str | None, _name("--client-id", "Only this client-id; '' is the default client-id.")] = None,
    ip: Annotated[str | None, _name("--ip", "Only this ip; '' is the default ip.")] = None,
    topic: Annotated[str | None, _name("--topic", "Only this topic.")] = None,
    broker: Annotated[str | None, _name("--broker", "Only this broker; '' is the default of all brokers.", "N")] = None,
    group: Annotated[str | None, _name("--group", "Only this group.")] = None,
    key: Annotated[str | None, _name("--key", "Only entities that set this key.", "KEY")] = None,
    prefix: Annotated[
        str, _name("--prefix", "Only entities whose name has this prefix; for a pair, the name of the user.", "TEXT")
    ] = "",
    owner: Annotated[
        str | None, _name("--owner", "Only the keys of this owner, for --format manifest, which names it.")
    ] = None,
    at: At = None,
    command: Annotated[
        str | None,
        typer.Option(
            metavar="WORDS",
            help="The words before the options in each command of Kafka's tool.",
            show_default='kafka-configs.sh --bootstrap-server "$BOOTSTRAP"',
        ),
    ] = None,
    cluster: ClusterName = None,
    profile: ProfileName = None,
    settings_file: SettingsFile = None,
) -> None:
    """Write all quotas and configs of a cluster, or those of some entities, to a file or to standard output.

    Secrets are never written: a secret is null in YAML and in a manifest. Credentials (SCRAM) and ACLs are not configs
    and are not exported.

    The format `properties` is for the downgrade of a broker: the effective values of its own configs and of the
    default of
    all brokers, each with a comment on its source. It is read from ZooKeeper, with the service's settings; the service
    need not run.
    """
    names = {
        "user": user,
        "client-id": client_id,
        "ip": ip,
        "topic": topic,
        "broker": broker,
        "group": group,
    }
    given = {name: value for name, value in names.items() if value is not None}
    if command is not None and export_format is not ExportFormat.KAFKA_CONFIGS:
        raise typer.BadParameter("It is only for --format kafka-configs.", param_hint="--command")
    if owner is not None and export_format is not ExportFormat.MANIFEST:
        raise typer.BadParameter("It is only for --format manifest.", param_hint="--owner")
    if export_format is ExportFormat.PROPERTIES:
        if given.keys() != {"broker"} or prefix or not all(each is None for each in (kind, key, at, profile)):
            raise typer.BadParameter(
                "A file of properties is for one broker. Give --broker N, --cluster NAME and no other filter.",
                param_hint="--format",
            )
        _properties(cluster, given["broker"], output, settings_file)
    if settings_file is not None:
        raise typer.BadParameter("It is only for --format properties.", param_hint="--settings-file")
    from confplane.cli.remote.export_forms import export as written
    from confplane.cli.remote.export_forms import form_of
    from confplane.cli.remote.selection import EntitySelection
    from confplane.cli.remote.session import run

    filters = (given, kind, key, prefix, at)
    form = form_of(export_format.value, command)
    raise run(profile, cluster, lambda client: written(client, form, EntitySelection(*filters, owner=owner), output))


def _properties(cluster: str | None, broker: str, output: Path | None, settings_file: Path | None) -> None:
    if cluster is None:
        raise typer.BadParameter("Name a cluster of the settings.", param_hint="--cluster")
    if not (broker.isascii() and broker.isdecimal() and int(broker) < 2**31):
        raise typer.BadParameter(f"{broker!r} is not the id of a broker", param_hint="--broker")
    from confplane.cli import store as command
    from confplane.cli.options import load_settings

    raise typer.Exit(command.export_properties(load_settings(settings_file), cluster, int(broker), output))
