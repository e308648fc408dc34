"""``confplane export --format terraform``: its first apply imports everything and changes no content.

``exported.tf`` is an export for which a real run showed this. Every run of the tests compares an export with it;
``CONFPLANE_RECORD=1`` writes it anew, in a real run.
"""

from __future__ import annotations

import os
import shutil
from pathlib import Path
from typing import TYPE_CHECKING, Final

import pytest

from confplane.cli.remote.export_forms import export, form_of
from confplane.cli.remote.selection import EntitySelection
from confplane.domain.facets import FacetName
from tests.automation import tofu
from tests.support import odd_configs, tools
from tests.support.service import ServiceInThread

if TYPE_CHECKING:
    from collections.abc import Iterator

    from kazoo.client import KazooClient

    from tests.support.servers import Database
    from tests.support.service import Service

EXPORTED: Final = Path(__file__).with_name("exported.tf")
_RESOURCES: Final = 44
"""The facets of all entities."""


@pytest.fixture
def service(chroot: str, migrated: Database, raw_zk: KazooClient, tmp_path: Path) -> Iterator[Service]:
    """A service on a cluster with odd configs."""
    odd_configs.write(raw_zk)
    with ServiceInThread(tmp_path / "service", connect=chroot, dsn=migrated.service_dsn) as running:
        yield running


async def test_an_export_is_the_recorded_one(service: Service, tmp_path: Path) -> None:
    async with service.client() as client:
        assert await export(client, form_of("terraform", None), EntitySelection({}), tmp_path / "main.tf") == 0
    assert (tmp_path / "main.tf").read_text() == EXPORTED.read_text()


async def test_the_update_that_follows_an_import_changes_nothing(service: Service) -> None:
    # The provider's import knows no `read_path`, so the first apply sends each object once more.
    async with service.client() as client:
        sent = 0
        for facet in FacetName:
            async for item in client.items(facet.value):
                done = await client.request("PUT", f"{facet.value}/{item['id']}", json=item)
                assert (done.status, done.change_id) == (200, None), item
                sent += 1
        assert sent >= _RESOURCES


async def test_a_plan_of_an_export_imports_everything_and_changes_nothing(service: Service, tmp_path: Path) -> None:
    tool, restapi = tools.obtain(tofu.program, fetched=False), tools.obtain(tofu.provider, fetched=False)
    shutil.copytree(tofu.MODULE, tmp_path / "confplane")
    workspace = tofu.Workspace(tmp_path, "exported", tool=tool, restapi=restapi, url=service.url, token=service.token)
    workspace.directory.mkdir()
    file = workspace.directory / "main.tf"
    async with service.client() as client:
        assert await export(client, form_of("terraform", None), EntitySelection({}), file) == 0
    workspace.run("init", "-input=false")
    plan = workspace.changes(expected=True)
    assert f"Plan: {_RESOURCES} to import, 0 to add, {_RESOURCES} to change, 0 to destroy" in plan, plan
    assert f"{_RESOURCES} imported, 0 added, {_RESOURCES} changed, 0 destroyed" in workspace.apply()
    assert "No changes" in workspace.changes(expected=False)
    if os.environ.get("CONFPLANE_RECORD") == "1":
        shutil.copy(file, EXPORTED)
