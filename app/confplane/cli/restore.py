"""The work of ``confplane restore``."""

from __future__ import annotations

import sys
from contextlib import AsyncExitStack
from functools import partial
from typing import TYPE_CHECKING

import typer

from confplane.audit import PostgresTableWriter
from confplane.audit.backup_tables import KEPT
from confplane.audit.revisions import head_revision
from confplane.cli import archive_files, callers
from confplane.cli.backup import summary
from confplane.cli.output import bars, emit, is_json, print_error, print_table, say
from confplane.cli.store import adopt
from confplane.domain.errors import InvalidRequestError, UnavailableError
from confplane.services.backup.index import ArchiveIndex
from confplane.services.backup.restore import RestoreService
from confplane.services.backup.verify import verify
from confplane.services.changes.freeze import checked_reason
from confplane.wiring import tree_copy

if TYPE_CHECKING:
    from pathlib import Path

    from confplane.services.backup.archive import ArchiveManifest
    from confplane.services.backup.restore import RestorePlan
    from confplane.settings import Settings


@callers.command("Not restored", resumable=True)
async def restore(
    settings: Settings, path: Path, key_file: Path | None, *, reason: str, yes: bool, confirm_tokens: bool
) -> int:
    """Restore an archive, and return the exit code."""
    checked_reason(reason)
    with ArchiveIndex() as index:
        with archive_files.read(str(path), key_file) as file:
            found = verify(file, index, list(KEPT))
        manifest = found.manifest
        for text in found.warnings:
            say(f"Warning: {text}", err=True)
        if found.problems:
            for text in found.problems:
                say(f"Problem: {text}", err=True)
            return callers.FAILED
        if unknown := manifest.clusters.keys() - settings.clusters.keys():
            raise InvalidRequestError(f"The settings lack clusters of the archive: {', '.join(sorted(unknown))}.")
        async with AsyncExitStack() as stack:
            try:
                service = await _opened(stack, settings, index, manifest)
                plan = await _agreed(service, settings, manifest, yes=yes)
            except UnavailableError as error:
                return print_error(f"Nothing was written. Run the command again: {error}", callers.FAILED)
            if plan is None:
                return callers.FAILED
            with bars() as progress:
                task = progress.add_task("Znodes", total=sum(sum(each.values()) for each in plan.znodes.values()))
                await service.run(
                    plan,
                    partial(archive_files.read, str(path), key_file),
                    confirm_tokens=confirm_tokens,
                    advance=lambda number: progress.advance(task, number),
                )
        for name in manifest.clusters:
            await adopt(settings, name, reason, moved=list(index.moved(name)))
    emit(restored=str(path), tokensConfirmed=confirm_tokens)
    _finish(plan, confirm_tokens=confirm_tokens)
    return callers.DONE


async def _opened(
    stack: AsyncExitStack, settings: Settings, index: ArchiveIndex, manifest: ArchiveManifest
) -> RestoreService:
    trees = [await stack.enter_async_context(tree_copy(name, settings.clusters[name])) for name in manifest.clusters]
    owner = settings.postgres.migration_dsn or settings.postgres.dsn
    tables = await stack.enter_async_context(PostgresTableWriter.open(owner.get_secret_value()))
    return RestoreService(trees, tables, index, manifest)


async def _agreed(
    service: RestoreService, settings: Settings, manifest: ArchiveManifest, *, yes: bool
) -> RestorePlan | None:
    """Show the plan and return it; None if it needs a confirmation and nobody gave it."""
    plan = await service.plan(list(settings.clusters), head_revision())
    _show(plan, manifest)
    if plan.harmless or yes:
        return plan
    if not _confirmed():
        say("Nothing was written; --yes restores without a question", err=True)
        return None
    if plan != await service.plan(list(settings.clusters), head_revision()):
        raise InvalidRequestError("The stores were changed during the question. Run the command again.")
    return plan


def _show(plan: RestorePlan, manifest: ArchiveManifest) -> None:
    say(f"Backup of {manifest.created_at} by release {manifest.release}: {summary(manifest)}")
    emit(
        createdAt=manifest.created_at,
        znodes=plan.znodes,
        rows={table: {"now": now, "then": then} for table, (now, then) in plan.rows.items()},
        removedTrails=list(plan.removed),
    )
    for name, counts in plan.znodes.items():
        say(f"Znodes of {name}: {counts['create']} created, {counts['change']} changed, {counts['delete']} deleted")
    replaced = [(table, str(now), str(then)) for table, (now, then) in plan.rows.items() if now]
    if replaced and not plan.harmless and not is_json():
        say("Rows of Postgres that are replaced:")
        print_table(("TABLE", "NOW", "IN THE ARCHIVE"), replaced, right=("NOW", "IN THE ARCHIVE"))
    for name in plan.removed:
        say(f"Warning: the archive does not have cluster {name}: its trail is removed", err=True)


def _confirmed() -> bool:
    return sys.stdin.isatty() and typer.confirm("Replace this?", err=True)


def _finish(plan: RestorePlan, *, confirm_tokens: bool) -> None:
    for name, brokers in plan.brokers.items():
        if brokers and not RestoreService.announces(plan, name):
            say(f"Cluster {name}: restart its brokers ({brokers}). Not all changes were announced to them", err=True)
    say("Restored. Start the processes of the service")
    if not confirm_tokens:
        say(
            "API tokens are rejected, because those that were revoked since the backup are back. Revoke them again with"
            " the admin token (`confplane tokens revoke`), and run `confplane tokens confirm --reason TEXT`"
        )
