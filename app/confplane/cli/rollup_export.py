"""``confplane rollups export``: exports the history of a cluster to a lake."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import typer

from confplane.cli import callers
from confplane.cli.rollups import most_parts, origin, reason
from confplane.cli.spark_session import spark_session
from confplane.devstack.errors import DevStackError
from confplane.domain.errors import ConfplaneError, NotFoundError
from confplane.rollups.errors import SparkFailedError, spark_errors
from confplane.rollups.exports import manifest
from confplane.rollups.exports.alterations import LEAST_KEY_BYTES, REMOVABLE, ExportAlterations
from confplane.rollups.exports.exporter import NAMES, Exporter, exclusive_export
from confplane.rollups.sinks.files import Files, check_writable
from confplane.rollups.small_clusters import is_small
from confplane.rollups.stores import open_reading

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from confplane.rollups.exports.manifest import Manifest
    from confplane.rollups.job import Job
    from confplane.settings import Settings

__all__ = ["NAMES", "RollupExportOptions", "read_alterations", "run"]


@dataclass(frozen=True, slots=True)
class RollupExportOptions:
    """The options of the command."""

    names: Sequence[str]
    output: str
    alterations: ExportAlterations
    master: str | None = None
    full: bool = False
    read_dsn: str | None = None
    """The standby to read instead of Postgres."""
    max_connections: int | None = None
    """Maximum number of concurrent connections to Postgres, six or more."""
    archives_classes: bool = True
    """Keep and use a class-data archive of Java if the cluster is small."""


def read_alterations(without: str, key: Path | None) -> ExportAlterations:
    """Return the alterations that the options specify.

    Raises:
        typer.BadParameter: A column can't be omitted, or the key is too short.
    """
    columns = sorted({each.strip() for each in without.split(",")} - {""})
    unknown = [each for each in columns if each not in REMOVABLE]
    if unknown:
        raise typer.BadParameter(f"{unknown[0]!r} is none; there are: {', '.join(REMOVABLE)}", param_hint="--without")
    if key is None:
        return ExportAlterations(tuple(columns))
    try:
        found = key.read_bytes().strip()
    except OSError as error:
        raise typer.BadParameter(f"{key}: {error.strerror}", param_hint="--pseudonyms") from None
    if len(found) < LEAST_KEY_BYTES:
        raise typer.BadParameter(f"{key}: the key has fewer than {LEAST_KEY_BYTES} bytes", param_hint="--pseudonyms")
    return ExportAlterations(tuple(columns), found)


def run(settings: Settings, cluster: str, options: RollupExportOptions) -> int:
    """Export, print what was exported, and return the exit code."""
    try:
        source = origin(settings, cluster, options.read_dsn)
        manifest.check_root(options.output)
        check_writable(options.output)
        # Not started only to learn that another export is under way.
        with exclusive_export(settings.postgres.dsn, cluster):
            pass
        reads_znodes = "znodes" in options.names
        small = is_small(source, reads_znodes=reads_znodes)
        with spark_session(settings, options.master, small=small, archives_classes=options.archives_classes) as spark:
            # A file system that does not answer does not keep others from exporting.
            with spark_errors():
                manifest.read(Files(spark, options.output), options.output.rstrip("/"), cluster)
            # Znodes are read together with the moment, or not at all.
            jobs: Sequence[Job] | None = None if reads_znodes else []
            parts = most_parts(options.max_connections, 1)
            with (
                exclusive_export(settings.postgres.dsn, cluster),
                spark_errors(),
                open_reading(spark, source, jobs=jobs, most_parts=parts) as (reading, stores),
            ):
                exporter = Exporter(spark, options.output, reading, stores, options.alterations)
                done = exporter.export(options.names, full=options.full)
    except (NotFoundError, ValueError) as error:
        return _not_exported(str(error), callers.INVALID)
    except (ConfplaneError, DevStackError, SparkFailedError, RuntimeError) as error:
        if settings.log_level == "debug":
            raise
        return _not_exported(reason(error), callers.FAILED)
    _show(done, options.names)
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
