"""The restore of an archive: both stores get its content, and their clusters are to be adopted afterwards.

Postgres is written in one transaction, and ZooKeeper in many. No process writes in between, as the clusters are
rejected in Postgres first. A restore that was interrupted at any point can be run again: it writes the remaining
znodes, and all rows.
"""

from __future__ import annotations

import asyncio
import time
from dataclasses import dataclass
from typing import IO, TYPE_CHECKING, Final

from confplane.domain.errors import InvalidRequestError
from confplane.domain.facets import Tree
from confplane.services.backup.archive import read_archive

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from contextlib import AbstractContextManager

    from confplane.services.backup.archive import ArchiveManifest
    from confplane.services.backup.index import ArchiveIndex
    from confplane.services.ports.backups import TableWriter, TreeCopy, ZnodeCopy, ZnodeWrite

REASON: Final = "a backup was restored, and its state was not accepted yet"
UNANNOUNCED: Final = f"{REASON}; its brokers have to be restarted"
"""The reason during a restore that does not announce its changes, for a repetition after an interruption."""
ANNOUNCED: Final = 10_000
"""Maximum number of changes that are announced to brokers: they list all notifications at once."""
ENDING_S: Final = 60.0
"""Seconds to wait for the sessions of processes that ended."""
_POLL_S: Final = 0.5
_ROWS: Final = 1_000


@dataclass(frozen=True, slots=True)
class RestorePlan:
    """The work of a restore."""

    znodes: dict[str, dict[str, int]]
    """For each cluster the number of znodes to create, to change and to delete."""
    rows: dict[str, tuple[int, int]]
    """For each table the number of rows now and in the archive."""
    removed: tuple[str, ...]
    """Clusters of the settings whose trail is removed, because the archive does not have them."""
    brokers: dict[str, int]
    unannounced: frozenset[str]
    """Clusters to which an interrupted restore has written without announcements."""
    replaces_znodes: bool
    """True if the content of a znode is replaced or deleted."""

    @property
    def harmless(self) -> bool:
        """True if nothing is replaced, because both stores are empty."""
        filled = any(now for table, (now, _) in self.rows.items() if table not in _NEVER_EMPTY)
        return not self.replaces_znodes and not filled


_NEVER_EMPTY: Final = frozenset({"access_version", "store_positions"})
"""Tables that have rows before the first use, or before the end of a restore that was interrupted."""


class RestoreService:
    """Restores one archive.

    Args:
        trees: The clusters of the archive, connected.
        tables: The tables, in a transaction.
        index: The znodes of the archive, verified.
        manifest: The manifest of the archive.
    """

    def __init__(
        self, trees: Sequence[TreeCopy], tables: TableWriter, index: ArchiveIndex, manifest: ArchiveManifest
    ) -> None:
        self._trees = trees
        self._tables = tables
        self._index = index
        self._manifest = manifest

    async def plan(self, clusters: Sequence[str], schema: str) -> RestorePlan:
        """Compare the stores with the archive.

        Args:
            clusters: All clusters of the settings.
            schema: The revision of the schema of this release.

        Raises:
            InvalidRequestError: The archive can't be restored here, or processes are running.
            UnavailableError: A store did not answer.
        """
        found = await self._tables.schema()
        if found is None:
            raise InvalidRequestError("The database is empty: run `confplane migrate` first.")
        if not found == self._manifest.schema == schema:
            raise InvalidRequestError(
                f"The archive has schema {self._manifest.schema}, the database {found}, and this release {schema}."
                f" Restore with release {self._manifest.release}, and then run `confplane migrate` of a later release."
            )
        for tree in self._trees:
            await self._wait_until_stopped(tree)

            def add(copies: list[ZnodeCopy], name: str = tree.name) -> None:
                self._index.add_existing(name, copies)

            self._index.forget_existing(tree.name)
            await tree.read(add)
        counts = await self._tables.counts()
        rejected = await self._tables.rejected()
        return RestorePlan(
            {tree.name: self._index.plan(tree.name) for tree in self._trees},
            {table: (rows, self._manifest.tables.get(table, 0)) for table, rows in counts.items()},
            tuple(name for name in clusters if name not in self._manifest.clusters),
            {tree.name: await tree.brokers() for tree in self._trees},
            frozenset(name for name, reason in rejected.items() if reason == UNANNOUNCED),
            any(self._index.replaces(tree.name) for tree in self._trees),
        )

    async def _wait_until_stopped(self, tree: TreeCopy) -> None:
        give_up_at = time.monotonic() + ENDING_S
        while processes := await tree.processes():
            if time.monotonic() >= give_up_at:
                raise InvalidRequestError(
                    f"Processes of the service with sessions in the ZooKeeper of cluster {tree.name}: {processes}. Stop"
                    " all of them first."
                )
            await asyncio.sleep(_POLL_S)

    async def run(
        self,
        plan: RestorePlan,
        opened: Callable[[], AbstractContextManager[IO[bytes]]],
        *,
        confirm_tokens: bool,
        advance: Callable[[int], None],
    ) -> None:
        """Write both stores.

        Args:
            plan: The plan.
            opened: Opens the archive once more.
            confirm_tokens: Accept API tokens as they were at the backup.
            advance: Called with numbers of written znodes.

        Raises:
            UnavailableError: A store did not answer. The restore may be run again.
            InvalidRequestError: The archive was changed in the meantime, or processes are running.
        """
        reasons = {tree.name: _reason(plan, tree.name) for tree in self._trees}
        await self._tables.reject(reasons)
        # A process that was started after the plan may write. Later ones see the rejection.
        for tree in self._trees:
            await self._wait_until_stopped(tree)
        for tree in self._trees:
            await tree.begin_restore()
            announces = self.announces(plan, tree.name)
            for writes in self._index.writes(tree.name):
                await tree.write(writes, _announced(writes) if announces else ())
                advance(len(writes))
        await self._write_tables(opened)
        await self._tables.commit(reasons, confirm_tokens=confirm_tokens)

    @staticmethod
    def announces(plan: RestorePlan, cluster: str) -> bool:
        """Return True if the changes of a cluster are announced to its brokers. Otherwise restart them, if any run."""
        few = sum(plan.znodes[cluster].values()) <= ANNOUNCED
        return plan.brokers[cluster] > 0 and few and cluster not in plan.unannounced

    async def _write_tables(self, opened: Callable[[], AbstractContextManager[IO[bytes]]]) -> None:
        """Read the archive in a thread, and insert the rows of one member after another."""
        await self._tables.clear()
        loop = asyncio.get_running_loop()

        def insert(series: str, lines: list[bytes]) -> None:
            kind, _, table = series.partition("/")
            if kind == "tables":
                for start in range(0, len(lines), _ROWS):
                    work = self._tables.insert(table, lines[start : start + _ROWS])
                    asyncio.run_coroutine_threadsafe(work, loop).result()

        def read() -> ArchiveManifest:
            with opened() as file:
                return read_archive(file, insert)

        if await asyncio.to_thread(read) != self._manifest:
            raise InvalidRequestError("The archive was replaced by another one. Run the command again.")


def _reason(plan: RestorePlan, cluster: str) -> str:
    return UNANNOUNCED if plan.brokers[cluster] and not RestoreService.announces(plan, cluster) else REASON


def _announced(writes: Sequence[ZnodeWrite]) -> list[str]:
    return [each.path for each in writes if each.entity and each.path.startswith(f"{Tree.CONFIG}/")]
