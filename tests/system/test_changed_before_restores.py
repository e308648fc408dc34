"""Restores whose stores are changed or unavailable before their first write."""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import pty
import sys
from functools import partial
from typing import TYPE_CHECKING, Final

import pytest

from confplane.audit import PostgresTableWriter
from confplane.audit.backup_tables import KEPT
from confplane.audit.revisions import head_revision
from confplane.cli import archive_files
from confplane.cli.options import load_settings
from confplane.domain.errors import InvalidRequestError
from confplane.services.backup import restore
from confplane.services.backup.index import ArchiveIndex
from confplane.services.backup.restore import RestoreService
from confplane.services.backup.verify import verify
from confplane.store.znodes import INCARNATION
from confplane.wiring import tree_copy
from tests.support.ports import reserved_port
from tests.support.servers import raw_client
from tests.support.stepping import CONSTANTS_VARIABLE
from tests.support.stores import rate
from tests.system.test_backup import RATE, Installation

if TYPE_CHECKING:
    from pathlib import Path

    from tests.support.servers import Database

USER: Final = "/config/users/kept"


@pytest.fixture
def installation(tmp_path: Path, chroot: str, migrated: Database) -> Installation:
    return Installation(tmp_path / "first", chroot, migrated)


@pytest.fixture
async def archive(installation: Installation, tmp_path: Path) -> Path:
    """A backup of the installation, whose process has stopped."""
    file = tmp_path / "backup.tar"
    with installation.service as service:
        async with service.client() as client:
            await client.put("client-quotas", "user=kept", {RATE: 1})
            await asyncio.to_thread(service.wait_recorded)
            await installation.agrees(file)
    return file


def test_a_change_during_the_question_is_not_left_out_of_the_restore(archive: Path, installation: Installation) -> None:
    words = ["restore", str(archive), "--reason", "INC-7"]
    pid, terminal = pty.fork()
    if pid == 0:  # the process on the terminal
        command = [sys.executable, "-m", "tests.support.stepping", *words]
        os.execve(sys.executable, command, installation.environment)  # noqa: S606 - no shell
    shown = b""
    while b"[y/N]: " not in shown:
        shown += os.read(terminal, 1024)
    for raw in raw_client(installation.connect):
        raw.set(USER, rate(2))
    os.write(terminal, b"y\n")
    with contextlib.suppress(OSError):  # Linux: nobody has the other end
        while True:
            shown += os.read(terminal, 1024)
    _, status = os.waitpid(pid, 0)
    os.close(terminal)
    assert (os.waitstatus_to_exitcode(status), b"changed during the question" in shown) == (2, True), shown
    said = asyncio.run(installation.restore(archive, "--yes"))
    assert (said.code, "0 created, 1 changed, 0 deleted" in said.out) == (0, True), said
    for raw in raw_client(installation.connect):
        assert raw.get(USER)[0] == rate(1)


async def test_a_restore_without_zookeeper_says_that_nothing_was_written(
    archive: Path, installation: Installation
) -> None:
    clusters = json.dumps({"default": {"zookeeper": f"127.0.0.1:{reserved_port()}/none"}})
    soon = json.dumps({"confplane.store.tree_copy._CONNECT_S": 0.5})
    said = await installation.restore(archive, "--yes", **{"CONFPLANE_CLUSTERS": clusters, CONSTANTS_VARIABLE: soon})
    assert (said.code, said.err) == (
        1,
        "Nothing was written. Run the command again: Cluster default: ZooKeeper did not answer in time\n",
    )


async def test_a_process_that_is_started_after_the_plan_is_noticed_before_any_write(
    archive: Path, installation: Installation, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(restore, "ENDING_S", 0.0)
    for name, value in installation.environment.items():
        monkeypatch.setenv(name, value)
    settings = load_settings(None)
    with ArchiveIndex() as index:
        with archive_files.read(str(archive), None) as file:
            manifest = verify(file, index, list(KEPT)).manifest
        async with (
            tree_copy("default", settings.clusters["default"]) as tree,
            PostgresTableWriter.open(installation.database.owner_dsn) as tables,
        ):
            service = RestoreService([tree], tables, index, manifest)
            plan = await service.plan(["default"], head_revision())
            with installation.service:
                opened = partial(archive_files.read, str(archive), None)
                with pytest.raises(InvalidRequestError, match="Stop all of them first"):
                    await service.run(plan, opened, confirm_tokens=False, advance=lambda _: None)
    for raw in raw_client(installation.connect):
        assert raw.exists(INCARNATION)
