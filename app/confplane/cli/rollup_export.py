"""``confplane rollups export``: the history of a cluster, to a lake."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import typer

from confplane.cli import callers
from confplane.cli.rollups import most_parts, origin, reason, started
from confplane.devstack.errors import DevStackError
from confplane.domain.errors import ConfplaneError, NotFoundError
from confplane.rollups.errors import SparkFailedError, spark_errors
from confplane.rollups.exports.altered import LEAST_KEY_BYTES, REMOVABLE, Altered
from confplane.rollups.exports.exporter import NAMES, Exporter, alone
from confplane.rollups.stores import opened

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from confplane.rollups.exports.manifest import Manifest
    from confplane.rollups.job import Job
    from confplane.settings import Settings

__all__ = ["NAMES", "Wanted", "altered", "run"]


@dataclass(frozen=True, slots=True)
class Wanted:
    """The options of the command."""

    names: Sequence[str]
    output: str
    altered: Altered
    master: str | None = None
    full: bool = False
    read_dsn: str | None = None
    """The standby to read in place of Postgres."""
    max_connections: int | None = None
    """The most connections to Postgres at a time, six or more."""


def altered(without: str, key: Path | None) -> Altered:
    """Return the alterations that the options ask for.

    Raises:
        typer.BadParameter: A column is none that can be left out, or the key is too short.
    """
    columns = sorted({each.strip() for each in without.split(",")} - {""})
    unknown = [each for each in columns if each not in REMOVABLE]
    if unknown:
        raise typer.BadParameter(f"{unknown[0]!r} is none; there are: {', '.join(REMOVABLE)}", param_hint="--without")
    if key is None:
        return Altered(tuple(columns))
    try:
        found = key.read_bytes().strip()
    except OSError as error:
        raise typer.BadParameter(f"{key}: {error.strerror}", param_hint="--pseudonyms") from None
    if len(found) < LEAST_KEY_BYTES:
        raise typer.BadParameter(f"{key}: the key has fewer than {LEAST_KEY_BYTES} bytes", param_hint="--pseudonyms")
    return Altered(tuple(columns), found)


def run(settings: Settings, cluster: str, wanted: Wanted) -> int:
    """Export, print what was exported, and return the exit code."""
    try:
        source = origin(settings, cluster, wanted.read_dsn)
        # Held before Java is started, and until the manifest is written.
        with alone(settings.postgres.dsn, cluster):
            with spark_errors():
                spark = started(settings, wanted.master)
            # Znodes are read at once with the moment, or not at all.
            jobs: Sequence[Job] | None = None if "znodes" in wanted.names else []
            parts = most_parts(wanted.max_connections, 1)
            with spark_errors(), opened(spark, source, jobs=jobs, most_parts=parts) as (reading, stores):
                exporter = Exporter(spark, wanted.output, reading, stores, wanted.altered)
                done = exporter.export(wanted.names, full=wanted.full)
    except (NotFoundError, ValueError) as error:
        return _not_exported(str(error), callers.INVALID)
    except (ConfplaneError, DevStackError, SparkFailedError, RuntimeError) as error:
        if settings.log_level == "debug":
            raise
        return _not_exported(reason(error), callers.FAILED)
    _show(done, wanted.names)
    return callers.DONE


def _show(done: Manifest, names: Sequence[str]) -> None:
    for name in names:
        found = done.datasets[name]
        written = [each for each in found.days if each.export_id == found.export_id]
        rows, new = sum(each.rows for each in found.days), sum(each.rows for each in written)
        typer.echo(f"{name}: {rows:,} rows, {new:,} of them written now, in {len(written)} of {len(found.days)} days")


def _not_exported(why: str, code: int) -> int:
    typer.echo(f"Not exported: {why}", err=True)
    return code
