"""Markers while bulks are written at full rate: each is listed, dropped after its time, and shows a change that was lost."""

from __future__ import annotations

import asyncio
import itertools
from typing import TYPE_CHECKING, Any, cast
from uuid import UUID

import pytest

from confplane.domain.entities import Entity
from confplane.services.changes import settle
from confplane.services.upkeep import dropping, reconcile
from confplane.store.write import markers
from confplane.store.write.markers import CommitMarkers
from tests.audit.rows import fetch
from tests.support import servers
from tests.support.replicas import Backup, Replica
from tests.support.waiting import until

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from kazoo.client import KazooClient

    from confplane.devstack.postgres import Postgres

COMMITS = "/confplane/commits"
BULKS = 2
"""Bulks that a writer has under way at a time."""


class Writer:
    """A process that writes bulks at full rate, and the changes that it was told of."""

    def __init__(self, replica: Replica, name: str, entries: int) -> None:
        self.replica = replica
        self.told: set[UUID] = set()
        self.stopped = False
        self._name = name
        self._entries = entries
        self._values = itertools.count(1)

    async def write(self) -> None:
        """Write until stopped."""
        await asyncio.gather(*(self._write(number) for number in range(BULKS)))

    async def _write(self, number: int) -> None:
        entities = [Entity.of(user=f"{self._name}-{number}-{each:03}") for each in range(self._entries)]
        while not self.stopped:
            results = await self.replica.edit_all(entities, atomic=False, producer_byte_rate=next(self._values))
            assert [result.error for result in results] == [None] * self._entries
            self.told.update(UUID(result.change_id) for result in results)


class Watch:
    """Drops and listings of all processes, each compared with the trail or with the changes that writers were told of."""

    def __init__(self, patch: pytest.MonkeyPatch, dsn: str, writers: list[Writer]) -> None:
        self.dropped: set[UUID] = set()
        self.too_early: list[UUID] = []
        self.not_listed: set[UUID] = set()
        self.listed: list[int] = []
        self._dsn = dsn
        self._writers = writers
        found, drop = CommitMarkers.found, CommitMarkers.drop

        async def watched_found(self_: CommitMarkers, deadline: float) -> tuple[list[UUID], list[str]]:
            there = self.told() - self.dropped
            listed = await found(self_, deadline)
            self.listed.append(len(listed[0]))
            self.not_listed |= there - self.dropped - set(listed[0])
            return listed

        async def watched_drop(self_: CommitMarkers, change_ids: Sequence[UUID]) -> None:
            old = await asyncio.to_thread(self._old, list(change_ids))
            self.too_early += [change_id for change_id in change_ids if change_id not in old]
            self.dropped.update(change_ids)
            await drop(self_, change_ids)

        patch.setattr(CommitMarkers, "found", watched_found)
        patch.setattr(CommitMarkers, "drop", watched_drop)

    def told(self) -> set[UUID]:
        return set().union(*(writer.told for writer in self._writers))

    def _old(self, change_ids: list[UUID]) -> set[UUID]:
        query = (
            "SELECT change_id FROM outcomes"
            " WHERE change_id = ANY(%s) AND recorded_at <= now() - make_interval(secs => %s)"
        )
        return {row[0] for row in fetch(self._dsn, query, change_ids, reconcile.SWEEP_AGE_S)}


async def sweep(lead: Replica) -> None:
    """A round of the leader that lists all markers."""
    lead.reconciler._sweep_at = 0.0
    await lead.reconcile()


async def sweeping(lead: Replica, pause_s: float) -> None:
    while True:
        await sweep(lead)
        await lead.round()
        await asyncio.sleep(pause_s)


def shorten(patch: pytest.MonkeyPatch, minute: float) -> None:
    """Shorten the times that rest on the minute for which a marker stays."""
    patch.setattr(markers, "RELEASE_SECONDS", minute)
    patch.setattr(dropping, "PERIOD_S", minute / 6)
    patch.setattr(settle, "_FRESH_S", minute / 4)


async def die(writer: Writer, task: asyncio.Task[None]) -> None:
    """End a process whose last outcomes were not written."""
    before = len(writer.told)

    async def unheard(_outcomes: Any) -> bool:
        return False

    cast("Any", writer.replica.audit).conclude = unheard
    await until(lambda: len(writer.told) > before)
    writer.stopped = True
    await task
    await writer.replica.stop()


@pytest.mark.parametrize(
    ("seconds", "minute", "entries"),
    [(1.5, 1.5, 200), pytest.param(300.0, 60.0, 500, marks=pytest.mark.long)],
    ids=["short", "long"],
)
async def test_markers_are_listed_swept_and_recovered_while_bulks_are_written_at_full_rate(
    chroot: str,
    postgres: Postgres,
    raw_zk: KazooClient,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    seconds: float,
    minute: float,
    entries: int,
) -> None:
    shorten(monkeypatch, minute)
    database = servers.make_migrated(postgres)
    lead, *replicas = [await Replica(chroot, database, tmp_path).start(leads=not number) for number in range(3)]
    one, two = writers = [Writer(replica, f"w{number}", entries) for number, replica in enumerate(replicas)]
    watch = Watch(monkeypatch, database.owner_dsn, writers)
    try:
        await lead.record()
        # Postgres loses everything that follows, within a minute.
        monkeypatch.setattr(reconcile, "SWEEP_AGE_S", 1e9)
        backup = Backup(database.owner_dsn)
        writing = [asyncio.create_task(writer.write()) for writer in writers]
        await asyncio.sleep(min(seconds / 3, 10.0))
        one.stopped = two.stopped = True
        await asyncio.gather(*writing)
        lost = watch.told()
        backup.restore()
        assert fetch(database.owner_dsn, "SELECT count(*) FROM intents") == [(0,)]
        lead.recorder.server = "the one before"
        await lead.record()
        kinds = fetch(database.owner_dsn, "SELECT kind, count(*) FROM intents GROUP BY kind")
        assert kinds == [("recovered", len(lost))]
        assert watch.dropped == set()
        monkeypatch.setattr(reconcile, "SWEEP_AGE_S", minute)

        # One writer leaves its markers to the leader, and ends midway.
        cast("Any", two.replica.store.markers).release = lambda _: None
        one.stopped = two.stopped = False
        first, second = [asyncio.create_task(writer.write()) for writer in writers]
        rounds = asyncio.create_task(sweeping(lead, minute / 10))
        await asyncio.sleep(seconds / 2)
        await die(two, second)
        await asyncio.sleep(seconds / 2)
        one.stopped = True
        await first
        peak = max(watch.listed)
        await until(lambda: not raw_zk.get_children(COMMITS) or rounds.done(), 120 + 2 * minute, pause_s=0.2)
        assert not rounds.done(), rounds
        rounds.cancel()
        await asyncio.gather(rounds, return_exceptions=True)

        made = watch.told()
        assert (watch.too_early, watch.not_listed, made - watch.dropped) == ([], set(), set())
        assert peak < len(made) / 2 or seconds < 4 * minute
        await sweep(lead)
        assert lead.reconciler.warnings() == []
        await lead.record()
        kinds = fetch(
            database.owner_dsn,
            "SELECT kind, count(*), count(*) FILTER (WHERE committed) FROM intents LEFT JOIN outcomes"
            " USING (change_id) GROUP BY kind ORDER BY kind",
        )
        later = len(made) - len(lost)
        assert kinds == [("change", later, later), ("recovered", len(lost), len(lost))]
        assert [replica.audit.differing for replica in (lead, *replicas)] == [0, 0, 0]
    finally:
        for replica in (lead, *replicas):
            await replica.stop()
