"""The check of an archive: checksums, completeness, and the agreement of both stores."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field
from itertools import islice
from typing import IO, TYPE_CHECKING, Final

from confplane.services.backup.archive import read_archive

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from confplane.services.backup.archive import ArchiveManifest
    from confplane.services.backup.index import ArchiveIndex

_EXAMPLES: Final = 3


@dataclass(frozen=True, slots=True)
class Verification:
    """The result of a check."""

    manifest: ArchiveManifest
    problems: list[str] = field(default_factory=list)
    """Reasons not to restore the archive."""
    warnings: list[str] = field(default_factory=list)


def verify(file: IO[bytes], index: ArchiveIndex, tables: Sequence[str]) -> Verification:
    """Check an archive, and add its znodes to an index.

    Args:
        file: The archive, decrypted.
        index: An empty index.
        tables: The tables that an archive has.

    Raises:
        InvalidRequestError: The file is not a complete archive, or was changed.
    """
    lines: Counter[str] = Counter()

    def take(series: str, some: list[bytes]) -> None:
        lines[series] += len(some)
        index.add(series, some)

    manifest = read_archive(file, take)
    found = Verification(manifest)
    known = {"moved", *(f"tables/{table}" for table in tables)}
    known |= {f"clusters/{name}/{kind}" for name in manifest.clusters for kind in ("znodes", "changed")}
    found.problems.extend(f"The series {series!a} is unknown." for series in sorted(lines.keys() - known))
    for table in tables:
        rows, read = manifest.tables.get(table), lines[f"tables/{table}"]
        if rows is None:
            found.problems.append(f"The table {table} is missing.")
        elif rows != read:
            found.problems.append(f"The table {table} has {read} rows instead of {rows}.")
    for name, summary in manifest.clusters.items():
        read = lines[f"clusters/{name}/znodes"]
        if read != summary.znodes:
            found.problems.append(f"Cluster {name} has {read} znodes instead of {summary.znodes}.")
        if summary.unreadable:
            found.warnings.append(
                f"Cluster {name}: {summary.unreadable} znodes are missing, because the service may not read them."
            )
        if not summary.trail_complete:
            found.warnings.append(
                f"Cluster {name}: external changes were not recorded up to the backup. A restore records them."
            )
        # Without states external changes were never recorded.
        if lines["tables/entity_states"]:
            _compare(name, index, found, complete=summary.trail_complete)
    return found


def _compare(cluster: str, index: ArchiveIndex, found: Verification, *, complete: bool) -> None:
    """Add the differences between the znodes of a cluster and the states in its trail."""
    # A tool writes a znode before its notification, which gives the write its place in the trail.
    if unrecorded := _examples(index.unrecorded(cluster)):
        found.warnings.append(
            f"Cluster {cluster}: the trail does not have the last writes of {unrecorded}. A restore records them."
        )
    # A tool may delete a znode without a notification.
    if missing := _examples(index.missing(cluster)):
        found.warnings.append(
            f"Cluster {cluster}: the trail does not have the deletions of {missing}. A restore records them."
        )
    if unexplained := _examples(index.unexplained(cluster)):
        text = f"Cluster {cluster}: the trail does not explain the znodes of {unexplained}."
        (found.problems if complete else found.warnings).append(text)


def _examples(paths: Iterator[str]) -> str:
    found = list(islice(paths, _EXAMPLES))
    more = sum(1 for _ in paths)
    return ", ".join(found) + (f" and {more} more" if more else "")
