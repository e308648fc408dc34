"""The backup of all clusters and of Postgres, while writes continue (docs/backup.md).

The znodes of each cluster are copied as of one revision. The snapshot of Postgres is taken afterwards, once the trail
is complete up to these revisions. So it has all changes of the copies, and some later ones, which are left out:

- Changes with an outcome of a later revision.
- Changes without an outcome, unless their marker shows a commit up to the revision: then the outcome is added.
- States of entities after a later change: the archive has the state that the remaining rows explain. A row of several
  external writes may begin before the revision and end after it. Then the znode differs from that state, and a restore
  records the difference. These entities are listed, because the owners of their keys follow from the remaining rows.
"""

from __future__ import annotations

import asyncio
import time
from contextlib import AsyncExitStack, asynccontextmanager
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Final

from confplane.services.backup.archive import ArchiveManifest, ClusterSummary
from confplane.services.backup.lines import outcome_line, znode_line
from confplane.services.ports.backups import TrailCut
from confplane.services.ports.trail import FIRST_INCARNATION

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable, Mapping, Sequence
    from contextlib import AbstractAsyncContextManager
    from uuid import UUID

    from confplane.services.backup.archive import ArchiveWriter, SeriesWriter
    from confplane.services.ports.backups import CopyPosition, TableSnapshot, TreeCopy, ZnodeCopy

RECORDED_S: Final = 60.0
"""Seconds to wait until the trail has the external changes up to the revision of the copy."""
_POLL_S: Final = 0.5
_MARKERS: Final = 1_000


class BackupService:
    """Makes one archive.

    Args:
        trees: The clusters, connected.
        snapshot: Opens a snapshot of Postgres.
        tables: The tables to copy.
        release: The release of this service.
    """

    def __init__(
        self,
        trees: Sequence[TreeCopy],
        snapshot: Callable[[], AbstractAsyncContextManager[TableSnapshot]],
        tables: Sequence[str],
        release: str,
    ) -> None:
        self._trees = trees
        self._snapshot = snapshot
        self._tables = tables
        self._release = release

    async def run(self, archive: ArchiveWriter, now: datetime) -> ArchiveManifest:
        """Write the archive.

        Raises:
            UnavailableError: A store did not answer; the archive is incomplete.
        """
        znodes: dict[str, int] = {}
        for tree in self._trees:
            series = archive.series(f"clusters/{tree.name}/znodes")
            await tree.read(_adder(series))
            series.flush()
            znodes[tree.name] = series.lines
        changed = {tree.name: archive.series(f"clusters/{tree.name}/changed") for tree in self._trees}
        positions = dict(
            zip(
                changed,
                await asyncio.gather(*(tree.catch_up(_adder(changed[tree.name])) for tree in self._trees)),
                strict=True,
            )
        )
        for series in changed.values():
            series.flush()
        async with self._complete_snapshot(positions) as (snapshot, complete):
            incarnations = await snapshot.incarnations()
            cuts = {
                name: TrailCut(position.revision, incarnations.get(name, FIRST_INCARNATION))
                for name, position in positions.items()
            }
            tables = await self._copy_tables(archive, snapshot, cuts)
            schema = await snapshot.schema()
        manifest = ArchiveManifest(
            now.astimezone(UTC).isoformat(timespec="milliseconds"),
            self._release,
            schema,
            {
                tree.name: ClusterSummary(
                    positions[tree.name].revision,
                    positions[tree.name].time_ms,
                    cuts[tree.name].incarnation,
                    znodes[tree.name],
                    tree.unreadable,
                    tree.name in complete,
                )
                for tree in self._trees
            },
            tables,
            archive.members,
        )
        archive.finish(manifest)
        return manifest

    @asynccontextmanager
    async def _complete_snapshot(
        self, positions: Mapping[str, CopyPosition]
    ) -> AsyncIterator[tuple[TableSnapshot, set[str]]]:
        """Take a snapshot in which the trails are complete up to the positions, if processes complete them.

        Yields:
            The snapshot, and the clusters whose trails are complete in it.
        """
        give_up_at = time.monotonic() + RECORDED_S
        while True:
            async with AsyncExitStack() as stack:
                snapshot = await stack.enter_async_context(self._snapshot())
                recorded = await snapshot.recorded()
                complete = {name for name, each in positions.items() if recorded.get(name, 0) >= each.revision}
                waiting = [tree for tree in self._trees if tree.name in recorded and tree.name not in complete]
                served = [tree for tree in waiting if await tree.processes()]
                if not served or time.monotonic() >= give_up_at:
                    yield snapshot, complete
                    return
            await asyncio.sleep(_POLL_S)

    async def _copy_tables(
        self, archive: ArchiveWriter, snapshot: TableSnapshot, cuts: Mapping[str, TrailCut]
    ) -> dict[str, int]:
        left_out, settled = await self._settle(snapshot, cuts)
        moved = archive.series("moved")
        async for line in snapshot.moved(cuts):
            moved.add(line)
        moved.flush()
        rows = {}
        for table in self._tables:
            series = archive.series(f"tables/{table}")
            async for line in snapshot.rows(table, cuts, left_out):
                series.add(line)
            if table == "outcomes":
                for line in settled:
                    series.add(line)
            series.flush()
            rows[table] = series.lines
        return rows

    async def _settle(self, snapshot: TableSnapshot, cuts: Mapping[str, TrailCut]) -> tuple[list[UUID], list[bytes]]:
        """Return the open changes that are left out, and the outcomes of those that were committed before the cut."""
        left_out: list[UUID] = []
        settled: list[bytes] = []
        for tree in self._trees:
            cut = cuts[tree.name]
            change_ids = await snapshot.open_changes(tree.name)
            committed: set[UUID] = set()
            for start in range(0, len(change_ids), _MARKERS):
                for marker in await tree.committed(change_ids[start : start + _MARKERS]):
                    if marker.revision is not None and marker.revision <= cut.revision:
                        committed.add(marker.change_id)
                        settled.append(outcome_line(marker, tree.name, cut.incarnation))
            left_out += [change_id for change_id in change_ids if change_id not in committed]
        return left_out, settled


def _adder(series: SeriesWriter) -> Callable[[list[ZnodeCopy]], None]:
    def add(copies: list[ZnodeCopy]) -> None:
        for copy in copies:
            series.add(znode_line(copy))

    return add
