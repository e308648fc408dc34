"""``confplane target status``: a cluster's target, and the freshness of the copy."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

import typer

from confplane.cli import callers
from confplane.services.kraft import warnings
from confplane.services.kraft.report import parse
from confplane.services.ports.cluster_states import Target
from confplane.services.ports.kafka import EntityTypePermission
from confplane.wiring import open_cluster

if TYPE_CHECKING:
    from confplane.services.kraft.report import ApplyReport, EntityTypeReport, ListedNames, ObservationReport
    from confplane.services.ports.kafka import KraftEntityType
    from confplane.settings import Settings


def run(settings: Settings, cluster: str) -> int:
    """Print the target and the leader's report, and return the exit code."""
    return callers.run(_show(settings, cluster), "Not shown")


async def _show(settings: Settings, cluster: str) -> int:
    async with open_cluster(settings, cluster) as parts:
        store = parts.stores[cluster]
        target = (await store.read_state(Target, callers.caller(None).deadline)).value
        report = parse(store.observation())
    if target is None:
        typer.echo(f"Cluster {cluster} has no target: its brokers read ZooKeeper")
        return callers.DONE
    typer.echo(f"Cluster {cluster}: {target}")
    if report is not None:
        _show_report(report)
    for warning in warnings.list_warnings(cluster, target, report):
        typer.echo(str(warning), err=True)
    return callers.DONE


def _show_report(report: ObservationReport) -> None:
    brokers = ", ".join(map(str, report.brokers)) or "none"
    typer.echo(
        f"Release {report.release or 'unknown'} (metadata.version {report.metadata_version or 'unknown'}), brokers"
        f" {brokers}; told {_ago(report.at)}"
    )
    if report.followed_offset is not None:
        read = "" if report.log_at is None else f", read {_ago(report.log_at)}"
        typer.echo(f"The metadata log is followed up to offset {report.followed_offset}{read}")
    for entity_type, each in report.areas.items():
        typer.echo(_line(entity_type, each))
    if report.applying is not None:
        _show_applying(report.applying)
    for what, lists in (
        ("without a place in ZooKeeper", {entity_type: each.unmanaged for entity_type, each in report.areas.items()}),
        ("not followed", {entity_type: each.hidden for entity_type, each in report.areas.items()}),
    ):
        for entity_type, names in lists.items():
            _show_names(entity_type, what, names)


def _line(entity_type: KraftEntityType, report: EntityTypeReport) -> str:
    if report.permission is EntityTypePermission.NONE:
        return f"  {entity_type:<16}not permitted: {report.reason}"
    if report.observed_at is None:
        return f"  {entity_type:<16}not looked at yet"
    entities = callers.pluralize(report.entities, "entity", "entities")
    line = f"  {entity_type:<16}looked at {_ago(report.observed_at)}, {entities}"
    return f"{line}; {report.problem}" if report.problem else line


def _show_applying(applying: ApplyReport) -> None:
    if not applying.pending:
        typer.echo("Changes of callers: nothing waits to be applied")
    else:
        waits = callers.pluralize(applying.pending, "entity", "entities")
        typer.echo(f"Changes of callers: {waits} to be applied, for {applying.waiting_ms / 1000:.1f} s")
    if applying.problem:
        typer.echo(f"Not applied now: {applying.problem}")
    _show_names("changes", "refused by the Kafka cluster", applying.refused)
    _show_names("changes", "sent without an answer, and sent again", applying.unknown)
    _show_names("changes", "waiting alone", applying.held)
    _show_names("keys", "contested: others change them again and again", applying.contested)
    _show_names("keys", "extra: others set them, and they were never set here", applying.extra)


def _show_names(entity_type: str, what: str, names: ListedNames) -> None:
    if not names.count:
        return
    typer.echo(f"{entity_type}, {what}: {names.count}")
    for name, reason in names.first:
        typer.echo(f"  {name}: {reason}")
    if names.count > len(names.first):
        typer.echo(f"  and {names.count - len(names.first)} more")


def _ago(at_ms: int) -> str:
    return f"{max(0.0, time.time() - at_ms / 1000):.0f} s ago"
