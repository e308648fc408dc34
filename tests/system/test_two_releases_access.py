"""An earlier release on the same tables of tokens and grants, while this one writes what that one does not know."""

from __future__ import annotations

import asyncio
from functools import partial
from typing import TYPE_CHECKING, Any

import httpx

from confplane.domain.access.identities import CredentialNarrowing
from confplane.domain.access.operations import Operation, Permission, ResourceType, Role
from tests.support import servers
from tests.support.credentials import credentials
from tests.support.releases import earlier_applying
from tests.support.service import Service
from tests.support.stepping import STEP_FILE_VARIABLE
from tests.support.waiting import until

if TYPE_CHECKING:
    from pathlib import Path

    from confplane.devstack.postgres import Postgres
    from confplane.devstack.zookeeper import ZooKeeper


async def test_an_earlier_release_reads_on_past_operations_that_it_does_not_know(
    zookeeper: ZooKeeper, postgres: Postgres, tmp_path: Path
) -> None:
    dsn = servers.make_migrated(postgres).service_dsn
    service = Service(
        tmp_path / "earlier",
        connect=servers.make_chroot(zookeeper.hosts),
        dsn=dsn,
        settings={STEP_FILE_VARIABLE: str(tmp_path / "step")},
        module="tests.support.stepping",
    )
    service.root = await asyncio.to_thread(earlier_applying, tmp_path / "files")
    await asyncio.to_thread(service.start)
    try:
        async with credentials(dsn) as made:
            _, alice = await made.token("User:alice")
            of_alice = {"resource": ResourceType.USER, "name": "bob"}
            allowed = await made.grant("User:alice", operation=Operation.REPORT, **of_alice)
            await made.grant("User:alice", operation=Operation.REPORT, permission=Permission.DENY, **of_alice)
            only = CredentialNarrowing(operations=frozenset({Operation.REPORT, Operation.DESCRIBE_CONFIGS}))
            _, narrowed = await made.token("User:alice", narrowing=only)
            await made.grant("User:alice", role=Role.VIEWER)
            await until(partial(_has, service, alice, [("role", "viewer")]))
            shown = await _whoami(service, narrowed)
            assert shown["narrowing"]["operations"] == ["DESCRIBE_CONFIGS"]
            await made.remove(allowed)
            await made.grant("User:alice", operation=Operation.RESOLVE, **of_alice)
            await until(partial(_has, service, alice, [("role", "viewer"), ("operation", "RESOLVE")]))
            # A new process of that release reads the tables from the beginning.
            await asyncio.to_thread(service.stop)
            await asyncio.to_thread(service.start)
            assert await _has(service, alice, [("role", "viewer"), ("operation", "RESOLVE")])
    finally:
        if service.running:
            await asyncio.to_thread(service.stop)


async def _whoami(service: Service, token: str) -> Any:
    async with httpx.AsyncClient(base_url=service.url, trust_env=False, timeout=30) as client:
        answer = await client.get("/v1/whoami", headers={"Authorization": f"Bearer {token}"})
        return answer.json() if answer.status_code == httpx.codes.OK else {"grants": []}


async def _has(service: Service, token: str, grants: list[tuple[str, str]]) -> bool:
    found = (await _whoami(service, token))["grants"]
    return sorted(
        (member, each[member]) for each in found for member in ("role", "operation") if each[member]
    ) == sorted(grants)
