"""The subcommands on archives of both stores, and their help. Their imports are made when they run."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from confplane.cli.command_group import CommandGroup
from confplane.cli.options import AsJson, SettingsFile, load_settings

commands = CommandGroup()

KeyFile = Annotated[
    Path | None,
    typer.Option(
        "--key-file",
        metavar="FILE",
        help="A file whose first line is the key of the archive. Make one with `openssl rand -base64 32`.",
    ),
]


@commands.command(
    epilog="Examples:\n\n"
    "    confplane backup /backups/confplane-2026-11-29.tar --key-file backup.key\n\n"
    "    confplane backup - --key-file backup.key | aws s3 cp - s3://backups/confplane.tar\n\n"
    "Exit codes: 0 the archive is complete; 1 it is not, and no file was written; 2 the settings or the options are not"
    " valid."
)
def backup(
    file: Annotated[str, typer.Argument(metavar="FILE", help="The new file, or - for standard output.")],
    *,
    key_file: KeyFile = None,
    as_json: AsJson = False,
    settings_file: SettingsFile = None,
) -> None:
    """Write all configs and the trail to an archive, while the service runs.

    The archive has all znodes below `/config` and `/confplane` of each cluster as of one revision, and all tables of
    Postgres that can't be rebuilt. With `--key-file` it is encrypted.

    An archive has no plain secrets: tokens are stored as hashes, and webhooks as sealed values, whose key files you
    keep elsewhere. It has SCRAM verifiers, and passwords of brokers in Kafka's encoding. The file can be read by its
    owner only. See docs/backup.md.
    """
    from confplane.cli import backup as command

    raise typer.Exit(command.backup(load_settings(settings_file), file, key_file))


@commands.command(
    epilog="Examples:\n\n"
    "    confplane restore /backups/confplane-2026-11-29.tar --key-file backup.key --reason INC-7\n\n"
    "    confplane restore /backups/confplane-2026-11-29.tar --key-file backup.key --reason INC-7 --yes\n\n"
    "Exit codes: 0 restored; 1 nothing was written, or not all, run it again; 2 the archive, the options or the"
    " settings are not valid, or processes are running; 3 a reply was lost, run it again."
)
def restore(
    file: Annotated[Path, typer.Argument(metavar="FILE", help="The archive.")],
    *,
    reason: Annotated[str, typer.Option(metavar="TEXT", help="The reason, which the trail keeps.")],
    key_file: KeyFile = None,
    yes: Annotated[bool, typer.Option("--yes", help="Restore without a question.")] = False,
    confirm_tokens: Annotated[
        bool,
        typer.Option(
            "--confirm-tokens",
            help="Accept API tokens as they were at the backup, also those that were revoked since. Without this option"
            " they are rejected until `confplane tokens confirm`.",
        ),
    ] = False,
    as_json: AsJson = False,
    settings_file: SettingsFile = None,
) -> None:
    """Write the content of an archive to both stores.

    Stop all processes of the service first, and run `confplane migrate` if the database is new. The command checks the
    archive, and shows what it creates, changes and deletes. It asks for a confirmation, unless both stores are empty.

    The stores begin a new incarnation, and are accepted as by `confplane adopt-store`: earlier times are no longer
    available through `?at=`, and consumers of the feed list again. Postgres is written as `postgres.migration_dsn`. An
    interrupted restore can be run again. See docs/backup.md.
    """
    from confplane.cli import restore as command

    raise typer.Exit(
        command.restore(
            load_settings(settings_file), file, key_file, reason=reason, yes=yes, confirm_tokens=confirm_tokens
        )
    )


@commands.command(
    epilog="Examples:\n\n"
    "    confplane verify /backups/confplane-2026-11-29.tar --key-file backup.key\n\n"
    "    aws s3 cp s3://backups/confplane.tar - | confplane verify - --key-file backup.key\n\n"
    "Exit codes: 0 the archive can be restored; 1 it has problems; 2 it is not a complete archive, or the key is"
    " another one."
)
def verify(
    file: Annotated[str, typer.Argument(metavar="FILE", help="The archive, or - for standard input.")],
    *,
    key_file: KeyFile = None,
    as_json: AsJson = False,
) -> None:
    """Check an archive: checksums, completeness, and the agreement of both stores.

    The stores agree if the trail has the state of each entity's znode. The command needs no settings and no stores.
    """
    from confplane.cli import backup as command

    raise typer.Exit(command.verify(file, key_file))
