"""The subcommands that run the service, and their help. Their imports are made when they run."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, NoReturn

import typer

from confplane.cli import termination
from confplane.cli.command_group import CommandGroup
from confplane.cli.options import SettingsFile, load_settings
from confplane.cli.output import echo
from confplane.gc_tuning import imports_frozen

commands = CommandGroup()

_SETTINGS_HELP = """\
Settings come from environment variables over a YAML file. The smallest file:

    clusters:
      payments:
        zookeeper: zk1:2181,zk2:2181/kafka
    postgres:
      dsn: postgresql://confplane:secret@db/confplane
    admin_token_file: /run/secrets/confplane-token

Each has a variable too, for example CONFPLANE_POSTGRES__DSN, CONFPLANE_HTTP__PORT, CONFPLANE_LOG_LEVEL.
"""


@commands.command(
    epilog="Examples:\n\n"
    "    confplane dev\n\n"
    "    confplane dev --port 8081 --data-dir /tmp/second\n\n"
    "    confplane dev --zookeeper-port 2181    (for Kafka's own tools and brokers)\n\n"
    "    confplane dev --kraft localhost:9092   (a Kafka 4 cluster of your own, which is only read)"
)
def dev(
    data_dir: Annotated[
        Path | None,
        typer.Option(
            metavar="DIR",
            help="The directory of all data, which the next start uses again.",
            show_default=".confplane; with --kraft .confplane-kraft",
        ),
    ] = None,
    port: Annotated[
        int, typer.Option(min=0, max=65_535, help="Port of the API on 127.0.0.1; 0 for a free one.")
    ] = 8080,
    zookeeper_port: Annotated[
        int | None,
        typer.Option(
            min=1, max=65_535, metavar="PORT", help="Port of ZooKeeper on 127.0.0.1.", show_default="a free one"
        ),
    ] = None,
    kraft: Annotated[
        list[str] | None,
        typer.Option(
            metavar="HOST:PORT",
            help="A broker of a Kafka cluster without ZooKeeper, to see its quotas and configs here. May be repeated.",
        ),
    ] = None,
) -> None:
    """Run the service on embedded ZooKeeper and Postgres, until Ctrl-C.

    Needs a Java runtime, version 17 or later, and the extra `dev-stack`. Only this machine can reach the service. When
    ready, the command prints the URL, the path of the admin token, and a curl line to paste.

    With `--kraft` the command imports the quotas and configs of a Kafka cluster into the embedded servers, and follows
    the cluster from then on. It only sends describe requests to the cluster, and writes nothing to it. The variables
    CONFPLANE_CLUSTERS__DEFAULT__KAFKA__SASL and CONFPLANE_CLUSTERS__DEFAULT__KAFKA__TLS hold a login and TLS, as JSON
    (docs/kafka4.md).
    """
    try:
        from confplane.cli import dev as command
    except ModuleNotFoundError as error:
        _fail(f"`confplane dev` needs {error.name}: pip install 'confplane[dev-stack]'")
    if data_dir is None:
        # A separate directory, because the configs of an observed cluster replace all others.
        data_dir = Path(".confplane-kraft" if kraft else ".confplane")
    raise typer.Exit(command.run(data_dir, port=port, zookeeper_port=zookeeper_port, kafka=kraft or ()))


@commands.command(
    help=f"Run the service on ZooKeeper and Postgres given by settings.\n\n{_SETTINGS_HELP}\n"
    "Run `confplane migrate` first, and again after every upgrade.",
    epilog="Example:\n\n    confplane serve --settings-file confplane.yaml",
)
def serve(settings_file: SettingsFile = None) -> None:
    """Run the service."""
    settings = load_settings(settings_file)
    with imports_frozen():
        from confplane import serving
        from confplane.cli import settings_errors

    settings_errors.check_token(settings)
    termination.restore_default()  # uvicorn handles SIGTERM, and then ends the process by it
    serving.serve(settings)


@commands.command(epilog="Example:\n\n    confplane migrate --settings-file confplane.yaml")
def migrate(settings_file: SettingsFile = None) -> None:
    """Create or upgrade the tables, and grant the service's role its rights.

    Connects as `postgres.migration_dsn`, the role that owns the tables (or as `postgres.dsn` if that is not set), and
    grants to the user named in `postgres.dsn`. The command may be run at any time, also while the service runs.
    """
    from confplane.cli import migrate as command

    raise typer.Exit(command.run(load_settings(settings_file)))


@commands.command(epilog="Example:\n\n    confplane openapi > openapi.yaml")
def openapi() -> None:
    """Print the OpenAPI description of the API as YAML."""
    from confplane import serving

    echo(serving.openapi_yaml(), nl=False)


def _fail(message: str) -> NoReturn:
    echo(message, err=True)
    raise typer.Exit(1)
