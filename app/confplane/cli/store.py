"""The work of the commands on one cluster's stores: freezes, adoption, imports, renamed keys, compaction, exports."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from confplane import __version__, properties
from confplane.audit import PostgresEntityStates, PostgresOwnerships, PostgresStorePositions
from confplane.cli import callers
from confplane.cli.output import HIDDEN, bar, echo, emit, is_json, print_error, print_table, say
from confplane.domain.global_config import ImportDecision
from confplane.files import open_output
from confplane.services.changes.freeze import FreezeService
from confplane.services.kips.global_config import plan_import, run_import
from confplane.services.kraft.apply.quiesce import Quiescer, freeze_view
from confplane.services.reads.broker_export import export_broker
from confplane.services.recorder.adoption import AdoptionService
from confplane.services.upkeep.compact import CompactService
from confplane.services.upkeep.renames import RenameService
from confplane.wiring import open_cluster, redaction

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence
    from pathlib import Path

    from confplane.domain.definitions import ConfigKind
    from confplane.services.changes.callers import Caller
    from confplane.services.kips.global_config import ImportPlan
    from confplane.services.ports.recording import Key
    from confplane.services.reads.broker_export import ExportedConfig
    from confplane.services.upkeep.compact import CompactResult
    from confplane.services.upkeep.renames import RenameResult
    from confplane.settings import Settings


async def freeze(settings: Settings, cluster: str, reason: str, caller: Caller) -> dict[str, Any]:
    """Freeze a cluster, and return its state as the API does."""
    async with open_cluster(settings, cluster) as parts:
        store = parts.stores[cluster]
        quiescer = Quiescer(store, parts.clusters.get(cluster).apply_waiter)
        return freeze_view(*await quiescer.freeze(FreezeService(parts.runner), reason, caller))


async def thaw(settings: Settings, cluster: str, reason: str, caller: Caller) -> dict[str, Any]:
    """Thaw a cluster, and return its state as the API does."""
    async with open_cluster(settings, cluster) as parts:
        return freeze_view(await FreezeService(parts.runner).thaw(parts.stores[cluster], reason, caller))


@callers.command("Not adopted", resumable=True)
async def adopt_store(settings: Settings, cluster: str, reason: str) -> int:
    """Adopt the store of a cluster, print the result, and return the exit code."""
    await adopt(settings, cluster, reason)
    return callers.DONE


async def adopt(settings: Settings, cluster: str, reason: str, moved: Sequence[Key] = ()) -> None:
    """Adopt the store of a cluster, and print the result.

    Args:
        settings: The settings, with the cluster.
        cluster: The name of the cluster.
        reason: The reason for the trail.
        moved: Entities of a restored backup whose states have no owners: these follow from the trail.

    Raises:
        ConfplaneError: The store is not adopted. Run it again.
    """
    async with open_cluster(settings, cluster, mirrored=False) as parts:
        store = parts.stores[cluster]
        service = AdoptionService(
            parts.runner,
            store,
            PostgresStorePositions(parts.database),
            PostgresEntityStates(parts.database),
            redaction(settings.clusters[cluster], store),
            owners=await PostgresOwnerships(parts.database).derived(cluster, moved),
        )
        adoption = await service.adopt(callers.caller(reason))
    emit(
        cluster=cluster,
        adopted=adoption is not None,
        incarnation=adoption and adoption.incarnation,
        revision=None if adoption is None else str(adoption.revision),
        changeId=None if adoption is None or adoption.change_id is None else str(adoption.change_id),
        differing=0 if adoption is None else adoption.differing,
    )
    if adoption is None:
        say(f"The ZooKeeper of cluster {cluster} was not restored; nothing to do")
        return
    differing = callers.pluralize(adoption.differing, "entity differs", "entities differ")
    say(
        f"The ZooKeeper of cluster {cluster} is adopted as incarnation {adoption.incarnation}, as of revision"
        f" {adoption.revision} (change {adoption.change_id}). {differing} from the last content in the trail, which has"
        " an external change of each"
    )


_WORDS = {
    ImportDecision.IMPORT: "goes to the cluster default",
    ImportDecision.SAME: "is the cluster default already",
    ImportDecision.KEPT: "not imported",
    ImportDecision.STAYS: "must stay in server.properties",
    ImportDecision.UNKNOWN: "unknown, not imported",
    ImportDecision.REFUSED: "refused",
}


@callers.command("Not imported")
async def import_kip5(settings: Settings, cluster: str, path: str, *, apply: bool, overwrite: bool) -> int:
    """Show the effect of an import, import if ``apply``, and return the exit code."""
    async with open_cluster(settings, cluster) as parts:
        served = parts.clusters.get(cluster)
        caller = callers.caller(f"import of {path}")
        plan = await plan_import(parts.alter, served, path, caller, overwrite=overwrite)
        if not is_json():
            _show(plan)
        wanted = sum(entry.decision is ImportDecision.IMPORT for entry in plan.entries)
        refused = sum(entry.decision is ImportDecision.REFUSED for entry in plan.entries)
        if plan.obstacle is not None:
            raise plan.obstacle
        done = await run_import(parts.alter, served, plan, caller) if apply and plan.edit is not None else None
        entries = [{"key": e.key, "decision": e.decision.value, "reason": e.reason} for e in plan.entries]
        emit(
            entries=entries,
            warnings=list(plan.warnings),
            applied=done is not None,
            revision=None if done is None else str(done.revision),
            changeId=done and done.change_id,
        )
        if plan.edit is None:
            say("There is nothing to import")
        elif not apply:
            say(f"Nothing was written; --apply writes what goes to the cluster default ({wanted}) as one change")
        elif done is not None:
            say(
                f"{wanted} written to the cluster default at revision {done.revision} (change {done.change_id});"
                f" {path} is unchanged"
            )
    if refused:
        say(f"{refused} refused, see above", err=True)
    return callers.FAILED if refused else callers.DONE


def _show(plan: ImportPlan) -> None:
    rows = [
        (
            entry.key,
            HIDDEN if entry.value is None else entry.value,
            _WORDS[entry.decision] + (f": {entry.reason}" if entry.reason else ""),
        )
        for entry in plan.entries
    ]
    if rows:
        print_table(("KEY", "VALUE", "RESULT"), rows)
    for warning in plan.warnings:
        say(f"Warning: {warning}", err=True)


@callers.command("Not upgraded", resumable=True)
async def upgrade_keys(
    settings: Settings, cluster: str, *, apply: bool, table: Mapping[ConfigKind, Mapping[str, str]] | None = None
) -> int:
    """Show the entities that lack new names, write the names if ``apply``, and return the exit code.

    Args:
        settings: The settings, with the cluster.
        cluster: The cluster's name.
        apply: Write.
        table: Renames; None is the catalog's.
    """
    async with open_cluster(settings, cluster) as parts:
        service = RenameService(parts.alter, parts.clusters.get(cluster), table)
        if not service.known:
            say("Kafka has not renamed any dynamic config; there is nothing to do")
            return callers.DONE
        lacking = service.lacking()
        failed = 0
        with bar("Topics and brokers", len(lacking)) as advance:
            async for result in service.run(lacking, callers.caller("renamed by Kafka"), apply=apply):
                failed += result.error is not None
                renamed = [{"old": item.old, "new": item.new} for item in result.renamed]
                emit(id=result.entity_id, renamed=renamed, written=apply and not result.error, error=_text(result))
                for line in _lines(result, apply=apply):
                    say(line, err=result.error is not None)
                advance()
    say(f"{len(lacking) - failed} of {len(lacking)} topics and brokers {'done' if apply else 'would be written'}")
    if lacking and not apply:
        say("Nothing was written; --apply writes, one change each. The old names stay until you delete them")
    return callers.FAILED if failed else callers.DONE


def _text(result: CompactResult | RenameResult) -> str | None:
    return None if result.error is None else str(result.error)


def _lines(result: RenameResult, *, apply: bool) -> list[str]:
    if result.error is not None:
        return [f"{result.entity_id}: {result.error}"]
    verb = "written" if apply else "would be written"
    return [f"{result.entity_id}: {item.new} {verb} with the value of {item.old}" for item in result.renamed]


@callers.command("Not compacted", resumable=True)
async def compact(settings: Settings, cluster: str, *, older_than_s: float, apply: bool) -> int:
    """Show the znodes to remove, remove them if ``apply``, and return the exit code."""
    gone = failed = 0
    async with open_cluster(settings, cluster) as parts:
        service = CompactService(parts.runner, parts.stores[cluster], parts.target_states)
        candidates = service.candidates()
        with bar("Empty znodes", len(candidates)) as advance:
            caller = callers.caller("confplane compact: empty, and not touched for a while")
            async for result in service.run(candidates, caller, older_than_s=older_than_s, apply=apply):
                if result is not None:
                    gone += len(result.entity_ids) * (result.error is None)
                    failed += result.error is not None
                    emit(ids=list(result.entity_ids), changeId=result.change_id, error=_text(result))
                    say(_line(result, apply=apply), err=result.error is not None)
                advance()
    znodes = callers.pluralize(gone, "empty znode", "empty znodes")
    say(f"{znodes} {'removed' if apply else 'can be removed'}; {len(candidates)} checked")
    if gone and not apply:
        say("Nothing was removed; --apply removes, one change each")
    return callers.FAILED if failed else callers.DONE


def _line(result: CompactResult, *, apply: bool) -> str:
    names = " and ".join(result.entity_ids)
    if result.error is not None:
        return f"{names}: {result.error}"
    return f"{names}: removed (change {result.change_id})" if apply else f"{names}: can be removed"


_PLACEHOLDER = "<set it by hand>"


def render(cluster: str, broker_id: int, exported: Iterable[ExportedConfig]) -> str:
    """Return the file: a line for each value, with a comment on its source; the rest as comments."""
    lines = [
        f"# Dynamic configs effective on broker {broker_id} of cluster {cluster}, by confplane {__version__}.",
        "# At the end of server.properties they count before the lines above them. Comments tell what is left to do.",
    ]
    for item in exported:
        lines.append("")
        note = f"; {item.note}" if item.note else ""
        lines += [f"# {line}" for line in f"{item.source}{note}".splitlines()]
        if item.value is not None:
            lines.append(properties.write({item.key: item.value}).rstrip("\n"))
        else:
            lines.append(f"# {properties.write({item.key: _PLACEHOLDER if item.secret else ''})}".rstrip("\n"))
    return "\n".join(lines) + "\n"


@callers.command("Not exported")
async def export_properties(settings: Settings, cluster: str, broker_id: int, output: Path | None) -> int:
    """Write a broker's configs to a file or to standard output, and return the exit code."""
    async with open_cluster(settings, cluster) as parts:
        exported = await export_broker(parts.clusters.get(cluster).configs, broker_id)
    text = render(cluster, broker_id, exported)
    if not _written(text, output):
        return callers.FAILED
    values = sum(item.value is not None for item in exported)
    secrets = sum(item.secret for item in exported)
    where = "" if output is None else f" in {output}"
    say(
        f"{callers.pluralize(values, 'config', 'configs')}{where};"
        f" {callers.pluralize(secrets, 'secret', 'secrets')} to be set by hand,"
        f" {len(exported) - values - secrets} left out (see the comments)",
        err=True,
    )
    return callers.DONE


def _written(text: str, output: Path | None) -> bool:
    if output is None:
        echo(text, nl=False)
        return True
    try:
        with open_output(output) as file:
            file.write(text)
    except OSError as error:
        print_error(f"Not exported: {output} can't be written: {error.strerror}", callers.FAILED)
        return False
    return True
