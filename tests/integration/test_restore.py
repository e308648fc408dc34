"""A restore asks before it replaces anything. Restores of whole backups are in ``tests/system/test_backup.py``."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from confplane.audit.backup_tables import KEPT
from confplane.audit.revisions import head_revision
from confplane.cli.restore import restore
from confplane.services.backup.archive import ArchiveManifest, ArchiveWriter, ClusterSummary
from confplane.services.backup.lines import znode_line
from confplane.settings import Settings
from confplane.store import ZooKeeperAccess, ZooKeeperTreeCopy
from tests.support.stores import kafka_writes, rate

if TYPE_CHECKING:
    from pathlib import Path

    import pytest
    from kazoo.client import KazooClient

    from confplane.services.ports.backups import ZnodeCopy
    from tests.support.servers import Database


async def copies_of(chroot: str) -> list[ZnodeCopy]:
    found: list[ZnodeCopy] = []
    async with ZooKeeperTreeCopy("default", chroot, 4_000, ZooKeeperAccess()) as tree:
        await tree.read(found.extend)
    return found


def test_what_a_restore_replaces_needs_a_confirmation(
    chroot: str, raw_zk: KazooClient, migrated: Database, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    copies = asyncio.run(copies_of(chroot))
    clusters = {"default": ClusterSummary(raw_zk.last_zxid, 0, 1, len(copies), 0, trail_complete=True)}
    path = tmp_path / "backup.tar"
    with path.open("wb") as file:
        writer = ArchiveWriter(file, 0)
        series = writer.series("clusters/default/znodes")
        for each in copies:
            series.add(znode_line(each))
        series.flush()
        manifest = ArchiveManifest(
            "2026-11-29T09:00:00.000+00:00", "1", head_revision(), clusters, dict.fromkeys(KEPT, 0), writer.members
        )
        writer.finish(manifest)
    kafka_writes(raw_zk, "users/alice", rate(1))
    settings = Settings.model_validate(
        {
            "clusters": {"default": {"zookeeper": chroot}},
            "postgres": {"dsn": migrated.service_dsn, "migration_dsn": migrated.owner_dsn},
            "admin_token_file": tmp_path / "token",
        }
    )

    assert restore(settings, path, None, reason="INC-7", yes=False, confirm_tokens=False) == 1
    said = capsys.readouterr()
    assert ("1 deleted" in said.out, "Nothing was written" in said.err) == (True, True), said
    assert raw_zk.get("/config/users/alice")[0] == rate(1)
    assert restore(settings, path, None, reason="INC-7", yes=True, confirm_tokens=False) == 0
    assert raw_zk.exists("/config/users/alice") is None
