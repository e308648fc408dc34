"""``confplane export``: a broker's dynamic configs as a properties file, for a downgrade."""

from __future__ import annotations

from typing import TYPE_CHECKING

import typer

from confplane import __version__, properties
from confplane.cli import callers
from confplane.services.reads.broker_export import export_broker
from confplane.wiring import open_cluster

if TYPE_CHECKING:
    from collections.abc import Iterable
    from pathlib import Path

    from confplane.services.reads.broker_export import ExportedConfig
    from confplane.settings import Settings

_PLACEHOLDER = "<set it by hand>"


def run(settings: Settings, cluster: str, broker_id: int, output: Path | None) -> int:
    """Write a broker's configs to a file or to standard output, and return the exit code."""
    return callers.run(_export(settings, cluster, broker_id, output), "Not exported")


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


async def _export(settings: Settings, cluster: str, broker_id: int, output: Path | None) -> int:
    async with open_cluster(settings, cluster) as parts:
        exported = await export_broker(parts.clusters.get(cluster).configs, broker_id)
    text = render(cluster, broker_id, exported)
    if not _written(text, output):
        return callers.FAILED
    values = sum(item.value is not None for item in exported)
    secrets = sum(item.secret for item in exported)
    where = "" if output is None else f" in {output}"
    typer.echo(
        f"{callers.pluralize(values, 'config', 'configs')}{where};"
        f" {callers.pluralize(secrets, 'secret', 'secrets')} to be set by hand,"
        f" {len(exported) - values - secrets} left out (see the comments)",
        err=True,
    )
    return callers.DONE


def _written(text: str, output: Path | None) -> bool:
    if output is None:
        typer.echo(text, nl=False)
        return True
    try:
        output.write_text(text, encoding="utf-8")
    except OSError as error:
        typer.echo(f"Not exported: {output} can't be written: {error.strerror}", err=True)
        return False
    return True
