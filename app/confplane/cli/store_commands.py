"""The subcommands on ZooKeeper and Postgres directly, and their help. Their imports are made when they run."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Annotated

import typer

from confplane.cli.command_group import CommandGroup
from confplane.cli.options import Apply, AsJson, ClusterName, SettingsFile, existing_file, load_settings
from confplane.cli.times import duration_of
from confplane.domain.facets import ClientConfigsLayout, Tree

commands = CommandGroup()


_ZNODE = re.compile(r"(?:/(?!\.{1,2}(?:/|$))[^/\0]+)+")


@commands.command(
    "adopt-store",
    epilog='Example:\n\n    confplane adopt-store --cluster payments --reason "restored from Monday, INC-7"\n\n'
    "Exit codes: 0 it is adopted, or was never restored; 1 not all was done, run it again; 2 the settings or the reason"
    " are not valid; 3 the reply was lost, run it again.",
)
def adopt_store(
    cluster: ClusterName,
    reason: Annotated[str, typer.Option(metavar="TEXT", help="The reason, which the trail keeps.")],
    *,
    as_json: AsJson = False,
    settings_file: SettingsFile = None,
) -> None:
    """Accept the state of a ZooKeeper that was restored to an earlier time.

    A restored ZooKeeper uses revisions again, so the service refuses writes, and marks reads with
    `Confplane-Store-Restored: true`. This command accepts the state as it is: a new incarnation begins, and each entity
    that differs from its last content in the trail gets an external change. Earlier times are no longer available
    through `?at=`; the histories keep all earlier changes.

    All processes must be of this release. The command works on ZooKeeper and Postgres directly, with the service's
    settings; the service may run. See docs/backup.md.
    """
    from confplane.cli import store as command

    raise typer.Exit(command.adopt_store(load_settings(settings_file), cluster, reason))


secrets = commands.subgroup("secrets")


@secrets.command(
    "rotate",
    epilog="Examples:\n\n"
    "    confplane secrets rotate --cluster payments --all\n\n"
    "    confplane secrets rotate --cluster payments --broker 3 --old-secret-file old-secret-of-3\n\n"
    "Exit codes: 0 everything is under the current secret; 1 something is not; 2 the options or the settings are not"
    " valid.",
)
def rotate(
    cluster: ClusterName,
    broker: Annotated[int | None, typer.Option(min=0, max=2_147_483_647, metavar="N", help="Only this broker.")] = None,
    *,
    every: Annotated[bool, typer.Option("--all", help="All brokers that have configs in ZooKeeper.")] = False,
    old_secret_file: Annotated[
        Path | None,
        existing_file("A file with the old secret, instead of the file that the settings name."),
    ] = None,
    as_json: AsJson = False,
    settings_file: SettingsFile = None,
) -> None:
    """Encode the stored passwords of brokers with the current secret instead of the old one.

    Run it after the brokers have both secrets in their server.properties, and the service in its settings
    (docs/secrets.md, "A new encoder secret"). A running broker that has only the old secret ignores the new encodings.
    A broker encodes its own passwords when it restarts. The command does so for brokers that were down and for
    passwords written in between, and lists the passwords that neither secret decodes.

    Each broker is one change, in the trail and announced like any other, and values do not change. The command may be
    stopped and run again at any time. It works on ZooKeeper and Postgres directly, with the service's settings; the
    service need not run.
    """
    if every == (broker is not None):
        raise typer.BadParameter("Give either --broker N or --all", param_hint="--broker")
    from confplane.cli import upkeep as command

    raise typer.Exit(command.rotate_secrets(load_settings(settings_file), cluster, broker, old_secret_file))


imports = commands.subgroup("import")


@imports.command(
    "kip5",
    epilog="Examples:\n\n"
    "    confplane import kip5 --cluster payments\n\n"
    "    confplane import kip5 --cluster payments --apply\n\n"
    "Exit codes: 0 imported, or listed; 1 an entry was refused, or ZooKeeper or Postgres did not answer; 2 no such"
    " znode or cluster, or invalid settings; 3 ZooKeeper's reply was lost, so the import may be done or not.",
)
def import_kip5(
    cluster: ClusterName,
    *,
    path: Annotated[
        str, typer.Option(metavar="ZNODE", help="Path of the legacy znode, below the cluster's chroot.")
    ] = "/brokers/config",
    apply: Apply = False,
    overwrite: Annotated[
        bool, typer.Option("--overwrite", help="Replace other values that the default of all brokers has.")
    ] = False,
    as_json: AsJson = False,
    settings_file: SettingsFile = None,
) -> None:
    """Import a legacy znode of KIP-5 as the default configs of all brokers.

    The command lists the result for every entry: written to the default of all brokers, kept for each broker's
    server.properties, unknown to every broker, or refused with the reason. `--apply` writes the entries of the first
    kind as one change, and the trail records the change as an import. The legacy znode stays unchanged.
    """
    if not _ZNODE.fullmatch(path):
        raise typer.BadParameter("not the absolute path of a znode, such as /brokers/config", param_hint="--path")
    from confplane.cli import store as command

    raise typer.Exit(command.import_kip5(load_settings(settings_file), cluster, path, apply=apply, overwrite=overwrite))


@commands.command(
    "upgrade-keys",
    epilog="Examples:\n\n"
    "    confplane upgrade-keys --cluster payments\n\n"
    "    confplane upgrade-keys --cluster payments --apply\n\n"
    "Exit codes: 0 done, or shown; 1 not all could be; 2 the settings are not valid; 3 a reply was lost, run it again.",
)
def upgrade_keys(
    cluster: ClusterName,
    *,
    apply: Apply = False,
    as_json: AsJson = False,
    settings_file: SettingsFile = None,
) -> None:
    """Write configs that Kafka renamed under their new names, with the values of the old ones.

    The command covers topics and brokers that set an old name and not the new one; each is one change, in the trail.
    The old names stay until you delete them, so that brokers of both versions find theirs. Another run does only the
    remaining work.
    """
    from confplane.cli import store as command

    raise typer.Exit(command.upgrade_keys(load_settings(settings_file), cluster, apply=apply))


@commands.command(
    epilog="Examples:\n\n"
    "    confplane compact --cluster payments\n\n"
    "    confplane compact --cluster payments --older-than 7d --apply\n\n"
    "Exit codes: 0 done, or shown; 1 not all could be; 2 the settings or the age are not valid; 3 a reply was lost, run"
    " it again.",
)
def compact(
    cluster: ClusterName,
    *,
    older_than: Annotated[
        str, typer.Option(metavar="AGE", help="Time since a node was last touched: a number and s, m, h or d.")
    ] = "1h",
    apply: Annotated[bool, typer.Option("--apply", help="Remove; without it nothing is removed.")] = False,
    as_json: AsJson = False,
    settings_file: SettingsFile = None,
) -> None:
    """Remove the znodes of users, clients and ips that hold no config any more.

    A config that is emptied leaves an empty znode, so that its version does not start again while a client may still
    have it. Newer Kafka versions remove such znodes at once. An empty znode of a user is removed with its last client.
    Each removal is one change, in the trail. Znodes of topics and brokers stay. Of a Kafka cluster without ZooKeeper,
    znodes are removed under adopt and enforce, once the cluster has taken their removal.
    """
    from confplane.cli import store as command

    older_than_s = duration_of(older_than, "--older-than")
    raise typer.Exit(command.compact(load_settings(settings_file), cluster, older_than_s=older_than_s, apply=apply))


layout = commands.subgroup("layout")


@layout.command(
    "move",
    epilog="Examples:\n\n"
    "    confplane layout move --cluster payments --to separate\n\n"
    "    confplane layout move --cluster payments --to separate --apply\n\n"
    "Exit codes: 0 moved, or listed; 1 some client configs could not be moved; 2 invalid options or settings; 3"
    " ZooKeeper's reply was lost, run the command again.",
)
def move_layout(
    cluster: ClusterName,
    to: Annotated[
        ClientConfigsLayout,
        typer.Option(help="shared: in the znodes of the quotas, as in KIP-649. separate: in a tree of their own."),
    ],
    *,
    apply: Apply = False,
    discard: Annotated[
        bool,
        typer.Option(
            "--discard",
            help="Remove unused client configs from the other layout; --to names the current layout.",
        ),
    ] = False,
    as_json: AsJson = False,
    settings_file: SettingsFile = None,
) -> None:
    """Move a cluster's client configs to the other layout while the service runs.

    The layout `separate` keeps client configs in a tree of their own. Use it with stock brokers and Kafka's own tools,
    which refuse to alter a user whose znode has client configs beside quotas (docs/migration.md).

    Each entity is moved by one change, in the trail. Until the move ends, client configs can be read, and writes of
    them are answered 409; writes of quotas continue. After an interruption run the command again to move the rest, or
    with the other `--to` to move everything back.

    All processes use the new layout at once. Update the setting `client_configs_layout` too, so that settings and
    cluster agree. The command works on ZooKeeper and Postgres directly, with the service's settings; the service need
    not run.
    """
    from confplane.cli import upkeep as command

    target = Tree.CONFIG if to is ClientConfigsLayout.SHARED else Tree.CLIENT_CONFIGS
    raise typer.Exit(command.move_layout(load_settings(settings_file), cluster, target, apply=apply, discard=discard))
