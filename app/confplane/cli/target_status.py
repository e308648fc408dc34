"""``confplane target status``: a cluster's target, and the freshness of the copy."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

import typer

from confplane.cli import callers
from confplane.services.kraft import notices
from confplane.services.kraft.report import parse
from confplane.services.ports.cluster_states import Target
from confplane.services.ports.kafka import Permission
from confplane.wiring import opened

if TYPE_CHECKING:
    from confplane.services.kraft.report import Applying, AreaReport, Names, Report
    from confplane.services.ports.kafka import Area
    from confplane.settings import Settings


def run(settings: Settings, cluster: str) -> int:
    """Print the target and the leader's report, and return the exit code."""
    return callers.run(_show(settings, cluster), "Not shown")


async def _show(settings: Settings, cluster: str) -> int:
    async with opened(settings, cluster) as parts:
        store = parts.stores[cluster]
        target = (await store.read_state(Target, callers.caller(None).deadline)).value
        report = parse(store.observation())
    if target is None:
        typer.echo(f"Cluster {cluster} has no target: its brokers read ZooKeeper")
        return callers.DONE
    typer.echo(f"Cluster {cluster}: {target}")
    if report is not None:
        _show_report(report)
    for notice in notices.of(cluster, target, report):
        typer.echo(str(notice), err=True)
    return callers.DONE


def _show_report(report: Report) -> None:
    brokers = ", ".join(map(str, report.brokers)) or "none"
    typer.echo(
        f"Release {report.release or 'unknown'} (metadata.version {report.metadata_version or 'unknown'}), brokers"
        f" {brokers}; told {_ago(report.at)}"
    )
    if report.followed_offset is not None:
        read = "" if report.log_at is None else f", read {_ago(report.log_at)}"
        typer.echo(f"The metadata log is followed up to offset {report.followed_offset}{read}")
    for area, each in report.areas.items():
        typer.echo(_line(area, each))
    if report.applying is not None:
        _show_applying(report.applying)
    for what, lists in (
        ("without a place in ZooKeeper", {area: each.unmanaged for area, each in report.areas.items()}),
        ("not followed", {area: each.hidden for area, each in report.areas.items()}),
    ):
        for area, names in lists.items():
            _show_names(area, what, names)


def _line(area: Area, report: AreaReport) -> str:
    if report.permission is Permission.NONE:
        return f"  {area:<16}not permitted: {report.reason}"
    if report.observed_at is None:
        return f"  {area:<16}not looked at yet"
    seen = f"  {area:<16}looked at {_ago(report.observed_at)}, {callers.counted(report.entities, 'entity', 'entities')}"
    return f"{seen}; {report.problem}" if report.problem else seen


def _show_applying(applying: Applying) -> None:
    if not applying.pending:
        typer.echo("Changes of callers: nothing waits to be applied")
    else:
        waits = callers.counted(applying.pending, "entity", "entities")
        typer.echo(f"Changes of callers: {waits} to be applied, for {applying.waiting_ms / 1000:.1f} s")
    if applying.problem:
        typer.echo(f"Not applied now: {applying.problem}")
    _show_names("changes", "refused by the Kafka cluster", applying.refused)
    _show_names("changes", "sent without an answer, and sent again", applying.unknown)
    _show_names("changes", "waiting alone", applying.held)
    _show_names("keys", "contested: others change them again and again", applying.contested)
    _show_names("keys", "extra: others set them, and they were never set here", applying.extra)


def _show_names(area: str, what: str, names: Names) -> None:
    if not names.count:
        return
    typer.echo(f"{area}, {what}: {names.count}")
    for name, reason in names.first:
        typer.echo(f"  {name}: {reason}")
    if names.count > len(names.first):
        typer.echo(f"  and {names.count - len(names.first)} more")


def _ago(at_ms: int) -> str:
    return f"{max(0.0, time.time() - at_ms / 1000):.0f} s ago"
