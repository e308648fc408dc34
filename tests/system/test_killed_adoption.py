"""``confplane adopt-store`` killed at each of its steps: the next run completes it, and each difference has one row."""

from __future__ import annotations

import asyncio
import json
import signal
from functools import partial
from typing import TYPE_CHECKING, Final

import pytest

from tests.support.commands import Commands, run
from tests.support.service import Service
from tests.support.stepping import CONSTANTS_VARIABLE, STEP_FILE_VARIABLE
from tests.support.waiting import until
from tests.system.test_adopted_store import KEPT, LOST, NEW, RATE, Standalone, accepted, running, values

if TYPE_CHECKING:
    from pathlib import Path

    from tests.support.facets import ConfplaneClient
    from tests.support.servers import Database

MOVES: Final = 4
"""The statements of the adoption: each of two entities is moved to its last known state, and to the restored one."""
ONE_BY_ONE: Final = {"confplane.services.recorder.adoption._PAGE": 1}


@pytest.mark.parametrize(
    ("step", "kills"),
    [("recorded", MOVES), *((step, 1) for step in ("accounted", "adopted", "intent", "transaction", "outcome"))],
)
async def test_a_killed_adoption_is_completed_by_the_next_one(
    migrated: Database, tmp_path: Path, step: str, kills: int
) -> None:
    with running(Standalone(tmp_path)) as store:
        one = partial(Service, tmp_path / "one", connect=store.hosts, dsn=migrated.service_dsn)
        with one() as recorded:
            async with recorded.client() as client:
                await client.put("client-quotas", KEPT, {RATE: 1})
                await asyncio.to_thread(recorded.wait_recorded)
        await asyncio.to_thread(store.copy)
        # The states in the trail stay behind these changes.
        with one(cluster={"record_external_changes": False}) as unrecorded:
            async with unrecorded.client() as client:
                await client.put("client-quotas", KEPT, {RATE: 2})
                await client.put("client-quotas", LOST, {RATE: 1})
        await asyncio.to_thread(store.restore)

        file = tmp_path / "step"
        environment = {
            **Commands(tmp_path, connect=store.hosts, dsn=migrated.service_dsn).environment,
            CONSTANTS_VARIABLE: json.dumps(ONE_BY_ONE),
            STEP_FILE_VARIABLE: str(file),
        }
        adopt = ("adopt-store", "--cluster", "default", "--reason", "restored")
        command = partial(run, adopt, environment, module="tests.support.stepping")
        for _ in range(kills):
            file.write_text(f"{step}:SIGKILL")
            said = await asyncio.to_thread(command)
            assert said.code == -signal.SIGKILL, said
        said = await asyncio.to_thread(command)
        assert said.code == 0, said

        with one() as adopted:
            async with adopted.client() as client:
                await until(lambda: accepted(client))
                await asyncio.to_thread(adopted.wait_recorded)
                assert await history(client, KEPT) == [("external", 2, 1), ("change", 1, 2), ("change", None, 1)]
                assert await history(client, LOST) == [("external", 1, None), ("change", None, 1)]
                assert await history(client, NEW) == [("change", None, 1)]
                # The outcome of a change whose process was killed is recovered some time after the start.
                assert await until(lambda: adoptions(client)) == ["restored"]


async def adoptions(client: ConfplaneClient) -> list[str]:
    return [item["reason"] async for item in client.items("audit", entity="cluster", outcome="committed")]


async def history(client: ConfplaneClient, entity_id: str) -> list[tuple[str, object, object]]:
    return values([item async for item in client.history("client-quotas", entity_id)])
