"""The work of ``confplane backup`` and ``confplane verify``."""

from __future__ import annotations

from contextlib import AsyncExitStack
from datetime import UTC, datetime
from functools import partial
from typing import TYPE_CHECKING

from confplane import __version__
from confplane.audit import PostgresTableSnapshot
from confplane.audit.backup_tables import KEPT
from confplane.cli import archive_files, callers
from confplane.cli.output import emit, is_json, print_json, print_table, say
from confplane.services.backup.archive import ArchiveWriter
from confplane.services.backup.backup import BackupService
from confplane.services.backup.index import ArchiveIndex
from confplane.services.backup.verify import verify as verify_archive
from confplane.wiring import tree_copy

if TYPE_CHECKING:
    from pathlib import Path

    from confplane.services.backup.archive import ArchiveManifest
    from confplane.services.backup.verify import Verification
    from confplane.settings import Settings


@callers.command("No archive was written")
async def backup(settings: Settings, name: str, key_file: Path | None) -> int:
    """Write an archive, print its content, and return the exit code."""
    now = datetime.now(UTC)
    async with AsyncExitStack() as stack:
        file = stack.enter_context(archive_files.written(name, key_file))
        trees = [
            await stack.enter_async_context(tree_copy(cluster, settings.clusters[cluster]))
            for cluster in settings.clusters
        ]
        snapshot = partial(PostgresTableSnapshot.open, settings.postgres.dsn.get_secret_value())
        service = BackupService(trees, snapshot, list(KEPT), __version__)
        manifest = await service.run(ArchiveWriter(file, int(now.timestamp())), now)
    to_stream = name == archive_files.STREAM
    for cluster, copied in manifest.clusters.items():
        if not copied.trail_complete:
            say(
                f"Warning: external changes of cluster {cluster} were not recorded up to the backup, because no process"
                " records them. A restore records them",
                err=True,
            )
    if to_stream:
        say(summary(manifest), err=True)
    else:
        emit(file=name, **_members(manifest))
        say(f"{name}: {summary(manifest)}")
    return callers.DONE


def summary(manifest: ArchiveManifest) -> str:
    """Return the content of an archive in one line."""
    znodes = sum(each.znodes for each in manifest.clusters.values())
    clusters = callers.pluralize(len(manifest.clusters), "cluster", "clusters")
    revisions = ", ".join(f"{name} at revision {each.revision}" for name, each in manifest.clusters.items())
    return f"{znodes} znodes of {clusters} ({revisions}), {sum(manifest.tables.values())} rows of Postgres"


def _members(manifest: ArchiveManifest) -> dict[str, object]:
    return {
        "createdAt": manifest.created_at,
        "release": manifest.release,
        "schema": manifest.schema,
        "clusters": {
            name: {
                "revision": str(each.revision),
                "znodes": each.znodes,
                "unreadable": each.unreadable,
                "trailComplete": each.trail_complete,
            }
            for name, each in manifest.clusters.items()
        },
        "tables": manifest.tables,
    }


def verify(name: str, key_file: Path | None) -> int:
    """Check an archive, print the result, and return the exit code."""
    return callers.run(_verify(name, key_file), "Not valid")


async def _verify(name: str, key_file: Path | None) -> int:
    with archive_files.read(name, key_file) as file, ArchiveIndex() as index:
        found = verify_archive(file, index, list(KEPT))
    _show(found)
    return callers.FAILED if found.problems else callers.DONE


def _show(found: Verification) -> None:
    if is_json():
        print_json({**_members(found.manifest), "problems": found.problems, "warnings": found.warnings})
        return
    manifest = found.manifest
    say(f"Backup of {manifest.created_at} by release {manifest.release}, schema {manifest.schema}: {summary(manifest)}")
    print_table(("TABLE", "ROWS"), [(table, str(rows)) for table, rows in manifest.tables.items()], right=["ROWS"])
    for text in found.warnings:
        say(f"Warning: {text}")
    for text in found.problems:
        say(f"Problem: {text}", err=True)
    say("The archive has problems" if found.problems else "The archive can be restored")
