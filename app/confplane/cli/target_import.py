"""``confplane target import``: the import of a Kafka cluster's quotas and configs."""

from __future__ import annotations

import sys
import time
from typing import TYPE_CHECKING, Final

import typer
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

from confplane.cli import callers
from confplane.cli.target_wiring import open_kraft_wiring
from confplane.gc_tuning import tune_gc_for_batch
from confplane.services.ports.kafka import EntityTypePermission, KraftEntityType

if TYPE_CHECKING:
    from collections.abc import Mapping

    from confplane.services.kraft.importer import EntityTypeSurvey, Importer, ImportSurvey
    from confplane.settings import Settings

_SURVEY_S: Final = 600.0
_SHOWN: Final = 20
"""Maximum number of names of each kind that are printed."""


def run(settings: Settings, cluster: str, *, apply: bool) -> int:
    """Show the work of an import, import if ``apply``, and return the exit code."""
    tune_gc_for_batch()
    return callers.run(_import(settings, cluster, apply=apply), "Not imported", resumable=apply)


async def _import(settings: Settings, cluster: str, *, apply: bool) -> int:
    async with open_kraft_wiring(settings, cluster) as (found, _):
        survey = await found.importer.survey(time.monotonic() + _SURVEY_S)
        _show(cluster, survey)
        if survey.blockers:
            for blocker in survey.blockers:
                typer.echo(f"Not imported: {blocker}", err=True)
            return callers.FAILED
        if survey.target is not None and survey.target.imported and not _differing(survey):
            typer.echo("Nothing to do: everything was imported, and the leader follows the cluster")
            return callers.DONE
        if not apply:
            typer.echo(
                f"{_entities(_differing(survey))} would be written to ZooKeeper. Nothing was written; --apply"
                " writes. Nothing is ever written to the Kafka cluster"
            )
            return callers.DONE
        return await _apply(cluster, found.importer, survey)


async def _apply(cluster: str, importer: Importer, survey: ImportSurvey) -> int:
    reason = "confplane target import"
    await importer.begin(survey.identity, callers.caller(reason))
    written = 0
    with _bar() as bar:
        tasks = {entity_type: bar.add_task(entity_type, total=None, visible=False) for entity_type in KraftEntityType}
        async for progress in importer.run():
            bar.update(tasks[progress.entity_type], completed=progress.done, total=progress.total, visible=True)
            written = progress.written
    await importer.end(survey.identity, callers.caller(reason))
    _show_names("ZooKeeper can't hold", importer.refused)
    typer.echo(
        f"{_entities(written)} written. Cluster {cluster} follows the Kafka cluster {survey.identity.cluster_id} from"
        " now on, in the service. Nothing was written to the Kafka cluster"
    )
    return callers.DONE


def _show(cluster: str, survey: ImportSurvey) -> None:
    identity = survey.identity
    typer.echo(
        f"Kafka cluster {identity.cluster_id}, release {identity.release}, brokers"
        f" {', '.join(map(str, identity.brokers))}"
    )
    if survey.target is not None:
        typer.echo(f"Target of {cluster}: {survey.target}")
    for entity_type, each in survey.entity_types.items():
        typer.echo(_line(entity_type, each))
    for what, names in (
        (
            "without a place in ZooKeeper",
            {name: why for each in survey.entity_types.values() for name, why in each.unmanaged.items()},
        ),
        ("not followed", {name: why for each in survey.entity_types.values() for name, why in each.hidden.items()}),
    ):
        _show_names(what, names)


def _line(entity_type: KraftEntityType, survey: EntityTypeSurvey) -> str:
    if survey.permission is EntityTypePermission.NONE:
        return f"  {entity_type:<16}not permitted, left out: {survey.reason}"
    return f"  {entity_type:<16}{_entities(survey.entities)} with configs, {survey.differing} to be written"


def _show_names(what: str, names: Mapping[str, str]) -> None:
    if names:
        typer.echo(f"{len(names)} {what}:")
        for name, reason in sorted(names.items())[:_SHOWN]:
            typer.echo(f"  {name}: {reason}")
        if len(names) > _SHOWN:
            typer.echo(f"  and {len(names) - _SHOWN} more")


def _bar() -> Progress:
    """Return bars on standard error if that is a terminal; lines printed to a file still reach the file."""
    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeRemainingColumn())
    console = Console(stderr=True)
    return Progress(*columns, console=console, redirect_stdout=sys.stdout.isatty(), disable=not console.is_terminal)


def _differing(survey: ImportSurvey) -> int:
    return sum(each.differing for each in survey.entity_types.values())


def _entities(number: int) -> str:
    return callers.pluralize(number, "entity", "entities")
